//! The blocks of threads: which of them are mapped, and on which of them a thread runs.

use crate::machine::sys;
use crate::thread::{
    block_address, current, session, Block, ALT_STACK, ALT_STACK_LEN, GATE_STACK, GATE_TOP,
    STAND_IN,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::layout::{BLOCK_STRIDE, MAX_SLOTS, PAGE};

/// The word that is cleared when the thread with this thread pointer ends, while the thread is there.
pub fn word_of_thread(pointer: u64) -> Option<&'static AtomicU32> {
    let block = block_of_thread(pointer).filter(|b| b.clear_tid != 0)?;
    // SAFETY: in the thread's own control block, which whoever joins it must not have freed.
    Some(unsafe { &*(block.clear_tid as *const AtomicU32) })
}

/// The block of the thread of this process with this thread pointer, as long as it is there. A child of vfork(2), which is in the same memory,
/// has its parent's thread pointer.
pub fn block_of_thread(pointer: u64) -> Option<&'static Block> {
    let process = current().number();
    (0..session().slots_used.load(Relaxed))
        .filter(|i| in_use_here(*i).is_some())
        // SAFETY: the block is mapped, as the thread on it says.
        .map(|i| unsafe { &*(block_address(i) as *const Block) })
        .find(|b| b.fs_base == pointer && b.number == process)
}

/// The block of slot `i`, on which a thread runs in this memory.
pub fn block_of(i: u32) -> &'static Block {
    // SAFETY: the block is mapped, as the thread on it says.
    unsafe { &*(block_address(i) as *const Block) }
}

/// The word that says so, when a thread still runs on the block of slot `i` in this memory.
pub fn in_use_here(i: u32) -> Option<&'static AtomicU32> {
    if MAPPED[i as usize / 64].load(Relaxed) & 1 << (i % 64) == 0 {
        return None;
    }
    // SAFETY: the block is mapped, as the bit says.
    let block = unsafe { &*(block_address(i) as *const Block) };
    (block.alive.load(Acquire) != 0).then_some(&block.alive)
}

static MAPPED: [AtomicU64; MAX_SLOTS / 64] = [const { AtomicU64::new(0) }; MAX_SLOTS / 64];

/// The first thread's block was mapped by whoever brought the runtime in: its stack is in use.
pub fn start_first_block(i: u32) {
    MAPPED[i as usize / 64].fetch_or(1 << (i % 64), Relaxed);
}

/// Somebody has mapped the blocks of all slots.
pub fn all_blocks_are_mapped() {
    MAPPED.iter().for_each(|w| w.store(u64::MAX, Relaxed));
}

/// Maps what a slot's thread needs, once; blocks are kept for later threads of the slot.
pub fn map_block(i: u32) -> bool {
    let (word, bit) = (&MAPPED[i as usize / 64], 1u64 << (i % 64));
    if word.load(Relaxed) & bit != 0 {
        return true;
    }
    let b = block_address(i);
    // Unmapped pages stay between the pieces.
    let ok = sys::map_own(b, ALT_STACK)
        && sys::map_own(b + ALT_STACK, ALT_STACK_LEN)
        && sys::map_own(b + GATE_STACK, GATE_TOP - GATE_STACK)
        && sys::map_own(b + STAND_IN, BLOCK_STRIDE - STAND_IN - PAGE);
    if ok {
        word.fetch_or(bit, Relaxed);
    }
    ok
}
