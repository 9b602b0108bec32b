//! The processors: which ones a thread may use and runs on (sched_setaffinity(2)), and what the session is told of them.

use crate::cpu::Processor;
use crate::shared::SharedSession;
use libc::pid_t;
use reprise_abi::session::FLAG_CPUID_FAULTING;
use rustix::process::Pid;
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

pub(crate) fn pin_to(pid: pid_t, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(Pid::from_raw(pid), &set);
}

/// The processors that a thread may use; 0: this one.
pub(crate) fn affinity_of(tid: pid_t) -> [u64; 16] {
    let mut mask = [0u64; 16];
    if let Ok(set) = sched_getaffinity(Pid::from_raw(tid)) {
        let its = (0..CpuSet::MAX_CPU).filter(|i| set.is_set(*i));
        its.for_each(|i| mask[i / 64] |= 1 << (i % 64));
    }
    mask
}

/// Bytes of the kernel's mask of processors, as [`reprise_abi::session::Session::affinity_len`] has them (sched_getaffinity(2)).
pub(crate) fn affinity_len() -> [u16; 2] {
    let mut mask = [0u64; 16];
    let asked = |len: usize, mask: &mut [u64; 16]| {
        // SAFETY: the buffer is ours, and at least as long; the raw call because its result is the kernel's mask size.
        let r = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, len, mask.as_mut_ptr()) };
        u16::try_from(r).ok()
    };
    let least = (1..=mask.len()).find_map(|words| asked(8 * words, &mut mask).map(|_| 8 * words));
    let most = asked(std::mem::size_of_val(&mask), &mut mask);
    [least.unwrap_or(0) as u16, most.unwrap_or(0)]
}

/// Those that are in a mask.
fn processors_of(mask: &[u64; 16]) -> impl Iterator<Item = usize> + '_ {
    (0..CpuSet::MAX_CPU).filter(|i| mask[i / 64] & 1 << (i % 64) != 0)
}

/// Picks the processor for a pinned program: one that we may use, spread over recordings.
pub(crate) fn choose_cpu(mask: &[u64; 16]) -> usize {
    let all: Vec<usize> = processors_of(mask).collect();
    if all.is_empty() {
        return 0;
    }
    all[std::process::id() as usize % all.len()]
}

/// The launcher itself runs on all processors that it had.
pub(super) fn run_anywhere(mask: &[u64; 16]) {
    let mut set = CpuSet::new();
    processors_of(mask).for_each(|i| set.set(i));
    let _ = sched_setaffinity(None, &set);
}

/// Fills the session with what the processor offers.
pub fn set_processor(shared: &mut SharedSession, p: &Processor, cpuid_faulting: bool) {
    let s = shared.session_mut();
    for (to, l) in s.cpuid.iter_mut().zip(&p.leaves) {
        *to = *l;
    }
    s.cpuid_len = p.leaves.len().min(s.cpuid.len()) as u32;
    s.xsave_mask = p.xsave_mask;
    s.xsave_size = p.xsave_size;
    if cpuid_faulting {
        s.flags |= FLAG_CPUID_FAULTING;
    }
}

/// Can this processor let cpuid trap? Asked of the kernel, in this thread, and undone at once.
pub fn cpuid_faulting() -> bool {
    const ARCH_SET_CPUID: i32 = 0x1012;
    // SAFETY: switches trapping on and off again; nothing runs cpuid in between.
    unsafe {
        if libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 0) != 0 {
            return false;
        }
        libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 1);
    }
    true
}
