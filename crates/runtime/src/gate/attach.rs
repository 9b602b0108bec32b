//! Taking over a process that is running already (`reprise attach`): its threads go on where they were stopped, its handlers are known.
//!
//! In a recording the threads are there: the launcher has each of them enter here, where it waits for its place in the session. In a replay the
//! first thread makes them. What they have beside memory is in [`reprise_abi::attached`].

use crate::engine::Engine;
use crate::gate::clone::{self, BIRTH_ATTACHED};
use crate::machine::sys;
use crate::signal::{frame, kernel};
use crate::thread::blocks;
use crate::thread::signals::{Action, AltStack, ACTIONS, SIGNALS};
use crate::thread::{session, slot, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::attached::{thread_at, Actions, Thread, BASE};
use reprise_abi::layout::{BLOCKS_BASE, BLOCK_STRIDE};

/// Was the process running before?
pub fn is_wanted() -> bool {
    session().attached != 0
}

/// What is known of the thread of slot `i`.
fn known(i: u32) -> &'static Thread {
    // SAFETY: the launcher, or the plan, has put a table there, with as many threads as the session says.
    unsafe { &*(thread_at(i) as *const Thread) }
}

/// The thread pointer of the first thread.
pub fn first_thread_pointer() -> u64 {
    known(0).fs_base
}

/// Where a thread goes on.
fn frame_of(th: &Thread) -> Frame {
    // SAFETY: both are as many plain words, in the same order (asserted below).
    unsafe { core::mem::transmute(th.frame) }
}

const _: () = assert!(core::mem::size_of::<Frame>() == 8 * reprise_abi::attached::FRAME);

/// What the block of a thread says of it.
fn fill(t: &mut Block, th: &Thread) {
    let [sp, flags, size] = th.signal_stack;
    t.fs_base = th.fs_base;
    t.mask = th.mask;
    t.alt_stack = AltStack {
        sp,
        flags: flags as u32,
        pad: 0,
        size,
    };
    t.clear_tid = th.clears;
    t.robust_list = th.robust_list;
    t.affinity = (th.affinity != session().affinity).then_some(th.affinity);
    t.start = frame_of(th);
}

/// The first thread, whose block is prepared: what it has, and where it goes on.
pub fn first_thread(t: &mut Block) -> Frame {
    let th = known(0);
    fill(t, th);
    t.start
}

/// The calling thread's x87 and vector registers are those that it had: in a recording too, so that which of them are in use is the same.
pub fn restore_vectors(i: u32) {
    frame::restore_vectors(known(i).vectors.as_ptr() as u64);
}

/// The program's handlers are those that it had.
pub fn take_handlers(live: bool) {
    // SAFETY: as the table of threads.
    let actions = unsafe { &*(BASE as *const Actions) };
    for (signal, [handler, flags, restorer, mask]) in (1..=SIGNALS as u32).zip(actions) {
        ACTIONS.set(
            signal,
            Action {
                handler: *handler,
                flags: *flags,
                restorer: *restorer,
                mask: *mask,
            },
        );
        if live {
            crate::gate::signals::tell_kernel(signal);
        }
    }
}

/// Gives the other threads their places in the session; in a replay they are made.
pub fn start_others<E: Engine>(t: &mut Block) {
    for i in 1..session().attached {
        let th = known(i);
        if E::LIVE {
            // The launcher has mapped it: the thread waits on it.
            blocks::start_first_block(i);
        }
        let Some(b) = clone::prepare_block(i) else {
            crate::thread::panic::give_up("no memory for a thread");
        };
        b.process = t.process;
        b.table.set(t.table.get());
        b.number = t.number;
        b.birth = BIRTH_ATTACHED;
        b.alive.store(1, Relaxed);
        fill(b, th);
        let s = slot(i);
        s.kernel_pid
            .store(t.slot().kernel_pid.load(Relaxed), Relaxed);
        s.kernel_tid.store(th.tid, Relaxed);
        s.visible_tid.store(th.tid, Relaxed);
        s.go.store(0, Relaxed);
        s.process.store(t.slot_process(), Relaxed);
        session().slots_used.fetch_max(i + 1, Relaxed);
        session().live_threads.fetch_add(1, Relaxed);
        crate::thread::process::entry()
            .live_threads
            .fetch_add(1, Relaxed);
        s.state.store(E::BORN, Release);
        if E::LIVE {
            th.ready.store(1, Release);
            sys::futex_wake(th.ready.as_ptr(), 1);
        } else {
            make(b);
        }
    }
}

/// Replay: makes the kernel's thread.
fn make(b: &Block) {
    // Not even the driver's signal may come before the child knows who it is.
    kernel::block_everything();
    let tid = clone::make_kernel_thread(b, clone::OF_A_THREAD);
    kernel::block_all();
    if sys::is_error(tid) {
        crate::thread::panic::give_up("a thread can't be made");
    }
}

extern "C" {
    /// The first steps of a thread ([`crate::entry`]).
    fn rt_thread_begin(block: u64) -> !;
}

/// Record: the first steps of a thread other than the first, on its block's gate stack.
#[no_mangle]
extern "C" fn rt_attached_thread(block: u64) -> ! {
    let i = ((block - BLOCKS_BASE) / BLOCK_STRIDE) as u32;
    let ready = &known(i).ready;
    while ready.load(Acquire) == 0 {
        sys::futex_wait(ready.as_ptr(), 0, None);
    }
    // SAFETY: the thread was told to go on with this block, and has nothing of it yet.
    let alive = unsafe { clone::adopt(block) }.alive.as_ptr() as u64;
    sys::set_tid_address(alive);
    // SAFETY: as the kernel starts any other thread of ours.
    unsafe { rt_thread_begin(block) }
}
