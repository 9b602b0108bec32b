//! Compressing and decompressing one block in memory, and asking the file system for room.

use rustix::fs::{fallocate, FallocateFlags};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::io::{self, Read};

/// How much work compressing may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// Keeps up with a program that does nothing but system calls.
    Usual,
    /// Hardly more than copying: only what repeats itself becomes smaller.
    Little,
}

impl Effort {
    /// The level of zstd.
    fn level(self) -> i32 {
        match self {
            Effort::Usual => 1,
            Effort::Little => -5,
        }
    }
}

/// Up to here the raw length that a file claims is allocated at once; above, memory grows with the bytes that really come.
const TRUSTED_RAW: usize = 4 << 20;

/// Largest window of a frame that is read, as a power of two (level 1 uses 19).
const MAX_WINDOW_LOG: u32 = 23;

/// Buffers that grew above this are given back after use.
pub(crate) const KEEP_CAPACITY: usize = 8 << 20;

/// Compresses blocks, each into a zstd frame of its own with a content checksum.
pub(crate) struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    effort: Effort,
}

impl Packer {
    pub(crate) fn new() -> io::Result<Packer> {
        let effort = Effort::Usual;
        let mut compressor = zstd::bulk::Compressor::new(effort.level())?;
        compressor.include_checksum(true)?;
        Ok(Packer { compressor, effort })
    }

    /// From now on this much work is made.
    pub(crate) fn set_effort(&mut self, effort: Effort) -> io::Result<()> {
        if self.effort != effort {
            self.compressor.set_compression_level(effort.level())?;
            self.effort = effort;
        }
        Ok(())
    }

    /// Replaces the content of `out` by the compressed `raw`.
    pub(crate) fn pack(&mut self, raw: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        if out.capacity() > KEEP_CAPACITY {
            *out = Vec::new();
        }
        out.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        self.compressor.compress_to_buffer(raw, out)?;
        Ok(())
    }
}

/// Decompresses blocks of a known length.
pub(crate) struct Unpacker {
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl Unpacker {
    pub(crate) fn new() -> io::Result<Unpacker> {
        Ok(Unpacker {
            decompressor: zstd::bulk::Decompressor::new()?,
        })
    }

    /// Replaces the content of `out` by the decompressed `packed`, which must come to exactly `raw_len` bytes.
    pub(crate) fn unpack(
        &mut self,
        packed: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        out.clear();
        if out.capacity() > KEEP_CAPACITY.max(raw_len) {
            *out = Vec::new();
        }
        if raw_len <= TRUSTED_RAW {
            out.reserve(raw_len);
            self.decompressor.decompress_to_buffer(packed, out)?;
        } else {
            let mut stream = zstd::stream::read::Decoder::with_buffer(packed)?;
            stream.window_log_max(MAX_WINDOW_LOG)?;
            stream.take(raw_len as u64 + 1).read_to_end(out)?;
        }
        if out.len() != raw_len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "length after decompression",
            ));
        }
        Ok(())
    }
}

/// Reserves `len` bytes of disk from `offset` on, without changing the file's length.
pub(crate) fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let how = FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| fallocate(file, how, offset, len))?)
}
