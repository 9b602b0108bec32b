//! The optimisations of the `det` engine (DThreads 5), each of which a test can do without (`run --without`): the same run, at another cost.

/// All of them, by name.
pub const OPTIMISATIONS: [&str; 7] = [ALONE, KEPT_TURNS, RETAKEN, SCANS, COPIES, TWINS, LEAD];

/// The only thread of the ring has its turns at once, and commits when there is somebody to see it (single-threaded mode).
pub const ALONE: &str = "alone";
/// A thread keeps its turn while it has a mutex, for some deeds at most (lock ownership).
pub const KEPT_TURNS: &str = "kept-turns";
/// It keeps it for longer if it gives a mutex back and is about to take one again (bound on re-acquisition).
pub const RETAKEN: &str = "retaken";
/// No scan for copies of pages while the thread had no page fault.
pub const SCANS: &str = "scans";
/// Copies that are likely to be written again are made anew instead of dropped.
pub const COPIES: &str = "copies";
/// A twin is left only of a page that was changed (twins are made lazily, and none for what doesn't differ).
pub const TWINS: &str = "twins";

/// Who makes threads goes on beside them, and without turns of its own for some deeds. Without it: in its turn, before them.
pub const LEAD: &str = "lead";

/// The bit of the optimisation with this name.
pub const fn bit(name: &str) -> Option<u64> {
    let mut i = 0;
    while i < OPTIMISATIONS.len() {
        if same(OPTIMISATIONS[i].as_bytes(), name.as_bytes()) {
            return Some(1 << i);
        }
        i += 1;
    }
    None
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Does this set hold the optimisation with this name?
#[inline(always)]
pub const fn holds(set: u64, name: &str) -> bool {
    match bit(name) {
        Some(b) => set & b != 0,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_bit_of_its_own() {
        let all = OPTIMISATIONS.iter().fold(0, |set, n| {
            let b = bit(n).expect("a bit");
            assert_eq!(set & b, 0);
            set | b
        });
        assert_eq!(all, 127);
        assert!(holds(all, TWINS) && !holds(0, TWINS));
        assert_eq!(bit("twin"), None);
    }
}
