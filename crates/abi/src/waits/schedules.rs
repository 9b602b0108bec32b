//! Waiting rooms under schedules of all kinds: whoever waits is called, and nobody seems to wait in vain who doesn't.

use super::{Parked, What};
use crate::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::interleave::{self, explore, random, schedules, step, Access, Spoil};
use crate::order::OrderHead;
use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

/// Threads of the model, from slot 1 on.
const THREADS: usize = 3;
/// Turns that they have together.
const TURNS: u64 = 10;

/// A head of which all is zero.
fn head() -> &'static OrderHead {
    let layout = std::alloc::Layout::new::<OrderHead>();
    // SAFETY: zero is a value of all that is in it; it stays.
    unsafe { &*(std::alloc::alloc_zeroed(layout) as *const OrderHead) }
}

/// What has turns.
#[derive(Clone, Copy)]
enum Thing {
    /// The stamp with this number is next.
    Stamp(u64),
    /// So many operations have been made on the object.
    Object(usize, u64),
}

struct Model {
    head: &'static OrderHead,
    /// Operations made on two objects.
    made: &'static [AtomicU64; 2],
    /// What each thread does, in its order.
    plans: RefCell<[Vec<Thing>; THREADS]>,
    over: Cell<u32>,
    alone: Cell<u64>,
}

impl Model {
    fn new(head: &'static OrderHead) -> Model {
        Model {
            head,
            made: Box::leak(Box::new([AtomicU64::new(0), AtomicU64::new(0)])),
            plans: RefCell::default(),
            over: Cell::new(0),
            alone: Cell::new(0),
        }
    }

    /// Turns are dealt out as a recording might have been: one after the other, to anybody.
    fn deal(&self) {
        let mut plans = self.plans.borrow_mut();
        plans.iter_mut().for_each(Vec::clear);
        let (mut stamp, mut made) = (0, [0; 2]);
        for _ in 0..TURNS {
            let thing = match random(3) {
                2 => {
                    stamp += 1;
                    Thing::Stamp(stamp - 1)
                }
                k => {
                    made[k as usize] += 1;
                    Thing::Object(k as usize, made[k as usize] - 1)
                }
            };
            plans[random(THREADS as u64) as usize].push(thing);
        }
        self.over.set(0);
        self.alone.set(0);
    }

    fn key(&self, thing: Thing) -> (u64, u64) {
        match thing {
            Thing::Stamp(n) => (What::Stamp(n).key(), 0),
            Thing::Object(k, n) => (What::Object(0x7000 + 8 * k as u64).key(), n),
        }
    }

    fn word(&self, thing: Thing) -> (&AtomicU64, u64) {
        match thing {
            Thing::Stamp(n) => (&self.head.stamp.0, n),
            Thing::Object(k, n) => (&self.made[k], n),
        }
    }

    fn waits(&self, slot: usize, thing: Thing) {
        let (word, n) = self.word(thing);
        let (key, number) = self.key(thing);
        let due = || word.load(SeqCst) == n;
        if due() {
            return;
        }
        let w = self.head.begin_wait(slot, key, number);
        w.until(due, |generation| {
            let sleep = || interleave::sleep(w.word(), generation, false);
            self.head.sleep_counted(sleep);
        });
    }

    fn goes_on(&self, thing: Thing) {
        let (word, n) = self.word(thing);
        word.store(n + 1, SeqCst);
        let next = match thing {
            Thing::Stamp(n) => Thing::Stamp(n + 1),
            Thing::Object(k, n) => Thing::Object(k, n + 1),
        };
        let (key, number) = self.key(next);
        let wake = |word: &AtomicU32| interleave::wake(word, u32::MAX);
        self.head.call(key, number, wake);
    }

    fn thread(&self, i: usize) {
        let plan = self.plans.borrow()[i].clone();
        for thing in plan {
            self.waits(i + 1, thing);
            let (word, n) = self.word(thing);
            assert_eq!(word.load(SeqCst), n, "a turn that another one has");
            self.goes_on(thing);
        }
        self.over.set(self.over.get() | 1 << i);
    }

    /// How all threads wait that are not over; `None`: one of them doesn't, as far as can be seen.
    fn all_parked(&self) -> Option<Vec<Parked>> {
        let left = (0..THREADS).filter(|i| self.over.get() & 1 << i == 0);
        left.map(|i| self.head.parked(i + 1)).collect()
    }

    /// The driver: ends the replay where all wait in vain, twice in a row and each in the same wait.
    fn driver(&self) {
        let mut before = None;
        while !interleave::all_over(1..2) {
            let now = self.all_parked().filter(|all| !all.is_empty());
            assert!(now.is_none() || now != before, "all seem to wait in vain");
            before = now;
            step();
        }
    }

    fn is_tried(&self, n: u64, spoil: Option<Spoil>) -> Result<(), String> {
        let after = || {
            let h = self.head;
            assert_eq!(h.sleeping.load(SeqCst), 0, "somebody counts as asleep");
            let waiting = h.rooms.iter().any(|r| r.waiting.load(SeqCst) != 0);
            assert!(!waiting, "somebody counts as waiting");
        };
        let driver = || self.driver();
        let [a, b, c] = [0, 1, 2].map(|i| move || self.thread(i));
        let threads: [(usize, &dyn Fn()); 4] = [(0, &driver), (1, &a), (1, &b), (1, &c)];
        explore(n, 0, spoil, &|| self.deal(), &threads, &after)
    }
}

#[test]
fn whoever_waits_is_called() {
    Model::new(head()).is_tried(schedules(), None).unwrap();
}

#[test]
fn broken_waiting_rooms_are_found() {
    let m = Model::new(head());
    let h = m.head;
    let in_rooms = |a: &Access| {
        (&h.rooms as *const _ as usize..).contains(&a.address)
            && a.address < &h.rooms as *const _ as usize + core::mem::size_of_val(&h.rooms)
    };
    let is_generation = |a: &Access| in_rooms(a) && a.address % 8 == 0;
    let is_count = |a: &Access| in_rooms(a) && a.address % 8 == 4;
    // Who is to look again is woken, but finds the room as it was.
    let same = |a: &Access, _: u64, v: u64| (!is_generation(a)).then_some(v);
    assert!(m.is_tried(interleave::FOUND_WITHIN, Some(&same)).is_err());
    // Who waits is not counted.
    let uncounted = |a: &Access, _: u64, v: u64| (!is_count(a)).then_some(v);
    assert!(m
        .is_tried(interleave::FOUND_WITHIN, Some(&uncounted))
        .is_err());
    // Who was called counts as asleep still.
    let asleep = |a: &Access, old: u64, v: u64| (!a.is_to(&h.sleeping) || v > old).then_some(v);
    assert!(m.is_tried(interleave::FOUND_WITHIN, Some(&asleep)).is_err());
    // A wait that ends does not say so.
    let unended = |a: &Access, _: u64, v: u64| {
        (v & 1 != 0 || !h.waits.iter().take(4).any(|w| a.is_to(&w.count))).then_some(v)
    };
    assert!(m
        .is_tried(interleave::FOUND_WITHIN, Some(&unended))
        .is_err());
}
