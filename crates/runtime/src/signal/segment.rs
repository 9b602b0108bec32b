//! Does %gs still lead to the thread's block? The program is told that it can't have the instructions that change its base (HWCAP2), but may use them
//! without asking. A gate then takes something else for the block, and faults sooner or later; the handler that comes to that would fault in the same way, until
//! the kernel ends the process without a word. So it looks, before it uses the block: it runs on the block's own stack, which says where the block is.

use crate::machine::sys;
use crate::thread::message;
use crate::thread::signals::SIGSEGV;
use core::arch::asm;
use reprise_abi::layout::{BLOCKS_BASE, BLOCK_STRIDE, MAX_SLOTS};
use reprise_abi::notes;

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_GET_GS: u64 = 0x1004;
const _: () = assert!(BLOCK_STRIDE.is_power_of_two() && BLOCKS_BASE % BLOCK_STRIDE == 0);

/// At the beginning of a handler of this signal, on the thread's signal stack.
#[inline(always)]
pub fn check(signal: u32) {
    let here: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    let blocks = BLOCKS_BASE..BLOCKS_BASE + MAX_SLOTS as u64 * BLOCK_STRIDE;
    let block = here & !(BLOCK_STRIDE - 1);
    if blocks.contains(&here) && base(signal) != block {
        lost(block);
    }
}

/// Where %gs leads. What it leads to may not be there: then looking at it gives a SIGSEGV, whose handler asks the kernel.
#[inline(always)]
fn base(signal: u32) -> u64 {
    let mut base = 0u64;
    match signal {
        SIGSEGV => {
            sys::arch_prctl(ARCH_GET_GS, &raw mut base as u64);
        }
        // SAFETY: a block begins with its own address; anything else is found out.
        _ => unsafe {
            asm!("mov {}, gs:[0]", out(reg) base, options(nostack, readonly, preserves_flags));
        },
    }
    base
}

/// Ends the process, whose thread has this block.
#[cold]
fn lost(block: u64) -> ! {
    sys::arch_prctl(ARCH_SET_GS, block);
    message::note(notes::SEGMENT_LOST);
    crate::thread::panic::give_up(
        "the program changed the base of %gs by an instruction (wrgsbase)",
    );
}
