//! The stamps of the events of an `order` recording: where they are in an event, and which of them no event has.

use reprise_abi::event::{Event, Kind, ProcessEnd, AMONG_THREADS};
use std::collections::BTreeMap;

/// The stamps of an event: its last words, after the arguments of the call.
pub fn stamps_of<'a>(e: &'a Event<'a>) -> impl Iterator<Item = u64> + 'a {
    let n = e.header.nargs as usize;
    let first = match e.kind {
        Kind::Syscall | Kind::Enter => {
            let call = reprise_abi::syscalls::lookup(e.header.detail as u64);
            call.map_or(6, |d| d.args.len())
        }
        Kind::Exit | Kind::ThreadStart => 0,
        Kind::Signal | Kind::ThreadExit => 1,
        Kind::ProcessEnd if e.header.detail == ProcessEnd::Told as u32 => 1,
        Kind::ProcessStart => 2,
        Kind::Fault => 4,
        Kind::Patch if e.header.detail & AMONG_THREADS != 0 => 2,
        _ => n,
    };
    (first..n).map(|i| e.arg(i))
}

/// A set of stamps. Most of what was drawn is in it, so that it takes room for what is missing only.
#[derive(Default, Debug)]
pub struct Stamps {
    /// Stretches that are in it: the first stamp, and the one behind the last.
    stretches: BTreeMap<u64, u64>,
}

impl Stamps {
    /// Adds one.
    pub fn add(&mut self, stamp: u64) {
        // The next one, mostly.
        if let Some(mut last) = self.stretches.last_entry() {
            if *last.get() == stamp {
                *last.get_mut() = stamp.saturating_add(1);
                return;
            }
        }
        let before = self.stretches.range(..=stamp).next_back();
        let (mut start, mut end) = (stamp, stamp.saturating_add(1));
        if let Some((s, e)) = before.map(|(s, e)| (*s, *e)) {
            if stamp < e {
                return;
            }
            if e == stamp {
                start = s;
            }
        }
        if let Some(e) = self.stretches.remove(&end) {
            end = e;
        }
        self.stretches.insert(start, end);
    }

    /// Adds all below this one.
    pub fn add_below(&mut self, stamp: u64) {
        if stamp > 0 {
            self.stretches.retain(|_, end| *end > stamp);
            let last = self.stretches.first_key_value().map(|(s, e)| (*s, *e));
            let joined = last.filter(|(start, _)| *start <= stamp);
            if let Some((start, _)) = joined {
                self.stretches.remove(&start);
            }
            self.stretches
                .insert(0, joined.map_or(stamp, |(_, end)| end));
        }
    }

    /// Adds all that an event has.
    pub fn note(&mut self, e: &Event) {
        stamps_of(e).for_each(|s| self.add(s));
    }

    /// One more than the largest.
    pub fn end(&self) -> u64 {
        self.stretches.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// Those below `drawn` that are not in it, at most so many.
    pub fn missing(&self, drawn: u64, most: usize) -> Vec<u64> {
        let mut at = 0;
        let mut gaps = Vec::new();
        for (start, end) in self.stretches.iter().chain([(&drawn, &drawn)]) {
            let gap = at..(*start).min(drawn);
            gaps.extend(gap.take(most - gaps.len()));
            at = at.max(*end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_abi::event::{EventHeader, HEADER_LEN};

    #[test]
    fn what_stands_before_the_stamps_is_none() {
        for (kind, nargs, wanted) in [
            (Kind::Exit, 1, &[10][..]),
            (Kind::ThreadStart, 1, &[10]),
            (Kind::Signal, 2, &[11]),
            (Kind::ThreadExit, 2, &[11]),
            (Kind::Hash, 2, &[]),
        ] {
            let h = EventHeader {
                len: (HEADER_LEN + 8 * nargs) as u32,
                kind: kind as u8,
                nargs: nargs as u8,
                ..Default::default()
            };
            let mut bytes = h.to_bytes().to_vec();
            for word in (10u64..).take(nargs) {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            let event = Event::parse(&bytes).expect("an event");
            assert_eq!(stamps_of(&event).collect::<Vec<_>>(), wanted, "{kind:?}");
        }
    }

    #[test]
    fn stamps_that_nobody_has_are_found() {
        let mut s = Stamps::default();
        assert_eq!(s.missing(3, 10), [0, 1, 2]);
        for stamp in [7, 0, 1, 4, 2, 4] {
            s.add(stamp);
        }
        assert_eq!(s.missing(9, 10), [3, 5, 6, 8]);
        assert_eq!(s.missing(9, 2), [3, 5]);
        assert_eq!(s.missing(6, 10), [3, 5]);
        s.add(3);
        assert_eq!(s.missing(8, 10), [5, 6]);
        for stamp in [6, 5] {
            s.add(stamp);
        }
        assert!(s.missing(8, 10).is_empty());
        assert_eq!(s.stretches.len(), 1);
        for (known, below, gaps) in [
            (&[][..], 3, &[3, 4][..]),
            (&[1, 4], 3, &[3]),
            (&[3], 3, &[4]),
            (&[2, 3], 3, &[4]),
            (&[], 0, &[0, 1, 2, 3, 4]),
        ] {
            let mut s = Stamps::default();
            known.iter().for_each(|n| s.add(*n));
            s.add_below(below);
            assert_eq!(s.missing(5, 10), gaps, "{known:?} and all below {below}");
        }
    }
}
