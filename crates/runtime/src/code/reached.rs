//! What control flow reaches in the program's code ([`reprise_code::reached`]), with memory for the walk.

use crate::machine::guard::Program;
use crate::machine::sys::{self, *};
use crate::memory::Region;
use reprise_abi::layout::PAGE;
use reprise_code::elf::Module;
use reprise_code::reached::{Walk, MAX_CODE, MAX_WAITING};

/// Calls `reached` with a test of whether an address of `code` begins an instruction that is reached. False when there is no memory for the walk.
pub fn with(module: &Module, code: &Region, reached: impl FnOnce(&dyn Fn(u64) -> bool)) -> bool {
    let len = code.end - code.start;
    let seen = len.div_ceil(8).next_multiple_of(PAGE);
    let room = seen + (MAX_WAITING * size_of::<u64>()) as u64;
    // Memory for the moment, which leaves no trace: what the runtime keeps lies at addresses that a replay must have as well.
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let at = match len <= MAX_CODE {
        true => sys::mmap(0, room, PROT_RW, flags, u64::MAX, 0),
        false => return false,
    };
    if sys::is_error(at) {
        return false;
    }
    let at = at as u64;
    // SAFETY: just mapped, nobody else's, and unmapped only when the walk is over.
    let (seen, waiting) = unsafe {
        (
            core::slice::from_raw_parts_mut(at as *mut u8, seen as usize),
            core::slice::from_raw_parts_mut((at + seen) as *mut u64, MAX_WAITING),
        )
    };
    let walk = Walk::of(&Program, module, code.start..code.end, seen, waiting);
    reached(&|pc| walk.is_reached(pc));
    sys::munmap(at, room);
    true
}
