//! Access to the program's memory that survives bad pointers: a fault ends the access, not the runtime (DESIGN 8, rule 3).

use crate::machine::asm::rt_guard;

/// Runs `f`; `None` when it touched memory that isn't there.
///
/// What `f` did up to the fault has happened; destructors of what it held do not run.
pub fn guarded<R, F: FnOnce() -> R>(f: F) -> Option<R> {
    struct Package<R, F> {
        f: Option<F>,
        r: Option<R>,
    }
    extern "C" fn run<R, F: FnOnce() -> R>(p: *mut u8) {
        // SAFETY: `p` is the package on the stack below.
        let p = unsafe { &mut *(p as *mut Package<R, F>) };
        if let Some(f) = p.f.take() {
            p.r = Some(f());
        }
    }
    let mut p = Package {
        f: Some(f),
        r: None,
    };
    // SAFETY: rt_guard calls `run` with our package and restores the stack after a fault.
    let fault = unsafe { rt_guard(run::<R, F>, &mut p as *mut _ as *mut u8) };
    if fault != 0 {
        None
    } else {
        p.r
    }
}

/// A word at any address.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Unaligned(#[allow(dead_code)] u64);

/// Copies bytes without the compiler assuming that the addresses are valid.
///
/// # Safety
/// One side must be memory of the runtime for `len` bytes; the other may be anything when inside [`guarded`].
#[inline(always)]
pub unsafe fn copy(to: u64, from: u64, len: usize) {
    // SAFETY: as the caller says; volatile, because a fault in the middle is allowed. `rep movsb` takes longer to start than
    // a few words take to copy; the direction flag is clear in the runtime.
    unsafe {
        if len <= 64 {
            let mut at = 0;
            while at + 8 <= len as u64 {
                let w = core::ptr::read_volatile((from + at) as *const Unaligned);
                core::ptr::write_volatile((to + at) as *mut Unaligned, w);
                at += 8;
            }
            while at < len as u64 {
                let b = core::ptr::read_volatile((from + at) as *const u8);
                core::ptr::write_volatile((to + at) as *mut u8, b);
                at += 1;
            }
            return;
        }
        core::arch::asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") len => _,
            options(nostack, preserves_flags));
    }
}

/// Reads bytes of the program.
pub fn read_bytes(address: u64, into: &mut [u8]) -> bool {
    let (to, len) = (into.as_mut_ptr() as u64, into.len());
    // SAFETY: `into` is ours; the program's side is guarded.
    guarded(|| unsafe { copy(to, address, len) }).is_some()
}

/// Writes bytes to the program.
pub fn write_bytes(address: u64, from: &[u8]) -> bool {
    let (src, len) = (from.as_ptr() as u64, from.len());
    // SAFETY: `from` is ours; the program's side is guarded.
    guarded(|| unsafe { copy(address, src, len) }).is_some()
}

/// Reads a plain value of the program.
pub fn read<T: Copy>(address: u64) -> Option<T> {
    let mut v = core::mem::MaybeUninit::<T>::uninit();
    let to = v.as_mut_ptr() as u64;
    // SAFETY: `v` is ours, every caller reads integers or structs of integers.
    guarded(|| unsafe { copy(to, address, core::mem::size_of::<T>()) })
        .map(|()| unsafe { v.assume_init() })
}

/// Writes a plain value to the program.
pub fn write<T: Copy>(address: u64, v: &T) -> bool {
    let from = v as *const T as u64;
    // SAFETY: `v` is ours; the program's side is guarded.
    guarded(|| unsafe { copy(address, from, core::mem::size_of::<T>()) }).is_some()
}

/// Length of a NUL-terminated string of the program, at most `max`; `None` when it can't be read.
pub fn string_len(address: u64, max: usize) -> Option<usize> {
    guarded(|| {
        let mut n = 0;
        // SAFETY: guarded; a volatile byte read.
        while n < max && unsafe { core::ptr::read_volatile((address + n as u64) as *const u8) } != 0
        {
            n += 1;
        }
        n
    })
}

/// A word of the program's, of 1, 2, 4 or 8 bytes.
pub fn read_word(address: u64, size: usize) -> Option<u64> {
    let mut v = 0;
    // SAFETY: guarded; each is one load, as the program's is.
    guarded(|| unsafe {
        v = match size {
            1 => (address as *const u8).read_volatile() as u64,
            2 => (address as *const u16).read_unaligned() as u64,
            4 => (address as *const u32).read_unaligned() as u64,
            _ => (address as *const u64).read_unaligned(),
        };
    })
    .map(|()| v)
}

/// The program's memory, as code that also runs elsewhere reads it.
pub struct Program;

impl reprise_code::memory::Memory for Program {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        read_bytes(addr, buf)
    }
}
