//! Where the instructions are, and which bytes a jump of 5 bytes may overwrite for each.
//!
//! A function is decoded from its beginning ([`crate::code::functions`]). A jump needs the room of whole instructions that nobody jumps into: the
//! instruction itself, else with those that follow it, else with those before it. Where there is no such room an `int3` stands
//! in the instruction's first byte.
//!
//! Code that may run in one thread or in several jumps over the LOCK prefix alone (`je` to the second byte). If that branch stands in front of
//! the instruction, both are replaced, and the instruction is always made with its prefix.

use super::learned::{self, Loads};
use super::operation::{Operation, Segment};
use super::shared::{Shared, MAX_WAITING};
use super::stub::MAX_INSNS;
use super::thread_id::ThreadId;
use core::mem::MaybeUninit;
use reprise_code::decode::{decode, decode_all, Condition, Flow, Insn, MAX_INSN};

/// Bytes of a jump.
pub const JUMP: u64 = 5;
/// Most of these instructions in one function; more are left alone.
pub const MAX_SITES: usize = 512;
/// Most instructions of a function that are remembered; those of larger ones are decoded whenever they are looked at.
const MAX_DECODED: usize = 8192;
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
    /// A bit for each of its instructions: what it loads is recorded.
    pub valued: u16,
    /// A bit for each of its instructions: a thread that waits there gives way ([`crate::sync::spin`]).
    pub waits: u16,
}

/// At which instructions of a function threads give way ([`crate::sync::spin`]). Where there are any, nothing of it is ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Waits {
    /// At none.
    #[default]
    Nowhere,
    /// At each `pause`.
    AtPauses,
    /// At the instruction at this address.
    At(u64),
}

impl Waits {
    fn are_at(self, i: &Insn) -> bool {
        match self {
            Waits::Nowhere => false,
            Waits::AtPauses => i.bytes() == PAUSE,
            Waits::At(pc) => i.pc == pc,
        }
    }
}

/// What a thread that waits by looking tells the processor.
pub const PAUSE: [u8; 2] = [0xf3, 0x90];

/// What becomes of an instruction in a stub.
pub enum Step {
    /// Nothing.
    LeftOut,
    /// It is made while its shard is locked.
    Ordered(Operation),
    /// It loads what the log says.
    Valued(Operation),
    /// A thread that waits gives way before it.
    Waits,
    /// It is moved.
    Plain,
}

impl Unit {
    /// What becomes of instruction `n` of it.
    pub fn step(&self, n: usize, i: &Insn) -> Step {
        if n == 0 && self.skips != 0 {
            return Step::LeftOut;
        }
        if self.waits & 1 << n != 0 {
            return Step::Waits;
        }
        if self.valued & 1 << n != 0 {
            return Operation::of_load(i).map_or(Step::Plain, Step::Valued);
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
    /// What it loads is recorded.
    valued: bool,
}

/// The code of a function.
#[derive(Clone, Copy)]
pub struct Function<'a> {
    /// It is ld.so's: what its instructions change in the thread's own memory is nobody else's business.
    pub own_memory_is_private: bool,
    /// It is libc's, which looks at threads' ids.
    pub thread_id: Option<ThreadId>,
    /// A replay once left its path here: what it loads is recorded.
    pub learned: Loads,
    /// Threads give way here.
    pub waits: Waits,
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub code: &'a [u8],
}

impl Function<'_> {
    /// The operation that changes memory in one step and is to be ordered.
    pub(super) fn change(&self, i: &Insn) -> Option<Operation> {
        let private = |o: &Operation| self.own_memory_is_private && o.segment == Segment::Thread;
        let o = i.may_change_at_once().then(|| Operation::of(i)).flatten();
        o.filter(|o| !private(o))
    }

    /// The instruction at `pc`.
    pub fn insn(&self, pc: u64) -> Option<Insn> {
        let rest = self.code.get(pc.checked_sub(self.start)? as usize..)?;
        decode(pc, &rest[..rest.len().min(MAX_INSN)])
    }

    /// All instructions from the beginning on; where bytes are none, what follows is not known.
    pub(super) fn each(&self, mut found: impl FnMut(&Insn)) {
        decode_all(self.start, self.code, |i| {
            found(i);
            match i.flow {
                Flow::Jump(target) => self.rest_of_syscall(i.end(), target),
                _ => 0,
            }
        });
    }

    /// A rewritten `syscall`, a jump to `target`, leaves the end of a comparison behind ([`crate::code::patch`]): bytes of it at `pc`.
    pub(super) fn rest_of_syscall(&self, pc: u64, target: u64) -> usize {
        const REST: [u8; 3] = [0xf0, 0xff, 0xff];
        let rest = self.code.get((pc - self.start) as usize..);
        let is_there =
            rest.is_some_and(|r| r.starts_with(&REST)) && crate::code::patch::is_stub(target);
        REST.len() * is_there as usize
    }

    /// May it be one that waits? Not where waiting is the least of what a function does.
    pub(super) fn may_wait(&self) -> bool {
        self.code.len() <= MAX_WAITING && !self.own_memory_is_private
    }

    /// Does it load what others may store, in a learned function? That may be on the thread's own stack.
    fn is_learned(&self, i: &Insn) -> bool {
        let wanted = match self.learned {
            Loads::None => false,
            Loads::Some(learned) => learned.holds(i.pc),
            Loads::All => true,
        };
        wanted && learned::is_load(i)
    }

    /// The units of a function, in their order. `table` tells the target of entry k, if there is a table of jumps at an address.
    pub fn units<'w>(
        &self,
        words: &dyn Fn(u64) -> bool,
        table: impl Fn(u64, u64) -> Option<u64>,
        work: &'w mut Work,
    ) -> &'w [Unit] {
        let code = Code {
            function: self,
            insns: work.insns.of(self),
        };
        let n = match self.waits {
            Waits::Nowhere => code.sites(&Shared::new(&code, words), &mut work.sites),
            waits => code.waiting_sites(waits, &mut work.sites),
        };
        let sites = &mut work.sites[..n];
        for round in 0..=ROUNDS {
            if round == ROUNDS {
                sites.iter_mut().for_each(|s| s.how = How::Trap);
            }
            let n = code.arrange(sites, &mut work.units);
            if !code.settle(&table, sites, &work.units[..n]) {
                return &work.units[..n];
            }
        }
        &[]
    }
}

/// Memory for looking at one function after the other. Zeros are as good as any content.
pub struct Work {
    sites: [Site; MAX_SITES],
    units: [Unit; MAX_SITES],
    insns: Insns,
}

impl Work {
    /// What tests use.
    #[cfg(test)]
    pub fn boxed() -> std::boxed::Box<Work> {
        // SAFETY: zeros are as good as any content.
        unsafe { std::boxed::Box::new_zeroed().assume_init() }
    }
}

/// Instructions of a function.
struct Insns {
    all: [MaybeUninit<Insn>; MAX_DECODED],
}

impl Insns {
    /// All instructions of a function; none if there are too many.
    fn of(&mut self, f: &Function) -> &[Insn] {
        let mut n = 0;
        f.each(|i| {
            if let Some(to) = self.all.get_mut(n) {
                to.write(*i);
            }
            n += 1;
        });
        let fit = if n <= MAX_DECODED { n } else { 0 };
        // SAFETY: that many have been written.
        unsafe { core::slice::from_raw_parts(self.all.as_ptr() as *const Insn, fit) }
    }
}

/// A function, decoded.
pub(super) struct Code<'a> {
    /// Where it lies, and what it is.
    pub(super) function: &'a Function<'a>,
    /// Its instructions; none if there are too many of them.
    insns: &'a [Insn],
}

impl Code<'_> {
    /// All instructions, as [`Function::each`].
    pub(super) fn each(&self, found: impl FnMut(&Insn)) {
        match self.insns {
            [] => self.function.each(found),
            all => all.iter().for_each(found),
        }
    }

    /// The instruction at `pc`.
    fn insn(&self, pc: u64) -> Option<Insn> {
        match self.insns.binary_search_by_key(&pc, |i| i.pc) {
            Ok(n) => Some(self.insns[n]),
            Err(_) => self.function.insn(pc),
        }
    }

    fn sites(&self, shared: &Shared, list: &mut [Site; MAX_SITES]) -> usize {
        let mut n = 0;
        let mut before = [0; BEFORE];
        self.each(|i| {
            let valued = self.function.is_learned(i);
            if n < MAX_SITES && (valued || shared.holds(self.function, i)) {
                let change = self.function.change(i).is_some();
                list[n] = Site {
                    pc: i.pc,
                    before,
                    how: How::Forward,
                    must: valued || change || shared.waits || shared.is_thread_id(self.function, i),
                    valued,
                };
                n += 1;
            }
            before = [i.pc, before[0], before[1]];
        });
        n
    }

    fn waiting_sites(&self, waits: Waits, list: &mut [Site; MAX_SITES]) -> usize {
        let mut n = 0;
        let mut before = [0; BEFORE];
        self.each(|i| {
            if n < MAX_SITES && waits.are_at(i) {
                list[n] = Site {
                    pc: i.pc,
                    before,
                    how: How::Forward,
                    must: true,
                    valued: false,
                };
                n += 1;
            }
            before = [i.pc, before[0], before[1]];
        });
        n
    }

    /// Units for the sites as they are to be replaced. A site that another one's unit holds needs none.
    fn arrange(&self, sites: &mut [Site], units: &mut [Unit; MAX_SITES]) -> usize {
        let (mut n, mut free) = (0, self.function.start);
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
            (u.ordered, u.valued) = self.marks(u, sites);
            if self.function.waits != Waits::Nowhere {
                (u.waits, u.ordered) = (u.ordered, 0);
            }
        }
        n
    }

    /// Which instructions of a unit are sites: those to be ordered, and those whose values are recorded.
    fn marks(&self, u: &Unit, sites: &[Site]) -> (u16, u16) {
        let (mut pc, mut ordered, mut valued) = (u.start, 0, 0);
        for n in 0..MAX_INSNS {
            let Some(i) = self.insn(pc).filter(|_| pc < u.end) else {
                break;
            };
            if let Ok(k) = sites.binary_search_by_key(&pc, |s| s.pc) {
                match sites[k].valued {
                    true => valued |= 1 << n,
                    false => ordered |= 1 << n,
                }
            }
            pc = i.end();
        }
        (ordered, valued)
    }

    /// The branch before a site that jumps over its LOCK prefix.
    fn skipping(&self, site: &Site) -> Option<Unit> {
        let i = self.insn(site.before[0])?;
        let skips = site.pc + 1;
        let fits = matches!(i.flow, Flow::Branch(Condition::Flags(_), t) if t == skips)
            && i.end() == site.pc;
        fits.then_some(Unit {
            start: i.pc,
            end: site.pc,
            how: How::Forward,
            skips,
            ..Unit::default()
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
        for start in site
            .before
            .into_iter()
            .take_while(|b| *b >= free && *b != 0)
        {
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
    fn settle(
        &self,
        table: &impl Fn(u64, u64) -> Option<u64>,
        sites: &mut [Site],
        units: &[Unit],
    ) -> bool {
        if units.is_empty() {
            return false;
        }
        let mut bad = false;
        let mut comes_in = |from: u64, target: u64| {
            let i = units.partition_point(|u| u.start < target);
            let Some(u) = i.checked_sub(1).map(|i| units[i]) else {
                return;
            };
            let own = u.skips == target && from == u.start;
            if u.is_broken_by(target) && !own {
                bad = true;
                for s in sites
                    .iter_mut()
                    .filter(|s| (u.start..u.end).contains(&s.pc))
                {
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
    /// The one with this number.
    pub fn of(number: u8) -> Option<How> {
        [How::Forward, How::Backward, How::Trap]
            .into_iter()
            .find(|h| *h as u8 == number)
    }

    fn next(self) -> How {
        match self {
            How::Forward => How::Backward,
            How::Backward | How::Trap => How::Trap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x1000;

    /// The units of a function with these bytes, as offsets of their ends.
    fn units(code: &[u8]) -> std::vec::Vec<(u64, u64, How)> {
        let f = Function {
            own_memory_is_private: false,
            thread_id: None,
            learned: Loads::None,
            waits: Waits::Nowhere,
            start: AT,
            code,
        };
        let mut work = Work::boxed();
        let units = f.units(&|_| false, |_, _| None, &mut work);
        let offsets = |u: &Unit| (u.start - AT, u.end - AT, u.how);
        units.iter().map(offsets).collect()
    }

    #[test]
    fn a_short_instruction_takes_those_behind_it() {
        // lock incl (%rdi); ret and filler behind it
        assert_eq!(
            units(&[0xf0, 0xff, 0x07, 0xc3, 0x90]),
            [(0, 5, How::Forward)]
        );
        // lock cmpxchg %edx,(%rdi); jne -2; ret
        let code = [0xf0, 0x0f, 0xb1, 0x17, 0x75, 0x10, 0xc3];
        assert_eq!(units(&code), [(0, 6, How::Forward)]);
        // Long enough by itself: lock incl 0x10000(%rdi); ret
        let code = [0xf0, 0xff, 0x87, 0, 0, 1, 0, 0xc3];
        assert_eq!(units(&code), [(0, 7, How::Forward)]);
    }

    #[test]
    fn where_control_comes_in_nothing_is_overwritten() {
        // mov %esi,%eax; lock incl (%rdi); 1: dec %eax; jne 1b; ret
        let code = [0x89, 0xf0, 0xf0, 0xff, 0x07, 0xff, 0xc8, 0x75, 0xfc, 0xc3];
        assert_eq!(units(&code), [(0, 5, How::Backward)]);
        // lock incl (%rdi); 1: dec %eax; jne 1b; ret
        let code = [0xf0, 0xff, 0x07, 0xff, 0xc8, 0x75, 0xfc, 0xc3];
        assert_eq!(units(&code), [(0, 3, How::Trap)]);
        // Back to the instruction itself is no harm: 1: lock incl (%rdi); dec %eax; jne 1b; ret
        let code = [0xf0, 0xff, 0x07, 0xff, 0xc8, 0x75, 0xf9, 0xc3];
        assert_eq!(units(&code), [(0, 5, How::Forward)]);
    }

    #[test]
    fn threads_give_way_at_pauses_and_at_one_place() {
        let units = |code: &[u8], waits| {
            let f = Function {
                own_memory_is_private: false,
                thread_id: None,
                learned: Loads::None,
                waits,
                start: AT,
                code,
            };
            let mut work = Work::boxed();
            let units = f.units(&|_| true, |_, _| None, &mut work);
            let offsets = |u: &Unit| {
                assert_eq!((u.ordered, u.valued), (0, 0));
                (u.start - AT, u.end - AT, u.how, u.waits)
            };
            units.iter().map(offsets).collect::<std::vec::Vec<_>>()
        };
        // 1: pause; mov (%rdi),%eax; cmp %esi,%eax; jne 1b; ret
        let code = [0xf3, 0x90, 0x8b, 0x07, 0x39, 0xf0, 0x75, 0xf8, 0xc3];
        assert_eq!(units(&code, Waits::AtPauses), [(0, 6, How::Forward, 1)]);
        // Where a thread was found: at the load.
        assert_eq!(units(&code, Waits::At(AT + 2)), [(2, 8, How::Forward, 1)]);
        // jmp 2f; 1: pause; 2: cmp %esi,(%rdi); jne 1b; ret
        let code = [0xeb, 0x02, 0xf3, 0x90, 0x39, 0x37, 0x75, 0xfa, 0xc3];
        assert_eq!(units(&code, Waits::AtPauses), [(2, 4, How::Trap, 1)]);
        // jmp 2f; 1: mov $1,%eax; pause; 2: cmp %esi,(%rdi); jne 1b; ret
        let code = [
            0xeb, 0x07, 0xb8, 1, 0, 0, 0, 0xf3, 0x90, 0x39, 0x37, 0x75, 0xf5, 0xc3,
        ];
        assert_eq!(units(&code, Waits::AtPauses), [(2, 9, How::Backward, 2)]);
        // A locked instruction is nobody's business here.
        assert_eq!(units(&[0xf0, 0xff, 0x07, 0xc3, 0x90], Waits::AtPauses), []);
    }

    #[test]
    fn a_branch_over_the_prefix_goes_with_the_instruction() {
        // je 1f; lock; 1: incl (%rdi); ret
        assert_eq!(
            units(&[0x74, 0x01, 0xf0, 0xff, 0x07, 0xc3]),
            [(0, 5, How::Forward)]
        );
        // From elsewhere, it needs the second byte: je 1f; nop; lock; 1: incl (%rdi); ret
        assert_eq!(
            units(&[0x74, 0x02, 0x90, 0xf0, 0xff, 0x07, 0xc3, 0x90, 0x90]),
            [(3, 6, How::Trap)]
        );
    }

    #[test]
    fn words_stored_beside_a_lock_are_shared() {
        // mov 0x100(%rip),%rax; lock cmpxchg %ecx,0x100(%rip); mov %rax, to where it was loaded from
        let load = [0x48, 0x8b, 0x05, 0, 1, 0, 0];
        let lock = [0xf0, 0x0f, 0xb1, 0x0d, 0, 1, 0, 0];
        let store = [0x48, 0x89, 0x05, 0xf1, 0, 0, 0];
        let all = [
            (0, 7, How::Forward),
            (7, 15, How::Forward),
            (15, 22, How::Forward),
        ];
        assert_eq!(units(&[&load[..], &lock, &store].concat()), all);
        assert_eq!(units(&[&load[..], &lock].concat()), all[1..2]);
        assert_eq!(units(&[&load[..], &store].concat()), []);
    }

    #[test]
    fn loads_around_are_ordered_but_not_where_a_loop_only_computes() {
        // lock incl (%rdi); mov 0x100(%rdi),%rax; ret
        let code = [
            0xf0, 0xff, 0x07, 0x0f, 0x1f, 0x00, 0x48, 0x8b, 0x87, 0, 1, 0, 0, 0xc3,
        ];
        assert_eq!(units(&code), [(0, 6, How::Forward), (6, 13, How::Forward)]);
        // lock incl (%rdi); nop; 1: mov 0x100(%rdi),%rax; dec %esi; jne 1b; ret
        let code = [
            0xf0, 0xff, 0x07, 0x0f, 0x1f, 0x00, 0x48, 0x8b, 0x87, 0, 1, 0, 0, 0xff, 0xce, 0x75,
            0xf5, 0xc3,
        ];
        assert_eq!(units(&code), [(0, 6, How::Forward)]);
        // Another object's: mov 0x100(%rsi),%rax
        let code = [
            0xf0, 0xff, 0x07, 0x0f, 0x1f, 0x00, 0x48, 0x8b, 0x86, 0, 1, 0, 0, 0xc3,
        ];
        assert_eq!(units(&code), [(0, 6, How::Forward)]);
    }
    #[test]
    fn rbp_is_any_register_where_it_is_no_frame() {
        // mov 0x100(%rbp),%rax; lock incl 0x100(%rbp)
        let load = [0x48, 0x8b, 0x85, 0, 1, 0, 0];
        let lock = [0xf0, 0xff, 0x85, 0, 1, 0, 0];
        let both = [(0, 7, How::Forward), (7, 14, How::Forward)];
        assert_eq!(units(&[load, lock].concat()), both);
        // After mov %rsp,%rbp, what it loads is the thread's own.
        let frame = [0x48, 0x89, 0xe5];
        let code = [&frame[..], &load, &lock].concat();
        assert_eq!(units(&code), [(10, 17, How::Forward)]);
    }
}
