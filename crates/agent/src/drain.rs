//! From the ring to the trace. The ring is the program's memory too, so nothing in it is believed: the index is kept privately, and
//! every event is copied, then checked, then written.

use crate::inputs::mapped::Keeping;
use crate::inputs::Inputs;
use crate::wake;
use reprise_abi::event::{Event, ParseError};
use reprise_abi::layout::RING_SIZE;
use reprise_launch::SharedSession;
use reprise_trace::{Census, TraceError, Writer};
use std::sync::atomic::Ordering::*;

/// Bytes taken from the ring at a time.
const CHUNK: usize = 1 << 20;
/// Bytes written to the trace before the ring is looked at again.
const PORTION: usize = 1 << 20;
/// Most bytes between ring and trace. When they are so many, the ring fills, and the program waits.
const MOST_GATHERED: usize = 64 << 20;
/// Memory that is kept for the next burst, in bytes.
pub const KEPT_CAPACITY: usize = 8 << 20;

/// The consumer's end of the ring.
pub struct Drain {
    tail: u64,
    /// What was taken from the ring, ...
    gathered: Vec<u8>,
    /// ... and how much of it is written.
    written: usize,
    /// The next event is not here as a whole.
    unfinished: bool,
    damage: Option<&'static str>,
    /// Who is in what was written.
    pub census: Census,
    /// What it refers to.
    pub inputs: Inputs,
}

impl Drain {
    /// At the beginning of a recording, with a census of its first process.
    pub fn new(census: Census, inputs: Inputs) -> Drain {
        Drain {
            census,
            inputs,
            tail: 0,
            gathered: Vec::new(),
            written: 0,
            unfinished: false,
            damage: None,
        }
    }

    /// Why the ring can't be read any more, if so.
    pub fn damage(&self) -> Option<&'static str> {
        self.damage
    }

    /// Can the ring not be read any more, and is all written that came before?
    pub fn is_lost(&self) -> bool {
        self.damage.is_some() && self.gathered.len() == self.written
    }

    /// Takes and writes all that is there; the number of bytes. With `discard`, it is thrown away.
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
            match self.some(shared, writer, discard)? {
                0 => return Ok(moved),
                n => moved += n,
            }
        }
    }

    /// Empties the ring, and writes a portion of what was gathered; the bytes that were moved. A program that reads much at once
    /// needn't wait until that is compressed.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn some(
        &mut self,
        shared: &SharedSession,
        writer: &mut Writer,
        discard: bool,
    ) -> Result<usize, TraceError> {
        let taken = self.take(shared, discard);
        Ok(taken + self.write(shared, writer)?)
    }

    /// As [`some`](Self::some), up to what is in the ring when it is asked for.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn by_now(
        &mut self,
        shared: &SharedSession,
        writer: &mut Writer,
    ) -> Result<usize, TraceError> {
        let until = shared.session().ring.head.load(Acquire);
        let mut moved = 0;
        loop {
            let n = self.some(shared, writer, false)?;
            moved += n;
            let left = (self.gathered.len() - self.written) as u64;
            if n == 0 || self.tail.wrapping_sub(left) >= until {
                return Ok(moved);
            }
        }
    }

    /// Whoever was writing an event was killed: writes all that is whole, and forgets the rest. The next event begins at `next`.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn forget_event(
        &mut self,
        shared: &SharedSession,
        writer: &mut Writer,
        discard: bool,
        next: u64,
    ) -> Result<usize, TraceError> {
        let moved = self.all(shared, writer, discard);
        let s = shared.session();
        if self.gathered.len() > self.written {
            s.counters.torn_events.fetch_add(1, Relaxed);
        }
        self.gathered.truncate(self.written);
        self.unfinished = false;
        self.tail = next;
        let ring = &s.ring;
        ring.head.store(next, Release);
        ring.tail.store(next, Release);
        moved
    }

    fn take(&mut self, shared: &SharedSession, discard: bool) -> usize {
        let ring = &shared.session().ring;
        let mut moved = 0;
        if discard {
            self.gathered.clear();
            self.written = 0;
        }
        // An event may be larger than what is usually gathered.
        while (discard || self.damage.is_none())
            && (self.unfinished || self.gathered.len() - self.written < MOST_GATHERED)
        {
            let head = ring.head.load(Acquire);
            let there = head.wrapping_sub(self.tail);
            if there == 0 {
                break;
            }
            if there > RING_SIZE && !discard {
                self.damage = Some("an impossible ring index");
                shared.session().recording_lost.store(1, SeqCst);
                break;
            }
            // What is thrown away goes in one step: of an index that the program made up it would be for ever in small ones.
            if discard {
                self.tail = head;
                moved += there.min(RING_SIZE) as usize;
                self.taken(shared);
                break;
            }
            let n = (there as usize).min(CHUNK);
            let from = shared.ring_bytes(self.tail, n);
            let old = self.gathered.len();
            self.gathered.reserve(n);
            // SAFETY: `n` bytes of the double mapping; copied before they are looked at.
            unsafe {
                std::ptr::copy_nonoverlapping(from, self.gathered.as_mut_ptr().add(old), n);
                self.gathered.set_len(old + n);
            }
            // A position that the program chose may be the last there is.
            self.tail = self.tail.wrapping_add(n as u64);
            self.taken(shared);
            moved += n;
        }
        moved
    }

    /// The producer has the room again.
    fn taken(&self, shared: &SharedSession) {
        let ring = &shared.session().ring;
        if ring.taken(self.tail) {
            wake(&ring.producer_asleep);
        }
    }

    /// Writes whole events, about a portion of them; their bytes.
    fn write(&mut self, shared: &SharedSession, writer: &mut Writer) -> Result<usize, TraceError> {
        let mut at = self.written;
        self.unfinished = false;
        let result = loop {
            if at - self.written >= PORTION {
                break Ok(0);
            }
            match Event::parse(&self.gathered[at..]) {
                Ok(e) => {
                    let len = e.bytes().len();
                    let number = writer.next_event();
                    let changed = match self.inputs.keep_next(shared, &e, number, true) {
                        Ok(Keeping::Done(changed)) => changed,
                        // It is asked for again: there is something to do until then.
                        Ok(Keeping::Later) => break Ok(1),
                        Err(e) => break Err(e),
                    };
                    writer.count_elsewhere(self.inputs.take_copied());
                    if let Err(e) = writer.push(changed.as_deref().unwrap_or(e.bytes())) {
                        break Err(e);
                    }
                    self.census.follow(&e);
                    at += len;
                }
                Err(ParseError::Short(_)) => {
                    self.unfinished = at == self.written && at < self.gathered.len();
                    break Ok(0);
                }
                Err(ParseError::Bad(why)) => {
                    tracing::error!(why, "the ring makes no sense");
                    self.damage = Some(why);
                    shared.session().recording_lost.store(1, SeqCst);
                    break Ok(0);
                }
            }
        };
        let done = at - self.written;
        self.written = at;
        if self.damage.is_some() && matches!(result, Ok(0)) && done < PORTION {
            // Nothing makes sense of the rest any more.
            self.gathered.truncate(at);
        }
        // What is left moves to the front when that is cheap.
        if self.gathered.len() - at <= at {
            self.gathered.drain(..at);
            self.written = 0;
            if self.gathered.capacity() > KEPT_CAPACITY && self.gathered.len() < CHUNK {
                self.gathered.shrink_to(CHUNK);
            }
        }
        result.map(|more| done + more)
    }
}
