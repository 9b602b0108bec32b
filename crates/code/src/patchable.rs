//! Places: instructions over which a patch can be written, and where the patch's stub may lie.
//!
//! A patch is a `jmp rel32` of five bytes, or a breakpoint of one. Whatever the program does, no byte of a patch may run
//! as something else than the patch:
//!
//! - [`Form::Long`]: one instruction of five bytes or more makes room;
//! - [`Form::Group`]: several instructions make room together (a small loop is one). Where one of them began, the
//!   displacement must hold 0xcc, so that a branch to it traps and can be sent to the copy in the stub;
//! - [`Form::Pun`]: one shorter instruction; the rest of the displacement is the bytes that follow anyway;
//! - [`Form::Breakpoint`]: the first byte only; always possible, and a thousand times dearer a visit.
//!
//! Fixed displacement bytes leave only some addresses for the stub: [`Place::first_fit`].

use crate::decode::{Flow, Insn};
use crate::memory::Memory;

/// Bytes of the jump that is planted.
pub const JUMP_LEN: usize = 5;
/// Most instructions that a stub copies: four of one byte and one more make room for a jump.
pub const MAX_COPIED: usize = 5;
/// Farthest that a 32-bit displacement is made to reach, with room for the stub itself.
const REACH: u64 = (1 << 31) - (1 << 16);
/// Opcode of a breakpoint.
pub const INT3: u8 = 0xcc;
const JMP_REL32: u8 = 0xe9;

/// How a place is patched, best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Form {
    /// A jump over one instruction.
    Long = 1,
    /// A jump over several instructions.
    Group = 2,
    /// A jump over one short instruction, whose displacement ends in the bytes after it.
    Pun = 3,
    /// A breakpoint.
    Breakpoint = 4,
}

impl Form {
    /// All forms, best first.
    pub const ALL: [Form; 4] = [Form::Long, Form::Group, Form::Pun, Form::Breakpoint];

    /// The form with this number.
    pub fn from_u8(n: u8) -> Option<Form> {
        Form::ALL.get((n as usize).wrapping_sub(1)).copied()
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Form::Long => "long",
            Form::Group => "group",
            Form::Pun => "pun",
            Form::Breakpoint => "breakpoint",
        }
    }
}

/// A place and one way to patch it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Address of its first instruction.
    pub pc: u64,
    /// How it is patched.
    pub form: Form,
    /// Bytes of the instructions that the stub copies.
    pub len: u8,
    insns: [Insn; MAX_COPIED],
    count: u8,
    /// Which bits of the displacement are fixed, and to what.
    mask: u32,
    value: u32,
    /// Addresses from which everything that the copies name can be reached.
    reach: (u64, u64),
}

/// The ways to patch one place, best first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places {
    list: [Option<Place>; 3],
}

impl Places {
    /// They, best first.
    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.list.iter().flatten()
    }

    /// The best of them.
    pub fn best(&self) -> Option<&Place> {
        self.iter().next()
    }

    /// The one of that form.
    pub fn form(&self, form: Form) -> Option<&Place> {
        self.iter().find(|p| p.form == form)
    }
}

/// All ways to patch `pc`. None at all when the instruction there can't be moved: calls, REP, x87, gates.
pub fn classify<M: Memory + ?Sized>(pc: u64, memory: &M) -> Places {
    let mut places = Places::default();
    let Some(insn) = Insn::at(pc, memory) else {
        return places;
    };
    if !insn.can_move() {
        return places;
    }
    let mut code = [0; JUMP_LEN];
    let readable = memory.read(pc, &mut code);
    // A replay that looks for races has other code there.
    if readable && is_watched_head(&code) {
        return places;
    }
    // Code jumps over LOCK prefixes, into what would be a patch's second byte.
    if !insn.is_locked() && readable {
        if insn.bytes().len() >= JUMP_LEN {
            places.list[0] = Place::new(Form::Long, &[insn], &code);
        } else {
            places.list[0] = group(insn, memory)
                .and_then(|(insns, count)| Place::new(Form::Group, &insns[..count], &code));
            places.list[1] = Place::new(Form::Pun, &[insn], &code);
        }
    }
    places.list[2] = Place::new(Form::Breakpoint, &[insn], &code);
    places
}

/// The instructions from `first` on that make room for a jump.
fn group<M: Memory + ?Sized>(first: Insn, memory: &M) -> Option<([Insn; MAX_COPIED], usize)> {
    let mut insns = [first; MAX_COPIED];
    let mut count = 1;
    while insns[count - 1].end() - first.pc < JUMP_LEN as u64 {
        let last = insns[count - 1];
        // What follows a jump is reached from elsewhere, if at all, and may be data.
        if !matches!(last.flow, Flow::Next | Flow::Branch(..)) || count == MAX_COPIED {
            return None;
        }
        let insn = Insn::at(last.end(), memory)?;
        if !insn.can_move() || insn.is_locked() {
            return None;
        }
        insns[count] = insn;
        count += 1;
    }
    let inside = first.pc + 1..insns[count - 1].end();
    let branches_inside = insns[..count].iter().any(|i| match i.flow {
        Flow::Branch(_, target) | Flow::Jump(target) => inside.contains(&target),
        _ => false,
    });
    (!branches_inside).then_some((insns, count))
}

impl Place {
    fn new(form: Form, insns: &[Insn], code: &[u8; JUMP_LEN]) -> Option<Place> {
        let first = *insns.first()?;
        let end = insns.last()?.end();
        let len = end.checked_sub(first.pc)?;
        let (mut mask, mut value) = (0u32, 0u32);
        for (at, byte) in code.iter().enumerate().skip(1) {
            let fixed = if at as u64 >= len {
                Some(*byte)
            } else if insns[1..].iter().any(|i| i.pc == first.pc + at as u64) {
                Some(INT3)
            } else {
                None
            };
            if let Some(byte) = fixed {
                mask |= 0xff << (8 * (at - 1));
                value |= (byte as u32) << (8 * (at - 1));
            }
        }
        if form == Form::Breakpoint {
            (mask, value) = (0, 0);
        }
        let mut reach = (
            first.pc.saturating_sub(REACH),
            first.pc.saturating_add(REACH),
        );
        for insn in insns {
            let target = match insn.flow {
                Flow::Branch(_, target) | Flow::Jump(target) => Some(target),
                _ => insn.rip_target(),
            };
            if let Some(target) = target {
                reach = (
                    reach.0.max(target.saturating_sub(REACH)),
                    reach.1.min(target.saturating_add(REACH)),
                );
            }
        }
        let mut copied = [first; MAX_COPIED];
        copied[..insns.len()].copy_from_slice(insns);
        Some(Place {
            pc: first.pc,
            form,
            len: len as u8,
            insns: copied,
            count: insns.len() as u8,
            mask,
            value,
            reach,
        })
    }

    /// The instructions that the stub copies.
    pub fn insns(&self) -> &[Insn] {
        &self.insns[..self.count as usize]
    }

    /// Address of the first instruction after those that are copied.
    pub fn end(&self) -> u64 {
        self.pc.wrapping_add(self.len as u64)
    }

    /// Bytes of the program that the patch overwrites.
    pub fn patch_len(&self) -> usize {
        if self.form == Form::Breakpoint {
            1
        } else {
            JUMP_LEN
        }
    }

    /// May a stub start there?
    pub fn fits(&self, stub: u64) -> bool {
        let rel = stub.wrapping_sub(self.pc.wrapping_add(JUMP_LEN as u64)) as i64;
        let near = i32::try_from(rel).is_ok();
        near && (self.reach.0..=self.reach.1).contains(&stub)
            && (rel as u32) & self.mask == self.value
    }

    /// The lowest address at which a stub of `len` bytes fits between `low` and `high` (exclusive).
    pub fn first_fit(&self, low: u64, high: u64, len: u64) -> Option<u64> {
        // Displacements in the order of addresses: with the sign bit turned over they are unsigned numbers.
        const SIGN: u32 = 1 << 31;
        let base = self.pc.wrapping_add(JUMP_LEN as u64);
        let low = low.max(self.reach.0);
        let rel = i32::try_from(low.wrapping_sub(base) as i64).ok()?;
        let ordered = next_with_bits(
            rel as u32 ^ SIGN,
            self.mask,
            (self.value ^ SIGN) & self.mask,
        )?;
        let stub = base.wrapping_add((ordered ^ SIGN) as i32 as u64);
        (self.fits(stub) && stub.checked_add(len)? <= high).then_some(stub)
    }

    /// The bytes to write at [`Place::pc`]; [`Place::patch_len`] of them. `stub` must fit.
    pub fn patch(&self, stub: u64) -> [u8; JUMP_LEN] {
        let mut patch = [INT3; JUMP_LEN];
        if self.form != Form::Breakpoint {
            patch[0] = JMP_REL32;
            let rel = stub.wrapping_sub(self.pc.wrapping_add(JUMP_LEN as u64)) as u32;
            patch[1..].copy_from_slice(&rel.to_le_bytes());
        }
        patch
    }
}

/// The smallest number from `low` on whose bits in `mask` (whole bytes) are those of `value`.
fn next_with_bits(low: u32, mask: u32, value: u32) -> Option<u32> {
    let differing = (low ^ value) & mask;
    if differing == 0 {
        return Some(low);
    }
    // Everything from the highest differing byte down can be chosen anew.
    let byte = (31 - differing.leading_zeros()) / 8;
    let from = 8 * byte;
    let below = if from == 24 {
        u32::MAX
    } else {
        (1 << (from + 8)) - 1
    };
    let field = 0xff << from;
    let mut above = low & !below;
    if low & field > value & field {
        // The part above must grow: by one step of its lowest free bit, past fixed ones.
        let step = (above | mask | below).checked_add(1)?;
        above = step & !below & !mask | value & !below;
    }
    Some(above | value & below)
}

/// Does a function begin here that is made to be watched (`cc/races.c`)? Behind its code are traps.
pub fn is_watched_head(code: &[u8; 5]) -> bool {
    matches!(
        code,
        [0xc3, 0xcc, 0xcc, 0xcc, 0xcc]
            | [0x0f, 0xae, 0xf0, 0xc3, 0xcc]
            | [0xeb, _, 0xcc, 0xcc, 0xcc]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Code(u64, Vec<u8>);

    impl Memory for Code {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            let Some(at) = addr.checked_sub(self.0) else {
                return false;
            };
            let Some(bytes) = self.1.get(at as usize..).and_then(|b| b.get(..buf.len())) else {
                return false;
            };
            buf.copy_from_slice(bytes);
            true
        }
    }

    const PC: u64 = 0x5555_5555_0000;

    fn places(code: &[u8]) -> Places {
        let mut bytes = code.to_vec();
        bytes.resize(64, 0x90);
        classify(PC, &Code(PC, bytes))
    }

    fn forms(code: &[u8]) -> Vec<Form> {
        places(code).iter().map(|p| p.form).collect()
    }

    #[test]
    fn forms_of_instructions() {
        use Form::*;
        assert_eq!(forms(&[0xb8, 1, 2, 3, 4]), [Long, Breakpoint]);
        assert_eq!(forms(&[0x48, 0x8b, 0x05, 1, 2, 3, 0]), [Long, Breakpoint]);
        assert_eq!(forms(&[0x0f, 0x84, 1, 2, 3, 0]), [Long, Breakpoint]);
        assert_eq!(
            forms(&[0x48, 0xff, 0xc8, 0x75, 0xfb]),
            [Group, Pun, Breakpoint]
        ); // dec rax; jnz
        assert_eq!(forms(&[0x48, 0xff, 0xc8, 0xc3]), [Pun, Breakpoint]); // dec rax; ret
        assert_eq!(
            forms(&[0x48, 0xff, 0xc8, 0x75, 0x01]),
            [Group, Pun, Breakpoint]
        ); // dec rax; jnz over
        assert_eq!(forms(&[0xff, 0xc8, 0x75, 0x00, 0x90]), [Pun, Breakpoint]); // branches inside
        assert_eq!(
            forms(&[0xf0, 0x48, 0xff, 0x04, 0x25, 0, 0, 1, 0]),
            [Breakpoint]
        ); // lock inc
        assert_eq!(forms(&[0xe8, 0, 0, 0, 0]), []);
        assert_eq!(forms(&[0xf3, 0xaa]), []);
        assert_eq!(forms(&[0x0f, 0x05]), []);
        assert_eq!(forms(&[0xd9, 0x05, 0, 0, 0, 0]), []);
        // What a replay that looks for races replaces; another `ret` is a place.
        assert_eq!(forms(&[0xc3, 0xcc, 0xcc, 0xcc, 0xcc]), []);
        assert_eq!(forms(&[0x0f, 0xae, 0xf0, 0xc3, 0xcc]), []);
        assert_eq!(forms(&[0xeb, 0x2e, 0xcc, 0xcc, 0xcc]), []);
        assert_eq!(forms(&[0xc3]), [Pun, Breakpoint]);
    }

    #[test]
    fn a_long_place_takes_any_near_stub() {
        let p = *places(&[0xb8, 1, 2, 3, 4]).best().unwrap();
        assert_eq!((p.len, p.patch_len()), (5, 5));
        assert_eq!(
            p.first_fit(PC + 0x1000, PC + 0x2000, 100),
            Some(PC + 0x1000)
        );
        assert_eq!(p.first_fit(PC + 0x1000, PC + 0x1010, 100), None);
        assert_eq!(p.first_fit(0, u64::MAX, 100), Some(PC - REACH));
        assert_eq!(p.first_fit(PC + REACH + 1, u64::MAX, 100), None);
        assert_eq!(p.patch(PC + 5 + 0x1234), [0xe9, 0x34, 0x12, 0, 0]);
    }

    #[test]
    fn what_it_names_must_stay_in_reach() {
        // mov rax,[rip+0x7000_0000]: a stub below can't reach it
        let p = *places(&[0x48, 0x8b, 0x05, 0, 0, 0, 0x70]).best().unwrap();
        assert!(!p.fits(PC - 0x4000_0000));
        assert!(p.fits(PC + 0x4000_0000));
    }

    #[test]
    fn a_group_traps_at_its_inner_boundaries() {
        let p = *places(&[0x48, 0xff, 0xc8, 0x75, 0xfb]).best().unwrap();
        let stub = p.first_fit(PC + 0x10_0000, u64::MAX, 100).unwrap();
        assert!(stub - PC < 0x110_0000, "{:x}", stub - PC);
        assert_eq!(p.patch(stub)[3], INT3);
        assert_eq!(p.insns().len(), 2);
    }

    #[test]
    fn a_pun_keeps_the_bytes_after_it() {
        let code = [0x48, 0xff, 0xc8, 0x12, 0x34];
        let p = *places(&code).form(Form::Pun).unwrap();
        let stub = p.first_fit(PC, u64::MAX, 100).unwrap();
        assert_eq!(stub, PC + 5 + 0x3412_0000);
        assert_eq!(p.patch(stub)[3..], code[3..]);
        // Only below: the displacement is negative.
        let p = *places(&[0x48, 0xff, 0xc8, 0x34, 0x92])
            .form(Form::Pun)
            .unwrap();
        assert_eq!(p.first_fit(PC, u64::MAX, 100), None);
        assert!(p.first_fit(0, PC, 100).is_some());
    }

    proptest! {
        #[test]
        fn next_with_bits_is_the_smallest(low in any::<u32>(), other in any::<u32>(), near in any::<bool>(), bytes in 0u32..16) {
            let mask = (0..4).map(|i| ((bytes >> i & 1) * 0xff) << (8 * i)).sum::<u32>();
            let n = if near { low.saturating_add(other % 0x3_0000) } else { other };
            match next_with_bits(low, mask, n & mask) {
                Some(found) => {
                    prop_assert!(found >= low && found & mask == n & mask);
                    prop_assert!(n < low || found <= n);
                }
                None => prop_assert!(n < low),
            }
        }

        #[test]
        fn every_fit_is_one(low in any::<u32>(), code in any::<[u8; 5]>(), first in 0u8..4) {
            let short: &[u8] = [&[0x90][..], &[0xff, 0xc8], &[0x48, 0xff, 0xc8], &[0x48, 0x83, 0xc0, 0x01]][first as usize];
            let mut bytes = short.to_vec();
            bytes.extend(code);
            let low = PC - 0x8000_0000 + low as u64;
            for p in places(&bytes).iter() {
                if let Some(stub) = p.first_fit(low, u64::MAX, 64) {
                    prop_assert!(p.fits(stub) && stub >= low);
                    if p.form == Form::Pun {
                        prop_assert_eq!(&p.patch(stub)[short.len()..], &bytes[short.len()..5]);
                    }
                }
            }
        }
    }
}
