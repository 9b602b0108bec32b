//! Code that is reached from where a module's code begins: its entry, what runs at its start and end, and the functions that it exports, and
//! from there by direct calls, jumps and branches. For modules, or parts of them, that have no table of functions for unwinding: programs in
//! Go, assembler, statically linked programs without exceptions. What is reached is code; of the rest nothing is known.

use crate::code::elf::Module;
use crate::code::seek;
use crate::machine::guard::Program;
use crate::machine::sys::{self, *};
use crate::memory::Region;
use reprise_abi::layout::PAGE;
use reprise_place::decode::Flow;

/// Most instructions that are followed in one mapping: some 50 ms.
const MAX_STEPS: usize = 1 << 19;
/// Most places that wait to be followed.
const MAX_WAITING: usize = 1 << 16;
/// Most exported symbols that are looked at.
const MAX_EXPORTS: u64 = 1 << 16;
/// Longest code that is followed, in bytes.
const MAX_CODE: u64 = 256 << 20;

const INIT: u64 = 12;
const FINI: u64 = 13;

/// The walk through one mapping of code.
struct Walk {
    start: u64,
    end: u64,
    /// A bit for each byte: an instruction that was reached begins there.
    seen: &'static mut [u8],
    waiting: &'static mut [u64],
    waits: usize,
}

impl Walk {
    fn begin_at(&mut self, at: u64) {
        if !(self.start..self.end).contains(&at) || self.is_reached(at) {
            return;
        }
        if let Some(place) = self.waiting.get_mut(self.waits) {
            *place = at;
            self.waits += 1;
        }
    }

    fn is_reached(&self, at: u64) -> bool {
        let n = (at - self.start) as usize;
        self.seen.get(n / 8).is_some_and(|b| b & 1 << (n % 8) != 0)
    }

    /// Follows all that waits.
    fn run(&mut self) {
        let mut steps = 0;
        while let Some(waits) = self.waits.checked_sub(1) {
            self.waits = waits;
            let mut at = self.waiting[waits];
            while (self.start..self.end).contains(&at) && !self.is_reached(at) {
                steps += 1;
                if steps > MAX_STEPS {
                    return;
                }
                let Some(i) = seek::instruction(at) else {
                    break;
                };
                let n = (at - self.start) as usize;
                self.seen[n / 8] |= 1 << (n % 8);
                match i.flow {
                    Flow::Branch(_, to) | Flow::Call(to) => self.begin_at(to),
                    Flow::Jump(to) => {
                        self.begin_at(to);
                        break;
                    }
                    Flow::JumpIndirect | Flow::Return | Flow::Odd => break,
                    // Behind an instruction that no control passes there may be anything.
                    Flow::Gate if matches!(i.bytes(), [0x0f, 0x0b] | [0xcc] | [0xf4]) => break,
                    Flow::Next | Flow::Repeat | Flow::CallIndirect | Flow::Gate => {}
                }
                at = i.end();
            }
        }
    }
}

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
    let mut walk = unsafe {
        Walk {
            start: code.start,
            end: code.end,
            seen: core::slice::from_raw_parts_mut(at as *mut u8, seen as usize),
            waiting: core::slice::from_raw_parts_mut((at + seen) as *mut u64, MAX_WAITING),
            waits: 0,
        }
    };
    if let Some(entry) = module.entry(&Program) {
        walk.begin_at(entry);
    }
    for tag in [INIT, FINI] {
        if let Some(function) = module.dynamic(&Program, tag) {
            walk.begin_at(module.place(function));
        }
    }
    if let Some(exports) = module.exports(&Program) {
        exports.each_function(&Program, MAX_EXPORTS, |function| walk.begin_at(function));
    }
    walk.run();
    reached(&|pc| walk.is_reached(pc));
    sys::munmap(at, room);
    true
}
