//! Commits (DThreads 4.2.2): the bytes that a thread has changed since the phase began become everybody's.
//!
//! Per page of the backing there is a **version**, which grows with every commit that changes it. Whoever is the first to change a page in a round
//! leaves its **twin**, the page as it was when the phase began: what others have changed of it shows in comparison with that. If nobody else has a copy
//! of the page, there is nothing to compare: no twin is left, and a page that was first written in this phase is copied as a whole (DThreads 5, lazy twins and diff
//! elimination).
//!
//! A page that was written in this phase is likely to be written in the next one (the stack, to begin with). So its copy is **kept** for some rounds,
//! and when others change the page, it is copied again: that costs a tenth of what the kernel asks for a new copy. Each thread has a list of its
//! copies. A copy begins with a page fault: while the thread has had none, the list is right, and nothing is scanned.

use super::layout::*;
use super::options::{self, count};
use super::pages::*;
use super::phases::{look, phases};
use super::{conflicts, owned, scan, views};
use crate::machine::{guard, sys};
use crate::thread::panic;
use crate::thread::{session, Block, Current, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::det::{COPIES, EARLY_LOOKS, OBJECTS, SCANS, TWINS as LAZY_TWINS};
use reprise_abi::layout::PAGE;

/// A page in a thread's list: its address, whether it has to be looked at in the thread's turn, the version that its copy has, and the rounds since it was
/// written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry(u64);

const IDLE_BITS: u32 = 5;
const VERSION_BITS: u32 = NUMBERS_MAX.count_ones();
const VERSION_MASK: u32 = NUMBERS_MAX;
/// Above these.
const UNCHANGED: u64 = 1 << (VERSION_BITS + IDLE_BITS);
const ADDRESS_SHIFT: u32 = VERSION_BITS + IDLE_BITS + 1;
/// Copies that were not written for so many rounds are dropped. To look at a page in a round costs about a tenth of a new copy.
const IDLE_MAX: u32 = 8;
/// Those that were written in one round only, sooner.
const IDLE_AT_FIRST: u32 = 4;
/// In the place of these rounds: the thread has the copy from the one that made it ([`inherit`]), and the number is that of its twin.
const INHERITED: u32 = (1 << IDLE_BITS) - 1;

/// In that place, too: the copy was made since the list was.
const FRESH: u32 = INHERITED - 1;

const _: () = assert!(IDLE_MAX + 1 < FRESH);

impl Entry {
    fn new(address: u64, version: u32, idle: u32) -> Entry {
        let low = (version & VERSION_MASK) << IDLE_BITS | idle.min((1 << IDLE_BITS) - 1);
        Entry((address / PAGE) << ADDRESS_SHIFT | low as u64)
    }
    fn address(self) -> u64 {
        (self.0 >> ADDRESS_SHIFT) * PAGE
    }
    fn version(self) -> u32 {
        (self.0 >> IDLE_BITS) as u32 & VERSION_MASK
    }
    fn idle(self) -> u32 {
        self.0 as u32 & ((1 << IDLE_BITS) - 1)
    }
    /// What it is compared with at the end of the phase.
    fn base(self) -> Base {
        match self.idle() {
            INHERITED => Base::Inherited(self.version()),
            _ => Base::Phase,
        }
    }
    /// In its turn the thread need not look whether it has changed it in the phase: it has not.
    fn is_unchanged(self) -> bool {
        self.0 & UNCHANGED != 0
    }
    fn unchanged(self) -> Entry {
        Entry(self.0 | UNCHANGED)
    }
    fn is_fresh(self) -> bool {
        self.idle() == FRESH
    }
    /// Rounds since it was written, after a commit that has found it changed, or not.
    fn idle_after(self, changed: bool, passed: u32) -> u32 {
        match self.idle() {
            INHERITED => 0,
            FRESH => IDLE_AT_FIRST,
            _ if changed => 0,
            n => n + passed,
        }
    }
}

/// What a thread keeps for its commits, in its block.
#[derive(Default)]
pub struct Copies {
    /// Length of its list, ...
    len: usize,
    /// ... which is the first or the second of its two.
    second: bool,
    /// Its page faults when the list was made.
    faults: u64,
    /// How long it has looked for copies since it forgot what it has only read, in ns.
    searched: i64,
}

/// What a thread keeps of its view, in its block.
#[derive(Default)]
pub struct OfThread {
    /// Its copies of pages.
    pub copies: Copies,
    /// What it runs in writes to certain objects only.
    pub narrow: bool,
    /// It is a process of vfork(2), in the memory of the thread that made it.
    pub apart: bool,
    /// A signal of the runtime's own came while it was in the runtime, perhaps in a call.
    pub interrupted: bool,
}

impl Current {
    /// Is it a process of vfork(2), in the memory of the thread that made it?
    #[inline(always)]
    pub fn is_apart(self) -> bool {
        // SAFETY: the area is this room's own; a word of it that only the thread itself changes.
        unsafe { (*self.view().at::<OfThread>()).apart }
    }
}

impl Block {
    /// What is kept of the thread's view.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub fn view(&self) -> &mut OfThread {
        // SAFETY: the area is this room's own; zeros are the default.
        unsafe { self.view.get::<OfThread>() }
    }
}

/// Page faults that the calling thread has had.
fn faults() -> u64 {
    const RUSAGE_THREAD: u64 = 1;
    // struct rusage: ru_minflt and ru_majflt are its ninth and tenth words.
    let mut usage = [0u64; 18];
    sys::getrusage(RUSAGE_THREAD, usage.as_mut_ptr() as u64);
    usage[8] + usage[9]
}

fn list(slot: u32, second: bool) -> &'static mut [Entry; LIST_MAX] {
    let n = slot as u64 * 2 + second as u64;
    // SAFETY: only the slot's thread uses it.
    unsafe { &mut *((LISTS + n * (LIST_MAX * 8) as u64) as *mut [Entry; LIST_MAX]) }
}

/// Where in the backing the pages of the list are, by number.
fn places(slot: u32, second: bool) -> &'static mut [u32; LIST_MAX] {
    let n = slot as u64 * 2 + second as u64;
    // SAFETY: as above.
    unsafe { &mut *((PLACES + n * (LIST_MAX * 4) as u64) as *mut [u32; LIST_MAX]) }
}

/// Brings the thread's list of its copies up to date.
pub fn note(t: &mut Block) {
    let slot = t.slot;
    let c = &mut t.view().copies;
    let now = faults();
    if now == c.faults && options::has(SCANS) {
        return;
    }
    count(&session().counters.det_scans);
    let (old, new) = (list(slot, c.second), list(slot, !c.second));
    let (old_places, new_places) = (places(slot, c.second), places(slot, !c.second));
    let (mut n, mut len, old_len) = (0, 0, c.len);
    let each = &mut |address| {
        while n < old_len && old[n].address() < address {
            // It was dropped by a call of the program's.
            let_go(old_places[n]);
            n += 1;
        }
        if len == LIST_MAX {
            panic::give_up("det: more than 1 GiB was written between two synchronisation points");
        }
        let Some(place) = place_of(address) else {
            return;
        };
        let listed = n < old_len && old[n].address() == address;
        let known = listed && old_places[n] == place;
        if listed {
            n += 1;
        }
        new_places[len] = place;
        new[len] = match known {
            true => old[n - 1],
            false => {
                if listed {
                    let_go(old_places[n - 1]);
                }
                hold(place);
                Entry::new(address, 0, FRESH)
            }
        };
        len += 1;
    };
    let began = sys::monotonic().ns();
    look(|| scan::each_copy(slot, each));
    old_places[n..old_len].iter().copied().for_each(let_go);
    c.len = len;
    c.second = !c.second;
    c.faults = now;
    c.searched += sys::monotonic().ns() - began;
    if c.searched > SEARCH_MAX_NS || options::disturbs() {
        c.searched = 0;
        // Another may map memory meanwhile, and the views behind that move in their table: one that was seen twice would lose its copies.
        look(|| forget_read(t));
    }
}

/// A search looks at each page that is there, whether it was written or only read. After so many ns of that the latter are no longer there; to have them again costs
/// less.
const SEARCH_MAX_NS: i64 = 2_000_000;
/// Of fewer pages beside each other that isn't worth a call.
const FORGET_LEAST: u64 = 64 * PAGE;

/// Pages of the views that the thread has not written to are mapped again when it looks at them next. Its list is up to date, and nobody changes the table of
/// views.
fn forget_read(t: &Block) {
    let copies = &t.view().copies;
    let mut list = list(t.slot, copies.second)[..copies.len].iter().peekable();
    let forget = |start: u64, end: u64| {
        owned::each_other(t.slot, start, end, |start, end| {
            if end - start >= FORGET_LEAST {
                views::drop_copies(start, end - start);
            }
        });
    };
    for view in views::all() {
        options::delay();
        let mut from = view.start;
        while let Some(e) = list.next_if(|e| e.address() < view.end) {
            if e.address() >= from {
                forget(from, e.address());
                from = e.address() + PAGE;
            }
        }
        forget(from, view.end);
    }
}

/// First thing of a thread that was made in a phase: all copies are its maker's, with what that one has written in the phase. They are the thread's
/// own now, and what it writes to them shows in comparison with their twins.
pub fn inherit(t: &mut Block) {
    let c = &mut t.view().copies;
    *c = Copies::default();
    c.faults = faults();
    let (list, places) = (list(t.slot, c.second), places(t.slot, c.second));
    let mut len = 0;
    look(|| {
        scan::each_copy(t.slot, &mut |address| {
            if len == LIST_MAX {
                panic::give_up("det: more than 1 GiB was written before a thread was made");
            }
            let Some(place) = place_of(address) else {
                return;
            };
            hold(place);
            places[len] = place;
            list[len] = Entry::new(address, make_twin(address), INHERITED);
            len += 1;
        })
    });
    c.len = len;
}

/// At the end of its phase, beside all others: brings the list up to date, and finds out what the thread has changed, before it has its turn. Nobody commits
/// anything meanwhile.
pub fn prepare(t: &mut Block) {
    note(t);
    if !options::has(LAZY_TWINS) || !options::has(EARLY_LOOKS) {
        return;
    }
    let look = |e: Entry, offset| {
        if e.is_fresh() && holders(offset).load(Relaxed) <= 1 {
            return Some(e);
        }
        let seen = match e.base() {
            Base::Inherited(twin) => twin_at(twin),
            _ => MIRROR + offset,
        };
        match difference_guarded(e.address(), seen)? {
            None => Some(e.unchanged()),
            Some(_) => Some(e),
        }
    };
    super::phases::look(|| each(t, look));
}

/// Calls `f` with the address of each copy that was noted or is the thread's own, and its bytes.
pub fn each_listed(t: &Block, mut f: impl FnMut(u64, usize)) {
    let copies = &t.view().copies;
    for e in &list(t.slot, copies.second)[..copies.len] {
        f(e.address(), PAGE as usize);
    }
    owned::each_own(t.slot, |address| f(address, PAGE as usize));
}

/// In its turn: commits what was noted. The thread sees others' commits of this round from then on.
pub fn commit(t: &mut Block) {
    let round = phases().round();
    conflicts::stands(t, round);
    let (slot, owns, mut ripe) = (t.slot, owned::is_time(), false);
    each(t, |e, offset| {
        let (changed, others) = match e.is_unchanged() {
            true => {
                count(&session().counters.det_early);
                (false, page(offset).round.load(Relaxed) == round)
            }
            false => commit_page(e.address(), e.is_fresh(), offset, e.base(), round)?,
        };
        if changed && owns {
            let alone = !others && holders(offset).load(Relaxed) <= 1;
            ripe |= owned::committed(&page(offset).committed, slot, alone);
        }
        let inherited = e.idle() == INHERITED;
        let idle = e.idle_after(changed, 1);
        let version = page(offset).version.load(Relaxed);
        let e = Entry::new(e.address(), version, idle);
        match others || inherited {
            true => renew(e, offset),
            false => Some(e),
        }
    });
    if ripe {
        own_ripe(t);
    }
}

/// In its turn, when all is committed: ripe pages beside each other become the thread's own.
fn own_ripe(t: &mut Block) {
    let copies = &mut t.view().copies;
    let (second, len) = (copies.second, copies.len);
    let (l, places) = (list(t.slot, second), places(t.slot, second));
    let (mut n, mut kept) = (0, 0);
    while n < len {
        let start = l[n].address();
        let follows = |m: &usize| {
            let is_next = l[*m].address() == start + (m - n) as u64 * PAGE;
            is_next && owned::is_ripe(places[*m] as u64 * PAGE)
        };
        let pages = (n..len).take_while(follows).count();
        if pages != 0 && owned::take(t, start, start + pages as u64 * PAGE) {
            n += pages;
            continue;
        }
        for _ in 0..pages.max(1) {
            (l[kept], places[kept]) = (l[n], places[n]);
            (kept, n) = (kept + 1, n + 1);
        }
    }
    t.view().copies.len = kept;
}

/// The pages on which there is something that a hooked function writes to: the objects that its arguments point to, and variables of libc's of the thread's own
/// (errno).
struct Objects([u64; 12]);

/// As large as no object is.
const OBJECT_MAX: u64 = 128;

impl Objects {
    /// Those of the function that the thread is in, if it has said that it writes to nothing else.
    fn of(t: &Block) -> Option<Objects> {
        if !t.view().narrow || t.hooked == 0 || !options::has(OBJECTS) {
            return None;
        }
        // SAFETY: the frame is there for as long as the thread is in the function.
        let f = unsafe { &*(t.hooked as *const Frame) };
        let (mut pages, own) = ([0; 12], t.fs_base);
        let first = [
            f.rdi,
            f.rsi,
            f.rdx,
            f.rcx,
            own,
            own.wrapping_sub(OBJECT_MAX),
        ];
        for (two, at) in pages.chunks_mut(2).zip(first) {
            let last = at.wrapping_add(OBJECT_MAX - 1);
            two.copy_from_slice(&[at & !(PAGE - 1), last & !(PAGE - 1)]);
        }
        Some(Objects(pages))
    }
}

/// At the end of its turn: commits what was written in it.
pub fn commit_again(t: &mut Block) {
    note(t);
    let round = phases().round();
    conflicts::stands(t, round);
    let objects = Objects::of(t);
    each(t, |e, offset| {
        let others = |o: &Objects| !e.is_fresh() && !o.0.contains(&e.address());
        if objects.as_ref().is_some_and(others) {
            if options::disturbs() && difference_guarded(e.address(), MIRROR + offset)?.is_some() {
                panic::give_up("det: a function wrote to memory that is none of its objects");
            }
            count(&session().counters.det_spared);
            return Some(e);
        }
        let (changed, _) = commit_page(e.address(), e.is_fresh(), offset, Base::Now, round)?;
        let idle = e.idle_after(changed, 0);
        let version = page(offset).version.load(Relaxed);
        Some(Entry::new(e.address(), version, idle))
    });
}

/// In its turn, before it commits: what the page at this address, of which the thread may have a copy, is compared with is something else from `at` on, and
/// so is the copy: the bytes at `from`.
pub fn change_base(t: &Block, at: u64, from: u64, len: u64) {
    let copies = &t.view().copies;
    let list = &list(t.slot, copies.second)[..copies.len];
    let address = at & !(PAGE - 1);
    let Ok(n) = list.binary_search_by_key(&address, |e| e.address()) else {
        return;
    };
    // SAFETY: bytes of one page; the program's is guarded.
    guard::guarded(|| unsafe { guard::copy(at, from, len as usize) });
    if let Base::Inherited(twin) = list[n].base() {
        // SAFETY: the twin is ours.
        unsafe { guard::copy(twin_at(twin) + at % PAGE, from, len as usize) };
    }
}

/// When all have had their turns: copies that others have changed since are made anew; those that are not worth keeping are dropped.
pub fn refresh(t: &mut Block) {
    let renewed = |e: Entry, offset| {
        let now = page(offset).version.load(Relaxed) & VERSION_MASK;
        match now == e.version() && e.idle() < IDLE_MAX {
            true => Some(e),
            false => renew(Entry::new(e.address(), now, e.idle()), offset),
        }
    };
    look(|| each(t, renewed));
}

/// A copy that is as the page was becomes as it is; `None`: it is dropped instead.
fn renew(e: Entry, offset: u64) -> Option<Entry> {
    let (to, from) = (e.address(), MIRROR + offset);
    // SAFETY: the copy is as it was committed. The program may have made it read-only.
    let copy = || unsafe { guard::copy(to, from, PAGE as usize) };
    if e.idle() >= IDLE_MAX || !options::has(COPIES) {
        return None;
    }
    guard::guarded(copy)?;
    count(&session().counters.det_renewed);
    Some(e)
}

/// Calls `f` with each page of the thread's list, and its offset in the backing; pages for which it has no answer are dropped.
fn each(t: &mut Block, mut f: impl FnMut(Entry, u64) -> Option<Entry>) {
    let (l, places) = (
        list(t.slot, t.view().copies.second),
        places(t.slot, t.view().copies.second),
    );
    let mut kept = 0;
    let mut drop = Run::default();
    for n in 0..t.view().copies.len {
        let (e, place) = (l[n], places[n]);
        // What another has unmapped is gone, and something else may be there.
        if place_of(e.address()) != Some(place) {
            let_go(place);
            continue;
        }
        match f(e, place as u64 * PAGE) {
            Some(e) => {
                (l[kept], places[kept]) = (e, place);
                kept += 1;
            }
            None => {
                let_go(place);
                drop.add(e.address());
            }
        }
    }
    drop.end();
    t.view().copies.len = kept;
}

/// The calling thread has a copy of this page of the backing from now on.
fn hold(place: u32) {
    holders(place as u64 * PAGE).fetch_add(1, Relaxed);
}

/// It has none any more.
fn let_go(place: u32) {
    holders(place as u64 * PAGE).fetch_sub(1, Relaxed);
}

/// The thread ends: nothing of what it has is to be compared with any more.
pub fn end(t: &mut Block) {
    let copies = core::mem::take(&mut t.view().copies);
    let places = &places(t.slot, copies.second)[..copies.len];
    places.iter().copied().for_each(let_go);
}

/// All copies are dropped.
pub fn forget_all(t: &mut Block) {
    let mut drop = Run::default();
    look(|| scan::each_copy(t.slot, &mut |address| drop.add(address)));
    drop.end();
    end(t);
}

/// Neighbouring pages that are dropped together.
#[derive(Default)]
struct Run {
    start: u64,
    end: u64,
}

impl Run {
    fn add(&mut self, address: u64) {
        if address != self.end {
            self.end();
            self.start = address;
        }
        self.end = address + PAGE;
    }
    fn end(&mut self) {
        if self.end != self.start {
            views::drop_copies(self.start, self.end - self.start);
        }
        *self = Run::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_hold_what_is_put_into_them() {
        let e = Entry::new(0x7fff_ffff_e000, 0xfff_ffff, 3);
        assert_eq!(
            (e.address(), e.version(), e.idle()),
            (0x7fff_ffff_e000, VERSION_MASK, 3)
        );
        let e = Entry::new(0x1000, 5, 99);
        assert_eq!((e.address(), e.version(), e.idle()), (0x1000, 5, 31));
    }
}
