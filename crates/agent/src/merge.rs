//! From the rings of the `order` engine to the trace: one ring for each thread (Castor 3.5). Only rings with news are looked at, so that
//! idle threads cost nothing.
//!
//! In the trace's stream causes come before their effects, as far as stamps tell; the exact order is that of the stamps. What follows each
//! other of one thread's entries becomes one event ([`Kind::Sync`]). As in [`drain`](crate::drain), nothing in a ring is believed.

mod dead;
mod pieces;

use crate::inputs::mapped::Keeping;
use crate::inputs::Inputs;
use crate::pressure::Pressure;
use crate::wake;
pub use dead::open_shards_of;
use pieces::{cut_up, sync_event, with_detail, Piece};
use reprise_abi::engine::TraceOrder;
use reprise_abi::event::{Event, Kind};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::news::{Look, News};
use reprise_abi::order::{slots_with, MAX_VOID};
use reprise_abi::ring::RingControl;
use reprise_launch::SharedSession;
use reprise_trace::stamps::Stamps;
use reprise_trace::{Census, TraceError, Writer};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// So often a second look is taken at rings whose news was taken: a thread that saw its bit still set then may have been just too late.
const ROUND: Duration = Duration::from_millis(20);

/// Who fills half a ring while what was there before is written, and this many bytes, writes faster than the trace is compressed.
const MUCH: u64 = 1 << 20;

/// What was taken from a ring and is not written yet.
#[derive(Default)]
struct Source {
    tail: u64,
    bytes: Vec<u8>,
    /// The last stamp of what was written.
    last: u64,
    /// What was written last is the end of the slot's process.
    ended: bool,
}

/// Where events go.
pub struct Sink<'a> {
    /// The trace's stream.
    pub writer: &'a mut Writer,
    /// Who is in it.
    pub census: &'a mut Census,
    /// What it refers to.
    pub inputs: &'a mut Inputs,
    /// Nothing is written any more.
    pub discard: bool,
}

/// The consumer's end of all rings.
pub struct Merge {
    sources: BTreeMap<usize, Source>,
    /// Slots of which something was taken that could not be written yet.
    held: BTreeSet<usize>,
    news: News,
    last_round: Instant,
    /// What had only stamps below this one was written when rings were looked at last.
    drawn: u64,
    stamps: Stamps,
    /// The processes that have begun in the trace: which one it is there, by its number among those that took their first steps
    /// ([`Process::birth`](reprise_abi::session::Process::birth)), which not all lived to write.
    births: HashMap<u32, u32>,
    damage: Option<&'static str>,
    /// What is written next; kept for its room.
    pieces: Vec<Piece>,
    sync_event: Vec<u8>,
    pressure: Pressure,
}

/// Is a quarter of some ring full, or does somebody wait for room?
pub fn presses(shared: &SharedSession) -> bool {
    let used = (shared.session().slots_used.load(SeqCst) as usize).min(MAX_SLOTS);
    let pressed = |ring: &RingControl| {
        let there = ring
            .head
            .load(Relaxed)
            .wrapping_sub(ring.tail.load(Relaxed));
        there > shared.ring_size() / 4 || ring.producer_asleep.load(Relaxed) != 0
    };
    shared
        .order()
        .is_some_and(|head| head.rings.iter().take(used).any(pressed))
}

impl Merge {
    /// At the beginning of a recording.
    pub fn new() -> Merge {
        Merge {
            sources: BTreeMap::new(),
            held: BTreeSet::new(),
            news: News::default(),
            last_round: Instant::now(),
            drawn: 0,
            stamps: Stamps::default(),
            births: HashMap::new(),
            damage: None,
            pieces: Vec::new(),
            sync_event: Vec::new(),
            pressure: Pressure::new(),
        }
    }

    /// Why the rings can't be read any more, if so.
    pub fn damage(&self) -> Option<&'static str> {
        self.damage
    }

    /// The stamps that were drawn, but that no event has. Of a recording that ends before its program does: up to the last that one has.
    pub fn void_stamps(&self, shared: &SharedSession) -> Vec<u64> {
        if is_told(shared) {
            return Vec::new();
        }
        let drawn = match shared.session().recording_lost.load(SeqCst) {
            0 => shared.rings().map_or(0, |h| h.stamp.0.load(SeqCst)),
            _ => self.stamps.end(),
        };
        self.stamps.missing(drawn, MAX_VOID)
    }

    /// Takes and writes what is there; how much, in bytes and events. 0: nothing.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn some(&mut self, shared: &SharedSession, sink: &mut Sink) -> Result<usize, TraceError> {
        if sink.inputs.is_copying() && !sink.discard && self.damage.is_none() {
            // Nothing is taken meanwhile: a thread whose ring is full waits.
            let due = std::mem::take(&mut self.held);
            return self.write(shared, sink, &due, self.drawn, true);
        }
        let look = match self.last_round.elapsed() > ROUND {
            true => Look::Again,
            false => Look::Once,
        };
        self.pass_in_slices(shared, sink, look, false, true)
    }

    /// As [`some`](Self::some), with all that was there when it was asked for.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn by_now(&mut self, shared: &SharedSession, sink: &mut Sink) -> Result<usize, TraceError> {
        let moved = self.pass(shared, sink, Look::Everywhere, false)?;
        self.count_quiet(shared, sink)?;
        Ok(moved)
    }

    /// As [`some`](Self::some), until nothing is left anywhere.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn all(&mut self, shared: &SharedSession, sink: &mut Sink) -> Result<usize, TraceError> {
        let mut moved = 0;
        loop {
            match self.pass(shared, sink, Look::Everywhere, true)? {
                0 => return Ok(moved),
                n => moved += n,
            }
        }
    }

    /// Takes what there is and writes it. Whatever an event can be a consequence of is written before it: an event is written only if all
    /// its stamps were drawn before the rings were looked at, since what came before such a stamp was in its ring by then; and what is
    /// written together is written by its stamps. `last`: nothing more can come.
    fn pass(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        look: Look,
        last: bool,
    ) -> Result<usize, TraceError> {
        self.pass_in_slices(shared, sink, look, last, false)
    }

    /// As [`pass`](Self::pass). `in_slices`: what a mapping shows may be copied in several passes, and all that comes behind it waits.
    fn pass_in_slices(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        look: Look,
        last: bool,
        in_slices: bool,
    ) -> Result<usize, TraceError> {
        let Some(head) = shared.order() else {
            return Ok(0);
        };
        // Under `det` no event has a stamp: a replay needs no order among threads.
        let drawn = if last || is_told(shared) {
            u64::MAX
        } else {
            head.stamp.0.load(SeqCst)
        };
        let used = (shared.session().slots_used.load(SeqCst) as usize).min(MAX_SLOTS);
        let mut moved = 0;
        let mut most = 0;
        let mut due = std::mem::take(&mut self.held);
        let (slots, fresh) = self.news.take(&head.news, used, look);
        if look == Look::Again {
            self.last_round = Instant::now();
        }
        let counters = &shared.session().counters;
        counters.ring_looks.fetch_add(slots.len() as u64, Relaxed);
        counters.ring_news.fetch_add(fresh as u64, Relaxed);
        for slot in slots.iter() {
            let taken = self.take(shared, slot, sink.discard);
            if taken > 0 {
                due.insert(slot);
                moved += taken;
                most = most.max(taken as u64);
            }
        }
        let is_behind = most >= MUCH && most >= shared.ring_size() / 2;
        let hurries = is_behind || moved > 0 && self.pressure.is_there();
        sink.writer.hurry(hurries);
        self.drawn = drawn;
        let written = self.write(shared, sink, &due, drawn, in_slices)?;
        if moved + written > 0 {
            tracing::trace!(due = due.len(), drawn, moved, written, "rings looked at");
        }
        Ok(moved + written)
    }

    /// Takes what is in a slot's ring; the bytes.
    fn take(&mut self, shared: &SharedSession, slot: usize, discard: bool) -> usize {
        let Some(head) = shared.order().filter(|_| discard || self.damage.is_none()) else {
            return 0;
        };
        // Not what the head says of its rings, which the program can write.
        let (ring, size) = (&head.rings[slot], shared.ring_size());
        let source = self.sources.entry(slot).or_default();
        let there = ring.head.load(SeqCst).wrapping_sub(source.tail);
        if there == 0 {
            return 0;
        }
        if slot >= slots_with(size) {
            self.fail(shared, "a slot that has no ring");
            return 0;
        }
        if there > size && !discard {
            self.fail(shared, "an impossible ring index");
            return 0;
        }
        if !discard {
            copy(
                shared.slot_ring(slot),
                size,
                source.tail,
                there,
                &mut source.bytes,
            );
        }
        source.tail = source.tail.wrapping_add(there);
        if ring.taken(source.tail) {
            wake(&ring.producer_asleep);
        }
        there.min(size) as usize
    }

    /// Writes of these slots what has only stamps below `drawn`; how many pieces. What isn't whole stays.
    fn write(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        slots: &BTreeSet<usize>,
        drawn: u64,
        in_slices: bool,
    ) -> Result<usize, TraceError> {
        if sink.discard || self.damage.is_some() {
            return Ok(0);
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        let mut bad = None;
        for slot in slots {
            if let Some(source) = self.sources.get(slot) {
                let (bytes, last) = (&source.bytes, source.last);
                bad = bad.or(cut_up(*slot, bytes, last, drawn, &mut pieces).err());
            }
        }
        if pieces.windows(2).any(|two| two[1].key < two[0].key) {
            pieces.sort_by_key(|p| p.key);
        }
        let mut ends: BTreeMap<usize, usize> = BTreeMap::new();
        for p in &pieces {
            let Some(source) = self.sources.get_mut(&p.slot) else {
                continue;
            };
            let bytes = &source.bytes[p.at.clone()];
            let mut changed = None;
            if let (false, Ok(e)) = (p.entries, Event::parse(bytes)) {
                let number = sink.writer.next_event();
                match sink.inputs.keep_next(shared, &e, number, in_slices)? {
                    Keeping::Done(bytes) => changed = bytes,
                    // It and all that comes behind it stays.
                    Keeping::Later => break,
                }
            }
            source.last = p.key;
            ends.insert(p.slot, p.at.end);
            if p.entries {
                sink.writer
                    .push(sync_event(p.slot, bytes, &mut self.sync_event))?;
                continue;
            }
            let Ok(e) = Event::parse(bytes) else { continue };
            if e.kind == Kind::ProcessStart {
                let birth = self.births.len() as u32 + 1;
                self.births.insert(e.header.detail, birth);
                changed = Some(with_detail(&e, birth));
            }
            source.ended = e.kind == Kind::ProcessEnd;
            self.stamps.note(&e);
            sink.census.follow(&e);
            sink.writer.count_elsewhere(sink.inputs.take_copied());
            sink.writer.push(changed.as_deref().unwrap_or(e.bytes()))?;
        }
        for slot in slots {
            let Some(source) = self.sources.get_mut(slot) else {
                continue;
            };
            source.bytes.drain(..ends.get(slot).copied().unwrap_or(0));
            if !source.bytes.is_empty() {
                self.held.insert(*slot);
            }
        }
        if let Some(why) = bad {
            self.fail(shared, why);
        }
        self.pieces = pieces;
        Ok(self.pieces.len())
    }

    fn fail(&mut self, shared: &SharedSession, why: &'static str) {
        tracing::error!(why, "a thread's ring makes no sense");
        self.damage = Some(why);
        shared.session().recording_lost.store(1, SeqCst);
    }
}

impl Default for Merge {
    fn default() -> Self {
        Merge::new()
    }
}

/// Is it a recording of what threads were told, each by itself?
fn is_told(shared: &SharedSession) -> bool {
    shared.session().engine().order == TraceOrder::Told
}

/// Appends `n` bytes of a ring from position `at` on.
fn copy(ring: *const u8, size: u64, at: u64, n: u64, to: &mut Vec<u8>) {
    let offset = at % size;
    let first = n.min(size - offset);
    for (from, len) in [(offset, first), (0, n - first)] {
        let old = to.len();
        to.reserve(len as usize);
        // SAFETY: inside the slot's ring; copied before the bytes are looked at.
        unsafe {
            std::ptr::copy_nonoverlapping(
                ring.add(from as usize),
                to.as_mut_ptr().add(old),
                len as usize,
            );
            to.set_len(old + len as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_abi::order::OrderHead;

    #[test]
    fn rings_wrap() {
        let ring: Vec<u8> = (0..16).collect();
        let mut to = vec![];
        copy(ring.as_ptr(), 16, 16 + 12, 8, &mut to);
        assert_eq!(to, [12, 13, 14, 15, 0, 1, 2, 3]);
    }

    pub(super) fn empty_head() -> Box<OrderHead> {
        let layout = std::alloc::Layout::new::<OrderHead>();
        // SAFETY: all zero is a head; it is given back as it was made.
        unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout) as *mut OrderHead) }
    }
}
