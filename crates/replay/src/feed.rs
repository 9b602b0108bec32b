//! From the trace to the rings of an `order` replay: each thread's events go to its own ring. A thread that lags behind keeps what is meant
//! for it waiting here, so that the others are never held up by it (Castor's read-ahead, 3.7).

use crate::rings::{to_ring, Rings};
use crate::ReplayError;
use reprise_abi::event::{Event, Kind, ProcessEnd};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::{OrderHead, CLOSED_END, CLOSED_GONE, MAX_VOID, SHARDS};
use reprise_abi::ring::RingControl;
use reprise_abi::session::slot_state;
use reprise_abi::waits::What;
use reprise_launch::{futex, SharedSession};
use reprise_trace::{Moment, Reader, Stamps};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::*;

/// Bytes that wait for threads before more of the trace is read. A thread that needs what lies behind them is served nevertheless.
const PLENTY: usize = 64 << 20;

/// Where nothing more comes of a slot's thread ([`Kind::Gone`]): what follows is for the next one that has the slot.
struct Gate {
    /// Position in the slot's ring.
    at: u64,
    /// Which of the slot's threads it was.
    born: u64,
    /// It was killed with its whole process.
    killed: bool,
    status: i64,
    /// The shard that it had locked, and the number of its operation: it may not have been made.
    open: Option<(usize, u64)>,
}

/// What waits for a slot's ring.
#[derive(Default)]
struct Queue {
    head: u64,
    bytes: VecDeque<u8>,
    gates: VecDeque<Gate>,
    /// So many bytes of what comes next were used up long ago.
    skip: u64,
}

/// Distributes the trace.
#[derive(Default)]
pub(crate) struct Distribution {
    queues: BTreeMap<usize, Queue>,
    waiting: usize,
    frame: Vec<u8>,
    /// Only frames with events before this one are read.
    limit: Option<u64>,
    read_all: bool,
    closed: bool,
    /// The trace says how the program ended.
    pub whole: bool,
    /// Stamps of which the trace has an event; ...
    stamps: Stamps,
    /// ... those that nobody has are known from its summary, or when all was read.
    voids_known: bool,
}

/// Has all been done that was recorded of the slot's thread?
pub(crate) fn is_done(shared: &SharedSession, slot: usize) -> bool {
    // In this order: what an event brings about is done after it was taken.
    shared.order().is_some_and(|head| {
        let ring = &head.rings[slot];
        ring.closed.load(SeqCst) != 0
            && ring.position.load(SeqCst) == ring.head.load(SeqCst)
            && shared.slot(slot).busy.load(SeqCst) == 0
    })
}

impl Distribution {
    /// Before the first event. `voids_known`: the session knows the stamps that no event has.
    pub fn new(voids_known: bool) -> Distribution {
        Distribution {
            voids_known,
            ..Distribution::default()
        }
    }

    /// Only events before this one are handed out, the first of a frame.
    pub fn feed_up_to(&mut self, event: u64) {
        self.limit = Some(event);
    }

    /// Number of the first event of the trace of which something is still to be used up.
    pub fn first_wanted(rings: &Rings, shared: &SharedSession) -> Option<u64> {
        let head = shared.order()?;
        let tail = |slot: usize| head.rings[slot].tail.load(SeqCst);
        let is_past = |slot: usize, born| {
            let it = shared.slot(slot);
            let now = it.born.load(SeqCst);
            now > born || now == born && is_vacant(it.state.load(SeqCst))
        };
        rings.first_wanted(tail, is_past)
    }

    /// The session is what it was at the moment at which the trace begins.
    pub fn begin(
        &mut self,
        moment: &Moment,
        shared: &SharedSession,
        reader: &mut Reader,
    ) -> Result<(), ReplayError> {
        *self = Distribution::new(self.voids_known);
        self.stamps.add_below(moment.stamp);
        self.go_on_at(moment.event, &Rings::beginning(moment), shared, reader)
    }

    /// The session is what it was at an earlier moment: what is in the slots' rings comes from the trace once more.
    pub fn seek(
        &mut self,
        rings: &Rings,
        shared: &SharedSession,
        reader: &mut Reader,
    ) -> Result<(), ReplayError> {
        let first = Distribution::first_wanted(rings, shared).unwrap_or(reader.len());
        *self = Distribution::new(true);
        self.go_on_at(first, rings, shared, reader)
    }

    /// Goes on with event `first`, before which nothing is wanted.
    fn go_on_at(
        &mut self,
        first: u64,
        rings: &Rings,
        shared: &SharedSession,
        reader: &mut Reader,
    ) -> Result<(), ReplayError> {
        let Some(head) = shared.order() else {
            return Ok(());
        };
        reader.seek(first)?;
        let mut wanted = Vec::new();
        for slot in rings.slots() {
            let (ring, at) = (&head.rings[slot], rings.position(slot, first));
            let tail = ring.tail.load(SeqCst);
            let queue = Queue {
                head: at.min(tail),
                skip: tail.saturating_sub(at),
                ..Queue::default()
            };
            self.queues.insert(slot, queue);
            wanted.push((slot, ring.head.swap(tail, SeqCst)));
        }
        // Who was in the middle of an event counts on what he saw.
        let is_there = |(slot, was): &(usize, u64)| head.rings[*slot].head.load(SeqCst) >= *was;
        while !wanted.iter().all(is_there) {
            // However much waits for others.
            let mut missing = wanted.iter().filter(|w| !is_there(w));
            let read = missing.any(|(slot, _)| self.queues[slot].bytes.is_empty())
                && self.read_frame(reader)?;
            if !self.pump(shared, reader)? && !read {
                return Err(ReplayError::Unsupported(
                    "what was in a thread's ring is not in the trace".into(),
                ));
            }
        }
        Ok(())
    }

    /// Moves what there is room for; false when nothing could be moved.
    pub fn pump(
        &mut self,
        shared: &SharedSession,
        reader: &mut Reader,
    ) -> Result<bool, ReplayError> {
        let Some(head) = shared.order() else {
            return Ok(false);
        };
        let mut moved = false;
        if self.waiting < PLENTY || somebody_starves(head) {
            moved = self.read_frame(reader)?;
        }
        let open = if self.closed { CLOSED_END } else { 0 };
        for (slot, queue) in &mut self.queues {
            let n = queue.pour(shared, head, *slot);
            self.waiting -= n;
            moved |= n > 0 || queue.pass_gate(shared, head, *slot, open);
        }
        if self.read_all && !self.closed {
            moved |= self.close_rings(shared, head);
            if self.waiting == 0 {
                self.close(head);
                moved = true;
            }
        }
        if self.closed {
            moved |= self.pass_voids(head);
        }
        if moved {
            tracing::trace!(waiting = self.waiting, closed = self.closed, "fed");
        }
        Ok(moved)
    }

    /// Reads on; false when all was read before.
    fn read_frame(&mut self, reader: &mut Reader) -> Result<bool, ReplayError> {
        if self.is_at_limit(reader) {
            return Ok(false);
        }
        self.frame.clear();
        match reader.read_raw(&mut self.frame)? {
            None => self.read_all = true,
            Some(_) => self.sort()?,
        }
        Ok(true)
    }

    /// Closes the rings of slots for which the trace has nothing more: whoever has one is through, and others may have to wait for that
    /// before they can go on.
    fn close_rings(&self, shared: &SharedSession, head: &OrderHead) -> bool {
        let used = shared.session().slots_used.load(SeqCst) as usize;
        let mut any = false;
        for slot in 0..used.min(MAX_SLOTS) {
            let queue = self.queues.get(&slot);
            if queue.is_none_or(|q| q.bytes.is_empty() && q.gates.is_empty()) {
                any |= close_ring(&head.rings[slot]);
            }
        }
        any
    }

    /// Nothing more will come.
    pub fn close(&mut self, head: &OrderHead) {
        self.read_all = true;
        self.closed = true;
        for ring in &head.rings {
            close_ring(ring);
        }
    }

    /// Has all of the trace been read?
    pub fn has_read_all(&self) -> bool {
        self.read_all
    }

    /// Has all been read that may be?
    pub fn is_at_limit(&self, reader: &Reader) -> bool {
        self.read_all || self.limit.is_some_and(|limit| reader.position() >= limit)
    }

    /// Does nothing wait for the slot's ring?
    pub fn is_empty(&self, slot: usize) -> bool {
        let queue = self.queues.get(&slot);
        queue.is_none_or(|q| q.bytes.is_empty() && q.gates.front().is_none_or(|g| g.at > q.head))
    }

    /// Was all handed out?
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Slots of threads that were killed with their process, when nothing more comes of them, and how that ended.
    pub fn killed<'a>(
        &'a self,
        shared: &'a SharedSession,
    ) -> impl Iterator<Item = (usize, i64)> + 'a {
        self.queues.iter().filter_map(|(slot, queue)| {
            let gate = queue.gates.front()?;
            let is_there = gate.born == shared.slot(*slot).born.load(SeqCst);
            (gate.killed && gate.at == queue.head && is_there).then_some((*slot, gate.status))
        })
    }

    /// A trace without a summary doesn't say which stamps no event has. That shows when all was read.
    /// True: the next stamp has its turn.
    fn pass_voids(&mut self, head: &OrderHead) -> bool {
        if !self.voids_known {
            self.voids_known = true;
            let missing = self.stamps.missing(self.stamps.end(), MAX_VOID);
            for (to, stamp) in head.void.iter().zip(&missing) {
                to.store(*stamp, SeqCst);
            }
            head.voids.store(missing.len() as u64, SeqCst);
        }
        // Somebody may have let one have its turn before that was known.
        let known = head.voids.load(SeqCst) as usize;
        let voids = &head.void[..known.min(MAX_VOID)];
        let stamp = head.stamp.0.load(SeqCst);
        let is_void = voids
            .binary_search_by_key(&stamp, |v| v.load(Relaxed))
            .is_ok();
        let now = &head.stamp.0;
        let passes = is_void
            && now
                .compare_exchange(stamp, stamp + 1, SeqCst, SeqCst)
                .is_ok();
        if passes {
            call(head, What::Stamp(stamp + 1), 0);
        }
        passes
    }

    fn sort(&mut self) -> Result<(), ReplayError> {
        let mut at = 0;
        while at < self.frame.len() {
            let Ok(e) = Event::parse(&self.frame[at..]) else {
                return Err(ReplayError::Unsupported(
                    "the trace has a damaged event".into(),
                ));
            };
            at += e.bytes().len();
            if e.kind == Kind::End {
                self.whole = true;
                continue;
            }
            let slot = e.header.slot as usize;
            if e.kind == Kind::Gone && slot < MAX_SLOTS {
                let queue = self.queues.entry(slot).or_default();
                if queue.skip > 0 {
                    continue;
                }
                queue.gates.push_back(Gate {
                    at: queue.head + queue.bytes.len() as u64,
                    born: e.arg(0),
                    killed: e.header.detail == ProcessEnd::Found as u32,
                    status: e.header.value,
                    open: e.arg(1).checked_sub(1).map(|i| (i as usize, e.arg(2))),
                });
                continue;
            }
            let Some((slot, bytes)) = to_ring(&e) else {
                continue;
            };
            if !self.voids_known {
                self.stamps.note(&e);
            }
            let queue = self.queues.entry(slot).or_default();
            let skipped = bytes.len().min(queue.skip as usize);
            queue.skip -= skipped as u64;
            queue.head += skipped as u64;
            queue.bytes.extend(&bytes[skipped..]);
            self.waiting += bytes.len() - skipped;
        }
        Ok(())
    }
}

fn is_vacant(state: u32) -> bool {
    [slot_state::FREE, slot_state::EXITING].contains(&state)
}

/// Says that nothing more will come, unless that was said. Who is gone stays gone.
fn close_ring(ring: &RingControl) -> bool {
    let now = ring.closed.compare_exchange(0, CLOSED_END, SeqCst, SeqCst);
    if now.is_ok() && ring.consumer_asleep.swap(0, SeqCst) != 0 {
        futex::wake(&ring.consumer_asleep, i32::MAX);
    }
    now.is_ok()
}

/// Those who wait for this look again.
pub(crate) fn call(head: &OrderHead, what: What, n: u64) {
    let (_, generation) = head.bed(what.key(), n);
    generation.fetch_add(1, SeqCst);
    futex::wake(generation, i32::MAX);
}

/// Does a thread sleep because its ring is empty?
fn somebody_starves(head: &OrderHead) -> bool {
    head.rings
        .iter()
        .any(|r| r.consumer_asleep.load(SeqCst) != 0)
}

/// Writes bytes, for which there is room, to a ring from position `at` on.
fn write(ring: *mut u8, size: u64, at: u64, bytes: &[u8]) {
    let offset = at % size;
    let (here, behind) = bytes.split_at(bytes.len().min((size - offset) as usize));
    for (bytes, offset) in [(here, offset as usize), (behind, 0)] {
        // SAFETY: inside the slot's ring, and given back by its consumer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), ring.add(offset), bytes.len()) };
    }
}

impl Queue {
    /// Moves what the ring has room for; the bytes that were moved.
    fn pour(&mut self, shared: &SharedSession, head: &OrderHead, slot: usize) -> usize {
        if self.bytes.is_empty() {
            return 0;
        }
        // Not what the head says of its rings, which the replayed process can write.
        let (ring, size) = (&head.rings[slot], shared.ring_size());
        let used = self.head.saturating_sub(ring.tail.load(Acquire));
        let room = size.saturating_sub(used) as usize;
        let gate = self.gates.front().map_or(u64::MAX, |g| g.at);
        let n = room.min(self.bytes.len()).min((gate - self.head) as usize);
        if n == 0 {
            return 0;
        }
        let (first, second) = self.bytes.as_slices();
        let split = n.min(first.len());
        for bytes in [&first[..split], &second[..n - split]] {
            write(shared.slot_ring(slot), size, self.head, bytes);
            self.head += bytes.len() as u64;
        }
        self.bytes.drain(..n);
        if ring.filled(self.head) {
            futex::wake(&ring.consumer_asleep, i32::MAX);
        }
        n
    }

    /// Says that nothing more comes of the slot's thread, and goes on when the slot is the next one's. True: it went on. `open`: what then
    /// is said of the ring.
    fn pass_gate(
        &mut self,
        shared: &SharedSession,
        head: &OrderHead,
        slot: usize,
        open: u32,
    ) -> bool {
        let Some(gate) = self.gates.front().filter(|g| g.at == self.head) else {
            return false;
        };
        let (ring, it) = (&head.rings[slot], shared.slot(slot));
        let born = it.born.load(SeqCst);
        let vacant = is_vacant(it.state.load(SeqCst));
        if born > gate.born || born == gate.born && vacant {
            if let Some((shard, number)) = gate.open.filter(|(i, n)| *i < SHARDS && *n > 0) {
                let word = &head.shards[shard].sequence;
                let _ = word.compare_exchange(2 * (number - 1), 2 * number, SeqCst, SeqCst);
                call(head, What::Shard(shard as u32), number);
            }
            self.gates.pop_front();
            ring.closed.store(open, SeqCst);
            futex::wake(&ring.closed, i32::MAX);
            // Somebody may want the slot.
            futex::wake(&it.state, i32::MAX);
            return true;
        }
        // Its thread may still have to be made.
        if born == gate.born
            && ring.closed.swap(CLOSED_GONE, SeqCst) != CLOSED_GONE
            && ring.consumer_asleep.swap(0, SeqCst) != 0
        {
            futex::wake(&ring.consumer_asleep, i32::MAX);
        }
        false
    }
}
