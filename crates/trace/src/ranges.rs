//! Sets of bytes of a file, as ranges that don't touch each other.

use std::collections::BTreeMap;
use std::ops::Range;

/// Which bytes of a file there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Beginning and end of each.
    by_start: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds a range.
    pub fn add(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Those that begin at or before its end, from the last on: those that reach its beginning become part of it.
        while let Some((&start, &end)) = self.by_start.range(..=range.end).next_back() {
            if end < range.start {
                break;
            }
            self.by_start.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.by_start.insert(range.start, range.end);
    }

    /// Takes a range away.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.by_start.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.by_start.remove(&start);
            if end > range.end {
                self.by_start.insert(range.end, end);
            }
            if start < range.start {
                self.by_start.insert(start, range.start);
            }
        }
    }

    /// Cuts a range into stretches that are all there or all missing, in order: each with whether it is there.
    pub fn cut(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let (mut at, mut parts) = (range.start, Vec::new());
        let before = self.by_start.range(..=range.start).next_back();
        let after = self
            .by_start
            .range(range.start + 1..range.end.max(range.start + 1));
        for (&start, &end) in before.into_iter().chain(after) {
            let (start, end) = (start.max(at), end.min(range.end));
            if end <= start {
                continue;
            }
            if start > at {
                parts.push((at..start, false));
            }
            parts.push((start..end, true));
            at = end;
        }
        if at < range.end {
            parts.push((at..range.end, false));
        }
        parts
    }

    /// Is all of this range there?
    pub fn contains(&self, range: &Range<u64>) -> bool {
        let before = self.by_start.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, end)| *end >= range.end)
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.by_start.iter().map(|(start, end)| *start..*end)
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.iter().map(|r| r.end - r.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..24), 0..40), from in 0u64..64, len in 0u64..32) {
            let (mut ranges, mut model) = (Ranges::default(), [false; 96]);
            for (adds, at, n) in steps {
                match adds {
                    true => ranges.add(at..at + n),
                    false => ranges.remove(at..at + n),
                }
                model[at as usize..(at + n) as usize].fill(adds);
            }
            let parts = ranges.cut(from..from + len);
            let mut at = from;
            for (part, there) in parts {
                prop_assert_eq!(part.start, at);
                prop_assert!(part.end > part.start);
                for byte in part.clone() {
                    prop_assert_eq!(model[byte as usize], there);
                }
                at = part.end;
            }
            prop_assert_eq!(at, from + len);
            let all = model[from as usize..(from + len) as usize].iter().all(|b| *b);
            prop_assert_eq!(ranges.contains(&(from..from + len)), all);
            prop_assert_eq!(ranges.bytes(), model.iter().filter(|b| **b).count() as u64);
            let all: Vec<_> = ranges.iter().collect();
            prop_assert!(all.windows(2).all(|two| two[0].end < two[1].start));
        }
    }
}
