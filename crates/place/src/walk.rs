//! Record: takes an interrupted thread on to a place that can be patched, and finds out what tells its visits apart.
//!
//! The caller plants one breakpoint at a time and lets the thread run into it; all other threads are parked. After every
//! trap the breakpoint is removed and the program counter set back to it before the walk is asked again. The walk never plants anything itself and
//! can be dropped at any moment: when a fault or a gate comes instead of the trap, remove the breakpoint and forget it.
//!
//! ```text
//! Spin ──▶ Forward ──▶ (Seek) ──▶ Period ──▶ Visits ──▶ Done
//!                                   └─▶ Run ──▶┘ └─▶ Cycle ──▶ Done
//!                                        └─ time-out ─▶ Forward ──▶ Done (rare)
//!
//! Behind ──▶ Done            Return ──▶ Done
//!
//! Forward, Behind ──▶ Leave ──▶ the same again
//! ```
//!
//! Two visits that differ in registers say little in a program like an interpreter, which comes to the same place many times in each round of
//! the loop that it runs for somebody else: registers are the same again in the next round. So some visits are looked at, and where registers
//! come back, all that is stored from then on until they come back once more: among that is what tells the rounds apart.

use super::choose::{choose, Discriminators, Visit, WordSeen};
use super::machine::Machine;
use super::step::{next, Next};
use super::stub::{Discriminator, Source};
use reprise_abi::layout::{PAGE, USER_END};
use reprise_code::decode::{Condition, Flow, Insn, MAX_OPERAND};
use reprise_code::patchable::{classify, Form, Places};
use reprise_code::regs::{Regs, RCX};

/// Most steps of each phase.
pub const MAX_STEPS: u32 = 64;
/// Visits at which the registers are looked at.
const MAX_VISITS: u32 = 32;
/// Most steps from one visit with the same registers to the next.
const MAX_CYCLE: u32 = 2048;
/// Most steps behind an event.
const MAX_BEHIND: u32 = 1500;
/// Most accesses that a walk remembers: its last ones.
pub const MAX_SEEN: usize = 16;
/// Most memory operands that are remembered.
const MAX_TOUCHED: usize = 160;
/// Most pages of a plan.
pub const CHANGING_PAGES: usize = 16;
/// Lowest address at which a stub could lie.
const LOWEST: u64 = 0x1_0000;

/// What the caller is to do.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // there is no heap to put the plan into
pub enum Action {
    /// Plant a breakpoint there and let the thread run; it takes one instruction. Then [`Walk::on_trap`].
    PlantInt3(u64),
    /// Plant a breakpoint there and let the thread run for at most about 1 ms. Then [`Walk::on_trap`] or, after removing it, [`Walk::on_timeout`].
    RunUntilTrapOrTimeout(u64),
    /// No cut is needed: the thread is about to enter the runtime (or to fault). Let it run.
    ReachedGate,
    /// The thread is at a place and this is what is known of it.
    Done(Plan),
    /// No place was found. Let the thread run, and cut it later.
    GiveUp(Reason),
}

/// Why a walk gave up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// An instruction that isn't stepped: a far transfer, a transaction.
    Odd,
    /// No instruction within reach can be patched.
    NoPlace,
    /// The thread trapped somewhere else than at the breakpoint.
    Strayed,
}

/// A place that was reached. The thread is there, in the state that is to be named.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Its registers.
    pub regs: Regs,
    /// Best way to patch the place.
    pub form: Form,
    /// Bytes of instructions that the patch covers.
    pub len: u8,
    /// What tells this visit from others.
    pub discriminators: Discriminators,
    /// Pages in which words changed since the visit before; 0: none.
    pub pages: [u64; CHANGING_PAGES],
    /// The thread is spinning.
    pub spin: bool,
    /// No second visit was seen within the time-out.
    pub rare: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Looking for the state of the beginning; `rounds`: visits of its pc in other states.
    Spin { rounds: u32 },
    /// Looking for a place.
    Forward,
    /// On the way back to the best place seen.
    Seek { pc: u64 },
    /// At the place once, stepping towards its next visit.
    Period,
    /// Running towards it.
    Run,
    /// Looking whether the registers of the first visit come back; `left`: so many visits more.
    Visits { left: u32 },
    /// They have: stepping until they do again, and remembering what is stored.
    Cycle,
    /// That takes too long: running to the next visit, whichever it is.
    Last,
    /// Stepping since the last event, over so many instructions that others may have to do with.
    Behind { left: u32 },
    /// Running since the last event, to a place that is known.
    Return,
    /// Running out of a loop that has nothing to do with others: to where it is left. Then [`Phase::Behind`] with what is left there, or
    /// [`Phase::Forward`].
    Leave { behind: Option<u32> },
}

/// The loop that a walk goes round in. It is left at once when a whole round of it has nothing to do with others: most of a program's time passes in such
/// loops, and what is sought lies behind them.
#[derive(Clone, Copy, Default)]
struct Round {
    /// The jump at its end, and where that leads.
    back: u64,
    head: u64,
    /// Where the last conditional branch that can leave it would lead; 0: none does.
    exit: u64,
    /// Conditional branches in this round.
    branches: u32,
    /// It calls, or jumps to where a register says.
    strays: bool,
    /// There was an access to memory that others may use.
    touches: bool,
}

impl Round {
    /// The thread goes from this instruction `to` there: at the end of the second round, or of a later one, that is all alike, where the loop is
    /// left. `only`: there must be no other way that leads out of it.
    fn step(&mut self, insn: &Insn, to: u64, only: bool) -> Option<u64> {
        let jumps = match insn.flow {
            Flow::Branch(_, target) => {
                let other = if to == target { insn.end() } else { target };
                if !(self.head..=self.back).contains(&other) {
                    self.exit = other;
                }
                self.branches += 1;
                true
            }
            Flow::Jump(_) => true,
            Flow::Next | Flow::Repeat => false,
            _ => {
                self.strays = true;
                false
            }
        };
        if !jumps || to > insn.pc {
            return None;
        }
        let round = *self;
        *self = Round {
            back: insn.pc,
            head: to,
            ..Round::default()
        };
        let again = round.head == to && round.back == insn.pc && !round.touches;
        let sure = !only || (round.branches == 1 && !round.strays);
        (again && sure && round.exit != 0).then_some(round.exit)
    }
}

/// An access to memory that others may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Of the instruction.
    pub pc: u64,
    /// What it names.
    pub addr: u64,
    /// Does it store there?
    pub stores: bool,
}

impl Seen {
    /// In the place of one.
    pub const NONE: Seen = Seen {
        pc: 0,
        addr: 0,
        stores: false,
    };
}

/// Which instructions a slice may end in front of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A store to memory that others may read.
    Store,
    /// That, or a load from there.
    Any,
    /// No access: any instruction.
    EachInstruction,
}

/// The states (instruction and general registers) in which the walk came to what is sought, since the last event. Some that were not may be taken for some
/// that were.
#[derive(Default)]
struct Visited([u64; 32]);

impl Visited {
    /// Is this the first visit in this state? A replay tells it from those before by the registers.
    fn first(&mut self, regs: &Regs) -> bool {
        let mix = |h: u64, v: &u64| (h.rotate_left(5) ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = regs.gpr.iter().fold(mix(0, &regs.rip), mix) >> 53;
        let word = &mut self.0[bit as usize / 64];
        let mask = 1 << (bit % 64);
        let before = *word;
        *word |= mask;
        before & mask == 0
    }
}

/// Memory that instructions named, and its value before the first of them ran.
#[derive(Clone, Copy)]
struct Touched {
    addr: u64,
    size: u32,
    /// Is `word` a [`Source::Half`]?
    half: bool,
    readable: bool,
    word: u64,
    hash: u64,
}

struct TouchedLog {
    list: [Touched; MAX_TOUCHED],
    len: usize,
    /// Something else was written too, or may have been.
    more: bool,
}

impl TouchedLog {
    fn clear(&mut self) {
        self.len = 0;
        self.more = false;
    }

    fn note<M: Machine + ?Sized>(&mut self, insn: &Insn, regs: &Regs, machine: &M) {
        let operands = insn.operands(regs);
        self.more |= operands.more;
        for operand in operands.list() {
            if self.list[..self.len]
                .iter()
                .any(|t| t.addr == operand.addr && t.size >= operand.size)
            {
                continue;
            }
            if self.len == MAX_TOUCHED {
                self.more = true;
                return;
            }
            self.list[self.len] = look(operand.addr, operand.size, machine);
            self.len += 1;
        }
    }

    /// Every byte that was named is what it was.
    fn unchanged<M: Machine + ?Sized>(&self, machine: &M) -> bool {
        !self.more
            && self.list[..self.len]
                .iter()
                .all(|t| look(t.addr, t.size, machine).hash == t.hash)
    }

    fn words<'a, M: Machine + ?Sized>(
        &'a self,
        pc: u64,
        machine: &'a M,
    ) -> impl Iterator<Item = WordSeen> + 'a {
        self.list[..self.len].iter().filter_map(move |t| {
            // The patch and what is ours look different in replay.
            let near_patch = t.addr.wrapping_sub(pc.wrapping_sub(16)) < 48;
            if !t.readable || near_patch || machine.is_ours(t.addr) {
                return None;
            }
            let (source, now) = if t.half {
                (Source::Half(t.addr), machine.half(t.addr)? as u64)
            } else {
                (Source::Word(t.addr), machine.word(t.addr)?)
            };
            Some(WordSeen {
                source,
                before: t.word,
                now,
            })
        })
    }

    /// The pages of words that are not what they were.
    fn changing_pages<M: Machine + ?Sized>(&self, pc: u64, machine: &M) -> [u64; CHANGING_PAGES] {
        let mut pages = [0; CHANGING_PAGES];
        let mut len = 0;
        for word in self.words(pc, machine).filter(|w| w.before != w.now) {
            let (Source::Word(addr) | Source::Half(addr)) = word.source else {
                continue;
            };
            let page = addr & !(PAGE - 1);
            if len < CHANGING_PAGES && !pages[..len].contains(&page) {
                pages[len] = page;
                len += 1;
            }
        }
        pages
    }
}

fn look<M: Machine + ?Sized>(addr: u64, size: u32, machine: &M) -> Touched {
    let half = size < 8;
    let word = if half {
        machine.half(addr).map(u64::from)
    } else {
        machine.word(addr)
    };
    let mut bytes = [0; MAX_OPERAND as usize];
    let bytes = &mut bytes[..size.min(MAX_OPERAND) as usize];
    let hash = if machine.compared(addr, bytes) == bytes.len() {
        // FNV-1a; one changed byte always changes it.
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ *b as u64).wrapping_mul(0x100_0000_01b3)
        })
    } else {
        0
    };
    Touched {
        addr,
        size,
        half,
        readable: word.is_some(),
        word: word.unwrap_or(0),
        hash,
    }
}

/// A walk. About 8 KB.
pub struct Walk {
    phase: Phase,
    /// Steps in this phase.
    steps: u32,
    /// Where the breakpoint is.
    expected: u64,
    base: Regs,
    base_extended: u64,
    touched: TouchedLog,
    spin: bool,
    rare: bool,
    /// So many accesses are left until one is better than any other place.
    seeks: Option<u32>,
    /// What is sought, there and in [`Phase::Behind`].
    access: Access,
    /// In [`Phase::Behind`].
    visited: Visited,
    /// There, and where something is sought.
    round: Round,
    /// The last accesses that were passed by on the way, and how many they were.
    seen: ([Seen; MAX_SEEN], usize),
    /// Many visits are looked at.
    looks_closely: bool,
    /// Where [`Phase::Forward`] began.
    origin: u64,
    /// Best place seen: its rank and address.
    best: Option<(u32, u64)>,
    /// The first visit of the place.
    first: Visit,
}

/// How well a place suits: lower is better, 0 best.
fn rank(places: &Places) -> Option<(u32, Form, u8)> {
    places
        .iter()
        .filter_map(|p| {
            // Is there any address at all for its stub?
            p.first_fit(LOWEST, USER_END, 0)?;
            let rank = match p.form {
                Form::Long => 0,
                Form::Group => 1,
                Form::Pun => 6 - p.len as u32,
                Form::Breakpoint => 9,
            };
            Some((rank, p.form, p.len))
        })
        .min_by_key(|r| r.0)
}

/// The access that the thread is in front of. What is near its stack pointer is its own.
fn access_at<M: Machine + ?Sized>(regs: &Regs, machine: &M) -> Option<Seen> {
    const OWN: u64 = 1 << 16;
    let insn = Insn::at(regs.rip, machine)?;
    let operands = insn.operands(regs);
    let mut list = operands.list().iter();
    let others = list.find(|o| o.addr.abs_diff(regs.rsp()) > OWN)?;
    Some(Seen {
        pc: regs.rip,
        addr: others.addr,
        stores: insn.stores(),
    })
}

impl Walk {
    /// Begins where the thread was interrupted, or anywhere else in the program.
    pub fn begin<M: Machine + ?Sized>(regs: &Regs, machine: &M) -> (Walk, Action) {
        let nothing = Touched {
            addr: 0,
            size: 0,
            half: false,
            readable: false,
            word: 0,
            hash: 0,
        };
        let mut walk = Walk {
            phase: Phase::Spin { rounds: 0 },
            steps: 0,
            expected: 0,
            base: *regs,
            base_extended: machine.extended(),
            touched: TouchedLog {
                list: [nothing; MAX_TOUCHED],
                len: 0,
                more: false,
            },
            spin: false,
            rare: false,
            seeks: None,
            access: Access::Store,
            visited: Visited::default(),
            round: Round::default(),
            seen: ([Seen::NONE; MAX_SEEN], 0),
            looks_closely: false,
            origin: 0,
            best: None,
            first: Visit {
                regs: *regs,
                xmm: machine.xmm(),
                x87: machine.x87(),
            },
        };
        let action = if machine.is_ours(regs.rip) {
            Action::ReachedGate
        } else {
            walk.go(regs, machine)
        };
        (walk, action)
    }

    /// Begins right behind an event, at the next instruction of the thread that stands in it. All that the thread executes is seen, but loops that have
    /// nothing to do with others: so a place that it comes to with these registers for the first time needs nothing else that tells its visits apart, and
    /// even a window of a few instructions between two gates is hit. The walk ends at such a place, in front of the access that has `skip` before it.
    pub fn behind<M: Machine + ?Sized>(
        skip: u32,
        access: Access,
        regs: &Regs,
        machine: &M,
    ) -> (Walk, Action) {
        let (mut walk, action) = Walk::begin(regs, machine);
        walk.touched.clear();
        walk.phase = Phase::Behind { left: skip };
        walk.access = access;
        walk.visited.first(regs);
        (walk, action)
    }

    /// Begins there, too, and ends where the thread comes to this place first.
    pub fn back_to<M: Machine + ?Sized>(pc: u64, regs: &Regs, machine: &M) -> (Walk, Action) {
        let (mut walk, _) = Walk::begin(regs, machine);
        walk.touched.clear();
        walk.phase = Phase::Return;
        walk.expected = pc;
        let action = match pc == regs.rip || machine.is_ours(pc) {
            true => Action::GiveUp(Reason::NoPlace),
            false => Action::RunUntilTrapOrTimeout(pc),
        };
        (walk, action)
    }

    /// The slice is to end in front of such an access, if there is one near: what the thread has loaded before is old then, and what others store
    /// meanwhile is lost, in programs that count on neither happening. So many of them are passed by before.
    pub fn seek(&mut self, skip: u32, access: Access) {
        self.seeks = Some(skip);
        self.access = access;
    }

    /// The walk waits for what comes soon, if at all.
    pub fn is_brief(&self) -> bool {
        matches!(self.phase, Phase::Leave { .. } | Phase::Return)
    }

    /// The last accesses that the walk has come to, in no order.
    pub fn seen(&self) -> &[Seen] {
        &self.seen.0[..self.seen.1.min(MAX_SEEN)]
    }

    /// Is the thread in front of an access that is sought?
    fn is_sought<M: Machine + ?Sized>(&mut self, regs: &Regs, machine: &M) -> bool {
        let access = access_at(regs, machine);
        if let Some(access) = access {
            let (list, count) = &mut self.seen;
            list[*count % MAX_SEEN] = access;
            *count += 1;
            self.round.touches = true;
        }
        match self.access {
            Access::Store => access.is_some_and(|a| a.stores),
            Access::Any => access.is_some(),
            Access::EachInstruction => true,
        }
    }

    /// Many visits are to be looked at, which costs some dozens of breakpoints, and sometimes some thousand.
    pub fn look_closely(&mut self) {
        self.looks_closely = true;
    }

    /// The thread ran into the breakpoint; `regs.rip` is the breakpoint's address.
    pub fn on_trap<M: Machine + ?Sized>(&mut self, regs: &Regs, machine: &M) -> Action {
        if regs.rip != self.expected {
            return Action::GiveUp(Reason::Strayed);
        }
        self.steps += 1;
        match self.phase {
            Phase::Spin { rounds } => self.spin_step(rounds, regs, machine),
            Phase::Forward => self.forward_step(regs, machine),
            Phase::Seek { pc } => self.seek_step(pc, regs, machine),
            Phase::Period if regs.rip == self.first.regs.rip => {
                self.visit(MAX_VISITS, regs, machine)
            }
            Phase::Period if self.steps >= MAX_STEPS => self.run(Phase::Run),
            Phase::Period => self.go(regs, machine),
            Phase::Run => self.visit(MAX_VISITS, regs, machine),
            Phase::Visits { left } if regs.rip == self.first.regs.rip => {
                self.visit(left, regs, machine)
            }
            // One instruction behind a visit.
            Phase::Visits { .. } => self.run(self.phase),
            Phase::Cycle if regs.gpr == self.first.regs.gpr && regs.rip == self.first.regs.rip => {
                self.done(regs, machine)
            }
            Phase::Cycle if self.steps >= MAX_CYCLE => match regs.rip == self.first.regs.rip {
                true => self.done(regs, machine),
                false => self.run(Phase::Last),
            },
            Phase::Cycle => self.go(regs, machine),
            Phase::Last => self.done(regs, machine),
            Phase::Behind { left } => self.behind_step(left, regs, machine),
            Phase::Return => self.finish(regs, Discriminators::default(), machine),
            Phase::Leave { behind: Some(left) } => {
                self.phase = Phase::Behind { left };
                self.behind_step(left, regs, machine)
            }
            Phase::Leave { behind: None } => {
                self.phase = Phase::Forward;
                self.forward_step(regs, machine)
            }
        }
    }

    fn behind_step<M: Machine + ?Sized>(&mut self, left: u32, regs: &Regs, machine: &M) -> Action {
        if self.is_sought(regs, machine) {
            let first = self.visited.first(regs);
            // Even a breakpoint is cheap where a replay comes to it once: a locked instruction has no other form.
            if left == 0 && first && rank(&classify(regs.rip, machine)).is_some() {
                return self.finish(regs, Discriminators::default(), machine);
            }
            self.phase = Phase::Behind {
                left: left.saturating_sub(1),
            };
        }
        if self.steps < MAX_BEHIND {
            return self.go(regs, machine);
        }
        // Too far: a place in the midst of what the thread does here.
        self.forward(regs, machine)
    }

    /// Runs to the next visit.
    fn run(&mut self, phase: Phase) -> Action {
        self.phase = phase;
        self.expected = self.first.regs.rip;
        Action::RunUntilTrapOrTimeout(self.expected)
    }

    /// At the place again.
    fn visit<M: Machine + ?Sized>(&mut self, left: u32, regs: &Regs, machine: &M) -> Action {
        if !self.looks_closely {
            return self.done(regs, machine);
        }
        if regs.gpr == self.first.regs.gpr {
            self.touched.clear();
            self.phase = Phase::Cycle;
            self.steps = 0;
            return self.go(regs, machine);
        }
        let Some(left) = left.checked_sub(1) else {
            return self.done(regs, machine);
        };
        self.phase = Phase::Visits { left };
        self.go(regs, machine)
    }

    /// The place wasn't visited again in time; the thread was stopped at `regs`.
    pub fn on_timeout<M: Machine + ?Sized>(&mut self, regs: &Regs, machine: &M) -> Action {
        let leaves = matches!(self.phase, Phase::Leave { .. });
        if !leaves && !matches!(self.phase, Phase::Run | Phase::Visits { .. } | Phase::Last) {
            return Action::GiveUp(Reason::Strayed);
        }
        if machine.is_ours(regs.rip) {
            return Action::ReachedGate;
        }
        if leaves {
            // A long loop: a place in its midst.
            self.seeks = None;
        } else {
            self.rare = true;
        }
        self.forward(regs, machine)
    }

    fn spin_step<M: Machine + ?Sized>(&mut self, rounds: u32, regs: &Regs, machine: &M) -> Action {
        if regs.rip == self.base.rip {
            let same = self.base.same(regs) && self.touched.unchanged(machine);
            let extended = machine.extended();
            self.spin = same && extended == self.base_extended;
            if self.spin || rounds >= 1 {
                return self.forward(regs, machine);
            }
            // The first round of a loop may differ from all others.
            self.base = *regs;
            self.base_extended = extended;
            self.touched.clear();
            self.phase = Phase::Spin { rounds: rounds + 1 };
        } else if self.steps >= MAX_STEPS {
            return self.forward(regs, machine);
        }
        self.go(regs, machine)
    }

    fn forward<M: Machine + ?Sized>(&mut self, regs: &Regs, machine: &M) -> Action {
        self.phase = Phase::Forward;
        self.steps = 0;
        self.origin = regs.rip;
        self.best = None;
        self.forward_step(regs, machine)
    }

    fn forward_step<M: Machine + ?Sized>(&mut self, regs: &Regs, machine: &M) -> Action {
        let here = rank(&classify(regs.rip, machine));
        if let Some((rank, form, _)) = here {
            let seeks = self.seeks;
            let wanted = match seeks {
                Some(left) if self.is_sought(regs, machine) => {
                    self.seeks = Some(left.saturating_sub(1));
                    left == 0 && form != Form::Breakpoint
                }
                Some(_) => false,
                None => rank == 0,
            };
            if wanted {
                return self.arrive(regs, machine);
            }
            if self.best.is_none_or(|b| rank < b.0) {
                self.best = Some((rank, regs.rip));
            }
        }
        let goes_on = self.seeks.is_some() && !self.spin;
        let around = self.steps > 0 && regs.rip == self.origin && !goes_on;
        let most = match self.seeks {
            Some(_) => MAX_BEHIND,
            None => MAX_STEPS,
        };
        if !around && self.steps < most {
            return self.go(regs, machine);
        }
        match self.best {
            None => Action::GiveUp(Reason::NoPlace),
            Some((_, pc)) if pc == regs.rip => self.arrive(regs, machine),
            Some((_, pc)) => {
                self.phase = Phase::Seek { pc };
                self.steps = 0;
                self.go(regs, machine)
            }
        }
    }

    fn seek_step<M: Machine + ?Sized>(&mut self, pc: u64, regs: &Regs, machine: &M) -> Action {
        if regs.rip == pc {
            return self.arrive(regs, machine);
        }
        // The best place doesn't come again: take any.
        if self.steps >= MAX_STEPS && rank(&classify(regs.rip, machine)).is_some() {
            return self.arrive(regs, machine);
        }
        if self.steps >= 2 * MAX_STEPS {
            return Action::GiveUp(Reason::NoPlace);
        }
        self.go(regs, machine)
    }

    /// The thread is at the place for the first time.
    fn arrive<M: Machine + ?Sized>(&mut self, regs: &Regs, machine: &M) -> Action {
        if self.spin || self.rare {
            return self.done(regs, machine);
        }
        self.first = Visit {
            regs: *regs,
            xmm: machine.xmm(),
            x87: machine.x87(),
        };
        self.touched.clear();
        self.phase = Phase::Period;
        self.steps = 0;
        self.go(regs, machine)
    }

    fn done<M: Machine + ?Sized>(&mut self, regs: &Regs, machine: &M) -> Action {
        let discriminators = if self.spin {
            Discriminators::default()
        } else {
            let now = Visit {
                regs: *regs,
                xmm: machine.xmm(),
                x87: machine.x87(),
            };
            choose(&self.first, &now, self.touched.words(regs.rip, machine))
        };
        self.finish(regs, discriminators, machine)
    }

    fn finish<M: Machine + ?Sized>(
        &self,
        regs: &Regs,
        discriminators: Discriminators,
        machine: &M,
    ) -> Action {
        match rank(&classify(regs.rip, machine)) {
            Some((_, form, len)) => Action::Done(Plan {
                regs: *regs,
                form,
                len,
                discriminators,
                pages: self.touched.changing_pages(regs.rip, machine),
                spin: self.spin,
                rare: self.rare,
            }),
            None => Action::GiveUp(Reason::NoPlace),
        }
    }

    /// One instruction on.
    fn go<M: Machine + ?Sized>(&mut self, regs: &Regs, machine: &M) -> Action {
        let Some(insn) = Insn::at(regs.rip, machine) else {
            return Action::ReachedGate;
        };
        match self.phase {
            Phase::Behind { .. } | Phase::Return => (),
            // What is only read is the same in each round.
            Phase::Cycle if !insn.stores() => (),
            _ => self.touched.note(&insn, regs, machine),
        }
        match next(&insn, regs, machine) {
            Next::At(pc) if pc == regs.rip => self.branch_to_itself(&insn, regs, machine),
            // What can't be fetched is a fault to come.
            Next::At(pc) if machine.is_ours(pc) || !machine.read(pc, &mut [0]) => {
                Action::ReachedGate
            }
            Next::At(pc) => match self.leaves(&insn, pc) {
                Some(exit) => {
                    self.expected = exit;
                    Action::RunUntilTrapOrTimeout(exit)
                }
                None => {
                    self.expected = pc;
                    Action::PlantInt3(pc)
                }
            },
            Next::Gate => Action::ReachedGate,
            Next::Unknown => Action::GiveUp(Reason::Odd),
        }
    }

    /// Is the thread in a loop that is better left than stepped? Where it ends. In [`Phase::Behind`] all that is executed must be known.
    fn leaves(&mut self, insn: &Insn, to: u64) -> Option<u64> {
        let behind = match self.phase {
            Phase::Behind { left } => Some(left),
            Phase::Forward if self.seeks.is_some() && !self.spin => None,
            _ => return None,
        };
        if self.access == Access::EachInstruction {
            return None;
        }
        let exit = self.round.step(insn, to, behind.is_some())?;
        self.phase = Phase::Leave { behind };
        Some(exit)
    }

    /// `jmp .` and its kin can't be stepped, but are places: nothing changes there, or only a counter.
    fn branch_to_itself<M: Machine + ?Sized>(
        &mut self,
        insn: &Insn,
        regs: &Regs,
        machine: &M,
    ) -> Action {
        let mut discriminators = Discriminators::default();
        match insn.flow {
            Flow::Branch(
                Condition::Loop(_) | Condition::LoopEqual(_) | Condition::LoopNotEqual(_),
                _,
            ) => {
                self.spin = false;
                discriminators.push(Discriminator {
                    source: Source::Register(RCX as u8),
                    value: regs.gpr[RCX],
                });
            }
            Flow::Jump(_) | Flow::Branch(..) | Flow::JumpIndirect => self.spin = true,
            _ => return Action::GiveUp(Reason::Odd),
        }
        self.finish(regs, discriminators, machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_code::decode::decode;

    /// The thread goes through these instructions; where a loop is left, if it is.
    fn goes_round(way: &[(u64, &[u8])], only: bool) -> Option<u64> {
        let mut round = Round::default();
        let steps = way.windows(2).map(|w| (w[0], w[1].0));
        let mut left = steps.map(|((pc, code), to)| round.step(&decode(pc, code)?, to, only));
        left.find_map(|exit| exit)
    }

    /// inc rax; jz 0x1020; jmp 0x1000
    const LEFT_AT_ITS_HEAD: [(u64, &[u8]); 3] = [
        (0x1000, &[0x48, 0xff, 0xc0]),
        (0x1003, &[0x74, 0x1b]),
        (0x1005, &[0xeb, 0xf9]),
    ];

    #[test]
    fn loops_are_left_after_two_rounds() {
        let head = LEFT_AT_ITS_HEAD;
        assert_eq!(goes_round(&head.repeat(2), true), None);
        assert_eq!(goes_round(&head.repeat(3), true), Some(0x1020));
        // dec rcx; jnz 0x1000
        let end: [(u64, &[u8]); 2] = [(0x1000, &[0x48, 0xff, 0xc9]), (0x1003, &[0x75, 0xfb])];
        assert_eq!(goes_round(&end.repeat(3), true), Some(0x1005));
    }

    #[test]
    fn loops_with_several_ways_out_are_left_where_that_is_enough() {
        // jz 0x1020; jz 0x1030; jmp 0x1000
        let way: [(u64, &[u8]); 3] = [
            (0x1000, &[0x74, 0x1e]),
            (0x1002, &[0x74, 0x2c]),
            (0x1004, &[0xeb, 0xfa]),
        ];
        assert_eq!(goes_round(&way.repeat(3), false), Some(0x1030));
        assert_eq!(goes_round(&way.repeat(5), true), None);
        // An endless one isn't left at all.
        let endless: [(u64, &[u8]); 2] = [(0x1000, &[0x48, 0xff, 0xc0]), (0x1003, &[0xeb, 0xfb])];
        assert_eq!(goes_round(&endless.repeat(5), false), None);
    }

    #[test]
    fn what_touches_others_is_stepped() {
        let mut round = Round::default();
        for _ in 0..5 {
            for (n, (pc, code)) in LEFT_AT_ITS_HEAD.iter().enumerate() {
                let to = LEFT_AT_ITS_HEAD[(n + 1) % 3].0;
                round.touches |= n == 0;
                let insn = decode(*pc, code).unwrap();
                assert_eq!(round.step(&insn, to, false), None);
            }
        }
    }
}
