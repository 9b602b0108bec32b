//! Room in the backing that was given back, and is used again: the lowest piece that is large enough. Changed by the thread that changes the views, in its turn.

use crate::machine::guarded::Guarded;
use crate::thread::leave::Turn;

/// Pieces at most: when there are more, the smallest is never used again.
const MAX_PIECES: usize = 4096;

/// A piece: its first byte, and one past its last.
type Piece = (u64, u64);

struct List {
    len: usize,
    pieces: [Piece; MAX_PIECES],
}

impl List {
    const EMPTY: List = List {
        len: 0,
        pieces: [(0, 0); MAX_PIECES],
    };

    fn remove(&mut self, n: usize) {
        self.pieces.copy_within(n + 1..self.len, n);
        self.len -= 1;
    }

    fn give(&mut self, start: u64, end: u64) {
        let mut new = (start, end);
        let mut n = self.pieces[..self.len].partition_point(|p| p.1 < start);
        // Neighbours become one.
        while n < self.len && self.pieces[n].0 <= new.1 {
            let old = self.pieces[n];
            new = (new.0.min(old.0), new.1.max(old.1));
            self.remove(n);
        }
        if self.len == MAX_PIECES {
            let size = |p: &Piece| p.1 - p.0;
            let smallest = (0..self.len).min_by_key(|i| size(&self.pieces[*i]));
            match smallest.filter(|i| size(&self.pieces[*i]) < size(&new)) {
                Some(i) => self.remove(i),
                None => return,
            }
            n = self.pieces[..self.len].partition_point(|p| p.1 < start);
        }
        self.pieces.copy_within(n..self.len, n + 1);
        self.pieces[n] = new;
        self.len += 1;
    }

    fn take(&mut self, len: u64) -> Option<u64> {
        let fits = |p: &Piece| p.1 - p.0 >= len;
        let n = self.pieces[..self.len].iter().position(fits)?;
        let at = self.pieces[n].0;
        self.pieces[n].0 += len;
        if self.pieces[n].0 == self.pieces[n].1 {
            self.remove(n);
        }
        Some(at)
    }
}

static LIST: Guarded<List, Turn> = Guarded::new(List::EMPTY);

/// Has the list changed, by who changes the views, in its turn.
fn change<R>(how: impl FnOnce(&mut List) -> R) -> R {
    // SAFETY: it is the thread's turn; a change of the list is a method of its own, which looks nowhere else.
    how(unsafe { LIST.change() })
}

/// There are no views yet.
pub fn start() {
    change(|list| list.len = 0);
}

/// This piece of the backing is full of zeros, and nobody shows it.
pub fn give(offset: u64, len: u64) {
    change(|list| list.give(offset, offset + len));
}

/// A piece that was given back.
pub fn take(len: u64) -> Option<u64> {
    change(|list| list.take(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_and_the_lowest_that_fits_is_taken() {
        let mut l = std::boxed::Box::new(List::EMPTY);
        l.give(0x1000, 0x3000);
        l.give(0x8000, 0x9000);
        l.give(0x5000, 0x6000);
        assert_eq!(l.take(0x4000), None);
        l.give(0x3000, 0x5000);
        assert_eq!(l.pieces[..l.len], [(0x1000, 0x6000), (0x8000, 0x9000)]);
        assert_eq!(l.take(0x4000), Some(0x1000));
        assert_eq!(l.take(0x1000), Some(0x5000));
        assert_eq!(l.take(0x1000), Some(0x8000));
        assert_eq!((l.take(0x1000), l.len), (None, 0));
    }

    #[test]
    fn the_smallest_is_forgotten_when_there_are_too_many() {
        let mut l = std::boxed::Box::new(List::EMPTY);
        for n in 0..MAX_PIECES as u64 {
            l.give(n * 0x10000, n * 0x10000 + 0x2000);
        }
        l.give(0xffff_0000, 0xffff_1000);
        assert_eq!(l.len, MAX_PIECES);
        l.give(0xffff_0000, 0xffff_4000);
        assert_eq!(l.len, MAX_PIECES);
        assert_eq!(l.take(0x4000), Some(0xffff_0000));
    }
}
