//! The beginning of a trace of which only the last stretch was kept: the process of a replay as it was just before the first event that the
//! trace still has. A replay starts from there.
//!
//! The file `beginning` is an [`Image`] of all memory of that process but the ring: of the program, of the runtime, and of the session; with
//! it comes what else there is to know, the [`Moment`]. It is replaced as a whole, by another one further on; then the events before that one
//! can go ([`forget_before`]).
//!
//! Under `order` threads are not all as far as the trace at one event: the trace still has all that one of them has not used up, and the [`Moment`] says
//! where in each thread's ring its first event lies.

use crate::error::Context;
use crate::{
    Image, ImageReader, ImageWriter, Known, Result, TraceError, BEGINNING_FILE, EVENTS_FILE,
};
use reprise_abi::layout::{MAX_SLOTS, PAGE, SHADOW_BASE};
use reprise_abi::order::ORDER_BASE;
use reprise_abi::session::MAX_SHARED_FILES;
use rustix::fs::{fallocate, FallocateFlags};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// In the image: where the copies of files are that were mapped shared. Nothing is mapped there in a replay that looks for no races.
pub const COPIES: u64 = SHADOW_BASE;
/// Behind the last of them.
pub const COPIES_END: u64 = ORDER_BASE;
/// What a region is named that shows such a copy, before its number.
pub const COPY: &str = "copy:";
/// Words of a thread's general registers, as ptrace(2) has them.
pub const REGISTERS: usize = 27;
/// Most bytes of its vector registers.
pub const MAX_VECTORS: usize = 16 << 10;

/// What is to be known of the process beside its memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moment {
    /// Events that had happened; the next one is the first of a frame.
    pub event: u64,
    /// Where that frame begins in the stream.
    pub at_byte: u64,
    /// The descriptor by which the process opens files of the trace.
    pub files: i32,
    /// Writable copies of files that were mapped shared, in the order in which they follow one another in memory from [`COPIES`] on.
    #[serde(default)]
    pub copies: Vec<Copy>,
    /// What the events before it told of the program's files and code.
    #[serde(default)]
    pub known: Known,
    /// Its threads, all of them in a call of the runtime, which they make again.
    pub threads: Vec<StoppedThread>,
    /// Under `order`: where the next event lies in the slots' rings.
    #[serde(default)]
    pub rings: Vec<RingStart>,
    /// Under `order`: all stamps below this one have had their turn.
    #[serde(default)]
    pub stamp: u64,
}

/// Where in a slot's ring that begins which comes from an event on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RingStart {
    /// The slot.
    pub slot: u16,
    /// Bytes of the slot before it.
    pub at: u64,
    /// Events and entries of the slot before it.
    pub items: u64,
}

/// A copy of a file that was mapped shared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// The file's number.
    pub number: u64,
    /// Its bytes.
    pub len: u64,
    /// The descriptor by which the process has it open; -1 when it hasn't.
    pub descriptor: i32,
}

impl Copy {
    /// Bytes that it takes, in whole pages.
    pub fn room(&self) -> u64 {
        self.len.div_ceil(PAGE).max(1).saturating_mul(PAGE)
    }
}

/// A thread of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoppedThread {
    /// The kernel's id that it had.
    pub tid: i32,
    /// Its general registers.
    pub registers: Vec<u64>,
    /// Its vector registers, as XSAVE stores them.
    pub vectors: Vec<u8>,
    /// The signals that are blocked.
    pub mask: u64,
    /// Where the kernel clears its id when it ends.
    pub clears: u64,
    /// Its signal stack: address, flags, size.
    pub signal_stack: [u64; 3],
}

/// Begins the image of a beginning of the trace in `dir`: all regions, then [`finish`].
///
/// # Errors
/// When the file can't be created.
pub fn create(dir: &Path) -> Result<ImageWriter> {
    ImageWriter::create_named(dir, BEGINNING_FILE)
}

/// From now on the trace begins there.
///
/// # Errors
/// When it can't be written.
pub fn finish(mut image: ImageWriter, moment: Moment) -> Result<Image> {
    image.moment(moment);
    image.finish()
}

/// The beginning of the trace in `dir`; `None` when it has all events.
///
/// # Errors
/// When it is damaged.
pub fn open(dir: &Path) -> Result<Option<(ImageReader, Moment)>> {
    let path = dir.join(BEGINNING_FILE);
    let reader = match ImageReader::open_named(dir, BEGINNING_FILE) {
        Err(TraceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None)
        }
        other => other?,
    };
    let moment = checked(&reader, &path)?;
    Ok(Some((reader, moment)))
}

/// The moment of an image that has one, at `path`.
pub(crate) fn checked(reader: &ImageReader, path: &Path) -> Result<Moment> {
    let corrupt = |why: &str| TraceError::corrupt(path, why);
    let moment = reader
        .moment()
        .ok_or_else(|| corrupt("it is of no moment"))?;
    let good = |t: &StoppedThread| {
        t.registers.len() == REGISTERS && t.vectors.len() <= MAX_VECTORS && t.tid > 0
    };
    if !(1..=MAX_SLOTS).contains(&moment.threads.len()) || !moment.threads.iter().all(good) {
        return Err(corrupt("its threads make no sense"));
    }
    // The first three are the driver's streams in each replay.
    let is_own = |descriptor: i32| descriptor > libc::STDERR_FILENO;
    let fits = |c: &Copy| {
        (1..MAX_SHARED_FILES as u64).contains(&c.number)
            && i64::try_from(c.len).is_ok()
            && (c.descriptor == -1 || is_own(c.descriptor))
    };
    let several = moment.copies.len() > MAX_SHARED_FILES;
    if several || !moment.copies.iter().all(fits) || !is_own(moment.files) {
        return Err(corrupt("its descriptors make no sense"));
    }
    let is_slot = |r: &RingStart| usize::from(r.slot) < MAX_SLOTS;
    if moment.rings.len() > MAX_SLOTS || !moment.rings.iter().all(is_slot) {
        return Err(corrupt("its rings make no sense"));
    }
    Ok(moment.clone())
}

/// Gives back the disk space of the events before byte `at` of the stream. The file keeps its length.
///
/// # Errors
/// When the file system can't.
pub fn forget_before(dir: &Path, at: u64) -> Result<()> {
    let path = dir.join(EVENTS_FILE);
    let file = OpenOptions::new().write(true).open(&path);
    let file = file.context("open", &path)?;
    if at == 0 {
        return Ok(());
    }
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let done = fallocate(&file, how, 0, at).map_err(io::Error::from);
    done.context("forget old events in", &path)
}
