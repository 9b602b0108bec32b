//! Content hashes: xxh3, 128 bits, in the byte order that reads as 32 hex digits.
//!
//! Not cryptographic: it finds damage and names contents; it does not defend against someone who forges a store of their own.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use xxhash_rust::xxh3::Xxh3;

/// Hash of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ContentHash(pub [u8; 16]);

/// Bytes hashed at a time.
pub(crate) const HASH_CHUNK: usize = 256 << 10;

impl ContentHash {
    /// Hash of these bytes.
    pub fn of(bytes: &[u8]) -> ContentHash {
        ContentHash(xxhash_rust::xxh3::xxh3_128(bytes).to_be_bytes())
    }

    /// Hash of a whole file, and its length; the file's position is not used.
    pub fn of_file(file: &File) -> io::Result<(ContentHash, u64)> {
        let mut hasher = Xxh3::new();
        let mut buf = vec![0; HASH_CHUNK];
        let mut at = 0;
        loop {
            match file.read_at(&mut buf, at) {
                Ok(0) => return Ok((ContentHash::finish(&hasher), at)),
                Ok(n) => {
                    hasher.update(&buf[..n]);
                    at += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
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
