//! From the trace to the rings of an `order` replay: each thread's events go to its own ring. A thread that lags behind keeps what is meant
//! for it waiting here, so that the others are never held up by it (Castor's read-ahead, 3.7).

use crate::ReplayError;
use reprise_abi::event::{Event, Kind, Tag, NO_SLOT};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::OrderHead;
use reprise_launch::{futex, SharedSession};
use reprise_trace::Reader;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::*;

/// Bytes that wait for threads before more of the trace is read. A thread that needs what lies behind them is served nevertheless.
const PLENTY: usize = 64 << 20;

/// What waits for a slot's ring.
#[derive(Default)]
struct Queue {
    head: u64,
    bytes: VecDeque<u8>,
}

/// Distributes the trace.
#[derive(Default)]
pub(crate) struct Distribution {
    queues: BTreeMap<usize, Queue>,
    waiting: usize,
    frame: Vec<u8>,
    read_all: bool,
    closed: bool,
}

impl Distribution {
    /// Moves what there is room for; false when nothing could be moved.
    pub fn pump(
        &mut self,
        shared: &SharedSession,
        reader: &mut Reader,
    ) -> Result<bool, ReplayError> {
        let Some(head) = shared.order().filter(|_| !self.closed) else {
            return Ok(false);
        };
        let mut moved = false;
        if !self.read_all && (self.waiting < PLENTY || somebody_starves(head)) {
            self.frame.clear();
            moved = true;
            match reader.read_raw(&mut self.frame)? {
                None => self.read_all = true,
                Some(_) => self.sort(head)?,
            }
        }
        for (slot, queue) in &mut self.queues {
            let n = queue.pour(shared, head, *slot);
            self.waiting -= n;
            moved |= n > 0;
        }
        if self.read_all && self.waiting == 0 {
            self.close(head);
            moved = true;
        }
        Ok(moved)
    }

    /// Nothing more will come.
    pub fn close(&mut self, head: &OrderHead) {
        self.closed = true;
        for ring in &head.rings {
            ring.closed.store(1, SeqCst);
            if ring.consumer_asleep.swap(0, SeqCst) != 0 {
                futex::wake(&ring.consumer_asleep, i32::MAX);
            }
        }
    }

    fn sort(&mut self, head: &OrderHead) -> Result<(), ReplayError> {
        let mut at = 0;
        while at < self.frame.len() {
            let Ok(e) = Event::parse(&self.frame[at..]) else {
                return Err(ReplayError::Unsupported(
                    "the trace has a damaged event".into(),
                ));
            };
            at += e.bytes().len();
            let slot = e.header.slot as usize;
            if e.kind == Kind::End {
                head.end.store(e.header.value as u32 as u64 + 1, SeqCst);
                continue;
            }
            if e.header.slot == NO_SLOT || slot >= MAX_SLOTS {
                continue;
            }
            let queue = self.queues.entry(slot).or_default();
            let entries = e.sections().find(|s| s.tag == Tag::Entries);
            let bytes = match (e.kind, entries) {
                (Kind::Sync, Some(s)) => s.bytes,
                _ => e.bytes(),
            };
            queue.bytes.extend(bytes);
            self.waiting += bytes.len();
        }
        Ok(())
    }
}

/// Does a thread sleep because its ring is empty?
fn somebody_starves(head: &OrderHead) -> bool {
    head.rings
        .iter()
        .any(|r| r.consumer_asleep.load(SeqCst) != 0)
}

impl Queue {
    /// Moves what the ring has room for; the bytes that were moved.
    fn pour(&mut self, shared: &SharedSession, head: &OrderHead, slot: usize) -> usize {
        if self.bytes.is_empty() {
            return 0;
        }
        let (ring, size) = (&head.rings[slot], head.ring_size);
        let used = self.head.saturating_sub(ring.tail.load(Acquire));
        let room = size.saturating_sub(used) as usize;
        let n = room.min(self.bytes.len());
        if n == 0 {
            return 0;
        }
        let to = shared.slot_ring(slot);
        for (b, i) in self.bytes.drain(..n).zip(self.head..) {
            // SAFETY: inside the slot's ring, and given back by its consumer.
            unsafe { to.add((i % size) as usize).write(b) };
        }
        self.head += n as u64;
        ring.head.store(self.head, SeqCst);
        if ring.consumer_asleep.swap(0, SeqCst) != 0 {
            futex::wake(&ring.consumer_asleep, i32::MAX);
        }
        n
    }
}
