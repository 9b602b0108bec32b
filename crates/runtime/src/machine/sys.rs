//! Raw system calls. Every one is made from the runtime's own text, which Syscall User Dispatch lets through. Those that the runtime makes for itself have
//! names ([`super::own_calls`]).

use core::arch::asm;
use reprise_abi::syscalls::nr;

pub use super::own_calls::*;

/// Makes a system call with six arguments.
///
/// # Safety
/// The caller answers for what the call does to memory.
#[inline(always)]
pub unsafe fn syscall6(n: u64, a: [u64; 6]) -> i64 {
    let r: i64;
    // SAFETY: the clobbers are those of the x86-64 syscall convention.
    unsafe {
        asm!("syscall", inlateout("rax") n as i64 => r, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    r
}

/// Makes a system call whose arguments are safe by themselves or checked by the kernel.
#[inline(always)]
pub fn call(n: u64, a: &[u64]) -> i64 {
    let mut six = [0; 6];
    six[..a.len()].copy_from_slice(a);
    // SAFETY: callers in this crate pass only addresses of the runtime or of memory that they may change.
    unsafe { syscall6(n, six) }
}

/// A call that no signal interrupts, but in a replay: there the driver may be asked about it (seccomp_unotify(2)), and until it has heard, a signal ends the
/// call. So it is made again.
pub fn call_undisturbed(n: u64, args: &[u64]) -> i64 {
    const EINTR: i64 = -4;
    loop {
        let r = call(n, args);
        if r != EINTR {
            return r;
        }
    }
}

/// openat(2).
pub fn open_at(args: &[u64]) -> i64 {
    call_undisturbed(nr::OPENAT, args)
}

/// Anonymous private memory.
pub const MAP_PRIVATE: u64 = 2;
/// Bits of the flags of mmap(2) that say whether a mapping is private or shared.
pub const MAP_TYPE: u64 = 0xf;
/// A flag of mremap(2).
pub const MREMAP_FIXED: u64 = 2;
/// mmap flag.
pub const MAP_SHARED: u64 = 1;
/// mmap flag: exactly at this address, replacing what is there.
pub const MAP_FIXED: u64 = 0x10;
/// mmap flag.
pub const MAP_ANONYMOUS: u64 = 0x20;
/// mmap flag: no swap reserved.
pub const MAP_NORESERVE: u64 = 0x4000;
/// mmap flag: fails where something is mapped.
pub const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
/// mmap flag: a stack.
pub const MAP_GROWSDOWN: u64 = 0x100;
/// Protection bits: no access, ...
pub const PROT_NONE: u64 = 0;
/// ... reading and writing.
pub const PROT_RW: u64 = 3;

/// Is this result an error (-4095 to -1)?
pub fn is_error(r: i64) -> bool {
    (-4095..0).contains(&r)
}

/// Anonymous memory for the runtime at a fixed place.
pub fn map_own(address: u64, len: u64) -> bool {
    map_at(address, len, MAP_PRIVATE)
}

/// As [`map_own`], of the runtime and what it forks.
pub fn map_shared(address: u64, len: u64) -> bool {
    map_at(address, len, MAP_SHARED)
}

fn map_at(address: u64, len: u64, flags: u64) -> bool {
    let flags = flags | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    mmap(address, len, PROT_RW, flags, u64::MAX, 0) == address as i64
}

/// A timespec of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds.
    pub nsec: i64,
}

/// Waits until the word is no longer `value` or somebody wakes. `timeout` is absolute on `CLOCK_MONOTONIC` when given.
pub fn futex_wait(word: *const u32, value: u32, timeout: Option<&Timespec>) -> i64 {
    let t = timeout.map_or(0, |t| t as *const Timespec as u64);
    // FUTEX_WAIT_BITSET takes an absolute time. Not private: agent and program share these words.
    futex(word as u64, 9, value as u64, t, 0, u32::MAX as u64)
}

/// Wakes all sleepers on the word; how many they are.
pub fn futex_wake_all(word: *const u32) -> u32 {
    let woken = futex(word as u64, 1, i32::MAX as u64, 0, 0, 0);
    u32::try_from(woken).unwrap_or(0)
}

/// Wakes up to `n` sleepers on the word.
pub fn futex_wake(word: *const u32, n: u32) {
    futex(word as u64, 1, n as u64, 0, 0, 0);
}

/// What the clock with this number says (clock_gettime(2)).
pub fn clock(number: u64) -> Timespec {
    let mut t = Timespec::default();
    clock_gettime(number, &mut t as *mut Timespec as u64);
    t
}

/// `CLOCK_MONOTONIC` now.
pub fn monotonic() -> Timespec {
    clock(1)
}

/// A time in ns of `CLOCK_REALTIME`, if it is one of that clock's, in ns of `CLOCK_MONOTONIC`.
pub fn in_monotonic(ns: i64, realtime: bool) -> i64 {
    if !realtime {
        return ns;
    }
    monotonic()
        .ns()
        .saturating_add(ns.saturating_sub(clock(0).ns()))
}

impl Timespec {
    /// In nanoseconds.
    pub fn ns(&self) -> i64 {
        self.sec
            .saturating_mul(1_000_000_000)
            .saturating_add(self.nsec)
    }

    /// From nanoseconds.
    pub fn from_ns(ns: i64) -> Timespec {
        Timespec {
            sec: ns.div_euclid(1_000_000_000),
            nsec: ns.rem_euclid(1_000_000_000),
        }
    }
}

/// Writes a message to the terminal's error stream; for the runtime's own last words only.
pub fn complain(parts: &[&str]) {
    for p in parts {
        write(2, p.as_ptr() as u64, p.len() as u64);
    }
}

/// A millisecond goes by.
pub fn nap() {
    const MOMENT: Timespec = Timespec {
        sec: 0,
        nsec: 1_000_000,
    };
    nanosleep(&MOMENT as *const Timespec as u64, 0);
}

/// Ends the process at once.
pub fn exit_group(status: i32) -> ! {
    loop {
        call(nr::EXIT_GROUP, &[status as u64]);
    }
}
