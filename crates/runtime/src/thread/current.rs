//! The calling thread, for those who were not handed its block.
//!
//! Control comes into the runtime at few places: gates, hooked functions, signals, a thread's first steps. There the thread's block is
//! [taken](take_block), once, and from there it is handed down, so that nobody has two references to it. Who is called without it, and needs a word
//! or two of it, asks for [`current`]: that never becomes a reference to the block, but gives copies of words that only the thread itself changes,
//! cells, atomics, and areas.

use crate::thread::area::Area;
use crate::thread::signals::Pending;
use crate::thread::{slot, Block, ENGINE_WORDS, QUIET_BEHIND_PENDING};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32};
use reprise_abi::session::Slot;

/// The calling thread. It is worth nothing to another one, and is not sent to any.
#[derive(Clone, Copy)]
pub struct Current(*const Block);

/// The calling thread.
#[inline(always)]
pub fn current() -> Current {
    let address: u64;
    // SAFETY: %gs points to the thread's block from the thread's first instruction in the runtime on.
    unsafe {
        core::arch::asm!("mov {}, gs:[0]", out(reg) address, options(nostack, readonly, preserves_flags));
    }
    Current(address as *const Block)
}

/// The calling thread's block, where control comes into the runtime.
///
/// # Safety
/// The thread was in the program, or in nothing at all, and has no other reference to its block. Or a signal has interrupted it in the runtime:
/// then whoever has one does not go on before this one is gone, and takes nothing in the block for unchanged, since it is
/// [pinned](core::marker::PhantomPinned).
#[inline(always)]
pub unsafe fn take_block() -> &'static mut Block {
    // SAFETY: as the caller says.
    unsafe { &mut *current().0.cast_mut() }
}

/// A word of the block, as it is.
macro_rules! copied {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $field:ident;)*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name(self) -> $type {
                // SAFETY: a word of a block that is there, which no other thread changes.
                unsafe { (&raw const (*self.0).$field).read() }
            }
        )*
    };
}

/// What in the block may be looked at and changed by shared references.
macro_rules! shared {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $($field:ident).+;)*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name(self) -> &'static $type {
                // SAFETY: a block is never unmapped while its thread is there; what is referred to can be changed by shared
                // references, or reads each of its words anew.
                unsafe { &(*self.0).$($field).+ }
            }
        )*
    };
}

impl Current {
    copied! {
        /// Number of its slot.
        slot_number: u32 = slot;
        /// Number of its process in the session.
        number: u32 = number;
        /// Address of what belongs to its process.
        process: u64 = process;
        /// The kernel's thread id.
        kernel_tid: u32 = kernel_tid;
        /// The program's signal mask, as the program sees it.
        mask: u64 = mask;
        /// Address of its slot's `signal_pending`.
        pending_word: u64 = pending_word;
    }

    shared! {
        /// Signals that wait for a gate.
        pending: Pending = pending;
        /// Which table of descriptors it has.
        table: Cell<u64> = table;
        /// Large scratch memory: address and bytes.
        big_scratch: Cell<(u64, u64)> = big_scratch;
        /// Its quiet operations are counted ([`Logging`](super::logging::Logging)).
        counts: Cell<bool> = logging.counts;
        /// It writes into the ring that no thread has.
        world: AtomicBool = logging.world;
        /// What its engine keeps.
        engine: Area<ENGINE_WORDS> = engine;
        /// Its view.
        view: Area<8> = view;
        /// What is known of outputs.
        noted: Area<32> = noted;
    }

    /// How many quiet operations the thread may still make without asking.
    #[inline(always)]
    pub fn quiet_left(self) -> &'static AtomicU32 {
        // SAFETY: a word of the thread's slot, which lies behind the other one.
        unsafe { &*((self.pending_word() + QUIET_BEHIND_PENDING) as *const AtomicU32) }
    }

    /// Its slot.
    #[inline(always)]
    pub fn slot(self) -> &'static Slot {
        slot(self.slot_number())
    }
}

impl Block {
    /// The same thread, which is the calling one, without the block.
    #[inline(always)]
    pub fn as_current(&self) -> Current {
        Current(self)
    }
}
