//! Call sites and instructions that are rewritten in a replay as they were in the recording: where its events say so.

use super::rebuilt;
use crate::code::patch::*;
use crate::code::replaced::{self, Was};
use crate::log::debugger::CodeAsRecorded;
use crate::memory::space;
use crate::thread::Block;
use reprise_abi::event::{Kind, AMONG_THREADS};

/// What a replay whose threads run at the same time has to see to.
pub trait Rewrites {
    /// Says, while it lives, that the thread isn't done with what was recorded of it.
    type Busy;
    /// Before the next event is looked for.
    fn settle(_t: &mut Block) {}
    /// It may be the last event of a thread that another one's exec ends: that is to wait for it.
    fn is_busy(_t: &Block) -> Option<Self::Busy> {
        None
    }
    /// Others ran when the site was rewritten, in the turn of this stamp.
    fn among_threads(_t: &mut Block, _site: u64, _stamp: u64, rewrite: impl FnOnce()) {
        rewrite();
    }
    /// There were no others when it was.
    fn alone(_t: &mut Block) {}
}

/// Replay, at the start of a gate: makes the patches that come next.
pub fn replay<R: Rewrites>(t: &mut Block) {
    replay_those::<R>(t, |_| true);
}

/// Replay, at the end of a gate that brought code: replaces in it what the recording did. Patches of call sites that come next belong to
/// the gate to come: the program gets there by the code as it is.
pub fn replay_with_code<R: Rewrites>(t: &mut Block) {
    replay_those::<R>(t, comes_with_code);
}

fn replay_those<R: Rewrites>(t: &mut Block, wanted: impl Fn(u32) -> bool) {
    R::settle(t);
    while let Some(h) = crate::log::ring::peek() {
        if h.kind != Kind::Patch as u8 || h.slot as u32 != t.slot || !wanted(h.detail) {
            return;
        }
        // It may be the last event of a thread that another one's exec ends: that is to wait for it.
        let _busy = R::is_busy(t);
        let mut r = crate::log::ring::Reader::begin(h);
        let [site, stub, third, ..] = r.args();
        r.finish();
        if matches!(h.detail, LOCKED | LOCKED_WITH_CODE) {
            let _code = CodeAsRecorded::begin();
            if !rebuilt::replaces(site, stub, third)
                && !crate::sync::locked::replay(site, stub, third)
            {
                crate::thread::panic::give_up(
                    "the locked instructions of the program can't be replaced as recorded",
                );
            }
            continue;
        }
        if matches!(h.detail, PAUSES | PAUSES_WITH_CODE | SPIN) {
            if !crate::sync::spin::replay(h.detail, site, stub, third) {
                crate::thread::panic::give_up(
                    "the places where threads wait can't be replaced as recorded",
                );
            }
            continue;
        }
        if h.detail == CLOCK {
            let _code = CodeAsRecorded::begin();
            let was = match h.value {
                0 => Was::Rdtsc,
                _ => Was::Rdtscp,
            };
            if !rebuilt::was_program(site) && !replaced::replace(site, was) {
                crate::thread::panic::give_up("an instruction can't be replaced as recorded");
            }
            continue;
        }
        let form = h.detail & !AMONG_THREADS;
        if form != h.detail {
            R::among_threads(t, site, third, || {
                if !rebuilt::was_program(site) {
                    let _lock = space::lock();
                    put(site, stub, form, true);
                }
            });
            continue;
        }
        if !comes_with_code(form) {
            R::alone(t);
        }
        if rebuilt::was_program(site) {
            continue;
        }
        let _code = CodeAsRecorded::begin();
        if form == CPUID {
            replaced::replace(site, Was::Cpuid);
            continue;
        }
        put(site, stub, form, false);
    }
}
