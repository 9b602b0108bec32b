//! The runtime's list of the program's mappings: what is where, with which protection, and from which file.
//!
//! Whoever changes it has the baton, or the lock of the address space. Under `order` others look at it meanwhile: a change is counted when it begins and
//! when it ends, and a look that saw one under way, or over, is taken once more.

use crate::machine::guarded::Guarded;
use crate::thread::leave::AddressSpace;
use core::sync::atomic::{fence, AtomicU32, Ordering::*};
use reprise_abi::session::region_flags;

/// A stretch of the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// PROT_ bits.
    pub prot: u32,
    /// See [`region_flags`].
    pub flags: u32,
    /// Number of the file in the session, 0 without one, or when it is not known.
    pub file: u32,
    /// Offset of the first byte in the file, or in the shared memory.
    pub offset: u64,
    /// Shared memory: which one, as in the keys of futexes; 0 otherwise.
    pub space: u64,
}

/// In [`Region::space`]: the memory of the file with the number in the other bits.
const FILES: u64 = 1 << 63;

const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;

impl Region {
    /// Can what is there be run?
    pub fn is_executable(&self) -> bool {
        self.prot & PROT_EXEC != 0
    }

    /// Is it code of a program or a library, which nobody else changes?
    pub fn is_code(&self) -> bool {
        self.is_executable()
            && self.flags & region_flags::FILE != 0
            && self.flags & (region_flags::SHARED | region_flags::VDSO) == 0
    }

    /// Can it be written?
    pub fn is_writable(&self) -> bool {
        self.prot & PROT_WRITE != 0
    }

    /// Are these guard pages?
    pub fn is_guarded(&self) -> bool {
        self.flags & region_flags::GUARDED != 0
    }

    /// May others write it, or is a part of what it shares not to be seen here? What a copy of the process has of it is not what is there.
    pub fn is_of_others(&self) -> bool {
        let written = self.file != 0 && self.is_writable();
        self.flags & region_flags::SHARED != 0 && (written || self.is_guarded())
    }

    /// The same, which are no guard pages.
    pub fn without_guards(self) -> Region {
        Region {
            flags: self.flags & !region_flags::GUARDED,
            ..self
        }
    }

    /// The part of it from `address` on.
    pub(super) fn from(self, address: u64) -> Region {
        let has_offsets = self.flags & region_flags::FILE != 0 || self.file != 0 || self.space != 0;
        let skipped = if has_offsets { address - self.start } else { 0 };
        Region {
            start: address,
            offset: self.offset + skipped,
            ..self
        }
    }
}

/// A sorted list of regions that do not overlap, over memory given at start.
pub struct Map {
    list: Guarded<List, AddressSpace>,
    /// Changes that were begun, and that were ended: odd while one is under way.
    changes: AtomicU32,
}

/// What the map holds.
struct List {
    list: *mut Region,
    len: usize,
    capacity: usize,
    /// All shared regions that there ever were lie between these two.
    shared: (u64, u64),
}

// SAFETY: the memory that it points to is its own, whichever thread has it.
unsafe impl Send for List {}

/// So often a look waits for the end of a change. Who changes the map waits for nobody: this is passed only where it has ended in the midst of it.
const PATIENCE: u32 = 100_000;

impl Map {
    /// A map over `capacity` regions at `list`.
    ///
    /// # Safety
    /// The memory must be valid for as long as the map lives, and nobody else's.
    pub const unsafe fn over(list: *mut Region, capacity: usize) -> Map {
        Map {
            list: Guarded::new(List::over(list, capacity)),
            changes: AtomicU32::new(0),
        }
    }

    /// Where the list is.
    pub(super) fn list(&self) -> *const Region {
        self.look(|l| l.list.cast_const())
    }

    /// Where its length stands.
    pub(super) fn len_word(&self) -> *const usize {
        self.look(|l| &raw const l.len)
    }

    /// Begins anew, with nothing, over other memory.
    ///
    /// # Safety
    /// As of [`Map::over`]; and nobody looks at the map.
    pub unsafe fn begin(&self, list: *mut Region, capacity: usize) {
        // SAFETY: nobody else has it, says the caller.
        unsafe { *self.list.change() = List::over(list, capacity) };
        self.changes.store(0, Relaxed);
    }

    /// Makes a change.
    fn changing<R>(&self, change: impl FnOnce(&mut List) -> R) -> R {
        let before = self.changes.load(Relaxed);
        self.changes.store(before | 1, Relaxed);
        fence(Release);
        // SAFETY: who changes the map has the baton or the lock of the address space, so nobody else changes it; who looks meanwhile believes nothing
        // of what it has seen. No change makes another one.
        let r = change(unsafe { self.list.change() });
        self.changes.store((before | 1).wrapping_add(1), Release);
        r
    }

    /// Looks at the map as it is between changes.
    #[inline]
    fn look<R>(&self, look: impl Fn(&List) -> R) -> R {
        let mut tries = 0;
        loop {
            let before = self.changes.load(Acquire);
            // SAFETY: if somebody changes it meanwhile the counter says so, and what was seen is forgotten. Whatever is seen, it is regions inside of
            // the list: it never moves, and its length never is more than its capacity.
            let r = look(unsafe { self.list.look() });
            fence(Acquire);
            if (before & 1 == 0 && self.changes.load(Relaxed) == before) || tries == PATIENCE {
                return r;
            }
            tries += 1;
            crate::machine::sys::sched_yield();
        }
    }

    /// All regions, for who keeps others from changing them; others take one after the other ([`Map::after`]).
    pub fn regions(&self) -> &[Region] {
        // SAFETY: the caller keeps others out, by the baton or the lock of the address space.
        unsafe { self.list.look() }.regions()
    }

    /// Forgets `start..end`.
    pub fn remove(&self, start: u64, end: u64) {
        self.changing(|m| m.remove_now(start, end));
    }

    /// Puts a region in place of whatever was there; joins equal neighbours.
    pub fn insert(&self, r: Region) {
        self.changing(|m| m.insert_now(r));
    }

    /// Changes the protection of `start..end`.
    pub fn protect(&self, start: u64, end: u64, prot: u32) {
        self.change(start, end, |r| r.prot = prot);
    }

    /// Says whether a child gets `start..end`.
    pub fn set_inherited(&self, start: u64, end: u64, inherited: bool) {
        self.change(start, end, |r| match inherited {
            true => r.flags &= !region_flags::NOT_INHERITED,
            false => r.flags |= region_flags::NOT_INHERITED,
        });
    }

    /// Says whether a child finds `start..end` wiped.
    pub fn set_wiped(&self, start: u64, end: u64, wiped: bool) {
        self.change(start, end, |r| match wiped {
            true => r.flags |= region_flags::WIPED,
            false => r.flags &= !region_flags::WIPED,
        });
    }

    /// Says whether the pages of `start..end` are guards.
    pub fn set_guarded(&self, start: u64, end: u64, guarded: bool) {
        self.change(start, end, |r| match guarded {
            true => r.flags |= region_flags::GUARDED,
            false => r.flags &= !region_flags::GUARDED,
        });
    }

    /// Says whether `start..end` is locked.
    pub fn set_locked(&self, start: u64, end: u64, locked: bool) {
        self.change(start, end, |r| match locked {
            true => r.flags |= region_flags::LOCKED,
            false => r.flags &= !region_flags::LOCKED,
        });
    }

    /// Changes all that is in `start..end`.
    fn change(&self, start: u64, end: u64, f: impl FnMut(&mut Region)) {
        self.changing(|m| m.change_now(start, end, f));
    }

    /// Says which file is mapped at `start..end`.
    pub fn set_file(&self, start: u64, end: u64, file: u32) {
        self.changing(|m| m.set_file_now(start, end, file));
    }

    /// Is a part of this file mapped?
    pub fn has_file(&self, file: u32) -> bool {
        file != 0 && self.look(|m| m.regions().iter().any(|r| r.file == file))
    }

    /// Between which addresses all shared regions lie. It only grows: who looks during a change sees what was, or what will be.
    #[inline]
    fn shared(&self) -> (u64, u64) {
        // SAFETY: words of a list that is there.
        unsafe { (*self.list.at()).shared }
    }

    /// Is this between shared mappings? For a look while others may change the map.
    #[inline]
    pub fn may_have_shared(&self, address: u64) -> bool {
        let (first, end) = self.shared();
        (first..end).contains(&address)
    }

    /// Is anything in `start..end` mapped shared?
    #[inline]
    pub fn has_shared(&self, start: u64, end: u64) -> bool {
        let shared = self.shared();
        if end <= shared.0 || start >= shared.1 {
            return false;
        }
        self.look(|m| {
            let touched = m.regions().iter().skip(m.find(start));
            touched
                .take_while(|r| r.start < end)
                .any(|r| r.flags & region_flags::SHARED != 0)
        })
    }

    /// The region that holds `address`.
    pub fn at(&self, address: u64) -> Option<Region> {
        self.after(address).filter(|r| r.start <= address)
    }

    /// The first region that ends after `address`.
    pub fn after(&self, address: u64) -> Option<Region> {
        self.look(|m| m.regions().get(m.find(address)).copied())
    }

    /// The last region that begins before `address`.
    pub fn before(&self, address: u64) -> Option<Region> {
        self.look(|m| {
            let i = m.regions().partition_point(|r| r.start < address);
            m.regions().get(i.checked_sub(1)?).copied()
        })
    }

    /// What is mapped at `address`, from there on.
    pub fn from(&self, address: u64) -> Option<Region> {
        Some(self.at(address)?.from(address))
    }
}

impl List {
    const fn over(list: *mut Region, capacity: usize) -> List {
        List {
            list,
            len: 0,
            capacity,
            shared: (u64::MAX, 0),
        }
    }

    fn regions(&self) -> &[Region] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: as promised to `Map::over`.
        unsafe { core::slice::from_raw_parts(self.list, self.len) }
    }

    fn all(&mut self) -> &mut [Region] {
        // SAFETY: as promised to `Map::over`.
        unsafe { core::slice::from_raw_parts_mut(self.list, self.capacity) }
    }

    fn insert_at(&mut self, i: usize, r: Region) {
        if self.len == self.capacity {
            crate::thread::panic::give_up("more than 66,000 mappings");
        }
        let n = self.len;
        self.all().copy_within(i..n, i + 1);
        self.all()[i] = r;
        self.len += 1;
    }

    /// Index of the first region that ends after `address`.
    fn find(&self, address: u64) -> usize {
        self.regions().partition_point(|r| r.end <= address)
    }

    /// Cuts the region around `address` in two.
    fn split(&mut self, address: u64) {
        let i = self.find(address);
        if i < self.len && self.regions()[i].start < address {
            let tail = self.regions()[i].from(address);
            self.all()[i].end = address;
            self.insert_at(i + 1, tail);
        }
    }

    fn remove_now(&mut self, start: u64, end: u64) {
        if self.len == 0 || start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let (i, j) = (
            self.find(start),
            self.regions().partition_point(|r| r.start < end),
        );
        if j > i {
            let n = self.len;
            self.all().copy_within(j..n, i);
            self.len -= j - i;
        }
    }

    fn insert_now(&mut self, r: Region) {
        if r.start >= r.end {
            return;
        }
        if r.flags & region_flags::SHARED != 0 {
            self.shared = (self.shared.0.min(r.start), self.shared.1.max(r.end));
        }
        self.remove_now(r.start, r.end);
        let i = self.find(r.start);
        self.insert_at(i, r);
        self.join(i);
    }

    fn join(&mut self, i: usize) {
        let alike = |a: &Region, b: &Region| {
            a.end == b.start
                && a.prot == b.prot
                && a.flags == b.flags
                && a.flags & region_flags::FILE == 0
                && (a.file, b.file) == (0, 0)
                && (a.space, b.space) == (0, 0)
        };
        let mut i = i;
        if i > 0 && alike(&self.regions()[i - 1], &self.regions()[i]) {
            i -= 1;
            self.absorb_next(i);
        }
        if i + 1 < self.len && alike(&self.regions()[i], &self.regions()[i + 1]) {
            self.absorb_next(i);
        }
    }

    fn absorb_next(&mut self, i: usize) {
        let n = self.len;
        self.all()[i].end = self.regions()[i + 1].end;
        self.all().copy_within(i + 2..n, i + 1);
        self.len -= 1;
    }

    fn change_now(&mut self, start: u64, end: u64, mut f: impl FnMut(&mut Region)) {
        if self.len == 0 || start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let (i, j) = (
            self.find(start),
            self.regions().partition_point(|r| r.start < end),
        );
        self.all()[i..j.max(i)].iter_mut().for_each(&mut f);
        for k in (i..j.max(i)).rev() {
            if k < self.len {
                self.join(k);
            }
        }
    }

    fn set_file_now(&mut self, start: u64, end: u64, file: u32) {
        let (i, j) = (
            self.find(start),
            self.regions().partition_point(|r| r.start < end),
        );
        for r in &mut self.all()[i..j.max(i)] {
            r.file = file;
            if file != 0 && r.flags & region_flags::SHARED != 0 {
                r.space = FILES | file as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn fresh(v: &mut Vec<Region>) -> Map {
        v.resize(64, Region::default());
        // SAFETY: the vector outlives the map in each test.
        unsafe { Map::over(v.as_mut_ptr(), 64) }
    }

    fn region(start: u64, end: u64, prot: u32) -> Region {
        Region {
            start,
            end,
            prot,
            flags: 0,
            ..Region::default()
        }
    }

    #[test]
    fn neighbours_join_and_holes_split() {
        let mut v = Vec::new();
        let m = fresh(&mut v);
        m.insert(region(10, 20, 3));
        m.insert(region(20, 30, 3));
        assert_eq!(m.regions(), [region(10, 30, 3)]);
        m.remove(15, 18);
        assert_eq!(m.regions(), [region(10, 15, 3), region(18, 30, 3)]);
        m.protect(20, 25, 1);
        assert_eq!(m.regions().len(), 4);
        m.protect(20, 25, 3);
        assert_eq!(m.regions(), [region(10, 15, 3), region(18, 30, 3)]);
        m.insert(region(0, 100, 1));
        assert_eq!(m.regions(), [region(0, 100, 1)]);
        assert_eq!(m.at(99), Some(region(0, 100, 1)));
        assert_eq!(m.at(100), None);
    }

    #[test]
    fn who_looks_meanwhile_sees_no_half_of_a_change() {
        use std::sync::atomic::AtomicBool;
        let mut v = Vec::new();
        let map = &fresh(&mut v);
        let stays = region(1000, 1010, 3);
        map.insert(stays);
        let over = &AtomicBool::new(false);
        std::thread::scope(|s| {
            let looks = move || {
                let mut looks = 0u64;
                while !over.load(Relaxed) || looks < 1000 {
                    assert_eq!(map.at(1005), Some(stays));
                    assert_eq!(map.before(1005), Some(stays));
                    assert!(map.at(500).is_none_or(|r| r == region(500, 501, 1)));
                    looks += 1;
                }
            };
            let all = [s.spawn(looks), s.spawn(looks)];
            for _ in 0..200_000 {
                for low in [100, 300, 500] {
                    map.insert(region(low, low + 1, 1));
                }
                map.remove(0, 900);
            }
            over.store(true, Relaxed);
            all.into_iter()
                .for_each(|t| t.join().expect("what is there"));
        });
    }

    #[test]
    fn agrees_with_a_page_array() {
        // A model: one protection for each of 64 pages.
        let mut v = Vec::new();
        let m = fresh(&mut v);
        let mut model = [0u32; 64];
        let mut seed = 1u64;
        let mut next = || {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            seed >> 33
        };
        for _ in 0..20_000 {
            let (a, b) = (next() % 64, next() % 64);
            let (start, end) = (a.min(b), a.max(b));
            let prot = (next() % 3 + 1) as u32;
            match next() % 3 {
                0 => {
                    m.insert(region(start, end, prot));
                    model[start as usize..end as usize].fill(prot);
                }
                1 => {
                    m.remove(start, end);
                    model[start as usize..end as usize].fill(0);
                }
                _ => {
                    m.protect(start, end, prot);
                    for p in &mut model[start as usize..end as usize] {
                        if *p != 0 {
                            *p = prot;
                        }
                    }
                }
            }
            for (i, p) in model.iter().enumerate() {
                assert_eq!(m.at(i as u64).map_or(0, |r| r.prot), *p);
            }
        }
    }

    #[test]
    fn shared_memory_is_found_wherever_it_lies() {
        let mut v = Vec::new();
        let m = fresh(&mut v);
        let shared = |start, end| Region {
            flags: region_flags::SHARED,
            space: start,
            ..region(start, end, 3)
        };
        m.insert(region(10, 20, 3));
        assert!(!m.has_shared(0, u64::MAX));
        m.insert(shared(20, 30));
        m.insert(region(30, 50, 3));
        m.insert(shared(60, 70));
        for (start, end, found) in [
            (0, 20, false),
            (0, 21, true),
            (19, 21, true),
            (25, 26, true),
            (29, 40, true),
            (30, 60, false),
            (50, 61, true),
            (70, 80, false),
        ] {
            assert_eq!(m.has_shared(start, end), found, "{start}..{end}");
        }
        // What is no longer there, or has something else in its place, is not shared any more.
        m.remove(60, 70);
        m.insert(region(20, 25, 3));
        assert!(!m.has_shared(50, 80) && !m.has_shared(10, 25));
        assert!(m.has_shared(25, 26));
    }

    #[test]
    fn pieces_of_a_mapped_file_keep_their_places_in_it() {
        let mut v = Vec::new();
        let m = fresh(&mut v);
        m.insert(Region {
            flags: region_flags::FILE,
            offset: 1000,
            ..region(10, 40, 1)
        });
        m.set_file(10, 40, 7);
        m.remove(20, 30);
        m.protect(35, 40, 3);
        let places = m.regions().iter().map(|r| (r.start, r.offset, r.file));
        assert_eq!(
            places.collect::<Vec<_>>(),
            [(10, 1000, 7), (30, 1020, 7), (35, 1025, 7)]
        );
        assert_eq!(m.from(37).map(|r| r.offset), Some(1027));
        assert!(m.has_file(7) && !m.has_file(8) && !m.has_file(0));
    }
}
