//! When a thread may make a call that shapes the address space ([`space`]): in a turn like all others', in an operation of the lead, or in an I/O turn.

use super::Det;
use super::{io_turns, log, turns};
use crate::common::plain;
use crate::isolate::{space, split};
use crate::memory::capture::Call;
use crate::thread::Block;
use reprise_abi::syscalls::nr;

/// A call that shapes the address space.
pub fn call(t: &mut Block, c: &mut Call) -> i64 {
    if !split::in_force() {
        return match log::follows(t) {
            true => alone(t, c),
            false => plain::address_space::<Det>(t, c),
        };
    }
    turns::within(t, |t| {
        let (owned, all) = space::owned_by_any(c);
        // What a heap gets, or gives back of it at once, is nobody else's yet; and in an I/O turn nobody is in a phase.
        let is_new = t.det().io.maps || space::is_new_memory(c);
        if owned && t.det().leads || !is_new || !t.det().io.has && space::soon_all_must_follow() {
            turns::in_earnest(t);
        }
        if owned {
            space::claim(t, c, all);
        }
        space::change(t, c)
    })
}

/// Maps memory for the thread's own heap, by `f`, in one turn, which is no synchronisation: an [I/O turn](io_turns). The table of views is changed while all others wait, and
/// they follow before they go on.
pub fn with_new_memory<R>(t: &mut Block, f: impl FnOnce(&mut Block) -> R) -> R {
    if !crate::thread::in_force::has_private_views() || !io_turns::on() || !split::in_force() {
        return f(t);
    }
    io_turns::within(t, |t| {
        t.det().io.maps = true;
        let r = f(t);
        t.det().io.maps = false;
        r
    })
}

/// Before there are threads, of a program that is recorded.
fn alone(t: &mut Block, c: &mut Call) -> i64 {
    if matches!(c.nr, nr::SHMAT | nr::SHMDT) {
        return log::ask::attach(t, c);
    }
    let result = log::ask::shape(t, c);
    crate::gate::cpuid::after_call::<Det>(t, c, result, [0; 2]);
    crate::sync::hook::after_call(t, c, result);
    result
}
