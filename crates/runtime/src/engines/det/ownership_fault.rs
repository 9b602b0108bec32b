//! Touching a page that is another thread's own ([`crate::isolate::owned`]): a synchronisation point, at that instruction, which is made again when the owner
//! has given the page back.
//!
//! The program's code gets there by a fault; memory that a system call is given is looked at before the call, since the kernel would call it bad; the runtime's
//! own code, which works for the program, claims the page where it stands.

use super::{spin, turns};
use crate::isolate::owned::{self, Why};
use crate::isolate::split;
use crate::memory::capture::Call;
use crate::signal::frame::Ucontext;
use crate::sync::in_runtime;
use crate::sync::locked;
use crate::thread::signals::{Siginfo, SIGSEGV};
use crate::thread::{take_block, Block, Frame};
use reprise_abi::effect::Effect;
use reprise_abi::layout::PAGE;
use reprise_abi::syscalls;

/// si_code of an access that the page's protection forbids.
const ACCERR: i32 = 2;

/// What a thread keeps of it, in its block.
#[derive(Default)]
pub struct Touch {
    /// What it has touched.
    address: u64,
    /// How many times it has touched others' pages.
    times: u32,
}

/// A signal, before anything else is done about it. True: it was a touch.
pub fn takes(t: &mut Block, signal: u32, info: &Siginfo, uc: &mut Ucontext) -> bool {
    if signal != SIGSEGV || info.code() != ACCERR || !owned::any() {
        return false;
    }
    let at = info.address();
    if !owned::is_foreign(t.slot, at, at + 1) {
        // It may have been given back since.
        return false;
    }
    t.det().touch.address = at;
    let in_own_code = in_runtime(uc.mc.rip) || locked::is_stub(uc.mc.rip);
    let has_turn = t.det().in_turn || t.det().io.has || t.det().keeps != 0 && !t.det().leads;
    if in_own_code || has_turn {
        claim(t);
    } else {
        spin::divert(t, uc, spin::Way::Touched);
    }
    true
}

/// The way from the program's code.
pub extern "C" fn turn(frame: &mut Frame) {
    // SAFETY: the thread comes from the program's code, from which its handler has diverted it.
    let t = unsafe { take_block() };
    turns::begin_anew(t);
    claim(t);
    turns::end(t);
    spin::goes_on(t, frame);
}

/// The touched page is claimed, and those around it, the more the more often that happens.
fn claim(t: &mut Block) {
    let claim = |t: &mut Block| {
        let (at, times) = (t.det().touch.address, t.det().touch.times);
        t.det().touch.times = times.saturating_add(1);
        let (start, end) = owned::window(at, times);
        owned::claim(t, start, end, Why::Wanted);
    };
    match t.det().io.has {
        // Nobody runs in such a turn, either, and libc's code is in the midst of a print.
        true => claim(t),
        false => turns::within_earnest(t, claim),
    }
}

/// Before a system call of the program's: what it reads and writes is nobody else's own.
pub fn before_call(t: &mut Block, frame: &Frame) {
    if !split::in_force() {
        return;
    }
    let number = frame.rax as u32 as u64;
    // What those do to memory is known better where they are made.
    let c = Call::new(number, frame.args(), syscalls::lookup(number));
    if matches!(
        c.effect,
        Effect::Maps
            | Effect::Unmaps
            | Effect::Protects
            | Effect::Remaps
            | Effect::Advises
            | Effect::Breaks
    ) {
        return;
    }
    let slot = t.slot;
    let reaches = |at: u64, len: u64| owned::is_foreign(slot, at, at.saturating_add(len.max(1)));
    if c.all_memory(|at, len| !reaches(at, len)) {
        return;
    }
    turns::within_earnest(t, |t| {
        let t: &Block = t;
        let known = c.all_memory(|at, len| {
            if reaches(at, len) {
                let end = at.saturating_add(len.max(1)).next_multiple_of(PAGE);
                owned::claim(t, at & !(PAGE - 1), end, Why::Wanted);
            }
            true
        });
        if !known {
            owned::claim_all(t, true);
        }
    });
}
