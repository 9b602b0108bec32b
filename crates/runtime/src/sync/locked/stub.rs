//! Code in the place of an instruction that changes memory in one step: it locks the shard of the memory, makes the instruction, and opens the
//! shard again ([`crate::thread::shards`]).
//!
//! The short way is all here, for a shard that the thread had last: the operation is quiet. Else [`super::enter`] is asked, by a jump to the
//! runtime, which locks the shard, or waits until the operation's turn has come. Either way the instruction is then made here, with all
//! registers and flags as the program has them; after it no flag is touched. The program's stack isn't used at all.

mod turned;
mod waits;

use super::operation::{Operation, Segment};
use super::units::{Step, Unit};
use super::{enter, Save};
use crate::sync::known::SIZE_SHIFT;
use crate::thread::shards;
use crate::thread::{Block, QUIET_BEHIND_PENDING};
use core::mem::offset_of;
use reprise_abi::order::{Shard, WaitingRoom};
use reprise_code::decode::{Condition, Flow, Insn};

/// Most bytes of a stub.
pub const MAX_STUB: usize = 1536;
/// Most instructions in a stub.
pub const MAX_INSNS: usize = 8;

/// Offsets in the thread's block.
const SAVE: usize = offset_of!(Block, stub);
const RAX: usize = SAVE + offset_of!(Save, rax);
const RCX: usize = SAVE + offset_of!(Save, rcx);
const RDX: usize = SAVE + offset_of!(Save, rdx);
const FLAGS: usize = SAVE + offset_of!(Save, flags);
const SHARD: usize = SAVE + offset_of!(Save, shard);
const NEXT: usize = SAVE + offset_of!(Save, next);
const RESUME: usize = SAVE + offset_of!(Save, resume);
const VALUE: usize = SAVE + offset_of!(Save, value);
const MARK: usize = offset_of!(Block, mark);
const PENDING_WORD: usize = offset_of!(Block, pending_word);
const FS_BASE: usize = offset_of!(Block, fs_base);
/// From a slot's `signal_pending` to its `quiet_left`.
const QUIET: u8 = QUIET_BEHIND_PENDING as u8;
const _: () = assert!(QUIET_BEHIND_PENDING < 128);

/// From a shard to how many wait for it.
const WAITING: usize = offset_of!(Shard, room) + offset_of!(WaitingRoom, waiting);
/// Bytes that a recording leaves free behind a stub for each of its operations: a replay's are a little longer, and must have room.
const MORE: usize = 8;

/// Number of a register as instructions encode it.
const AX: u8 = 0;
const CX: u8 = 1;
const DX: u8 = 2;

/// Where an instruction of the program's went.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Its address in the program.
    pub from: u64,
    /// Offset in the stub at which it is made.
    pub at: usize,
    /// Offset at which what belongs to it begins.
    pub entry: usize,
    /// It is one that changes memory in one step: the shard is locked there.
    pub ordered: bool,
}

/// What a stub is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A recording.
    Record,
    /// A replay.
    Replay,
    /// A replay that lists operations ([`crate::engines::order::listing`]): it asks for each, by its address.
    List,
}

/// Places of displacements that lead to the long way; 0: none.
type Branches = [usize; 4];

/// A stub.
pub struct Stub {
    bytes: [u8; MAX_STUB],
    len: usize,
    moved: [Moved; MAX_INSNS],
    moved_len: usize,
    /// Where it will lie.
    base: u64,
}

impl Stub {
    /// The stub at `base` for a unit of the program's code. `None`: something in it can't be moved there.
    pub fn new(
        unit: &Unit,
        base: u64,
        purpose: Purpose,
        insn: impl Fn(u64) -> Option<Insn>,
    ) -> Option<Stub> {
        let mut stub = Stub {
            bytes: [0xcc; MAX_STUB],
            len: 0,
            moved: [Moved::default(); MAX_INSNS],
            moved_len: 0,
            base,
        };
        let mut goes_on = true;
        let mut long_ways = [(Branches::default(), 0); MAX_INSNS];
        let mut n = 0;
        let mut pc = unit.start;
        let in_turns = crate::thread::in_force::has_private_views();
        for k in 0..MAX_INSNS {
            if pc >= unit.end {
                break;
            }
            let i = insn(pc)?;
            match unit.step(k, &i) {
                Step::Ordered(_) | Step::Valued(_) if in_turns => {
                    goes_on = stub.in_turn(&i)?;
                }
                Step::LeftOut => {}
                Step::Waits => goes_on = stub.waits(&i)?,
                Step::Ordered(o) => {
                    *long_ways.get_mut(n)? = stub.ordered(&i, &o, purpose)?;
                    n += 1;
                }
                Step::Valued(o) => {
                    *long_ways.get_mut(n)? = stub.valued(&i, &o, purpose)?;
                    n += 1;
                }
                Step::Plain => {
                    stub.note(pc, stub.len, false)?;
                    goes_on = stub.plain(&i)?;
                }
            }
            pc = i.end();
        }
        if goes_on {
            stub.jump(unit.end)?;
        }
        for (slow, go) in &long_ways[..n] {
            stub.long_way(slow, *go)?;
            if purpose == Purpose::Record {
                stub.put(&[0xcc; MORE])?;
            }
        }
        Some(stub)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Where the instructions are.
    pub fn moved(&self) -> &[Moved] {
        &self.moved[..self.moved_len]
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    fn note(&mut self, from: u64, entry: usize, ordered: bool) -> Option<()> {
        let at = self.len;
        *self.moved.get_mut(self.moved_len)? = Moved {
            from,
            at,
            entry,
            ordered,
        };
        self.moved_len += 1;
        Some(())
    }

    /// A displacement of 32 bits to `target`, from the end of it on.
    fn relative(&mut self, target: u64) -> Option<()> {
        let next = self.base + self.len as u64 + 4;
        let d = i32::try_from(target.wrapping_sub(next) as i64).ok()?;
        self.put(&d.to_le_bytes())
    }

    fn jump(&mut self, target: u64) -> Option<()> {
        self.put(&[0xe9])?;
        self.relative(target)
    }

    /// An instruction with a memory operand at `gs:[offset]`, up to its operand.
    fn block(&mut self, code: &[u8], reg: u8, offset: usize) -> Option<()> {
        self.put(&[0x65])?;
        self.put(code)?;
        self.put(&[0x04 | reg << 3, 0x25])?;
        self.put(&(offset as u32).to_le_bytes())
    }

    fn save(&mut self, reg: u8, offset: usize) -> Option<()> {
        self.block(&[0x48, 0x89], reg, offset)
    }

    fn load(&mut self, reg: u8, offset: usize) -> Option<()> {
        self.block(&[0x48, 0x8b], reg, offset)
    }

    /// `mov reg, value`
    fn constant(&mut self, reg: u8, value: u64) -> Option<()> {
        self.put(&[0x48, 0xb8 | reg])?;
        self.put(&value.to_le_bytes())
    }

    /// A copy of an instruction.
    fn copy(&mut self, i: &Insn) -> Option<()> {
        let begin = self.len;
        self.put(i.bytes())?;
        if let (Some(offset), Some(target)) = (i.rip_disp, i.rip_target()) {
            let next = self.base + self.len as u64;
            let d = i32::try_from(target.wrapping_sub(next) as i64).ok()?;
            let place = begin + offset as usize;
            self.bytes
                .get_mut(place..place + 4)?
                .copy_from_slice(&d.to_le_bytes());
        }
        Some(())
    }

    /// An instruction that is only moved; whether control can come out behind it.
    fn plain(&mut self, i: &Insn) -> Option<bool> {
        if !i.can_move() {
            return None;
        }
        match i.flow {
            Flow::Branch(Condition::Flags(c), target) => {
                self.put(&[0x0f, 0x80 | c])?;
                self.relative(target)?;
                Some(true)
            }
            Flow::Next => self.copy(i).map(|()| true),
            Flow::Jump(target) => self.jump(target).map(|()| false),
            Flow::JumpIndirect | Flow::Return => self.copy(i).map(|()| false),
            _ => None,
        }
    }

    /// rdx: the address of the memory that the instruction changes. The flags are kept.
    fn find_address(&mut self, i: &Insn, o: &Operation) -> Option<()> {
        if let (Some(target), Segment::Flat, None) = (i.rip_target(), o.segment, o.bit) {
            self.save_flags()?;
            return self.constant(DX, target);
        }
        if i.rip_target().is_some() {
            return None;
        }
        // lea rdx, [the operand]
        let address = &i.bytes()[o.modrm..o.modrm + o.address_len];
        self.put(&[0x48 | o.rex & 3, 0x8d, address[0] & 0xc7 | DX << 3])?;
        self.put(&address[1..])?;
        self.save_flags()?;
        if o.segment == Segment::Thread {
            // add rdx, gs:[..]
            self.block(&[0x48, 0x03], DX, FS_BASE)?;
        }
        if let Some(bit) = o.bit {
            self.add_bit(bit.register, bit.size)?;
        }
        Some(())
    }

    /// rdx: the shard of the memory that the instruction changes.
    fn find_shard(&mut self, i: &Insn, o: &Operation) -> Option<()> {
        if let (Some(target), Segment::Flat, None) = (i.rip_target(), o.segment, o.bit) {
            self.save_flags()?;
            return self.constant(DX, shards::place_of(target));
        }
        self.find_address(i, o)?;
        // Hash of the line, as `shards::number_of`; times the bytes of a shard.
        self.put(&[0x48, 0xc1, 0xea, 6])?;
        self.constant(CX, shards::FACTOR)?;
        self.put(&[0x48, 0x0f, 0xaf, 0xd1])?;
        self.put(&[
            0x48,
            0xc1,
            0xea,
            shards::SHIFT as u8 - shards::SIZE.trailing_zeros() as u8,
        ])?;
        self.put(&[0x81, 0xe2])?;
        self.put(&(((shards::SHARDS - 1) * shards::SIZE) as u32).to_le_bytes())?;
        self.constant(CX, shards::table())?;
        self.put(&[0x48, 0x01, 0xca])
    }

    /// rdx += the signed number in a register / 8
    fn add_bit(&mut self, register: u8, size: u8) -> Option<()> {
        let saved = match register {
            AX => Some(RAX),
            CX => Some(RCX),
            DX => Some(RDX),
            _ => None,
        };
        let opcode: &[u8] = match size {
            2 => &[0x0f, 0xbf],
            4 => &[0x63],
            _ => &[0x8b],
        };
        match saved {
            Some(offset) => {
                self.put(&[0x65, 0x48])?;
                self.put(opcode)?;
                self.put(&[0x04 | CX << 3, 0x25])?;
                self.put(&(offset as u32).to_le_bytes())?;
            }
            None => {
                self.put(&[0x48 | register >> 3])?;
                self.put(opcode)?;
                self.put(&[0xc0 | CX << 3 | register & 7])?;
            }
        }
        // sar rcx, 3; add rdx, rcx
        self.put(&[0x48, 0xc1, 0xf9, 3, 0x48, 0x01, 0xca])
    }

    /// lahf; seto al; kept.
    fn save_flags(&mut self) -> Option<()> {
        self.put(&[0x9f, 0x0f, 0x90, 0xc0])?;
        self.block(&[0x89], AX, FLAGS)
    }

    /// One instruction that changes memory in one step: where its long way branches off, and where it comes back.
    fn ordered(&mut self, i: &Insn, o: &Operation, purpose: Purpose) -> Option<(Branches, usize)> {
        let mut branches = Branches::default();
        let entry = self.len;
        self.save(AX, RAX)?;
        self.save(CX, RCX)?;
        self.save(DX, RDX)?;
        if purpose == Purpose::List {
            self.find_address(i, o)?;
            branches[0] = self.jump_later()?;
        } else if purpose == Purpose::Replay {
            self.find_shard(i, o)?;
            // mov rcx, gs:[pending_word]; cmp dword ptr [rcx + quiet], 0
            self.load(CX, PENDING_WORD)?;
            self.put(&[0x83, 0x79, QUIET, 0])?;
            branches[0] = self.branch(0x84)?;
            // dec dword ptr [rcx + quiet]; mov rax, [rdx]; add rax, 2
            self.put(&[0xff, 0x49, QUIET, 0x48, 0x8b, 0x02, 0x48, 0x83, 0xc0, 0x02])?;
            self.save(AX, NEXT)?;
            self.save(DX, SHARD)?;
        } else {
            self.find_shard(i, o)?;
            // mov rax, [rdx]; mov ecx, gs:[mark]; cmp [rdx + 8], ecx
            self.put(&[0x48, 0x8b, 0x02])?;
            self.block(&[0x8b], CX, MARK)?;
            self.put(&[0x39, 0x4a, shards::LAST as u8])?;
            branches[0] = self.branch(0x85)?;
            // test al, 1
            self.put(&[0xa8, 0x01])?;
            branches[1] = self.branch(0x85)?;
            // mov rcx, gs:[pending_word]; cmp dword ptr [rcx + quiet], 1
            self.load(CX, PENDING_WORD)?;
            self.put(&[0x83, 0x79, QUIET, 1])?;
            branches[2] = self.branch(0x86)?;
            // lea rcx, [rax + 1]; lock cmpxchg [rdx], rcx
            self.put(&[0x48, 0x8d, 0x48, 0x01, 0xf0, 0x48, 0x0f, 0xb1, 0x0a])?;
            branches[3] = self.branch(0x85)?;
            // mov rcx, gs:[pending_word]; dec dword ptr [rcx + quiet]; add rax, 2
            self.load(CX, PENDING_WORD)?;
            self.put(&[0xff, 0x49, QUIET, 0x48, 0x83, 0xc0, 0x02])?;
            self.save(AX, NEXT)?;
            self.save(DX, SHARD)?;
        }
        let go = self.len;
        if o.needs_flags {
            // mov eax, gs:[flags]; add al, 0x7f; sahf
            self.block(&[0x8b], AX, FLAGS)?;
            self.put(&[0x04, 0x7f, 0x9e])?;
        }
        self.load(AX, RAX)?;
        self.load(CX, RCX)?;
        self.load(DX, RDX)?;
        self.note(i.pc, entry, true)?;
        self.copy(i)?;
        self.open_shard(purpose)?;
        Some((branches, go))
    }

    /// An instruction that loads what the log says: what memory has, and the operand's address, go to the runtime, and the instruction takes the
    /// value from the thread's block.
    fn valued(&mut self, i: &Insn, o: &Operation, purpose: Purpose) -> Option<(Branches, usize)> {
        let entry = self.len;
        let address = &i.bytes()[o.modrm..o.modrm + o.address_len];
        // movzx or mov, to rax.
        let (rex, load): (u8, &[u8]) = match i.memory_size() {
            1 => (0x40, &[0x0f, 0xb6]),
            2 => (0x40, &[0x0f, 0xb7]),
            4 => (0x40, &[0x8b]),
            _ => (0x48, &[0x8b]),
        };
        // What can't be read faults here, with all registers as the program has them.
        self.save(AX, RAX)?;
        self.note(i.pc, entry, false)?;
        match i.rip_target() {
            Some(target) => {
                self.put(&[rex])?;
                self.put(load)?;
                self.put(&[0x05 | AX << 3])?;
                self.relative(target)?;
            }
            None => {
                self.put(&[rex | o.rex & 3])?;
                self.put(load)?;
                self.put(&[address[0] & 0xc7 | AX << 3])?;
                self.put(&address[1..])?;
            }
        }
        self.save(AX, VALUE)?;
        self.load(AX, RAX)?;
        self.save(CX, RCX)?;
        self.save(DX, RDX)?;
        match i.rip_target() {
            Some(target) => self.constant(DX, target)?,
            None => {
                self.put(&[0x48 | o.rex & 3, 0x8d, address[0] & 0xc7 | DX << 3])?;
                self.put(&address[1..])?;
            }
        }
        self.save_flags()?;
        self.constant(CX, i.pc | (i.memory_size() as u64) << SIZE_SHIFT)?;
        self.put(&[0x48, 0x8d, 0x05])?;
        let go_at = self.len;
        self.put(&[0; 4])?;
        self.save(AX, RESUME)?;
        self.far_jump(enter::load(purpose))?;
        let d = (self.len - go_at - 4) as u32;
        self.bytes[go_at..go_at + 4].copy_from_slice(&d.to_le_bytes());
        // mov eax, gs:[flags]; add al, 0x7f; sahf
        self.block(&[0x8b], AX, FLAGS)?;
        self.put(&[0x04, 0x7f, 0x9e])?;
        self.load(AX, RAX)?;
        self.load(CX, RCX)?;
        self.load(DX, RDX)?;
        self.with_value(i, o)?;
        Some((Branches::default(), 0))
    }

    /// A copy of an instruction that has the value for its memory operand.
    fn with_value(&mut self, i: &Insn, o: &Operation) -> Option<()> {
        let bytes = i.bytes();
        self.put(&[0x65])?;
        // The first byte like this is the REX prefix, where there is one; the operand's registers don't count any more.
        let rex = bytes[..o.modrm].iter().position(|b| b & 0xf0 == 0x40);
        for (at, b) in bytes[..o.modrm].iter().enumerate() {
            let is_rex = o.rex != 0 && Some(at) == rex;
            self.put(&[if is_rex { b & !3 } else { *b }])?;
        }
        self.put(&[bytes[o.modrm] & 0x38 | 0x04, 0x25])?;
        self.put(&(VALUE as u32).to_le_bytes())?;
        self.put(&bytes[o.modrm + o.address_len..])
    }

    /// A conditional jump, whose target is filled in later: where.
    fn branch(&mut self, condition: u8) -> Option<usize> {
        self.put(&[0x0f, condition])?;
        self.put(&[0; 4])?;
        Some(self.len - 4)
    }

    /// A jump, whose target is filled in later: where.
    fn jump_later(&mut self) -> Option<usize> {
        self.put(&[0xe9, 0, 0, 0, 0])?;
        Some(self.len - 4)
    }

    /// The operation is made.
    fn open_shard(&mut self, purpose: Purpose) -> Option<()> {
        self.save(AX, RAX)?;
        self.save(DX, RDX)?;
        self.load(AX, NEXT)?;
        self.load(DX, SHARD)?;
        if purpose != Purpose::Record {
            // xchg [rdx], rax: nobody begins to wait unseen.
            self.put(&[0x48, 0x87, 0x02])?;
            self.save(CX, RCX)?;
            // mov ecx, [rdx + waiting]; jrcxz to the end
            self.put(&[0x8b, 0x4a, WAITING as u8])?;
            self.put(&[0xe3, 0])?;
            let from = self.len;
            // lea rax, [the end]; the runtime calls those who wait.
            self.put(&[0x48, 0x8d, 0x05])?;
            let end = self.len;
            self.put(&[0; 4])?;
            self.save(AX, RESUME)?;
            self.far_jump(enter::wake())?;
            self.bytes[from - 1] = (self.len - from) as u8;
            let d = (self.len - end - 4) as u32;
            self.bytes[end..end + 4].copy_from_slice(&d.to_le_bytes());
            self.load(CX, RCX)?;
        } else {
            // mov [rdx], rax
            self.put(&[0x48, 0x89, 0x02])?;
        }
        self.load(AX, RAX)?;
        self.load(DX, RDX)
    }

    fn far_jump(&mut self, target: u64) -> Option<()> {
        self.put(&[0xff, 0x25, 0, 0, 0, 0])?;
        self.put(&target.to_le_bytes())
    }

    /// lea rax, [go]; the runtime comes back there.
    fn long_way(&mut self, slow: &Branches, go: usize) -> Option<()> {
        for b in slow.iter().filter(|b| **b != 0) {
            let d = (self.len - b - 4) as u32;
            self.bytes[*b..b + 4].copy_from_slice(&d.to_le_bytes());
        }
        self.put(&[0x48, 0x8d, 0x05])?;
        self.relative(self.base + go as u64)?;
        self.save(AX, RESUME)?;
        self.far_jump(enter::turn())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_code::decode::decode;

    #[test]
    fn a_replays_stub_fits_where_the_recordings_was() {
        const AT: u64 = 0x10_0000;
        let codes: [&[u8]; 6] = [
            // lock incl (%rdi)
            &[0xf0, 0xff, 0x07],
            // xchg %eax,0x10(%rip)
            &[0x87, 0x05, 0x10, 0, 0, 0],
            // lock orl $0x10,%fs:0x308
            &[0xf0, 0x64, 0x83, 0x0c, 0x25, 0x08, 0x03, 0, 0, 0x10],
            // lock bts %r9,(%rdi)
            &[0xf0, 0x4c, 0x0f, 0xab, 0x0f],
            // lock bts %rdx,(%rdi)
            &[0xf0, 0x48, 0x0f, 0xab, 0x17],
            // lock cmpxchg %edx,(%rdi); mov 8(%rdi),%eax; mov %eax,16(%rdi)
            &[0xf0, 0x0f, 0xb1, 0x17, 0x8b, 0x47, 8, 0x89, 0x47, 16],
        ];
        for code in codes {
            let insn = |pc: u64| decode(pc, code.get((pc - AT) as usize..)?);
            let unit = Unit {
                start: AT,
                end: AT + code.len() as u64,
                ordered: u16::MAX,
                ..Unit::default()
            };
            let all = [Purpose::Record, Purpose::Replay, Purpose::List];
            let [recording, replay, listing] = all.map(|purpose| {
                let stub = Stub::new(&unit, AT + 0x1000, purpose, insn).unwrap();
                assert!(stub.moved().iter().all(|m| m.ordered));
                stub.bytes().len()
            });
            assert!(replay <= recording, "{code:02x?}: {replay}, {recording}");
            assert!(listing <= recording, "{code:02x?}: {listing}, {recording}");
        }
    }
}
