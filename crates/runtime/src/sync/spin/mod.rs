//! Threads that wait by looking at memory, under `serial`: they give way to whoever is ready, instead of using up their slice.
//!
//! Where a thread waits is known in two ways. `pause` says so by itself: when the first other thread is about to be made, or memory is mapped that
//! other processes may write to, and when a library is mapped later, each `pause` of the program's files gets a [gate](mod@gate) in front of it, if it is proven
//! to be an instruction (decoding from the beginning of a function arrives there). And where a slice ended at a thread in the same state as a moment
//! before, a gate is put at that place, for the rest of the recording ([`found_waiting`]).
//!
//! Threads that also look at the clock come to gates anyway: [`clock`].
//!
//! The gates are in stubs beside the code, made and found by [`crate::sync::locked`]. A stub only counts; how many looks a thread has had when it gives way is in
//! the event, so that a replay gives way at the same one.
//!
//! Not seen are `pause` in code that a program generates, and in modules without a table for unwinding; what is spun on there is found as other places are.

pub mod clock;
pub mod gate;

use crate::code::patch::{PAUSES, PAUSES_WITH_CODE, SPIN};
use crate::log::debugger::CodeAsRecorded;
use crate::log::events;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::{self, map, Region};
use crate::sync::hook;
use crate::sync::locked::{self, units::Waits};
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use reprise_abi::event::Kind;
use reprise_abi::session::FLAG_NO_PATCH;
use reprise_abi::syscalls::nr;
use reprise_place::walk::Plan;

pub use gate::{gate, Looks};

/// Most places of a process that are found by threads in the same state; more stay as they are.
const MAX_PLACES: u32 = 256;

/// Record: the program's code has its gates.
static DONE: AtomicBool = AtomicBool::new(false);
/// Record: so many places were found by threads in the same state.
static PLACES: AtomicU32 = AtomicU32::new(0);

fn is_wanted() -> bool {
    session().flags & FLAG_NO_PATCH == 0
}

/// Record: a thread is about to be made.
pub fn before_thread(t: &mut Block) {
    begin(t, PAUSES);
}

/// Record, at the end of a call that shapes the address space: memory that other processes may write to, or new code.
pub fn after_call(t: &mut Block, c: &Call, result: i64) {
    const PROT_WRITE: u64 = 2;
    if sys::is_error(result) {
        return;
    }
    if DONE.load(Relaxed) {
        if let Some(module) = hook::completed_by(c, result) {
            let holds = |r: &Region| module.holds(&crate::machine::guard::Program, r.start);
            for r in memory::each().filter(holds) {
                put(t, &r, PAUSES_WITH_CODE);
            }
        }
        return;
    }
    let shared = match c.nr {
        nr::MMAP => c.args[2] & PROT_WRITE != 0 && c.args[3] & sys::MAP_SHARED != 0,
        nr::SHMAT => true,
        _ => false,
    };
    if shared {
        begin(t, PAUSES_WITH_CODE);
    }
}

/// Puts gates into all code, once, if no other thread may be in it.
fn begin(t: &mut Block, form: u32) {
    let alone = crate::thread::process::entry().live_threads.load(Relaxed) == 1;
    if !alone || !is_wanted() || DONE.swap(true, Relaxed) {
        return;
    }
    for r in memory::each() {
        put(t, &r, form);
    }
}

fn put(t: &mut Block, code: &Region, form: u32) {
    if !code.is_code() {
        return;
    }
    if let Some((annex, len)) = locked::add_waits(code, Waits::AtPauses) {
        events::plain(Kind::Patch, t.slot, form, 0, &[code.start, annex, len]);
        t.spin().look_at_once();
    }
}

/// Record, where a slice ends: the thread is where it was a moment before, in the same state. Whoever comes here from now on gives way.
pub fn found_waiting(t: &mut Block, plan: &Plan) {
    let pc = plan.regs.rip;
    let Some(code) = map().at(pc).filter(|r| r.is_code() && is_wanted()) else {
        return;
    };
    if PLACES.load(Relaxed) == MAX_PLACES || locked::moved_to(pc).is_some() {
        return;
    }
    if let Some((annex, len)) = locked::add_waits(&code, Waits::At(pc)) {
        PLACES.fetch_add(1, Relaxed);
        events::plain(Kind::Patch, t.slot, SPIN, 0, &[pc, annex, len]);
        t.spin().look_at_once();
    }
}

/// Replay: puts the gates of one event. False: that can't be done as recorded.
pub fn replay(form: u32, at: u64, annex: u64, len: u64) -> bool {
    let _code = CodeAsRecorded::begin();
    let waits = match form {
        SPIN => Waits::At(at),
        _ => Waits::AtPauses,
    };
    locked::replay_waits(at, waits, annex, len)
}
