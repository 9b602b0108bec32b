//! What differs between the memory of this process and that of a copy of it (Respec 4.4; DoublePlay 5.2.2), while both rest.
//!
//! Of most pages it is known without a look that they are the same: the two processes still share them. /proc/PID/pagemap says of a page whether it is
//! mapped by one process alone. That is told of either side only as long as there is no third process that has the page, too: a copy of the copy,
//! or an older one. Memory that a copy has got in another way than by fork(2) ([`crate::gate::copy`]) is looked at page by page.

use crate::machine::present::{self, Presence};
use crate::memory::transfer::{self, Unprotected};
use crate::memory::{self, Region};
use core::cell::UnsafeCell;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;

/// Pages that are compared at a time.
const BATCH: usize = 1024;
const BATCH_LEN: u64 = BATCH as u64 * PAGE;
const PROT_READ: u32 = 1;

/// What a comparison has come to.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Pages that were looked at.
    pub looked_at: u64,
    /// Pages that differ.
    pub different: u64,
    /// The first of them.
    pub first: u64,
}

/// The memory that a copy has of its own: not what is a file's.
fn own() -> impl Iterator<Item = Region> {
    memory::each().filter(|r| !memory::is_the_files(r))
}

/// Did the copy get this memory in another way than by fork(2)?
fn was_copied(r: &Region) -> bool {
    const APART: u32 = region_flags::SHARED | region_flags::NOT_INHERITED | region_flags::WIPED;
    r.flags & APART != 0
}

/// Compares the program's memory with that of the process with this id. `None`: it can't be read.
pub fn with(pid: u32) -> Option<Compared> {
    let mut both = Both::of(pid);
    for r in own() {
        if was_copied(&r) {
            // Which pages are there is known of this side only; those that it hasn't are none of what is compared.
            let mut known = Some(());
            each_held(&r, |page| {
                known = known.and_then(|()| both.look(&r, page));
            });
            known?;
        } else {
            both.look_at_unshared(&r)?;
        }
    }
    Some(both.found)
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

/// This process and a copy.
struct Both {
    pid: u32,
    /// Their memory past its protection, opened when it is wanted first.
    unprotected: Option<[Unprotected; 2]>,
    found: Compared,
}

impl Both {
    fn of(pid: u32) -> Both {
        Both {
            pid,
            unprotected: None,
            found: Compared::default(),
        }
    }

    /// Looks at the pages of a region that the two don't share.
    fn look_at_unshared(&mut self, r: &Region) -> Option<()> {
        let mut at = r.start;
        while at < r.end {
            let n = ((r.end - at) / PAGE).min(BATCH as u64) as usize;
            let mut alone = [false; BATCH];
            let end = at + n as u64 * PAGE;
            for pid in [None, Some(self.pid)] {
                let known = present::each_alone(pid, at, end, |p| {
                    alone[((p - at) / PAGE) as usize] = true;
                });
                known.then_some(())?;
            }
            for i in (0..n).filter(|i| alone[*i]) {
                self.look(r, at + i as u64 * PAGE)?;
            }
            at += BATCH_LEN;
        }
        Some(())
    }

    /// Compares a page.
    fn look(&mut self, r: &Region, at: u64) -> Option<()> {
        self.found.looked_at += 1;
        if !self.is_same(r, at)? {
            if self.found.different == 0 {
                self.found.first = at;
            }
            self.found.different += 1;
        }
        Some(())
    }

    fn is_same(&mut self, r: &Region, at: u64) -> Option<bool> {
        let (mine, theirs) = (page(), page());
        let (to_mine, to_theirs) = (mine.get() as u64, theirs.get() as u64);
        if r.prot & PROT_READ != 0 && !r.is_guarded() {
            transfer::get(self.pid, to_theirs, at, PAGE)?;
            // SAFETY: nobody else has it.
            unsafe { *mine.get() = crate::machine::guard::read(at)? };
        } else {
            if self.unprotected.is_none() {
                let [mine, theirs] = [None, Some(self.pid)].map(Unprotected::of);
                self.unprotected = Some([mine?, theirs?]);
            }
            let [own, other] = self.unprotected.as_ref()?;
            // Behind a file's end neither has anything.
            let there = [own.get(to_mine, at, PAGE), other.get(to_theirs, at, PAGE)];
            if there != [Some(()); 2] {
                return Some(there[0] == there[1]);
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
