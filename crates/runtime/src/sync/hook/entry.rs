//! Writing the hooks: a jump of 5 bytes at a function's first byte leads to a stub near it, which jumps to the shim in the runtime.
//!
//! The whole function is replaced: nothing runs its other bytes any more, and where it jumps back to its own beginning doesn't matter. The
//! exception are functions whose original goes on to be used: their first instructions are moved into the stub.

use super::fast;
use crate::code::patch::{self, STUB};
use crate::machine::guard::{self, Program};
use crate::machine::sys;
use crate::memory::map;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::layout::PAGE;
use reprise_code::decode::{Condition, Flow, Insn};

/// Most hooks of one module.
pub const MAX_HOOKS: usize = 64;
/// Bytes of a jump.
pub const JUMP: u64 = 5;
/// Functions begin at multiples of this; what lies between them is never run.
const ALIGN: u64 = 16;
/// Offset of the moved instructions in a stub.
const MOVED: u64 = 24;
/// Most bytes of a moved beginning.
const MAX_MOVED: usize = (STUB - MOVED) as usize;
const _: () = assert!(STUB >= 48);

/// One function to replace.
#[derive(Clone, Copy, Default)]
pub struct Hook {
    /// Its entry.
    pub at: u64,
    /// Its bytes, as the file says.
    pub size: u64,
    /// What it becomes.
    pub shim: u64,
    /// The short way that it has, see [`fast`].
    pub way: Option<usize>,
    /// Where the address goes by which the original can still be called.
    pub original: Option<&'static AtomicU64>,
}

/// Is this filler between functions?
fn is_filler(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x90 | 0xcc, ..] | [0x66 | 0x2e, ..] | [0x0f, 0x1f, ..] | []
    )
}

/// Has the function room for a jump, without touching the next one? `code`: its first bytes.
fn has_room(at: u64, size: u64, code: &[u8; 16]) -> bool {
    if size >= JUMP {
        return true;
    }
    let room = (at + size).next_multiple_of(ALIGN) - at;
    size > 0 && room >= JUMP && is_filler(&code[size as usize..])
}

/// The jump at `from` to `to`.
fn jump(from: u64, to: u64) -> [u8; JUMP as usize] {
    let d = to.wrapping_sub(from + JUMP) as u32;
    let d = d.to_le_bytes();
    [0xe9, d[0], d[1], d[2], d[3]]
}

/// Code that is being put together.
struct Code {
    bytes: [u8; MAX_MOVED],
    len: usize,
}

impl Code {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }
}

/// The instructions that a jump at `at` overwrites, as they do the same at `to`, followed by a jump to the rest.
fn moved(at: u64, to: u64, insn: impl Fn(u64) -> Option<Insn>) -> Option<Code> {
    let mut code = Code {
        bytes: [0xcc; MAX_MOVED],
        len: 0,
    };
    // From the end of an instruction that ends at offset `end` of the copy.
    let relative = |target: u64, end: usize| {
        let d = target.wrapping_sub(to + end as u64) as i64;
        i32::try_from(d).ok().map(i32::to_le_bytes)
    };
    let mut pc = at;
    while pc < at + JUMP {
        let i = insn(pc)?;
        match i.flow {
            Flow::Branch(Condition::Flags(c), target) => {
                // A branch back into what is overwritten would miss the rest of it.
                if (at..at + JUMP).contains(&target) {
                    return None;
                }
                code.put(&[0x0f, 0x80 | c])?;
                code.put(&relative(target, code.len + 4)?)?;
            }
            Flow::Next if i.can_move() => {
                let begin = code.len;
                code.put(i.bytes())?;
                if let (Some(offset), Some(target)) = (i.rip_disp, i.rip_target()) {
                    let d = relative(target, code.len)?;
                    let place = begin + offset as usize;
                    code.bytes.get_mut(place..place + 4)?.copy_from_slice(&d);
                }
            }
            _ => return None,
        }
        pc = i.end();
    }
    code.put(&jump(to + code.len as u64, pc))?;
    Some(code)
}

/// Writes all hooks of a module; how many were written.
pub fn replace(hooks: &[Hook]) -> u64 {
    let mut done = 0;
    let Some(low) = hooks.iter().map(|h| h.at).min() else {
        return 0;
    };
    let high = hooks.iter().map(|h| h.at).max().unwrap_or(low) + JUMP;
    let Some(text) = Opened::new(low, high) else {
        return 0;
    };
    for h in hooks {
        let mut code = [0u8; 16];
        if !guard::read_bytes(h.at, &mut code) || !has_room(h.at, h.size, &code) {
            continue;
        }
        if let Some(copy) = h.way.and_then(|way| fast::copy(way, h.at)) {
            done += guard::write_bytes(h.at, &jump(h.at, copy)) as u64;
            continue;
        }
        let Some(stub) = patch::place(h.at, STUB) else {
            continue;
        };
        let mut bytes = [0xcc; STUB as usize];
        // lea rax, [the entry]; jmp [the shim]
        const LEA: usize = 7;
        bytes[..3].copy_from_slice(&[0x48, 0x8d, 0x05]);
        let entry = h.at.wrapping_sub(stub + LEA as u64) as u32;
        bytes[3..LEA].copy_from_slice(&entry.to_le_bytes());
        bytes[LEA..LEA + 6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
        bytes[LEA + 6..LEA + 14].copy_from_slice(&h.shim.to_le_bytes());
        if let Some(original) = h.original {
            let Some(code) = moved(h.at, stub + MOVED, |pc| Insn::at(pc, &Program)) else {
                continue;
            };
            let to = MOVED as usize;
            bytes[to..to + code.len].copy_from_slice(&code.bytes[..code.len]);
            original.store(stub + MOVED, Relaxed);
        }
        if patch::write_code(stub, &bytes) && guard::write_bytes(h.at, &jump(h.at, stub)) {
            done += 1;
        }
    }
    drop(text);
    done
}

/// Code that can be written for a while.
struct Opened {
    first: u64,
    end: u64,
}

impl Opened {
    fn new(low: u64, high: u64) -> Option<Opened> {
        let (first, end) = (low & !(PAGE - 1), high.next_multiple_of(PAGE));
        map().at(first).filter(|r| r.end >= end)?;
        (sys::mprotect(first, end - first, sys::PROT_RW) == 0).then_some(Opened { first, end })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let prot = map().at(self.first).map_or(5, |r| r.prot as u64);
        sys::mprotect(self.first, self.end - self.first, prot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_code::decode::decode;

    #[test]
    fn short_functions_have_room_only_in_front_of_filler() {
        let mut code = [0u8; 16];
        // xor eax, eax; ret; a long nop.
        code[..4].copy_from_slice(&[0x31, 0xc0, 0xc3, 0x66]);
        assert!(has_room(0x1000, 3, &code));
        // The next function begins at once.
        code[3] = 0x55;
        assert!(!has_room(0x1000, 3, &code));
        // The filler is too short.
        code[3] = 0x90;
        assert!(!has_room(0x100d, 2, &code));
        assert!(has_room(0x100c, 5, &code));
        assert!(!has_room(0x1000, 0, &code));
    }

    #[test]
    fn a_jump_reaches_both_ways() {
        assert_eq!(jump(0x1000, 0x1005), [0xe9, 0, 0, 0, 0]);
        assert_eq!(jump(0x1000, 0x1000), [0xe9, 0xfb, 0xff, 0xff, 0xff]);
    }

    fn move_code(code: &[u8]) -> Option<std::vec::Vec<u8>> {
        let at = 0x5000u64;
        let insn = |pc: u64| decode(pc, &code[(pc - at) as usize..]);
        moved(at, 0x9000, insn).map(|c| c.bytes[..c.len].to_vec())
    }

    #[test]
    fn moved_beginnings_do_the_same() {
        // mov (%rdi),%eax; test $2,%al; je +10: as pthread_once begins.
        let m = move_code(&[0x8b, 0x07, 0xa8, 0x02, 0x74, 0x0a, 0x31, 0xc0]).unwrap();
        assert_eq!(m[..6], [0x8b, 0x07, 0xa8, 0x02, 0x0f, 0x84]);
        let target = 0x5010u32.wrapping_sub(0x9000 + 10);
        assert_eq!(m[6..10], target.to_le_bytes());
        assert_eq!(m[10..15], jump(0x900a, 0x5006));
        // mov 0x10(%rip),%rax
        let m = move_code(&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0]).unwrap();
        let target = 0x5017u32.wrapping_sub(0x9007);
        assert_eq!(m[3..7], target.to_le_bytes());
    }

    #[test]
    fn what_cannot_be_moved_is_left_alone() {
        // call; ret; je to the second instruction.
        assert_eq!(move_code(&[0xe8, 0, 0, 0, 0]), None);
        assert_eq!(move_code(&[0xc3, 0x90, 0x90, 0x90, 0x90]), None);
        assert_eq!(move_code(&[0x90, 0x90, 0x74, 0xfd, 0x90]), None);
    }
}
