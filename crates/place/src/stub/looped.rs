//! A stub that holds the whole loop of its place ([`Trace`]).
//!
//! ```text
//! start:   mov [save],rcx; jmp head
//! next:    jmp tests
//! head:    rcx = lower half of what test 1 compares - of what was recorded
//!          jrcxz next
//! resume:  the loop's instructions; its branches out go to an exit, its last one to head
//! exit 1:  mov rcx,[save]; jmp to the program's code ...
//! tests:   all tests, in full; a miss goes to resume
//! trap:    int3; jmp resume
//! ```
//!
//! A loop that uses rcx itself saves it at `head` and restores it at `resume`, every round.

use super::{
    Cell, Discriminator, Form, Source, Stub, StubError, INT3, JMP_REL8, JRCXZ, LEA, MOV_LOAD,
    MOV_STORE, REX_W,
};
use crate::trace::{Step, Trace, MAX_TRACE};
use reprise_code::decode::{Condition, Flow};
use reprise_code::patchable::Place;
use reprise_code::regs::{Regs, RCX, RSP};

/// Branches out of the loop: where their displacement is, and where they lead.
struct Exits {
    list: [(usize, u64); MAX_TRACE],
    count: usize,
}

impl Stub {
    /// As [`Stub::build`], with the loop of the place in the stub. `named` are the registers of the named state.
    pub fn build_loop(
        at: u64,
        save: Cell,
        place: &Place,
        tests: &[Discriminator],
        trace: &Trace,
        named: &Regs,
    ) -> Result<Stub, StubError> {
        let mut stub = Stub::begin(at, place, tests)?;
        let first = tests.first().ok_or(StubError::BadTest)?;
        if place.form == Form::Breakpoint {
            return Err(StubError::BadTest);
        }
        stub.emit_loop(place, tests, first, save, trace, named)?;
        Ok(stub)
    }

    fn emit_loop(
        &mut self,
        place: &Place,
        tests: &[Discriminator],
        first: &Discriminator,
        save: Cell,
        trace: &Trace,
        named: &Regs,
    ) -> Result<(), StubError> {
        let names_rcx = matches!(
            first.source,
            Source::Register(r) | Source::WordAt(r, _) | Source::HalfAt(r, _) if r as usize == RCX
        );
        let free = trace.leaves_rcx_alone() && !names_rcx;
        self.keeps_rcx = free;
        if free {
            self.store(save)?;
        }
        self.bytes(&[JMP_REL8, 5])?;
        let next = self.len;
        let to_tests = self.jump_later()?;
        let head = self.here();
        if !free {
            self.store(save)?;
        }
        self.lower_difference(first, save, trace, named)?;
        let rel = next as i64 - (self.len as i64 + 2);
        let rel = i8::try_from(rel).map_err(|_| StubError::TooLong)?;
        self.bytes(&[JRCXZ, rel as u8])?;
        let miss = self.here();
        if !free {
            self.restore(save)?;
        }
        let mut exits = Exits {
            list: [(0, 0); MAX_TRACE],
            count: 0,
        };
        self.resume = if free {
            self.len
        } else {
            (miss - self.at) as usize
        };
        self.copies_from = self.len;
        let last = trace.steps().count() - 1;
        for (i, step) in trace.steps().enumerate() {
            self.stands_for(step.insn.pc);
            self.copy_step(step, place, head, i == last, &mut exits)?;
        }
        self.resume_end = self.len;
        for (displacement, target) in &exits.list[..exits.count] {
            self.aim(*displacement);
            if free {
                self.restore(save)?;
            }
            self.jump(*target)?;
        }
        self.aim(to_tests);
        for test in tests {
            self.test(test, save, miss)?;
        }
        self.restore(save)?;
        self.trap = self.len;
        self.bytes(&[INT3])?;
        self.jump(self.resume())
    }

    /// One instruction of the loop; the last one leads back to the head.
    fn copy_step(
        &mut self,
        step: &Step,
        place: &Place,
        head: u64,
        last: bool,
        exits: &mut Exits,
    ) -> Result<(), StubError> {
        let insn = &step.insn;
        match insn.flow {
            // Followed: what comes next is its target.
            Flow::Jump(_) if !last => {}
            Flow::Jump(_) => self.jump(head)?,
            Flow::Branch(condition, target) => {
                let aside = if step.taken { insn.end() } else { target };
                let back = (last && step.taken, !step.taken && target == place.pc);
                match (condition, back) {
                    (Condition::Flags(code), (true, _) | (_, true)) => {
                        self.rip_relative(&[0x0f, 0x80 + code], head)?;
                        if step.taken {
                            let at = self.jump_later()?;
                            exits.push(at, aside);
                        } else if last {
                            self.jump(head)?;
                        }
                    }
                    (Condition::Flags(code), _) => {
                        // Away from the loop; a branch that is followed the other way round.
                        let code = if step.taken { code ^ 1 } else { code };
                        self.rip_relative(&[0x0f, 0x80 + code], self.at)?;
                        exits.push(self.len - 4, aside);
                        if last {
                            self.jump(head)?;
                        }
                    }
                    (_, (true, _)) => {
                        // These have short displacements only: `loop +2; jmp +5; jmp head`.
                        let opcode = insn.bytes();
                        self.bytes(&opcode[..opcode.len() - 1])?;
                        self.bytes(&[2, JMP_REL8, 5])?;
                        self.jump(head)?;
                        let at = self.jump_later()?;
                        exits.push(at, aside);
                    }
                    _ => return Err(StubError::BadTest),
                }
            }
            _ => {
                self.copy(insn, place)?;
                if last {
                    self.jump(head)?;
                }
            }
        }
        Ok(())
    }

    /// ecx = the lower half of the source's value - of the recorded one, by the cheapest means; 0 whenever the test passes.
    fn lower_difference(
        &mut self,
        test: &Discriminator,
        save: Cell,
        trace: &Trace,
        named: &Regs,
    ) -> Result<(), StubError> {
        let value = test.value as u32;
        match test.source {
            Source::Register(r) if r as usize != RCX => {
                self.bytes(&[0x40 | r >> 3, LEA, 0x88 | r & 7])?; // lea ecx, [r+disp32]
                if r & 7 == RSP as u8 {
                    self.bytes(&[0x24])?;
                }
                return self.bytes(&value.wrapping_neg().to_le_bytes());
            }
            Source::Register(_) => self.cell(&[MOV_LOAD, 0x0d], save)?,
            Source::Word(address) | Source::Half(address) => {
                match near(address, trace, named) {
                    // An index makes it an address that the processor doesn't take for the program's own operand: where it
                    // predicts memory by that, it goes on doing so.
                    Some((r, disp)) => {
                        self.bytes(&[0x40 | r >> 3 << 1, MOV_LOAD, 0x0c, (r & 7) << 3 | 5])?; // mov ecx, [r*1+disp32]
                        self.bytes(&disp.to_le_bytes())?;
                    }
                    None => {
                        self.bytes(&[REX_W, 0xb9])?; // mov rcx, imm64
                        self.bytes(&address.to_le_bytes())?;
                        self.bytes(&[MOV_LOAD, 0x09])?; // mov ecx, [rcx]
                    }
                }
            }
            Source::WordAt(base, disp) | Source::HalfAt(base, disp) => {
                if base as usize == RCX {
                    self.restore(save)?;
                }
                self.bytes(&[0x40 | base >> 3, MOV_LOAD, 0x88 | base & 7])?; // mov ecx, [base+disp32]
                if base & 7 == RSP as u8 {
                    self.bytes(&[0x24])?;
                }
                self.bytes(&disp.to_le_bytes())?;
            }
            Source::Vector { index, high: false } => {
                self.bytes(&[
                    0x66,
                    0x40 | index >> 3 << 2,
                    0x0f,
                    0x7e,
                    0xc1 | (index & 7) << 3,
                ])?; // movd ecx, xmm
            }
            Source::Vector { .. } | Source::X87(_) => return self.difference(test, save, false),
        }
        self.bytes(&[LEA, 0x89])?; // lea ecx, [rcx+disp32]
        self.bytes(&value.wrapping_neg().to_le_bytes())
    }

    fn store(&mut self, save: Cell) -> Result<(), StubError> {
        self.cell(&[REX_W, MOV_STORE, 0x0d], save)
    }

    /// A jump whose target is set by [`Stub::aim`]; where its displacement is.
    fn jump_later(&mut self) -> Result<usize, StubError> {
        self.jump(self.at)?;
        Ok(self.len - 4)
    }

    /// Sets the target of a jump to here.
    fn aim(&mut self, displacement: usize) {
        let rel = (self.len - displacement - 4) as u32;
        self.code[displacement..displacement + 4].copy_from_slice(&rel.to_le_bytes());
    }
}

impl Exits {
    fn push(&mut self, displacement: usize, target: u64) {
        self.list[self.count] = (displacement, target);
        self.count += 1;
    }
}

/// A register that keeps its value all around the loop, and the distance from it to an address: through it the same memory is read at the
/// named visit, and memory that is there at the others.
fn near(address: u64, trace: &Trace, named: &Regs) -> Option<(u8, i32)> {
    const NEAR: i64 = 1 << 12;
    (0..16u8)
        .filter(|r| *r as usize != RCX && trace.keeps(*r))
        .map(|r| (r, address.wrapping_sub(named.gpr[r as usize]) as i64))
        .filter(|(_, distance)| distance.abs() < NEAR)
        .min_by_key(|(_, distance)| distance.abs())
        .map(|(r, distance)| (r, distance as i32))
}
