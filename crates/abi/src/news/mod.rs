//! Which of many rings have something new for who reads them (Castor 3.5: who is idle costs nothing): a bit for each slot.
//!
//! A thread that has shown what it wrote sets its bit, unless it sees it set. That it sees it does not mean that the reader, who clears
//! the bit first and looks at the ring then, will find what was written: the processor may have looked at the bit before others see the ring's new
//! head. So rings whose news was taken are looked at once more the next time, for which a store has long enough: what others did because of
//! it must not be written before it. And once more when some time has passed, since there may be no next time.

use crate::atomic::{AtomicU64, Ordering::*};
use crate::layout::MAX_SLOTS;

/// A set of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotSet([u64; MAX_SLOTS / 64]);

impl SlotSet {
    /// No slot.
    pub const NONE: SlotSet = SlotSet([0; MAX_SLOTS / 64]);

    /// All slots below `n`.
    pub fn below(n: usize) -> SlotSet {
        let mut all = SlotSet::NONE;
        for (i, word) in all.0.iter_mut().enumerate() {
            let bits = n.saturating_sub(64 * i).min(64) as u32;
            *word = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        }
        all
    }

    /// The slots of the other set, too.
    pub fn add(&mut self, other: &SlotSet) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut left = *word;
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(64 * i + bit)
            })
        })
    }
}

/// Which rings are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Those with news.
    Once,
    /// Those that had news lately, too: a round is over.
    Again,
    /// All.
    Everywhere,
}

/// The ring of this slot has something new, which others can see.
#[inline]
pub fn tell(news: &[AtomicU64], slot: usize) {
    let (word, bit) = (&news[slot / 64], 1 << (slot % 64));
    if word.load(Relaxed) & bit == 0 {
        word.fetch_or(bit, Release);
    }
}

/// What the reader knows of news.
pub struct News {
    /// Slots whose news was taken in this round, and in the one before.
    told: [SlotSet; 2],
    /// Those whose news was taken the last time.
    last: SlotSet,
}

impl Default for News {
    fn default() -> Self {
        News {
            told: [SlotSet::NONE; 2],
            last: SlotSet::NONE,
        }
    }
}

impl News {
    /// The slots whose rings may have something new, where so many are used, and how many of them had news just now. Whoever is idle isn't among them, however
    /// many they are.
    pub fn take(&mut self, news: &[AtomicU64], used: usize, look: Look) -> (SlotSet, usize) {
        let mut slots = SlotSet::NONE;
        for (to, word) in slots.0.iter_mut().zip(news).take(used.div_ceil(64)) {
            *to = word.swap(0, SeqCst);
        }
        let (fresh, last) = (slots.len(), core::mem::replace(&mut self.last, slots));
        match look {
            Look::Once => self.told[0].add(&slots),
            Look::Again => {
                // Those of this round once more in the next: it may have ended a moment ago.
                let [now, before] = self.told;
                self.told = [slots, now];
                slots.add(&now);
                slots.add(&before);
            }
            Look::Everywhere => slots.add(&SlotSet::below(used)),
        }
        slots.add(&last);
        (slots, fresh)
    }
}

#[cfg(test)]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn sets_have_what_was_put_into_them() {
        for n in [0, 1, 63, 64, 65, 1000, MAX_SLOTS] {
            let all = SlotSet::below(n);
            assert_eq!(all.len(), n);
            assert_eq!(all.is_empty(), n == 0);
            assert!(all.iter().eq(0..n));
        }
    }

    #[test]
    fn who_is_idle_is_not_looked_at() {
        let words: [AtomicU64; MAX_SLOTS / 64] = core::array::from_fn(|_| AtomicU64::new(0));
        let mut news = News::default();
        let mut look = |how| -> Vec<usize> { news.take(&words, 1000, how).0.iter().collect() };
        assert!(look(Look::Once).is_empty());
        tell(&words, 7);
        tell(&words, 900);
        assert_eq!(look(Look::Once), [7, 900]);
        // Whoever came just too late is found the next time, ...
        assert_eq!(look(Look::Once), [7, 900]);
        assert!(look(Look::Once).is_empty());
        tell(&words, 8);
        // ... and by one of two more looks.
        assert_eq!(look(Look::Again), [7, 8, 900]);
        assert_eq!(look(Look::Again), [7, 8, 900]);
        assert_eq!(look(Look::Again), [8]);
        assert!(look(Look::Again).is_empty());
        assert_eq!(look(Look::Everywhere).len(), 1000);
    }
}
