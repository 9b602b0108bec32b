//! Lazy commits with page ownership (DThreads 5): a page that one thread alone has written in several rounds becomes its **own**. Then the thread's copy is
//! the page: it is not compared, committed or made anew any more, and others have no access to it. When one of them wants it, the owner
//! gives it back, which commits it as it was when the owner came to its synchronisation point.
//!
//! The paper's owner answers at once, with a signal. Here others' touch is a synchronisation point, at that instruction ([`crate::det::touch`]): what
//! the owner has written in the middle of a phase is nobody else's to see. So each page is given back once at most for each thread that
//! wants it, and does not become anybody's own again.
//!
//! Which pages are owned follows from the program alone: from who has written them, and who has copies.

use super::pages::{copy_to_backing, holders, page, place_of};
use super::{conflicts, views};
use crate::det::options::{self, count};
use crate::det::{errand, space, token};
use crate::memory::map;
use crate::thread::{session, Block};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use reprise_abi::det::OWNERSHIP;
use reprise_abi::layout::PAGE;

/// A page becomes a thread's own when it was the only one to commit it so many times in a row.
const RIPE: u32 = 3;
/// So many pages beside each other are worth it: others have to change their mappings.
pub const LEAST: usize = 4;
/// Most stretches of owned pages.
const MAX: usize = 512;
/// Of a page that is nobody's own any more.
const NEVER: u32 = 0xffff;
const COUNT_SHIFT: u32 = 16;
const PROT_NONE: u64 = 0;
const PROT_RW: u64 = 3;

/// Pages that are a thread's own.
#[derive(Clone, Copy, Default)]
struct Stretch {
    start: u64,
    end: u64,
    slot: u32,
}

struct Table(UnsafeCell<[Stretch; MAX]>);
// SAFETY: changed in turns only, read in turns and by threads that run, which are never at once.
unsafe impl Sync for Table {}
static TABLE: Table = Table(UnsafeCell::new(
    [Stretch {
        start: 0,
        end: 0,
        slot: 0,
    }; MAX],
));
static LEN: AtomicUsize = AtomicUsize::new(0);

fn table() -> &'static mut [Stretch; MAX] {
    // SAFETY: as said there.
    unsafe { &mut *TABLE.0.get() }
}

fn all() -> &'static [Stretch] {
    &table()[..LEN.load(Relaxed)]
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

/// The end of the stretch of the thread's own pages in which this address is.
pub fn own_until(slot: u32, address: u64) -> Option<u64> {
    between(address, address + 1)
        .find(|s| s.slot == slot)
        .map(|s| s.end)
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

/// Calls `f` with each page that is the thread's own.
pub fn each_own(slot: u32, mut f: impl FnMut(u64)) {
    for s in all().iter().filter(|s| s.slot == slot) {
        (s.start..s.end).step_by(PAGE as usize).for_each(&mut f);
    }
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
    let (table, len) = (table(), LEN.load(Relaxed));
    let n = table[..len].partition_point(|s| s.end <= start);
    let mine = |s: &Stretch| s.slot == t.slot;
    let before = n > 0 && table[n - 1].end == start && mine(&table[n - 1]);
    let pages = (end - start) / PAGE;
    if before {
        table[n - 1].end = end;
    } else if n < len && table[n].start == end && mine(&table[n]) {
        table[n].start = start;
    } else if len == MAX || pages < LEAST as u64 {
        return false;
    } else {
        table.copy_within(n..len, n + 1);
        let slot = t.slot;
        table[n] = Stretch { start, end, slot };
        LEN.store(len + 1, Relaxed);
    }
    session().counters.det_owned.fetch_add(pages, Relaxed);
    space::tell_protection(t, start, end - start, PROT_NONE);
    true
}

/// In a turn: all pages between these addresses are everybody's. `again`: they may become somebody's own again.
pub fn claim(t: &Block, start: u64, end: u64, again: bool) {
    while let Some(s) = between(start, end).next().copied() {
        let mut part = (s.start.max(start), s.end.min(end));
        if LEN.load(Relaxed) == MAX {
            // There is no room for what would be left of it.
            part = (s.start, s.end);
        }
        let (from, to) = part;
        match s.slot == t.slot {
            true => give_back(from, to),
            false => errand::give_back(s.slot, from, to),
        }
        cut(s, from, to);
        for at in (from..to).step_by(PAGE as usize) {
            let history = if again { 0 } else { NEVER << COUNT_SHIFT };
            if let Some(place) = place_of(at) {
                page(place as u64 * PAGE).committed.store(history, Relaxed);
            }
            count(&session().counters.det_claimed);
        }
        if s.slot != t.slot {
            space::protect(from, to - from, PROT_RW);
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
        claim(t, s.start, s.end, true);
    }
}

/// The part of this stretch is none any more.
fn cut(s: Stretch, from: u64, to: u64) {
    let (table, len) = (table(), LEN.load(Relaxed));
    let n = table[..len].partition_point(|o| o.end <= s.start);
    match (s.start < from, to < s.end) {
        (true, true) => {
            table.copy_within(n + 1..len, n + 2);
            table[n].end = from;
            table[n + 1] = Stretch { start: to, ..s };
            LEN.store(len + 1, Relaxed);
        }
        (true, false) => table[n].end = from,
        (false, true) => table[n].start = to,
        (false, false) => {
            table.copy_within(n + 1..len, n);
            LEN.store(len - 1, Relaxed);
        }
    }
}

/// Of the calling thread, whose pages these are, while another one or itself has a turn and no thread runs: they are committed.
pub fn give_back(start: u64, end: u64) {
    for at in (start..end).step_by(PAGE as usize) {
        if let Some(place) = place_of(at) {
            copy_to_backing(at, place as u64 * PAGE);
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

/// Is the ring such that pages are given away?
pub fn is_time() -> bool {
    is_wanted() && token::live() > 1
}
