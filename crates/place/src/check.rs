//! Replay: is a stopped thread in the named state? And what keeps a wrong visit from stopping again?

use super::choose::MAX_DISCRIMINATORS;
use super::machine::Machine;
use super::name::{hash_window, Hash, Name, CODE_LEN, RED_ZONE, STACK_WORDS};
use super::stub::{Discriminator, Source, MAX_TESTS};
use core::fmt;
use reprise_abi::layout::PAGE;
use reprise_code::regs::{Regs, FLAGS, GPRS, NAMES};

/// What was found to differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The program's bytes at the place: the code isn't there yet, or is another.
    Code,
    /// Program counter.
    Pc,
    /// A general register.
    Register(u8),
    /// Flags.
    Flags,
    /// Base of `%fs`.
    FsBase,
    /// Base of `%gs`.
    GsBase,
    /// Half of the low part of a vector register.
    Vector {
        /// Which register.
        index: u8,
        /// Its upper half.
        high: bool,
    },
    /// The significand of an x87 register.
    X87(u8),
    /// The hash of the other vector, mask and x87 registers.
    Extended,
    /// A word near the stack pointer, at this address.
    StackWord(u64),
    /// How much stack there is, or its hash.
    Window,
    /// The page at this address, by its hash.
    Page(u64),
    /// All writable memory, by its hash.
    Memory,
}

/// One difference between the named state and the actual one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What differs.
    pub what: What,
    /// Its value or hash in the name.
    pub recorded: u64,
    /// Its value or hash now; 0 where it can't be read.
    pub actual: u64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Code => f.write_str("code at the place")?,
            What::Pc => f.write_str("pc")?,
            What::Register(r) => f.write_str(NAMES.get(r as usize).copied().unwrap_or("?"))?,
            What::Flags => f.write_str("flags")?,
            What::FsBase => f.write_str("fs base")?,
            What::GsBase => f.write_str("gs base")?,
            What::Vector { index, high } => {
                write!(f, "xmm{index}.{}", if high { "high" } else { "low" })?
            }
            What::X87(i) => write!(f, "st({i})")?,
            What::Extended => f.write_str("hash of vector registers")?,
            What::StackWord(addr) => write!(f, "stack word at {addr:#x}")?,
            What::Window => f.write_str("hash of the stack")?,
            What::Page(addr) => write!(f, "hash of the page at {addr:#x}")?,
            What::Memory => f.write_str("hash of memory")?,
        }
        write!(
            f,
            ": recorded {:#x}, actual {:#x}",
            self.recorded, self.actual
        )
    }
}

fn same(what: What, recorded: u64, actual: u64) -> Result<(), Difference> {
    if recorded == actual {
        Ok(())
    } else {
        Err(Difference {
            what,
            recorded,
            actual,
        })
    }
}

/// Are the program's bytes at the place those of the name? To be asked before the patch is planted; when they differ, the
/// program has yet to write its code.
pub fn check_code<M: Machine + ?Sized>(name: &Name, machine: &M) -> Result<(), Difference> {
    let mut code = [0; CODE_LEN];
    let len = machine.code(name.regs.rip, &mut code);
    code[len..].fill(0);
    if code == name.code {
        return Ok(());
    }
    let head = |bytes: &[u8; CODE_LEN]| bytes[..8].try_into().map_or(0, u64::from_be_bytes);
    Err(Difference {
        what: What::Code,
        recorded: head(&name.code),
        actual: head(&code),
    })
}

/// Compares registers: what a stub compares, and what it can't.
pub fn check_registers<M: Machine + ?Sized>(
    name: &Name,
    regs: &Regs,
    machine: &M,
) -> Result<(), Difference> {
    same(What::Pc, name.regs.rip, regs.rip)?;
    for r in 0..GPRS {
        same(What::Register(r as u8), name.regs.gpr[r], regs.gpr[r])?;
    }
    same(What::Flags, name.regs.rflags & FLAGS, regs.rflags & FLAGS)?;
    same(What::FsBase, name.regs.fs_base, regs.fs_base)?;
    same(What::GsBase, name.regs.gs_base, regs.gs_base)?;
    let xmm = machine.xmm();
    for (i, (recorded, actual)) in name.xmm.iter().zip(&xmm).enumerate() {
        for high in [false, true] {
            same(
                What::Vector {
                    index: i as u8,
                    high,
                },
                recorded[high as usize],
                actual[high as usize],
            )?;
        }
    }
    for (i, (recorded, actual)) in name.x87.iter().zip(&machine.x87()).enumerate() {
        same(What::X87(i as u8), *recorded, *actual)?;
    }
    same(What::Extended, name.extended, machine.extended())
}

/// Compares everything but the whole memory, cheapest first; the first difference found.
pub fn check<M: Machine + ?Sized>(
    name: &Name,
    regs: &Regs,
    machine: &M,
    hash: Hash,
) -> Result<(), Difference> {
    check_registers(name, regs, machine)?;
    for i in (0..STACK_WORDS).filter(|i| name.stack_known >> i & 1 == 1) {
        let addr = name.stack_addr(i);
        same(
            What::StackWord(addr),
            name.stack[i],
            machine.word(addr).unwrap_or(0),
        )?;
    }
    let (len, window) = hash_window(regs.rsp(), machine, hash);
    same(What::Window, name.window_len as u64, len as u64)?;
    same(What::Window, name.window_hash, window)?;
    for page in name.pages() {
        let (len, actual) = hash_window(page.addr, machine, hash);
        let actual = if len as u64 == PAGE { actual } else { 0 };
        same(What::Page(page.addr), page.hash, actual)?;
    }
    Ok(())
}

/// Compares what is the thread's own, while others run on: registers, the words from its stack pointer on, and the words by which the name
/// tells visits apart. What lies below the stack pointer may be left over from a function that only the first of several threads ran, as the
/// lazy binding of another one does.
pub fn check_own<M: Machine + ?Sized>(
    name: &Name,
    regs: &Regs,
    machine: &M,
) -> Result<(), Difference> {
    check_registers(name, regs, machine)?;
    let live = RED_ZONE as usize / 8..STACK_WORDS;
    for i in live.filter(|i| name.stack_known >> i & 1 == 1) {
        let addr = name.stack_addr(i);
        let what = What::StackWord(addr);
        same(what, name.stack[i], machine.word(addr).unwrap_or(0))?;
    }
    for d in name.discriminators.iter() {
        let (addr, wide) = match d.source {
            Source::Word(addr) => (addr, true),
            Source::Half(addr) => (addr, false),
            Source::WordAt(r, disp) => (at(regs, r, disp), true),
            Source::HalfAt(r, disp) => (at(regs, r, disp), false),
            _ => continue,
        };
        let now = match wide {
            true => machine.word(addr),
            false => machine.half(addr).map(u64::from),
        };
        same(What::StackWord(addr), d.value, now.unwrap_or(!d.value))?;
    }
    Ok(())
}

fn at(regs: &Regs, r: u8, disp: i32) -> u64 {
    let base = regs.gpr.get(r as usize).copied().unwrap_or(0);
    base.wrapping_add_signed(disp.into())
}

/// The judge: compares the hash of all writable memory.
pub fn check_memory(name: &Name, memory_hash: u64) -> Result<(), Difference> {
    same(What::Memory, name.memory_hash, memory_hash)
}

/// Attempts to learn from a false match after which no more are made: each reads a hundred words.
pub const MAX_FRUITLESS: u32 = 8;

/// What a stub tests, in order: the name's discriminators, what was learnt from false matches, then all general registers.
#[derive(Clone, Debug)]
pub struct Tests {
    list: [Discriminator; MAX_TESTS],
    len: usize,
    /// Where the next one learnt goes.
    learnt: usize,
    /// How often there was nothing to learn.
    fruitless: u32,
}

const _: () = assert!(MAX_DISCRIMINATORS + GPRS < MAX_TESTS);

impl Tests {
    /// The tests for a name, before anything was learnt.
    pub fn of(name: &Name) -> Tests {
        let none = Discriminator {
            source: Source::Register(0),
            value: 0,
        };
        let mut tests = Tests {
            list: [none; MAX_TESTS],
            len: 0,
            learnt: 0,
            fruitless: 0,
        };
        for d in name.discriminators.iter() {
            tests.push(*d);
        }
        tests.learnt = tests.len;
        for r in 0..GPRS {
            let source = Source::Register(r as u8);
            if !tests.has(source) {
                tests.push(Discriminator {
                    source,
                    value: name.regs.gpr[r],
                });
            }
        }
        tests
    }

    /// The tests, in order.
    pub fn list(&self) -> &[Discriminator] {
        &self.list[..self.len]
    }

    fn push(&mut self, d: Discriminator) {
        if self.len < MAX_TESTS {
            self.list[self.len] = d;
            self.len += 1;
        }
    }

    fn has(&self, source: Source) -> bool {
        self.list().iter().any(|d| d.source == source)
    }

    /// After a match of the stub that was none: adds a test that would have seen the difference. False when nothing that a
    /// stub can test differs, no more tests fit, or [`MAX_FRUITLESS`] attempts failed; such visits go on trapping.
    pub fn learn<M: Machine + ?Sized>(&mut self, name: &Name, machine: &M) -> bool {
        if self.len == MAX_TESTS || self.fruitless == MAX_FRUITLESS {
            return false;
        }
        let Some(d) = self.propose(name, machine) else {
            self.fruitless += 1;
            return false;
        };
        self.list[self.learnt..].rotate_right(1);
        self.list[self.learnt] = d;
        self.learnt += 1;
        self.len += 1;
        true
    }

    /// A vector register or a word near the stack or behind a register that differs from the name and isn't tested yet.
    /// General registers need no learning.
    fn propose<M: Machine + ?Sized>(&self, name: &Name, machine: &M) -> Option<Discriminator> {
        let xmm = machine.xmm();
        for index in 0..16u8 {
            for high in [false, true] {
                let value = name.xmm[index as usize][high as usize];
                let source = Source::Vector { index, high };
                if value != xmm[index as usize][high as usize] && !self.has(source) {
                    return Some(Discriminator { source, value });
                }
            }
        }
        let x87 = machine.x87();
        for index in 0..8u8 {
            let value = name.x87[index as usize];
            let source = Source::X87(index);
            if value != x87[index as usize] && !self.has(source) {
                return Some(Discriminator { source, value });
            }
        }
        let stack = (0..STACK_WORDS)
            .filter(|i| name.stack_known >> i & 1 == 1)
            .map(|i| (name.stack_addr(i), name.stack[i]));
        let pointed = (0..GPRS)
            .filter(|r| name.pointed_known >> r & 1 == 1)
            .map(|r| (name.regs.gpr[r], name.pointed[r]));
        stack
            .chain(pointed)
            .find(|&(addr, value)| {
                !self.has(Source::Word(addr)) && machine.word(addr) != Some(value)
            })
            .map(|(addr, value)| Discriminator {
                source: Source::Word(addr),
                value,
            })
    }
}
