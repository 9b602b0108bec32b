//! From the initial image of a trace to the plan by which the child builds its address space.

use crate::rebuilt::Exchange;
use crate::ReplayError;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;
use reprise_abi::stage::{StageOp, OP_CLOSE, OP_COPY, OP_MAP, OP_PROTECT};
use reprise_launch::replay::Plan;
use reprise_trace::{opened, Content, Image, ImageReader, Region, FILES_DIR};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::Path;

const MAP_SHARED: u32 = 1;
const MAP_PRIVATE: u32 = 2;
const MAP_ANONYMOUS: u32 = 0x20;
const MAP_GROWSDOWN: u32 = 0x100;
const MAP_NORESERVE: u32 = 0x4000;
const PROT_RW: u32 = 3;

/// The plan, and the descriptors that the child needs open (the driver closes its own afterwards).
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    /// Descriptors that the plan names.
    pub files: Vec<File>,
}

/// The bytes of an image.
///
/// # Errors
/// When it is damaged, or too large.
pub fn read_bytes(reader: &mut ImageReader) -> Result<Vec<u8>, ReplayError> {
    let len = usize::try_from(reader.blob_len()).unwrap_or(usize::MAX);
    if len as u64 > reprise_abi::layout::STAGE_MAX {
        return Err(ReplayError::Unsupported(format!(
            "the initial image has {len} bytes, more than can be staged"
        )));
    }
    let mut bytes = vec![0; len];
    reader.read_blob(0, &mut bytes)?;
    Ok(bytes)
}

/// Makes the plan for an image, with these bytes, of a trace in `dir`.
///
/// # Errors
/// When the image or a file of the trace is missing or damaged.
pub(crate) fn prepare(
    dir: &Path,
    image: &Image,
    mut bytes: Vec<u8>,
    exchange: Option<Exchange>,
) -> Result<Prepared, ReplayError> {
    let exchange = exchange.unwrap_or_default();
    let mut ops = Vec::new();
    let mut files: Vec<File> = Vec::new();
    let mut known = HashMap::new();
    for r in &image.regions {
        if exchange.was.contains(&r.start) {
            continue;
        }
        let anonymous = |flags: u32, prot: u32| StageOp {
            kind: OP_MAP,
            prot,
            flags: match r.flags & region_flags::SHARED {
                0 => MAP_PRIVATE,
                _ => MAP_SHARED,
            } | MAP_ANONYMOUS
                | MAP_NORESERVE
                | flags,
            fd: -1,
            addr: r.start,
            len: r.len,
            offset: 0,
        };
        let stack = if r.flags & region_flags::STACK != 0 {
            MAP_GROWSDOWN
        } else {
            0
        };
        let runs = r.content.runs();
        let first_prot = if runs.is_empty() {
            r.prot
        } else {
            r.prot | PROT_RW
        };
        match &r.content {
            Content::File {
                hash, file_offset, ..
            } => {
                let fd = match known.get(hash) {
                    Some(fd) => *fd,
                    None => {
                        let name = Path::new(FILES_DIR).join(hash.to_string());
                        let path = dir.join(&name);
                        let f = opened::open(dir, name).map_err(|source| ReplayError::Io {
                            what: format!("open {}", path.display()),
                            source,
                        })?;
                        let fd = f.as_raw_fd();
                        known.insert(*hash, fd);
                        files.push(f);
                        fd
                    }
                };
                check_length(fd, &files, r, *file_offset)?;
                ops.push(StageOp {
                    kind: OP_MAP,
                    prot: first_prot,
                    flags: MAP_PRIVATE,
                    fd,
                    addr: r.start,
                    len: r.len,
                    offset: *file_offset,
                });
            }
            _ => ops.push(anonymous(stack, first_prot)),
        }
        for run in runs {
            ops.push(StageOp {
                kind: OP_COPY,
                addr: run.address,
                len: run.len,
                offset: run.blob_offset,
                ..Default::default()
            });
        }
        if first_prot != r.prot {
            ops.push(StageOp {
                kind: OP_PROTECT,
                prot: r.prot,
                addr: r.start,
                len: r.len,
                ..Default::default()
            });
        }
    }
    let runs = image.regions.iter().flat_map(|r| r.content.runs());
    for (run, (at, value)) in runs.flat_map(|r| exchange.words.iter().map(move |w| (r, w))) {
        if (run.address..run.address + run.len).contains(at) {
            let i = (run.blob_offset + (at - run.address)) as usize;
            bytes[i..i + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let own = bytes.len() as u64;
    ops.extend(exchange.ops.iter().map(|op| match op.kind {
        OP_COPY => StageOp {
            offset: own + op.offset,
            ..*op
        },
        _ => *op,
    }));
    bytes.extend(exchange.bytes);
    files.extend(exchange.files);
    for f in &files {
        ops.push(StageOp {
            kind: OP_CLOSE,
            fd: f.as_raw_fd(),
            ..Default::default()
        });
    }
    let path = dir.join(FILES_DIR);
    let directory = File::open(&path).map_err(|source| ReplayError::Io {
        what: format!("open {}", path.display()),
        source,
    })?;
    let plan = Plan {
        ops,
        bytes,
        files: directory.as_raw_fd(),
    };
    // Kept open until the child has its copy.
    files.push(directory);
    Ok(Prepared { plan, files })
}

/// Pages of a file that lie behind its end can't be changed: a process that tried would be killed.
fn check_length(
    fd: i32,
    files: &[File],
    region: &Region,
    file_offset: u64,
) -> Result<(), ReplayError> {
    let last = region.content.runs().last();
    let needed = last.map_or(0, |run| {
        let end = run.address.saturating_add(run.len);
        end.saturating_sub(region.start).saturating_add(file_offset)
    });
    let file = files.iter().find(|f| f.as_raw_fd() == fd);
    let len = file
        .and_then(|f| f.metadata().ok())
        .map_or(0, |m| m.len().next_multiple_of(PAGE));
    if needed <= len {
        return Ok(());
    }
    Err(ReplayError::Unsupported(format!(
        "the trace's copy of {} is shorter than it was: {len} bytes, at least {needed} are needed",
        region.name
    )))
}

impl Prepared {
    /// Leaks the descriptors: for a child that outlives the plan.
    pub fn keep_open(self) {
        for f in self.files {
            let _ = f.into_raw_fd();
        }
    }
}
