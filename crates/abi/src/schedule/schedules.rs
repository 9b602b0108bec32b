//! The lock and the baton under schedules of all kinds, with kills. Each is broken in one place, too, and that has to be found.

use super::lock::{Kernel, Locked};
use super::tests::session;
use super::*;
use crate::atomic::AtomicU32;
use crate::interleave::{
    self, explore, is_killed, random, schedules, step, until, Access, Spoil, FOUND_WITHIN,
};
use core::cell::Cell;
use std::string::String;

/// The agent's number among the processes that may be killed.
const AGENT: usize = 4;
/// A word of the program on which its threads wait.
const KEY: FutexKey = FutexKey {
    space: 1,
    address: 0x1000,
};

/// Sleeping and waking as a schedule has them. Whether sleeps have a time limit, which only a death may make them need.
#[derive(Clone, Copy)]
struct Tried;

impl Kernel for Tried {
    fn sleep(self, word: &AtomicU32, value: u32) {
        interleave::sleep(word, value, true);
    }

    fn wake(self, word: &AtomicU32) {
        interleave::wake(word, 1);
    }
}

/// Something that one thread at a time is to have.
#[derive(Default)]
struct Alone(Cell<u32>);

impl Alone {
    fn has(&self, who: u32) {
        assert_eq!(self.0.replace(who), 0, "two have it at once");
        step();
        step();
        self.0.set(0);
    }

    /// Whoever had it was killed.
    fn is_left_by(&self, who: impl Fn(u32) -> bool) {
        if who(self.0.get()) {
            self.0.set(0);
        }
    }
}

/// Slot `i` is of process `p`, and runs.
fn enrol(s: &Session, i: u32, p: u32, state: u32) {
    s.slot(i as usize).process.store(p, Relaxed);
    s.slot(i as usize).state.store(state, Relaxed);
    let process = &s.processes[p as usize];
    process.state.store(process_state::LIVE, Relaxed);
    process.live_threads.fetch_add(1, Relaxed);
    s.live_threads.fetch_add(1, Relaxed);
    s.slots_used.fetch_max(i + 1, Relaxed);
}

fn lock_of(s: &'static Session, i: u32) -> Locked<'static, Tried> {
    Lists(s).lock(owner(s.slot(i as usize).process.load(Relaxed), i), Tried)
}

/// Three processes with a thread each that take the lock again and again, and one that frees it for the dead.
fn lock_is_tried(
    s: &'static Session,
    n: u64,
    kills: u32,
    spoil: Option<Spoil>,
) -> Result<(), String> {
    let alone = Alone::default();
    let thread = |i: u32| {
        for _ in 0..3 {
            let l = lock_of(s, i);
            alone.has(i);
            drop(l);
        }
    };
    let agent = || frees_for_the_dead(s, &|p| alone.is_left_by(|who| who == p));
    let before = || {
        alone.0.set(0);
        (1..4).for_each(|i| enrol(s, i, i, slot_state::BLOCKED));
    };
    let after = || assert_eq!(s.schedule_lock.load(Relaxed) & !(WAITERS | OWNER_DIED), 0);
    let threads: [(usize, &dyn Fn()); 4] = [
        (0, &agent),
        (1, &|| thread(1)),
        (2, &|| thread(2)),
        (3, &|| thread(3)),
    ];
    explore(n, kills, spoil, &before, &threads, &after)
}

/// The agent, as far as it frees the lock for those that died with it.
fn frees_for_the_dead(s: &'static Session, seen: &dyn Fn(u32)) {
    let freed = Cell::new(0u64);
    let dead = || (1..4u32).find(|p| freed.get() & 1 << p == 0 && is_killed(*p as usize));
    loop {
        until(&|| dead().is_some() || interleave::all_over(1..4));
        let Some(p) = dead() else { return };
        freed.set(freed.get() | 1 << p);
        seen(p);
        if Lists(s).free_lock(p, None) {
            Tried.wake(&s.schedule_lock);
        }
    }
}

#[test]
fn the_lock_is_one_threads_at_a_time() {
    lock_is_tried(session(), schedules(), 0, None).unwrap();
}

#[test]
fn the_lock_outlives_those_who_have_it() {
    lock_is_tried(session(), schedules(), 2, None).unwrap();
}

/// What somebody waits for never comes.
fn is_stuck(found: Result<(), String>) {
    let why = found.unwrap_err();
    assert!(
        why.contains("for ever") || why.contains("never ends"),
        "{why}"
    );
}

/// Two have what one is to have.
fn is_shared(found: Result<(), String>) {
    let why = found.unwrap_err();
    assert!(why.contains("two have it at once"), "{why}");
}

#[test]
fn a_broken_lock_is_found() {
    let s = session();
    let is_lock = |a: &Access| a.is_to(&s.schedule_lock);
    // Who has slept takes it as if nobody else did.
    let forgets = |a: &Access, old: u64, v: u64| match is_lock(a) && owner_of(old as u32).is_none()
    {
        true => Some(v & !u64::from(WAITERS)),
        false => Some(v),
    };
    is_stuck(lock_is_tried(s, FOUND_WITHIN, 0, Some(&forgets)));
    // It is given back as soon as it is had.
    let loses = |a: &Access, _: u64, v: u64| (!is_lock(a) || v as u32 & !WAITERS == 0).then_some(v);
    is_shared(lock_is_tried(s, FOUND_WITHIN, 0, Some(&loses)));
    // Whoever died with it is taken for one that lives.
    let keeps =
        |a: &Access, _: u64, v: u64| (!is_lock(a) || v as u32 & OWNER_DIED == 0).then_some(v);
    is_stuck(lock_is_tried(s, FOUND_WITHIN, 1, Some(&keeps)));
}

/// What the threads of the baton's model share.
struct Model {
    s: &'static Session,
    alone: Alone,
}

impl Model {
    fn new(s: &'static Session) -> Model {
        Model {
            s,
            alone: Alone::default(),
        }
    }

    fn slot(&self, i: u32) -> &Slot {
        self.s.slot(i as usize)
    }

    fn acquire(&self, i: u32) {
        if !lock_of(self.s, i).come_back(i, || {}) {
            self.slot(i).wait_for_baton(self.s, Tried);
        }
        // The next holder logs from whom the baton was taken.
        self.s.stolen_from.store(0, Relaxed);
    }

    fn release(&self, i: u32, state: u32) {
        lock_of(self.s, i).release(i, state, |l| l.next());
    }

    /// A call that may wait, in which the agent may take the baton.
    fn calls(&self, i: u32) {
        self.slot(i).enter_call();
        step();
        if !self.slot(i).leave_call() {
            self.acquire(i);
        }
    }

    /// Gives way to others that are ready.
    fn steps_back(&self, i: u32) {
        if self.s.ready_count.load(Relaxed) != 0 {
            lock_of(self.s, i).queue_again(i, |l| l.next());
            self.slot(i).wait_for_baton(self.s, Tried);
        }
    }

    /// futex(2) of the program: wakes one that waits.
    fn wakes(&self, i: u32) {
        let l = lock_of(self.s, i);
        if let Some(k) = l.futex_take(KEY, |_, _| true) {
            l.push_ready(k);
        }
    }

    /// futex(2) of the program: waits until it is woken, or its time is over.
    fn waits(&self, i: u32) {
        let l = lock_of(self.s, i);
        l.futex_insert(i, KEY, !0);
        let skip = l.next();
        l.pass(skip);
        step();
        let me = self.slot(i);
        if me.takes_baton(self.s, me.go.load(Acquire)) {
            return;
        }
        let l = lock_of(self.s, i);
        if l.futex_cancel(i) {
            let has = l.come_back(i, || {});
            if !has {
                self.slot(i).wait_for_baton(self.s, Tried);
            }
            return;
        }
        drop(l);
        self.slot(i).wait_for_baton(self.s, Tried);
    }

    /// A thread: each has the baton alone between any two of these.
    fn thread(&self, i: u32) {
        self.acquire(i);
        for _ in 0..3 {
            self.alone.has(i);
            match random(5) {
                0 => self.calls(i),
                1 => self.steps_back(i),
                2 => self.wakes(i),
                3 => self.waits(i),
                _ => {
                    self.release(i, slot_state::BLOCKED);
                    step();
                    self.acquire(i);
                }
            }
        }
        self.alone.has(i);
        self.release(i, slot_state::EXITING);
    }

    fn dead(&self) -> Option<u32> {
        let lives =
            |p: u32| self.s.processes[p as usize].state.load(Relaxed) == process_state::LIVE;
        (1..4).find(|p| is_killed(*p as usize) && lives(*p))
    }

    fn may_take(&self) -> bool {
        let s = self.s;
        let in_call = |i| self.slot(i).state.load(Relaxed) == slot_state::IN_CALL;
        s.baton.load(Relaxed).checked_sub(1).is_some_and(in_call)
            && s.ready_count.load(Relaxed) != 0
            && s.stolen_from.load(Relaxed) == 0
    }

    /// The agent, with this id: takes the baton from those inside calls, passes over those that don't know of it, and buries the dead.
    fn agent(&self, id: u32) {
        let s = self.s;
        let lock = || Lists(s).lock_within(id | WAITERS, Tried, 4);
        let over = || interleave::all_over(1..4);
        loop {
            let left = || Lists(s).lock_is_left();
            until(&|| self.dead().is_some() || self.may_take() || left() || over());
            for p in (1..4).filter(|p| is_killed(*p as usize)) {
                if Lists(s).free_lock(p, None) {
                    Tried.wake(&s.schedule_lock);
                }
            }
            let holder = s.baton.load(Relaxed);
            if let Some(p) = self.dead() {
                let of_it = |i: u32| i != 0 && self.slot(i).process.load(Relaxed) == p;
                self.alone.is_left_by(of_it);
                if let Some(l) = lock() {
                    l.bury(p, None);
                }
            } else if left() {
                drop(lock());
            } else if over() {
                return;
            } else if let Some(l) = lock() {
                match random(4) {
                    0 => l.pass_over(holder),
                    _ => l.take_from_call(holder),
                };
            }
        }
    }

    /// The next agent, where the one with this id is killed. The kernel frees the lock (set_robust_list(2)).
    fn next_agent(&self, id: u32) {
        until(&|| is_killed(AGENT) || interleave::all_over(1..AGENT + 1));
        let l = &self.s.schedule_lock;
        let left = |v: u32| (v & !WAITERS == id).then_some(v & WAITERS | OWNER_DIED);
        if l.fetch_update(AcqRel, Acquire, left).is_ok() {
            Tried.wake(l);
        }
        self.agent(id + 1);
    }

    /// Four threads, of which two are of one process.
    fn is_tried(&self, n: u64, kills: u32, spoil: Option<Spoil>) -> Result<(), String> {
        let before = || {
            self.alone.0.set(0);
            for (i, p) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
                enrol(self.s, i, p, slot_state::BLOCKED);
            }
        };
        let after = || {
            let s = self.s;
            assert_eq!(s.ready_count.load(Relaxed), 0, "somebody is ready still");
            assert_eq!(
                s.baton.load(Relaxed),
                BATON_FREE,
                "somebody has the baton still"
            );
            for i in 1..5 {
                let state = self.slot(i).state.load(Relaxed);
                assert!(
                    [slot_state::EXITING, slot_state::FREE].contains(&state),
                    "{i} is {state}"
                );
            }
        };
        let (agent, next) = (|| self.agent(0x1000), || self.next_agent(0x1000));
        let [a, b, c, d] = [1, 2, 3, 4].map(|i| move || self.thread(i));
        let threads: [(usize, &dyn Fn()); 6] = [
            (AGENT, &agent),
            (0, &next),
            (1, &a),
            (1, &b),
            (2, &c),
            (3, &d),
        ];
        explore(n, kills, spoil, &before, &threads, &after)
    }
}

#[test]
fn one_thread_has_the_baton() {
    Model::new(session())
        .is_tried(schedules(), 0, None)
        .unwrap();
}

#[test]
fn the_baton_outlives_those_who_have_it() {
    Model::new(session())
        .is_tried(schedules(), 2, None)
        .unwrap();
}

#[test]
fn a_broken_baton_is_found() {
    let m = Model::new(session());
    let s = m.s;
    let of_slot =
        |a: &Access, field: fn(&Slot) -> &AtomicU32| (1..5).any(|i| a.is_to(field(s.slot(i))));
    // Who gets it is not told.
    let untold = |a: &Access, _: u64, v: u64| (v & 1 != 0 || !of_slot(a, |s| &s.go)).then_some(v);
    is_stuck(m.is_tried(FOUND_WITHIN, 0, Some(&untold)));
    // Who has begun does not say so.
    let twice = |a: &Access, _: u64, v: u64| (v & 1 == 0 || !of_slot(a, |s| &s.go)).then_some(v);
    assert!(m.is_tried(FOUND_WITHIN, 0, Some(&twice)).is_err());
    // Who is back from its call and who takes the baton both think that they were first.
    let both = |a: &Access, _: u64, v: u64| {
        (v as u32 != slot_state::BLOCKED || !of_slot(a, |s| &s.state)).then_some(v)
    };
    assert!(m.is_tried(FOUND_WITHIN, 0, Some(&both)).is_err());
    // The end of the queue is not kept.
    let end = |a: &Access, _: u64, v: u64| (v != 0 || !a.is_to(&s.ready_tail)).then_some(v);
    assert!(m.is_tried(FOUND_WITHIN, 0, Some(&end)).is_err());
    // Nobody has it when nobody wants it, and that is not said.
    let kept = |a: &Access, _: u64, v: u64| (v != 0 || !a.is_to(&s.baton)).then_some(v);
    assert!(m.is_tried(FOUND_WITHIN, 0, Some(&kept)).is_err());
    // Who finds the lock of somebody that was killed doesn't know of it, and leaves all as it is.
    let unsaid = |a: &Access, _: u64, v: u64| match a.is_to(&s.schedule_lock) {
        true => Some(v & !u64::from(OWNER_DIED)),
        false => Some(v),
    };
    is_stuck(m.is_tried(FOUND_WITHIN, 1, Some(&unsaid)));
}
