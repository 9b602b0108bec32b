//! Conflicting writes, found at commits: bytes that two threads have changed between the same two synchronisation points (`run --det-report`).
//!
//! Of each page that is committed it is kept until the round is over which bytes the thread has changed. What a thread has changed in the phase, and
//! another one, too, in the phase or in its turn, nothing has ordered. What a thread changes in its turn is ordered behind all turns before it. The same is found
//! in every run, since commits are the same in every run. A write of the value that was there already can't be seen.

use super::layout::*;
use super::maps::Maps;
use super::members::number_of;
use crate::machine::guard;
use crate::signal::frame::Ucontext;
use crate::thread::panic;
use crate::thread::process;
use crate::thread::{current, session, Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::conflicts::{Conflict, Conflicts, Stand, CONFLICTS_BASE, MAX_MAPS};
use reprise_abi::layout::PAGE;
use reprise_abi::session::shown;

const WORD: usize = 8;
const WORDS: usize = PAGE as usize / WORD;

/// Which bytes of a page: a bit each, in the order of their addresses.
type Bytes = [u64; PAGE as usize / 64];

/// A page that was committed. Kept by the thread whose turn it is.
#[repr(C)]
struct Committed {
    round: u32,
    slot: u32,
    address: u64,
    /// Number of the one before it, of the same page.
    before: u32,
    _pad: u32,
    bytes: Bytes,
}

const MOST: u32 = (COMMITTED_LEN / core::mem::size_of::<Committed>() as u64) as u32;

/// The round of which pages were noted, and how many.
static ROUND: AtomicU32 = AtomicU32::new(0);
static NOTED: AtomicU32 = AtomicU32::new(0);

/// Are conflicts to be told of?
#[inline(always)]
pub fn on() -> bool {
    session().det_report != 0
}

fn all() -> &'static Conflicts {
    // SAFETY: mapped for good, in every thread-process; only atomics, but for the maps, which one thread at a time writes.
    unsafe { &*(CONFLICTS_BASE as *const Conflicts) }
}

fn stand(slot: u32) -> &'static Stand {
    // SAFETY: there is one for each slot; only atomics.
    unsafe { &*((STANDS as *const Stand).add(slot as usize)) }
}

/// Where the page with this number is noted, from 1 on: there is room for [`MOST`], for the thread whose turn it is.
fn place(n: u32) -> *mut Committed {
    (COMMITTED as *mut Committed).wrapping_add(n as usize - 1)
}

/// The bytes in which two words differ, a bit each; the lowest address is bit 0.
fn differing(a: u64, b: u64) -> u64 {
    let mut x = a ^ b;
    x |= x >> 4;
    x |= x >> 2;
    x |= x >> 1;
    (0..WORD).fold(0, |bits, n| bits | (x >> (8 * n) & 1) << n)
}

/// The bytes in which two pages differ.
fn changed(copy: &[u64; WORDS], base: &[u64; WORDS]) -> Bytes {
    let mut bytes = [0; PAGE as usize / 64];
    for n in (0..WORDS).filter(|n| copy[*n] != base[*n]) {
        bytes[n / WORD] |= differing(copy[n], base[n]) << (WORD * (n % WORD));
    }
    bytes
}

/// Calls `f` with the offset in the page and the length of each run of neighbouring bytes; in order.
fn each_run(bytes: &Bytes, mut f: impl FnMut(u64, u64)) {
    let has = |n: u64| n < PAGE && bytes[n as usize / 64] >> (n % 64) & 1 != 0;
    let mut at = 0;
    while at < PAGE {
        if bytes[at as usize / 64] >> (at % 64) == 0 {
            at = (at / 64 + 1) * 64;
            continue;
        }
        let start = at;
        while has(at) {
            at += 1;
        }
        if at > start {
            f(start, at - start);
        }
        at += 1;
    }
}

/// In its turn of this round, a thread is about to commit: where it is, or was when it did so first.
pub fn stands(t: &Block, round: u32) {
    if !on() || stand(t.slot).round.load(Relaxed) == round {
        return;
    }
    let s = stand(t.slot);
    s.round.store(round, Relaxed);
    s.thread.store(number_of(t.slot), Relaxed);
    let mut f = frame(t).unwrap_or_default();
    // A gate's frame is behind its instruction, as that of a caller is; all others are before theirs.
    f.rip += u64::from(f.rip != t.slot().last_pc.load(Relaxed));
    crate::memory::stand::keep(&f, &s.registers, &s.stack, &s.stack_len);
}

/// The program's registers, as far as its functions keep them.
fn frame(t: &Block) -> Option<Frame> {
    let place = t.slot().shown.load(Relaxed);
    let at = place & !shown::CONTEXT;
    // SAFETY: what is shown is there for as long as the thread is in the runtime.
    unsafe {
        match place & shown::CONTEXT {
            _ if at == 0 => None,
            shown::FRAME => Some(*(at as *const Frame)),
            _ => Some((*(at as *const Ucontext)).mc.to_frame()),
        }
    }
}

/// The calling thread commits its copy at `address`, which differs from `base`. `last`: what the page has last; numbers of earlier rounds mean
/// nothing.
pub fn committed(address: u64, base: u64, in_phase: bool, round: u32, last: &AtomicU32) {
    if ROUND.swap(round, Relaxed) != round {
        NOTED.store(0, Relaxed);
    }
    // SAFETY: two pages that are there.
    let (copy, base) = unsafe {
        (
            &*(address as *const [u64; WORDS]),
            &*(base as *const [u64; WORDS]),
        )
    };
    let (bytes, slot) = (changed(copy, base), current().slot_number());
    let mut before = last.load(Relaxed);
    let there = NOTED.load(Relaxed);
    // SAFETY: it is the thread's turn, and these are noted; what it notes itself comes behind them.
    let noted = |n: u32| unsafe { &*place(n) };
    let of_now = |n: u32| {
        let known = (1..=there).contains(&n);
        known && noted(n).round == round && noted(n).address == address
    };
    if !of_now(before) {
        before = 0;
    }
    let mut n = before;
    while in_phase && n != 0 {
        let other = noted(n);
        if other.slot != slot {
            let mut both = bytes;
            for (b, o) in both.iter_mut().zip(&other.bytes) {
                *b &= o;
            }
            each_run(&both, |at, len| tell(address + at, len, other.slot, slot));
        }
        n = other.before;
    }
    if there == MOST {
        panic::give_up("det: too many pages were written between two synchronisation points");
    }
    let this = Committed {
        round,
        slot,
        address,
        before,
        _pad: 0,
        bytes,
    };
    // SAFETY: as above, and there is room for one more.
    unsafe { place(there + 1).write(this) };
    NOTED.store(there + 1, Relaxed);
    last.store(there + 1, Relaxed);
}

fn is_at(s: &Stand, other: &Stand) -> bool {
    const RIP: usize = reprise_abi::races::REGISTERS - 1;
    s.thread.load(Relaxed) == other.thread.load(Relaxed)
        && s.registers[RIP].load(Relaxed) == other.registers[RIP].load(Relaxed)
}

fn copy(to: &Stand, from: &Stand) {
    // SAFETY: of one kind, and both there; only atomics.
    unsafe {
        guard::copy(
            core::ptr::from_ref(to) as u64,
            core::ptr::from_ref(from) as u64,
            core::mem::size_of::<Stand>(),
        )
    };
}

/// Tells of one. Of processes that the program has made, nothing is told.
fn tell(address: u64, len: u64, earlier: u32, later: u32) {
    if process::number() != 0 {
        return;
    }
    let (a, stands) = (all(), [stand(earlier), stand(later)]);
    let found = a.found.load(Relaxed) as usize;
    let same = |c: &&Conflict| {
        c.address.load(Relaxed) == address
            && c.len.load(Relaxed) == len
            && c.threads.iter().zip(stands).all(|(s, o)| is_at(s, o))
    };
    if let Some(c) = a.list[..found].iter().find(same) {
        c.times.fetch_add(1, Relaxed);
        return;
    }
    let Some(c) = a.list.get(found) else {
        a.more.fetch_add(1, Relaxed);
        return;
    };
    c.address.store(address, Relaxed);
    c.len.store(len, Relaxed);
    c.times.store(1, Relaxed);
    for (to, from) in c.threads.iter().zip(stands) {
        copy(to, from);
    }
    a.maps_len
        .store(read_maps(a.maps.as_ptr() as u64) as u32, Relaxed);
    a.found.store(found as u32 + 1, Release);
}

/// What is mapped where now, as the kernel tells it; how many bytes that is.
fn read_maps(to: u64) -> usize {
    let maps = Maps::open();
    let mut len = 0;
    while len < MAX_MAPS {
        match maps.read(to + len as u64, MAX_MAPS - len) {
            0 => break,
            n => len += n,
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    const SAME: u64 = 0x0101_0101_0101_0101;

    /// Runs of bytes that both have changed, of words that each has given a new value.
    fn found(mine: &[(usize, u64)], others: &[(usize, u64)]) -> Vec<(u64, u64)> {
        let base = [SAME; WORDS];
        let page = |changes: &[(usize, u64)]| {
            let mut page = base;
            changes.iter().for_each(|(n, value)| page[*n] = *value);
            changed(&page, &base)
        };
        let mut both = page(mine);
        both.iter_mut().zip(page(others)).for_each(|(b, o)| *b &= o);
        let mut all = vec![];
        each_run(&both, |at, len| all.push((at, len)));
        all
    }

    #[test]
    fn neighbouring_bytes_of_two_threads_do_not_conflict() {
        assert_eq!(found(&[], &[]), vec![]);
        assert_eq!(found(&[(3, SAME ^ 0xff)], &[(3, SAME ^ 0xff00)]), vec![]);
        assert_eq!(found(&[(3, SAME ^ 0xff)], &[(4, SAME ^ 0xff)]), vec![]);
    }

    #[test]
    fn bytes_that_both_changed_conflict_whatever_was_written() {
        assert_eq!(
            found(&[(3, SAME ^ 0x80)], &[(3, SAME ^ 0x01)]),
            vec![(24, 1)]
        );
        // The same value by both.
        let last = [(511, SAME ^ 0xff << 56)];
        assert_eq!(found(&last, &last), vec![(4095, 1)]);
    }

    #[test]
    fn a_run_goes_on_over_words_and_ends_at_a_gap() {
        assert_eq!(
            found(&[(7, 0), (8, !SAME)], &[(7, 0), (8, 0)]),
            vec![(56, 16)]
        );
        assert_eq!(
            found(&[(0, SAME ^ 0xff00_ff00)], &[(0, 0)]),
            vec![(1, 1), (3, 1)]
        );
        let all: Vec<(usize, u64)> = (0..WORDS).map(|n| (n, 0)).collect();
        assert_eq!(found(&all, &all), vec![(0, 4096)]);
    }
}
