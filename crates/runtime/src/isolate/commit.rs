//! Commits (DThreads 4.2.2): the bytes that a thread has changed since the phase began become everybody's.
//!
//! Per page of the backing there is a **version**, which grows with every commit that changes it. Whoever is the first to change a page in a round
//! leaves its **twin**, the page as it was when the phase began: what others have changed of it shows in comparison with that.
//!
//! A page that was written in this phase is likely to be written in the next one (the stack, to begin with). So its copy is **kept** as long as nobody
//! else changes the page: to compare it costs a tenth of what a new copy costs. Copies that were not written are dropped.

use super::layout::*;
use super::{scan, views};
use crate::det::token;
use crate::panic;
use crate::thread::Block;
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::layout::PAGE;

/// What is known of a page of the backing. Changed by the thread whose turn it is.
#[repr(C)]
struct Page {
    version: AtomicU32,
    /// The round in which a twin was left last, ...
    round: AtomicU32,
    /// ... and its number.
    twin: AtomicU32,
    _pad: AtomicU32,
}

const _: () = assert!(core::mem::size_of::<Page>() == 16);

fn page(offset: u64) -> &'static Page {
    // SAFETY: the table has an entry for each page of the backing; only atomics.
    unsafe { &*((PAGES + offset / PAGE * 16) as *const Page) }
}

/// A page in a thread's list: its address, the version that the thread's copy has, and whether the copy is to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry(u64);

const VERSION_BITS: u32 = 27;
const VERSION_MASK: u32 = (1 << VERSION_BITS) - 1;

impl Entry {
    fn new(address: u64, version: u32, kept: bool) -> Entry {
        let low = ((version & VERSION_MASK) as u64) << 1 | kept as u64;
        Entry((address / PAGE) << (VERSION_BITS + 1) | low)
    }
    fn address(self) -> u64 {
        (self.0 >> (VERSION_BITS + 1)) * PAGE
    }
    fn version(self) -> u32 {
        (self.0 >> 1) as u32 & VERSION_MASK
    }
    fn kept(self) -> bool {
        self.0 & 1 != 0
    }
}

/// What a thread keeps for its commits, in its block.
#[derive(Default)]
pub struct Copies {
    /// Length of its list, ...
    len: usize,
    /// ... which is the first or the second of its two.
    second: bool,
}

fn list(slot: u32, second: bool) -> &'static mut [Entry; LIST_MAX] {
    let n = slot as u64 * 2 + second as u64;
    // SAFETY: only the slot's thread uses it.
    unsafe { &mut *((LISTS + n * (LIST_MAX * 8) as u64) as *mut [Entry; LIST_MAX]) }
}

/// What a comparison is made with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// The page as it was when the phase began.
    Phase,
    /// The page as it is: the copy was made from that.
    Now,
}

fn word(at: u64) -> u64 {
    // SAFETY: a word of a page that is there, or a fault that ends the program.
    unsafe { core::ptr::read_volatile(at as *const u64) }
}

fn equal(a: u64, b: u64) -> bool {
    let (a, b) = (a as *const u64, b as *const u64);
    for n in 0..PAGE as usize / 8 {
        // SAFETY: pages that are there.
        if unsafe { *a.add(n) != *b.add(n) } {
            return false;
        }
    }
    true
}

/// Every byte that differs from the base is written to the mirror.
fn merge(copy: u64, base: u64, mirror: u64) {
    for at in (0..PAGE).step_by(8) {
        let (new, old) = (word(copy + at), word(base + at));
        if new == old {
            continue;
        }
        let mut mask = 0;
        for byte in 0..8 {
            let bits = 0xff << (8 * byte);
            if (new ^ old) & bits != 0 {
                mask |= bits;
            }
        }
        let now = word(mirror + at);
        // SAFETY: the mirror is ours.
        unsafe { core::ptr::write_volatile((mirror + at) as *mut u64, now & !mask | new & mask) };
    }
}

/// Commits one page; whether it was changed, and whether others had changed it before in this round.
fn commit_page(address: u64, offset: u64, base: Base, round: u32) -> (bool, bool) {
    let (p, mirror) = (page(offset), MIRROR + offset);
    let others = p.round.load(Relaxed) == round;
    if equal(address, mirror) {
        return (false, others);
    }
    if !others {
        let twin = token::take_twin();
        if twin >= TWINS_MAX {
            panic::give_up("det: too many pages were written between two synchronisation points");
        }
        let to = TWINS + twin as u64 * PAGE;
        // SAFETY: both are pages of ours.
        unsafe { crate::guard::copy(to, mirror, PAGE as usize) };
        p.twin.store(twin, Relaxed);
        p.round.store(round, Relaxed);
    }
    let from = match base {
        Base::Phase if others => TWINS + p.twin.load(Relaxed) as u64 * PAGE,
        _ => mirror,
    };
    merge(address, from, mirror);
    p.version.fetch_add(1, Relaxed);
    (true, others)
}

/// In the parallel phase: notes which pages are copies.
pub fn note(t: &mut Block) {
    let slot = t.slot;
    let c = &mut t.det.copies;
    let l = list(slot, c.second);
    let mut len = 0;
    scan::each_copy(&mut |address, _| {
        if len == LIST_MAX {
            panic::give_up("det: more than 1 GiB was written between two synchronisation points");
        }
        l[len] = Entry::new(address, 0, false);
        len += 1;
    });
    c.len = len;
}

/// In its turn: commits what was noted. Copies that lack others' commits of this round are dropped, so that the thread sees these.
pub fn commit(t: &mut Block) {
    let round = token::round();
    let l = list(t.slot, t.det.copies.second);
    let mut kept = 0;
    let mut drop = Run::default();
    for n in 0..t.det.copies.len {
        let address = l[n].address();
        // What another has unmapped is gone.
        let Some(offset) = views::offset_of(address) else {
            continue;
        };
        let (changed, others) = commit_page(address, offset, Base::Phase, round);
        if others {
            drop.add(address);
        } else {
            l[kept] = Entry::new(address, page(offset).version.load(Relaxed), changed);
            kept += 1;
        }
    }
    drop.end();
    t.det.copies.len = kept;
}

/// At the end of its turn: commits what was written in it.
pub fn commit_again(t: &mut Block) {
    let round = token::round();
    let slot = t.slot;
    let c = &mut t.det.copies;
    let (old, new) = (list(slot, c.second), list(slot, !c.second));
    let (mut n, mut len, old_len) = (0, 0, c.len);
    scan::each_copy(&mut |address, offset| {
        while n < old_len && old[n].address() < address {
            n += 1;
        }
        let was_kept = n < old_len && old[n].address() == address && old[n].kept();
        let (changed, _) = commit_page(address, offset, Base::Now, round);
        if len == LIST_MAX {
            panic::give_up("det: more than 1 GiB was written between two synchronisation points");
        }
        let version = page(offset).version.load(Relaxed);
        new[len] = Entry::new(address, version, changed || was_kept);
        len += 1;
    });
    c.len = len;
    c.second = !c.second;
}

/// When all have had their turns: drops copies that are not worth keeping, or that others have changed since.
pub fn refresh(t: &mut Block) {
    let l = list(t.slot, t.det.copies.second);
    let mut drop = Run::default();
    for e in &l[..t.det.copies.len] {
        let address = e.address();
        let now = views::offset_of(address).map(|o| page(o).version.load(Relaxed) & VERSION_MASK);
        if now != Some(e.version()) || !e.kept() {
            drop.add(address);
        }
    }
    drop.end();
    t.det.copies.len = 0;
}

/// All copies are dropped.
pub fn forget_all() {
    let mut drop = Run::default();
    scan::each_copy(&mut |address, _| drop.add(address));
    drop.end();
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
    use std::vec;

    #[test]
    fn entries_hold_what_is_put_into_them() {
        let e = Entry::new(0x7fff_ffff_e000, 0xfff_ffff, true);
        assert_eq!(
            (e.address(), e.version(), e.kept()),
            (0x7fff_ffff_e000, VERSION_MASK, true)
        );
        let e = Entry::new(0x1000, 5, false);
        assert_eq!((e.address(), e.version(), e.kept()), (0x1000, 5, false));
    }

    #[test]
    fn only_bytes_that_differ_are_merged() {
        let base = vec![0u64; 512];
        let (mut copy, mut mirror) = (base.clone(), base.clone());
        copy[3] = 0x00ff_0000_0000_0011;
        // Another has changed neighbouring bytes, and one that both have.
        mirror[3] = 0x1100_2200_0000_0099;
        let at = |v: &[u64]| v.as_ptr() as u64;
        assert!(!equal(at(&copy), at(&base)));
        merge(at(&copy), at(&base), at(&mirror));
        assert_eq!(mirror[3], 0x11ff_2200_0000_0011);
        assert!(mirror.iter().enumerate().all(|(n, w)| n == 3 || *w == 0));
    }
}
