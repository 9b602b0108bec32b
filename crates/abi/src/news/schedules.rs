//! News under schedules of all kinds: no ring is forgotten.

use super::{tell, Look, News, SlotSet};
use crate::atomic::{AtomicU64, Ordering::*};
use crate::interleave::{
    self, explore, random, schedules, step, time_passes, Access, Spoil, FOUND_WITHIN,
};
use core::cell::RefCell;
use std::boxed::Box;
use std::string::String;

/// Threads that write, each to a ring of its own.
const THREADS: usize = 3;
/// Events of each.
const EVENTS: usize = 3;

struct Model {
    news: &'static [AtomicU64; 1],
    /// Up to where each ring is written.
    heads: &'static [AtomicU64; THREADS],
    /// Up to where the agent has taken it.
    taken: RefCell<[u64; THREADS]>,
    reader: RefCell<News>,
    /// The agent looks a second time where a round is over.
    looks_again: bool,
    /// It looks a second time the next time that it looks.
    looks_next: bool,
    stamp: &'static AtomicU64,
    /// What each thread has drawn, event by event.
    drawn: RefCell<[[Option<u64>; EVENTS + 1]; THREADS]>,
    /// How many events of each are written.
    written: RefCell<[usize; THREADS]>,
}

impl Model {
    fn new(looks_again: bool, looks_next: bool) -> Model {
        Model {
            news: Box::leak(Box::new([AtomicU64::new(0)])),
            heads: Box::leak(Box::new(core::array::from_fn(|_| AtomicU64::new(0)))),
            taken: RefCell::default(),
            reader: RefCell::default(),
            looks_again,
            looks_next,
            stamp: Box::leak(Box::new(AtomicU64::new(0))),
            drawn: RefCell::default(),
            written: RefCell::default(),
        }
    }

    fn draw(&self, i: usize, event: usize) {
        let stamp = self.stamp.fetch_add(1, SeqCst);
        self.drawn.borrow_mut()[i][event] = Some(stamp);
    }

    fn writes(&self, i: usize) {
        for n in 0..EVENTS {
            self.draw(i, n);
            self.heads[i].store(n as u64 + 1, Release);
            tell(self.news, i);
        }
        self.draw(i, EVENTS);
        (0..4).for_each(|_| step());
    }

    /// Takes what there is, and writes what has only stamps that were drawn before, by their stamps.
    fn look(&self, how: Look) {
        let how = if self.looks_again { how } else { Look::Once };
        // A store stays in its buffer for less than the time between two looks.
        time_passes();
        let before = self.stamp.load(SeqCst);
        let mut reader = core::mem::take(&mut *self.reader.borrow_mut());
        if !self.looks_next {
            reader.last = SlotSet::NONE;
        }
        let (slots, _) = reader.take(self.news, THREADS, how);
        *self.reader.borrow_mut() = reader;
        for slot in slots.iter() {
            let head = self.heads[slot].load(SeqCst);
            self.taken.borrow_mut()[slot] = head;
        }
        let next = |i: usize| {
            let n = self.written.borrow()[i];
            let there = n < self.taken.borrow()[i] as usize;
            let stamp = self.drawn.borrow()[i][n].filter(|s| there && *s < before);
            stamp.map(|s| (s, i))
        };
        while let Some((stamp, i)) = (0..THREADS).filter_map(next).min() {
            self.written.borrow_mut()[i] += 1;
            self.is_caused(stamp);
        }
    }

    /// All is written that came before an event with this stamp: what a thread had shown before it drew an earlier one.
    fn is_caused(&self, stamp: u64) {
        for i in 0..THREADS {
            let n = self.written.borrow()[i];
            let next = *self.drawn.borrow()[i].get(n + 1).unwrap_or(&None);
            assert!(
                next.is_none_or(|s| s >= stamp),
                "an effect before its cause"
            );
        }
    }

    /// The agent: looks now and then, and when a round is over, at rings of the last rounds, too.
    fn agent(&self) {
        while !interleave::all_over(1..2) {
            match random(4) {
                0 => {
                    time_passes();
                    self.look(Look::Again);
                }
                _ => self.look(Look::Once),
            }
            step();
        }
        for _ in 0..3 {
            time_passes();
            self.look(Look::Again);
        }
    }

    fn is_tried(&self, n: u64, spoil: Option<Spoil>) -> Result<(), String> {
        let before = || {
            *self.taken.borrow_mut() = [0; THREADS];
            *self.drawn.borrow_mut() = Default::default();
            *self.written.borrow_mut() = [0; THREADS];
            *self.reader.borrow_mut() = News::default();
        };
        let after = || {
            assert_eq!(
                *self.written.borrow(),
                [EVENTS; THREADS],
                "a ring was forgotten"
            )
        };
        let agent = || self.agent();
        let [a, b, c] = [0, 1, 2].map(|i| move || self.writes(i));
        let threads: [(usize, &dyn Fn()); 4] = [(0, &agent), (1, &a), (1, &b), (1, &c)];
        explore(n, 0, spoil, &before, &threads, &after)
    }
}

#[test]
fn no_ring_is_forgotten() {
    Model::new(true, true).is_tried(schedules(), None).unwrap();
}

#[test]
fn broken_news_are_found() {
    let found = |m: &Model, spoil: Option<Spoil>| m.is_tried(FOUND_WITHIN, spoil).unwrap_err();
    // Nobody looks a second time.
    let why = found(&Model::new(false, false), None);
    assert!(why.contains("forgotten") || why.contains("cause"), "{why}");
    // Somebody does, but only after some time.
    let why = found(&Model::new(true, false), None);
    assert!(why.contains("an effect before its cause"), "{why}");
    // Who has news doesn't say so.
    let m = Model::new(true, true);
    let untold = |a: &Access, _: u64, v: u64| (v == 0 || !a.is_to(&m.news[0])).then_some(v);
    let why = found(&m, Some(&untold));
    assert!(why.contains("forgotten"), "{why}");
}
