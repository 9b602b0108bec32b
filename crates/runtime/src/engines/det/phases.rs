//! What private views of memory, and processes that look like one, ask of this engine ([`Phases`]).

use super::token::{self, child, member, state, why};
use super::{idle, log, retained};
use crate::common::plain;
use crate::engine::waits::Wait;
use crate::isolate::phases::{Phases, Whereabouts};
use crate::machine::sys::is_error;
use crate::memory::capture::Call;
use crate::thread::Block;
use core::sync::atomic::Ordering::*;
use reprise_abi::det::question;
use reprise_abi::syscalls::nr;

/// The ring, its token and its leader, as far as others have to know.
pub struct Ring;

impl Phases for Ring {
    fn round(&self) -> u32 {
        token::round()
    }

    fn lets_own(&self) -> bool {
        token::live() > 1
    }

    fn bears_own(&self, t: &Block) -> bool {
        t.det().in_turn && !t.det().leads
    }

    fn looks(&self) -> bool {
        retained::looks()
    }

    fn has_looked(&self) {
        retained::has_looked();
    }

    fn whereabouts(&self, slot: u32) -> Whereabouts {
        let m = member(slot);
        match m.state.load(SeqCst) {
            state::NOBODY => Whereabouts::Gone,
            state::OUTSIDE => Whereabouts::InKernel,
            // It has a turn, and waits for a child there.
            _ if m.child.load(SeqCst) != child::NONE => Whereabouts::InKernel,
            state::WAITS => Whereabouts::Waits,
            _ => Whereabouts::AtWork,
        }
    }

    fn rouse(&self, slot: u32) {
        token::rouse(slot);
    }

    fn recall(&self, slot: u32, how: Wait) {
        let reason = match how {
            Wait::Signal => why::SIGNAL,
            Wait::TimedOut => why::TIMED_OUT,
            _ => why::WOKEN,
        };
        token::recall(slot, reason);
    }

    /// Who gets them is not in a log: there they come to the thread that the kernel chooses.
    fn passes_signals_on(&self) -> bool {
        !log::on()
    }

    fn signal_has_come(&self) {
        idle::notify_for_nobody();
    }

    /// A replay's log says where they came.
    fn delivers(&self) -> bool {
        !log::replays()
    }

    fn shape(&self, t: &mut Block, c: &mut Call) -> i64 {
        match c.nr {
            nr::SHMAT | nr::SHMDT if log::follows(t) => log::ask::attach(t, c),
            nr::SHMAT | nr::SHMDT => plain::address_space::<super::Det>(t, c),
            _ => log::ask::shape(t, c),
        }
    }

    fn find_room(&self, t: &mut Block, map: &dyn Fn(Option<u64>) -> i64) -> i64 {
        let to = log::told(t, question::ADDRESS, |_| map(None));
        if log::replays() && !is_error(to) {
            map(Some(to as u64));
        }
        to
    }
}
