//! Hashes of ranges of a copy, as a program has read them: where reads don't end with blocks ([`crate::blocks`]), the next recording of a program that reads as
//! this one did need not read the copy to compare.

/// The most that are remembered of a file.
const MOST: usize = 1 << 16;

/// A range: offset, length, hash.
pub type Known = [u64; 3];

/// Ranges of a file whose hashes are known.
#[derive(Default)]
pub struct KnownRanges {
    /// From earlier recordings, in order.
    earlier: Vec<Known>,
    /// Where the one that is wanted next may stand there.
    next: usize,
    /// Of this one.
    new: Vec<Known>,
}

impl KnownRanges {
    /// Those of earlier recordings.
    pub fn of(mut earlier: Vec<Known>) -> KnownRanges {
        earlier.sort_unstable();
        KnownRanges {
            earlier,
            ..KnownRanges::default()
        }
    }

    /// What `len` bytes at `offset` hash as, from earlier recordings.
    pub fn get(&mut self, offset: u64, len: u64) -> Option<u64> {
        let is_it = |k: &&Known| k[..2] == [offset, len];
        let at = match self.earlier.get(self.next).filter(is_it) {
            Some(_) => self.next,
            None => self
                .earlier
                .partition_point(|k| [k[0], k[1]] < [offset, len]),
        };
        let found = self.earlier.get(at).filter(is_it)?;
        self.next = at + 1;
        Some(found[2])
    }

    /// `len` bytes at `offset` hash as `sum`.
    pub fn set(&mut self, offset: u64, len: u64, sum: u64) {
        if self.earlier.len() + self.new.len() < MOST {
            self.new.push([offset, len, sum]);
        }
    }

    /// All of them, if there are more than earlier recordings knew.
    pub fn all(mut self) -> Option<Vec<Known>> {
        if self.new.is_empty() {
            return None;
        }
        self.new.append(&mut self.earlier);
        self.new.sort_unstable();
        self.new.dedup();
        Some(self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_is_known() {
        let mut first = KnownRanges::default();
        for (offset, len) in [(100, 50), (0, 100), (100, 60), (0, 100)] {
            assert_eq!(first.get(offset, len), None);
            first.set(offset, len, offset * 1000 + len);
        }
        let all = first.all().unwrap();
        assert_eq!(all.len(), 3);
        let mut again = KnownRanges::of(all);
        for (offset, len) in [(0, 100), (100, 50), (100, 60), (0, 100), (100, 50)] {
            assert_eq!(again.get(offset, len), Some(offset * 1000 + len));
        }
        assert_eq!(again.get(0, 99), None);
        assert_eq!(again.get(100, 55), None);
        assert_eq!(again.get(7000, 1), None);
        assert_eq!(again.all(), None);
    }

    #[test]
    fn no_more_than_a_bound_are_remembered() {
        let mut ranges = KnownRanges::default();
        (0..2 * MOST as u64).for_each(|i| ranges.set(i, 1, i));
        assert_eq!(ranges.all().unwrap().len(), MOST);
    }
}
