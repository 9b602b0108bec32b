//! A breakpoint with a condition, compiled into the program's code: only when the registers are those that are looked for, or an expression of
//! gdb's is true, is there a stop. A visit that is no hit costs some nanoseconds, where a stop costs microseconds; so a place in a loop is found,
//! and a user's condition may fail a million times.
//!
//! The instructions at the place are replaced by a jump to a stub, which tests, makes them, and goes on behind them. A jump takes
//! five bytes. Where another instruction begins among these, the byte there is made one that traps, by the choice of the stub's address:
//! whoever jumps there goes on at the copy of that instruction. The stub touches no stack, and what it changes it puts back. Memory that an
//! expression reads may not be there: that counts as a hit, as does all that the stub does not decide. Whoever stops judges once more.
//!
//! Not everywhere: not where a call through a register or memory pushes an address, where the processor asks the kernel for something, where a fault
//! of the recording happened, or where the runtime has rewritten code. There, and where the code is not what it was, it is an ordinary breakpoint.

use crate::breakpoints::{Conditions, TRAP};
use crate::collect::put_row;
use crate::debuggee::{Debuggee, General};
use crate::expression::Expression;
use crate::machine_code::{
    saved_flags, Code, FLAGS, IF_NOT_ZERO, IF_ZERO, JMP, JUMP, RAX, RCX, RDX, VISITS_LEFT, WANTED,
};
use crate::translated::{translate, Use, NUMBERS};
use crate::{os, DebugError};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code as Opcode, Decoder, DecoderOptions, FlowControl,
    Instruction, InstructionBlock, Mnemonic,
};
use libc::user_regs_struct;
use reprise_abi::layout::{PAGE, RESERVATION, RESERVATION_END};
use std::collections::BTreeSet;
use std::io::Result;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// Most bytes of an instruction.
const MAX_INSN: usize = 15;
/// Pages of a stub: two with code, the last with data.
const PAGES: u64 = 3;
/// Where nothing is mapped.
const LOWEST: u64 = 0x1_0000;
const HIGHEST: u64 = 0x7fff_ff00_0000;
/// Most that are in a process at a time.
pub const MOST: usize = 64;

/// What is tested at a visit.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tests {
    /// The general registers are these.
    pub registers: Option<General>,
    /// It is the visit of this number.
    pub visit: Option<u64>,
    /// One of these is true.
    pub conditions: Conditions,
    /// The value of this is put down, at each visit.
    pub collected: Option<Rc<Expression>>,
}

/// One that is in the process.
pub struct Compiled {
    /// The place.
    pub at: u64,
    /// What is tested.
    tests: Tests,
    /// The code there when it was compiled.
    code: Vec<u8>,
    jump: [u8; JUMP],
    /// The first byte of the stub's pages.
    base: u64,
    /// Its instruction that traps when it is a hit.
    trap: u64,
    /// Its code that tests, in which memory is read.
    testing: Range<u64>,
    /// Instructions that began among the jump's bytes, and where they are now.
    middles: Vec<(u64, u64)>,
    /// It is in the code now.
    inserted: bool,
}

impl Compiled {
    /// Is this address in its pages?
    pub fn holds(&self, at: u64) -> bool {
        at.wrapping_sub(self.base) < PAGES * PAGE
    }

    /// The stretch of code that is made in its stub.
    fn stretch(&self) -> Range<u64> {
        self.at..self.at + self.code.len() as u64
    }

    /// Its data page.
    fn data(&self) -> u64 {
        self.base + (PAGES - 1) * PAGE
    }

    /// Where a thread goes on that has trapped at this address; and whether it is a hit.
    fn after_trap(&self, at: u64) -> Option<(u64, bool)> {
        if !self.inserted {
            return None;
        }
        if at == self.trap {
            return Some((self.at, true));
        }
        let middle = self.middles.iter().find(|(from, _)| *from == at);
        middle.map(|(_, to)| (*to, false))
    }
}

/// Instructions from `at` on that have to make room for a jump; `None` where there are some that can't be moved.
fn moved(code: &[u8], at: u64) -> Option<Vec<Instruction>> {
    const ASKS_KERNEL: [Mnemonic; 6] = [
        Mnemonic::Syscall,
        Mnemonic::Sysenter,
        Mnemonic::Cpuid,
        Mnemonic::Rdtsc,
        Mnemonic::Rdtscp,
        Mnemonic::Rdpmc,
    ];
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let (mut list, mut len) = (Vec::new(), 0);
    while len < JUMP {
        if !decoder.can_decode() {
            return None;
        }
        let i = decoder.decode();
        let moves = match i.flow_control() {
            FlowControl::Next | FlowControl::Return | FlowControl::IndirectBranch => true,
            // To itself: there would be no visit.
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                i.near_branch_target() != i.ip()
            }
            FlowControl::Call => i.code() == Opcode::Call_rel32_64,
            _ => false,
        };
        if i.is_invalid() || !moves || ASKS_KERNEL.contains(&i.mnemonic()) {
            return None;
        }
        len += i.len();
        list.push(i);
    }
    Some(list)
}

/// A stub.
struct Stub {
    bytes: Vec<u8>,
    trap: u64,
    testing: Range<u64>,
    /// Where each instruction of the program went.
    places: Vec<u64>,
}

/// The stub at `entry`.
fn stub(
    entry: u64,
    data: u64,
    list: &[Instruction],
    tests: &Tests,
    is_order: bool,
) -> Option<Stub> {
    let mut c = Code {
        bytes: Vec::new(),
        base: entry,
        data,
    };
    c.save();
    let mut hits = Vec::new();
    if tests.visit.is_some() {
        c.count_down(VISITS_LEFT);
        hits.push(c.branch(IF_ZERO));
    }
    if tests.registers.is_some() {
        let mut misses = Vec::new();
        c.load(0, RAX);
        for (number, i) in NUMBERS.into_iter().zip(0..) {
            c.compare(number, WANTED + 8 * i);
            misses.push(c.branch(IF_NOT_ZERO));
        }
        hits.push(c.jump());
        c.land(&misses);
    }
    for condition in &tests.conditions {
        hits.extend(translate(&mut c, condition, list.first()?.ip(), Use::Test)?);
    }
    if let Some(e) = &tests.collected {
        let pc = list.first()?.ip();
        hits.extend(translate(&mut c, e, pc, Use::Keep)?);
        hits.push(put_row(&mut c, pc, is_order));
    }
    let testing = entry..c.here();
    c.restore();
    let mut places = Vec::new();
    for i in list {
        places.push(c.here());
        put_moved(&mut c, i)?;
    }
    let back = list.last()?.next_ip();
    put_jump(&mut c, back)?;
    c.land(&hits);
    c.restore();
    let trap = c.here();
    c.put(&[TRAP]);
    let room = (PAGES - 1) * PAGE - entry % PAGE;
    (c.bytes.len() as u64 <= room).then_some(Stub {
        bytes: c.bytes,
        trap,
        testing,
        places,
    })
}

/// An instruction of the program, elsewhere.
fn put_moved(c: &mut Code, i: &Instruction) -> Option<()> {
    if i.flow_control() == FlowControl::Call {
        // It returns to where the program knows: lea rsp, [rsp - 8]; two halves of the address; a jump.
        let back = i.next_ip();
        c.put(&[0x48, 0x8d, 0x64, 0x24, 0xf8, 0xc7, 0x04, 0x24]);
        c.put(&(back as u32).to_le_bytes());
        c.put(&[0xc7, 0x44, 0x24, 0x04]);
        c.put(&((back >> 32) as u32).to_le_bytes());
        return put_jump(c, i.near_branch_target());
    }
    // One by one: a jump to another one of them leads to where that was.
    let block = InstructionBlock::new(std::slice::from_ref(i), c.here());
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?;
    c.put(&encoded.code_buffer);
    Some(())
}

fn put_jump(c: &mut Code, to: u64) -> Option<()> {
    let distance = i32::try_from(to.wrapping_sub(c.here() + JUMP as u64) as i64).ok()?;
    c.put(&[JMP]);
    c.put(&distance.to_le_bytes());
    Some(())
}

/// Addresses that a jump at `at` can lead to, if the bytes of its distance at these offsets are to trap.
fn targets(at: u64, trapping: [bool; 4]) -> impl Iterator<Item = u64> {
    let values = move |i: usize, free: &'static [u8]| match trapping[i] {
        true => &[TRAP][..],
        false => free,
    };
    /// Distances of up to 2 GB both ways, the nearer ones first.
    const FAR: [u8; 16] = [
        0x00, 0xff, 0x08, 0xf8, 0x10, 0xf0, 0x18, 0xe8, 0x20, 0xe0, 0x30, 0xd0, 0x40, 0xc0, 0x60,
        0xa0,
    ];
    const SOME: [u8; 8] = [0x40, 0x00, 0x80, 0xc0, 0x20, 0x60, 0xa0, 0xe0];
    const NONE: [u8; 1] = [0];
    values(3, &FAR).iter().flat_map(move |d| {
        values(2, &SOME).iter().flat_map(move |c| {
            values(1, &SOME).iter().flat_map(move |b| {
                values(0, &NONE).iter().map(move |a| {
                    let distance = i32::from_le_bytes([*a, *b, *c, *d]);
                    at.wrapping_add(JUMP as u64)
                        .wrapping_add(distance as i64 as u64)
                })
            })
        })
    })
}

impl Debuggee {
    /// Compiles a breakpoint in that stops when the instruction at `at` is next and one of the tests says so; false where that can't be.
    ///
    /// # Errors
    /// When the process can't be changed.
    fn compile(&mut self, at: u64, tests: &Tests) -> Result<bool> {
        let mut code = [0; JUMP - 1 + MAX_INSN];
        let there = self.read_some(at, &mut code).unwrap_or(0);
        let Some(list) = moved(&code[..there], at) else {
            return Ok(false);
        };
        let end = list.last().map_or(at, Instruction::next_ip);
        let inside = at..end;
        if self.timeline.is_special(&inside, self.events())
            || self.points.has_others_in(at, &inside)
            || self.leads_beside(&inside)
        {
            return Ok(false);
        }
        let mut trapping = [false; 4];
        for i in &list[1..] {
            if let Some(byte) = trapping.get_mut((i.ip() - at) as usize - 1) {
                *byte = true;
            }
        }
        let maps = self.mapped()?;
        let free = |target: &u64| {
            let pages = target & !(PAGE - 1)..(target & !(PAGE - 1)) + PAGES * PAGE;
            let apart = |r: &std::ops::Range<u64>| r.end <= pages.start || pages.end <= r.start;
            pages.start >= LOWEST
                && pages.end <= HIGHEST
                && apart(&(RESERVATION..RESERVATION_END))
                && maps.iter().all(apart)
                && self.timeline.mapped.iter().all(apart)
        };
        let Some(entry) = targets(at, trapping).find(free) else {
            return Ok(false);
        };
        let base = entry & !(PAGE - 1);
        let data = base + (PAGES - 1) * PAGE;
        let Some(stub) = stub(entry, data, &list, tests, self.timeline.is_order) else {
            return Ok(false);
        };
        if tests.collected.is_some() && !self.give_buffer()? {
            return Ok(false);
        }
        let map = self.in_its_name(|tid, gate| {
            let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let args = [base, PAGES * PAGE, prot as u64, flags as u64, u64::MAX, 0];
            gate.call(tid, libc::SYS_mmap, &args)?.ok()
        })?;
        if map != Some(base) {
            return Ok(false);
        }
        self.memory.write_all_at(&stub.bytes, entry)?;
        let word = |at, value: u64| self.memory.write_all_at(&value.to_le_bytes(), data + at);
        let wanted = tests.registers.iter().flat_map(|g| g.r);
        for (value, i) in wanted.zip(0..) {
            word(WANTED + 8 * i, value)?;
        }
        word(VISITS_LEFT, tests.visit.unwrap_or(0))?;
        let distance = entry.wrapping_sub(at + JUMP as u64) as u32;
        let mut jump = [JMP; JUMP];
        jump[1..].copy_from_slice(&distance.to_le_bytes());
        let middles = list.iter().zip(stub.places).skip(1);
        self.points.compiled.push(Compiled {
            at,
            tests: tests.clone(),
            code: code[..(end - at) as usize].to_vec(),
            jump,
            base,
            trap: stub.trap,
            testing: stub.testing,
            middles: middles
                .map(|(i, place)| (i.ip(), place))
                .filter(|(ip, _)| *ip < at + JUMP as u64)
                .collect(),
            inserted: false,
        });
        Ok(true)
    }

    /// Compiles in what can be of all that is wanted. Nobody runs.
    pub(crate) fn compile_wanted(&mut self) -> Result<()> {
        if self.points.has_changed() {
            let wanted = self.points.to_test();
            let points = &self.points;
            let stays = |c: &Compiled| {
                wanted.get(&c.at) == Some(&c.tests) && !points.has_others_in(c.at, &c.stretch())
            };
            let stale = points.compiled.iter().filter(|c| !stays(c)).map(|c| c.at);
            let stale = stale.collect();
            self.uncompile_those(&stale)?;
        }
        // A signal that a thread is about to get would be lost by calls in its name; in a diversion threads are where they never were.
        let busy = self.diverted.is_some() || self.threads.values().any(|t| t.signal != 0);
        if busy {
            return Ok(());
        }
        for (at, tests) in self.points.to_test() {
            if self.points.is_settled(at) {
                continue;
            }
            let done = self.points.compiled.len() < MOST && self.compile(at, &tests)?;
            if !done {
                self.points.note_refused(at);
            }
        }
        Ok(())
    }

    /// Takes all of them out of the process again.
    ///
    /// # Errors
    /// When the process can't be changed.
    pub(crate) fn uncompile(&mut self) -> Result<()> {
        let all = self.points.compiled.iter().map(|c| c.at).collect();
        self.uncompile_those(&all)
    }

    /// Takes those at these addresses out of the process.
    fn uncompile_those(&mut self, which: &BTreeSet<u64>) -> Result<()> {
        let compiled = std::mem::take(&mut self.points.compiled);
        let (all, stay): (Vec<_>, Vec<_>) =
            compiled.into_iter().partition(|c| which.contains(&c.at));
        self.points.compiled = stay;
        if all.is_empty() {
            return Ok(());
        }
        let done = self.in_its_name(|tid, gate| {
            for c in &all {
                let args = [c.base, PAGES * PAGE];
                gate.call(tid, libc::SYS_munmap, &args)?.ok()?;
            }
            Ok(())
        });
        match done {
            // They are gone with the process.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            done => done.map(|_| ()),
        }
    }

    /// Puts it into the code; false where it is not the code that was compiled.
    pub(crate) fn insert_compiled(&mut self, at: u64) -> bool {
        let Some(c) = self.points.compiled.iter_mut().find(|c| c.at == at) else {
            return false;
        };
        let mut now = vec![0; c.code.len()];
        let same = self.memory.read_exact_at(&mut now, at).is_ok() && now == c.code;
        if !c.inserted && same {
            c.inserted = self.memory.write_all_at(&c.jump, at).is_ok();
        }
        c.inserted
    }

    /// Takes them out of the code.
    pub(crate) fn take_out_compiled(&mut self) {
        for c in &mut self.points.compiled {
            let mut now = [0; JUMP];
            if std::mem::take(&mut c.inserted)
                && self.memory.read_exact_at(&mut now, c.at).is_ok()
                && now == c.jump
            {
                let _ = self.memory.write_all_at(&c.code[..JUMP], c.at);
            }
        }
    }

    /// How many visits of the instruction at `at` there are to come before the one that is looked for; `None`: nobody counts them there.
    pub(crate) fn visits_left(&self, at: u64) -> std::result::Result<Option<u64>, DebugError> {
        let mut all = self.points.compiled.iter();
        let Some(c) = all.find(|c| c.at == at && c.tests.visit.is_some()) else {
            return Ok(None);
        };
        let mut left = [0; 8];
        self.read(c.data() + VISITS_LEFT, &mut left)
            .map_err(os("read how often an instruction was visited"))?;
        Ok(Some(u64::from_le_bytes(left)))
    }

    /// A signal of a stub: where its thread goes on, and whether it is a hit. `None`: it is none of a stub's.
    pub(crate) fn after_stub(&self, signal: i32, r: &mut user_regs_struct) -> Option<bool> {
        if signal == libc::SIGTRAP {
            let at = r.rip.wrapping_sub(1);
            let mut all = self.points.compiled.iter();
            let (to, hit) = all.find_map(|c| c.after_trap(at))?;
            r.rip = to;
            return Some(hit);
        }
        if signal != libc::SIGSEGV && signal != libc::SIGBUS {
            return None;
        }
        let mut all = self.points.compiled.iter();
        let c = all.find(|c| c.testing.contains(&r.rip))?;
        let word = |at| {
            let mut bytes = [0; 8];
            self.read(c.data() + at, &mut bytes).ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        (r.rax, r.rcx, r.rdx) = (word(RAX)?, word(RCX)?, word(RDX)?);
        r.eflags = saved_flags(word(FLAGS)?, r.eflags);
        r.rip = c.at;
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_leads_to_bytes_that_trap() {
        let at = 0x5555_5555_5000;
        for trapping in [[false; 4], [true, false, true, false], [true; 4]] {
            let all: Vec<u64> = targets(at, trapping).take(100).collect();
            assert!(!all.is_empty());
            for target in all {
                let distance = (target.wrapping_sub(at + 5) as u32).to_le_bytes();
                for (byte, traps) in distance.iter().zip(trapping) {
                    assert!(!traps || *byte == TRAP);
                }
            }
        }
    }

    #[test]
    fn what_can_not_be_moved_stays() {
        // add rax, 1; dec rcx
        assert_eq!(
            moved(&[0x48, 0x83, 0xc0, 0x01, 0x48, 0xff, 0xc9, 0x90], 0x1000).map(|l| l.len()),
            Some(2)
        );
        // A direct call moves, one through a register does not.
        assert!(moved(&[0xe8, 0, 0, 0, 0], 0x1000).is_some());
        // call rax; syscall; jmp to itself; not enough
        assert!(moved(&[0xff, 0xd0, 0x90, 0x90, 0x90], 0x1000).is_none());
        assert!(moved(&[0x0f, 0x05, 0x90, 0x90, 0x90], 0x1000).is_none());
        assert!(moved(&[0xeb, 0xfe, 0x90, 0x90, 0x90], 0x1000).is_none());
        assert!(moved(&[0x90, 0x90], 0x1000).is_none());
    }
}
