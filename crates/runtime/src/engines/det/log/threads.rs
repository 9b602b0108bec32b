//! New threads: which slot one gets depends on when the kernel was done with the last one that had it, and its id is the kernel's.

use super::replays;
use crate::gate::clone;
use crate::machine::sys;
use crate::thread::process;
use crate::thread::{slot, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::det::question;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::slot_state;

const SLOT_SHIFT: u32 = 32;

/// Record: a thread was made, in this slot, or could not be: its id or an error, which is the result.
pub fn made(t: &mut Block, slot: u32, tid: i64) -> i64 {
    if !replays() {
        super::told(t, question::THREAD, |_| match sys::is_error(tid) {
            true => tid,
            false => tid | i64::from(slot) << SLOT_SHIFT,
        });
    }
    tid
}

/// Replay: the slot and the id of the thread that is to be made, or why none was. The slot is free, and reserved.
pub fn recorded(t: &mut Block) -> Result<(u32, u32), i64> {
    let told = super::told(t, question::THREAD, |_| 0);
    if sys::is_error(told) {
        return Err(told);
    }
    let i = (told >> SLOT_SHIFT) as u32 % MAX_SLOTS as u32;
    clone::wait_for_slot::<crate::engines::det::Det>(i);
    slot(i).process.store(process::number(), Relaxed);
    slot(i).state.store(slot_state::BLOCKED, Relaxed);
    Ok((i, told as u32))
}
