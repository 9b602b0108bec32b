//! What of the address space is the runtime's own: the reservation, and the pages of stubs that lie near the program's code, since jumps reach no further. To the program nothing is mapped there.

use super::PAGE;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use reprise_abi::layout::{RESERVATION, RESERVATION_END};

/// Most stretches of code of the runtime's own outside of its image.
const MOST: usize = 2048;

/// Code of the runtime's own outside of its image: first bytes and lengths.
#[repr(C)]
pub struct Beside {
    used: AtomicU64,
    all: [[AtomicU64; 2]; MOST],
}

/// What a debugger does not show of the code.
#[export_name = "rt_beside"]
pub static BESIDE: Beside = Beside {
    used: AtomicU64::new(0),
    all: [const { [AtomicU64::new(0), AtomicU64::new(0)] }; MOST],
};

/// There is code of the runtime's own here.
pub fn note(at: u64, len: u64) {
    for (entry, n) in BESIDE.all.iter().zip(1..) {
        if entry[1].compare_exchange(0, len, SeqCst, SeqCst).is_ok() {
            entry[0].store(at, SeqCst);
            BESIDE.used.fetch_max(n, SeqCst);
            return;
        }
    }
}

/// It is gone.
pub fn forget(at: u64) {
    let here = |entry: &&[AtomicU64; 2]| entry[1].load(SeqCst) != 0 && entry[0].load(SeqCst) == at;
    if let Some(entry) = BESIDE.all.iter().find(here) {
        entry[1].store(0, SeqCst);
    }
}

/// The first stretch of these addresses that is the runtime's own.
fn first_own(start: u64, end: u64) -> Option<(u64, u64)> {
    let used = BESIDE.used.load(SeqCst) as usize;
    let beside = BESIDE.all.iter().take(used).map(|[at, len]| {
        let (at, len) = (at.load(SeqCst), len.load(SeqCst));
        (at, at + len.next_multiple_of(PAGE))
    });
    let reserved = core::iter::once((RESERVATION, RESERVATION_END));
    let inside = |(from, to): &(u64, u64)| from < to && *from < end && *to > start;
    reserved.chain(beside).filter(inside).min()
}

/// Is anything of these addresses the runtime's own?
pub fn has_own(start: u64, end: u64) -> bool {
    first_own(start, end).is_some()
}

/// Calls `f` with the stretches of these addresses that are not the runtime's own, as long as it is true.
pub fn each_between(start: u64, end: u64, mut f: impl FnMut(u64, u64) -> bool) -> bool {
    let mut at = start;
    while at < end {
        let (from, to) = first_own(at, end).unwrap_or((end, end));
        if at < from && !f(at, from) {
            return false;
        }
        at = to.max(from);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_is_what_is_not_ours() {
        const AT: u64 = 0x7000_0000_0000;
        let between = |start, end| {
            let mut all = Vec::new();
            assert!(each_between(start, end, |from, to| {
                all.push((from, to));
                true
            }));
            all
        };
        assert_eq!(between(AT, AT + 8 * PAGE), [(AT, AT + 8 * PAGE)]);
        note(AT + 2 * PAGE, PAGE);
        note(AT + 3 * PAGE, 100);
        note(AT + 6 * PAGE, PAGE);
        let all = [
            (AT, AT + 2 * PAGE),
            (AT + 4 * PAGE, AT + 6 * PAGE),
            (AT + 7 * PAGE, AT + 8 * PAGE),
        ];
        assert_eq!(between(AT, AT + 8 * PAGE), all);
        assert_eq!(between(AT + 2 * PAGE, AT + 4 * PAGE), []);
        assert!(has_own(0, u64::MAX) && !has_own(AT, AT + 2 * PAGE));
        let around = between(PAGE, AT);
        assert_eq!(around, [(PAGE, RESERVATION), (RESERVATION_END, AT)]);
        assert!(!each_between(AT, AT + 8 * PAGE, |from, _| from == AT));
        for at in [2, 3, 6] {
            forget(AT + at * PAGE);
        }
        assert_eq!(between(AT, AT + 8 * PAGE), [(AT, AT + 8 * PAGE)]);
    }
}
