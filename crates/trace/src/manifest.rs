//! What a trace says about itself: the manifest, written before the first event, and the summary, written after the last.
//!
//! Both are JSON, written to a temporary file and renamed, so that they are there whole or not at all. A trace
//! without summary is one whose recording did not end in order (kill -9, power cut); its events are as good as any.

use crate::error::Context;
use crate::{
    ByteString, ContentHash, LearnedCode, Redaction, Result, StreamStats, TraceError, Uncaptured,
};
use crate::{FORMAT_VERSION, MANIFEST_FILE, SUMMARY_FILE};
use reprise_abi::engine::{self, Engine};
use reprise_abi::session::CpuidLeaf;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest manifest or summary read, in bytes (arguments and environment are bounded by the kernel at 6 MiB).
pub const MAX_JSON: u64 = 64 << 20;

/// Room kept for the summary from the beginning, in bytes, so that a full disk doesn't cost it.
const SUMMARY_RESERVE: u64 = 16 << 10;

/// What was run, where and how.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT_VERSION`] of the reprise that made it.
    pub format_version: u32,
    /// Version of that reprise.
    pub reprise_version: String,
    /// Version of events and shared memory ([`reprise_abi::session::VERSION`]).
    pub abi_version: u32,
    /// Name of the engine.
    pub engine: String,
    /// The program and its arguments.
    pub argv: Vec<ByteString>,
    /// Its environment, `NAME=value`.
    pub env: Vec<ByteString>,
    /// Its working directory.
    pub cwd: ByteString,
    /// Path of the executable.
    pub exe: ByteString,
    /// When the recording began, in nanoseconds of Unix time.
    pub started: u64,
    /// Where.
    pub machine: Machine,
    /// Whether address space randomisation was on.
    pub aslr: bool,
    /// Whether cpuid trapped.
    pub cpuid_faulting: bool,
    /// Seed of chaos mode, when it was on.
    pub chaos_seed: Option<u64>,
    /// Process id of the program, as it saw it.
    pub pid: i32,
    /// Children that it had before the recording began, of a process that was running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<i64>,
    /// State hash every so many events; 0: chosen by cost.
    pub checksum_every: u64,
    /// The state in which the program started.
    pub start: Start,
    /// `order`: code whose plain loads were recorded as values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<LearnedCode>,
    /// `serial`: functions of libc were replaced by the runtime's own, as the other engines that order threads do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hooks: bool,
    /// `serial`: while the program had several threads they ran on all processors, in epochs that were run again ([`FLAG_EPOCHS`](reprise_abi::session::FLAG_EPOCHS)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub epochs: bool,
    /// A test switch: classes of hooks that were left out ([`reprise_abi::hooks`]).
    #[serde(default)]
    pub unhooked: u64,
    /// What was taken out of it afterwards ([`crate::redact`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<Redaction>,
    /// Content hash of the runtime that recorded; replay uses this one, `files/<hash>`.
    pub runtime_hash: ContentHash,
}

/// The machine of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release (uname -r).
    pub kernel: String,
    /// Model name of the processor.
    pub cpu: String,
    /// Processors online.
    pub cpus: u32,
}

/// The state in which a program starts, beside its memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Start {
    /// First instruction (of ld.so, where there is one).
    pub entry: u64,
    /// First stack pointer.
    pub initial_sp: u64,
    /// Start of the brk area.
    pub brk_start: u64,
    /// Soft limit of the stack, in bytes.
    pub stack_limit: u64,
    /// XCR0 components of a signal frame.
    pub xsave_mask: u64,
    /// Bytes of its XSAVE area.
    pub xsave_size: u64,
    /// What cpuid answers.
    #[serde(with = "cpuid")]
    pub cpuid: Vec<CpuidLeaf>,
    /// Signals blocked at the first instruction.
    pub initial_mask: u64,
    /// Signals ignored at the first instruction.
    pub initial_ignored: u64,
    /// Processors that the program is told of, as a bit mask in words.
    pub affinity: Vec<u64>,
    /// Bytes of the kernel's mask of processors: the least and the most that sched_getaffinity(2) takes. Zeros in older recordings.
    #[serde(default)]
    pub affinity_len: [u16; 2],
    /// The processor that the program ran on.
    #[serde(default)]
    pub cpu: u64,
    /// Threads of a process that was running before the recording began ([`reprise_abi::attached`]); 0: the program begins.
    #[serde(default)]
    pub attached: u32,
    /// End of its brk area then.
    #[serde(default)]
    pub brk_now: u64,
}

/// How a recording went.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Events in the stream.
    pub events: u64,
    /// Their bytes.
    pub bytes_raw: u64,
    /// Bytes of the stream on disk.
    pub bytes_compressed: u64,
    /// How long the recording took, in nanoseconds.
    pub duration_ns: u64,
    /// Events by [`reprise_abi::event::Kind::name`].
    pub events_by_kind: BTreeMap<String, u64>,
    /// Wait status of the program as of wait(2), when it is known.
    pub wait_status: Option<i32>,
    /// Why the recording ended, for people.
    pub end_reason: String,
    /// The user ended it before the program did.
    #[serde(default)]
    pub stopped: bool,
    /// The session's counters by name.
    pub counters: BTreeMap<String, u64>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Processes that the kernel told of and that the trace does not have, or not to their end.
    #[serde(default)]
    pub uncaptured: Vec<Uncaptured>,
    /// Processes that a signal has ended: id and wait status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub killed: Vec<(i64, i32)>,
    /// `order`: stamps that were drawn, but that no event has: their threads were killed at that moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub void_stamps: Vec<u64>,
    /// Files in which there may be a cpuid that answered as the processor does: it could not trap, and the code was not proven to be code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub native_cpuid: Vec<String>,
    /// Files to whose copies events refer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputFile>,
}

/// A file to whose copy events refer ([`crate::inputs`]).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Its number.
    pub number: u64,
    /// Its name when it was read.
    pub name: ByteString,
    /// How many calls read of it.
    pub references: u64,
    /// The bytes that these read.
    pub bytes_referred: u64,
    /// The bytes that were copied for it; 0 where the store had them, or the copy shares the file's blocks.
    pub bytes_kept: u64,
}

#[derive(Deserialize)]
struct VersionOnly {
    format_version: u32,
    reprise_version: Option<String>,
}

impl Manifest {
    /// The engine that made the recording; one that isn't known here can do nothing.
    pub fn engine(&self) -> &'static Engine {
        Engine::named(&self.engine).unwrap_or(&engine::NONE)
    }

    /// Writes it into the trace.
    pub fn write(&self, dir: &Path) -> Result<()> {
        replace_json(&dir.join(MANIFEST_FILE), self)
    }

    /// Reads that of the trace in `dir`.
    ///
    /// # Errors
    /// [`TraceError::NotATrace`] when there is none, [`TraceError::Newer`] when its format is newer than ours.
    pub fn read(dir: &Path) -> Result<Manifest> {
        let path = dir.join(MANIFEST_FILE);
        let Some(json) = read_limited(dir, MANIFEST_FILE)? else {
            std::fs::read_dir(dir).context("read", dir)?;
            return Err(TraceError::NotATrace {
                path: dir.into(),
                why: format!("it has no {MANIFEST_FILE}"),
            });
        };
        Manifest::parse(&path, &json)
    }

    /// Reads a manifest from JSON; `path` is for messages.
    pub fn parse(path: &Path, json: &[u8]) -> Result<Manifest> {
        let bad = |e: serde_json::Error| TraceError::corrupt(path, e.to_string());
        let version: VersionOnly = serde_json::from_slice(json).map_err(bad)?;
        if version.format_version > FORMAT_VERSION {
            return Err(TraceError::Newer {
                path: path.into(),
                found: version.format_version,
                ours: FORMAT_VERSION,
                by: version.reprise_version,
            });
        }
        serde_json::from_slice(json).map_err(bad)
    }
}

impl Machine {
    /// This machine.
    pub fn current() -> Machine {
        let read = |p: &str| std::fs::read_to_string(p).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(':'));
        Machine {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            cpu: model
                .map(|(_, name)| name.trim().to_string())
                .unwrap_or_default(),
            // SAFETY: sysconf takes and returns plain integers.
            cpus: unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }
                .try_into()
                .unwrap_or(1),
        }
    }
}

impl Summary {
    /// A summary with the counts of the stream; the caller adds the rest.
    pub fn of_stream(stats: &StreamStats) -> Summary {
        Summary {
            events: stats.events,
            bytes_raw: stats.bytes_raw,
            bytes_compressed: stats.bytes_compressed,
            events_by_kind: stats.named_kinds(),
            ..Summary::default()
        }
    }

    /// Keeps room for it on disk, so that it can be written when the disk is full. Where the file system can't, nothing happens.
    pub fn reserve(dir: &Path) -> Result<()> {
        let path = temporary(&dir.join(SUMMARY_FILE));
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = file.context("create", &path)?;
        match crate::codec::allocate(&file, 0, SUMMARY_RESERVE) {
            Err(e) if crate::error::FullReason::of(&e).is_some() => {
                Err(TraceError::io("write", &path, e))
            }
            _ => Ok(()),
        }
    }

    /// Writes it into the trace; the last act of a recording.
    pub fn write(&self, dir: &Path) -> Result<()> {
        replace_json(&dir.join(SUMMARY_FILE), self)
    }

    /// Reads that of the trace in `dir`; None when there is none, or only part of one (the recording did not end in order).
    pub fn read(dir: &Path) -> Result<Option<Summary>> {
        let json = read_limited(dir, SUMMARY_FILE)?;
        Ok(json.and_then(|json| serde_json::from_slice(&json).ok()))
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    path.with_file_name(name)
}

fn replace_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let tmp = temporary(path);
    let mut json =
        serde_json::to_vec_pretty(value).map_err(|e| TraceError::corrupt(path, e.to_string()))?;
    json.push(b'\n');
    // Not truncated before it is written: the room that was reserved must stay ours.
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&tmp);
    let mut file = file.context("create", &tmp)?;
    file.write_all(&json).context("write", &tmp)?;
    file.set_len(json.len() as u64).context("write", &tmp)?;
    std::fs::rename(&tmp, path).context("write", path)
}

fn read_limited(dir: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let path = &dir.join(name);
    let file = match crate::opened::open(dir, name) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.context("open", path)?,
    };
    let mut json = Vec::new();
    file.take(MAX_JSON + 1)
        .read_to_end(&mut json)
        .context("read", path)?;
    if json.len() as u64 > MAX_JSON {
        return Err(TraceError::Limit {
            what: "size of a JSON file of the trace",
            found: json.len() as u64,
            limit: MAX_JSON,
        });
    }
    Ok(Some(json))
}

/// cpuid leaves as lists of six numbers.
mod cpuid {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        leaves: &[CpuidLeaf],
        s: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        s.collect_seq(leaves.iter().map(|l| {
            [
                l.leaf, l.subleaf, l.regs[0], l.regs[1], l.regs[2], l.regs[3],
            ]
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> std::result::Result<Vec<CpuidLeaf>, D::Error> {
        let rows = Vec::<[u32; 6]>::deserialize(d)?;
        if rows.len() > reprise_abi::session::MAX_CPUID {
            return Err(serde::de::Error::custom("too many cpuid leaves"));
        }
        let leaf = |r: [u32; 6]| CpuidLeaf {
            leaf: r[0],
            subleaf: r[1],
            regs: [r[2], r[3], r[4], r[5]],
        };
        Ok(rows.into_iter().map(leaf).collect())
    }
}
