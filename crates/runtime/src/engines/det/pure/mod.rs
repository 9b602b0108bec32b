//! `reprise run --pure`: a run that depends on nothing but the program's inputs. Time ([`clock`]), randomness ([`random`]) and the ids of processes and
//! threads ([`ids`]) are the runtime's own, and the same in every run; [`calls`] answers system calls from them.

pub mod calls;
pub mod clock;
pub mod ids;
pub mod random;
pub mod sleep;
pub mod stack;

use crate::thread::process;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::session::FLAG_PURE;

/// What a thread has of its own.
#[derive(Default)]
pub struct Local {
    /// Its time.
    pub clock: clock::Clock,
    /// Random words that it has drawn.
    pub drawn: u64,
}

/// Was it asked for?
#[inline(always)]
pub fn on() -> bool {
    session().flags & FLAG_PURE != 0 && crate::thread::in_force::has_private_views()
}

/// First thing a program does: the first of all, or what a process has become.
pub fn image_starts(t: &mut Block) {
    let entry = process::entry();
    let kernel = t.kernel_tid;
    let first = entry.visible_pid.load(Relaxed) == kernel;
    if first {
        let id = ids::new_id();
        ids::learn(id, kernel);
        entry.visible_pid.store(id, Relaxed);
    }
    t.slot()
        .visible_tid
        .store(entry.visible_pid.load(Relaxed), Relaxed);
    t.det()
        .pure
        .clock
        .set(ids::time_of(entry.visible_pid.load(Relaxed)));
    random::fill_at_start(t);
}

/// The calling process ends, or becomes another program: its time is what its parent, or that program, goes on from.
pub fn leaves(t: &Block) {
    ids::put_time(process::visible_pid(), t.det().pure.clock.now());
}
