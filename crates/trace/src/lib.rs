//! The trace on disk.
//!
//! A trace is a directory, mode 0700, that depends on no file outside it:
//!
//! | file | holds | module |
//! |---|---|---|
//! | `manifest.json` | what was run, where, how; written first, never changed | [`manifest`] |
//! | `image` | the memory of the program before its first instruction | [`image`] |
//! | `images` | the same of the programs that processes became by their execs | [`images`] |
//! | `checkpoints` | the process of a replay at some events, so that another one can begin there | [`checkpoints`] |
//! | `beginning` | where the trace begins, when only its last stretch was kept: a replay's process at that moment | [`beginning`] |
//! | `events.zst` | all events, in the seekable zstd format, checksummed | [`stream`], [`writer`], [`reader`] |
//! | `files/<hash>` | contents of the files that were mapped, and of the runtime | [`store`] |
//! | `summary.json` | counts and outcome; written last, so its presence says that the recording ended in order | [`manifest`] |
//!
//! A recording goes through them in this order:
//!
//! 1. [`Catalog::create`] makes the directory, [`Store::keep_into`] puts files into it.
//! 2. [`ImageWriter`] writes the image, [`Manifest::write`] the manifest.
//! 3. [`Writer::push`] takes events, one at a time; [`Writer::flush_frame`] bounds what a crash can cost.
//! 4. [`Writer::finish`] seals the stream, [`Summary::write`] says how it went.
//!
//! [`Census`] says which processes are missing from the events.
//!
//! A replay reads them back: [`Catalog::resolve`], [`Manifest::read`], [`ImageReader`], [`Reader`].
//!
//! ```
//! use reprise_abi::event::{EventHeader, Kind, HEADER_LEN};
//! use reprise_trace::{Reader, Tail, Writer};
//!
//! let dir = tempfile::tempdir()?;
//! let event = EventHeader { len: HEADER_LEN as u32, kind: Kind::Start as u8, ..Default::default() }.to_bytes();
//! let mut writer = Writer::create(dir.path())?;
//! writer.push(&event)?;
//! let stats = writer.finish()?;
//! assert_eq!(stats.events, 1);
//!
//! let mut reader = Reader::open(dir.path())?;
//! assert_eq!(reader.next()?.expect("one event").bytes, event);
//! assert!(reader.next()?.is_none());
//! assert_eq!(reader.tail(), &Tail::Complete);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything read from a trace is untrusted: lengths are checked against named limits and against the bytes that
//! are really there, before anything is allocated by them.

pub mod beginning;
pub mod bytes;
pub mod catalog;
pub mod census;
pub mod checkpoints;
mod codec;
pub mod encrypted;
mod entries;
pub mod error;
mod extents;
pub mod hash;
pub mod image;
pub mod images;
pub mod inputs;
mod kept_blocks;
mod known;
pub mod learned;
pub mod manifest;
pub mod opened;
pub mod pack;
mod packed_input;
pub mod ranges;
pub mod reader;
pub mod redact;
pub mod signature;
pub mod stamps;
pub mod store;
pub mod stream;
pub mod writer;

pub use beginning::{Moment, RingStart, StoppedThread};
pub use bytes::ByteString;
pub use catalog::{Catalog, Entry};
pub use census::{Census, Uncaptured};
pub use checkpoints::{Checkpoint, Checkpoints, CheckpointsWriter};
pub use error::{Result, TraceError};
pub use extents::first_data;
pub use hash::ContentHash;
pub use image::{image_name, image_number, Content, Image, ImageReader, ImageWriter, Region, Run};
pub use images::{ImageSet, Images};
pub use inputs::Inputs;
pub use known::Known;
pub use learned::LearnedCode;
pub use manifest::{Machine, Manifest, Start, Summary};
pub use ranges::Ranges;
pub use reader::{EventRef, RawFrame, Reader, Tail};
pub use redact::Redaction;
pub use signature::Signer;
pub use stamps::Stamps;
pub use store::{reflink, settled, Kept, Store};
pub use stream::StreamStats;
pub use writer::{Writer, WriterOptions};

/// Version of what a trace directory has as a whole. A trace of a newer version is refused, by name. 2: events may refer to copies of files
/// ([`inputs`]).
pub const FORMAT_VERSION: u32 = 2;
/// Version of the event stream's frames, and of images.
pub const PARTS_VERSION: u32 = 1;

/// Name of the manifest in a trace.
pub const MANIFEST_FILE: &str = "manifest.json";
/// Name of the summary in a trace.
pub const SUMMARY_FILE: &str = "summary.json";
/// Name of the event stream in a trace.
pub const EVENTS_FILE: &str = "events.zst";
/// Name of what a trace begins with of which only the last stretch was kept.
pub const BEGINNING_FILE: &str = "beginning";
/// Name of the checkpoints of a trace.
pub const CHECKPOINTS_FILE: &str = "checkpoints";
/// Name of the initial memory image in a trace.
pub const IMAGE_FILE: &str = "image";
/// Name of the file with the images of programs that processes became by exec.
pub const IMAGES_FILE: &str = "images";
/// Most programs that the processes of one trace can become by exec.
pub const MAX_IMAGES: u64 = 1 << 20;
/// The files with names of their own in a trace, the manifest first; each may be missing but that.
pub const NAMED_FILES: [&str; 7] = [
    MANIFEST_FILE,
    SUMMARY_FILE,
    IMAGE_FILE,
    IMAGES_FILE,
    BEGINNING_FILE,
    CHECKPOINTS_FILE,
    EVENTS_FILE,
];
/// Name of the directory with file contents in a trace.
pub const FILES_DIR: &str = "files";
