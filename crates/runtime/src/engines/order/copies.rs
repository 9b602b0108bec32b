//! A fork while other threads of the process run: what the child's copy of the memory holds.
//!
//! Nobody orders what the others do at that moment, and they stand elsewhere in a replay. So the child of such a process logs what it got, as
//! far as others could write there, before it does anything else; a replay's child forgets its own copy and takes that one. Then what is in it
//! (locks that somebody holds, the runs of objects, half of a line in a buffer) is as it was recorded. A process with one thread
//! needs none of this.

use crate::common::rebuilt;
use crate::common::report::{diverge, Actual};
use crate::log::events;
use crate::log::ring::{self, Reader, Writer};
use crate::machine::present::{each_written, Presence};
use crate::machine::{guard, hash, sys};
use crate::memory;
use crate::memory::Region;
use crate::sync::libc as sync;
use crate::thread::in_force::orders_synchronisation;
use crate::thread::message;
use crate::thread::Block;
use reprise_abi::event::{section_len, EventHeader, Kind, Tag};
use reprise_abi::layout::PAGE;
use reprise_abi::notes;
use reprise_abi::order::Entry;
use reprise_abi::session::{divergence_kind as kinds, region_flags};

/// Most bytes that are logged of one copy.
const MOST: u64 = 4 << 30;
/// Most bytes in an event.
const PIECE: u64 = 1 << 20;
const WRITE: u32 = 2;
const DONTNEED: u64 = 4;

/// [`EventHeader::detail`]: memory of the program; the runtime's tables have the numbers behind it.
const PROGRAM: u32 = reprise_abi::event::COPIED;

/// A process is about to be made: does its memory need to be logged?
pub fn is_needed() -> bool {
    orders_synchronisation() && !crate::thread::process::has_memory_to_itself()
}

/// Record, in the child.
pub fn log(t: &Block) {
    let mut pages = Pages::new(t.slot);
    // The first event says that there is a copy, even if it is empty.
    pages.write(PROGRAM, 0, 0, 0);
    let presence = Presence::now();
    for r in memory::map().regions().iter().filter(is_torn) {
        let start = memory::grown::first_mapped(r);
        let written = r.flags & region_flags::FILE != 0
            && each_written(start, r.end, |page| pages.add(PROGRAM, 0, page));
        if !written {
            presence.each(start, r.end, r.flags, |page| pages.add(PROGRAM, 0, page));
        }
        pages.flush();
    }
    for (number, (at, len)) in (PROGRAM + 1..).zip(sync::tables()) {
        let flags = 0;
        presence.each(at, at + len, flags, |page| pages.add(number, at, page));
        pages.flush();
    }
    if pages.left == 0 {
        message::note(notes::BIG_COPY);
    }
}

/// May other threads have written there at any moment?
fn is_torn(r: &&Region) -> bool {
    r.prot & WRITE != 0 && r.flags & (region_flags::SHARED | region_flags::VDSO) == 0
}

/// Stretches of pages that are logged.
struct Pages {
    slot: u32,
    table: u32,
    base: u64,
    start: u64,
    end: u64,
    /// How many bytes more may be logged.
    left: u64,
}

impl Pages {
    fn new(slot: u32) -> Pages {
        Pages {
            slot,
            table: PROGRAM,
            base: 0,
            start: 0,
            end: 0,
            left: MOST,
        }
    }

    /// Adds a page, whose address is told from `base` on.
    fn add(&mut self, table: u32, base: u64, page: u64) {
        // SAFETY: guarded.
        let is_zero = guard::guarded(|| unsafe { hash::is_zero_page(page) });
        if is_zero != Some(false) {
            return;
        }
        if page != self.end || self.end - self.start >= PIECE {
            self.flush();
            (self.table, self.base, self.start) = (table, base, page);
        }
        self.end = page + PAGE;
    }

    fn flush(&mut self) {
        let len = self.end - self.start;
        if len != 0 && len <= self.left {
            self.left -= len;
            self.write(self.table, self.base, self.start, len as usize);
        } else if len != 0 {
            self.left = 0;
        }
        (self.start, self.end) = (0, 0);
    }

    fn write(&self, table: u32, base: u64, at: u64, len: usize) {
        let h = EventHeader {
            detail: table,
            ..events::header(Kind::Shared, self.slot, 0, section_len(len))
        };
        let mut w = Writer::begin(&h);
        w.put_section(Tag::Output as u32, at - base, at, len);
        w.finish();
    }
}

/// Replay, in the child: takes the recorded copy, if there is one. It is of no use to a rebuilt program, whose variables lie elsewhere.
pub fn take(t: &Block) {
    let Some(first) = next() else {
        return;
    };
    if rebuilt::on() {
        diverge(t, kinds::STATE, Some(&first), &Actual::of(Kind::Shared));
    }
    for r in memory::map().regions().iter().filter(is_torn) {
        let start = memory::grown::first_mapped(r);
        sys::madvise(start, r.end - start, DONTNEED);
    }
    for (at, len) in sync::tables() {
        sys::madvise(at, len, DONTNEED);
    }
    while let Some(h) = next() {
        let base = match h.detail {
            PROGRAM => Some(0),
            n => sync::tables()
                .nth(n.wrapping_sub(PROGRAM + 1) as usize)
                .map(|(at, _)| at),
        };
        let mut r = Reader::begin(h);
        while let Some((address, len, tag)) = r.section() {
            match base.filter(|_| tag == Tag::Output as u32) {
                Some(base) => {
                    r.to_program(base + address, len);
                }
                None => r.skip(len.div_ceil(8) * 8),
            }
        }
        r.finish();
    }
}

fn next() -> Option<EventHeader> {
    ring::peek_entry().filter(|words| Entry::from_words(*words).is_none())?;
    ring::peek().filter(|h| h.kind == Kind::Shared as u8)
}
