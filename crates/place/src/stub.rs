//! The machine code that stands for a patched instruction: it lets the visits pass that can't be the named one.
//!
//! ```text
//! start:   mov [save],rcx
//!          test 1: rcx = what is compared - what was recorded, without touching flags
//!          jrcxz next
//! miss:    mov rcx,[save]
//! resume:  the program's instructions, moved
//!          jmp back
//! next:    test 2; jrcxz +5; jmp miss; test 3 ...
//!          mov rcx,[save]
//! trap:    int3                     all tests passed: the checker decides
//!          jmp resume
//! ```
//!
//! Flags, stack and every register are the program's at `resume` and at `trap`. A test of memory may fault, where an
//! earlier visit has no memory: [`Stub::locate`] says so, and the visit is a miss. The save cell must lie in another page
//! than the stub: writing beside running code is slow.

use super::trace::{Trace, MAX_TRACE};
use reprise_code::decode::{Condition, Flow, Insn};
use reprise_code::patchable::{Form, Place, INT3};
use reprise_code::regs::{Regs, RCX, RSP};

mod looped;

/// Most tests of a stub.
pub const MAX_TESTS: usize = 48;
/// Longest stub in bytes.
pub const MAX_STUB: usize = 2048;

/// Where a stub saves registers: 1 KB of writable memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    /// At this address, within 2 GB, in a page of its own: for stubs through which one thread goes.
    At(u64),
    /// At this distance from the base of the thread's `%gs`: for stubs through which several threads may go at once.
    Own(u32),
}

impl Cell {
    /// The word so many bytes behind its beginning.
    fn behind(self, bytes: u32) -> Cell {
        match self {
            Cell::At(address) => Cell::At(address + u64::from(bytes)),
            Cell::Own(distance) => Cell::Own(distance + bytes),
        }
    }
}

/// The prefix for what lies at a distance from the base of `%gs`.
const GS: u8 = 0x65;

/// Offset from the save cell of the 512 bytes into which x87 registers are saved.
const SAVED_X87: u32 = 64;

/// What a test looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A general register.
    Register(u8),
    /// Half of the low 128 bits of vector register `index` (0 to 15).
    Vector {
        /// Which register.
        index: u8,
        /// Its upper half.
        high: bool,
    },
    /// 64 bits of memory.
    Word(u64),
    /// 32 bits of memory.
    Half(u64),
    /// 64 bits of memory at a register's value plus a displacement.
    WordAt(u8, i32),
    /// 32 bits of memory at a register's value plus a displacement.
    HalfAt(u8, i32),
    /// Significand of x87 register st(i).
    X87(u8),
}

/// What tells a state from others: a source and its value. 32-bit sources have values below 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discriminator {
    /// What is compared.
    pub source: Source,
    /// With what.
    pub value: u64,
}

impl Discriminator {
    /// Register numbers are in range, and the value fits its source.
    pub fn is_valid(&self) -> bool {
        match self.source {
            Source::Register(r) | Source::WordAt(r, _) => r < 16,
            Source::Vector { index, .. } => index < 16,
            Source::X87(i) => i < 8,
            Source::Word(_) => true,
            Source::Half(_) => self.value <= u32::MAX as u64,
            Source::HalfAt(r, _) => r < 16 && self.value <= u32::MAX as u64,
        }
    }
}

/// Why there is no stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StubError {
    /// The stub or its save cell lies too far from something that it names.
    Unreachable,
    /// More than [`MAX_TESTS`] tests.
    TooManyTests,
    /// A test with an impossible register or value.
    BadTest,
    /// More code than [`MAX_STUB`].
    TooLong,
}

/// Where in a stub a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spot {
    /// At the trap: all tests passed. `rip` of the signal frame is one further.
    Trap,
    /// In a test; a fault there is a miss: give rcx back its value from the save cell, go on at [`Stub::resume`].
    /// The first instruction of a stub is no test.
    Test,
    /// At the program's instruction at this address, by a fault; all registers are the program's, ...
    Program(u64),
    /// ... all but rcx, whose value is in the save cell.
    ProgramSaved(u64),
}

/// A stub, ready to be written to its address.
#[derive(Clone, Debug)]
pub struct Stub {
    at: u64,
    code: [u8; MAX_STUB],
    len: usize,
    /// Address of the place.
    pc: u64,
    resume: usize,
    /// First and last byte (exclusive) of the copies.
    copies_from: usize,
    resume_end: usize,
    trap: usize,
    /// The program's rcx is in the save cell while the copies run.
    keeps_rcx: bool,
    /// Where the copies and the jump after them begin, and the addresses in the program for which they stand.
    copies: [(u16, u64); MAX_TRACE + 1],
    copied: usize,
}

/// `lea` from a 64-bit or a 32-bit register.
const REX_W: u8 = 0x48;
const LEA: u8 = 0x8d;
const MOV_LOAD: u8 = 0x8b;
const MOV_STORE: u8 = 0x89;
const JRCXZ: u8 = 0xe3;
const JMP_REL8: u8 = 0xeb;
const JMP_REL32: u8 = 0xe9;

impl Stub {
    /// The stub for `place`, at address `at` ([`Place::fits`], unless the place is a breakpoint), with these tests in order.
    pub fn build(
        at: u64,
        save: Cell,
        place: &Place,
        tests: &[Discriminator],
    ) -> Result<Stub, StubError> {
        let mut stub = Stub::begin(at, place, tests)?;
        stub.emit(place, tests, save)?;
        Ok(stub)
    }

    /// [`Stub::build_loop`] where that can be done, else [`Stub::build`].
    pub fn best(
        at: u64,
        save: Cell,
        place: &Place,
        tests: &[Discriminator],
        trace: &Option<Trace>,
        named: &Regs,
    ) -> Result<Stub, StubError> {
        let looped = trace
            .as_ref()
            .and_then(|trace| Stub::build_loop(at, save, place, tests, trace, named).ok());
        match looped {
            Some(stub) => Ok(stub),
            None => Stub::build(at, save, place, tests),
        }
    }

    /// A stub without code.
    fn begin(at: u64, place: &Place, tests: &[Discriminator]) -> Result<Stub, StubError> {
        if tests.len() > MAX_TESTS {
            return Err(StubError::TooManyTests);
        }
        if !tests.iter().all(Discriminator::is_valid) {
            return Err(StubError::BadTest);
        }
        if place.form != Form::Breakpoint && !place.fits(at) {
            return Err(StubError::Unreachable);
        }
        Ok(Stub {
            at,
            code: [INT3; MAX_STUB],
            len: 0,
            pc: place.pc,
            resume: 0,
            copies_from: 0,
            resume_end: 0,
            trap: 0,
            keeps_rcx: false,
            copies: [(0, 0); MAX_TRACE + 1],
            copied: 0,
        })
    }

    /// Its address.
    pub fn start(&self) -> u64 {
        self.at
    }

    /// Its bytes.
    pub fn code(&self) -> &[u8] {
        &self.code[..self.len]
    }

    /// Where the program goes on after the checker said no, with its registers as they were at the trap.
    pub fn resume(&self) -> u64 {
        self.at + self.resume as u64
    }

    /// Address of the trap.
    pub fn trap(&self) -> u64 {
        self.at + self.trap as u64
    }

    /// Where `pc` is in this stub; None when it isn't.
    pub fn locate(&self, pc: u64) -> Option<Spot> {
        let offset = usize::try_from(pc.checked_sub(self.at)?).ok()?;
        if offset >= self.len {
            return None;
        }
        if offset == self.trap {
            return Some(Spot::Trap);
        }
        if (self.copies_from..self.resume_end).contains(&offset) {
            let copies = &self.copies[..self.copied];
            let copy = copies.iter().rev().find(|c| c.0 as usize <= offset);
            return copy.map(|c| match self.keeps_rcx {
                true => Spot::ProgramSaved(c.1),
                false => Spot::Program(c.1),
            });
        }
        // Before rcx is saved, and after the trap.
        if offset == 0 || offset > self.trap {
            return Some(Spot::Program(self.pc));
        }
        Some(Spot::Test)
    }

    /// Where the copy of the program's instruction at `pc` is: for a thread that trapped at an inner boundary of a
    /// [`Form::Group`].
    ///
    /// The thread's rcx must be in the save cell then.
    pub fn copy_of(&self, pc: u64) -> Option<u64> {
        self.copies[..self.copied]
            .iter()
            .find(|c| c.1 == pc)
            .map(|c| self.at + c.0 as u64)
    }

    fn emit(
        &mut self,
        place: &Place,
        tests: &[Discriminator],
        save: Cell,
    ) -> Result<(), StubError> {
        let Some((first, rest)) = tests.split_first() else {
            // Every visit traps.
            self.bytes(&[INT3])?;
            return self.copy_program(place);
        };
        self.cell(&[REX_W, MOV_STORE, 0x0d], save)?;
        let skip = self.test_first(first, save)?;
        let miss = self.here();
        self.restore(save)?;
        self.copy_program(place)?;
        self.aim_short(skip)?;
        self.test_rest(first, save, miss)?;
        for test in rest {
            self.test(test, save, miss)?;
        }
        self.restore(save)?;
        self.trap = self.len;
        self.bytes(&[INT3])?;
        self.jump(self.resume())
    }

    fn here(&self) -> u64 {
        self.at + self.len as u64
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), StubError> {
        let room = self
            .code
            .get_mut(self.len..self.len + bytes.len())
            .ok_or(StubError::TooLong)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// `opcode` followed by the displacement from its end to `target`.
    fn rip_relative(&mut self, opcode: &[u8], target: u64) -> Result<(), StubError> {
        let end = self.here() + opcode.len() as u64 + 4;
        let rel =
            i32::try_from(target.wrapping_sub(end) as i64).map_err(|_| StubError::Unreachable)?;
        self.bytes(opcode)?;
        self.bytes(&rel.to_le_bytes())
    }

    /// `opcode`, whose operand is relative to rip, with this word of the save cell instead.
    fn cell(&mut self, opcode: &[u8], word: Cell) -> Result<(), StubError> {
        let distance = match word {
            Cell::At(address) => return self.rip_relative(opcode, address),
            Cell::Own(distance) => distance,
        };
        let (modrm, opcode) = opcode.split_last().ok_or(StubError::BadTest)?;
        self.bytes(&[GS])?;
        self.bytes(opcode)?;
        self.bytes(&[modrm & 0x38 | 4, 0x25])?; // gs:[disp32]
        self.bytes(&distance.to_le_bytes())
    }

    fn jump(&mut self, target: u64) -> Result<(), StubError> {
        self.rip_relative(&[JMP_REL32], target)
    }

    fn restore(&mut self, save: Cell) -> Result<(), StubError> {
        self.cell(&[REX_W, MOV_LOAD, 0x0d], save)
    }

    fn copy_program(&mut self, place: &Place) -> Result<(), StubError> {
        self.resume = self.len;
        self.copies_from = self.len;
        for insn in place.insns() {
            self.stands_for(insn.pc);
            self.copy(insn, place)?;
        }
        if !place
            .insns()
            .last()
            .is_some_and(|i| matches!(i.flow, Flow::Jump(_) | Flow::JumpIndirect | Flow::Return))
        {
            self.stands_for(place.end());
            self.jump(place.end())?;
        }
        self.resume_end = self.len;
        Ok(())
    }

    fn stands_for(&mut self, pc: u64) {
        self.copies[self.copied] = (self.len as u16, pc);
        self.copied += 1;
    }

    fn copy(&mut self, insn: &Insn, place: &Place) -> Result<(), StubError> {
        // A loop that is patched whole needn't go through its patch.
        let aim = |stub: &Stub, target: u64| {
            if target == place.pc && place.form != Form::Breakpoint {
                stub.at
            } else {
                target
            }
        };
        match insn.flow {
            Flow::Jump(target) => self.jump(aim(self, target)),
            Flow::Branch(Condition::Flags(code), target) => {
                self.rip_relative(&[0x0f, 0x80 + code], aim(self, target))
            }
            Flow::Branch(_, target) => {
                // These have short displacements only: `loop +2; jmp +5; jmp target`.
                let opcode = insn.bytes();
                self.bytes(&opcode[..opcode.len() - 1])?;
                self.bytes(&[2, JMP_REL8, 5])?;
                self.jump(aim(self, target))
            }
            _ => {
                let at = self.len;
                self.bytes(insn.bytes())?;
                let Some((disp, target)) = insn.rip_disp.zip(insn.rip_target()) else {
                    return Ok(());
                };
                let rel = i32::try_from(target.wrapping_sub(self.here()) as i64)
                    .map_err(|_| StubError::Unreachable)?;
                let disp = at + disp as usize;
                self.code[disp..disp + 4].copy_from_slice(&rel.to_le_bytes());
                Ok(())
            }
        }
    }

    /// Emits the (first half of the) first test and its `jrcxz`, whose target is set later; where its displacement is.
    fn test_first(&mut self, test: &Discriminator, save: Cell) -> Result<usize, StubError> {
        self.difference(test, save, false)?;
        self.bytes(&[JRCXZ, 0])?;
        Ok(self.len - 1)
    }

    fn aim_short(&mut self, displacement: usize) -> Result<(), StubError> {
        let rel = self.len - displacement - 1;
        self.code[displacement] = i8::try_from(rel).map_err(|_| StubError::TooLong)? as u8;
        Ok(())
    }

    /// The second half of a test that takes two.
    fn test_rest(&mut self, test: &Discriminator, save: Cell, miss: u64) -> Result<(), StubError> {
        if needs_two_halves(test) {
            self.difference(test, save, true)?;
            self.or_miss(miss)?;
        }
        Ok(())
    }

    fn test(&mut self, test: &Discriminator, save: Cell, miss: u64) -> Result<(), StubError> {
        self.difference(test, save, false)?;
        self.or_miss(miss)?;
        self.test_rest(test, save, miss)
    }

    fn or_miss(&mut self, miss: u64) -> Result<(), StubError> {
        self.bytes(&[JRCXZ, 5])?;
        self.jump(miss)
    }

    /// rcx = the source's value - the recorded one (or the difference of their lower or `upper` halves).
    fn difference(
        &mut self,
        test: &Discriminator,
        save: Cell,
        upper: bool,
    ) -> Result<(), StubError> {
        let two = needs_two_halves(test);
        let wide = !matches!(test.source, Source::Half(_) | Source::HalfAt(..));
        let offset = if upper { 4 } else { 0 };
        match test.source {
            Source::Register(r) if r as usize != RCX => {
                return self.register_difference(r, test.value)
            }
            Source::Register(_) => {
                let load: &[u8] = if two {
                    &[MOV_LOAD, 0x0d]
                } else {
                    &[REX_W, MOV_LOAD, 0x0d]
                };
                self.cell(load, save.behind(offset))?;
            }
            Source::Vector { index, high } => self.load_vector(index, high, upper)?,
            Source::X87(i) => {
                let area = save.behind(SAVED_X87);
                if !upper {
                    self.cell(&[REX_W, 0x0f, 0xae, 0x05], area)?; // fxsave64 [area]
                }
                let load: &[u8] = if two {
                    &[MOV_LOAD, 0x0d]
                } else {
                    &[REX_W, MOV_LOAD, 0x0d]
                };
                self.cell(load, area.behind(32 + 16 * u32::from(i) + offset))?;
            }
            Source::Word(addr) | Source::Half(addr) => {
                self.bytes(&[REX_W, 0xb9])?; // mov rcx, imm64
                self.bytes(&addr.wrapping_add(offset.into()).to_le_bytes())?;
                let load: &[u8] = if wide && !two {
                    &[REX_W, MOV_LOAD, 0x09]
                } else {
                    &[MOV_LOAD, 0x09]
                };
                self.bytes(load)?; // mov rcx|ecx, [rcx]
            }
            Source::WordAt(base, disp) | Source::HalfAt(base, disp) => {
                if base as usize == RCX {
                    self.restore(save)?;
                }
                let disp = disp.checked_add(offset as i32).ok_or(StubError::BadTest)?;
                let rex = 0x40 | ((wide && !two) as u8) << 3 | base >> 3;
                self.bytes(&[rex, MOV_LOAD, 0x88 | base & 7])?; // mov rcx|ecx, [base+disp32]
                if base & 7 == RSP as u8 {
                    self.bytes(&[0x24])?;
                }
                self.bytes(&disp.to_le_bytes())?;
            }
        }
        if wide && !two {
            let negated = test.value.wrapping_neg() as i64 as i32;
            self.bytes(&[REX_W, LEA, 0x89])?; // lea rcx, [rcx+disp32]
            self.bytes(&negated.to_le_bytes())
        } else {
            let half = (test.value >> (8 * offset)) as u32;
            self.bytes(&[LEA, 0x89])?; // lea ecx, [rcx+disp32]
            self.bytes(&half.wrapping_neg().to_le_bytes())
        }
    }

    /// rcx = register - value, for any register but rcx.
    fn register_difference(&mut self, r: u8, value: u64) -> Result<(), StubError> {
        let negated = value.wrapping_neg();
        if let Ok(disp) = i32::try_from(negated as i64) {
            self.bytes(&[REX_W | r >> 3, LEA, 0x88 | r & 7])?; // lea rcx, [r+disp32]
            if r & 7 == RSP as u8 {
                self.bytes(&[0x24])?;
            }
            return self.bytes(&disp.to_le_bytes());
        }
        self.bytes(&[REX_W, 0xb9])?; // mov rcx, imm64
        self.bytes(&negated.to_le_bytes())?;
        self.bytes(&[REX_W | r >> 3, LEA, 0x4c, 0x08 | r & 7, 0]) // lea rcx, [r+rcx*1+0]
    }

    /// rcx = half of a vector register; ecx = a quarter, where the test takes two.
    fn load_vector(&mut self, index: u8, high: bool, upper: bool) -> Result<(), StubError> {
        if high || upper {
            // SSE4.1; a processor without it has no high halves chosen (choose.rs looks at low ones first).
            let quarter = (high as u8) << 1 | upper as u8;
            return self.bytes(&[
                0x66,
                0x40 | index >> 3 << 2,
                0x0f,
                0x3a,
                0x16,
                0xc1 | (index & 7) << 3,
                quarter,
            ]); // pextrd ecx, xmm, n
        }
        self.bytes(&[
            0x66,
            0x48 | index >> 3 << 2,
            0x0f,
            0x7e,
            0xc1 | (index & 7) << 3,
        ]) // movq rcx, xmm
    }
}

/// A test whose value is too wide for a displacement, and whose source is not a register that `lea` can add to another.
fn needs_two_halves(test: &Discriminator) -> bool {
    let narrow = i32::try_from(test.value.wrapping_neg() as i64).is_ok();
    match test.source {
        Source::Register(r) => r as usize == RCX && !narrow,
        Source::Vector { high, .. } => high || !narrow,
        Source::Word(_) | Source::WordAt(..) | Source::X87(_) => !narrow,
        Source::Half(_) | Source::HalfAt(..) => false,
    }
}
