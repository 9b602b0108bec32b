//! The search for a named place in a replay: how long it may take, where a stub can lie, and what is said when it isn't found.

use crate::common::report::{diverge, Actual};
use crate::log::ring;
use crate::machine::sys;
use crate::memory;
use crate::memory::pages_of;
use crate::thread::Block;
use reprise_abi::event::Kind;
use reprise_abi::layout::{PAGE, RESERVATION, RESERVATION_END, USER_END};
use reprise_abi::session::{divergence_kind as kinds, region_flags};
use reprise_code::patchable::Place;
use reprise_place::check::{Difference, Tests, What};
use reprise_place::stub::{Discriminator, Source, MAX_STUB};

/// Processor time in which a place must be found, in nanoseconds: as much as this, ...
const PATIENCE: i64 = 500_000_000;
/// ... so many times what the recording took, ...
const SLOWER: i64 = 30;
/// ... or so many times where a visit is told from others by an x87 register, ...
const SLOWER_X87: i64 = 600;
/// ... and this for each stop on the way.
const PATIENCE_PER_STOP: i64 = 40_000;
/// Page protection.
const READ_WRITE: u64 = 3;

/// Processor time that a search with these tests may take, when the recording took so much, and after so many stops.
pub fn allowed(tests: &Tests, recorded: i64, stops: i64) -> i64 {
    let is_x87 = |t: &Discriminator| matches!(t.source, Source::X87(_));
    let slower = match tests.list().iter().any(is_x87) {
        true => SLOWER_X87,
        false => SLOWER,
    };
    PATIENCE + recorded * slower + stops * PATIENCE_PER_STOP
}

/// The place can't be, or was not, found.
pub fn lost(t: &Block, pc: u64, difference: Option<Difference>) -> ! {
    let (what, which) = match difference.map(|d| d.what) {
        None => (0, 0),
        Some(What::Code) => (1, 0),
        Some(What::Pc) => (2, 0),
        Some(What::Register(r)) => (3, r as u64),
        Some(What::Flags) => (4, 0),
        Some(What::FsBase) => (5, 0),
        Some(What::GsBase) => (6, 0),
        Some(What::Vector { index, .. }) => (7, index as u64),
        Some(What::Extended) => (8, 0),
        Some(What::StackWord(at)) => (9, at),
        Some(What::Window) => (10, 0),
        Some(What::Page(at)) => (11, at),
        Some(What::Memory) => (12, 0),
        Some(What::X87(i)) => (13, i as u64),
    };
    let (recorded, actual) = difference.map_or((0, 0), |d| (d.recorded, d.actual));
    let args = [what, which, recorded, actual];
    let expected = ring::peek();
    let actual = Actual {
        kind: Kind::Cut,
        detail: 0,
        value: pc as i64,
        input_hash: 0,
        args: &args,
    };
    diverge(t, kinds::STATE, expected.as_ref(), &actual)
}

/// PROT_ bits that the program's pages have in common, if all are its own and private.
pub fn protection(first: u64, len: u64) -> Option<u32> {
    let mut prot = 7;
    for page in (first..first + len).step_by(PAGE as usize) {
        let r = memory::map().at(page)?;
        if r.flags & region_flags::SHARED != 0 {
            return None;
        }
        prot &= r.prot;
    }
    Some(prot)
}

/// Maps memory for the stub of a place, where the program has none: the stub's address, and the pages. The last page is for
/// the save cell.
pub fn find_room(place: &Place) -> Option<(u64, (u64, u64))> {
    let list = memory::map().regions();
    let here = list.partition_point(|r| r.end <= place.pc);
    // Gap k lies below region k.
    let gap = |k: usize| {
        let low = if k == 0 { 0x1_0000 } else { list[k - 1].end };
        let high = match list.get(k) {
            // The stack grows by itself.
            Some(r) if r.flags & region_flags::STACK != 0 => r
                .end
                .saturating_sub(memory::stack_limit().saturating_add(2 << 20))
                .min(r.start.saturating_sub(2 << 20)),
            Some(r) => r.start,
            None => USER_END,
        };
        (low, high)
    };
    for distance in 0..=list.len() {
        let below = here.checked_sub(distance);
        let above = Some(here + 1 + distance).filter(|k| *k <= list.len());
        for (low, high) in [below, above].into_iter().flatten().map(gap) {
            let found = room_between(place, low, high.min(RESERVATION))
                .or_else(|| room_between(place, low.max(RESERVATION_END), high));
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// Places for a stub that are tried in one gap: more than there can be stubs of other places in it, which stay for long under `order`.
const MOST_TRIES: usize = 1024;

fn room_between(place: &Place, low: u64, high: u64) -> Option<(u64, (u64, u64))> {
    let mut low = low;
    // Where something is mapped that the program doesn't know of, a little farther on.
    for _ in 0..MOST_TRIES {
        if low >= high {
            return None;
        }
        let at = place.first_fit(low, high, MAX_STUB as u64)?;
        let (first, len) = pages_of(at, MAX_STUB as u64);
        let len = len + PAGE;
        if first + len > high {
            return None;
        }
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE;
        if sys::mmap(first, len, READ_WRITE, flags, u64::MAX, 0) == first as i64 {
            return Some((at, (first, len)));
        }
        low = at + 0x1_0000;
    }
    None
}
