//! Which registers and memory words tell the visits of a place apart.
//!
//! Any choice is sound, because the named state has these values; a good one keeps the wrong visits from trapping. What is
//! seen are two visits, one period of the innermost loop apart. The first test should fail at nearly every wrong visit: so
//! the most varied value goes first, registers before vectors before memory.

use super::machine::{Xmm, X87};
use super::stub::{Discriminator, Source};
use reprise_abi::layout::USER_END;
use reprise_code::regs::{Regs, GPRS, RSP};

/// Most discriminators of a name.
pub const MAX_DISCRIMINATORS: usize = 12;

/// A short list of discriminators, most telling first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discriminators {
    list: [Option<Discriminator>; MAX_DISCRIMINATORS],
}

impl Discriminators {
    /// They, most telling first.
    pub fn iter(&self) -> impl Iterator<Item = &Discriminator> {
        self.list.iter().flatten()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// There are none: all visits look alike.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Only the first so many.
    pub fn first(mut self, count: usize) -> Discriminators {
        self.list[count.min(MAX_DISCRIMINATORS)..].fill(None);
        self
    }

    /// Adds one at the end; false when there is no room.
    pub fn push(&mut self, discriminator: Discriminator) -> bool {
        match self.list.iter_mut().find(|d| d.is_none()) {
            Some(free) => {
                *free = Some(discriminator);
                true
            }
            None => false,
        }
    }
}

/// A word of memory at two visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordSeen {
    /// [`Source::Word`] or [`Source::Half`].
    pub source: Source,
    /// Value at the earlier visit.
    pub before: u64,
    /// Value now.
    pub now: u64,
}

/// A state of registers, as far as a stub can compare it.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// General registers.
    pub regs: Regs,
    /// Vector registers.
    pub xmm: Xmm,
    /// x87 registers.
    pub x87: X87,
}

fn is_like_an_address(value: u64) -> bool {
    (1 << 32..USER_END).contains(&value)
}

/// How well a value tells visits apart, given what it was and is; 0 when it doesn't.
fn telling(before: u64, now: u64) -> u32 {
    let changed = before ^ now;
    let step = now.wrapping_sub(before) as i64;
    let small_step = step.unsigned_abs() <= 1 << 16;
    let addresses = is_like_an_address(before) && is_like_an_address(now);
    if changed == 0 {
        0
    } else if addresses && !small_step {
        2 // two objects, to which the program comes back again and again
    } else if !small_step && changed.count_ones() >= 12 && before.min(now) >= 1 << 24 {
        5 // as good as random: hashes, generators
    } else if small_step && before.min(now) >= 1 << 12 {
        4 // a counter or pointer with a long way behind it
    } else if small_step && step != 0 && before.max(now) > 1 {
        3 // a counter still small
    } else if before.max(now) > 0xff {
        2
    } else {
        1 // a byte, a truth value
    }
}

/// Chooses from what changed between the visit `before` and the one `now`.
pub fn choose(
    before: &Visit,
    now: &Visit,
    words: impl Iterator<Item = WordSeen>,
) -> Discriminators {
    // Best first; equal ones in the order in which they come.
    let mut best: [(u32, Option<Discriminator>); MAX_DISCRIMINATORS] =
        [(0, None); MAX_DISCRIMINATORS];
    let mut offer = |score: u32, source: Source, value: u64| {
        let Some(at) = best.iter().position(|b| b.0 < score) else {
            return;
        };
        best[at..].rotate_right(1);
        best[at] = (score, Some(Discriminator { source, value }));
    };
    // Registers cost least to compare, memory most: that decides between the equally telling.
    for r in 0..GPRS {
        let telling = telling(before.regs.gpr[r], now.regs.gpr[r]);
        // The stack pointer is a few values of many visits each.
        let weight = if r == RSP { telling.min(2) } else { telling };
        offer(
            weight * 4 + 3 * (weight != 0) as u32,
            Source::Register(r as u8),
            now.regs.gpr[r],
        );
    }
    for i in 0..16 {
        for high in [false, true] {
            let (a, b) = (before.xmm[i][high as usize], now.xmm[i][high as usize]);
            let weight = telling(a, b);
            let cheap = if high { 0 } else { 2 };
            offer(
                weight * 4 + cheap * (weight != 0) as u32,
                Source::Vector {
                    index: i as u8,
                    high,
                },
                b,
            );
        }
    }
    // Dearest of all to compare.
    for (i, (a, b)) in before.x87.iter().zip(&now.x87).enumerate() {
        offer(telling(*a, *b) * 4, Source::X87(i as u8), *b);
    }
    for word in words {
        let weight = telling(word.before, word.now);
        offer(weight * 4 + (weight != 0) as u32, word.source, word.now);
    }
    Discriminators {
        list: best.map(|b| b.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(gpr: &[(usize, u64)], xmm: &[(usize, u64, u64)]) -> Visit {
        let mut v = Visit {
            regs: Regs::default(),
            xmm: [[0; 2]; 16],
            x87: [0; 8],
        };
        for &(r, value) in gpr {
            v.regs.gpr[r] = value;
        }
        for &(i, low, high) in xmm {
            v.xmm[i] = [low, high];
        }
        v
    }

    fn sources(d: &Discriminators) -> Vec<Source> {
        d.iter().map(|d| d.source).collect()
    }

    #[test]
    fn nothing_changed_nothing_chosen() {
        let v = visit(&[(0, 7)], &[]);
        assert!(choose(&v, &v, std::iter::empty()).is_empty());
    }

    #[test]
    fn random_before_counter_before_flag() {
        let before = visit(
            &[
                (0, 1),
                (1, 100_000),
                (2, 0x1234_5678_9abc_def0),
                (4, 0x7fff_0000),
            ],
            &[],
        );
        let now = visit(
            &[
                (0, 0),
                (1, 100_001),
                (2, 0xfedc_ba98_7654_3210),
                (4, 0x7fff_0010),
            ],
            &[],
        );
        let d = choose(&before, &now, std::iter::empty());
        use Source::Register;
        assert_eq!(
            sources(&d),
            [Register(2), Register(1), Register(4), Register(0)]
        );
        assert_eq!(d.iter().next().unwrap().value, 0xfedc_ba98_7654_3210);
    }

    #[test]
    fn memory_and_vectors_when_registers_stay() {
        let before = visit(&[(0, 1)], &[(3, 1 << 20, 1 << 20)]);
        let now = visit(&[(0, 1)], &[(3, (1 << 20) + 1, (1 << 20) + 1)]);
        let words = [WordSeen {
            source: Source::Half(0x1000),
            before: 1 << 21,
            now: (1 << 21) + 1,
        }];
        let d = choose(&before, &now, words.into_iter());
        assert_eq!(
            sources(&d),
            [
                Source::Vector {
                    index: 3,
                    high: false
                },
                Source::Half(0x1000),
                Source::Vector {
                    index: 3,
                    high: true
                }
            ]
        );
        assert!(d.iter().all(|d| d.is_valid()));
    }

    #[test]
    fn a_full_list_refuses() {
        let mut d = Discriminators::default();
        for i in 0..MAX_DISCRIMINATORS {
            assert!(d.push(Discriminator {
                source: Source::Register(i as u8),
                value: 0
            }));
        }
        assert!(!d.push(Discriminator {
            source: Source::Register(9),
            value: 0
        }));
        assert_eq!(d.len(), MAX_DISCRIMINATORS);
    }
}
