//! The engine that does nothing: captures everything, logs nothing, orders nothing. It proves the seam, and tells capture bugs from ordering bugs.

use crate::address_limit;
use crate::asm::{rt_blocking, rt_exit_thread};
use crate::capture::Call;
use crate::clone::Wish;
use crate::engine::{Engine, RESTART};
use crate::robust;
use crate::signal::frame::{self, FpState, Ucontext};
use crate::signal::kernel;
use crate::signal::state::{Siginfo, ACTIONS, IGNORE, SA_RESTART};
use crate::sys;
use crate::thread::{session, slot, Block, Frame};
use crate::{clone, diversion, instruction, memory, process, shm};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::Instruction;
use reprise_abi::session::{process_state, slot_state};
use reprise_abi::spec::Restart;
use reprise_abi::syscalls::nr;

/// No engine.
pub struct None;

/// A wait on a futex that has a time limit ends for any handler (futex(2), signal(7)).
fn waits_with_time_limit(c: &Call) -> bool {
    const WAIT: u32 = 0;
    const WAIT_BITSET: u32 = 9;
    let waits = matches!(crate::serial::futex::command(c), WAIT | WAIT_BITSET);
    c.nr == nr::FUTEX && waits && c.args[3] != 0
}

impl Engine for None {
    const LIVE: bool = true;
    const IMMEDIATE: bool = true;

    fn syscall(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        if diversion::is_on() {
            if let Some(answer) = diversion::answer(t, c) {
                return answer;
            }
        }
        if let Some(r) = address_limit::call(c) {
            return r;
        }
        loop {
            let moved = match crate::det::log::records(t) {
                true => crate::output::moved::make(c),
                false => Option::None,
            };
            // SAFETY: the program's own call.
            let r = moved.unwrap_or_else(|| unsafe {
                rt_blocking(c.nr, &c.local, t.slot().signal_pending.as_ptr())
            });
            if c.nr == nr::RT_SIGPENDING && r == 0 {
                crate::serial::record::add_pending(t, c);
            }
            if r != -4 && r != -512 {
                return match crate::det::runs() {
                    true => crate::det::whole::rest(c, r),
                    false => r,
                };
            }
            let Some(s) = kernel::first_waiting(t) else {
                if crate::det::signals::is_called(t) {
                    return -4;
                }
                if r == -512 || crate::det::spin::has_interrupted(t) {
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

    fn computed(_t: &mut Block, _c: &Call, result: i64) -> i64 {
        result
    }

    fn acted(_t: &mut Block, _c: &Call, act: impl FnOnce(core::option::Option<i64>) -> i64) -> i64 {
        act(core::option::Option::None)
    }

    fn address_space(t: &mut Block, c: &mut Call) -> i64 {
        if diversion::is_on() && !diversion::may_shape(c) {
            return diversion::NO_SHAPE;
        }
        // The map is not locked: without the baton, threads may map at once.
        let _l = crate::serial::baton::lock();
        match c.nr {
            nr::SHMAT => shm::attach(c).map_or_else(|e| e, |(r, _)| r),
            // SAFETY: the program's own call.
            nr::SHMDT => unsafe { sys::syscall6(c.nr, c.args) },
            _ => {
                let result = memory::perform(c).result;
                crate::cpuid::after_call::<Self>(t, c, result, [0; 2]);
                crate::hook::after_call(t, c, result);
                result
            }
        }
    }

    fn futex(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
        Self::syscall(t, c, frame)
    }

    fn sched_yield(t: &mut Block, c: &mut Call) -> i64 {
        Self::syscall(t, c, &Frame::default())
    }

    fn instruction(_t: &mut Block, which: Instruction) -> (u64, u64) {
        instruction::read_clock(which)
    }

    fn signal_point(t: &mut Block, frame: &mut Frame) {
        if t.slot().signal_pending.load(Relaxed) == 0 {
            return;
        }
        kernel::block_all();
        while let Some(info) = t.pending.take(t.mask) {
            let action = ACTIONS.get(info.signal());
            if action.handler <= IGNORE {
                crate::det::signals::die_by_default(info.signal());
                continue;
            }
            if !frame::deliver(t, frame, FpState::Live, &info, &action, [0; 3]) {
                kernel::die_now(crate::signal::state::SIGSEGV);
            }
            break;
        }
        let more = t.pending.first(t.mask).is_some();
        t.slot().signal_pending.store(more as u32, Release);
        kernel::sync_mask(t);
    }

    fn fault(_t: &mut Block, _info: &Siginfo, _uc: &mut Ucontext, _can: bool) -> bool {
        false
    }

    fn goes_on(_t: &mut Block, _uc: &mut Ucontext) {}

    const BORN: u32 = slot_state::BLOCKED;

    fn thread_create(t: &mut Block, _c: &Call, wish: &Wish, start: &Frame) -> i64 {
        if diversion::is_on() {
            return diversion::EAGAIN;
        }
        let Some(i) = clone::reserve_slot() else {
            return -11;
        };
        // The thread waits until everybody can know its id.
        let tid = clone::start_thread::<Self>(t, wish, i, t.slot_process(), start, || {});
        if !sys::is_error(tid) {
            slot(i).visible_tid.store(tid as u32, Relaxed);
            clone::publish_tid(wish, tid as u32);
            crate::serial::baton::go(i);
        }
        tid
    }

    fn thread_start(t: &mut Block) {
        crate::serial::baton::wait_go(t.slot);
        kernel::sync_mask(t);
    }

    fn process_create(t: &mut Block, _c: &Call, wish: &Wish, start: &Frame) -> i64 {
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
        let tid = clone::start_thread::<Self>(t, wish, i, process, start, || {});
        if sys::is_error(tid) {
            process::entry_of(process)
                .state
                .store(process_state::FREE, Release);
        } else {
            clone::publish_tid(wish, tid as u32);
            clone::publish_pidfd(wish, clone::open_pidfd(t, wish, tid as u32));
            if wish.shares_memory() && !wish.waits() {
                crate::serial::baton::go(i);
            }
        }
        tid
    }

    fn process_start(t: &mut Block) {
        clone::wait_for_maker(t);
        let tid = sys::call(nr::GETTID, &[]) as u32;
        t.slot().visible_tid.store(tid, Relaxed);
        process::entry().visible_pid.store(tid, Relaxed);
        clone::publish_own_tid(t, tid);
        kernel::sync_mask(t);
    }

    fn thread_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        if diversion::is_on() {
            sys::exit_group(c.args[0] as i32);
        }
        kernel::block_all();
        kernel::give_back_at_exit(t);
        crate::sync::count(t);
        // Whoever learns of the end sees where the slot stands.
        t.slot().state.store(slot_state::EXITING, Release);
        // Futexes that keep priorities live in the kernel here, which knows their owner is gone.
        robust::announce_death(
            t,
            robust::write_word,
            |address, _, n| sys::futex_wake(address as *const u32, n),
            |_| Option::None,
        );
        session().live_threads.fetch_sub(1, Relaxed);
        if process::entry().live_threads.fetch_sub(1, Relaxed) == 1 {
            crate::serial::baton::leave(t);
            sys::exit_group(c.args[0] as i32);
        }
        // SAFETY: nothing of this thread is needed any more.
        unsafe { rt_exit_thread() }
    }

    fn exec(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        if diversion::is_on() {
            return diversion::EAGAIN;
        }
        crate::exec::attempt(t, c)
    }

    fn image_start(_t: &mut Block) {}

    fn process_dies(_t: &mut Block, _signal: u32) {}

    fn process_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        if diversion::is_on() {
            sys::exit_group(c.args[0] as i32);
        }
        kernel::block_all();
        crate::sync::count(t);
        crate::exec::while_none_is_under_way(t, || crate::serial::baton::leave(t));
        sys::exit_group(c.args[0] as i32)
    }

    fn cut(_t: &mut Block, _uc: &mut Ucontext) {}

    fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
        // What the replay has written into the code is still there.
        diversion::is_on() && crate::serial::cut::replay::trap(t, signal, uc)
    }
}
