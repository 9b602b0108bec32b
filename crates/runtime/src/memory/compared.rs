//! What differs between the memory of this process and that of a copy of it (Respec 4.4; DoublePlay 5.2.2), while both rest.
//!
//! Of most pages it is known without a look that they are the same: the two processes still share them. /proc/PID/pagemap says of a page whether it is
//! mapped by one process alone. That is told of either side only as long as there is no third process that has the page, too: a copy of the copy,
//! or an older one. Memory that a copy has got in another way than by fork(2) ([`crate::gate::copy`]) is looked at page by page.

use crate::machine::guard;
use crate::machine::present::{self, Presence};
use crate::memory::transfer::{self, Unprotected};
use crate::memory::{self, Region};
use core::cell::UnsafeCell;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;

const PROT_READ: u32 = 1;

/// The memory that a copy has of its own: not what is a file's.
fn own() -> impl Iterator<Item = Region> {
    memory::each().filter(|r| !memory::is_read_only_file_memory(r))
}

/// Did the copy get this memory in another way than by fork(2)?
fn was_copied(r: &Region) -> bool {
    const APART: u32 = region_flags::SHARED | region_flags::NOT_INHERITED | region_flags::WIPED;
    r.flags & APART != 0
}

/// Calls `f` with each page that this process, or that with this id, has written since it was copied last, or came to be, of memory that copies get by fork(2).
/// False when that can't be known.
pub fn each_written(pid: Option<u32>, mut f: impl FnMut(u64)) -> bool {
    own()
        .filter(|r| !was_copied(r))
        .all(|r| present::each_alone(pid, r.start, r.end, &mut f))
}

/// Compares the memory of this process with that of the process with this id, which is a copy of it: the pages of both sets of `written`, of what the other one has
/// written, and of memory that it didn't get by fork(2). Calls `f` with those that differ; how many were looked at. `None`: which pages these are can't be known.
pub fn compare(pid: u32, written: [&[u64]; 2], mut f: impl FnMut(u64)) -> Option<u64> {
    let (mut both, mut looked_at) = (Both::of(pid), 0);
    // Where only one side has memory that differs, unless it `may_lack` it.
    let mut look_unless = |may_lack: bool, r: &Region, page| {
        looked_at += 1;
        if !both.are_same(r, page).unwrap_or(may_lack) {
            f(page);
        }
    };
    let mut listed = union(written).peekable();
    for r in own() {
        if was_copied(&r) {
            each_held(&r, |page| look_unless(false, &r, page));
            // What only the other side has come to: it may have gone on for longer, or elsewhere. Behind a file's end it has memory of its own, and this one none.
            let is_shared = r.flags & region_flags::SHARED != 0;
            let known = present::each_of_one(pid, r.start, r.end, |page| {
                // To /proc/PID/pagemap nothing that is shared is a process's own: what is there was looked at.
                if !is_shared || !present::is_in_memory(page) {
                    look_unless(true, &r, page);
                }
            });
            known.then_some(())?;
            continue;
        }
        let mut look = |page| look_unless(false, &r, page);
        // Both lists are in order; what is mapped no more has no content.
        while listed.next_if(|p| *p < r.start).is_some() {}
        let known = present::each_alone(Some(pid), r.start, r.end, |page| {
            while let Some(before) = listed.next_if(|p| *p < page) {
                look(before);
            }
            listed.next_if_eq(&page);
            look(page);
        });
        known.then_some(())?;
        while let Some(page) = listed.next_if(|p| *p < r.end) {
            look(page);
        }
    }
    Some(looked_at)
}

/// Calls `f` with each page that differs, of those that only this process has or only that with this id, a copy of it: the other one has given it back, or never had it. Such a page is in no
/// set of what was written. False when that can't be known.
pub fn each_of_one(pid: u32, mut f: impl FnMut(u64)) -> bool {
    let mut both = Both::of(pid);
    own().filter(|r| !was_copied(r)).all(|r| {
        present::each_of_one(pid, r.start, r.end, |page| {
            if both.are_same(&r, page) != Some(true) {
                f(page);
            }
        })
    })
}

/// The pages that are in one of two ordered sets, or in both, in order.
fn union(sets: [&[u64]; 2]) -> impl Iterator<Item = u64> + '_ {
    let [mut one, mut two] = sets.map(|set| set.iter().copied().peekable());
    core::iter::from_fn(move || {
        let next = match (one.peek(), two.peek()) {
            (Some(a), Some(b)) => *a.min(b),
            (a, b) => *a.or(b)?,
        };
        one.next_if_eq(&next);
        two.next_if_eq(&next);
        Some(next)
    })
}

/// As [`compare`], of all pages that this process has of memory that copies get by fork(2), where the other one has memory, too: what a test wants to know without
/// sets. What the program has given back reads as zeros, and isn't written; whoever runs that epoch again makes the same call.
pub fn compare_all(pid: u32, mut f: impl FnMut(u64)) -> Option<()> {
    let mut both = Both::of(pid);
    for r in own().filter(|r| !was_copied(r)) {
        let known = present::each_written(r.start, r.end, |page| {
            if both.are_same(&r, page) == Some(false) && !is_empty(page) {
                f(page);
            }
        });
        known.then_some(())?;
    }
    Some(())
}

/// Does this page read as zeros?
fn is_empty(page: u64) -> bool {
    guard::read::<[u64; (PAGE / 8) as usize]>(page).is_some_and(|p| p.iter().all(|w| *w == 0))
}

/// Calls `f` with each page of memory that a copy has got in another way, as far as it is there.
fn each_held(r: &Region, mut f: impl FnMut(u64)) {
    match r.flags & region_flags::SHARED {
        0 => drop(present::each_written(r.start, r.end, f)),
        shared => Presence::now().each(r.start, r.end, shared, &mut f),
    }
}

/// A page's bytes, which the kernel writes.
type Page = UnsafeCell<[u64; (PAGE / 8) as usize]>;

fn page() -> Page {
    UnsafeCell::new([0; (PAGE / 8) as usize])
}

/// This process and a copy of it.
struct Both {
    pid: u32,
    /// Their memory past its protection, opened when it is wanted first.
    unprotected: Option<[Unprotected; 2]>,
}

impl Both {
    fn of(pid: u32) -> Both {
        Both {
            pid,
            unprotected: None,
        }
    }

    /// Is this page the same on both sides? `None`: one of them hasn't any.
    fn are_same(&mut self, r: &Region, at: u64) -> Option<bool> {
        let (mine, theirs) = (page(), page());
        let (to_mine, to_theirs) = (mine.get() as u64, theirs.get() as u64);
        let open = r.prot & PROT_READ != 0 && !r.is_guarded();
        if open && transfer::get(self.pid, to_theirs, at, PAGE).is_some() {
            // SAFETY: nobody else has it.
            unsafe { *mine.get() = guard::read(at)? };
        } else {
            if self.unprotected.is_none() {
                let [mine, theirs] = [None, Some(self.pid)].map(Unprotected::of);
                self.unprotected = Some([mine?, theirs?]);
            }
            let [own, other] = self.unprotected.as_ref()?;
            // Behind a file's end neither has anything.
            let there = [own.get(to_mine, at, PAGE), other.get(to_theirs, at, PAGE)];
            if there != [Some(()); 2] {
                return (there[0] == there[1]).then_some(true);
            }
        }
        Some(mine.into_inner() == theirs.into_inner())
    }
}

/// A test: changes one bit of the copy, on page number `n` (of those that can be written to and are there, counted around); the page.
pub fn spoil(pid: u32, n: u64) -> Option<u64> {
    let each = |f: &mut dyn FnMut(u64)| {
        for r in own().filter(|r| r.is_writable() && !r.is_guarded()) {
            each_held(&r, &mut *f);
        }
    };
    let mut count = 0u64;
    each(&mut |_| count += 1);
    let mut left = n % count.max(1);
    let mut found = None;
    each(&mut |page| match left.checked_sub(1) {
        Some(less) => left = less,
        None => found = found.or(Some(page)),
    });
    let page = found?;
    let at = page + n / 7 % PAGE;
    // The kernel writes to it.
    let byte = UnsafeCell::new(0u8);
    transfer::get(pid, byte.get() as u64, at, 1)?;
    // SAFETY: nobody else has it.
    unsafe { *byte.get() ^= 1 << (n % 8) };
    transfer::put(pid, byte.get() as u64, at, 1)?;
    Some(page)
}
