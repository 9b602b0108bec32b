//! Pages of the backing (DThreads 4.2.2): their versions, their twins, and how the bytes that a thread has changed get there.

use super::layout::*;
use super::options::{self, count};
use super::{conflicts, views};
use crate::machine::guard;
use crate::thread::panic;
use crate::thread::session;
use core::arch::asm;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering::*};
use reprise_abi::det::TWINS as LAZY_TWINS;
use reprise_abi::layout::PAGE;

/// What is known of a page of the backing. Changed by the thread whose turn it is.
#[repr(C)]
pub(super) struct Page {
    pub(super) version: AtomicU32,
    /// The round in which a twin was left last, ...
    pub(super) round: AtomicU32,
    /// ... or would have been, and its number, or [`NO_TWIN`].
    twin: AtomicU32,
    /// Number of what was committed of it last, where conflicts are told of ([`conflicts`]); elsewhere who has committed it ([`super::owned`]).
    pub(super) committed: AtomicU32,
}

const _: () = assert!(core::mem::size_of::<Page>() == 16);

pub(super) fn page(offset: u64) -> &'static Page {
    // SAFETY: the table has an entry for each page of the backing; only atomics.
    unsafe { &*((PAGES + offset / PAGE * 16) as *const Page) }
}

/// How many threads have this page of the backing in their lists.
pub(super) fn holders(offset: u64) -> &'static AtomicU16 {
    // SAFETY: as above.
    unsafe { &*((HOLDERS + offset / PAGE * 2) as *const AtomicU16) }
}

/// Numbers of twins and versions are less than that in a thread's list.
pub(super) const NUMBERS_MAX: u32 = (1 << 22) - 1;

/// In the place of a twin's number: nobody else had a copy.
pub(super) const NO_TWIN: u32 = u32::MAX;

/// What a comparison is made with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// The page as it was when the phase began.
    Phase,
    /// The page as it is: the copy was made from that.
    Now,
    /// The page as the thread's maker saw it, in this twin.
    Inherited(u32),
}

/// Where this twin is.
pub(super) fn twin_at(number: u32) -> u64 {
    TWINS + number as u64 * PAGE
}

/// Twins that were taken since the phase began.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// While nobody runs and nobody has a turn: the next phase is about to begin, and nothing will be compared with the twins of this one.
pub fn phase_begins() {
    TAKEN.store(0, Relaxed);
}

/// A new twin: a copy of the page at `from`.
pub(super) fn make_twin(from: u64) -> u32 {
    let twin = TAKEN.fetch_add(1, Relaxed);
    if twin >= TWINS_MAX.min(NUMBERS_MAX) {
        panic::give_up("det: too many pages were written between two synchronisation points");
    }
    // SAFETY: both are pages of ours, or a fault that ends the program.
    unsafe { guard::copy(twin_at(twin), from, PAGE as usize) };
    twin
}

fn word(at: u64) -> u64 {
    // SAFETY: a word of a page that is there, or a fault that ends the program.
    unsafe { core::ptr::read_volatile(at as *const u64) }
}

/// Bytes that are compared at once.
const BLOCK: u64 = 64;

/// The same where the program's page may be one that can't be read: `None` then.
pub(super) fn difference_guarded(program: u64, b: u64) -> Option<Option<u64>> {
    // What is true of its first word is true of the page. A fault in the midst of the comparison would lose registers of the program's.
    guard::guarded(|| word(program))?;
    Some(difference(program, b, 0))
}

/// The offset of the first block in which two pages differ, from `at` on.
fn difference(a: u64, b: u64, at: u64) -> Option<u64> {
    let mut at = at;
    if at >= PAGE {
        return None;
    }
    debug_assert!(a % 16 == 0 && b % 16 == 0);
    let mut kept = [0u64; 8];
    let differ: u32;
    // SAFETY: pages that are there. The program's registers are afterwards what they were.
    unsafe {
        asm!(
            "movups [{kept}], xmm0",
            "movups [{kept} + 16], xmm1",
            "movups [{kept} + 32], xmm2",
            "movups [{kept} + 48], xmm3",
            "2:",
            "movdqa xmm0, [{a} + {at}]",
            "movdqa xmm1, [{a} + {at} + 16]",
            "movdqa xmm2, [{a} + {at} + 32]",
            "movdqa xmm3, [{a} + {at} + 48]",
            "pcmpeqb xmm0, [{b} + {at}]",
            "pcmpeqb xmm1, [{b} + {at} + 16]",
            "pcmpeqb xmm2, [{b} + {at} + 32]",
            "pcmpeqb xmm3, [{b} + {at} + 48]",
            "pand xmm0, xmm1",
            "pand xmm2, xmm3",
            "pand xmm0, xmm2",
            "pmovmskb {differ:e}, xmm0",
            "xor {differ:e}, 0xffff",
            "jnz 3f",
            "add {at}, 64",
            "cmp {at}, 4096",
            "jb 2b",
            "3:",
            "movups xmm0, [{kept}]",
            "movups xmm1, [{kept} + 16]",
            "movups xmm2, [{kept} + 32]",
            "movups xmm3, [{kept} + 48]",
            kept = in(reg) kept.as_mut_ptr(),
            a = in(reg) a,
            b = in(reg) b,
            at = inout(reg) at,
            differ = out(reg) differ,
            options(nostack)
        );
    }
    (differ != 0).then_some(at)
}

/// Every byte that differs from the base, from the block at `at` on, is written to the mirror.
fn merge(copy: u64, base: u64, mirror: u64, at: u64) {
    let mut next = Some(at);
    while let Some(block) = next.and_then(|at| difference(copy, base, at)) {
        for at in (block..block + BLOCK).step_by(8) {
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
            unsafe {
                core::ptr::write_volatile((mirror + at) as *mut u64, now & !mask | new & mask)
            };
        }
        next = Some(block + BLOCK);
    }
}

/// Commits one page, of which the thread has had a copy since this phase began (`is_fresh`), or for longer; whether it was changed, and whether others had changed it before in this round. `None`: the program can't read it any more.
pub(super) fn commit_page(
    address: u64,
    is_fresh: bool,
    offset: u64,
    base: Base,
    round: u32,
) -> Option<(bool, bool)> {
    let (p, mirror) = (page(offset), MIRROR + offset);
    let others = p.round.load(Relaxed) == round;
    let lazy = options::has(LAZY_TWINS);
    // All that run have noted what they have copied.
    let alone = lazy && !others && holders(offset).load(Relaxed) <= 1 && !conflicts::on();
    if alone && is_fresh {
        // SAFETY: a page of ours, and one that is guarded.
        guard::guarded(|| unsafe { guard::copy(mirror, address, PAGE as usize) })?;
        count(&session().counters.det_whole);
        p.twin.store(NO_TWIN, Relaxed);
        p.round.store(round, Relaxed);
        p.version.fetch_add(1, Relaxed);
        return Some((true, false));
    }
    let seen = match base {
        Base::Inherited(twin) => twin_at(twin),
        _ => mirror,
    };
    let first = difference_guarded(address, seen)?;
    if first.is_none() && lazy {
        return Some((false, others));
    }
    if !others {
        let twin = match alone {
            true => NO_TWIN,
            false => {
                count(&session().counters.det_twins);
                make_twin(mirror)
            }
        };
        p.twin.store(twin, Relaxed);
        p.round.store(round, Relaxed);
    }
    let Some(first) = first else {
        return Some((false, others));
    };
    let (from, first) = match base {
        Base::Phase if others => match p.twin.load(Relaxed) {
            NO_TWIN => {
                panic::give_up("det: a page was written by two threads, of which one was not known")
            }
            twin => (twin_at(twin), 0),
        },
        _ => (seen, first),
    };
    if conflicts::on() {
        let in_phase = base == Base::Phase;
        conflicts::committed(address, from, in_phase, round, &p.committed);
    }
    merge(address, from, mirror, first);
    p.version.fetch_add(1, Relaxed);
    Some((true, others))
}

/// Before the first turn of the round: in the mirror this page is another than it was, for all. What a thread commits of it is what it has changed beyond that.
pub fn has_changed(offset: u64, round: u32) {
    let p = page(offset);
    if p.round.load(Relaxed) != round {
        p.twin.store(make_twin(MIRROR + offset), Relaxed);
        p.round.store(round, Relaxed);
    }
    p.version.fetch_add(1, Relaxed);
}

/// The page as the thread has it is everybody's: it is committed as a whole, out of turn ([`super::owned`]).
pub(super) fn copy_to_backing(address: u64, offset: u64) {
    if let Some(Some(_)) = difference_guarded(address, MIRROR + offset) {
        // SAFETY: a page of ours, and one that could be read.
        unsafe { guard::copy(MIRROR + offset, address, PAGE as usize) };
        page(offset).version.fetch_add(1, Relaxed);
    }
}

/// Which page of the backing is at this address.
pub(super) fn place_of(address: u64) -> Option<u32> {
    Some((views::offset_of(address)? / PAGE) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_differ_are_merged() {
        #[repr(align(64))]
        struct Words([u64; 512]);
        let base = Words([0; 512]);
        let (mut copy, mut mirror) = (Words([0; 512]), Words([0; 512]));
        copy.0[3] = 0x00ff_0000_0000_0011;
        copy.0[511] = 1 << 63;
        // Another has changed neighbouring bytes, and one that both have.
        mirror.0[3] = 0x1100_2200_0000_0099;
        let at = |v: &Words| v.0.as_ptr() as u64;
        assert_eq!(difference(at(&copy), at(&base), 0), Some(0));
        assert_eq!(difference(at(&copy), at(&base), BLOCK), Some(PAGE - BLOCK));
        assert_eq!(difference(at(&base), at(&base), 0), None);
        merge(at(&copy), at(&base), at(&mirror), 0);
        assert_eq!(mirror.0[3], 0x11ff_2200_0000_0011);
        assert_eq!(mirror.0[511], 1 << 63);
        assert!((0..511).all(|n| n == 3 || mirror.0[n] == 0));
    }
}
