//! Which addresses of the program are views of which part of the backing. Changed in turns only; the same for all thread-processes.

use super::layout::{BACKING, MIRROR, RESERVE};
use super::{owned, reuse};
use crate::machine::page_scan;
use crate::machine::{guard, sys};
use crate::memory::{map, Region};
use crate::thread::panic;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;

/// Most views.
pub const MAX_VIEWS: usize = 16_384;
/// Memory without access of this size is address space that a program reserves: it has no room in the backing until something of it can be used.
pub const RESERVED_LEAST: u64 = 256 << 20;
const PROT_READ: u64 = 1;
const MAYMOVE_FIXED: u64 = 3;
const MADV_DONTNEED: u64 = 4;
const MADV_REMOVE: u64 = 9;

/// One view.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Where its first byte is in the backing.
    pub offset: u64,
}

/// Where the table is.
static TABLE: AtomicU64 = AtomicU64::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
/// The first byte of the backing that nothing uses yet. The first page is left out.
static NEXT: AtomicU64 = AtomicU64::new(PAGE);

/// Has the table changed, by the thread whose turn it is, while all others wait: `how` is given it, with how many views there are.
fn change<R>(how: impl FnOnce(&mut [Extent; MAX_VIEWS], usize) -> R) -> R {
    // SAFETY: mapped for good when the first view is made; it is the thread's turn, and who asks looks nowhere else meanwhile.
    let table = unsafe { &mut *(TABLE.load(Relaxed) as *mut [Extent; MAX_VIEWS]) };
    how(table, LEN.load(Relaxed))
}

/// There are no views yet; their table will be at `at`.
pub fn start(at: u64) {
    TABLE.store(at, Relaxed);
    LEN.store(0, Relaxed);
    NEXT.store(PAGE, Relaxed);
    reuse::start();
    owned::start();
}

/// All views, by address. Who changes them begins anew.
pub fn all() -> &'static [Extent] {
    match LEN.load(Relaxed) {
        0 => &[],
        // SAFETY: mapped for good when the first view is made, and so many are there; while somebody looks, nobody else has a turn.
        len => unsafe { core::slice::from_raw_parts(TABLE.load(Relaxed) as *const Extent, len) },
    }
}

/// Where in the backing this address is.
pub fn offset_of(address: u64) -> Option<u64> {
    let all = all();
    let n = all.partition_point(|e| e.end <= address);
    let e = all.get(n).filter(|e| e.start <= address)?;
    Some(e.offset + (address - e.start))
}

/// A piece of the backing, full of zeros: one that was given back, if there is any of that size or larger.
pub fn allocate(len: u64) -> u64 {
    if let Some(at) = reuse::take(len) {
        return at;
    }
    let at = NEXT.fetch_add(len, Relaxed);
    if at + len > BACKING {
        panic::give_up("det: the program has mapped more than 128 GiB");
    }
    at
}

fn insert(e: Extent) {
    change(|t, len| {
        if len == MAX_VIEWS {
            panic::give_up("det: more than 16384 mappings");
        }
        let n = t[..len].partition_point(|o| o.end <= e.start);
        t.copy_within(n..len, n + 1);
        t[n] = e;
        LEN.store(len + 1, Relaxed);
    });
}

/// Something else is mapped from `start` to `end` now, or nothing: that part of the backing is given back.
pub fn forget(start: u64, end: u64) {
    loop {
        let first = change(|t, len| {
            let n = t[..len].partition_point(|o| o.end <= start);
            let e = t[..len].get(n).copied().filter(|e| e.start < end)?;
            t.copy_within(n + 1..len, n);
            LEN.store(len - 1, Relaxed);
            Some(e)
        });
        let Some(e) = first else {
            return;
        };
        let (from, to) = (e.start.max(start), e.end.min(end));
        release(e.offset + (from - e.start), to - from);
        if e.start < from {
            insert(Extent { end: from, ..e });
        }
        if to < e.end {
            insert(Extent {
                start: to,
                end: e.end,
                offset: e.offset + (to - e.start),
            });
        }
    }
}

/// A part of the backing is full of zeros again.
pub fn release(offset: u64, len: u64) {
    sys::madvise(MIRROR + offset, len, MADV_REMOVE);
}

/// Every part of the views from `start` to `end`.
pub fn each_part(start: u64, end: u64, f: &mut impl FnMut(Extent)) {
    for e in all() {
        let (from, to) = (e.start.max(start), e.end.min(end));
        if from < to {
            f(Extent {
                start: from,
                end: to,
                offset: e.offset + (from - e.start),
            });
        }
    }
}

/// Shows a piece of the backing at an address of this process, in the place of what is there.
pub fn show(address: u64, len: u64, offset: u64, prot: u64) {
    if !shift(RESERVE + offset, len, address) || sys::mprotect(address, len, prot) != 0 {
        panic::give_up("det: a view can't be mapped");
    }
}

/// Moves memory, also where the kernel has it in several pieces.
fn shift(from: u64, len: u64, to: u64) -> bool {
    if sys::mremap(from, len, len, MAYMOVE_FIXED, to) == to as i64 {
        return true;
    }
    let half = len / 2 / PAGE * PAGE;
    half != 0 && shift(from, half, to) && shift(from + half, len - half, to + half)
}

/// Shows a view no more: it can be [shown](show) again elsewhere.
pub fn hide(address: u64, len: u64, offset: u64) {
    drop_copies(address, len);
    sys::mprotect(address, len, sys::PROT_NONE);
    if !shift(address, len, RESERVE + offset) {
        panic::give_up("det: a view can't be put away");
    }
}

/// In a turn: what is seen of the backing from `start` to `end` is hidden, in this process, and `f` called with each part: others hide it, too. Then it can be used
/// again.
pub fn give_back(start: u64, end: u64, f: &mut impl FnMut(Extent)) {
    let mut at = start;
    while let Some(e) = next_part(at, end) {
        let len = e.end - e.start;
        hide(e.start, len, e.offset);
        f(e);
        forget(e.start, e.end);
        reuse::give(e.offset, len);
        at = e.end;
    }
}

/// The first part of a view from `start` to `end`.
fn next_part(start: u64, end: u64) -> Option<Extent> {
    let all = all();
    let e = all.get(all.partition_point(|e| e.end <= start))?;
    let (from, to) = (e.start.max(start), e.end.min(end));
    (from < to).then_some(Extent {
        start: from,
        end: to,
        offset: e.offset + (from - e.start),
    })
}

/// Shows a piece of the backing that is written to by all at once.
pub fn show_shared(address: u64, len: u64, offset: u64, prot: u64) {
    let from = MIRROR + offset;
    let at = sys::mremap(from, 0, len, MAYMOVE_FIXED, address);
    if at != address as i64 || sys::mprotect(address, len, prot) != 0 {
        panic::give_up("det: shared memory can't be mapped");
    }
}

/// Makes a view of memory that has nothing in it yet; its offset in the backing.
pub fn add_empty(start: u64, end: u64, prot: u64) -> u64 {
    let offset = add_elsewhere(start, end);
    show(start, end - start, offset, prot);
    offset
}

/// As [`add_empty`], of memory that this process has already, and others are to see; its offset in the backing.
pub fn add_elsewhere(start: u64, end: u64) -> u64 {
    let offset = allocate(end - start);
    insert(Extent { start, end, offset });
    offset
}

/// Makes a view of private memory as it is; its offset in the backing.
pub fn convert(r: &Region) -> u64 {
    let (start, end) = (r.start, r.end);
    let offset = allocate(end - start);
    let to = MIRROR + offset;
    if r.prot as u64 & PROT_READ == 0 {
        sys::mprotect(start, end - start, PROT_READ);
    }
    let copy = |page: u64| {
        // SAFETY: the mirror is ours. What lies behind the end of a file stays zero.
        guard::guarded(|| unsafe {
            guard::copy(to + (page - start), page, PAGE as usize);
        });
    };
    if r.flags & region_flags::FILE != 0 {
        (start..end).step_by(PAGE as usize).for_each(copy);
    } else if page_scan::each_held(start, end, &mut |p| copy(p)).is_err() {
        panic::give_up("det: this kernel has no PAGEMAP_SCAN (Linux 6.7 or newer is needed)");
    }
    show(start, end - start, offset, r.prot as u64);
    insert(Extent { start, end, offset });
    offset
}

/// Is memory like this seen through a view? What is shared has the same content for all anyway; what can't be written keeps its content.
pub fn is_viewed(r: &Region) -> bool {
    const WRITE: u32 = 2;
    const EXEC: u32 = 4;
    let apart = region_flags::SHARED | region_flags::VDSO;
    let anonymous = r.flags & region_flags::FILE == 0;
    let reserved = r.prot as u64 == sys::PROT_NONE && r.end - r.start >= RESERVED_LEAST;
    r.flags & apart == 0 && !reserved && (r.prot & WRITE != 0 || anonymous && r.prot & EXEC == 0)
}

/// The parts of the map's regions from `start` to `end` that are to become views, and are none yet: `f` with each.
pub fn each_to_convert(start: u64, end: u64, f: &mut impl FnMut(&Region)) {
    each_unseen(start, end, is_viewed, f);
}

/// The parts of those regions of the map from `start` to `end` that are `wanted`, and are no views yet: `f` with each.
pub fn each_unseen(
    start: u64,
    end: u64,
    wanted: impl Fn(&Region) -> bool,
    f: &mut impl FnMut(&Region),
) {
    let mut at = start;
    while let Some(r) = map().regions().iter().find(|r| r.end > at).copied() {
        at = at.max(r.start);
        if at >= end {
            break;
        }
        let until = r.end.min(end);
        if !wanted(&r) {
            at = until;
            continue;
        }
        let all = all();
        let next = all.get(all.partition_point(|e| e.end <= at)).copied();
        match next.filter(|e| e.start < until) {
            Some(e) if e.start <= at => at = e.end,
            other => {
                let to = other.map_or(until, |e| e.start);
                f(&Region {
                    start: at,
                    end: to,
                    ..r
                });
                at = to;
            }
        }
    }
}

/// This process's copies of the pages are dropped: the backing shows.
pub fn drop_copies(start: u64, len: u64) {
    sys::madvise(start, len, MADV_DONTNEED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgetting_cuts_views() {
        let mut room = std::vec![Extent::default(); MAX_VIEWS];
        start(room.as_mut_ptr() as u64);
        let e = |start, end, offset| Extent { start, end, offset };
        insert(e(0x5000, 0x9000, 0x10_0000));
        insert(e(0x1000, 0x3000, 0x20_0000));
        assert_eq!(offset_of(0x2fff), Some(0x20_1fff));
        assert_eq!(offset_of(0x3000), None);
        assert_eq!(offset_of(0x5000), Some(0x10_0000));
        assert_eq!(
            all(),
            [e(0x1000, 0x3000, 0x20_0000), e(0x5000, 0x9000, 0x10_0000)]
        );
        let mut parts = std::vec::Vec::new();
        each_part(0x2000, 0x6000, &mut |p| parts.push(p));
        assert_eq!(
            parts,
            [e(0x2000, 0x3000, 0x20_1000), e(0x5000, 0x6000, 0x10_0000)]
        );
        // The mirror isn't mapped here: giving back does nothing.
        forget(0x6000, 0x7000);
        assert_eq!(
            all(),
            [
                e(0x1000, 0x3000, 0x20_0000),
                e(0x5000, 0x6000, 0x10_0000),
                e(0x7000, 0x9000, 0x10_2000)
            ]
        );
        forget(0, 0x10000);
        assert!(all().is_empty());
    }
}
