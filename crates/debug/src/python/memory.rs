//! What is read of the interpreter: words, bytes and texts of bounded length, out of a memory in which anything may be anywhere.

use std::cell::Cell;

/// Most bytes that are read for one question. What leads in circles ends by a limit of its own, mostly long before.
const MOST_READ: u64 = 256 << 20;
/// A read counts for as many, at least.
const A_READ: u64 = 64;
/// Longest text of C's, with its end.
const MOST_NAME: usize = 256;
/// What is read of it at a time, so that it needn't be long to be read at the end of a mapping.
const PIECE: usize = 32;

/// The process.
pub(super) struct Memory<'a> {
    read: &'a dyn Fn(u64, &mut [u8]) -> bool,
    left: Cell<u64>,
}

impl<'a> Memory<'a> {
    /// `read` fills what it is given, or says false.
    pub fn new(read: &'a dyn Fn(u64, &mut [u8]) -> bool) -> Memory<'a> {
        Memory {
            read,
            left: Cell::new(MOST_READ),
        }
    }

    fn fill(&self, at: u64, into: &mut [u8]) -> Option<()> {
        let cost = A_READ.max(into.len() as u64);
        self.left.set(self.left.get().checked_sub(cost)?);
        (self.read)(at, into).then_some(())
    }

    fn array<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(at, &mut bytes)?;
        Some(bytes)
    }

    /// 64 bits.
    pub fn word(&self, at: u64) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// An address that isn't 0.
    pub fn pointer(&self, at: u64) -> Option<u64> {
        self.word(at).filter(|p| *p != 0)
    }

    /// 32 bits.
    pub fn half(&self, at: u64) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// 8 bits.
    pub fn byte(&self, at: u64) -> Option<u8> {
        self.array(at).map(|[byte]| byte)
    }

    /// So many bytes; the caller has a limit.
    pub fn bytes(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.fill(at, &mut bytes)?;
        Some(bytes)
    }

    /// A text that ends with 0; none that doesn't, or isn't one.
    pub fn text(&self, at: u64) -> Option<String> {
        let mut text = Vec::new();
        while text.len() < MOST_NAME {
            let piece = self.bytes(at.checked_add(text.len() as u64)?, PIECE);
            let piece = match piece {
                Some(piece) => piece,
                // The end of what is mapped may be nearer.
                None => vec![self.byte(at.checked_add(text.len() as u64)?)?],
            };
            let end = piece.iter().position(|b| *b == 0);
            text.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
            if end.is_some() {
                return String::from_utf8(text).ok();
            }
        }
        None
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A memory that is made up.
    #[derive(Default)]
    pub struct Made {
        pieces: BTreeMap<u64, Vec<u8>>,
    }

    impl Made {
        /// The bytes of all pieces, one behind the other.
        pub fn all(&mut self) -> impl Iterator<Item = &mut u8> {
            self.pieces.values_mut().flatten()
        }

        pub fn put(&mut self, at: u64, bytes: &[u8]) {
            self.pieces.insert(at, bytes.to_vec());
        }

        pub fn words(&mut self, at: u64, words: &[u64]) {
            let bytes = words.iter().flat_map(|w| w.to_le_bytes());
            self.put(at, &bytes.collect::<Vec<u8>>());
        }

        /// Reads across pieces that touch.
        pub fn read(&self, at: u64, into: &mut [u8]) -> bool {
            into.iter_mut().zip(at..).all(|(to, at)| {
                let piece = self.pieces.range(..=at).next_back();
                let byte = piece.and_then(|(from, bytes)| bytes.get((at - from) as usize));
                byte.map(|b| *to = *b).is_some()
            })
        }
    }

    #[test]
    fn texts_end_where_they_end() {
        let mut made = Made::default();
        made.put(0x1000, b"short\0");
        made.put(0x2000, &[b'x'; 2 * MOST_NAME]);
        made.put(0x3000, b"no end");
        made.put(0x4000, b"\xff\xfe\0");
        let read = |at: u64, into: &mut [u8]| made.read(at, into);
        let memory = Memory::new(&read);
        assert_eq!(memory.text(0x1000).as_deref(), Some("short"));
        for at in [0x2000, 0x3000, 0x4000, 0x5000, u64::MAX] {
            assert_eq!(memory.text(at), None, "{at:#x}");
        }
    }

    #[test]
    fn reads_are_counted() {
        let read = |_: u64, _: &mut [u8]| true;
        let memory = Memory::new(&read);
        assert_eq!(memory.word(8), Some(0));
        memory.left.set(2 * A_READ - 1);
        assert_eq!(memory.byte(8), Some(0));
        assert_eq!(memory.byte(8), None);
    }
}
