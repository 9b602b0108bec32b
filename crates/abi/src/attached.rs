//! A process that was running already when its recording began (`attach`): what it has beside memory, and a new program has not.
//!
//! It lies at [`BASE`] in the process, and is a region of the trace's first image: in a recording the launcher writes it there, in a replay it is
//! part of the plan. The first thread of the process is the first of the table; slot `i` is thread `i`'s.

use crate::atomic::AtomicU32;
use crate::layout::{MAX_SLOTS, RESERVATION, STAGE_BASE};
use core::mem::offset_of;

/// Where it lies.
pub const BASE: u64 = RESERVATION + 0x2200_0000;
/// The table of threads begins behind the handlers, on a page of its own.
pub const THREADS: u64 = BASE + 0x1000;
/// Bytes from one thread to the next.
pub const STRIDE: u64 = 16 << 10;
/// Most bytes of a thread's vector registers.
pub const MAX_VECTORS: usize = STRIDE as usize - VECTORS;
/// Words of a gate's frame: the general registers, r15 first, down to rax, then flags, rsp, rip.
pub const FRAME: usize = 18;
const VECTORS: usize = 512;

/// Handlers of signals 1 to 64, each as rt_sigaction(2) has it: handler, flags, restorer, mask.
pub type Actions = [[u64; 4]; 64];

/// A thread.
#[repr(C)]
#[derive(Debug)]
pub struct Thread {
    /// Its registers, in the order of a gate's frame.
    pub frame: [u64; FRAME],
    /// Its thread pointer.
    pub fs_base: u64,
    /// The signals that it has blocked.
    pub mask: u64,
    /// Its signal stack, a `stack_t`.
    pub signal_stack: [u64; 3],
    /// Where the kernel clears its id when it ends (set_tid_address(2)).
    pub clears: u64,
    /// Head of its robust futexes (set_robust_list(2)).
    pub robust_list: u64,
    /// The processors that it may use.
    pub affinity: [u64; 16],
    /// Its id.
    pub tid: u32,
    /// Record: 1 once its place in the session is made (a futex).
    pub ready: AtomicU32,
    _pad: [u64; 22],
    /// Its x87 and vector registers, as XSAVE stores them.
    pub vectors: [u8; MAX_VECTORS],
}

const _: () = {
    assert!(core::mem::size_of::<Thread>() == STRIDE as usize);
    assert!(offset_of!(Thread, vectors) == VECTORS && VECTORS % 64 == 0);
    assert!(core::mem::size_of::<Actions>() as u64 <= THREADS - BASE);
    assert!(THREADS + MAX_SLOTS as u64 * STRIDE <= STAGE_BASE);
};

/// Where thread `i` of the table lies.
pub const fn thread_at(i: u32) -> u64 {
    THREADS + i as u64 * STRIDE
}
