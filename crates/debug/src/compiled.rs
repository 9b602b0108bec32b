//! A breakpoint with a condition, compiled into the program's code: only when the registers are those that are looked for is there a stop. A visit
//! that is no hit costs some nanoseconds, where a stop costs microseconds; so a place in a loop is found.
//!
//! The instructions at the place are replaced by a jump to a stub, which compares, makes them, and goes on behind them. A jump takes
//! five bytes. Where another instruction begins among these, the byte there is made one that traps, by the choice of the stub's address:
//! whoever jumps there goes on at the copy of that instruction. The stub touches no stack, and what it changes it puts back.
//!
//! Not everywhere: not where a call pushes an address, where the processor asks the kernel for something, where a fault of the recording
//! happened, or where the runtime has rewritten code. There, and where the code is not what it was, it is an ordinary breakpoint.

use crate::breakpoints::TRAP;
use crate::debuggee::{Debuggee, General};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock, Mnemonic,
};
use reprise_abi::layout::{PAGE, RESERVATION, RESERVATION_END};
use std::io::Result;
use std::os::unix::fs::FileExt;

/// Bytes of a jump.
const JUMP: usize = 5;
/// `jmp rel32`.
const JMP: u8 = 0xe9;
/// Most bytes of an instruction.
const MAX_INSN: usize = 15;
/// Pages of a stub: two with code, the last with data.
const PAGES: u64 = 3;
/// Where nothing is mapped.
const LOWEST: u64 = 0x1_0000;
const HIGHEST: u64 = 0x7fff_ff00_0000;
/// Words in the data page: rax and flags while the stub runs, and the registers that are looked for.
const RAX: u64 = 0;
const FLAGS: u64 = 8;
const WANTED: u64 = 16;
/// Numbers of the registers of [`General::r`] as instructions encode them.
const NUMBERS: [u8; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// One that is in the process.
pub struct Compiled {
    /// The place.
    pub at: u64,
    /// The code there when it was compiled.
    code: Vec<u8>,
    jump: [u8; JUMP],
    /// The first byte of the stub's pages.
    base: u64,
    /// Its instruction that traps when it is a hit.
    trap: u64,
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

    /// Where a thread goes on that has trapped at this address; and whether it is a hit.
    pub fn after_trap(&self, at: u64) -> Option<(u64, bool)> {
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

/// Code of a stub, as it grows.
struct Code {
    bytes: Vec<u8>,
    base: u64,
    data: u64,
}

impl Code {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn here(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// An instruction with a register and a word of the data page.
    fn with_word(&mut self, opcode: u8, register: u8, word: u64) {
        let wide = 0x48 | (register >> 3) << 2;
        self.put(&[wide, opcode, (register & 7) << 3 | 5]);
        let from = self.here() + 4;
        self.put(&((self.data + word).wrapping_sub(from) as u32).to_le_bytes());
    }

    fn load(&mut self, register: u8, word: u64) {
        self.with_word(0x8b, register, word);
    }

    fn store(&mut self, register: u8, word: u64) {
        self.with_word(0x89, register, word);
    }

    fn compare(&mut self, register: u8, word: u64) {
        self.with_word(0x3b, register, word);
    }

    /// A jump under a condition (the second byte of its opcode); where its distance is.
    fn branch(&mut self, condition: u8) -> usize {
        self.put(&[0x0f, condition, 0, 0, 0, 0]);
        self.bytes.len() - 4
    }

    /// These jumps lead here.
    fn land(&mut self, branches: &[usize]) {
        for at in branches {
            let distance = (self.bytes.len() - at - 4) as u32;
            self.bytes[*at..*at + 4].copy_from_slice(&distance.to_le_bytes());
        }
    }

    fn save(&mut self) {
        self.store(0, RAX);
        // lahf; seto al
        self.put(&[0x9f, 0x0f, 0x90, 0xc0]);
        self.store(0, FLAGS);
    }

    fn restore(&mut self) {
        self.load(0, FLAGS);
        // add al, 0x7f; sahf
        self.put(&[0x04, 0x7f, 0x9e]);
        self.load(0, RAX);
    }
}

/// The stub at `entry`: its bytes, where it traps, and where each instruction of the program went.
fn stub(entry: u64, data: u64, list: &[Instruction]) -> Option<(Vec<u8>, u64, Vec<u64>)> {
    const UNEQUAL: u8 = 0x85;
    let mut c = Code {
        bytes: Vec::new(),
        base: entry,
        data,
    };
    c.save();
    let mut misses = Vec::new();
    c.load(0, RAX);
    for (number, i) in NUMBERS.into_iter().zip(0..) {
        c.compare(number, WANTED + 8 * i);
        misses.push(c.branch(UNEQUAL));
    }
    c.restore();
    let trap = c.here();
    c.put(&[TRAP]);
    c.land(&misses);
    c.restore();
    let mut places = Vec::new();
    for i in list {
        places.push(c.here());
        // One by one: a jump to another one of them leads to where that was.
        let block = InstructionBlock::new(std::slice::from_ref(i), c.here());
        let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?;
        c.put(&encoded.code_buffer);
    }
    let back = list.last()?.next_ip();
    let distance = i32::try_from(back.wrapping_sub(c.here() + JUMP as u64) as i64).ok()?;
    c.put(&[JMP]);
    c.put(&distance.to_le_bytes());
    let room = (PAGES - 1) * PAGE - entry % PAGE;
    (c.bytes.len() as u64 <= room).then_some((c.bytes, trap, places))
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
    /// Compiles a breakpoint in that stops when the instruction at `at` is next and the general registers are those that are wanted; false where that can't be. There is one at a time.
    ///
    /// # Errors
    /// When the process can't be changed.
    pub(crate) fn compile(&mut self, at: u64, wanted: &General) -> Result<bool> {
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
        let Some((bytes, trap, places)) = stub(entry, data, &list) else {
            return Ok(false);
        };
        let map = self.in_its_name(|tid, gate| {
            let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let args = [base, PAGES * PAGE, prot as u64, flags as u64, u64::MAX, 0];
            gate.call(tid, libc::SYS_mmap, &args)?.ok()
        })?;
        if map != Some(base) {
            return Ok(false);
        }
        self.memory.write_all_at(&bytes, entry)?;
        let word = |at, value: u64| self.memory.write_all_at(&value.to_le_bytes(), data + at);
        for (value, i) in wanted.r.into_iter().zip(0..) {
            word(WANTED + 8 * i, value)?;
        }
        let distance = entry.wrapping_sub(at + JUMP as u64) as u32;
        let mut jump = [JMP; JUMP];
        jump[1..].copy_from_slice(&distance.to_le_bytes());
        let middles = list.iter().zip(places).skip(1);
        self.points.compiled = Some(Compiled {
            at,
            code: code[..(end - at) as usize].to_vec(),
            jump,
            base,
            trap,
            middles: middles
                .map(|(i, place)| (i.ip(), place))
                .filter(|(ip, _)| *ip < at + JUMP as u64)
                .collect(),
            inserted: false,
        });
        Ok(true)
    }

    /// Takes it away again.
    ///
    /// # Errors
    /// When the process can't be changed.
    pub(crate) fn uncompile(&mut self) -> Result<()> {
        let Some(c) = self.points.compiled.take() else {
            return Ok(());
        };
        let args = [c.base, PAGES * PAGE];
        self.in_its_name(|tid, gate| gate.call(tid, libc::SYS_munmap, &args)?.ok())
            .map(|_| ())
    }

    /// Puts it into the code; false where it is not the code that was compiled.
    pub(crate) fn insert_compiled(&mut self, at: u64) -> bool {
        let Some(c) = &mut self.points.compiled else {
            return false;
        };
        let mut now = vec![0; c.code.len()];
        let same = self.memory.read_exact_at(&mut now, at).is_ok() && now == c.code;
        if c.at == at && !c.inserted && same {
            c.inserted = self.memory.write_all_at(&c.jump, at).is_ok();
        }
        c.at == at && c.inserted
    }

    /// Takes it out of the code.
    pub(crate) fn take_out_compiled(&mut self) {
        let Some(c) = &mut self.points.compiled else {
            return;
        };
        let mut now = [0; JUMP];
        if std::mem::take(&mut c.inserted)
            && self.memory.read_exact_at(&mut now, c.at).is_ok()
            && now == c.jump
        {
            let _ = self.memory.write_all_at(&c.code[..JUMP], c.at);
        }
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
        // call; syscall; jmp to itself; not enough
        assert!(moved(&[0xe8, 0, 0, 0, 0], 0x1000).is_none());
        assert!(moved(&[0x0f, 0x05, 0x90, 0x90, 0x90], 0x1000).is_none());
        assert!(moved(&[0xeb, 0xfe, 0x90, 0x90, 0x90], 0x1000).is_none());
        assert!(moved(&[0x90, 0x90], 0x1000).is_none());
    }
}
