//! What is kept of a thread, for whoever goes through its stack when the program is gone.

use crate::machine::guard;
use crate::memory::map;
use crate::thread::Frame;
use core::mem::size_of_val;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::races::REGISTERS;

/// Keeps those registers that functions keep, and what lies at the stack pointer, as far as there is room; the bytes of that are `len`.
pub fn keep(f: &Frame, registers: &[AtomicU64; REGISTERS], stack: &[AtomicU64], len: &AtomicU64) {
    let of_frame = [f.rbx, f.rbp, f.rsp, f.r12, f.r13, f.r14, f.r15, f.rip];
    for (to, r) in registers.iter().zip(of_frame) {
        to.store(r, Relaxed);
    }
    let end = map().at(f.rsp).or_else(|| map().after(f.rsp));
    let there = end.map_or(0, |r| r.end - f.rsp);
    let most = there.min(size_of_val(stack) as u64);
    let to = stack.as_ptr() as u64;
    // SAFETY: the room is that long; the program's side is guarded.
    let copied = guard::guarded(|| unsafe { guard::copy(to, f.rsp, most as usize) });
    len.store(copied.map_or(0, |()| most), Relaxed);
}
