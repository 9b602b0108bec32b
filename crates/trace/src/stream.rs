//! The format of the event stream, as bytes.
//!
//! The stream is a sequence of zstd frames in the *seekable* format, which `zstd -d` and seekable readers take as they are.
//! Each frame with events stands behind a skippable frame of ours, the [`FrameHeader`], that says which events
//! follow and guards itself and them by hashes: so a reader finds its way without the seek table, which only a recording
//! that ended in order has, and can say where exactly a damaged stream stops being good.
//!
//! In a frame in which threads' synchronisation was logged the events stand in columns, which compress better (`entries.rs`).
//!
//! ```text
//! ┌ skippable: FrameHeader ┐┌ zstd frame: events ┐ … ┌ skippable: seek table ┐
//! ```

use reprise_abi::event::{Kind, MAX_EVENT};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Raw bytes after which a frame is cut. A frame is larger only when its only event is.
pub const FRAME_RAW: usize = 1 << 20;
/// Most raw bytes of a frame.
pub const MAX_FRAME_RAW: usize = if MAX_EVENT > FRAME_RAW {
    MAX_EVENT
} else {
    FRAME_RAW
};
/// Most compressed bytes of a frame (what zstd may make of the worst input).
pub const MAX_FRAME_COMPRESSED: usize = MAX_FRAME_RAW + MAX_FRAME_RAW / 128 + 1024;
/// Most frames of a stream (that of the seekable format, two for each of ours).
pub const MAX_FRAMES: usize = 0x800_0000 / 2;

/// Version of the stream.
pub const STREAM_VERSION: u32 = crate::PARTS_VERSION;

/// Magic of the skippable frames that hold our headers.
pub const HEADER_MAGIC: u32 = 0x184D_2A5A;
/// Magic of the skippable frame that holds the seek table.
pub const SEEK_TABLE_MAGIC: u32 = 0x184D_2A5E;
/// Last word of a seek table.
pub const SEEK_FOOTER_MAGIC: u32 = 0x8F92_EAB1;
/// First word inside our headers: "RPRS".
pub const OUR_MAGIC: u32 = u32::from_le_bytes(*b"RPRS");

/// Bytes of a skippable frame's own head: magic and length.
pub const SKIPPABLE_LEN: usize = 8;
/// Bytes of a [`FrameHeader`] on disk, with the skippable frame around it.
pub const FRAME_HEADER_LEN: usize = SKIPPABLE_LEN + 48;

/// Low half of XXH64 of nothing: the checksum that the seek table has for skippable frames.
const EMPTY_CHECKSUM: u32 = 0x51D8_E999;
/// Bytes of a seek table entry.
const SEEK_ENTRY_LEN: usize = 12;
/// Bytes of a seek table's end: number of frames, descriptor, magic.
const SEEK_FOOTER_LEN: usize = 9;
/// Seek table descriptor: entries have checksums.
const SEEK_HAS_CHECKSUMS: u8 = 0x80;

/// What stands before each frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameHeader {
    /// Number of the frame's first event; that of the stream is 0.
    pub first_event: u64,
    /// Events in the frame.
    pub events: u32,
    /// Their bytes.
    pub raw_len: u32,
    /// Bytes of the zstd frame.
    pub compressed_len: u32,
    /// Bytes in the zstd frame, when they are events in columns (see the head of `entries.rs`); 0: they are the events.
    pub columns_len: u32,
    /// xxh3 of the zstd frame.
    pub hash: u64,
}

/// Why bytes are no frame header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Another version.
    Version(u32),
    /// Anything else.
    Bad(&'static str),
}

impl FrameHeader {
    /// The header on disk.
    pub fn to_bytes(&self) -> [u8; FRAME_HEADER_LEN] {
        let mut b = [0; FRAME_HEADER_LEN];
        b[0..4].copy_from_slice(&HEADER_MAGIC.to_le_bytes());
        b[4..8].copy_from_slice(&((FRAME_HEADER_LEN - SKIPPABLE_LEN) as u32).to_le_bytes());
        b[8..12].copy_from_slice(&OUR_MAGIC.to_le_bytes());
        b[12..16].copy_from_slice(&STREAM_VERSION.to_le_bytes());
        b[16..24].copy_from_slice(&self.first_event.to_le_bytes());
        b[24..28].copy_from_slice(&self.events.to_le_bytes());
        b[28..32].copy_from_slice(&self.raw_len.to_le_bytes());
        b[32..36].copy_from_slice(&self.compressed_len.to_le_bytes());
        b[36..40].copy_from_slice(&self.columns_len.to_le_bytes());
        b[40..48].copy_from_slice(&self.hash.to_le_bytes());
        let own = xxh3_64(&b[..48]);
        b[48..56].copy_from_slice(&own.to_le_bytes());
        b
    }

    /// Reads a header, checking it by itself.
    pub fn parse(b: &[u8; FRAME_HEADER_LEN]) -> Result<FrameHeader, HeaderError> {
        if u32_at(b, 0) != HEADER_MAGIC || u32_at(b, 8) != OUR_MAGIC {
            return Err(HeaderError::Bad("no frame header"));
        }
        if u64_at(b, 48) != xxh3_64(&b[..48]) {
            return Err(HeaderError::Bad("frame header with a wrong hash"));
        }
        // Checked before anything that another version may have changed.
        if u32_at(b, 12) != STREAM_VERSION {
            return Err(HeaderError::Version(u32_at(b, 12)));
        }
        let h = FrameHeader {
            first_event: u64_at(b, 16),
            events: u32_at(b, 24),
            raw_len: u32_at(b, 28),
            compressed_len: u32_at(b, 32),
            columns_len: u32_at(b, 36),
            hash: u64_at(b, 40),
        };
        if u32_at(b, 4) as usize != FRAME_HEADER_LEN - SKIPPABLE_LEN {
            return Err(HeaderError::Bad("frame header of a wrong length"));
        }
        if h.raw_len as usize > MAX_FRAME_RAW
            || h.compressed_len as usize > MAX_FRAME_COMPRESSED
            || h.columns_len > h.raw_len
        {
            return Err(HeaderError::Bad("frame larger than the limit"));
        }
        if h.events == 0
            || (h.events as usize) > h.raw_len as usize / reprise_abi::event::HEADER_LEN
        {
            return Err(HeaderError::Bad(
                "frame with an impossible number of events",
            ));
        }
        Ok(h)
    }

    /// Bytes in the zstd frame.
    pub fn content_len(&self) -> u32 {
        match self.columns_len {
            0 => self.raw_len,
            n => n,
        }
    }
}

/// Builds the seek table while frames are written.
#[derive(Default, Debug)]
pub struct SeekTable {
    entries: Vec<u8>,
    frames: u32,
}

impl SeekTable {
    /// Adds one of our frames: its header, and the zstd frame, whose last 4 bytes are its content checksum.
    pub fn push(&mut self, header: &FrameHeader, compressed: &[u8]) {
        let checksum = compressed
            .last_chunk::<4>()
            .map_or(0, |c| u32::from_le_bytes(*c));
        self.entry(FRAME_HEADER_LEN as u32, 0, EMPTY_CHECKSUM);
        self.entry(header.compressed_len, header.content_len(), checksum);
    }

    fn entry(&mut self, compressed: u32, raw: u32, checksum: u32) {
        for word in [compressed, raw, checksum] {
            self.entries.extend_from_slice(&word.to_le_bytes());
        }
        self.frames += 1;
    }

    /// Bytes it will have, with `more` of our frames added.
    pub fn len_with(&self, more: usize) -> usize {
        SKIPPABLE_LEN + self.entries.len() + more * 2 * SEEK_ENTRY_LEN + SEEK_FOOTER_LEN
    }

    /// The table on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(self.len_with(0));
        b.extend_from_slice(&SEEK_TABLE_MAGIC.to_le_bytes());
        b.extend_from_slice(&((self.entries.len() + SEEK_FOOTER_LEN) as u32).to_le_bytes());
        b.extend_from_slice(&self.entries);
        b.extend_from_slice(&self.frames.to_le_bytes());
        b.push(SEEK_HAS_CHECKSUMS);
        b.extend_from_slice(&SEEK_FOOTER_MAGIC.to_le_bytes());
        b
    }

    /// Whether `b` is a seek table for the frames whose headers are given; they are the last ones of the stream unless they are `all`.
    pub fn fits<'a>(
        b: &[u8],
        headers: impl ExactSizeIterator<Item = &'a FrameHeader>,
        all: bool,
    ) -> Result<(), &'static str> {
        if b.len() < SKIPPABLE_LEN + SEEK_FOOTER_LEN || u32_at(b, 0) != SEEK_TABLE_MAGIC {
            return Err("no seek table");
        }
        if u32_at(b, 4) as usize != b.len() - SKIPPABLE_LEN
            || u32_at(b, b.len() - 4) != SEEK_FOOTER_MAGIC
        {
            return Err("seek table of a wrong length");
        }
        let entries = &b[SKIPPABLE_LEN..b.len() - SEEK_FOOTER_LEN];
        let before = match all {
            true => 0,
            false => entries
                .len()
                .saturating_sub(headers.len() * 2 * SEEK_ENTRY_LEN),
        };
        if before % (2 * SEEK_ENTRY_LEN) != 0 {
            return Err("seek table of a wrong length");
        }
        let mut rows = entries[before..].chunks(2 * SEEK_ENTRY_LEN);
        for h in headers {
            let row = rows
                .next()
                .filter(|r| r.len() == 2 * SEEK_ENTRY_LEN)
                .ok_or("seek table with missing frames")?;
            let fits = u32_at(row, 0) == FRAME_HEADER_LEN as u32
                && u32_at(row, 4) == 0
                && u32_at(row, 8) == EMPTY_CHECKSUM
                && u32_at(row, 12) == h.compressed_len
                && u32_at(row, 16) == h.content_len();
            if !fits {
                return Err("seek table that contradicts the frames");
            }
        }
        let frames = u32_at(b, b.len() - SEEK_FOOTER_LEN) as usize;
        let descriptor = b[b.len() - 5];
        if rows.next().is_some()
            || frames * SEEK_ENTRY_LEN != entries.len()
            || descriptor != SEEK_HAS_CHECKSUMS
        {
            return Err("seek table with surplus frames");
        }
        Ok(())
    }
}

/// Counts of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamStats {
    /// Events.
    pub events: u64,
    /// Their bytes.
    pub bytes_raw: u64,
    /// Bytes of the file.
    pub bytes_compressed: u64,
    /// Events by kind: index [`Kind`] as a number.
    pub by_kind: [u64; KINDS],
}

/// Room for every [`Kind`] in [`StreamStats::by_kind`].
pub const KINDS: usize = 32;

const _: () = assert!(Kind::ALL.len() < KINDS);

impl StreamStats {
    /// Events by name of their kind; kinds without events are left out.
    pub fn named_kinds(&self) -> BTreeMap<String, u64> {
        let counted = Kind::ALL
            .iter()
            .map(|k| (k.name().to_string(), self.by_kind[*k as usize]));
        counted.filter(|(_, n)| *n > 0).collect()
    }
}

pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}
