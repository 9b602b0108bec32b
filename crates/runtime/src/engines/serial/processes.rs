//! Replay of a process tree: processes are made, become other programs and end where the log says so.
//!
//! Every replayed process is a child of the driver, whoever's child it was in the recording: what parents learn of their
//! children comes from the log. A process never execs: the driver makes a new one of the recorded image, and the old one ends.

use super::replay::{expect, finish, hand_on, next, pass_on, replay_call};
use crate::common::apply::trace_ended;
use crate::common::report::{diverge, Actual};
use crate::common::start::cannot_start;
use crate::engine::wish::Wish;
use crate::gate::clone;
use crate::log::output;
use crate::log::ring::{self, Reader};
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::thread::schedule;
use crate::thread::{process, request};
use crate::thread::{session, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::{EventHeader, Kind, ProcessEnd, NO_SLOT, SLOT_SHIFT};
use reprise_abi::session::request as requests;
use reprise_abi::session::{divergence_kind as kinds, process_state, slot_state, Process};
use reprise_abi::syscalls::nr;

/// fork(2) and its kin.
pub fn create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
    let mut made = None;
    let (r, h, of) = replay_call(t, c, 0, |t, h| {
        made = Some(make(t, wish, h.flags >> SLOT_SHIFT, start));
    });
    match made {
        None if !sys::is_error(r) => {
            make(t, wish, h.flags >> SLOT_SHIFT, start);
        }
        Some(number) if sys::is_error(r) => {
            // The recorded kernel refused; nobody will ever call the new process.
            let p = process::entry_of(number);
            sys::call_undisturbed(nr::KILL, &[p.kernel_pid.load(Relaxed) as u64, 9]);
            p.state.store(process_state::ENDING, Release);
        }
        _ => {}
    }
    if !sys::is_error(r) {
        clone::publish_tid(wish, r as u32);
        clone::publish_pidfd(wish, of.descriptor);
    }
    r
}

/// Makes the process whose first thread has slot `child`; its number.
fn make(t: &mut Block, wish: &Wish, child: u32, start: &Frame) -> u32 {
    clone::wait_for_slot::<super::replay::Replay>(child);
    let Some(number) = process::reserve(process::kernel_pid()) else {
        cannot_start(-11);
    };
    let tid =
        clone::start_thread::<super::replay::Replay>(t, wish, child, number, start, |_, _| {});
    if sys::is_error(tid) {
        cannot_start(tid);
    }
    process::entry_of(number)
        .kernel_pid
        .store(tid as u32, Relaxed);
    number
}

/// The first thread of a new process has the baton for the first time.
pub fn start(t: &mut Block) {
    const PR_SET_PDEATHSIG: u64 = 1;
    sys::prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0);
    kernel::block_all();
    t.spin().begin(false);
    schedule::wait_go(t.slot);
    ring::start();
    t.slot().state.store(slot_state::RUNNING, Relaxed);
    let h = expect(t, &[Kind::ProcessStart], &Actual::of(Kind::ProcessStart));
    let pid = h.value as u32;
    process::is_born(ring::position());
    Reader::begin(h).finish();
    t.slot().visible_tid.store(pid, Relaxed);
    process::entry().visible_pid.store(pid, Relaxed);
    clone::publish_own_tid(t, pid);
}

/// The process ends here with this wait status: the next event's thread goes on. Only the end itself may follow.
pub fn end(t: &mut Block, status: i32) {
    kernel::block_everything();
    let actual = Actual {
        detail: ProcessEnd::Told as u32,
        value: status as i64,
        ..Actual::of(Kind::ProcessEnd)
    };
    let h = expect(t, &[Kind::ProcessEnd], &actual);
    if h.value != status as i64 {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    Reader::begin(h).finish();
    leave(t);
}

/// Hands the baton on for the last time.
fn leave(t: &Block) {
    if ring::peek().is_none() {
        // Nobody would have the baton; and the others wait for it.
        trace_ended();
    }
    let state = schedule::retire(t);
    // The end of the trace needs nobody.
    if ring::peek().is_some_and(|h| h.kind != Kind::End as u8) {
        hand_on(t, state);
    } else {
        t.slot().state.store(state, Release);
    }
}

/// Says that a process was found dead?
pub fn is_found_dead(h: &EventHeader) -> bool {
    h.kind == Kind::ProcessEnd as u8 && h.slot == NO_SLOT
}

/// A process was killed in the recording: it ends here as well.
pub fn reap(t: &Block, h: EventHeader) {
    let mut r = Reader::begin(h);
    let [pid, birth, first, ..] = r.args().map(|a| a as u32);
    r.finish();
    let s = session();
    // What the end was is not always known.
    let status = if h.value > 0 { h.value as i32 } else { 9 };
    // In namespaces of their own, several processes may have one id.
    let is = |p: &Process| p.birth.load(Relaxed) == birth && (birth != 0 || p.made_for() == first);
    if is(process::entry()) {
        leave(t);
        finish(status);
    }
    let mut all = s.processes.iter().enumerate();
    let dead = all.find(|(_, p)| p.state.load(Relaxed) == process_state::LIVE && is(p));
    let Some((n, p)) = dead else { return };
    if pid == s.program_pid.load(Relaxed) {
        s.root_status.store(status as u32 + 1, Relaxed);
    }
    schedule::retire_other(n as u32);
    sys::call_undisturbed(nr::KILL, &[p.kernel_pid.load(Relaxed) as u64, 9]);
}

/// execve(2): fails as recorded, or ends this process, which goes on as another.
pub fn exec(t: &mut Block, c: &Call) -> i64 {
    let hash = c.input_hash();
    let actual = Actual {
        kind: Kind::Enter,
        ..Actual::of_call(c, hash)
    };
    let h = expect(t, &[Kind::Syscall, Kind::Enter], &actual);
    let mut r = Reader::begin(h);
    let args = r.args();
    if args[..c.nargs] != c.args[..c.nargs] || h.input_hash != hash {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    r.finish();
    if h.kind == Kind::Syscall as u8 {
        return h.value;
    }
    pass_on(t);
    let h = next(t);
    if h.kind != Kind::Exec as u8 {
        let actual = Actual {
            kind: Kind::Exit,
            ..actual
        };
        let h = expect(t, &[Kind::Exit], &actual);
        Reader::begin(h).finish();
        return h.value;
    }
    if h.slot as u32 != t.slot {
        diverge(t, kinds::EVENT, Some(&h), &actual);
    }
    become_image(t, h.value as u64)
}

/// The driver makes the process anew; this one is gone.
fn become_image(t: &mut Block, image: u64) -> ! {
    kernel::block_everything();
    output::table::hand_over();
    crate::gate::processor::before_exec(t);
    let s = session();
    s.starting.store(t.slot + 1, Relaxed);
    schedule::retire_threads(t);
    process::leaves_memory(true);
    request::ask(requests::BECOME, &[t.slot as u64, image]);
    // The driver may tell this death from others: the process has another kernel's id by now, or soon.
    sys::exit_group(0)
}

/// A process is another program now, and has the baton.
pub fn image_start(t: &mut Block) {
    const PR_SET_PDEATHSIG: u64 = 1;
    sys::prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0);
    let h = expect(t, &[Kind::Exec], &Actual::of(Kind::Exec));
    Reader::begin(h).finish();
}
