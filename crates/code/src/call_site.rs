//! The forms in which a `syscall` that was seen to run becomes a jump, so that a gate costs nanoseconds instead of a signal.
//!
//! Each replaces whole instructions around it: the `mov $nr,%eax` before it ([`BEFORE`]), Go's `mov $nr,%rax` before it ([`BEFORE_LONG`]), or the
//! `syscall` itself with the `cmp $-4095,%rax` after it ([`AFTER`]). The jump leads to a stub, which enters the gate and goes on behind the site.

use reprise_abi::event::patch_form::{AFTER, BEFORE, BEFORE_LONG};

/// Bytes of a stub.
pub const STUB: u64 = 64;
/// Bytes of a `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Bytes before the `syscall`, and from it on, that say which form fits.
pub const BEFORE_SITE: u64 = 8;
/// Most bytes that are replaced.
const MOST: usize = 8;

/// Which form fits the code around a `syscall` of this number? `code` begins [`BEFORE_SITE`] bytes before it.
pub fn form_of(code: &[u8; 16], number: u32) -> Option<u32> {
    let b = code;
    if b[8..10] != SYSCALL {
        return None;
    }
    let imm = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    if b[1..4] == [0x48, 0xc7, 0xc0] && imm(4) == number {
        return Some(BEFORE_LONG);
    }
    // `b8` after a REX prefix would be another instruction.
    if b[3] == 0xb8 && imm(4) == number && !(0x40..=0x4f).contains(&b[2]) {
        return Some(BEFORE);
    }
    // cmp $-4096,%rax or cmp $-4095,%rax
    if b[10..12] == [0x48, 0x3d] && matches!(b[12], 0 | 1) && b[13..16] == [0xf0, 0xff, 0xff] {
        return Some(AFTER);
    }
    None
}

/// Where the instructions of a form begin that are replaced, around the `syscall` at `site`, and how many bytes they have. `None`: there is
/// no such form.
pub fn replaced(site: u64, form: u32) -> Option<(u64, usize)> {
    match form {
        BEFORE => Some((site - 5, 5)),
        BEFORE_LONG => Some((site - 7, 7)),
        AFTER => Some((site, 8)),
        _ => None,
    }
}

/// What is written where a site is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The stub.
    pub stub: [u8; STUB as usize],
    /// Offset in it of what follows the gate.
    pub resume: u64,
    /// What lies in the place of the instructions that are replaced, as far as there are any.
    pub jump: [u8; MOST],
}

impl Rewritten {
    /// The site rewritten in this form, with its stub at `stub`, which enters the gate at `gate`. `old`: the bytes that are replaced. `None`: there is
    /// no such form.
    pub fn of(site: u64, stub: u64, form: u32, old: &[u8; MOST], gate: u64) -> Option<Rewritten> {
        let (from, len) = replaced(site, form)?;
        let (mut code, mut n) = ([0xccu8; STUB as usize], 0);
        let mut put = |bytes: &[u8]| {
            code[n..n + bytes.len()].copy_from_slice(bytes);
            n += bytes.len();
            n as u64
        };
        let relative = |to: u64, next: u64| (to.wrapping_sub(next) as u32).to_le_bytes();
        if form != AFTER {
            put(&old[..len]);
        }
        // lea site+2(%rip),%rcx; jmp *(%rip): the gate
        let at = put(&[0x48, 0x8d, 0x0d]);
        put(&relative(site + 2, stub + at + 4));
        put(&[0xff, 0x25, 0, 0, 0, 0]);
        let resume = put(&gate.to_le_bytes());
        if form == AFTER {
            put(&old[2..]);
            let at = put(&[0xe9]);
            put(&relative(site + 8, stub + at + 4));
        }
        let mut jump = [0x90u8; MOST];
        jump[0] = 0xe9;
        jump[1..5].copy_from_slice(&relative(stub, from + 5));
        if form == AFTER {
            // The last three bytes stay: nothing ever runs them.
            jump[5..].copy_from_slice(&old[5..]);
        }
        Some(Rewritten {
            stub: code,
            resume,
            jump,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{decode, Flow};

    const SITE: u64 = 0x7f00_0000_1000;
    const STUB_AT: u64 = SITE - 0x10_0000;
    const GATE: u64 = 0x1234_5678_9abc;

    /// The code around a site, by form.
    fn around(form: u32) -> [u8; 16] {
        let code: [&[u8]; 3] = match form {
            BEFORE => [&[0x90, 0x90, 0x90, 0xb8, 39, 0, 0, 0], &SYSCALL, &[0x90; 6]],
            BEFORE_LONG => [&[0x90, 0x48, 0xc7, 0xc0, 39, 0, 0, 0], &SYSCALL, &[0x90; 6]],
            _ => [&[0x90; 8], &SYSCALL, &[0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff]],
        };
        code.concat().try_into().unwrap()
    }

    fn instructions(pc: u64, code: &[u8], count: usize) -> std::vec::Vec<crate::decode::Insn> {
        let mut at = 0;
        (0..count)
            .map(|_| {
                let i = decode(pc + at as u64, &code[at..]).expect("an instruction");
                at += i.bytes().len();
                i
            })
            .collect()
    }

    #[test]
    fn forms_by_the_code_around_a_site() {
        for form in [BEFORE, BEFORE_LONG, AFTER] {
            assert_eq!(form_of(&around(form), 39), Some(form));
        }
        // Another number, a REX prefix before `b8`, no `syscall`.
        assert_eq!(form_of(&around(BEFORE), 40), None);
        let mut code = around(BEFORE);
        code[2] = 0x48;
        assert_eq!(form_of(&code, 39), None);
        let mut code = around(AFTER);
        code[9] = 0x0b;
        assert_eq!(form_of(&code, 39), None);
    }

    #[test]
    fn a_stub_has_what_it_replaces_and_leads_back() {
        for form in [BEFORE, BEFORE_LONG, AFTER] {
            let code = around(form);
            let (from, len) = replaced(SITE, form).unwrap();
            let first = (from + BEFORE_SITE - SITE) as usize;
            let mut old = [0; MOST];
            old[..len].copy_from_slice(&code[first..first + len]);
            let done = Rewritten::of(SITE, STUB_AT, form, &old, GATE).unwrap();
            let jump = decode(from, &done.jump).unwrap();
            assert_eq!(jump.flow, Flow::Jump(STUB_AT), "{form}");
            // The `mov` that is replaced, where there is one; the address behind the `syscall`; the gate.
            let before = usize::from(form != AFTER);
            let stub = instructions(STUB_AT, &done.stub, before + 2);
            if before == 1 {
                assert_eq!(stub[0].bytes(), &old[..len], "{form}");
            }
            assert_eq!(stub[before].rip_target(), Some(SITE + 2), "{form}");
            let gate = stub[before + 1];
            assert_eq!(gate.flow, Flow::JumpIndirect, "{form}");
            let word = (gate.rip_target().unwrap() - STUB_AT) as usize;
            assert_eq!(done.stub[word..word + 8], GATE.to_le_bytes(), "{form}");
            assert_eq!(done.resume, word as u64 + 8, "{form}");
            if form == AFTER {
                let resumed = &done.stub[done.resume as usize..];
                let then = instructions(STUB_AT + done.resume, resumed, 2);
                assert_eq!(then[0].bytes(), &code[10..16]);
                assert_eq!(then[1].flow, Flow::Jump(SITE + 8));
                assert_eq!(done.jump[5..], old[5..], "what nothing runs stays");
            }
        }
    }
}
