//! Where the instructions are, and which bytes a jump of 5 bytes may overwrite for each.
//!
//! A function is decoded from its beginning ([`crate::functions`]). A jump needs the room of whole instructions that nobody jumps into: the
//! instruction itself, else with those that follow it, else with those before it. Where there is no such room an `int3` stands
//! in the instruction's first byte.
//!
//! Code that may run in one thread or in several jumps over the LOCK prefix alone (`je` to the second byte). If that branch stands in front of
//! the instruction, both are replaced, and the instruction is always made with its prefix.

use super::operation::Operation;
use super::stub::MAX_INSNS;
use crate::cut::decode::{decode, Condition, Flow, Insn, MAX_INSN};

/// Bytes of a jump.
pub const JUMP: u64 = 5;
/// Most of these instructions in one function; more are left alone.
pub const MAX_SITES: usize = 512;
/// Instructions before a site that are remembered.
const BEFORE: usize = 3;
/// Entries of a jump table that are looked at.
const MAX_TABLE: u64 = 1024;
/// Rounds in which units are moved away from where control comes in.
const ROUNDS: usize = 16;

/// How a unit's code is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// By a jump, over the instruction and what follows it.
    #[default]
    Forward,
    /// By a jump that begins at what is before it.
    Backward,
    /// By a trap.
    Trap,
}

/// Instructions of the program that go into one stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unit {
    /// The first.
    pub start: u64,
    /// After the last.
    pub end: u64,
    /// How they are replaced.
    pub how: How,
    /// It begins with a branch to this address, the second byte of what follows.
    pub skips: u64,
}

/// What becomes of an instruction in a stub.
pub enum Step {
    /// Nothing.
    LeftOut,
    /// It is made while its shard is locked.
    Ordered(Operation),
    /// It is moved.
    Plain,
}

impl Unit {
    /// What becomes of one of its instructions.
    pub fn step(&self, i: &Insn) -> Step {
        if i.pc == self.start && self.skips != 0 {
            return Step::LeftOut;
        }
        Operation::of(i).map_or(Step::Plain, Step::Ordered)
    }

    /// Would control that comes to `pc` find something else than before?
    pub fn is_broken_by(&self, pc: u64) -> bool {
        self.start < pc && pc < self.end && self.how != How::Trap
    }
}

/// A site, and what is before it.
#[derive(Clone, Copy, Default)]
struct Site {
    pc: u64,
    before: [u64; BEFORE],
    how: How,
}

/// The code of a function.
pub struct Function<'a> {
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub code: &'a [u8],
}

impl Function<'_> {
    /// The instruction at `pc`.
    pub fn insn(&self, pc: u64) -> Option<Insn> {
        let rest = self.code.get(pc.checked_sub(self.start)? as usize..)?;
        decode(pc, &rest[..rest.len().min(MAX_INSN)])
    }

    fn end(&self) -> u64 {
        self.start + self.code.len() as u64
    }

    /// Are there bytes of such an instruction at all?
    pub fn may_have_sites(&self) -> bool {
        self.code.windows(2).any(|w| match w[0] {
            0xf0 => true,
            0x86 | 0x87 => w[1] < 0xc0,
            _ => false,
        })
    }

    /// All instructions from the beginning on; where bytes are none, what follows is not known.
    fn each(&self, mut found: impl FnMut(&Insn)) {
        let mut pc = self.start;
        while pc < self.end() {
            let Some(i) = self.insn(pc) else { return };
            found(&i);
            pc = i.end();
            // A rewritten `syscall` leaves the end of a comparison behind ([`crate::patch`]).
            if let Flow::Jump(target) = i.flow {
                let rest = self.code.get((pc - self.start) as usize..);
                if rest.is_some_and(|r| r.starts_with(&[0xf0, 0xff, 0xff])) && crate::patch::is_stub(target) {
                    pc += 3;
                }
            }
        }
    }

    fn sites(&self, list: &mut [Site; MAX_SITES]) -> usize {
        let mut n = 0;
        let mut before = [0; BEFORE];
        self.each(|i| {
            if n < MAX_SITES && Operation::of(i).is_some() {
                list[n] = Site {
                    pc: i.pc,
                    before,
                    how: How::Forward,
                };
                n += 1;
            }
            before = [i.pc, before[0], before[1]];
        });
        n
    }

    /// The units of a function, in their order, to `units`; how many. `table` tells the target of entry k, if there is a table of jumps
    /// at an address.
    pub fn units(&self, table: impl Fn(u64, u64) -> Option<u64>, units: &mut [Unit; MAX_SITES]) -> usize {
        if !self.may_have_sites() {
            return 0;
        }
        let mut sites = [Site::default(); MAX_SITES];
        let n = self.sites(&mut sites);
        let sites = &mut sites[..n];
        for round in 0..=ROUNDS {
            if round == ROUNDS {
                sites.iter_mut().for_each(|s| s.how = How::Trap);
            }
            let n = self.arrange(sites, units);
            if !self.settle(&table, sites, &units[..n]) {
                return n;
            }
        }
        0
    }

    /// Units for the sites as they are to be replaced. A site that another one's unit holds needs none.
    fn arrange(&self, sites: &mut [Site], units: &mut [Unit; MAX_SITES]) -> usize {
        let (mut n, mut free) = (0, self.start);
        for site in sites {
            if site.pc < free {
                continue;
            }
            let unit = loop {
                let unit = match site.how {
                    How::Forward => self.forward(site),
                    How::Backward => self.backward(site, free),
                    How::Trap => self.trap(site),
                };
                match unit.filter(|u| u.start >= free) {
                    Some(u) => break u,
                    None if site.how == How::Trap => break Unit::default(),
                    None => site.how = site.how.next(),
                }
            };
            if unit.end != 0 {
                units[n] = unit;
                n += 1;
                free = unit.end;
            }
        }
        n
    }

    /// The branch before a site that jumps over its LOCK prefix.
    fn skipping(&self, site: &Site) -> Option<Unit> {
        let i = self.insn(site.before[0])?;
        let skips = site.pc + 1;
        let fits = matches!(i.flow, Flow::Branch(Condition::Flags(_), t) if t == skips) && i.end() == site.pc;
        fits.then_some(Unit {
            start: i.pc,
            end: site.pc,
            how: How::Forward,
            skips,
        })
    }

    fn forward(&self, site: &Site) -> Option<Unit> {
        let mut u = self.skipping(site).unwrap_or(Unit {
            start: site.pc,
            end: site.pc,
            ..Unit::default()
        });
        let mut ended = false;
        let mut insns = 0;
        while u.end < u.start + JUMP || u.end == site.pc {
            let i = self.insn(u.end)?;
            // Behind a function's last instruction only filler is never run.
            if ended && !matches!(i.bytes(), [0x90] | [0xcc]) {
                return None;
            }
            let movable = Operation::of(&i).is_some() || i.can_move();
            insns += 1;
            if !movable || insns > MAX_INSNS {
                return None;
            }
            ended |= matches!(i.flow, Flow::Jump(_) | Flow::JumpIndirect | Flow::Return);
            u.end = i.end();
        }
        Some(u)
    }

    fn backward(&self, site: &Site, free: u64) -> Option<Unit> {
        let end = self.insn(site.pc)?.end();
        for start in site.before.into_iter().take_while(|b| *b >= free && *b != 0) {
            let i = self.insn(start)?;
            if i.flow != Flow::Next || !i.can_move() {
                return None;
            }
            if end - start >= JUMP {
                return Some(Unit {
                    start,
                    end,
                    how: How::Backward,
                    skips: 0,
                });
            }
        }
        None
    }

    fn trap(&self, site: &Site) -> Option<Unit> {
        Some(Unit {
            start: site.pc,
            end: self.insn(site.pc)?.end(),
            how: How::Trap,
            skips: 0,
        })
    }

    /// Sites whose units are jumped into are replaced in the next way; whether there are any.
    fn settle(&self, table: &impl Fn(u64, u64) -> Option<u64>, sites: &mut [Site], units: &[Unit]) -> bool {
        if units.is_empty() {
            return false;
        }
        let mut bad = false;
        let mut comes_in = |from: u64, target: u64| {
            let i = units.partition_point(|u| u.start < target);
            let Some(u) = i.checked_sub(1).map(|i| units[i]) else { return };
            let own = u.skips == target && from == u.start;
            if u.is_broken_by(target) && !own {
                bad = true;
                for s in sites.iter_mut().filter(|s| (u.start..u.end).contains(&s.pc)) {
                    s.how = s.how.next();
                }
            }
        };
        self.each(|i| {
            if let Flow::Branch(_, target) | Flow::Jump(target) | Flow::Call(target) = i.flow {
                comes_in(i.pc, target);
            }
            // A table of jumps: distances from its own beginning.
            if let (Some(at), [_, 0x8d, ..]) = (i.rip_target(), i.bytes()) {
                for target in (0..MAX_TABLE).map_while(|k| table(at, k)) {
                    comes_in(i.pc, target);
                }
            }
        });
        bad
    }
}

impl How {
    fn next(self) -> How {
        match self {
            How::Forward => How::Backward,
            How::Backward | How::Trap => How::Trap,
        }
    }
}
