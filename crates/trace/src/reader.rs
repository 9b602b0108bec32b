//! Reads the event stream, which may be torn, damaged or hostile.
//!
//! Opening walks the frame headers; a frame's events are checked, hash first, when they are asked for. What is handed
//! out is always a prefix of what was written, and where it ends short of everything, [`Reader::tail`] or the error says where and why.

use crate::beginning;
use crate::codec::Unpacker;
use crate::entries;
use crate::error::Context;
use crate::stream::{
    u32_at, FrameHeader, HeaderError, SeekTable, FRAME_HEADER_LEN, HEADER_MAGIC, MAX_FRAMES,
    SEEK_TABLE_MAGIC, SKIPPABLE_LEN, STREAM_VERSION,
};
use crate::{Result, StreamStats, TraceError, EVENTS_FILE};
use reprise_abi::event::{Event, EventHeader, ParseError};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// How a stream ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tail {
    /// With its seek table: the recording ended in order.
    Complete,
    /// In the middle: the recording was killed, or the file cut off. The events before are good.
    Torn {
        /// Where the good part ends, in bytes.
        at_byte: u64,
        /// Events before that.
        events_good: u64,
    },
    /// In bytes that make no sense, with more behind them.
    Damaged {
        /// Number of the first frame that is bad.
        frame: u64,
        /// Where it begins.
        at_byte: u64,
        /// What is wrong there.
        why: String,
    },
}

impl Tail {
    /// Why the stream has no end, in words; `None` when it has one.
    pub fn fault(&self) -> Option<String> {
        match self {
            Tail::Complete => None,
            Tail::Torn { at_byte, .. } => Some(format!(
                "its last whole event ends at byte {at_byte} of the stream"
            )),
            Tail::Damaged {
                frame,
                at_byte,
                why,
            } => Some(format!("frame {frame}, at byte {at_byte}: {why}")),
        }
    }
}

/// An event of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventRef<'a> {
    /// Its number; the first is 0.
    pub number: u64,
    /// All its bytes; already checked, so that [`Event::parse`] does not fail on them.
    pub bytes: &'a [u8],
}

impl<'a> EventRef<'a> {
    /// The event in these bytes.
    ///
    /// # Errors
    /// Never for an event that came from a [`Reader`].
    pub fn parse(&self) -> Result<Event<'a>> {
        Event::parse(self.bytes).map_err(|e| match e {
            ParseError::Short(_) => TraceError::BadEvent("cut off"),
            ParseError::Bad(why) => TraceError::BadEvent(why),
        })
    }
}

/// Which events [`Reader::read_raw`] handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawFrame {
    /// Number of the first.
    pub first_event: u64,
    /// How many.
    pub events: u64,
}

#[derive(Clone, Copy)]
struct Frame {
    header: FrameHeader,
    /// Where its zstd frame begins.
    at: u64,
}

/// Reads the event stream of one trace.
pub struct Reader {
    file: File,
    path: PathBuf,
    file_len: u64,
    /// The first event that is there, and where its frame begins.
    first: (u64, u64),
    frames: Vec<Frame>,
    tail: Tail,
    unpacker: Unpacker,
    packed: Vec<u8>,
    /// A frame in columns.
    columns: Vec<u8>,
    /// Raw events of the frame `loaded`.
    raw: Vec<u8>,
    /// Index of the frame in `raw`.
    loaded: Option<usize>,
    /// Number of the event that comes next.
    next: u64,
    /// Where it begins in `raw`, when its frame is loaded.
    next_at: usize,
    /// Index of its frame.
    next_frame: usize,
}

impl Reader {
    /// Opens the stream of the trace in `dir`.
    ///
    /// # Errors
    /// When there is none, it can't be read, or it is of another version. Damage is not an error here.
    pub fn open(dir: &Path) -> Result<Reader> {
        let path = dir.join(EVENTS_FILE);
        let file = match crate::opened::open(dir, EVENTS_FILE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(TraceError::NotATrace {
                    path: dir.into(),
                    why: format!("it has no {EVENTS_FILE}"),
                })
            }
            other => other.context("open", &path)?,
        };
        let first = match beginning::open(dir)? {
            Some((_, moment)) => (moment.event, moment.at_byte),
            None => (0, 0),
        };
        Reader::from_file_at(file, path, first)
    }

    /// Reads a stream from an open file; `path` is for messages.
    pub fn from_file(file: File, path: PathBuf) -> Result<Reader> {
        Reader::from_file_at(file, path, (0, 0))
    }

    /// As [`Reader::from_file`]; the first event that is still there is this one, and its frame begins at this byte.
    fn from_file_at(file: File, path: PathBuf, first: (u64, u64)) -> Result<Reader> {
        let file_len = file.metadata().context("read", &path)?.len();
        let mut reader = Reader {
            unpacker: Unpacker::new().context("decompress", &path)?,
            file,
            path,
            file_len,
            first,
            frames: Vec::new(),
            tail: Tail::Complete,
            packed: Vec::new(),
            columns: Vec::new(),
            raw: Vec::new(),
            loaded: None,
            next: first.0,
            next_at: 0,
            next_frame: 0,
        };
        reader.tail = reader.walk()?;
        if matches!(reader.tail, Tail::Torn { .. }) {
            reader.drop_torn_frame()?;
        }
        Ok(reader)
    }

    /// Number of events that there were, as far as the frame headers are good: those before [`Reader::first`] are counted, too.
    pub fn len(&self) -> u64 {
        self.frames.last().map_or(self.first.0, |f| {
            f.header.first_event + u64::from(f.header.events)
        })
    }

    /// Number of the first event that is there: not 0 when only the last stretch was kept.
    pub fn first(&self) -> u64 {
        self.first.0
    }

    /// Where frames begin: the number of the first event, and the byte.
    pub fn frames(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let begins = |f: &Frame| (f.header.first_event, f.at - FRAME_HEADER_LEN as u64);
        self.frames.iter().map(begins)
    }

    /// Where the last whole frame ends in the stream.
    pub fn end(&self) -> u64 {
        self.frames
            .last()
            .map_or(self.first.1, |f| f.at + u64::from(f.header.compressed_len))
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How the stream ends.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Number of the event that [`Reader::next`] would return.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Counts from the frame headers alone, without decompressing anything; `by_kind` stays 0.
    pub fn stats(&self) -> StreamStats {
        StreamStats {
            events: self.len(),
            bytes_raw: self
                .frames
                .iter()
                .map(|f| u64::from(f.header.raw_len))
                .sum(),
            bytes_compressed: self.file_len,
            ..StreamStats::default()
        }
    }

    /// The next event, or None at the end.
    ///
    /// # Errors
    /// [`TraceError::Damaged`] where the stream stops being good; again at each further call.
    // Not an Iterator: what it returns borrows from the reader.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<EventRef<'_>>> {
        if !self.load_next()? {
            return Ok(None);
        }
        let (number, from) = (self.next, self.next_at);
        let len = event_len(&self.raw, from)
            .ok_or_else(|| self.damaged_frame(self.next_frame, "event length"))?;
        self.next += 1;
        self.next_at += len;
        if self.next_at == self.raw.len() {
            self.next_frame += 1;
            self.next_at = 0;
        }
        Ok(Some(EventRef {
            number,
            bytes: &self.raw[from..from + len],
        }))
    }

    /// Replaces the content of `buf` by all events from the present place to the end of its frame, and goes behind them; None at the end.
    ///
    /// # Errors
    /// As [`Reader::next`]; the content of `buf` is then of no meaning.
    pub fn read_raw(&mut self, buf: &mut Vec<u8>) -> Result<Option<RawFrame>> {
        buf.clear();
        if self.next_at == 0 && self.loaded != Some(self.next_frame) {
            // Whole frame, not there yet: decompress it where it is wanted.
            std::mem::swap(buf, &mut self.raw);
            self.loaded = None;
            let there = self.load_next();
            std::mem::swap(buf, &mut self.raw);
            self.loaded = None;
            if !there? {
                buf.clear();
                return Ok(None);
            }
        } else {
            if !self.load_next()? {
                return Ok(None);
            }
            buf.extend_from_slice(&self.raw[self.next_at..]);
        }
        let header = &self.frames[self.next_frame].header;
        let end = header.first_event + u64::from(header.events);
        let frame = RawFrame {
            first_event: self.next,
            events: end - self.next,
        };
        self.next = end;
        self.next_frame += 1;
        self.next_at = 0;
        Ok(Some(frame))
    }

    /// Goes to event `number`, which [`Reader::next`] then returns; the number of events goes to the end.
    ///
    /// # Errors
    /// [`TraceError::NoSuchEvent`] beyond the end; [`TraceError::Damaged`] when the event's frame is bad.
    pub fn seek(&mut self, number: u64) -> Result<()> {
        if number > self.len() || number < self.first() {
            return Err(TraceError::NoSuchEvent {
                path: self.path.clone(),
                event: number,
                len: self.len(),
            });
        }
        let frame = self
            .frames
            .partition_point(|f| f.header.first_event <= number)
            .saturating_sub(1);
        let past_last = number == self.len();
        self.next_frame = if past_last { self.frames.len() } else { frame };
        self.next_at = 0;
        self.next = number;
        if past_last {
            return Ok(());
        }
        let skip = number - self.frames[frame].header.first_event;
        if skip == 0 {
            return Ok(());
        }
        self.load(frame)?;
        for _ in 0..skip {
            let len = event_len(&self.raw, self.next_at)
                .ok_or_else(|| self.damaged_frame(frame, "event length"))?;
            self.next_at += len;
        }
        Ok(())
    }

    /// Reads the whole stream through; returns its counts, by kind too.
    ///
    /// # Errors
    /// [`TraceError::Damaged`] at the first bad place. A torn tail is not an error.
    pub fn check(&mut self) -> Result<StreamStats> {
        let mut stats = self.stats();
        self.seek(self.first())?;
        while let Some(event) = self.next()? {
            stats.by_kind[event.parse()?.kind as usize] += 1;
        }
        Ok(stats)
    }

    /// Loads the frame of the next event; false at the end of the stream.
    fn load_next(&mut self) -> Result<bool> {
        if self.next_frame < self.frames.len() {
            return self.load(self.next_frame).map(|()| true);
        }
        match &self.tail {
            Tail::Damaged { at_byte, why, .. } => Err(self.damaged(self.len(), *at_byte, why)),
            _ => Ok(false),
        }
    }

    fn load(&mut self, index: usize) -> Result<()> {
        if self.loaded == Some(index) {
            return Ok(());
        }
        self.loaded = None;
        self.read_packed(index)?;
        let header = self.frames[index].header;
        if xxh3_64(&self.packed) != header.hash {
            return Err(self.damaged_frame(index, "frame with a wrong hash"));
        }
        let in_columns = header.columns_len != 0;
        let content = match in_columns {
            true => &mut self.columns,
            false => &mut self.raw,
        };
        let len = header.content_len() as usize;
        if let Err(e) = self.unpacker.unpack(&self.packed, len, content) {
            return Err(
                self.damaged_frame(index, &format!("frame that can't be decompressed: {e}"))
            );
        }
        if in_columns {
            self.raw.clear();
            if let Err(why) = entries::unpack(&self.columns, header.raw_len as usize, &mut self.raw)
            {
                return Err(self.damaged_frame(index, why));
            }
        }
        if let Err(why) = check_events(&self.raw, header.events) {
            return Err(self.damaged_frame(index, why));
        }
        self.loaded = Some(index);
        Ok(())
    }

    /// Reads the zstd frame into `packed`. Its length was checked against the file's when the headers were walked.
    fn read_packed(&mut self, index: usize) -> Result<()> {
        let frame = self.frames[index];
        self.packed.resize(frame.header.compressed_len as usize, 0);
        match self.file.read_exact_at(&mut self.packed, frame.at) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged_frame(index, "the file became shorter"))
            }
            other => other.context("read", &self.path),
        }
    }

    fn damaged_frame(&self, index: usize, why: &str) -> TraceError {
        let frame = &self.frames[index];
        self.damaged(
            frame.header.first_event,
            frame.at - FRAME_HEADER_LEN as u64,
            why,
        )
    }

    fn damaged(&self, event: u64, at_byte: u64, why: &str) -> TraceError {
        TraceError::Damaged {
            path: self.path.clone(),
            event,
            at_byte,
            why: why.into(),
        }
    }

    /// Finds all frames; returns how the stream ends.
    fn walk(&mut self) -> Result<Tail> {
        let mut at = self.first.1;
        loop {
            let Some(rest) = self.file_len.checked_sub(at) else {
                return Ok(self.tail_damage(at, "the stream ends before it begins"));
            };
            let torn = Tail::Torn {
                at_byte: at,
                events_good: self.len(),
            };
            let mut head = [0; FRAME_HEADER_LEN];
            let have = (FRAME_HEADER_LEN as u64).min(rest) as usize;
            self.file
                .read_exact_at(&mut head[..have], at)
                .context("read", &self.path)?;
            if have >= SKIPPABLE_LEN && u32_at(&head, 0) == SEEK_TABLE_MAGIC {
                return self
                    .check_seek_table(at, u64::from(u32_at(&head, 4)) + SKIPPABLE_LEN as u64);
            }
            if have < FRAME_HEADER_LEN {
                return Ok(if could_begin_frame(&head[..have]) {
                    torn
                } else {
                    self.tail_damage(at, "no frame header")
                });
            }
            let header = match FrameHeader::parse(&head) {
                Ok(h) => h,
                Err(HeaderError::Version(found)) if found > STREAM_VERSION => {
                    return Err(TraceError::Newer {
                        path: self.path.clone(),
                        found,
                        ours: STREAM_VERSION,
                        by: None,
                    });
                }
                Err(HeaderError::Version(_)) => {
                    return Ok(self.tail_damage(at, "stream of an unknown version"))
                }
                // After a power cut a file may be longer than what was written of it.
                Err(HeaderError::Bad(_)) if self.only_zeros_from(at)? => return Ok(torn),
                Err(HeaderError::Bad(why)) => return Ok(self.tail_damage(at, why)),
            };
            if header.first_event != self.len() || self.frames.len() >= MAX_FRAMES {
                return Ok(self.tail_damage(at, "frame out of sequence"));
            }
            if u64::from(header.compressed_len) > rest - FRAME_HEADER_LEN as u64 {
                return Ok(torn);
            }
            at += FRAME_HEADER_LEN as u64;
            self.frames.push(Frame { header, at });
            at += u64::from(header.compressed_len);
        }
    }

    fn tail_damage(&self, at_byte: u64, why: &str) -> Tail {
        Tail::Damaged {
            frame: self.frames.len() as u64,
            at_byte,
            why: why.into(),
        }
    }

    fn check_seek_table(&self, at: u64, len: u64) -> Result<Tail> {
        let rest = self.file_len - at;
        if len > rest {
            return Ok(Tail::Torn {
                at_byte: at,
                events_good: self.len(),
            });
        }
        // No larger than the file, and no larger than a table for the frames found.
        let mut table = SeekTable::default();
        for f in &self.frames {
            table.push(&f.header, &[]);
        }
        let least = table.to_bytes().len() as u64;
        let whole = self.first.0 == 0;
        if len < rest || len < least || (whole && len != least) {
            return Ok(self.tail_damage(at, "seek table of a wrong length"));
        }
        let mut bytes = vec![0; len as usize];
        self.file
            .read_exact_at(&mut bytes, at)
            .context("read", &self.path)?;
        match SeekTable::fits(&bytes, self.frames.iter().map(|f| &f.header), whole) {
            Ok(()) => Ok(Tail::Complete),
            Err(why) => Ok(self.tail_damage(at, why)),
        }
    }

    fn only_zeros_from(&self, mut at: u64) -> Result<bool> {
        let mut buf = vec![0; 64 << 10];
        while at < self.file_len {
            let n = self
                .file
                .read_at(&mut buf, at)
                .context("read", &self.path)?;
            if n == 0 || buf[..n].iter().any(|b| *b != 0) {
                return Ok(false);
            }
            at += n as u64;
        }
        Ok(true)
    }

    /// A torn stream may end in a frame whose bytes never all reached the disk: it counts as torn off too.
    fn drop_torn_frame(&mut self) -> Result<()> {
        let Some(last) = self.frames.len().checked_sub(1) else {
            return Ok(());
        };
        self.read_packed(last)?;
        if xxh3_64(&self.packed) == self.frames[last].header.hash {
            return Ok(());
        }
        let at_byte = self.frames[last].at - FRAME_HEADER_LEN as u64;
        self.frames.pop();
        self.tail = Tail::Torn {
            at_byte,
            events_good: self.len(),
        };
        Ok(())
    }
}

/// Whether these bytes, fewer than a header, can be the beginning of one of our frames or of the seek table, or never were written.
fn could_begin_frame(head: &[u8]) -> bool {
    let n = head.len().min(4);
    let begins = |magic: u32| head[..n] == magic.to_le_bytes()[..n];
    begins(HEADER_MAGIC) || begins(SEEK_TABLE_MAGIC) || head.iter().all(|b| *b == 0)
}

/// Length of the event at `at`, whose header was checked when its frame was loaded.
fn event_len(raw: &[u8], at: usize) -> Option<usize> {
    let len = EventHeader::parse(raw.get(at..)?).ok()?.len as usize;
    (len <= raw.len() - at).then_some(len)
}

/// Checks that `raw` is exactly `events` whole events.
fn check_events(raw: &[u8], events: u32) -> std::result::Result<(), &'static str> {
    let mut at = 0;
    for _ in 0..events {
        match Event::parse(&raw[at..]) {
            Ok(event) => at += event.header.len as usize,
            Err(ParseError::Short(_)) => return Err("frame that ends inside an event"),
            Err(ParseError::Bad(why)) => return Err(why),
        }
    }
    if at != raw.len() {
        return Err("frame with bytes after its events");
    }
    Ok(())
}
