//! Which instructions change memory in one step: those with a LOCK prefix, and `xchg` with memory (Intel SDM 3A, 9.1.2). Beside them, plain loads and
//! stores, which are as good as atomic ones.

use reprise_code::decode::Insn;

/// Segment that an address counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// None that matters.
    Flat,
    /// The thread's own memory.
    Thread,
}

/// A register that numbers a bit from the operand's address on (`bts`, `btr`, `btc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitIndex {
    /// The general register's number.
    pub register: u8,
    /// Bytes of it that count: 2, 4 or 8.
    pub size: u8,
}

/// An instruction that changes memory in one step, and what is to be known of it to make it at another place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Offset of the ModRM byte.
    pub modrm: usize,
    /// Bytes of ModRM, SIB and displacement.
    pub address_len: usize,
    /// The REX prefix, or 0.
    pub rex: u8,
    /// What the address counts from.
    pub segment: Segment,
    /// What is added to it.
    pub bit: Option<BitIndex>,
    /// It needs some of the flags as they are before, or leaves them so.
    pub needs_flags: bool,
}

/// mfence.
const FENCE: [u8; 3] = [0x0f, 0xae, 0xf0];

/// Do fences matter? Where threads have views of memory ([`crate::isolate`]) a fence is the place at which others see what was stored before it, and loads
/// behind it see what others have stored. Where they share memory it is nobody's business.
fn fences_matter() -> bool {
    crate::thread::in_force::has_private_views()
}

/// `lock or $0,(%rsp)` and its kin: a fence.
fn is_fence(opcode: u8, code: &[u8], modrm: usize) -> bool {
    let (mode, reg, rm) = parts(code[modrm]);
    let on_stack =
        rm == 4 && mode != 3 && code.get(modrm + 1).is_some_and(|sib| sib & 0x3f == 0x24);
    let nothing = matches!(opcode, 0x80 | 0x81 | 0x83)
        && matches!(reg, 0 | 1 | 5 | 6)
        && code.last() == Some(&0);
    on_stack && nothing
}

/// What an instruction does to its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Changes it in one step.
    Change,
    /// Loads it.
    Load,
    /// Stores to it.
    Store,
}

/// Is this an instruction that stores a word once: mov?
fn is_store(two: bool, opcode: u8, reg: u8) -> bool {
    !two && (matches!(opcode, 0x88 | 0x89) || (matches!(opcode, 0xc6 | 0xc7) && reg == 0))
}

/// Is this an instruction that loads a word once?
fn is_load(two: bool, opcode: u8, reg: u8) -> bool {
    match (two, opcode) {
        // mov
        (false, 0x8a | 0x8b) => true,
        // movsxd, movzx, movsx, cmov
        (false, 0x63) | (true, 0xb6 | 0xb7 | 0xbe | 0xbf | 0x40..=0x4f) => true,
        // cmp, test
        (false, 0x38..=0x3b | 0x84 | 0x85) => true,
        (false, 0x80..=0x83) => reg == 7,
        (false, 0xf6 | 0xf7) => reg == 0,
        // add, or, and, sub, xor to a register
        (false, 0x02 | 0x03 | 0x0a | 0x0b | 0x22 | 0x23 | 0x2a | 0x2b | 0x32 | 0x33) => true,
        _ => false,
    }
}

/// Mode, register and register-or-memory of a ModRM byte.
fn parts(modrm: u8) -> (u8, u8, u8) {
    (modrm >> 6, modrm >> 3 & 7, modrm & 7)
}

/// Bytes of ModRM, SIB and displacement.
fn address_len(code: &[u8]) -> Option<usize> {
    let (mode, _, rm) = parts(*code.first()?);
    let sib = (rm == 4) as usize;
    let base = if sib == 1 { *code.get(1)? & 7 } else { rm };
    let displacement = match (mode, base) {
        (0, 5) => 4,
        (0, _) => 0,
        (1, _) => 1,
        (2, _) => 4,
        _ => return None,
    };
    Some(1 + sib + displacement)
}

impl Operation {
    /// One that changes no memory.
    const FENCE: Operation = Operation {
        modrm: 2,
        address_len: 1,
        rex: 0,
        segment: Segment::Flat,
        bit: None,
        needs_flags: false,
    };

    /// What this instruction is, if it is one of them.
    pub fn of(insn: &Insn) -> Option<Operation> {
        Operation::parse(insn.bytes())
            .filter(|(_, kind)| *kind == Kind::Change)
            .map(|(o, _)| o)
    }

    /// What this instruction is, if it only loads or stores, or is one of them.
    pub fn of_any(insn: &Insn) -> Option<Operation> {
        Operation::parse(insn.bytes()).map(|(o, _)| o)
    }

    /// What this instruction is, if it only loads.
    pub fn of_load(insn: &Insn) -> Option<Operation> {
        Operation::parse(insn.bytes())
            .filter(|(_, kind)| *kind == Kind::Load)
            .map(|(o, _)| o)
    }

    /// What these bytes of an instruction are, and what that does.
    pub fn parse(code: &[u8]) -> Option<(Operation, Kind)> {
        if code == FENCE {
            return fences_matter().then_some((Operation::FENCE, Kind::Change));
        }
        let mut at = 0;
        let (mut locked, mut narrow, mut segment) = (false, false, Segment::Flat);
        loop {
            match *code.get(at)? {
                0xf0 => locked = true,
                0x66 => narrow = true,
                0x64 => segment = Segment::Thread,
                0x26 | 0x2e | 0x36 | 0x3e | 0xf2 | 0xf3 => {}
                // The segment of the runtime, or addresses of 32 bits: nobody's.
                0x65 | 0x67 => return None,
                _ => break,
            }
            at += 1;
        }
        let rex = match *code.get(at)? {
            r @ 0x40..=0x4f => {
                at += 1;
                r
            }
            _ => 0,
        };
        let mut opcode = *code.get(at)?;
        at += 1;
        let two = opcode == 0x0f;
        if two {
            opcode = *code.get(at)?;
            at += 1;
        }
        let exchange = !two && matches!(opcode, 0x86 | 0x87);
        let (mode, reg, _) = parts(*code.get(at)?);
        if mode == 3 || (is_fence(opcode, code, at) && !fences_matter()) {
            return None;
        }
        let kind = if locked || exchange {
            Kind::Change
        } else if is_load(two, opcode, reg) {
            Kind::Load
        } else if is_store(two, opcode, reg) {
            Kind::Store
        } else {
            return None;
        };
        let by_register = two && matches!(opcode, 0xab | 0xb3 | 0xbb);
        let size = match (rex & 8 != 0, narrow) {
            (true, _) => 8,
            (false, true) => 2,
            (false, false) => 4,
        };
        let overwrites = match (two, opcode) {
            // add, or, and, sub, xor
            (false, 0x00 | 0x01 | 0x08 | 0x09 | 0x20 | 0x21 | 0x28 | 0x29 | 0x30 | 0x31) => true,
            (false, 0x80..=0x83) => !matches!(reg, 2 | 3),
            // neg
            (false, 0xf6 | 0xf7) => reg == 3,
            // cmpxchg, xadd
            (true, 0xb0 | 0xb1 | 0xc0 | 0xc1) => true,
            _ => false,
        };
        let o = Operation {
            modrm: at,
            address_len: address_len(&code[at..])?,
            rex,
            segment,
            bit: by_register.then_some(BitIndex {
                register: reg | (rex & 4) << 1,
                size,
            }),
            needs_flags: kind != Kind::Change || !overwrites,
        };
        Some((o, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_code::decode::decode;

    fn of(code: &[u8]) -> Option<Operation> {
        let insn = decode(0x1000, code).unwrap();
        assert_eq!(insn.bytes().len(), code.len());
        Operation::of(&insn)
    }

    #[test]
    fn operations_are_told_from_other_instructions() {
        // lock cmpxchg %edx,(%rdi)
        let o = of(&[0xf0, 0x0f, 0xb1, 0x17]).unwrap();
        assert_eq!((o.modrm, o.address_len, o.needs_flags), (3, 1, false));
        // xchg %eax,0x10(%rip)
        let o = of(&[0x87, 0x05, 0x10, 0, 0, 0]).unwrap();
        assert_eq!((o.modrm, o.address_len, o.needs_flags), (1, 5, true));
        // lock incq 8(%r12)
        let o = of(&[0xf0, 0x49, 0xff, 0x44, 0x24, 0x08]).unwrap();
        assert_eq!((o.modrm, o.address_len, o.rex), (3, 3, 0x49));
        assert!(o.needs_flags);
        // lock orl $0x10,%fs:0x308
        let o = of(&[0xf0, 0x64, 0x83, 0x0c, 0x25, 0x08, 0x03, 0, 0, 0x10]).unwrap();
        assert_eq!((o.segment, o.address_len), (Segment::Thread, 6));
        // lock bts %r9,(%rdi)
        let o = of(&[0xf0, 0x4c, 0x0f, 0xab, 0x0f]).unwrap();
        assert_eq!(
            o.bit,
            Some(BitIndex {
                register: 9,
                size: 8
            })
        );
        // xchg %eax,%ebx; add %eax,(%rdi)
        assert_eq!(of(&[0x87, 0xc3]), None);
        assert_eq!(of(&[0x01, 0x07]), None);
    }

    /// What is gone through by its length alone ([`super::super::scan`]) is none of them.
    #[test]
    fn a_plain_form_is_no_operation() {
        use reprise_code::length::{Plain, WINDOW};
        let (mut plain, mut operations) = (0, 0);
        for prefix in [0x90, 0xf0, 0x66, 0xf3, 0x64, 0x48, 0x4f] {
            for (opcode, modrm) in (0..=255).flat_map(|o| (0..=255).map(move |m| (o, m))) {
                // With a prefix in front, or with the opcode first.
                for head in [[prefix, opcode, modrm], [opcode, modrm, prefix]] {
                    let mut code = [0x11; WINDOW];
                    code[..head.len()].copy_from_slice(&head);
                    let Some(insn) = decode(0x1000, &code[..15]) else {
                        continue;
                    };
                    let (is_plain, o) = (Plain::of(&code).is_some(), Operation::of(&insn));
                    assert!(!is_plain || o.is_none(), "{code:02x?}");
                    plain += u32::from(is_plain);
                    operations += u32::from(o.is_some());
                }
            }
        }
        assert!(
            plain > 100_000 && operations > 1000,
            "{plain}, {operations}"
        );
    }

    #[test]
    fn fences_are_left_alone() {
        // lock orq $0,(%rsp); lock addl $0,-4(%rsp)
        assert_eq!(of(&[0xf0, 0x48, 0x83, 0x0c, 0x24, 0x00]), None);
        assert_eq!(of(&[0xf0, 0x83, 0x44, 0x24, 0xfc, 0x00]), None);
        // lock orq $1,(%rsp); lock orl $0,(%rax)
        assert!(of(&[0xf0, 0x48, 0x83, 0x0c, 0x24, 0x01]).is_some());
        assert!(of(&[0xf0, 0x83, 0x08, 0x00]).is_some());
        // mfence
        assert_eq!(of(&FENCE), None);
    }
}
