//! The image that is put into the program: everything of the library, and what a program without a libc has to bring along.
#![no_std]
#![no_main]

use reprise_runtime as _;

/// The runtime's heap, where there is no other.
#[global_allocator]
static ARENA: reprise_code::arena::Arena = reprise_code::arena::Arena::new();

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let mut line = [0u8; 12];
    let mut at = line.len();
    let mut n = info.location().map_or(0, |l| l.line());
    while n > 0 && at > 0 {
        at -= 1;
        line[at] = b'0' + (n % 10) as u8;
        n /= 10;
    }
    let file = info.location().map_or("?", |l| l.file());
    let line = core::str::from_utf8(&line[at..]).unwrap_or("?");
    reprise_runtime::machine::sys::complain(&["reprise: ", file, ":", line, "\n"]);
    reprise_runtime::thread::panic::give_up("a check failed")
}

/// memcpy(3), for the small structures that the compiler moves around: its own version starts three `rep`s each time.
///
/// # Safety
/// As in C.
#[no_mangle]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: as the caller says.
    unsafe { reprise_runtime::machine::guard::copy(to as u64, from as u64, len) };
    to
}

/// memset(3), likewise.
///
/// # Safety
/// As in C.
#[no_mangle]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    // SAFETY: as the caller says; volatile, so that the loop does not become a call of this very function.
    unsafe {
        if len <= 128 {
            let word = (byte as u8 as u64) * 0x0101_0101_0101_0101;
            let mut at = 0;
            while at + 8 <= len {
                core::ptr::write_volatile(to.add(at) as *mut [u8; 8], word.to_le_bytes());
                at += 8;
            }
            while at < len {
                core::ptr::write_volatile(to.add(at), byte as u8);
                at += 1;
            }
        } else {
            core::arch::asm!("rep stosb", inout("rdi") to => _, inout("rcx") len => _, in("al") byte as u8,
                options(nostack, preserves_flags));
        }
    }
    to
}
