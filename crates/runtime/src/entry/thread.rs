//! The first steps of threads.

use crate::dispatch::with_engine;
use crate::engine::Engine;
use crate::gate::clone::{adopt, BIRTH_ATTACHED, BIRTH_COPIED, BIRTH_FORK, BIRTH_THREAD};
use crate::machine::asm::rt_leave_with;
use crate::thread::blocks::in_use_here;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::*;

/// The other threads of a memory that was copied are not here.
fn forget_others(t: &Block) {
    for i in (0..session().slots_used.load(Relaxed)).filter(|i| *i != t.slot) {
        if let Some(word) = in_use_here(i) {
            word.store(0, Relaxed);
        }
    }
}

/// The first steps of every thread but a program's first, on its gate stack.
#[no_mangle]
pub extern "C" fn rt_thread_begin(block: u64) -> ! {
    // SAFETY: the thread was made for this block, and these are its first steps.
    let t = unsafe { adopt(block) };
    if t.birth == BIRTH_COPIED {
        crate::gate::copy::stands_again(t);
    }
    let told = &t.slot().kernel_tid;
    if told.load(Relaxed) == 0 {
        // Its parent was told of a descriptor instead ([`make_process_with_descriptor`]).
        told.store(t.kernel_tid, Relaxed);
    }
    let birth = t.birth;
    t.birth = BIRTH_THREAD;
    crate::log::debugger::show_frame(t, &t.start);
    if birth == BIRTH_FORK {
        with_engine!(E => E::leaves_parent(t));
        crate::thread::process::after_fork(t, t.slot_process());
        crate::thread::standing::after_fork();
        crate::gate::tested_copies::after_fork();
        crate::gate::epochs::after_fork();
        crate::gate::leader::after_fork();
        crate::memory::after_fork();
        crate::log::output::table::after_fork();
        forget_others(t);
        crate::memory::track::after_fork();
        crate::memory::space::after_fork();
        crate::gate::clock::after_fork();
        with_engine!(E => E::after_fork());
        crate::sync::libc::after_fork(t);
    }
    if birth == BIRTH_ATTACHED {
        crate::gate::instruction::arm();
        crate::gate::attach::restore_vectors(t.slot);
    }
    with_engine!(E => {
        if matches!(birth, BIRTH_THREAD | BIRTH_ATTACHED) {
            crate::thread::namespace::learn(t, false);
            E::thread_start(t);
        } else {
            if E::LIVE {
                // Should it die before its first step, this is how its parent knows it.
                let told = t.slot().kernel_tid.load(Relaxed);
                crate::thread::process::entry().visible_pid.store(told, Relaxed);
            }
            crate::thread::namespace::learn(t, true);
            E::process_start(t);
        }
        let mut frame = t.start;
        crate::log::debugger::show_frame(t, &frame);
        E::signal_point(t, &mut frame);
        // The site of its clone(2) may have been rewritten.
        frame.rip = crate::code::patch::resume_address(frame.rip);
        // SAFETY: the gate stack below the frame is free.
        unsafe { rt_leave_with(&frame) }
    })
}
