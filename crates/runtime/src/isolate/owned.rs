//! Lazy commits with page ownership (DThreads 5): a page that one thread alone has written in several rounds becomes its **own**. Then the thread's copy is
//! the page: it is not compared, committed or made anew any more, and others have no access to it. When one of them wants it, the owner
//! gives it back, which commits it as it was when the owner came to its synchronisation point.
//!
//! The paper's owner answers at once, with a signal. Here others' touch is a synchronisation point, at that instruction (what [`lets`](super::phases::Phases::lets_own) pages be owned): what
//! the owner has written in the middle of a phase is nobody else's to see. So each page is given back once at most for each thread that
//! wants it, and does not become anybody's own again.
//!
//! Memory that a thread maps is its own from the **birth**, as long as others don't want such memory: usually it is for the thread's heap. Then it is
//! anonymous memory of its process, and costs what memory costs natively.
//!
//! Which pages are owned follows from the program alone: from who has written them, and who has copies.

use super::options::{self, count};
use super::pages::{copy_to_backing, holders, page, place_of};
use super::phases::phases;
use super::{conflicts, proxy, scan, space, views};
use crate::machine::guarded::Guarded;
use crate::machine::sys;
use crate::memory::map;
use crate::thread::leave::Turn;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use reprise_abi::det::OWNERSHIP;
use reprise_abi::layout::{MAX_SLOTS, PAGE};

/// A page becomes a thread's own when it was the only one to commit it so many times in a row.
const RIPE: u32 = 3;
/// So many pages beside each other are worth it: others have to change their mappings.
pub const LEAST: usize = 4;
/// Most stretches of owned pages.
const MAX: usize = 512;
/// When others have wanted a thread's own pages so many times, what it maps is no longer its own from birth.
const WANTED: u32 = 2;
/// Of a page that is nobody's own any more.
const NEVER: u32 = 0xffff;
const COUNT_SHIFT: u32 = 16;
const PROT_RW: u64 = 3;

/// Pages that are a thread's own.
#[derive(Clone, Copy, Default)]
struct Stretch {
    start: u64,
    end: u64,
    slot: u32,
    /// It was never seen through a view.
    from_birth: bool,
}

static TABLE: Guarded<[Stretch; MAX], Turn> = Guarded::new(
    [Stretch {
        start: 0,
        end: 0,
        slot: 0,
        from_birth: false,
    }; MAX],
);
static LEN: AtomicUsize = AtomicUsize::new(0);
/// How often others have wanted own pages of a slot's thread.
static CLAIMS: [AtomicU32; MAX_SLOTS] = [const { AtomicU32::new(0) }; MAX_SLOTS];

/// Has the table changed, in a turn: `how` is given it, with how many there are, and says how many there are then.
fn change(how: impl FnOnce(&mut [Stretch; MAX], usize) -> usize) {
    let len = LEN.load(Relaxed);
    // SAFETY: it is the thread's turn, so nobody else looks or changes; `insert` and `cut`, which ask, look nowhere else meanwhile.
    LEN.store(how(unsafe { TABLE.change() }, len), Relaxed);
}

fn all() -> &'static [Stretch] {
    // SAFETY: it is the thread's turn, or it runs, and nobody has a turn. Who goes through them and changes them begins anew.
    unsafe { &TABLE.look()[..LEN.load(Relaxed)] }
}

/// Are there owned pages?
#[inline(always)]
pub fn any() -> bool {
    LEN.load(Relaxed) != 0
}

/// There are none in this process, which has left the program's memory, or are none yet.
pub fn start() {
    LEN.store(0, Relaxed);
}

/// Is there such a thing? Of owned pages the report of conflicts would know nothing.
pub fn is_wanted() -> bool {
    options::has(OWNERSHIP) && !conflicts::on()
}

/// The stretches that have a part between these addresses, from the first one on.
fn between(start: u64, end: u64) -> impl Iterator<Item = &'static Stretch> {
    let all = all();
    let first = all.partition_point(|s| s.end <= start);
    all[first..].iter().take_while(move |s| s.start < end)
}

/// Is a page between these addresses owned by anybody?
pub fn intersects(start: u64, end: u64) -> bool {
    any() && between(start, end).next().is_some()
}

/// Is a page between these addresses owned by another thread than that of this slot?
pub fn is_foreign(slot: u32, start: u64, end: u64) -> bool {
    any() && between(start, end).any(|s| s.slot != slot)
}

/// Has the thread of this slot pages of its own?
pub fn has_own(slot: u32) -> bool {
    all().iter().any(|s| s.slot == slot)
}

/// Calls `f` with each part from `start` to `end` that is not the thread's own.
pub fn each_other(slot: u32, start: u64, end: u64, mut f: impl FnMut(u64, u64)) {
    let mut from = start;
    for s in between(start, end).filter(|s| s.slot == slot) {
        if from < s.start {
            f(from, s.start);
        }
        from = s.end;
    }
    if from < end {
        f(from, end);
    }
}

/// Calls `f` with each page that is the thread's own, and that it has written.
pub fn each_own(slot: u32, mut f: impl FnMut(u64)) {
    for s in all().iter().filter(|s| s.slot == slot) {
        scan::each_own(s.start, s.end, &mut f);
    }
}

/// In a turn: a new thread is about to be made, on this slot.
pub fn thread_begins(slot: u32) {
    CLAIMS[slot as usize].store(0, Relaxed);
}

/// In a turn: what the thread maps is for others, too, who are made by it.
pub fn makes_threads(slot: u32) {
    CLAIMS[slot as usize].store(WANTED, Relaxed);
}

/// In a turn of the thread, which maps so many bytes: are they to be its own from birth?
pub fn is_born_own(t: &Block, bytes: u64) -> bool {
    let has_turn = phases().bears_own(t);
    let usual = CLAIMS[t.slot as usize].load(Relaxed) < WANTED && LEN.load(Relaxed) < MAX / 2;
    is_time() && has_turn && usual && bytes >= LEAST as u64 * PAGE
}

/// In a turn: this memory, of which others have a view without access, is the thread's own from birth.
pub fn born(t: &Block, start: u64, end: u64) {
    insert(t, start, end, true);
}

/// In a turn of the thread of this slot: it has committed the page of which this is the history, and nobody else had a copy, or somebody had. Whether the page
/// is ripe now.
pub fn committed(history: &AtomicU32, slot: u32, alone: bool) -> bool {
    let h = history.load(Relaxed);
    let (count, last) = (h >> COUNT_SHIFT, h & 0xffff);
    if count == NEVER {
        return false;
    }
    let count = match alone && last == slot + 1 {
        true => (count + 1).min(RIPE),
        false => alone as u32,
    };
    history.store(count << COUNT_SHIFT | (slot + 1), Relaxed);
    count == RIPE
}

/// Can the page at this offset of the backing become its last writer's own?
pub fn is_ripe(offset: u64) -> bool {
    page(offset).committed.load(Relaxed) >> COUNT_SHIFT == RIPE
        && holders(offset).load(Relaxed) == 1
}

/// In a turn, when these pages are committed: they become the thread's own, if they can. They are in no list any more, but the thread still holds them.
pub fn take(t: &Block, start: u64, end: u64) -> bool {
    let is_usual = |r: crate::memory::Region| r.end >= end && r.prot as u64 == PROT_RW;
    if !map().at(start).is_some_and(is_usual) {
        return false;
    }
    if !insert(t, start, end, false) {
        return false;
    }
    space::tell_protection(t, start, end - start, sys::PROT_NONE);
    true
}

/// Puts these pages into the table, if there is room, and if they are enough or lie beside others.
fn insert(t: &Block, start: u64, end: u64, from_birth: bool) -> bool {
    let mut fits = true;
    change(|table, len| {
        let n = table[..len].partition_point(|s| s.end <= start);
        let alike = |s: &Stretch| s.slot == t.slot && s.from_birth == from_birth;
        if n > 0 && table[n - 1].end == start && alike(&table[n - 1]) {
            table[n - 1].end = end;
        } else if n < len && table[n].start == end && alike(&table[n]) {
            table[n].start = start;
        } else if len == MAX || end - start < LEAST as u64 * PAGE {
            fits = false;
        } else {
            table.copy_within(n..len, n + 1);
            table[n] = Stretch {
                start,
                end,
                slot: t.slot,
                from_birth,
            };
            return len + 1;
        }
        len
    });
    if !fits {
        return false;
    }
    let pages = (end - start) / PAGE;
    session().counters.det_owned.fetch_add(pages, Relaxed);
    true
}

/// What becomes of pages that are everybody's again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Others want them: they will be nobody's own again.
    Wanted,
    /// Nobody wants them now.
    Returned,
    /// So, and what they hold doesn't matter any more: they are about to be unmapped.
    Dropped,
}

/// In a turn: all pages between these addresses are everybody's.
pub fn claim(t: &Block, start: u64, end: u64, why: Why) {
    while let Some(s) = between(start, end).next().copied() {
        let mut part = (s.start.max(start), s.end.min(end));
        if LEN.load(Relaxed) == MAX {
            // There is no room for what would be left of it.
            part = (s.start, s.end);
        }
        let (from, to) = part;
        let how = How::new(s.from_birth, why != Why::Dropped);
        match s.slot == t.slot {
            true => give_back(from, to, how),
            false => proxy::give_back(s.slot, from, to, how),
        }
        cut(s, from, to);
        let history = if why == Why::Wanted {
            CLAIMS[s.slot as usize].fetch_add(1, Relaxed);
            NEVER << COUNT_SHIFT
        } else {
            0
        };
        for at in (from..to).step_by(PAGE as usize) {
            if let Some(place) = place_of(at) {
                page(place as u64 * PAGE).committed.store(history, Relaxed);
            }
            count(&session().counters.det_claimed);
        }
        if s.slot != t.slot {
            sys::mprotect(from, to - from, PROT_RW);
        }
        space::tell_protection(t, from, to - from, PROT_RW);
    }
}

/// In a turn: all pages of the thread's own, or of all threads, are everybody's.
pub fn claim_all(t: &Block, of_others: bool) {
    while let Some(s) = all()
        .iter()
        .find(|s| of_others || s.slot == t.slot)
        .copied()
    {
        claim(t, s.start, s.end, Why::Returned);
    }
}

/// The part of this stretch is none any more.
fn cut(s: Stretch, from: u64, to: u64) {
    change(|table, len| {
        let n = table[..len].partition_point(|o| o.end <= s.start);
        match (s.start < from, to < s.end) {
            (true, true) => {
                table.copy_within(n + 1..len, n + 2);
                table[n].end = from;
                table[n + 1] = Stretch { start: to, ..s };
                return len + 1;
            }
            (true, false) => table[n].end = from,
            (false, true) => table[n].start = to,
            (false, false) => {
                table.copy_within(n + 1..len, n);
                return len - 1;
            }
        }
        len
    });
}

/// How pages are given back.
#[derive(Clone, Copy)]
pub struct How(u64);

impl How {
    fn new(from_birth: bool, matters: bool) -> How {
        How(from_birth as u64 | (matters as u64) << 1)
    }
    /// From [`How::word`].
    pub fn of_word(word: u64) -> How {
        How(word)
    }
    /// For another thread-process.
    pub fn word(self) -> u64 {
        self.0
    }
    fn is_from_birth(self) -> bool {
        self.0 & 1 != 0
    }
    fn matters(self) -> bool {
        self.0 & 2 != 0
    }
}

/// Of the calling thread, whose pages these are, while another one or itself has a turn and no thread runs: they are committed, and it sees them as all do.
pub fn give_back(start: u64, end: u64, how: How) {
    let to_backing = |at| {
        if let Some(place) = place_of(at) {
            copy_to_backing(at, place as u64 * PAGE);
        }
    };
    if how.is_from_birth() {
        if how.matters() {
            scan::each_own(start, end, &mut { to_backing });
        }
        views::each_part(start, end, &mut |e| {
            views::show(e.start, e.end - e.start, e.offset, PROT_RW);
        });
        return;
    }
    for at in (start..end).step_by(PAGE as usize) {
        if how.matters() {
            to_backing(at);
        }
        if let Some(place) = place_of(at) {
            holders(place as u64 * PAGE).fetch_sub(1, Relaxed);
        }
    }
    views::drop_copies(start, end - start);
}

/// Pages around this address that are claimed together, by a thread that has claimed pages so many times.
pub fn window(address: u64, times: u32) -> (u64, u64) {
    const FIRST: u64 = 16 * PAGE;
    let size = FIRST << (2 * times).min(16);
    let start = address & !(size - 1);
    (start, start + size)
}

/// Are pages given away now?
pub fn is_time() -> bool {
    is_wanted() && phases().lets_own()
}
