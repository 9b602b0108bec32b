//! Where the instructions are, and which bytes a jump of 5 bytes may overwrite for each.
//!
//! A function is decoded from its beginning ([`crate::functions`]). A jump needs the room of whole instructions that nobody jumps into: the
//! instruction itself, else with those that follow it, else with those before it. Where there is no such room an `int3` stands
//! in the instruction's first byte.
//!
//! Code that may run in one thread or in several jumps over the LOCK prefix alone (`je` to the second byte). If that branch stands in front of
//! the instruction, both are replaced, and the instruction is always made with its prefix.

use super::operation::{Operation, Segment};
use super::stub::MAX_INSNS;
use crate::cut::decode::{decode, Condition, Flow, Insn, Place, MAX_INSN};

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
    /// A bit for each of its instructions: it is to be made while its shard is locked.
    pub ordered: u16,
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
    /// What becomes of instruction `n` of it.
    pub fn step(&self, n: usize, i: &Insn) -> Step {
        if n == 0 && self.skips != 0 {
            return Step::LeftOut;
        }
        let ordered = self.ordered & 1 << n != 0;
        let operation = ordered.then(|| Operation::of_any(i)).flatten();
        operation.map_or(Step::Plain, Step::Ordered)
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
    /// It is worth a trap: what merely loads or stores is not.
    must: bool,
}

/// The code of a function.
#[derive(Clone, Copy)]
pub struct Function<'a> {
    /// It is ld.so's: what its instructions change in the thread's own memory is nobody else's business.
    pub own_memory_is_private: bool,
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub code: &'a [u8],
}

impl Function<'_> {
    /// The operation that changes memory in one step and is to be ordered.
    fn change(&self, i: &Insn) -> Option<Operation> {
        let private = |o: &Operation| self.own_memory_is_private && o.segment == Segment::Thread;
        Operation::of(i).filter(|o| !private(o))
    }

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

    /// Calls `found` for the places of the instructions that change memory in one step.
    pub fn each_changed(&self, mut found: impl FnMut(Place)) {
        self.each(|i| {
            if let Some(place) = self.change(i).and_then(|_| i.place()) {
                found(place);
            }
        });
    }

    fn sites(&self, shared: &Shared, list: &mut [Site; MAX_SITES]) -> usize {
        let mut n = 0;
        let mut before = [0; BEFORE];
        self.each(|i| {
            if n < MAX_SITES && shared.holds(self, i) {
                list[n] = Site {
                    pc: i.pc,
                    before,
                    how: How::Forward,
                    must: shared.waits || self.change(i).is_some(),
                };
                n += 1;
            }
            before = [i.pc, before[0], before[1]];
        });
        n
    }

    /// The units of a function, in their order, to `units`; how many. `table` tells the target of entry k, if there is a table of jumps
    /// at an address.
    pub fn units(
        &self,
        words: &dyn Fn(u64) -> bool,
        table: impl Fn(u64, u64) -> Option<u64>,
        units: &mut [Unit; MAX_SITES],
    ) -> usize {
        let shared = Shared::new(self, words);
        let mut sites = [Site::default(); MAX_SITES];
        let n = self.sites(&shared, &mut sites);
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
        for site in sites.iter_mut() {
            if site.pc < free {
                continue;
            }
            let unit = loop {
                let unit = match site.how {
                    How::Forward => self.forward(site),
                    How::Backward => self.backward(site, free),
                    How::Trap if site.must => self.trap(site),
                    How::Trap => break Unit::default(),
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
        for u in &mut units[..n] {
            u.ordered = self.ordered(u, sites);
        }
        n
    }

    /// Which instructions of a unit are sites.
    fn ordered(&self, u: &Unit, sites: &[Site]) -> u16 {
        let (mut pc, mut bits) = (u.start, 0);
        for n in 0..MAX_INSNS {
            let Some(i) = self.insn(pc).filter(|_| pc < u.end) else {
                break;
            };
            if sites.binary_search_by_key(&pc, |s| s.pc).is_ok() {
                bits |= 1 << n;
            }
            pc = i.end();
        }
        bits
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
            ordered: 0,
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
            let movable = i.can_move();
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
                    ..Unit::default()
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
            ..Unit::default()
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

/// Most places of one function that are known to be changed in one step.
const MAX_PLACES: usize = 64;
/// Most bytes of a function that waits by futexes.
const MAX_WAITING: usize = 1024;
/// futex(2)
const FUTEX: u32 = 202;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const RAX: u8 = 0;
const RSP: u8 = 4;
const RBP: u8 = 5;
const RDI: u8 = 7;

/// The memory of a function that threads share by instructions that change it in one step: what else it loads from there and stores to
/// there is in the same order. Registers that are copied to each other are taken for one.
struct Shared<'a> {
    /// Addresses known to the whole module.
    words: &'a dyn Fn(u64) -> bool,
    /// Each register's first kin.
    kin: [u8; 16],
    places: [Place; MAX_PLACES],
    len: usize,
    /// The function waits by futexes: all that it looks at is what it waits for.
    waits: bool,
}

impl<'a> Shared<'a> {
    fn new(f: &Function, words: &'a dyn Fn(u64) -> bool) -> Shared<'a> {
        let mut s = Shared {
            words,
            kin: core::array::from_fn(|i| i as u8),
            places: [Place::default(); MAX_PLACES],
            len: 0,
            waits: false,
        };
        let mut asks = false;
        f.each(|i| {
            if let Some((a, b)) = i.copies_register() {
                let (a, b) = (s.kin[a as usize & 15], s.kin[b as usize & 15]);
                s.kin.iter_mut().filter(|k| **k == a).for_each(|k| *k = b);
            }
            // As a system call's number, or as the first argument of syscall(3).
            match i.loads_constant() {
                Some((RAX, FUTEX)) => asks = true,
                Some((RDI, FUTEX)) => s.waits = true,
                _ => s.waits |= asks && i.bytes() == SYSCALL,
            }
        });
        // Not where waiting is the least of what a function does.
        s.waits &= f.code.len() <= MAX_WAITING && !f.own_memory_is_private;
        f.each_changed(|p| {
            if s.len < MAX_PLACES {
                s.places[s.len] = s.of_kin(p);
                s.len += 1;
            }
        });
        s
    }

    fn of_kin(&self, p: Place) -> Place {
        Place {
            base: p.base.map(|r| self.kin[r as usize & 15]),
            index: p.index.map(|r| self.kin[r as usize & 15]),
            ..p
        }
    }

    /// Is this instruction to be ordered?
    fn holds(&self, f: &Function, i: &Insn) -> bool {
        if Operation::of(i).is_some() {
            return f.change(i).is_some();
        }
        let Some(p) = i.place().filter(|_| Operation::of_any(i).is_some()) else {
            return false;
        };
        match p.base {
            None if p.index.is_none() => (self.words)(p.offset),
            Some(RSP | RBP) => false,
            _ => self.waits || self.places[..self.len].contains(&self.of_kin(p)),
        }
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
