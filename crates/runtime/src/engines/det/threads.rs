//! Threads as processes that share descriptors, but no memory (DThreads 4.1, 4.3: creation and exit).

use super::{log, new_thread, pure, retained, spin, token, turns, Det};
use crate::engine::wish::Wish;
use crate::gate::clone;
use crate::isolate::{commit, ending, outside, owned, proxy, signals, split};
use crate::log::busy;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::sync::libc::malloc;
use crate::thread::{slot, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::syscalls::nr;

const EAGAIN: i64 = -11;

/// Makes a thread, in a turn: it runs from the next phase on; or in the [lead](super::retained) of this phase, in which it begins then.
pub fn create(t: &mut Block, wish: &Wish, start: &Frame) -> i64 {
    if !split::in_force() {
        split::split(t);
        token::start(t.slot);
        retained::start();
    }
    ending::look_after_threads();
    turns::begin_creation(t);
    owned::makes_threads(t.slot);
    if owned::has_own(t.slot) {
        // The new one begins with this one's memory, or with what is everybody's.
        turns::in_earnest(t);
        owned::claim_all(t, false);
    }
    let tid = make(t, wish, start);
    turns::end_creation(t);
    tid
}

fn make(t: &mut Block, wish: &Wish, start: &Frame) -> i64 {
    // Until the new thread can be seen: all that is left of the recording may be its own.
    let _busy = log::replays().then(|| busy::busy(t));
    let again = log::replays().then(|| log::threads::recorded(t));
    let (i, mut id) = match again {
        Some(Err(e)) => return e,
        Some(Ok((slot, tid))) => (slot, Some(tid)),
        None => match clone::reserve_slot() {
            Some(i) => (i, None),
            None => return log::threads::made(t, 0, EAGAIN),
        },
    };
    let process = t.slot_process();
    let left = t.det().log.left;
    let in_lead = t.det().leads;
    let now = t.det().pure.clock.now();
    let enrol = |_: &mut Block, block: &mut Block| match in_lead {
        true => {
            begins(block, now, left, &mut id);
            block.det().inherits = true;
            let told = block.det().told.iter_mut().zip(wish.told_by_parent());
            told.for_each(|(to, address)| *to = address);
            token::enrol_at_once(i);
        }
        false => {
            begins(block, now, left, &mut id);
            token::enrol(i);
        }
    };
    let tid = clone::start_thread::<Det>(t, wish, i, process, start, enrol);
    if sys::is_error(tid) {
        match in_lead {
            true => token::retire_at_once(i),
            false => token::retire(i),
        }
        return log::threads::made(t, i, tid);
    }
    log::threads::made(t, i, tid);
    if let Some(id) = id.filter(|_| pure::on()) {
        pure::ids::learn(id, tid as u32);
    }
    let visible = id.unwrap_or(tid as u32);
    slot(i).visible_tid.store(visible, Relaxed);
    clone::publish_tid(wish, visible);
    visible.into()
}

/// First thing a new thread does: waits for its first phase, in which it sees what all see; in its maker's lead what that one saw.
pub fn begin(t: &mut Block) {
    ending::ends_with_first();
    new_thread::begins(t);
    signals::hears(t);
    if core::mem::take(&mut t.det().inherits) {
        for address in t.det().told.iter().filter(|a| **a != 0) {
            guard::write(*address, &own_id(t));
        }
        commit::inherit(t);
    } else {
        token::wait_for_phase(t.slot, token::member(t.slot).born.load(Relaxed));
        commit::forget_all(t);
    }
    spin::phase_begins(t);
}

/// What a new thread has from its maker, whose time is `now`. `id`: the one by which the program knows it, if that isn't the kernel's.
fn begins(block: &mut Block, now: u64, left: bool, id: &mut Option<u32>) {
    *id = id.or(pure::ids::of_thread(now, block));
    block.det().log.left = left;
    if let Some(id) = *id {
        block.slot().visible_tid.store(id, Relaxed);
    }
}

/// The id of a thread that has just been made, which its maker may not have told of yet.
fn own_id(t: &Block) -> u32 {
    match pure::on() || log::replays() {
        true => t.slot().visible_tid.load(Relaxed),
        false => t.kernel_tid,
    }
}

/// The program becomes another one, in its thread's turn: all other threads end first. Whether it will is asked before, as far as that can be.
pub fn exec(t: &mut Block, c: &Call) -> Result<(), i64> {
    use token::state::NOBODY;
    const ENOSYS: i64 = -38;
    const MAY_EXEC: u64 = 1;
    if c.nr == nr::EXECVE {
        let r = sys::access(c.local[0], MAY_EXEC);
        if r != 0 {
            return Err(r);
        }
    }
    if !ending::is_first() {
        let first = proxy::first().filter(|s| token::member(*s).state.load(SeqCst) != NOBODY);
        let Some(first) = first else {
            sys::complain(&[
                "reprise: det: the first thread has ended, and no other one can exec: it got ENOSYS\n",
            ]);
            return Err(ENOSYS);
        };
        turns::begin_anew(t);
        turns::in_earnest(t);
        owned::claim_all(t, true);
        commit::commit_again(t);
        proxy::become_another(first, t, c);
    }
    turns::begin_anew(t);
    ending::end_others();
    Ok(())
}

/// A thread ends, in its turn.
pub fn exit(t: &mut Block, status: u32) -> ! {
    signals::hears_no_more(t);
    crate::sync::libc::count(t);
    turns::begin_anew(t);
    if owned::has_own(t.slot) {
        turns::within_earnest(t, |t| owned::claim_all(t, false));
    }
    if split::in_force() && t.det().in_turn && ending::is_first() {
        turns::in_earnest(t);
        outside::first_ends(t);
    }
    if pure::on() {
        pure::leaves(t);
    }
    malloc::thread_ends::<turns::InOwnHeap>(t);
    ending::give_up_all(t, status, super::wait::wake, |t| log::ask::ends(t, status));
    if t.det().in_turn {
        commit::commit_again(t);
        commit::end(t);
        token::retire(t.slot);
        token::pass(t.slot, token::state::NOBODY);
    } else {
        token::retire(t.slot);
    }
    ending::end_thread(t)
}
