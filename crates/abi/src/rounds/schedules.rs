//! Rounds and the token under schedules of all kinds, with kills: whoever has a turn is alone, the order of all that is done in turns follows from the
//! program, whatever the schedule, and nobody waits for ever, but to end with one that was killed.

use super::*;
use crate::interleave::{
    self, all_over, explore, is_killed, random, schedules, step, until, Access, Kind, Spoil,
    FOUND_WITHIN,
};
use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

/// Threads of a program, from slot 1 on. The last one is made by one of the others.
const THREADS: u32 = 4;
/// Who looks after those that wait for children, as a process.
const WATCHER: usize = THREADS as usize + 1;
/// Programs that are tried.
const PROGRAMS: u64 = 400;
/// The word on which threads wait.
const WORD: u64 = 0x1000;
/// So many rounds a thread waits at most.
const PATIENCE: u64 = 3;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Op {
    /// It has a turn.
    Turn,
    /// It has an I/O turn, ...
    Print,
    /// ... which becomes a real one.
    PrintMuch,
    /// It waits until it is woken, or has waited long enough.
    Wait,
    /// It wakes one that waits, or the next one that is to.
    Wake,
    /// It makes the last thread.
    Make,
    /// It takes the lead of the next phase.
    Lead,
    /// It looks at what a leader may change.
    Look,
    /// It makes a call that waits in the kernel.
    Call,
    /// It waits for a child.
    Child,
    /// It ends.
    Exit,
}

/// These follow from the program alone.
const OF_PROGRAM: [Op; 8] = [
    Op::Turn,
    Op::Print,
    Op::PrintMuch,
    Op::Wait,
    Op::Wake,
    Op::Make,
    Op::Lead,
    Op::Look,
];
/// These don't.
const OF_WORLD: [Op; 6] = [
    Op::Call,
    Op::Child,
    Op::Child,
    Op::Child,
    Op::Wait,
    Op::Turn,
];

/// Something that was done in a turn: in which round, by whom, what, and how it came out.
type Done = (u32, u32, Op, u32);

struct Model {
    rounds: &'static Rounds,
    rest: &'static Rest,
    lead: &'static Lead,
    /// The world has a part in the program.
    world: bool,
    /// Schedules so far.
    tried: Cell<u64>,
    program: RefCell<[Vec<Op>; THREADS as usize]>,
    /// Rounds so far, as the program's time.
    time: Cell<u64>,
    /// Who has a turn.
    in_turn: Cell<u32>,
    /// How many run the program's code.
    run: Cell<u32>,
    permits: Cell<u32>,
    /// The last thread is made; whether in a lead.
    made: Cell<Option<bool>>,
    /// Who leads.
    leader: Cell<u32>,
    /// How many look at what a leader changes.
    look: Cell<u32>,
    /// Signals have come to these.
    signals: Cell<u32>,
    done: RefCell<Vec<Done>>,
    /// What each program does.
    known: RefCell<BTreeMap<u64, Vec<Done>>>,
}

/// A value of which all is zero.
fn zeroed<T>() -> &'static T {
    let layout = std::alloc::Layout::new::<T>();
    // SAFETY: zero is a value of all that is in those for which this is used; it stays.
    unsafe { &*(std::alloc::alloc_zeroed(layout) as *const T) }
}

/// Was somebody killed? Whoever sees that ends.
fn is_dead() -> bool {
    (1..=WATCHER).any(is_killed)
}

fn ends_with_the_dead() {
    if is_dead() {
        interleave::end();
    }
}

/// Somebody else has the processor for a while.
fn pause() {
    ends_with_the_dead();
    step();
}

#[derive(Clone, Copy)]
struct Here<'a>(&'a Model);

impl Around for Here<'_> {
    fn slots_used(self) -> u32 {
        THREADS + 1
    }

    fn wake(self, word: &AtomicU32) {
        interleave::wake(word, 1);
    }

    fn goes_on(self) {}

    fn comes_back(self) -> bool {
        let m = self.0;
        let mut any = false;
        if let Some(notices) = m.rest.take() {
            for slot in (1..=THREADS).filter(|s| notices[0] >> s & 1 != 0) {
                if m.is_out(slot) {
                    m.rounds.recall(slot, why::SIGNAL);
                    any = true;
                }
            }
        }
        if any || m.rounds.ring_len() == 0 {
            return any;
        }
        m.time.set(m.time.get() + 1);
        match m.first_limited() {
            Some(slot) if m.deadline(slot) <= m.time.get() => {
                m.rounds.recall(slot, why::TIMED_OUT);
                true
            }
            _ => false,
        }
    }

    fn rests(self) -> bool {
        let m = self.0;
        if let Some(slot) = m.first_limited() {
            // By the kernel's clock it may not have waited long enough, unless it counts rounds only.
            let counts = m.rounds.member(slot).not_before.load(Relaxed) == 0;
            if !m.world || counts || random(2) == 0 {
                m.jump(slot);
                return true;
            }
        }
        m.rest.begins()
    }

    fn phase_begins(self) {}

    fn about_to_tell(self) {
        step();
    }
}

struct Waits<'a>(&'a Model, u32);

impl Waiter for Waits<'_> {
    fn comes_soon(&mut self, what: impl Fn() -> bool) -> bool {
        random(2) == 0 && what()
    }

    fn serves(&mut self) {}

    fn looks(&mut self) {
        self.0.looks(self.1);
    }

    fn may_sleep(&self) -> bool {
        true
    }

    fn sleeps(&mut self, word: &AtomicU32) {
        let Waits(m, slot) = *self;
        if m.world && m.is_out(slot) && random(4) == 0 {
            m.rounds.signalled(slot);
            m.signals.set(m.signals.get() | 1 << slot);
        } else if m.world && m.deadline(slot) != 0 {
            // In the end it wakes by itself.
            until(&|| m.rest.is_on() || word.load(SeqCst) == 0 || is_dead());
        } else {
            interleave::sleep(word, 1, true);
        }
        ends_with_the_dead();
    }

    fn ends(&mut self) {}
}

impl Model {
    fn new(world: bool) -> Model {
        Model {
            rounds: zeroed(),
            rest: zeroed(),
            lead: Box::leak(Box::new(Lead::new())),
            world,
            tried: Cell::default(),
            program: RefCell::default(),
            time: Cell::default(),
            in_turn: Cell::default(),
            run: Cell::default(),
            permits: Cell::default(),
            made: Cell::default(),
            leader: Cell::default(),
            look: Cell::default(),
            signals: Cell::default(),
            done: RefCell::default(),
            known: RefCell::default(),
        }
    }

    fn number(&self) -> u64 {
        self.tried.get() % PROGRAMS
    }

    /// A program is chosen, and three of its threads run.
    fn begins(&self) {
        self.tried.set(self.tried.get() + 1);
        let mut drawn = self.number().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |n: usize| {
            drawn = drawn
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (drawn >> 33) as usize % n
        };
        let waits_again_and_again = self.world && below(4) == 0;
        for (i, ops) in self.program.borrow_mut().iter_mut().enumerate() {
            ops.clear();
            for _ in 0..1 + below(4) {
                let of_world = self.world && below(3) != 0;
                ops.push(match of_world {
                    _ if waits_again_and_again && i == 0 => Op::Child,
                    _ if waits_again_and_again => Op::Turn,
                    true => OF_WORLD[below(OF_WORLD.len())],
                    false => OF_PROGRAM[below(OF_PROGRAM.len())],
                });
            }
            ops.push(Op::Exit);
        }
        self.time.set(0);
        self.in_turn.set(0);
        self.run.set(THREADS - 1);
        self.permits.set(0);
        self.made.set(None);
        self.leader.set(0);
        self.look.set(0);
        self.signals.set(0);
        self.done.borrow_mut().clear();
        self.rounds.start(1);
        (2..THREADS).for_each(|slot| self.rounds.enrol_at_once(slot));
    }

    fn is_out(&self, slot: u32) -> bool {
        let is = self.rounds.member(slot).state.load(SeqCst);
        matches!(is, state::WAITS | state::OUTSIDE)
    }

    fn deadline(&self, slot: u32) -> u64 {
        self.rounds.member(slot).deadline.load(Relaxed)
    }

    fn first_limited(&self) -> Option<u32> {
        let limited = (1..=THREADS).filter(|s| self.is_out(*s) && self.deadline(*s) != 0);
        limited.min_by_key(|s| {
            let since = self.rounds.member(*s).since.load(Relaxed);
            (self.deadline(*s), since)
        })
    }

    /// The time of a thread that waits is over.
    fn jump(&self, slot: u32) {
        self.time.set(self.time.get().max(self.deadline(slot)));
        self.rounds.recall(slot, why::TIMED_OUT);
    }

    fn next_if(&self, ended: bool) {
        if ended {
            self.rounds.next(Here(self));
        }
    }

    /// Who waits looks whether it can come back by itself.
    fn looks(&self, slot: u32) {
        if !self.is_out(slot) {
            return;
        }
        if self.signals.get() >> slot & 1 != 0 {
            self.signals.set(self.signals.get() & !(1 << slot));
            return self.next_if(self.rest.notify(slot));
        }
        let first = || self.deadline(slot) != 0 && self.first_limited() == Some(slot);
        if self.rest.is_on() && first() && self.rest.ends() {
            if self.first_limited() == Some(slot) {
                self.jump(slot);
            }
            self.rounds.next(Here(self));
        }
    }

    /// The thread has a turn, in which it has done this.
    fn has_turn(&self, slot: u32, op: Op, how: u32) {
        assert_eq!(self.run.get(), 0, "somebody runs in a turn");
        assert_eq!(self.in_turn.replace(slot), 0, "two have a turn at once");
        step();
        self.does(slot, op, how);
    }

    fn does(&self, slot: u32, op: Op, how: u32) {
        let round = self.rounds.round();
        self.done.borrow_mut().push((round, slot, op, how));
    }

    fn runs(&self) {
        self.run.set(self.run.get() + 1);
    }

    fn runs_no_more(&self) {
        self.run.set(self.run.get() - 1);
    }

    fn leads(&self, slot: u32) -> bool {
        self.leader.get() == slot
    }

    fn begins_turn(&self, slot: u32, op: Op) {
        self.runs_no_more();
        if self.leads(slot) {
            self.leader.set(0);
            self.lead.end(slot);
        }
        if !self.rounds.is_alone_in_ring(slot) {
            if op == Op::PrintMuch {
                self.rounds.arrive_for_io(slot, Here(self));
                self.rounds.wait_for_turn(slot, Waits(self, slot));
                self.has_turn(slot, Op::Print, 0);
                self.in_turn.set(0);
                self.rounds.pass(slot, state::ARRIVED, Here(self));
            } else {
                self.rounds.arrive(slot, Here(self));
            }
            self.rounds.wait_for_turn(slot, Waits(self, slot));
        }
        self.has_turn(slot, op, 0);
    }

    fn ends_turn(&self, slot: u32) {
        self.in_turn.set(0);
        let first = self.first_limited().map(|s| self.deadline(s));
        let undisturbed = !self.rest.is_notified() && first.is_none_or(|d| d > self.time.get() + 1);
        if self.rounds.is_alone_in_ring(slot) && undisturbed {
            self.time.set(self.time.get() + 1);
            return self.runs();
        }
        let round = self.rounds.round();
        self.rounds.pass(slot, state::DONE, Here(self));
        self.rounds.wait_for_phase(slot, round, Waits(self, slot));
        self.runs();
    }

    fn leaves_ring(&self, slot: u32, how: u32) {
        self.rest.forget(slot);
        self.in_turn.set(0);
        self.rounds.pass(slot, how, Here(self));
    }

    fn comes_back(&self, slot: u32, op: Op) {
        self.rounds.wait_for_turn(slot, Waits(self, slot));
        let why = self.rounds.member(slot).why.load(Relaxed);
        self.has_turn(slot, op, 1 + why);
    }

    fn prints(&self, slot: u32) {
        if self.leads(slot) {
            return self.operates(slot, || self.does(slot, Op::Print, 1));
        }
        if self.rounds.is_alone_in_ring(slot) {
            return self.does(slot, Op::Print, 2);
        }
        self.runs_no_more();
        self.rounds.arrive_for_io(slot, Here(self));
        self.rounds.wait_for_turn(slot, Waits(self, slot));
        self.has_turn(slot, Op::Print, 0);
        self.in_turn.set(0);
        let before = self.rounds.batches();
        self.rounds.pass(slot, state::IO_DONE, Here(self));
        self.rounds.wait_for_batch(slot, before, Waits(self, slot));
        self.runs();
    }

    /// An operation of the lead.
    fn operates(&self, slot: u32, what: impl Fn()) {
        self.lead.operation_begins(pause);
        assert!(self.leads(slot) && self.lead.is(slot), "two lead");
        what();
        assert_eq!(self.look.get(), 0, "somebody looks at what is changed");
        self.lead.operation_ends();
    }

    fn looks_at_table(&self, slot: u32) {
        if self.leads(slot) || !self.lead.looks(pause) {
            return;
        }
        self.look.set(self.look.get() + 1);
        step();
        self.look.set(self.look.get() - 1);
        self.lead.has_looked();
    }

    fn makes(&self, slot: u32) {
        if self.leads(slot) && self.made.get().is_none() {
            return self.operates(slot, || {
                self.rounds.enrol_at_once(THREADS);
                self.runs();
                self.does(slot, Op::Make, 1);
                self.made.set(Some(true));
            });
        }
        self.begins_turn(slot, Op::Make);
        if self.made.get().is_none() {
            self.rounds.enrol(THREADS);
            self.made.set(Some(false));
        }
        self.ends_turn(slot);
    }

    fn takes_lead(&self, slot: u32) {
        self.begins_turn(slot, Op::Lead);
        self.rounds.take_lead(slot, self.lead);
        self.ends_turn(slot);
        if self.lead.is(slot) {
            self.leader.set(slot);
        }
    }

    fn waits(&self, slot: u32) {
        self.begins_turn(slot, Op::Wait);
        if self.permits.get() != 0 {
            self.permits.set(self.permits.get() - 1);
        } else {
            let m = self.rounds.member(slot);
            m.since.store(self.rounds.wait_number(), Relaxed);
            m.word.store(WORD, Relaxed);
            m.deadline.store(self.time.get() + PATIENCE, Relaxed);
            m.not_before.store(1, Relaxed);
            self.leaves_ring(slot, state::WAITS);
            self.comes_back(slot, Op::Wait);
        }
        self.ends_turn(slot);
    }

    fn wakes(&self, slot: u32) {
        self.begins_turn(slot, Op::Wake);
        let member = |s: &u32| self.rounds.member(*s);
        let waits = self.rounds.all_in(state::WAITS, Here(self));
        let waits = waits.filter(|s| member(s).word.load(Relaxed) == WORD);
        match waits.min_by_key(|s| member(s).since.load(Relaxed)) {
            Some(first) => self.rounds.recall(first, why::WOKEN),
            None => self.permits.set(self.permits.get() + 1),
        }
        self.ends_turn(slot);
    }

    fn calls(&self, slot: u32) {
        self.begins_turn(slot, Op::Call);
        self.leaves_ring(slot, state::OUTSIDE);
        step();
        self.next_if(self.rest.notify(slot));
        self.comes_back(slot, Op::Call);
        self.ends_turn(slot);
    }

    fn waits_for_child(&self, slot: u32) {
        self.begins_turn(slot, Op::Child);
        let m = self.rounds.member(slot);
        m.since.store(self.rounds.wait_number(), Relaxed);
        m.deadline
            .store(self.time.get() + 1 + random(PATIENCE), Relaxed);
        m.not_before.store(0, Relaxed);
        self.leaves_ring(slot, state::OUTSIDE);
        self.rounds.waits_for_child(slot);
        let passed_over = || m.child.load(SeqCst) == child::ANY_TIME || is_dead();
        match random(3) {
            // It needs one of the others.
            0 => until(&passed_over),
            // It ends while the others wait.
            1 => until(&|| self.rounds.has_turn(slot) || passed_over()),
            _ => (0..random(30)).for_each(|_| step()),
        }
        ends_with_the_dead();
        let in_order = self.rounds.child_has_come(slot, pause);
        if !in_order || random(2) == 0 {
            self.next_if(self.rest.notify(slot));
        }
        self.comes_back(slot, Op::Child);
        self.ends_turn(slot);
    }

    fn exits(&self, slot: u32) {
        self.begins_turn(slot, Op::Exit);
        self.in_turn.set(0);
        self.rounds.retire(slot);
        self.rounds.pass(slot, state::NOBODY, Here(self));
    }

    fn thread(&self, slot: u32) {
        if slot == THREADS {
            until(&|| self.made.get().is_some() || is_dead() || all_over(1..slot as usize));
            match self.made.get() {
                None => return,
                Some(true) => {}
                Some(false) => {
                    let born = self.rounds.member(slot).born.load(Relaxed);
                    self.rounds.wait_for_phase(slot, born, Waits(self, slot));
                    self.runs();
                }
            }
        }
        for n in 0.. {
            let op = self.program.borrow()[slot as usize - 1].get(n).copied();
            match op {
                Some(op @ (Op::Turn | Op::PrintMuch)) => {
                    self.begins_turn(slot, op);
                    self.ends_turn(slot);
                }
                Some(Op::Print) => self.prints(slot),
                Some(Op::Wait) => self.waits(slot),
                Some(Op::Wake) => self.wakes(slot),
                Some(Op::Make) => self.makes(slot),
                Some(Op::Lead) => self.takes_lead(slot),
                Some(Op::Look) => self.looks_at_table(slot),
                Some(Op::Call) => self.calls(slot),
                Some(Op::Child) => self.waits_for_child(slot),
                Some(Op::Exit) => self.exits(slot),
                None => return,
            }
        }
    }

    /// Passes over those who wait for a child in their turn.
    fn watcher(&self) {
        let r = self.rounds;
        let waits = || {
            let turn = r.turn.load(SeqCst).checked_sub(1);
            turn.is_some_and(|s| r.member(s).child.load(SeqCst) == child::IN_ORDER)
        };
        let over = || all_over(1..WATCHER) || is_dead();
        loop {
            until(&|| waits() || over());
            if over() {
                return;
            }
            r.pass_over_child_waiter(Here(self));
        }
    }

    fn after(&self) {
        let done = self.done.borrow();
        let killed = is_dead();
        if !killed {
            let r = self.rounds;
            assert_eq!((r.live(), r.ring_len()), (0, 0), "somebody is left");
            assert_eq!(r.turn.load(SeqCst), 0, "a turn is not over");
            assert_eq!(self.run.get(), 0, "somebody counts as running");
        }
        if self.world {
            return;
        }
        let mut known = self.known.borrow_mut();
        match known.get(&self.number()) {
            Some(all) if killed => assert!(all.starts_with(&done), "another order"),
            Some(all) => assert_eq!(*all, *done, "another order"),
            None if killed => {}
            None => {
                known.insert(self.number(), done.clone());
            }
        }
    }

    fn is_tried(&self, n: u64, kills: u32, spoil: Option<Spoil>) -> Result<(), String> {
        let [a, b, c, d] = [1, 2, 3, 4].map(|slot| move || self.thread(slot));
        let watcher = || self.watcher();
        let threads: [(usize, &dyn Fn()); 5] =
            [(1, &a), (2, &b), (3, &c), (4, &d), (WATCHER, &watcher)];
        let (before, after) = (|| self.begins(), || self.after());
        explore(n, kills, spoil, &before, &threads, &after)
    }
}

#[test]
fn turns_have_an_order_of_the_programs() {
    Model::new(false).is_tried(schedules(), 0, None).unwrap();
}

#[test]
fn all_end_with_one_that_was_killed() {
    let m = Model::new(false);
    m.is_tried(PROGRAMS, 0, None).unwrap();
    m.is_tried(schedules(), 1, None).unwrap();
}

#[test]
fn what_comes_from_outside_is_heard() {
    Model::new(true).is_tried(schedules(), 0, None).unwrap();
}

#[test]
fn all_end_with_one_that_was_killed_in_a_call() {
    Model::new(true).is_tried(schedules(), 1, None).unwrap();
}

#[test]
fn broken_rounds_are_found() {
    let m = Model::new(false);
    let (r, lead) = (m.rounds, m.lead);
    let is_found = |spoil: Spoil| assert!(m.is_tried(FOUND_WITHIN, 0, Some(spoil)).is_err());
    // One that runs isn't waited for.
    is_found(&|a: &Access, _: u64, v: u64| {
        let begins = a.is_to(&r.running) && a.kind == Kind::Store && v > 1;
        Some(v - u64::from(begins))
    });
    // Whose turn was the last one has the next one, too.
    is_found(&|a: &Access, _: u64, v: u64| (v != 0 || !a.is_to(&r.turn)).then_some(v));
    // Who is woken, or made, isn't in the ring.
    is_found(&|a: &Access, old: u64, v: u64| (v <= old || !a.is_to(&r.ring_len)).then_some(v));
    // A batch that is over goes on.
    is_found(&|a: &Access, _: u64, v: u64| (v != 0 || !a.is_to(&r.asking)).then_some(v));
    // A leader doesn't say that it changes something.
    is_found(&|a: &Access, old: u64, v: u64| {
        (!a.is_to(&lead.looking) || v.abs_diff(old) == 1).then_some(v)
    });
}

#[test]
fn broken_ways_back_are_found() {
    let m = Model::new(true);
    let (r, rest) = (m.rounds, m.rest);
    let is_found = |spoil: Spoil| assert!(m.is_tried(FOUND_WITHIN, 0, Some(spoil)).is_err());
    // Who notifies leaves no word of it.
    is_found(&|a: &Access, _: u64, v: u64| (v == 0 || !a.is_to(&rest.notified)).then_some(v));
    // Who ends the rest is not the only one.
    is_found(&|a: &Access, _: u64, v: u64| (v != 0 || !a.is_to(&rest.rests)).then_some(v));
    // Whose turn is passed over thinks that it has it still.
    is_found(&|a: &Access, _: u64, v: u64| {
        let said = (1..=THREADS).any(|s| a.is_to(&r.member(s).child));
        match said && v as u32 == child::TAKEN {
            true => Some(child::IN_ORDER.into()),
            false => Some(v),
        }
    });
}
