//! What private views of memory ask of this engine ([`Phases`]).

use super::{children, idle, outside, proxy, retained, space, token};
use crate::isolate::owned::How;
use crate::isolate::phases::Phases;
use crate::thread::Block;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The ring, its token and its leader, as far as views of memory are concerned.
pub struct Ring;

impl Phases for Ring {
    fn round(&self) -> u32 {
        token::round()
    }

    fn take_twin(&self) -> u32 {
        token::take_twin()
    }

    fn live(&self) -> u32 {
        token::live()
    }

    fn number_of(&self, slot: u32) -> u32 {
        token::member(slot).index.load(Relaxed)
    }

    fn is_in_turn(&self, t: &Block) -> bool {
        t.det().in_turn && !t.det().leads
    }

    fn looks(&self) -> bool {
        retained::looks()
    }

    fn has_looked(&self) {
        retained::has_looked();
    }

    fn give_back(&self, slot: u32, start: u64, end: u64, how: How) {
        proxy::give_back(slot, start, end, how);
    }

    fn call_by_first(&self, number: u64, args: &[u64; 6]) -> i64 {
        proxy::by_first(number, args)
    }

    fn tell_protection(&self, t: &Block, at: u64, len: u64, prot: u64) {
        space::tell_protection(t, at, len, prot);
    }

    fn has_copied(&self) -> &'static AtomicU32 {
        idle::copied()
    }

    fn left(&self) {
        outside::undo();
        children::undo();
    }
}
