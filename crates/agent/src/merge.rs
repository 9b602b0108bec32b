//! From the rings of the `order` engine to the trace: one ring for each thread (Castor 3.5). Only rings with news are looked at, so that
//! idle threads cost nothing.
//!
//! In the trace's stream causes come before their effects, as far as stamps tell; the exact order is that of the stamps. What follows each
//! other of one thread's entries becomes one event ([`Kind::Sync`]). As in [`drain`](crate::drain), nothing in a ring is believed.

use crate::pressure::Pressure;
use crate::wake;
use reprise_abi::event::{Event, EventHeader, Kind, ParseError, ProcessEnd, HEADER_LEN, NO_SLOT};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::{
    head_of_entries, Entry, EntryKind, OrderHead, ENTRY_LEN, MAX_QUIET, MAX_VOID, WAITED_FOR,
};
use reprise_abi::session::{process_state, slot_state};
use reprise_launch::{futex, SharedSession};
use reprise_trace::stamps::{stamps_of, Stamps};
use reprise_trace::{Census, TraceError, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Most entries that become one event.
const BATCH: usize = 64 * 1024;
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
    /// Nothing is written any more.
    pub discard: bool,
}

/// The consumer's end of all rings.
pub struct Merge {
    sources: BTreeMap<usize, Source>,
    /// Slots of which something was taken that could not be written yet.
    held: BTreeSet<usize>,
    /// Slots whose news was taken in this round, and in the one before.
    told: [BTreeSet<usize>; 2],
    last_round: Instant,
    /// How many slots had news, when they were looked at last.
    news: u64,
    stamps: Stamps,
    damage: Option<&'static str>,
    /// What is written next; kept for its room.
    pieces: Vec<Piece>,
    sync_event: Vec<u8>,
    pressure: Pressure,
}

/// Which rings are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Those with news.
    Once,
    /// Those that had news lately, too.
    Again,
    /// All.
    Everywhere,
}

/// Whole entries or an event in what was taken from a slot's ring.
struct Piece {
    /// Its last stamp, or that of the one before.
    key: u64,
    slot: usize,
    at: Range<usize>,
    entries: bool,
}

impl Merge {
    /// At the beginning of a recording.
    pub fn new() -> Merge {
        Merge {
            sources: BTreeMap::new(),
            held: BTreeSet::new(),
            told: Default::default(),
            last_round: Instant::now(),
            news: 0,
            stamps: Stamps::default(),
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

    /// The stamps that were drawn, but that no event has.
    pub fn void_stamps(&self, shared: &SharedSession) -> Vec<u64> {
        let drawn = shared.order().map_or(0, |h| h.stamp.0.load(SeqCst));
        self.stamps.missing(drawn, MAX_VOID)
    }

    /// Takes and writes what is there; how much, in bytes and events. 0: nothing.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn some(&mut self, shared: &SharedSession, sink: &mut Sink) -> Result<usize, TraceError> {
        let look = match self.last_round.elapsed() > ROUND {
            true => Look::Again,
            false => Look::Once,
        };
        self.pass(shared, sink, look, false)
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
        let Some(head) = shared.order() else {
            return Ok(0);
        };
        let drawn = if last {
            u64::MAX
        } else {
            head.stamp.0.load(SeqCst)
        };
        let used = (shared.session().slots_used.load(SeqCst) as usize).min(MAX_SLOTS);
        let mut moved = 0;
        let mut most = 0;
        let mut due = std::mem::take(&mut self.held);
        let slots = self.slots_to_look_at(head, used, look);
        let counters = &shared.session().counters;
        counters.ring_looks.fetch_add(slots.len() as u64, Relaxed);
        counters.ring_news.fetch_add(self.news, Relaxed);
        for slot in slots {
            let taken = self.take(shared, slot, sink.discard);
            if taken > 0 {
                due.insert(slot);
                moved += taken;
                most = most.max(taken as u64);
            }
        }
        let is_behind = most >= MUCH && most >= head.ring_size / 2;
        let hurries = is_behind || moved > 0 && self.pressure.is_there();
        sink.writer.hurry(hurries);
        let written = self.write(shared, sink, &due, drawn)?;
        Ok(moved + written)
    }

    /// The slots whose rings may have something new, where so many are used. Whoever is idle isn't among them, however many they are.
    fn slots_to_look_at(&mut self, head: &OrderHead, used: usize, look: Look) -> BTreeSet<usize> {
        let mut slots = BTreeSet::new();
        for (i, word) in head.news.iter().enumerate().take(used.div_ceil(64)) {
            let mut news = word.swap(0, SeqCst);
            while news != 0 {
                slots.insert(64 * i + news.trailing_zeros() as usize);
                news &= news - 1;
            }
        }
        self.news = slots.len() as u64;
        match look {
            Look::Once => self.told[0].extend(&slots),
            Look::Again => {
                // Those of this round once more in the next: it may have ended a moment ago.
                let [now, before] = std::mem::take(&mut self.told);
                self.told = [slots.clone(), now.clone()];
                slots.extend(now);
                slots.extend(before);
                self.last_round = Instant::now();
            }
            Look::Everywhere => slots.extend(0..used),
        }
        slots
    }

    /// Takes what is in a slot's ring; the bytes.
    fn take(&mut self, shared: &SharedSession, slot: usize, discard: bool) -> usize {
        let Some(head) = shared.order().filter(|_| self.damage.is_none()) else {
            return 0;
        };
        let (ring, size) = (&head.rings[slot], head.ring_size);
        let source = self.sources.entry(slot).or_default();
        let there = ring.head.load(SeqCst).wrapping_sub(source.tail);
        if there == 0 {
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
        source.tail += there;
        ring.tail.store(source.tail, Release);
        if ring.producer_asleep.load(SeqCst) != 0 {
            wake(&ring.producer_asleep);
        }
        there as usize
    }

    /// Writes of these slots what has only stamps below `drawn`; how many pieces. What isn't whole stays.
    fn write(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        slots: &BTreeSet<usize>,
        drawn: u64,
    ) -> Result<usize, TraceError> {
        if sink.discard || self.damage.is_some() {
            return Ok(0);
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        let mut bad = None;
        for slot in slots {
            if let Some(source) = self.sources.get(slot) {
                bad = bad.or(cut_up(*slot, source, drawn, &mut pieces).err());
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
            source.last = p.key;
            let bytes = &source.bytes[p.at.clone()];
            ends.insert(p.slot, p.at.end);
            if p.entries {
                sink.writer
                    .push(sync_event(p.slot, bytes, &mut self.sync_event))?;
                continue;
            }
            let Ok(e) = Event::parse(bytes) else { continue };
            source.ended = e.kind == Kind::ProcessEnd;
            self.stamps.note(&e);
            sink.census.follow(&e);
            sink.writer.push(e.bytes())?;
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

    /// Process `n` is dead, with this wait status if that is known: what its threads have written last is taken before others get their
    /// slots, and the trace says that nothing more comes of them.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn bury(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        n: usize,
        status: Option<i32>,
    ) -> Result<(), TraceError> {
        let Some(head) = shared.order() else {
            return Ok(());
        };
        let p = &shared.session().processes[n];
        let slots = slots_of(shared, n as u32);
        let open = open_shards(shared, &slots);
        publish_whole(head, &slots);
        self.pass(shared, sink, Look::Everywhere, false)?;
        let left = |slot: &usize| shared.slot(*slot).state.load(SeqCst) == slot_state::LEFT;
        let told = p.state.load(SeqCst) == process_state::ENDING
            && (slots.iter().all(left) || slots.iter().any(|s| self.has_told(shared, *s)));
        let how = if told {
            ProcessEnd::Told
        } else {
            ProcessEnd::Found
        };
        let value = status.map_or(-1, i64::from);
        for (slot, open) in slots.into_iter().zip(open) {
            self.forget(shared, sink, slot, [how as i64, value], open)?;
        }
        for stream in &head.streams {
            let writer = (stream.0.load(SeqCst) & !WAITED_FOR) as usize;
            let of = |w: usize| shared.slot(w.min(MAX_SLOTS - 1)).process.load(SeqCst);
            if writer.checked_sub(1).is_some_and(|w| of(w) == n as u32) {
                stream.0.store(0, SeqCst);
                futex::wake(&stream.0, i32::MAX);
            }
        }
        if !told {
            let who = [&p.visible_pid, &p.birth].map(|w| w.load(Relaxed).into());
            push_words(
                sink,
                Kind::ProcessEnd,
                NO_SLOT,
                ProcessEnd::Found as u32,
                value,
                &who,
            )?;
        }
        Ok(())
    }

    /// The thread of a slot has become another program: the other threads of its process are gone.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn others_gone(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        slot: usize,
    ) -> Result<(), TraceError> {
        let slot = slot.min(MAX_SLOTS - 1);
        let mut others = slots_of(shared, shared.slot(slot).process.load(SeqCst));
        others.retain(|s| *s != slot);
        if others.is_empty() {
            return Ok(());
        }
        let open = open_shards(shared, &others);
        if let Some(head) = shared.order() {
            publish_whole(head, &others);
        }
        self.pass(shared, sink, Look::Everywhere, false)?;
        for (other, open) in others.into_iter().zip(open) {
            self.forget(shared, sink, other, [0, -1], open)?;
        }
        Ok(())
    }

    /// Has the thread of a slot written how its process ends?
    fn has_told(&self, shared: &SharedSession, slot: usize) -> bool {
        let ended = self.sources.get(&slot).is_some_and(|s| s.ended);
        ended && tells_its_end(shared, slot)
    }

    /// Nothing more comes of the thread of a slot: how its process ended, and the shard that was [opened](open_shard_of). Of an event that it
    /// didn't finish nothing stays.
    fn forget(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        slot: usize,
        [how, status]: [i64; 2],
        [shard, number]: [u64; 2],
    ) -> Result<(), TraceError> {
        let Some(head) = shared.order() else {
            return Ok(());
        };
        let (ring, source) = (&head.rings[slot], self.sources.entry(slot).or_default());
        let counted = ring.counted_end.swap(0, SeqCst);
        let is_logged = counted != 0 && ring.head.load(SeqCst) >= counted;
        let torn = ring.open_end.swap(0, SeqCst) & !7;
        if torn != 0 || !source.bytes.is_empty() {
            if !source.bytes.is_empty() {
                let torn_events = &shared.session().counters.torn_events;
                torn_events.fetch_add(1, Relaxed);
            }
            source.bytes.clear();
            self.held.remove(&slot);
            source.tail = source.tail.max(torn).next_multiple_of(8);
            for index in [&ring.position, &ring.head, &ring.tail] {
                index.store(source.tail, SeqCst);
            }
        }
        if self.has_told(shared, slot) {
            return Ok(());
        }
        // Operations that it made since it last wrote how many.
        let left = shared.slot(slot).quiet_left.swap(0, SeqCst);
        if left != 0 && left < MAX_QUIET && !is_logged && !sink.discard {
            let e = Entry {
                kind: EntryKind::Quiet,
                quiet: MAX_QUIET - left,
                object: 0,
                value: 0,
            };
            let bytes: Vec<u8> = e.to_words().iter().flat_map(|w| w.to_le_bytes()).collect();
            sink.writer
                .push(sync_event(slot, &bytes, &mut self.sync_event))?;
        }
        let born = shared.slot(slot).born.load(SeqCst);
        let words = [born, shard, number];
        push_words(sink, Kind::Gone, slot as u16, how as u32, status, &words)
    }

    fn fail(&mut self, shared: &SharedSession, why: &'static str) {
        self.damage = Some(why);
        shared.session().recording_lost.store(1, SeqCst);
    }
}

impl Default for Merge {
    fn default() -> Self {
        Merge::new()
    }
}

/// Opens the shards that the dead threads of process `n` had locked, where nothing is recorded.
pub fn open_shards_of(shared: &SharedSession, n: usize) {
    if shared.order().is_some() {
        open_shards(shared, &slots_of(shared, n as u32));
    }
}

fn open_shards(shared: &SharedSession, slots: &[usize]) -> Vec<[u64; 2]> {
    let opened = |slot: &usize| shared.order().map(|head| open_shard_of(head, *slot));
    slots.iter().filter_map(opened).collect()
}

/// Opens the shard that a thread had locked when it died, as if it had made its operation: number plus 1 of the shard, 0 for none, and the
/// operation's number.
fn open_shard_of(head: &OrderHead, slot: usize) -> [u64; 2] {
    for (i, shard) in head.shards.iter().enumerate() {
        let Some((_, number)) = shard.holder().filter(|(who, _)| *who == slot as u32 + 1) else {
            continue;
        };
        shard.last.store(slot as u32 + 1, SeqCst);
        shard.sequence.store(2 * number, SeqCst);
        return [i as u64 + 1, number];
    }
    [0; 2]
}

/// Is it the thread that has a slot now which has come to write how its process ends, and not one that had the slot before?
fn tells_its_end(shared: &SharedSession, slot: usize) -> bool {
    let slot = shared.slot(slot);
    slot.told.load(SeqCst) == slot.born.load(SeqCst) + 1
}

/// Whatever these threads, which were killed, had written as a whole when they could not say so any more can be read.
fn publish_whole(head: &OrderHead, slots: &[usize]) {
    for ring in slots.iter().map(|slot| &head.rings[*slot]) {
        let whole = ring.position.load(SeqCst);
        if whole.wrapping_sub(ring.head.load(SeqCst)) <= head.ring_size {
            ring.head.store(whole, SeqCst);
        }
    }
}

/// Slots of the threads of process `n` that have not ended by themselves.
fn slots_of(shared: &SharedSession, n: u32) -> Vec<usize> {
    let used = (shared.session().slots_used.load(SeqCst) as usize).min(MAX_SLOTS);
    let is = |i: &usize| {
        let slot = shared.slot(*i);
        let vacant = [slot_state::FREE, slot_state::EXITING];
        slot.process.load(SeqCst) == n && !vacant.contains(&slot.state.load(SeqCst))
    };
    (0..used).filter(is).collect()
}

/// Writes an event of words.
fn push_words(
    sink: &mut Sink,
    kind: Kind,
    slot: u16,
    detail: u32,
    value: i64,
    words: &[u64],
) -> Result<(), TraceError> {
    if sink.discard {
        return Ok(());
    }
    let h = EventHeader {
        len: (HEADER_LEN + 8 * words.len()) as u32,
        kind: kind as u8,
        nargs: words.len() as u8,
        slot,
        detail,
        value,
        ..Default::default()
    };
    let mut bytes = h.to_bytes().to_vec();
    words
        .iter()
        .for_each(|w| bytes.extend_from_slice(&w.to_le_bytes()));
    if let Ok(e) = Event::parse(&bytes) {
        sink.census.follow(&e);
    }
    sink.writer.push(&bytes)
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

/// Cuts what was taken from a slot's ring into whole events and entries, as far as all stamps are below `drawn`.
fn cut_up(
    slot: usize,
    source: &Source,
    drawn: u64,
    pieces: &mut Vec<Piece>,
) -> Result<(), &'static str> {
    let (mut at, mut key, bytes) = (0, source.last, &source.bytes[..]);
    loop {
        let entries = count_entries(&bytes[at..]);
        let len = if entries > 0 {
            entries * ENTRY_LEN
        } else {
            match Event::parse(&bytes[at..]) {
                Ok(e) if e.header.slot as usize == slot => {
                    key = key.max(stamps_of(&e).max().unwrap_or(0));
                    e.bytes().len()
                }
                Ok(_) => return Err("an event in another thread's ring"),
                Err(ParseError::Short(_)) => return Ok(()),
                Err(ParseError::Bad(why)) => return Err(why),
            }
        };
        if key >= drawn {
            return Ok(());
        }
        pieces.push(Piece {
            key,
            slot,
            at: at..at + len,
            entries: entries > 0,
        });
        at += len;
    }
}

/// How many entries lie at the start of these bytes.
fn count_entries(bytes: &[u8]) -> usize {
    bytes
        .chunks_exact(ENTRY_LEN)
        .take(BATCH)
        .take_while(|b| entry(b).is_some())
        .count()
}

fn entry(bytes: &[u8]) -> Option<Entry> {
    let word = |at: usize| {
        bytes[at..at + 8]
            .try_into()
            .map(u64::from_le_bytes)
            .unwrap_or(0)
    };
    Entry::from_words([word(0), word(8)])
}

/// Makes of `bytes` the event that holds these entries.
fn sync_event<'a>(slot: usize, entries: &[u8], bytes: &'a mut Vec<u8>) -> &'a [u8] {
    bytes.clear();
    bytes.extend_from_slice(&head_of_entries(slot as u16, entries.len() / ENTRY_LEN));
    bytes.extend_from_slice(entries);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_abi::order::HOLDER_SHIFT;

    #[test]
    fn rings_wrap() {
        let ring: Vec<u8> = (0..16).collect();
        let mut to = vec![];
        copy(ring.as_ptr(), 16, 16 + 12, 8, &mut to);
        assert_eq!(to, [12, 13, 14, 15, 0, 1, 2, 3]);
    }

    fn empty_head() -> Box<OrderHead> {
        let layout = std::alloc::Layout::new::<OrderHead>();
        // SAFETY: all zero is a head; it is given back as it was made.
        unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout) as *mut OrderHead) }
    }

    #[test]
    fn who_is_idle_is_not_looked_at() {
        let (head, mut merge) = (empty_head(), Merge::new());
        let mut look = |how| -> Vec<usize> {
            let slots = merge.slots_to_look_at(&head, 1000, how);
            slots.into_iter().collect()
        };
        let tell = |slot: usize| head.news[slot / 64].fetch_or(1 << (slot % 64), SeqCst);
        assert!(look(Look::Once).is_empty());
        tell(7);
        tell(900);
        assert_eq!(look(Look::Once), [7, 900]);
        assert!(look(Look::Once).is_empty());
        tell(8);
        // Whoever came just too late is found by one of two more looks.
        assert_eq!(look(Look::Again), [7, 8, 900]);
        assert_eq!(look(Look::Again), [7, 8, 900]);
        assert_eq!(look(Look::Again), [8]);
        assert!(look(Look::Again).is_empty());
        assert_eq!(look(Look::Everywhere).len(), 1000);
    }

    #[test]
    fn a_shard_of_the_dead_is_opened() {
        let head = empty_head();
        let (one, other) = (&head.shards[7], &head.shards[8]);
        one.sequence.store(21 | 5 << HOLDER_SHIFT, SeqCst);
        other.sequence.store(21 | 6 << HOLDER_SHIFT, SeqCst);
        assert_eq!(open_shard_of(&head, 9), [0, 0]);
        assert_eq!(open_shard_of(&head, 4), [8, 11]);
        // The operation counts, and is the dead thread's.
        assert_eq!((one.sequence.load(SeqCst), one.last.load(SeqCst)), (22, 5));
        assert_eq!(other.holder(), Some((6, 11)));
        assert_eq!(open_shard_of(&head, 4), [0, 0]);
    }
}
