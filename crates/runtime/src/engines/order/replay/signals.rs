//! Signals of a replay that come between a thread's operations, and in the middle of its code.

use super::entries::is_signal_next;
use super::faults;
use crate::common::deliver::deliver;
use crate::engines::order::{cut, turns};
use crate::log::ring::Reader;
use crate::signal::frame::{FpState, Ucontext};
use crate::signal::kernel;
use crate::thread::Block;
use core::sync::atomic::Ordering::*;
use reprise_abi::event::Kind;

/// The thread goes on in its code. When the next that it does is a cut, its place is looked for; when it is a fault, its turn is waited for.
pub(super) fn look_ahead(t: &mut Block) {
    match is_signal_next(t) {
        Some(h) if h.kind == Kind::Cut as u8 => cut::replay::plant(t, h),
        Some(_) => {}
        None => faults::await_turn(t),
    }
}

/// In the middle of code, where a cut was found: the signals that came there are delivered.
pub(in crate::engines::order) fn follow(t: &mut Block, uc: &mut Ucontext) {
    while let Some(h) = is_signal_next(t) {
        if h.kind == Kind::Cut as u8 {
            return cut::replay::plant(t, h);
        }
        t.slot().last_pc.store(uc.mc.rip, Relaxed);
        let mut r = Reader::begin(h);
        let [_, stamp, ..] = r.args();
        turns::take(t, stamp);
        let mut frame = uc.mc.to_frame();
        deliver(t, &mut frame, FpState::Saved(uc.mc.fpstate), h);
        kernel::enter_from_kernel(t, uc, &frame);
    }
}
