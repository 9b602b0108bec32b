//! A thread that [stands](crate::gate::stand) goes on: its block is made anew, nothing is left on the runtime's stack, and the engine that is in force
//! takes it over.

use crate::dispatch::with_engine;
use crate::engine::Engine;
use crate::gate::clone::new_block;
use crate::gate::{leader, signals, stand};
use crate::machine::asm::rt_leave_with;
use crate::signal::{frame, kernel};
use crate::thread::{block_address, Block, Frame, GATE_STACK};
use core::mem::size_of;
use reprise_abi::layout::{BLOCKS_BASE, BLOCK_STRIDE};

/// So many bytes below are overwritten under the test, so that nothing can be found there.
const OVERWRITTEN: u64 = 16 << 10;

#[no_mangle]
extern "C" fn rt_reenters(block: u64) -> ! {
    let i = ((block - BLOCKS_BASE) / BLOCK_STRIDE) as u32;
    let mut form = stand::take_up(i);
    if crate::thread::standing::is_tested() {
        // What is above lies in use.
        overwrite(block_address(i) + GATE_STACK);
    }
    let mut block = new_block(i);
    with_engine!(E => stand::fill::<E>(&mut block, &mut form));
    // Others may look at it at any time: what they look at is what it was.
    // SAFETY: the calling thread's own.
    let t = unsafe {
        let at = block_address(i) as *mut Block;
        core::ptr::write(at, block);
        &mut *at
    };
    frame::reset_fpu();
    frame::restore_vectors(stand::vectors(i));
    // SAFETY: the room for it on the gate stack, above this function's frame.
    let f = unsafe { &mut *((t.gate_sp - size_of::<Frame>() as u64) as *mut Frame) };
    *f = form.frame;
    with_engine!(E => E::reenters(t, f));
    if leader::is_alone() || leader::pause::is_on(t) && !form.in_code {
        with_engine!(E => E::signal_point(t, f));
    } else if t.entered.is_none() && !form.in_code {
        with_engine!(E => stand::goes_on_to_signals::<E>(t, f));
    }
    if t.saved_mask.is_some() {
        // The mask of the call at whose end it stood is still in force: nobody has told it of a signal there, or of none that it handles.
        with_engine!(E => {
            if !leader::is_alone() {
                E::signal_point(t, f);
            }
            if t.saved_mask.is_some() {
                signals::restore_mask::<E>(t);
            }
        });
    }
    kernel::sync_mask(t);
    if leader::is_alone() && (f.rip, f.rsp) != (form.frame.rip, form.frame.rsp) {
        with_engine!(E => E::told_alone(t, f, form.in_code));
    }
    if t.entered.is_some() {
        super::gate::call_again(t, f);
    }
    // SAFETY: the frame is on the gate stack, whose part below is free.
    unsafe { rt_leave_with(f) }
}

fn overwrite(at: u64) {
    // SAFETY: the lower part of the thread's own gate stack, far from what is in use.
    unsafe { core::ptr::write_bytes(at as *mut u8, 0xdb, OVERWRITTEN as usize) };
}
