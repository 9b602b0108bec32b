//! Gates of engines that leave threads and processes to the kernel: calls are made as they are, at once, and signals delivered as they come.

use crate::common::make::add_pending;
use crate::engine::wish::Wish;
use crate::engine::{Engine, RESTART};
use crate::gate::{clone, diversion};
use crate::isolate::{call, signals};
use crate::machine::asm::rt_blocking;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::{self, address_limit, shm};
use crate::signal::frame::{self, FpState};
use crate::signal::kernel;
use crate::thread::process;
use crate::thread::signals::{ACTIONS, IGNORE, SA_RESTART, SIGSEGV};
use crate::thread::{slot, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::effect::Effect;
use reprise_abi::session::{process_state, slot_state};
use reprise_abi::spec::Restart;
use reprise_abi::syscalls::nr;

/// What such an engine may have to say of a call that is made as it is.
pub trait AsItIs {
    /// Bytes that the kernel moves to an output are to be had, too.
    fn copies_moved(_t: &Block) -> bool {
        false
    }
    /// The call has returned `result`; what it returns in all.
    fn whole(_c: &Call, result: i64) -> i64 {
        result
    }
}

/// A wait on a futex that has a time limit ends for any handler (futex(2), signal(7)).
fn waits_with_time_limit(c: &Call) -> bool {
    const WAIT: u32 = 0;
    const WAIT_BITSET: u32 = 9;
    let waits = matches!(crate::memory::futex::command(c), WAIT | WAIT_BITSET);
    c.nr == nr::FUTEX && waits && c.args[3] != 0
}

/// A call, made as the program makes it.
pub fn syscall<E: AsItIs>(t: &mut Block, c: &mut Call) -> i64 {
    if diversion::is_on() {
        if let Some(answer) = diversion::answer(t, c) {
            return answer;
        }
    }
    if let Some(r) = address_limit::call(c) {
        return r;
    }
    loop {
        let moved = match E::copies_moved(t) {
            true => crate::log::output::moved::make(c),
            false => None,
        };
        // SAFETY: the program's own call.
        let r = moved.unwrap_or_else(|| unsafe {
            rt_blocking(c.nr, &c.local, t.slot().signal_pending.as_ptr())
        });
        if c.effect == Effect::TellsPending && r == 0 {
            add_pending(t, c);
        }
        if r != -4 && r != -512 {
            return E::whole(c, r);
        }
        let Some(s) = kernel::first_waiting(t) else {
            if signals::is_called(t) {
                return -4;
            }
            if r == -512 || call::has_interrupted(t) {
                continue;
            }
            return r;
        };
        let waits_for_signal = t.saved_mask.is_some() || c.nr == nr::PAUSE;
        let restart = c.restart == Restart::Handler
            && ACTIONS.get(s.signal()).flags & SA_RESTART != 0
            && !waits_with_time_limit(c);
        return if (r == -512 && !waits_for_signal) || restart {
            RESTART
        } else {
            -4
        };
    }
}

/// A call that shapes the address space, made as it is.
pub fn address_space<E: Engine>(t: &mut Block, c: &mut Call) -> i64 {
    if diversion::is_on() && !diversion::may_shape(c) {
        return diversion::NO_SHAPE;
    }
    // The map is not locked: without the baton, threads may map at once.
    let _l = crate::thread::schedule::lock();
    match c.nr {
        nr::SHMAT => shm::attach(c).map_or_else(|e| e, |(r, _)| r),
        // SAFETY: the program's own call.
        nr::SHMDT => unsafe { sys::syscall6(c.nr, c.args) },
        _ => {
            let result = memory::perform(c).result;
            crate::gate::cpuid::after_call::<E>(t, c, result, [0; 2]);
            crate::sync::hook::after_call(t, c, result);
            result
        }
    }
}

/// The end of a gate: what has come meanwhile is delivered.
pub fn signal_point(t: &mut Block, frame: &mut Frame) {
    if t.slot().signal_pending.load(Relaxed) == 0 {
        return;
    }
    kernel::block_all();
    while let Some(info) = t.pending.take(t.mask) {
        let action = ACTIONS.get(info.signal());
        if action.handler <= IGNORE {
            signals::die_by_default(info.signal());
            continue;
        }
        if !frame::deliver(t, frame, FpState::Live, &info, &action, [0; 3]) {
            kernel::die_now(SIGSEGV);
        }
        break;
    }
    let more = t.pending.first(t.mask).is_some();
    t.slot().signal_pending.store(more as u32, Release);
    kernel::sync_mask(t);
}

/// A new thread, made as the kernel makes it, or as a process of its own; `before` is told its slot when only the kernel can still fail. Its id, or an error;
/// and its slot.
pub fn thread_create<E: Engine>(
    t: &mut Block,
    wish: &Wish,
    start: &Frame,
    before: impl FnOnce(u32),
) -> (i64, u32) {
    let Some(i) = clone::reserve_slot() else {
        return (-11, 0);
    };
    let tid = clone::start_thread::<E>(t, wish, i, t.slot_process(), start, |_, _| before(i));
    if !sys::is_error(tid) {
        slot(i).visible_tid.store(tid as u32, Relaxed);
        clone::publish_tid(wish, tid as u32);
    }
    (tid, i)
}

/// A new process, made as the kernel makes it.
pub fn process_create<E: Engine>(t: &mut Block, wish: &Wish, start: &Frame) -> i64 {
    if diversion::is_on() {
        return diversion::EAGAIN;
    }
    let Some(i) = clone::reserve_slot() else {
        return -11;
    };
    let Some(process) = process::reserve(process::kernel_pid()) else {
        slot(i).state.store(slot_state::FREE, Release);
        return -11;
    };
    let tid = clone::start_thread::<E>(t, wish, i, process, start, |_, _| {});
    if sys::is_error(tid) {
        process::entry_of(process)
            .state
            .store(process_state::FREE, Release);
    } else {
        clone::publish_tid(wish, tid as u32);
        clone::publish_pidfd(wish, clone::open_pidfd(t, wish, tid as u32));
        if wish.shares_memory() && !wish.waits() {
            crate::thread::schedule::go(i);
        }
    }
    tid
}

/// First thing the first thread of a new process does.
pub fn process_start(t: &mut Block) {
    clone::wait_for_maker(t);
    let tid = sys::gettid() as u32;
    t.slot().visible_tid.store(tid, Relaxed);
    process::entry().visible_pid.store(tid, Relaxed);
    clone::publish_own_tid(t, tid);
    kernel::sync_mask(t);
}

/// The calling thread wants to exec.
pub fn exec(t: &mut Block, c: &Call) -> i64 {
    if diversion::is_on() {
        return diversion::EAGAIN;
    }
    crate::gate::exec::attempt(t, c)
}
