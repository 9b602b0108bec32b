//! Writes the event stream.
//!
//! Events are gathered to about 1 MiB, compressed, and written with their header; whatever kills the writer
//! costs only what was gathered. Room on disk is reserved ahead of time, so that a full disk is met
//! before a frame is begun, and the seek table at the end always fits.
//!
//! `ulimit -f` also raises SIGXFSZ; a process that writes traces ignores that signal.

use crate::codec::{self, Effort, Packer};
use crate::entries;
use crate::error::{Context, FullReason};
use crate::stream::{
    FrameHeader, SeekTable, StreamStats, FRAME_HEADER_LEN, FRAME_RAW, KINDS, MAX_FRAMES,
};
use crate::{Result, TraceError, EVENTS_FILE};
use reprise_abi::event::{EventHeader, Kind, HEADER_LEN, MAX_EVENT};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Least and most bytes of disk reserved in one go.
const RESERVE_STEP: (u64, u64) = (256 << 10, 16 << 20);

/// A frame of whose bytes a smaller part than one in so many is entries holds what was read and written.
const FEW: usize = 8;

/// How a stream is written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Most bytes of the stream on disk; None: as many as fit.
    pub max_size: Option<u64>,
    /// Raw bytes after which a frame is cut; at most [`FRAME_RAW`].
    pub frame_raw: usize,
    /// Whether room on disk is reserved ahead of time, where the file system can.
    pub preallocate: bool,
    /// Most bytes that are reserved in one go.
    pub most_reserved: u64,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            max_size: None,
            frame_raw: FRAME_RAW,
            preallocate: true,
            most_reserved: RESERVE_STEP.1,
        }
    }
}

/// Writes the event stream of one trace.
///
/// Invariant: up to `position` the file is whole frames; what lies behind it is of no importance.
pub struct Writer {
    file: File,
    path: PathBuf,
    options: WriterOptions,
    packer: Packer,
    /// A frame in columns.
    columns: Vec<u8>,
    /// Events not yet in a frame.
    gathered: Vec<u8>,
    gathered_events: u32,
    gathered_kinds: [u64; KINDS],
    /// Bytes of entries in them.
    gathered_entries: usize,
    compressed: Vec<u8>,
    position: u64,
    allocated: u64,
    seek_table: SeekTable,
    stats: StreamStats,
    full: Option<FullReason>,
    hurries: bool,
}

impl Writer {
    /// Begins the stream of the trace in `dir`, and reserves room for its summary.
    ///
    /// # Errors
    /// When the stream exists already, or can't be created.
    pub fn create(dir: &Path) -> Result<Writer> {
        Writer::with_options(dir, WriterOptions::default())
    }

    /// [`Writer::create`] with options.
    pub fn with_options(dir: &Path, options: WriterOptions) -> Result<Writer> {
        assert!(options.frame_raw >= HEADER_LEN && options.frame_raw <= FRAME_RAW);
        let path = dir.join(EVENTS_FILE);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let file = file.context("create", &path)?;
        let packer = Packer::new().context("compress for", &path)?;
        let mut writer = Writer {
            gathered: Vec::with_capacity(options.frame_raw),
            file,
            path,
            options,
            packer,
            columns: Vec::new(),
            gathered_events: 0,
            gathered_kinds: [0; KINDS],
            gathered_entries: 0,
            compressed: Vec::new(),
            position: 0,
            allocated: 0,
            seek_table: SeekTable::default(),
            stats: StreamStats::default(),
            full: None,
            hurries: false,
        };
        if writer.options.preallocate {
            crate::Summary::reserve(dir)?;
            writer.make_room(0)?;
        }
        Ok(writer)
    }

    /// Appends one whole event.
    ///
    /// `event` must not change while this runs: copy it out of shared memory first, then check it, then push it.
    ///
    /// # Errors
    /// [`TraceError::TraceFull`] when there is no room; then the events of the last frame that did not fit are lost,
    /// all before it are safe, every further push fails likewise, and [`Writer::finish`] still works.
    pub fn push(&mut self, event: &[u8]) -> Result<()> {
        self.check_room()?;
        let header = match EventHeader::parse(event) {
            Ok(h) if h.len as usize == event.len() => h,
            _ => return Err(TraceError::BadEvent("header and length don't agree")),
        };
        assert!(event.len() <= MAX_EVENT);
        if self.gathered.len() + event.len() > self.options.frame_raw {
            self.flush_frame()?;
        }
        self.gathered_events += 1;
        self.gathered_kinds[header.kind as usize % KINDS] += 1;
        if header.kind == Kind::Sync as u8 {
            self.gathered_entries += event.len();
        }
        if event.len() >= self.options.frame_raw {
            assert!(self.gathered.is_empty());
            return self.write_frame(event);
        }
        self.gathered.extend_from_slice(event);
        Ok(())
    }

    /// Whether the program waits for what is written, or for the processor that compresses. Then what it read and wrote is hardly compressed. Frames
    /// with many entries, which shrink to a tenth and less, always are.
    pub fn hurry(&mut self, hurries: bool) {
        self.hurries = hurries;
    }

    /// Cuts the frame here, so that the events pushed so far survive the death of this process. Without events it does nothing.
    ///
    /// # Errors
    /// As [`Writer::push`].
    pub fn flush_frame(&mut self) -> Result<()> {
        self.check_room()?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        let mut raw = std::mem::take(&mut self.gathered);
        let result = self.write_frame(&raw);
        raw.clear();
        self.gathered = raw;
        result
    }

    /// Ends the stream with its seek table; returns what is in it.
    ///
    /// # Errors
    /// Of the file system. A full trace is no error here: it ends with its last whole frame.
    pub fn finish(mut self) -> Result<StreamStats> {
        match self.flush_frame() {
            Err(e) if !e.is_full() => return Err(e),
            _ => {}
        }
        let table = self.seek_table.to_bytes();
        let end = self.position + table.len() as u64;
        match self.file.write_all_at(&table, self.position) {
            Ok(()) => {
                self.stats.bytes_compressed = end;
                self.file.set_len(end).context("truncate", &self.path)?;
            }
            // Without its seek table the stream counts as torn, with all its events.
            Err(e) if FullReason::of(&e).is_some() => self
                .file
                .set_len(self.position)
                .context("truncate", &self.path)?,
            Err(e) => return Err(TraceError::io("write", &self.path, e)),
        }
        Ok(self.stats)
    }

    /// What is safely in the file, gathered events not counted.
    pub fn stats(&self) -> &StreamStats {
        &self.stats
    }

    /// Number that the next pushed event will have.
    pub fn next_event(&self) -> u64 {
        self.stats.events + u64::from(self.gathered_events)
    }

    /// Bytes gathered and not yet in a frame; when they are older than the caller likes, it is time for [`Writer::flush_frame`].
    pub fn gathered(&self) -> usize {
        self.gathered.len()
    }

    /// So many bytes of the trace were written elsewhere (or given back there): they count as the stream's own where its size is limited.
    pub fn count_elsewhere(&mut self, bytes: i64) {
        if let Some(max) = &mut self.options.max_size {
            *max = max.saturating_add_signed(-bytes);
            if self.position >= *max {
                self.full = Some(FullReason::MaxSize);
            }
        }
    }

    /// Why nothing more can be written, once that is so.
    pub fn full(&self) -> Option<FullReason> {
        self.full
    }

    fn check_room(&self) -> Result<()> {
        match self.full {
            Some(reason) => Err(TraceError::TraceFull {
                path: self.path.clone(),
                reason,
            }),
            None => Ok(()),
        }
    }

    /// Writes `raw`, which is `gathered_events` events, as a frame. Whatever the result, they are gathered no more.
    fn write_frame(&mut self, raw: &[u8]) -> Result<()> {
        let mut compressed = std::mem::take(&mut self.compressed);
        let entries_len = std::mem::take(&mut self.gathered_entries);
        let in_columns = entries_len != 0
            && entries::pack(raw, &mut self.columns)
            && self.columns.len() < raw.len();
        let content = if in_columns { &self.columns } else { raw };
        let effort = match self.hurries && entries_len < raw.len() / FEW {
            true => Effort::Little,
            false => Effort::Usual,
        };
        let result = self
            .packer
            .set_effort(effort)
            .and_then(|()| self.packer.pack(content, &mut compressed))
            .context("compress for", &self.path);
        let columns_len = if in_columns { self.columns.len() } else { 0 };
        let events = std::mem::take(&mut self.gathered_events);
        let kinds = std::mem::replace(&mut self.gathered_kinds, [0; KINDS]);
        let result = result.and_then(|()| {
            let header = FrameHeader {
                first_event: self.stats.events,
                events,
                raw_len: raw.len() as u32,
                compressed_len: compressed.len() as u32,
                columns_len: columns_len as u32,
                hash: xxh3_64(&compressed),
            };
            self.append(&header, &compressed)
        });
        self.compressed = compressed;
        result?;
        self.stats.events += u64::from(events);
        self.stats.bytes_raw += raw.len() as u64;
        self.stats.bytes_compressed = self.position;
        for (sum, n) in self.stats.by_kind.iter_mut().zip(kinds) {
            *sum += n;
        }
        Ok(())
    }

    fn append(&mut self, header: &FrameHeader, compressed: &[u8]) -> Result<()> {
        let len = (FRAME_HEADER_LEN + compressed.len()) as u64;
        self.make_room(len)?;
        let written = self
            .file
            .write_all_at(&header.to_bytes(), self.position)
            .and_then(|()| {
                self.file
                    .write_all_at(compressed, self.position + FRAME_HEADER_LEN as u64)
            });
        if let Err(e) = written {
            let lost = self.file.set_len(self.position);
            self.allocated = self.position;
            self.fail_if_full(&e)?;
            lost.context("truncate", &self.path)?;
            return Err(TraceError::io("write", &self.path, e));
        }
        self.position += len;
        self.seek_table.push(header, compressed);
        Ok(())
    }

    /// Makes sure of room for `len` bytes at `position` and the seek table behind them.
    fn make_room(&mut self, len: u64) -> Result<()> {
        let need = self.position + len + self.seek_table.len_with(1) as u64;
        if self.options.max_size.is_some_and(|max| need > max)
            || self.seek_table.len_with(0) / 24 >= MAX_FRAMES
        {
            self.full = Some(FullReason::MaxSize);
            return self.check_room();
        }
        if !self.options.preallocate || need <= self.allocated {
            return Ok(());
        }
        // One more entry of the table for each further frame is part of the step.
        let most = self.options.most_reserved.max(RESERVE_STEP.0);
        let step = (need / 4).clamp(RESERVE_STEP.0, most);
        for end in [need + step, need] {
            match codec::allocate(&self.file, self.allocated, end - self.allocated) {
                Ok(()) => {
                    self.allocated = end;
                    return Ok(());
                }
                Err(e) if FullReason::of(&e).is_some() && end > need => {}
                Err(e) => return self.room_refused(&e),
            }
        }
        Ok(())
    }

    fn room_refused(&mut self, error: &io::Error) -> Result<()> {
        self.fail_if_full(error)?;
        // This file system can't reserve; a full disk will be met when writing.
        self.options.preallocate = false;
        Ok(())
    }

    fn fail_if_full(&mut self, error: &io::Error) -> Result<()> {
        self.full = FullReason::of(error).or(self.full);
        self.check_room()
    }
}
