//! What was behind the descriptors of a trace's processes, and at which byte of it each call read or wrote: from the events alone, in one pass.
//!
//! A pipe, and each direction of a pair of sockets, is a stream: its bytes are counted from the first one that was written, so that whoever read
//! a byte is brought together with whoever wrote it, in whichever process that was.
//!
//! - `descriptors`: what is behind them; `mappings`: memory that was mapped; `pass`: all of it, event by event.

mod descriptors;
mod mappings;
mod pass;

use crate::processes::Processes;
use anyhow::{Context, Result};
use descriptors::{buffer, Behind};
pub use mappings::{Birth, Mappings};
use pass::{Done, Pass};
use reprise_abi::event::{Section, Tag};
use reprise_abi::inputs::Reference;
use reprise_abi::spec::Mem;
use reprise_trace::Inputs;
use std::path::{Path, PathBuf};

/// Bytes that are shown on each side of those that were looked for.
const AROUND: u64 = 24;

/// Where bytes of a call come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Came {
    /// This byte of a file.
    File { path: PathBuf, offset: u64 },
    /// This byte of a stream, which is a pipe or a socket.
    Stream {
        stream: usize,
        position: u64,
        what: &'static str,
    },
    /// The call itself made them, or somebody who was not recorded sent them.
    Call(&'static str),
}

/// A call that brought bytes into memory.
#[derive(Debug)]
pub struct Input {
    /// The process, in the order of births.
    pub process: usize,
    /// The call, as `dump` prints it.
    pub call: String,
    /// From where.
    pub came: Came,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// These, and some around them.
    pub around: Vec<u8>,
}

/// Where what is sent is in the memory of the process that sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// At this address.
    At(u64),
    /// This byte of as many buffers, of which there is a vector at an address.
    Vector { at: u64, count: u64, skip: u64 },
    /// As above, of a message.
    Message { at: u64, skip: u64 },
}

/// A call that wrote a byte of a stream.
#[derive(Debug)]
pub struct Writer {
    /// Its event, before which the bytes are in the process's memory.
    pub event: u64,
    /// The process, in the order of births.
    pub process: usize,
    /// The call, as `dump` prints it.
    pub call: String,
    /// What was sent; `Err`: it was moved from a file, past the process's memory.
    pub from: std::result::Result<Sent, Came>,
}

/// Bytes of memory that a section brought, and how many.
fn brought(s: &Section<'_>) -> Option<(u64, u64, Option<Reference>)> {
    match s.tag {
        Tag::Output => Some((s.address, s.bytes.len() as u64, None)),
        Tag::Reference => {
            let r = Reference::parse(s.bytes)?;
            Some((s.address, r.len, Some(r)))
        }
        _ => None,
    }
}

/// The call by whose event `number` these bytes came into memory.
///
/// # Errors
/// When the trace can't be read, or the event wrote nothing there.
pub fn input(dir: &Path, number: u64, at: u64, len: u32) -> Result<Input> {
    let (_, found) = Pass::over(dir, |pass, n, done| match n == number {
        true => input_of(dir, pass, n, done, at, len).map(Some),
        false => Ok(None),
    })?;
    found.context("the call that wrote the bytes is not in the trace")
}

fn input_of(
    dir: &Path,
    pass: &mut Pass,
    number: u64,
    done: &Done<'_>,
    at: u64,
    len: u32,
) -> Result<Input> {
    let (mut skip, mut here) = (0, None);
    for s in done.e.sections() {
        let Some((begin, count, reference)) = brought(&s) else {
            continue;
        };
        if at.wrapping_sub(begin) < count {
            here = Some((s, at - begin, count, reference));
            break;
        }
        skip += count;
    }
    let (section, inside, count, reference) = here.context("the call wrote nothing there")?;
    let from = done
        .transfer
        .from
        .map(|(open, was)| (pass.descriptors.behind(open), was));
    let came = match (from, reference) {
        (Some((Behind::File(path), _)), Some(r)) => Came::File {
            path: path.clone(),
            offset: r.offset + inside,
        },
        (Some((Behind::File(path), was)), None) => Came::File {
            path: path.clone(),
            offset: was + skip + inside,
        },
        (
            Some((
                Behind::Stream {
                    reads: Some(stream),
                    what,
                    ..
                },
                was,
            )),
            _,
        ) => Came::Stream {
            stream: *stream,
            position: was + skip + inside,
            what,
        },
        (Some((Behind::Other(what), _)), _) => Came::Call(what),
        _ => Came::Call("the kernel"),
    };
    // What can be seen of it.
    let first = inside.saturating_sub(AROUND);
    let end = (inside + u64::from(len) + AROUND).min(count);
    let around = match reference {
        None => section.bytes[first as usize..end as usize].to_vec(),
        Some(r) => {
            let part = Reference {
                offset: r.offset + first,
                len: end - first,
                hash: reprise_abi::inputs::UNKNOWN_HASH,
                ..r
            };
            Inputs::of(dir).read(&part, end - first).unwrap_or_default()
        }
    };
    let begin = (inside - first) as usize;
    let bytes = around.iter().skip(begin).take(len as usize);
    Ok(Input {
        process: done.process,
        call: pass.words(number, done.e),
        came,
        bytes: bytes.copied().collect(),
        around,
    })
}

/// The call that wrote this byte of a stream; `None`: nobody who was recorded.
///
/// # Errors
/// When the trace can't be read.
pub fn writer(dir: &Path, stream: usize, position: u64) -> Result<Option<Writer>> {
    let (_, found) = Pass::over(dir, |pass, number, done| {
        let Some((_, was)) = done.transfer.to.filter(|(to, _)| *to == stream) else {
            return Ok(None);
        };
        let count = u64::try_from(done.e.header.value).unwrap_or(0);
        let Some(skip) = position.checked_sub(was).filter(|skip| *skip < count) else {
            return Ok(None);
        };
        let (args, call) = (done.args, u64::from(done.e.header.detail));
        let from = match done
            .transfer
            .from
            .map(|(open, at)| (pass.descriptors.behind(open), at))
        {
            Some((Behind::File(path), at)) => Err(Came::File {
                path: path.clone(),
                offset: at + skip,
            }),
            Some((
                Behind::Stream {
                    reads: Some(stream),
                    what,
                    ..
                },
                at,
            )) => Err(Came::Stream {
                stream: *stream,
                position: at + skip,
                what,
            }),
            Some(_) => Err(Came::Call("the kernel")),
            None => Ok(match buffer(call) {
                Mem::IovecIn(_) => Sent::Vector {
                    at: args[1],
                    count: args[2],
                    skip,
                },
                Mem::MsghdrIn => Sent::Message { at: args[1], skip },
                _ => Sent::At(args[1].wrapping_add(skip)),
            }),
        };
        Ok(Some(Writer {
            event: done.event,
            process: done.process,
            call: pass.words(number, done.e),
            from,
        }))
    })?;
    Ok(found)
}

/// A call in words.
///
/// # Errors
/// When the trace can't be read.
pub fn words(dir: &Path, number: u64) -> Result<Option<String>> {
    let (_, found) = Pass::over(dir, |pass, n, done| {
        Ok((n == number).then(|| pass.words(n, done.e)))
    })?;
    Ok(found)
}

/// Ids of the trace's processes, in the order of their births.
///
/// # Errors
/// When the trace can't be read.
pub fn pids(dir: &Path) -> Result<Vec<i64>> {
    let all = Processes::of_trace(dir)?.0.list;
    Ok(all.iter().map(|p| p.pid).collect())
}
