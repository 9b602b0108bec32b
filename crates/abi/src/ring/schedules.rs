//! The ring under schedules of all kinds: whatever is written is read, in one piece and in order, and who waits is woken.

use super::{place_of, Producer, RingControl};
use crate::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering::*};
use crate::interleave::{
    self, explore, random, schedules, step, until, Access, Spoil, FOUND_WITHIN,
};
use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

/// Bytes of the model's ring.
const SIZE: u64 = 4;
/// Events that are written.
const EVENTS: usize = 6;

struct Model {
    ring: &'static RingControl,
    bytes: &'static [AtomicU8; 2 * SIZE as usize],
    /// How long events are: some are longer than the ring.
    lengths: RefCell<Vec<usize>>,
    read: RefCell<Vec<u8>>,
    tail: Cell<u64>,
    /// Who sleeps is looked at before it is said what there is.
    looks_first: bool,
}

/// The recording's producer.
struct Writes;

impl Producer for Writes {
    fn is_lost(&self) -> bool {
        false
    }

    fn tells(&self) {
        step();
    }

    fn sleeps(&self, word: &AtomicU32) {
        interleave::sleep(word, 1, false);
    }
}

impl Model {
    fn new(looks_first: bool) -> Model {
        // SAFETY: only atomics, for which zero is a value.
        let ring: RingControl = unsafe { core::mem::zeroed() };
        Model {
            ring: Box::leak(Box::new(ring)),
            bytes: Box::leak(Box::new(core::array::from_fn(|_| AtomicU8::new(0)))),
            lengths: RefCell::default(),
            read: RefCell::default(),
            tail: Cell::new(0),
            looks_first,
        }
    }

    fn begin(&self) {
        let lengths = (0..EVENTS).map(|_| 1 + random(2 * SIZE) as usize);
        *self.lengths.borrow_mut() = lengths.collect();
        self.read.borrow_mut().clear();
        self.tail.set(0);
    }

    fn all(&self) -> usize {
        self.lengths.borrow().iter().sum()
    }

    /// Copies `n` bytes to position `at`, in pieces that lie in one piece in the ring.
    fn put(&self, at: u64, n: u64) {
        let mut done = 0;
        while done < n {
            let (offset, contiguous) = place_of(at + done, SIZE, false);
            let piece = contiguous.min(n - done);
            for k in 0..piece {
                self.bytes[(offset + k) as usize].store((at + done + k) as u8, Relaxed);
            }
            done += piece;
        }
    }

    fn get(&self, at: u64, n: u64) {
        let mut read = self.read.borrow_mut();
        let mut done = 0;
        while done < n {
            let (offset, contiguous) = place_of(at + done, SIZE, false);
            let piece = contiguous.min(n - done);
            for k in 0..piece {
                read.push(self.bytes[(offset + k) as usize].load(Relaxed));
            }
            done += piece;
        }
    }

    /// A thread that records: writes each event as there is room, and shows what it has written of it when there is none, and in the end.
    fn records(&self) {
        let mut at = 0;
        let mut room = SIZE;
        let lengths = self.lengths.borrow().clone();
        for len in lengths {
            let end = at + len as u64;
            while at < end {
                if at >= room {
                    room = at + self.ring.room(at, SIZE);
                }
                if at >= room {
                    self.ring.head.store(at, Release);
                    room = at + self.ring.wait_for_room(at, SIZE, &Writes);
                }
                let n = (end - at).min(room - at);
                self.put(at, n);
                at += n;
            }
            self.ring.head.store(at, Release);
        }
    }

    /// The agent: takes what is there, and looks again when there is more.
    fn agent(&self) {
        let all = self.all() as u64;
        while self.tail.get() != all {
            let tail = self.tail.get();
            until(&|| self.ring.head.load(SeqCst) != tail);
            let there = self.ring.head.load(SeqCst) - tail;
            assert!(there <= SIZE, "an impossible ring index");
            self.get(tail, there);
            self.tail.set(tail + there);
            let is_asleep = match self.looks_first {
                false => self.ring.taken(tail + there),
                true => {
                    let asleep = self.ring.producer_asleep.load(SeqCst) != 0;
                    self.ring.tail.store(tail + there, SeqCst);
                    asleep
                }
            };
            if is_asleep {
                self.ring.producer_asleep.store(0, SeqCst);
                interleave::wake(&self.ring.producer_asleep, 1);
            }
        }
    }

    /// The driver of a replay: writes as there is room, and sees it by looking.
    fn feeds(&self) {
        let (all, mut head) = (self.all() as u64, 0);
        while head != all {
            until(&|| self.ring.room(head, SIZE) != 0);
            let n = self.ring.room(head, SIZE).min(all - head);
            let n = if random(2) == 0 { n } else { 1 + random(n) };
            self.put(head, n);
            head += n;
            let is_asleep = match self.looks_first {
                false => self.ring.filled(head),
                true => {
                    let asleep = self.ring.consumer_asleep.swap(0, SeqCst) != 0;
                    self.ring.head.store(head, SeqCst);
                    asleep
                }
            };
            if is_asleep {
                interleave::wake(&self.ring.consumer_asleep, u32::MAX);
            }
        }
        self.ring.closed.store(1, SeqCst);
        if self.ring.consumer_asleep.swap(0, SeqCst) != 0 {
            interleave::wake(&self.ring.consumer_asleep, u32::MAX);
        }
    }

    /// A thread that replays: reads event by event, until nothing more comes.
    fn replays(&self) {
        let sleep = |word: &AtomicU32, _| {
            interleave::sleep(word, 1, false);
        };
        loop {
            let tail = self.tail.get();
            let n = (1 + random(SIZE)).min((self.all() as u64 - tail).max(1));
            let there = loop {
                if let Some(there) = self.ring.look_for(tail + n, sleep) {
                    break there;
                }
            };
            if !there {
                return;
            }
            self.get(tail, n);
            self.tail.set(tail + n);
            self.ring.taken(tail + n);
        }
    }

    fn is_tried(&self, n: u64, replay: bool, spoil: Option<Spoil>) -> Result<(), String> {
        let after = || {
            let read = self.read.borrow();
            assert_eq!(read.len(), self.all(), "bytes are missing");
            let right = read.iter().enumerate().all(|(k, b)| *b == k as u8);
            assert!(right, "bytes are not what was written: {read:?}");
        };
        let [w, r]: [&dyn Fn(); 2] = match replay {
            false => [&|| self.records(), &|| self.agent()],
            true => [&|| self.feeds(), &|| self.replays()],
        };
        explore(n, 0, spoil, &|| self.begin(), &[(1, w), (2, r)], &after)
    }
}

#[test]
fn what_is_recorded_is_taken() {
    Model::new(false)
        .is_tried(schedules(), false, None)
        .unwrap();
}

#[test]
fn what_is_fed_is_replayed() {
    Model::new(false).is_tried(schedules(), true, None).unwrap();
}

#[test]
fn a_broken_ring_is_found() {
    let m = Model::new(true);
    for replay in [false, true] {
        let found = m.is_tried(FOUND_WITHIN, replay, None);
        assert!(found.is_err(), "replay: {replay}");
    }
    let m = Model::new(false);
    let shifted = |word: &'static AtomicU64| {
        move |a: &Access, _: u64, v: u64| Some(v + u64::from(a.is_to(word)))
    };
    // What is taken is said before it is taken, and what is written before it is written.
    for word in [&m.ring.tail, &m.ring.head] {
        for replay in [false, true] {
            let found = m.is_tried(FOUND_WITHIN, replay, Some(&shifted(word)));
            assert!(found.is_err(), "replay: {replay}");
        }
    }
}
