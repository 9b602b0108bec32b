//! The runtime's ends of the event ring: producer while recording, consumer while replaying.
//!
//! The session's ring is used only by the holder of the baton; positions that matter are kept in private memory, because the shared ones
//! can be scribbled over. Under `order` each slot has a ring of its own, which only its thread uses.

use super::quiet;
use crate::machine::guard;
use crate::machine::sys;
use crate::thread::request::wake_agent;
use crate::thread::rings;
use crate::thread::{current, session};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::epoch::Why;
use reprise_abi::event::{EventHeader, HEADER_LEN, SECTION_LEN};
use reprise_abi::layout::{RING_BASE, RING_SIZE};
use reprise_abi::order::ENTRY_LEN;
use reprise_abi::ring::{place_of, Producer, RingControl};
use reprise_abi::session::{request as requests, FLAG_EPOCHS};
use reprise_abi::waits::{Awaited, FEED};

/// This process's copy of the head (record) or tail (replay).
static POSITION: AtomicU64 = AtomicU64::new(0);
/// Rounds of looking before a thread that wants more events sleeps.
const SPINS: u32 = 100;
/// Cache lines asked for ahead of the next event.
const AHEAD: u64 = 4;
/// Events written or consumed so far.
static EVENTS: AtomicU64 = AtomicU64::new(0);

/// A ring: its indices and its memory.
#[derive(Clone, Copy)]
struct Place {
    control: &'static RingControl,
    base: u64,
    size: u64,
    /// It is mapped twice, one after the other, so that any stretch up to its size is contiguous.
    twice: bool,
}

/// The ring that the calling thread uses.
#[inline(always)]
fn place() -> Place {
    if rings::has_rings() {
        return own_place();
    }
    Place {
        control: &session().ring,
        base: RING_BASE,
        size: SIZE.load(Relaxed),
        twice: true,
    }
}

#[inline]
fn own_place() -> Place {
    let (control, base, size) = rings::ring_of(rings::own_ring(current()));
    Place {
        control,
        base,
        size,
        twice: false,
    }
}

impl Place {
    /// Address of the byte at position `at`, and how many follow it contiguously.
    #[inline(always)]
    fn at(&self, at: u64) -> (u64, u64) {
        let (offset, contiguous) = place_of(at, self.size, self.twice);
        (self.base + offset, contiguous)
    }
}

/// Where this process, or under `order` this thread, goes on; what another process wrote or read meanwhile is taken over.
#[inline]
pub fn position() -> u64 {
    if rings::has_rings() {
        return own_place().control.position.load(Relaxed);
    }
    let ring = &session().ring;
    let me = crate::thread::process::number() + 1;
    if ring.user.load(Relaxed) != me {
        forget_torn();
        POSITION.store(ring.position.load(Relaxed), Relaxed);
        EVENTS.store(ring.events.load(Relaxed), Relaxed);
        ring.user.store(me, Relaxed);
    }
    POSITION.load(Relaxed)
}

/// Record: whoever wrote last was killed within an event that the agent has got in parts. The next event begins behind it.
#[inline]
fn forget_torn() {
    let ring = &session().ring;
    let end = ring.open_end.load(Relaxed);
    if end != 0 {
        crate::thread::request::ask(requests::FORGET_EVENT, &[end]);
        ring.position.store(end, Relaxed);
        ring.open_end.store(0, Relaxed);
    }
}

/// One event more; the next begins at `at`.
#[inline]
fn advance(at: u64) {
    if rings::has_rings() {
        let place = own_place();
        let ring = place.control;
        // A ring's size is a power of two: the bits above a quarter of it.
        let quarters = !(place.size / 4 - 1);
        if (ring.position.load(Relaxed) ^ at) & quarters != 0 {
            ends_epoch_soon();
        }
        ring.position.store(at, Relaxed);
        ring.events.store(ring.events.load(Relaxed) + 1, Relaxed);
        return;
    }
    let ring = &session().ring;
    let events = EVENTS.load(Relaxed) + 1;
    POSITION.store(at, Relaxed);
    EVENTS.store(events, Relaxed);
    ring.position.store(at, Relaxed);
    ring.events.store(events, Relaxed);
}

/// An epoch of which the rings don't hold all that was logged in it can't be run again. Where there are no epochs nobody would take the word back.
#[cold]
fn ends_epoch_soon() {
    let s = session();
    if s.flags & FLAG_EPOCHS != 0 {
        s.epoch_due.store(1, Relaxed);
    }
}

/// This process begins to use the ring: nothing is known of it here.
pub fn start() {
    session().ring.user.store(0, Relaxed);
}

/// Bytes of the session's ring: a power of two.
static SIZE: AtomicU64 = AtomicU64::new(RING_SIZE);

/// In a copy of the process: the session's ring is not what it was, but has this `size`: `len` bytes lie in it, of which nothing is read yet, and nothing more comes where it is `closed`.
pub fn holds_only(len: u64, size: u64, closed: bool) {
    SIZE.store(size, Relaxed);
    ROOM.store(0, Relaxed);
    let ring = &session().ring;
    for word in [&ring.position, &ring.events, &ring.open_end, &ring.tail] {
        word.store(0, Relaxed);
    }
    ring.head.store(len, Relaxed);
    ring.closed.store(closed.into(), Relaxed);
    start();
}

/// Number of the next event.
pub fn event_number() -> u64 {
    if rings::has_rings() {
        return own_place().control.events.load(Relaxed);
    }
    position();
    EVENTS.load(Relaxed)
}

/// A recorded thread that finds no room.
struct Recorder;

impl Producer for Recorder {
    fn is_lost(&self) -> bool {
        session().recording_lost.load(Relaxed) != 0
    }

    fn tells(&self) {
        rings::tell_news();
        wake_agent();
    }

    fn sleeps(&self, word: &AtomicU32) {
        let t = sys::Timespec::from_ns(sys::monotonic().ns() + 50_000_000);
        sys::futex_wait(word.as_ptr(), 1, Some(&t));
        if !crate::thread::namespace::agent_lives() {
            session().recording_lost.store(1, Relaxed);
        }
    }
}

/// Writes one event: [`begin`](Writer::begin), then exactly as many bytes as announced, then [`finish`](Writer::finish).
pub struct Writer {
    place: Place,
    at: u64,
    end: u64,
    room: u64,
    /// A part of the event is with the agent already.
    waited: bool,
}

impl Writer {
    /// Starts an event whose header says how long it is.
    pub fn begin(h: &EventHeader) -> Writer {
        quiet::before_event();
        let (place, at) = (place(), position());
        let tail = place.control.tail.load(Acquire).min(at);
        let mut w = Writer {
            place,
            at,
            end: at + h.len as u64,
            room: tail + place.size,
            waited: false,
        };
        // SAFETY: a header is 32 plain bytes, in memory as in the ring.
        w.put_words(unsafe { &*(h as *const EventHeader as *const [u64; HEADER_LEN / 8]) });
        w
    }

    /// Waits until there is room for at least one byte; what is written so far is handed over first.
    #[cold]
    fn wait(&mut self) {
        if crate::thread::in_force::takes_from_trace() {
            // A copy that writes slices, which nobody takes meanwhile.
            crate::log::epoch::fails(current().slot_number(), Why::Long);
        }
        let (ring, size) = (self.place.control, self.place.size);
        self.waited = true;
        ring.open_end.store(self.end, Relaxed);
        ring.head.store(self.at, Release);
        let mut room = ring.room(self.at, size);
        if room == 0 {
            let begun = sys::monotonic().ns();
            room = ring.wait_for_room(self.at, size, &Recorder);
            let ns = sys::monotonic().ns() - begun;
            let counters = &session().counters;
            counters.ring_full_ns.fetch_add(ns as u64, Relaxed);
        }
        self.room = self.at + room;
    }

    fn copy(&mut self, from: u64, mut len: usize, guarded: bool) {
        let mut from = from;
        while len > 0 {
            if self.at >= self.room {
                let tail = self.place.control.tail.load(Acquire).min(self.at);
                self.room = tail + self.place.size;
                if self.at >= self.room {
                    self.wait();
                }
            }
            let (to, contiguous) = self.place.at(self.at);
            let n = len
                .min((self.room - self.at) as usize)
                .min((self.place.size / 2) as usize)
                .min(contiguous as usize);
            if guarded {
                // A page that vanished meanwhile leaves what was in the ring: the program has no such bytes either.
                // SAFETY: `n` contiguous bytes of the ring.
                let _ = guard::guarded(|| unsafe { guard::copy(to, from, n) });
            } else {
                // SAFETY: as above; `from` is the runtime's memory.
                unsafe { guard::copy(to, from, n) };
            }
            self.at += n as u64;
            from += n as u64;
            len -= n;
        }
    }

    /// Adds bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.copy(bytes.as_ptr() as u64, bytes.len(), false);
    }

    /// Adds words.
    #[inline]
    pub fn put_words(&mut self, words: &[u64]) {
        let len = core::mem::size_of_val(words) as u64;
        let (to, contiguous) = self.place.at(self.at);
        if self.at + len <= self.room && len <= contiguous {
            let mut to = to as *mut u64;
            for w in words {
                // SAFETY: contiguous bytes of the ring.
                unsafe {
                    to.write(*w);
                    to = to.add(1);
                }
            }
            self.at += len;
            return;
        }
        self.copy(words.as_ptr() as u64, core::mem::size_of_val(words), false);
    }

    /// Adds a section whose bytes lie at `from` in the program or in scratch.
    pub fn put_section(&mut self, tag: u32, address: u64, from: u64, len: usize) {
        self.put_words(&[address, len as u64 | (tag as u64) << 32]);
        self.copy(from, len, true);
        let pad = (8 - len % 8) % 8;
        if pad != 0 {
            self.put(&[0; 8][..pad]);
        }
    }

    /// Makes the event visible to the agent.
    pub fn finish(self) {
        assert!(
            self.at == self.end,
            "an event's length is not what its header says"
        );
        published(self.at);
        if self.waited {
            self.place.control.open_end.store(0, Relaxed);
        }
    }
}

/// Writes events that lie one behind the other.
pub fn append(mut events: &[u8]) {
    while let Ok(h) = EventHeader::parse(events) {
        let Some((event, rest)) = events.split_at_checked(h.len as usize) else {
            return;
        };
        let mut w = Writer::begin(&h);
        w.put(&event[HEADER_LEN..]);
        w.finish();
        events = rest;
    }
}

/// The position up to which there is room, as far as was known last.
static ROOM: AtomicU64 = AtomicU64::new(0);

/// Where an event of `len` bytes can be written at once, without a [`Writer`]; `None` when there is no room just now.
#[inline]
pub fn in_place(len: usize) -> Option<u64> {
    let at = position();
    if at + len as u64 > ROOM.load(Relaxed) {
        let room = session().ring.tail.load(Acquire).min(at) + SIZE.load(Relaxed);
        ROOM.store(room, Relaxed);
        if at + len as u64 > room {
            return None;
        }
    }
    Some(RING_BASE + (at & (SIZE.load(Relaxed) - 1)))
}

/// Makes an event that was written [`in_place`] visible to the agent.
#[inline]
pub fn publish(len: usize) {
    let end = POSITION.load(Relaxed) + len as u64;
    published(end);
    // The agent's processor has these lines; to ask for them now costs less than to wait for them at the next event.
    let next = RING_BASE + (end & (SIZE.load(Relaxed) - 1));
    for line in 0..AHEAD {
        // SAFETY: a hint; the ring is mapped twice.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) next + len as u64 + 64 * line, options(nostack, preserves_flags));
        }
    }
}

/// Everything up to `end` can be read, and one event more.
#[inline]
fn published(end: u64) {
    let s = session();
    let place = place();
    let ring = place.control;
    advance(end);
    ring.head.store(end, Release);
    if !place.twice {
        rings::tell_news();
    }
    if end.wrapping_sub(ring.tail.load(Relaxed)) > place.size / 4
        && s.agent_asleep.load(Relaxed) != 0
    {
        wake_agent();
    }
}

/// Header of the next event of a replay, without consuming it; `None` when the trace has no more.
pub fn peek() -> Option<EventHeader> {
    let (place, at) = (place(), position());
    if !place.twice {
        crate::log::debugger::await_leave();
    }
    if !available(place, at + HEADER_LEN as u64) {
        return None;
    }
    let mut bytes = [0u8; HEADER_LEN];
    for (to, i) in bytes.chunks_exact_mut(8).zip(0..) {
        to.copy_from_slice(&word_at(place, at + 8 * i).to_le_bytes());
    }
    EventHeader::parse(&bytes).ok()
}

/// Argument `n` of the event that [`peek`] showed.
pub fn peek_word(n: u64) -> Option<u64> {
    let (place, at) = (place(), position() + HEADER_LEN as u64 + 8 * n);
    available(place, at + 8).then(|| word_at(place, at))
}

/// The word at a position that is a multiple of 8, and published.
#[inline]
fn word_at(place: Place, at: u64) -> u64 {
    // SAFETY: published bytes of the ring; a word at a multiple of 8 never wraps.
    unsafe { core::ptr::read_unaligned(place.at(at).0 as *const u64) }
}

/// The next two words of a replay, without consuming them; `None` when the trace has no more.
pub fn peek_entry() -> Option<[u64; 2]> {
    crate::log::debugger::await_leave();
    let (place, at) = (place(), position());
    available(place, at + ENTRY_LEN as u64).then(|| [word_at(place, at), word_at(place, at + 8)])
}

/// Has all been consumed that the driver has published?
pub fn is_used_up() -> bool {
    position() == place().control.head.load(SeqCst)
}

/// Consumes the entry that [`peek_entry`] showed.
pub fn skip_entry() {
    let (place, at) = (place(), position() + ENTRY_LEN as u64);
    advance(at);
    crate::log::debugger::used_up();
    release(place, at);
}

/// Writes an entry of synchronisation.
#[inline]
pub fn put_entry(words: [u64; 2]) {
    let (place, at) = (place(), position());
    let ring = place.control;
    if at + ENTRY_LEN as u64 > ring.tail.load(Acquire).min(at) + place.size {
        put_entry_slowly(words);
        return;
    }
    for (w, i) in words.iter().zip(0..) {
        // SAFETY: free room of the ring; a word at a multiple of 8 never wraps.
        unsafe { (place.at(at + 8 * i).0 as *mut u64).write(*w) };
    }
    published(at + ENTRY_LEN as u64);
}

/// As [`put_entry`], when there is no room just now.
#[cold]
fn put_entry_slowly(words: [u64; 2]) {
    let (place, at) = (place(), position());
    let mut w = Writer {
        place,
        at,
        end: at + ENTRY_LEN as u64,
        room: at,
        waited: false,
    };
    w.copy(words.as_ptr() as u64, ENTRY_LEN, false);
    w.finish();
}

/// Waits until the driver has published bytes up to `until`.
fn available(place: Place, until: u64) -> bool {
    let ring = place.control;
    let mut spins = 0;
    loop {
        if ring.head.load(Acquire) < until && ring.closed.load(Acquire) == 0 && spins < SPINS {
            spins += 1;
            core::hint::spin_loop();
            continue;
        }
        let found = ring.look_for(until, |word, head| {
            // The session's ring is filled in time, unless a debugger holds the rest back and is to know.
            if !place.twice || crate::log::debugger::traces() {
                wake_agent();
            }
            let told = Starves::new(head);
            let t = sys::Timespec::from_ns(sys::monotonic().ns() + 100_000_000);
            sys::futex_wait(word.as_ptr(), 1, Some(&t));
            drop(told);
            if !crate::thread::namespace::agent_lives() {
                // The driver is gone: nobody wants this replay any more.
                sys::exit_group(125);
            }
            if !place.twice {
                super::total::begin_asleep();
            }
        });
        if let Some(there) = found {
            return there;
        }
    }
}

/// Replay of `order`: the calling thread wants more events, and has said so ([`reprise_abi::waits`]).
struct Starves(Option<&'static Awaited>);

impl Starves {
    fn new(head: u64) -> Starves {
        let told = crate::thread::in_force::orders_synchronisation()
            .then(|| &crate::thread::rings::head().waits[current().slot_number() as usize]);
        // Who waits for its turn, and looks at what comes next, has said that already.
        let told = told.filter(|a| a.count.load(SeqCst) & 1 == 0);
        if let Some(a) = told {
            a.begin();
            a.sleeps(FEED, 0, head as u32);
        }
        Starves(told)
    }
}

impl Drop for Starves {
    fn drop(&mut self) {
        if let Some(a) = self.0 {
            a.end();
        }
    }
}

/// Reads one event of a replay piece by piece, so that it may be longer than the ring.
pub struct Reader {
    place: Place,
    at: u64,
    end: u64,
    /// The driver has published bytes up to here.
    known: u64,
    /// The event's header.
    pub header: EventHeader,
}

impl Reader {
    /// Begins to read the event that [`peek`] showed.
    pub fn begin(header: EventHeader) -> Reader {
        let (place, at) = (place(), position());
        Reader {
            place,
            at: at + HEADER_LEN as u64,
            end: at + header.len as u64,
            known: place.control.head.load(Acquire),
            header,
        }
    }

    /// Bytes of the event not yet read.
    pub fn left(&self) -> usize {
        (self.end - self.at) as usize
    }

    /// Hands the next `len` bytes to `sink` in pieces, as (address, bytes).
    fn each(&mut self, len: usize, mut sink: impl FnMut(u64, usize)) -> bool {
        let mut left = len.min(self.left());
        let quarter = (self.place.size / 4) as usize;
        while left > 0 {
            let (from, contiguous) = self.place.at(self.at);
            let n = left.min(quarter).min(contiguous as usize);
            if self.at + n as u64 > self.known && !available(self.place, self.at + n as u64) {
                return false;
            }
            sink(from, n);
            self.at += n as u64;
            left -= n;
            if left > 0 || n == quarter {
                release(self.place, self.at);
            }
        }
        true
    }

    /// Reads one word.
    #[inline]
    pub fn word(&mut self) -> u64 {
        if self.at + 8 <= self.known.min(self.end) {
            let w = word_at(self.place, self.at);
            self.at += 8;
            return w;
        }
        let mut w = 0;
        self.each(8, |from, n| {
            if n == 8 {
                // SAFETY: published bytes of the ring.
                w = unsafe { core::ptr::read_unaligned(from as *const u64) };
            }
        });
        w
    }

    /// Reads the argument words.
    pub fn args(&mut self) -> [u64; 8] {
        let mut a = [0; 8];
        for w in a.iter_mut().take(self.header.nargs as usize) {
            *w = self.word();
        }
        a
    }

    /// Reads the next section's header: (address, length, tag).
    pub fn section(&mut self) -> Option<(u64, usize, u32)> {
        if self.left() < SECTION_LEN {
            return None;
        }
        let address = self.word();
        let w = self.word();
        let len = w as u32 as usize;
        if len.div_ceil(8) * 8 > self.left() {
            return None;
        }
        Some((address, len, (w >> 32) as u32))
    }

    /// Copies a section's bytes to the program; false when the program has no such memory.
    pub fn to_program(&mut self, address: u64, len: usize) -> bool {
        let mut done = 0;
        let mut ok = true;
        self.each(len, |from, n| {
            // SAFETY: `from` is the ring; the program's side is guarded.
            ok &= guard::guarded(|| unsafe { guard::copy(address + done, from, n) }).is_some();
            done += n as u64;
        });
        self.skip((8 - len % 8) % 8);
        ok
    }

    /// Hands a section's bytes to `f` in pieces, as (address, bytes).
    pub fn pieces(&mut self, len: usize, mut f: impl FnMut(u64, u64)) {
        self.each(len, |from, n| f(from, n as u64));
        self.skip((8 - len % 8) % 8);
    }

    /// Copies a section's first bytes to `into` and skips the rest; the bytes copied.
    pub fn to_buffer(&mut self, len: usize, into: &mut [u8]) -> usize {
        let take = len.min(into.len());
        let mut done = 0;
        let to = into.as_mut_ptr() as u64;
        self.each(take, |from, n| {
            // SAFETY: both sides are ours.
            unsafe { guard::copy(to + done, from, n) };
            done += n as u64;
        });
        self.skip(len.div_ceil(8) * 8 - take);
        take
    }

    /// Skips bytes.
    pub fn skip(&mut self, n: usize) {
        self.each(n, |_, _| {});
    }

    /// The event is consumed; whatever was not read is skipped.
    pub fn finish(mut self) {
        if self.left() > 0 {
            self.skip(self.left());
        }
        advance(self.end);
        if !self.place.twice {
            crate::log::debugger::used_up();
        }
        release(self.place, self.end);
    }
}

/// Gives room back to the driver.
fn release(place: Place, at: u64) {
    let ring = place.control;
    ring.tail.store(at, Release);
    if !place.twice {
        rings::tell_news();
    }
    if ring.producer_asleep.load(Relaxed) != 0 && ring.head.load(Relaxed) - at < place.size / 2 {
        ring.producer_asleep.store(0, SeqCst);
        wake_agent();
    }
}
