//! The engine that does nothing: captures everything, logs nothing, orders nothing. It proves the seam, and tells capture bugs from ordering bugs.

use crate::code::patch;
use crate::common::plain::{self, AsItIs};
use crate::engine::wish::Wish;
use crate::engine::Engine;
use crate::gate::robust;
use crate::gate::{diversion, instruction};
use crate::machine::asm::rt_exit_thread;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::frame::Ucontext;
use crate::signal::kernel;
use crate::thread::process;
use crate::thread::{session, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::Instruction;
use reprise_abi::session::{slot_state, MODE_REPLAY};

/// No engine.
pub struct None;

impl AsItIs for None {}

impl Engine for None {
    const LIVE: bool = true;
    const IMMEDIATE: bool = true;

    fn rewrites(_t: &mut Block, after: u64) {
        if session().mode != MODE_REPLAY && process::has_memory_to_itself() {
            patch::rewrite(after, false);
        }
    }

    fn syscall(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        plain::syscall::<Self>(t, c)
    }

    fn computed(_t: &mut Block, _c: &Call, result: i64) -> i64 {
        result
    }

    fn acted(_t: &mut Block, _c: &Call, act: impl FnOnce(core::option::Option<i64>) -> i64) -> i64 {
        act(core::option::Option::None)
    }

    fn address_space(t: &mut Block, c: &mut Call) -> i64 {
        plain::address_space::<Self>(t, c)
    }

    fn futex(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
        Self::syscall(t, c, frame)
    }

    fn instruction(_t: &mut Block, which: Instruction) -> (u64, u64) {
        instruction::read_clock(which)
    }

    fn signal_point(t: &mut Block, frame: &mut Frame) {
        plain::signal_point(t, frame);
    }

    const BORN: u32 = slot_state::BLOCKED;

    fn thread_create(t: &mut Block, _c: &Call, wish: &Wish, start: &Frame) -> i64 {
        if diversion::is_on() {
            return diversion::EAGAIN;
        }
        let (tid, i) = plain::thread_create::<Self>(t, wish, start, |_| {});
        if !sys::is_error(tid) {
            // It waits until everybody can know its id.
            crate::thread::schedule::go(i);
        }
        tid
    }

    fn thread_start(t: &mut Block) {
        crate::thread::schedule::wait_go(t.slot);
        kernel::sync_mask(t);
    }

    fn process_create(t: &mut Block, _c: &Call, wish: &Wish, start: &Frame) -> i64 {
        plain::process_create::<Self>(t, wish, start)
    }

    fn process_start(t: &mut Block) {
        plain::process_start(t);
    }

    fn thread_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        if diversion::is_on() {
            sys::exit_group(c.args[0] as i32);
        }
        kernel::block_all();
        kernel::give_back_at_exit(t);
        crate::sync::libc::count(t);
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
            crate::thread::schedule::leave(t);
            sys::exit_group(c.args[0] as i32);
        }
        // SAFETY: nothing of this thread is needed any more.
        unsafe { rt_exit_thread() }
    }

    fn exec(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        plain::exec(t, c)
    }

    fn process_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        if diversion::is_on() {
            sys::exit_group(c.args[0] as i32);
        }
        kernel::block_all();
        crate::sync::libc::count(t);
        crate::gate::exec::while_none_is_under_way(t, || crate::thread::schedule::leave(t));
        sys::exit_group(c.args[0] as i32)
    }

    fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
        // What the replay has written into the code is still there.
        diversion::is_on() && crate::dispatch::trap_of_replay(t, signal, uc)
    }
}
