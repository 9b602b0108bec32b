//! Inputs of the programs: the same bytes on every machine and in every run.

use std::io::{BufWriter, Write};
use std::path::Path;

/// Words that the text is made of; the first ones come up most often.
const VOCABULARY: usize = 5000;
/// Every line of text is followed, with this probability in 16, by a number or an identifier that hardly compresses.
const NUMBERS_IN_16: u64 = 6;

/// A generator of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next one below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(limit)) >> 64) as u64
    }
}

/// Writes `len` bytes of mixed text (words, numbers, identifiers, in lines) to `path`.
///
/// # Errors
/// Of the file system.
pub fn text(path: &Path, len: usize, seed: u64) -> std::io::Result<()> {
    let mut numbers = Numbers(seed);
    let words: Vec<String> = (0..VOCABULARY).map(|_| word(&mut numbers)).collect();
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    let (mut left, mut line) = (len, String::new());
    while left > 0 {
        line.clear();
        for _ in 0..4 + numbers.below(10) {
            // Squaring makes the first words the frequent ones.
            let (a, b) = (
                numbers.below(VOCABULARY as u64),
                numbers.below(VOCABULARY as u64),
            );
            line.push_str(&words[(a * b / VOCABULARY as u64) as usize]);
            line.push(' ');
        }
        if numbers.below(16) < NUMBERS_IN_16 {
            line.push_str(&format!("{:x}", numbers.draw()));
        } else {
            line.push_str(&format!("{}", numbers.below(100_000)));
        }
        line.push('\n');
        let n = line.len().min(left);
        out.write_all(&line.as_bytes()[..n])?;
        left -= n;
    }
    out.flush()
}

fn word(numbers: &mut Numbers) -> String {
    (0..2 + numbers.below(9))
        .map(|_| char::from(b'a' + numbers.below(26) as u8))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for p in [&a, &b] {
            text(p, 100_001, 7).expect("written");
        }
        let (a, b) = (
            std::fs::read(a).expect("read"),
            std::fs::read(b).expect("read"),
        );
        assert_eq!(a.len(), 100_001);
        assert!(a == b);
        let packed = zstd::bulk::compress(&a, 1).expect("compressed").len();
        assert!((20_000..60_000).contains(&packed), "{packed}");
    }
}
