//! From the rings of the `order` engine to the trace: one ring for each thread (Castor 3.5). Only rings with news are looked at, so that
//! idle threads cost nothing.
//!
//! The trace's stream takes the threads' events as they come; their stamps say how they were ordered. What follows each other of one
//! thread's entries becomes one event ([`Kind::Sync`]). As in [`drain`](crate::drain), nothing in a ring is believed.

use crate::wake;
use reprise_abi::event::{section_len, Event, EventHeader, Kind, ParseError, Tag, HEADER_LEN};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::{Entry, ENTRY_LEN, MAX_VOID};
use reprise_launch::SharedSession;
use reprise_trace::{TraceError, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Most entries that become one event.
const BATCH: usize = 64 * 1024;
/// All rings are looked at this often, news or not: a thread that sees its bit still set may be just too late.
const ROUND: Duration = Duration::from_millis(20);

/// What was taken from a ring and is not written yet.
#[derive(Default)]
struct Source {
    tail: u64,
    bytes: Vec<u8>,
}

/// The consumer's end of all rings.
pub struct Merge {
    sources: BTreeMap<usize, Source>,
    last_round: Instant,
    stamps: Stamps,
    damage: Option<&'static str>,
}

impl Merge {
    /// At the beginning of a recording.
    pub fn new() -> Merge {
        Merge {
            sources: BTreeMap::new(),
            last_round: Instant::now(),
            stamps: Stamps::default(),
            damage: None,
        }
    }

    /// Why the rings can't be read any more, if so.
    pub fn damage(&self) -> Option<&'static str> {
        self.damage
    }

    /// The stamps that were drawn, but that no event has.
    pub fn void_stamps(&self, shared: &SharedSession) -> Vec<u64> {
        let drawn = shared.order().map_or(0, |h| h.stamp.0.load(SeqCst));
        self.stamps.missing(drawn)
    }

    /// Takes and writes what is there; the bytes that were moved.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn some(
        &mut self,
        shared: &SharedSession,
        writer: &mut Writer,
        discard: bool,
    ) -> Result<usize, TraceError> {
        let Some(head) = shared.order() else {
            return Ok(0);
        };
        let all = discard || self.last_round.elapsed() > ROUND;
        if all {
            self.last_round = Instant::now();
        }
        let used = (shared.session().slots_used.load(Relaxed) as usize).min(MAX_SLOTS);
        let mut moved = 0;
        for (i, word) in head.news.iter().enumerate() {
            if 64 * i >= used {
                break;
            }
            let news = word.swap(0, SeqCst);
            let mut slots = if all { u64::MAX } else { news };
            while slots != 0 {
                let slot = 64 * i + slots.trailing_zeros() as usize;
                slots &= slots - 1;
                if slot < used {
                    moved += self.one(shared, writer, slot, discard)?;
                }
            }
        }
        Ok(moved)
    }

    /// As [`some`](Self::some), until nothing is left anywhere.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn all(
        &mut self,
        shared: &SharedSession,
        writer: &mut Writer,
        discard: bool,
    ) -> Result<usize, TraceError> {
        let mut moved = 0;
        loop {
            self.last_round = Instant::now() - 2 * ROUND;
            match self.some(shared, writer, discard)? {
                0 => return Ok(moved),
                n => moved += n,
            }
        }
    }

    /// Takes and writes what is there, at the end of the recording all of it.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn take(
        &mut self,
        shared: &SharedSession,
        writer: &mut Writer,
        discard: bool,
        ended: bool,
    ) -> Result<usize, TraceError> {
        if ended {
            self.all(shared, writer, discard)
        } else {
            self.some(shared, writer, discard)
        }
    }

    fn one(
        &mut self,
        shared: &SharedSession,
        writer: &mut Writer,
        slot: usize,
        discard: bool,
    ) -> Result<usize, TraceError> {
        let Some(head) = shared.order().filter(|_| self.damage.is_none()) else {
            return Ok(0);
        };
        let (ring, size) = (&head.rings[slot], head.ring_size);
        let source = self.sources.entry(slot).or_default();
        let there = ring.head.load(SeqCst).wrapping_sub(source.tail);
        if there == 0 {
            return Ok(0);
        }
        if there > size && !discard {
            self.fail(shared, "an impossible ring index");
            return Ok(0);
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
        if !discard {
            if let Err(why) = write(slot, &mut source.bytes, writer, &mut self.stamps)? {
                self.fail(shared, why);
            }
        }
        Ok(there as usize)
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

/// Writes whole events and entries; what is not whole stays.
fn write(
    slot: usize,
    bytes: &mut Vec<u8>,
    writer: &mut Writer,
    stamps: &mut Stamps,
) -> Result<Result<(), &'static str>, TraceError> {
    let mut at = 0;
    let result = loop {
        let entries = count_entries(&bytes[at..]);
        if entries > 0 {
            let len = entries * ENTRY_LEN;
            writer.push(&sync_event(slot, &bytes[at..at + len]))?;
            at += len;
            continue;
        }
        match Event::parse(&bytes[at..]) {
            Ok(e) if e.header.slot as usize == slot => {
                stamps.note(&e);
                writer.push(e.bytes())?;
                at += e.bytes().len();
            }
            Ok(_) => break Err("an event in another thread's ring"),
            Err(ParseError::Short(_)) => break Ok(()),
            Err(ParseError::Bad(why)) => break Err(why),
        }
    };
    bytes.drain(..at);
    Ok(result)
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

/// The event that holds these entries.
fn sync_event(slot: usize, entries: &[u8]) -> Vec<u8> {
    let h = EventHeader {
        len: (HEADER_LEN + section_len(entries.len())) as u32,
        kind: Kind::Sync as u8,
        slot: slot as u16,
        value: (entries.len() / ENTRY_LEN) as i64,
        ..Default::default()
    };
    let mut bytes = h.to_bytes().to_vec();
    bytes.extend_from_slice(&0u64.to_le_bytes());
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(Tag::Entries as u32).to_le_bytes());
    bytes.extend_from_slice(entries);
    bytes
}

/// Which stamps have been seen.
#[derive(Default)]
struct Stamps {
    /// All below this one have.
    all_below: u64,
    /// And these.
    ahead: BTreeSet<u64>,
}

impl Stamps {
    fn note(&mut self, e: &Event) {
        for stamp in stamps_of(e) {
            self.ahead.insert(stamp);
        }
        while self.ahead.remove(&self.all_below) {
            self.all_below += 1;
        }
    }

    fn missing(&self, drawn: u64) -> Vec<u64> {
        (self.all_below..drawn)
            .filter(|s| !self.ahead.contains(s))
            .take(MAX_VOID)
            .collect()
    }
}

/// The stamps of an event: its last words, after the arguments of the call.
fn stamps_of(e: &Event) -> Vec<u64> {
    let n = e.header.nargs as usize;
    let first = match e.kind {
        Kind::Syscall | Kind::Enter => {
            let call = reprise_abi::syscalls::lookup(e.header.detail as u64);
            call.map_or(6, |d| d.args.len())
        }
        Kind::Exit | Kind::Signal => 0,
        Kind::ThreadExit | Kind::ProcessEnd => 1,
        _ => n,
    };
    (first..n).map(|i| e.arg(i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_wrap() {
        let ring: Vec<u8> = (0..16).collect();
        let mut to = vec![];
        copy(ring.as_ptr(), 16, 16 + 12, 8, &mut to);
        assert_eq!(to, [12, 13, 14, 15, 0, 1, 2, 3]);
    }

    #[test]
    fn stamps_that_nobody_has_are_found() {
        let mut s = Stamps {
            all_below: 3,
            ahead: [4, 7].into(),
        };
        assert_eq!(s.missing(9), [3, 5, 6, 8]);
        s.ahead.insert(3);
        while s.ahead.remove(&s.all_below) {
            s.all_below += 1;
        }
        assert_eq!((s.all_below, s.missing(8)), (5, vec![5, 6]));
    }
}
