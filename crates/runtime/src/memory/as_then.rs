//! The mappings of this process become those of a copy of it, which was made earlier: what was mapped since then goes, what was unmapped comes back, protections are what they were. Their content isn't
//! looked at here ([`super::compared`]): memory that comes back is empty. Only what is private and nobody's file can come back.

use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::transfer;
use crate::memory::{self, Region};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::layout::{EPOCH_MAPPINGS, EPOCH_MAPPINGS_MAX};
use reprise_abi::session::region_flags;
use reprise_abi::syscalls::{self, nr};

/// Flags of memory that is only read from here.
const OWN: u64 = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;

/// Makes the mappings those that process `pid` has, a copy of this one. All threads stand. False: it can't be, and nothing is changed unless there is no memory for it.
pub fn takes_over(pid: u32) -> bool {
    let Some(then) = Then::of(pid) else {
        return false;
    };
    let brk = then.brk;
    let same_heap = || brk == memory::BRK.load(Relaxed) || makes(nr::BRK, [brk, 0, 0, 0, 0, 0]);
    let theirs = then.regions();
    each_stretch(theirs, can_be_same) && same_heap() && each_stretch(theirs, make_same)
}

/// A stretch of memory in which both sides are what they are: `start`, length, and the region of either side.
type Stretch = (u64, u64, Option<Region>, Option<Region>);

/// Does this for each of them, as long as it is true.
fn each_stretch(theirs: &[Region], does: fn(Stretch) -> bool) -> bool {
    let mut at = 0;
    loop {
        let mine = memory::map().after(at);
        let other = theirs[theirs.partition_point(|r| r.end <= at)..].first();
        let other = other.copied();
        let starts = [mine, other].map(|r| r.map(|r| r.start.max(at)));
        let Some(start) = starts.into_iter().flatten().min() else {
            return true;
        };
        let there = |r: &Region| r.start <= start;
        // So far both sides stay what they are.
        let ends = |r: Option<Region>| r.map(|r| if there(&r) { r.end } else { r.start });
        let ends = [mine, other].map(ends).into_iter().flatten().min();
        let end = ends.unwrap_or(u64::MAX);
        let stretch = (start, end - start, mine.filter(there), other.filter(there));
        if !does(stretch) {
            return false;
        }
        at = end;
    }
}

/// Can it be made what it is on the other side?
fn can_be_same((_, _, mine, other): Stretch) -> bool {
    let kind = |r: Region| (r.flags, r.file, r.space);
    match (mine, other) {
        _ if is_stack([mine, other]) => true,
        (Some(m), Some(o)) => kind(m) == kind(o),
        (one, another) => one.or(another).as_ref().is_none_or(is_plain),
    }
}

/// Would what is mapped there now come back, if it was unmapped, or mapped over?
pub fn could_come_back(start: u64, end: u64) -> bool {
    memory::each_within(start, end).all(|r| is_plain(&r))
}

/// Is it private, nobody's file, and nothing else?
fn is_plain(r: &Region) -> bool {
    r.flags == 0 && r.file == 0 && r.space == 0
}

/// Makes it that.
fn make_same((start, len, mine, other): Stretch) -> bool {
    match (mine, other) {
        _ if is_stack([mine, other]) => true,
        (Some(m), Some(o)) => {
            let prot = o.prot.into();
            m.prot == o.prot || makes(nr::MPROTECT, [start, len, prot, 0, 0, 0])
        }
        (Some(_), None) => makes(nr::MUNMAP, [start, len, 0, 0, 0, 0]),
        (None, Some(o)) => {
            let args = [start, len, o.prot.into(), OWN | sys::MAP_FIXED, u64::MAX, 0];
            makes(nr::MMAP, args)
        }
        (None, None) => true,
    }
}

/// The first thread's stack grows by itself, and is there again when it is touched.
fn is_stack(sides: [Option<Region>; 2]) -> bool {
    let is_it = |r: Region| r.flags & region_flags::STACK != 0;
    sides.into_iter().flatten().any(is_it)
}

fn makes(number: u64, args: [u64; 6]) -> bool {
    let c = Call::new(number, args, syscalls::lookup(number));
    !sys::is_error(memory::perform(&c).result)
}

/// The mappings of the other process, as its runtime has them.
struct Then {
    len: usize,
    brk: u64,
}

impl Then {
    fn of(pid: u32) -> Option<Then> {
        let get = |to: u64, from: u64, len: usize| transfer::get(pid, to, from, len as u64);
        let words = UnsafeCell::new([0u64; 2]);
        let (brk, len) = (words.get() as u64, words.get() as u64 + 8);
        get(brk, memory::BRK.as_ptr() as u64, size_of::<u64>())?;
        // The other process has both at the same place.
        let list = memory::map().list() as u64;
        get(len, memory::map().len_word() as u64, size_of::<usize>())?;
        let [brk, len] = words.into_inner();
        let len = len as usize;
        let bytes = len * size_of::<Region>();
        let fits = len != 0 && bytes as u64 <= EPOCH_MAPPINGS_MAX;
        if !fits || !sys::map_own(EPOCH_MAPPINGS, bytes as u64) {
            return None;
        }
        let then = Then { len, brk };
        get(EPOCH_MAPPINGS, list, bytes)?;
        Some(then)
    }

    fn regions(&self) -> &[Region] {
        // SAFETY: as many as were read there.
        unsafe { core::slice::from_raw_parts(EPOCH_MAPPINGS as *const Region, self.len) }
    }
}

impl Drop for Then {
    fn drop(&mut self) {
        sys::munmap(EPOCH_MAPPINGS, (self.len * size_of::<Region>()) as u64);
    }
}
