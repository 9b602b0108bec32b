//! Content hashes: xxh3, 128 bits, in the byte order that reads as 32 hex digits.
//!
//! Of contents up to [`SPARSE_FROM`] bytes it is the hash of all bytes. Longer ones may be mostly holes, which nobody wants to read: of them it
//! is the hash of the blocks that are not all zeros, each with its number, and of the length. So it follows from the content alone, not
//! from where a file system has holes. (Traces from before that have hashes of all bytes: [`Hasher`] tells both.)
//!
//! Not cryptographic: it finds damage and names contents; it does not defend against someone who forges a store of their own.

use crate::extents::Extents;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use xxhash_rust::xxh3::Xxh3;

/// Hash of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ContentHash(pub [u8; 16]);

/// Bytes hashed at a time: a block.
pub(crate) const HASH_CHUNK: usize = 256 << 10;
/// Contents that are longer than this are hashed without the blocks that are all zeros.
pub const SPARSE_FROM: u64 = 64 << 20;

/// Both hashes of a content whose blocks come one after the other.
pub(crate) struct Hasher {
    /// Of all bytes, as long as that is wanted.
    whole: Option<Xxh3>,
    /// Of the blocks that are not all zeros, as long as that is wanted.
    blocks: Option<Xxh3>,
}

impl Hasher {
    /// For a content of `len` bytes, as it seems.
    pub fn for_length(len: u64) -> Hasher {
        let sparse = len > SPARSE_FROM;
        Hasher {
            whole: (!sparse).then(Xxh3::new),
            blocks: sparse.then(Xxh3::new),
        }
    }

    /// For a content that may have the hash of an older trace.
    pub fn of_any_age() -> Hasher {
        Hasher {
            whole: Some(Xxh3::new()),
            blocks: Some(Xxh3::new()),
        }
    }

    /// Are blocks that are all zeros of no account?
    pub fn skips_zeros(&self) -> bool {
        self.whole.is_none()
    }

    /// The block that begins at `at`, shorter than others only at the end.
    pub fn block(&mut self, at: u64, bytes: &[u8]) {
        if let Some(h) = &mut self.whole {
            h.update(bytes);
        }
        if let Some(h) = self.blocks.as_mut().filter(|_| !is_zero(bytes)) {
            h.update(&at.to_le_bytes());
            h.update(bytes);
        }
    }

    /// The hash of the content, which has `len` bytes; None when it was expected to have another length, and the other hash is wanted.
    pub fn finish(mut self, len: u64) -> Option<ContentHash> {
        if len <= SPARSE_FROM {
            return self.whole.as_ref().map(ContentHash::finish);
        }
        let blocks = self.blocks.as_mut()?;
        blocks.update(&len.to_le_bytes());
        Some(ContentHash::finish(blocks))
    }

    /// Is this the hash of the content, or was it in older traces?
    pub fn tells(self, len: u64, hash: ContentHash) -> bool {
        self.whole.as_ref().map(ContentHash::finish) == Some(hash) || self.finish(len) == Some(hash)
    }
}

/// Are these all zeros?
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

/// Calls `block` for each block of a file in turn, holes left out where `skip` says so; returns the file's length.
pub(crate) fn each_block(
    file: &File,
    skip: bool,
    mut block: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut buf = vec![0; HASH_CHUNK];
    let read = |at: u64, buf: &mut [u8]| -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match file.read_at(&mut buf[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    };
    let unit = HASH_CHUNK as u64;
    let mut at = 0;
    if !skip {
        loop {
            let n = read(at, &mut buf)?;
            if n > 0 {
                block(at, &buf[..n])?;
            }
            at += n as u64;
            if n < buf.len() {
                return Ok(at);
            }
        }
    }
    let mut extents = Extents::of(file);
    while let Some((start, end)) = extents.next()? {
        at = at.max(start / unit * unit);
        while at < end {
            let n = read(at, &mut buf)?;
            if n > 0 {
                block(at, &buf[..n])?;
            }
            at += unit;
            if n < buf.len() {
                // The file's end, as of now.
                return Ok(at - unit + n as u64);
            }
        }
    }
    Ok(at.max(file.metadata()?.len()))
}

impl ContentHash {
    /// Hash of these bytes.
    pub fn of(bytes: &[u8]) -> ContentHash {
        ContentHash(xxhash_rust::xxh3::xxh3_128(bytes).to_be_bytes())
    }

    /// Hash of a whole file, and its length; the file's position is not used.
    pub fn of_file(file: &File) -> io::Result<(ContentHash, u64)> {
        loop {
            let mut hasher = Hasher::for_length(file.metadata()?.len());
            let len = each_block(file, hasher.skips_zeros(), |at, bytes| {
                hasher.block(at, bytes);
                Ok(())
            })?;
            // Else it has just grown or shrunk.
            if let Some(hash) = hasher.finish(len) {
                return Ok((hash, len));
            }
        }
    }

    pub(crate) fn finish(hasher: &Xxh3) -> ContentHash {
        ContentHash(hasher.digest128().to_be_bytes())
    }

    /// 32 hex digits.
    pub fn to_hex(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    /// The hash with these 32 lower-case hex digits.
    pub fn from_hex(hex: &str) -> Option<ContentHash> {
        let good = hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !good {
            return None;
        }
        u128::from_str_radix(hex, 16)
            .ok()
            .map(|n| ContentHash(n.to_be_bytes()))
    }

    /// The hash as two words that have the same bytes in memory (an answer of the agent to the runtime).
    pub fn to_words(self) -> [u64; 2] {
        let n = u128::from_le_bytes(self.0);
        [n as u64, (n >> 64) as u64]
    }

    /// The reverse of [`ContentHash::to_words`].
    pub fn from_words(words: [u64; 2]) -> ContentHash {
        ContentHash((u128::from(words[0]) | u128::from(words[1]) << 64).to_le_bytes())
    }
}

impl std::fmt::Display for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl std::fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ContentHash, D::Error> {
        let hex = String::deserialize(d)?;
        ContentHash::from_hex(&hex)
            .ok_or_else(|| serde::de::Error::custom("a content hash has 32 hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_and_words_go_both_ways() {
        let h = ContentHash::of(b"reprise");
        assert_eq!(ContentHash::from_hex(&h.to_hex()), Some(h));
        assert_eq!(ContentHash::from_words(h.to_words()), h);
        let words = h.to_words();
        assert_eq!(
            [words[0].to_le_bytes(), words[1].to_le_bytes()].concat(),
            h.0
        );
        for bad in [
            "",
            "0",
            &"g".repeat(32),
            &"A".repeat(32),
            &"+".repeat(32),
            "../../../../../../../etc/passwdxx",
        ] {
            assert_eq!(ContentHash::from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn holes_are_no_part_of_a_long_content() {
        let len = SPARSE_FROM + 5 * HASH_CHUNK as u64 + 17;
        let hash = |place: u64, zeros: bool| {
            let f = tempfile::tempfile().unwrap();
            f.set_len(len).unwrap();
            f.write_all_at(b"something", place).unwrap();
            if zeros {
                // Data for the file system, and no content.
                f.write_all_at(&vec![0; 3 << 20], 1 << 20).unwrap();
            }
            let (hash, found) = ContentHash::of_file(&f).unwrap();
            assert_eq!(found, len);
            let mut streamed = Hasher::of_any_age();
            each_block(&f, false, |at, bytes| {
                streamed.block(at, bytes);
                Ok(())
            })
            .unwrap();
            assert!(streamed.tells(len, hash));
            hash
        };
        let place = SPARSE_FROM - 4;
        assert_eq!(hash(place, false), hash(place, true));
        assert_ne!(hash(place, false), hash(place + 1, false));
        assert_ne!(hash(place, false), hash(0, false));
        // Many times as long, and as fast.
        let f = tempfile::tempfile().unwrap();
        f.set_len(1 << 40).unwrap();
        assert_eq!(ContentHash::of_file(&f).unwrap().1, 1 << 40);
    }

    #[test]
    fn a_file_hashes_like_its_bytes() {
        let bytes: Vec<u8> = (0..HASH_CHUNK * 2 + 17).map(|i| (i * 7) as u8).collect();
        let f = tempfile::tempfile().unwrap();
        f.write_all_at(&bytes, 0).unwrap();
        assert_eq!(
            ContentHash::of_file(&f).unwrap(),
            (ContentHash::of(&bytes), bytes.len() as u64)
        );
    }
}
