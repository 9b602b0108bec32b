//! From the initial image of a trace to the plan by which the child builds its address space.

use crate::rebuilt::Exchange;
use crate::ReplayError;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;
use reprise_abi::stage::{StageOp, OP_CLOSE, OP_COPY, OP_GUARD, OP_MAP, OP_PROTECT};
use reprise_launch::replay::Plan;
use reprise_trace::{opened, Content, ContentHash, Image, ImageReader, Region, FILES_DIR};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
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
    let mut steps = Steps::default();
    for region in &image.regions {
        if !exchange.was.contains(&region.start) {
            steps.region(dir, region)?;
        }
    }
    write_words(image, &exchange.words, &mut bytes);
    steps.exchange(&exchange.ops, bytes.len() as u64);
    bytes.extend(exchange.bytes);
    let Steps {
        mut ops, mut files, ..
    } = steps;
    files.extend(exchange.files);
    ops.extend(files.iter().map(close));
    let directory = open_directory(dir)?;
    let plan = Plan {
        ops,
        bytes,
        files: directory.as_raw_fd(),
    };
    // Kept open until the child has its copy.
    files.push(directory);
    Ok(Prepared { plan, files })
}

/// A plan in the making.
#[derive(Default)]
struct Steps {
    ops: Vec<StageOp>,
    /// The files that it names, ...
    files: Vec<File>,
    /// ... each once.
    known: HashMap<ContentHash, RawFd>,
}

impl Steps {
    /// A region is mapped, what was changed of it is copied there, and it gets its rights.
    fn region(&mut self, dir: &Path, r: &Region) -> Result<(), ReplayError> {
        let runs = r.content.runs();
        let first_prot = match runs.is_empty() {
            true => r.prot,
            false => r.prot | PROT_RW,
        };
        let map = match &r.content {
            Content::File {
                hash, file_offset, ..
            } => self.map_file(dir, r, (*hash, *file_offset))?,
            _ => map_anonymous(r),
        };
        self.ops.push(StageOp {
            prot: first_prot,
            ..map
        });
        self.ops.extend(runs.iter().map(|run| StageOp {
            kind: OP_COPY,
            addr: run.address,
            len: run.len,
            offset: run.blob_offset,
            ..Default::default()
        }));
        if first_prot != r.prot {
            self.ops.push(StageOp {
                kind: OP_PROTECT,
                prot: r.prot,
                addr: r.start,
                len: r.len,
                ..Default::default()
            });
        }
        if r.flags & region_flags::GUARDED != 0 {
            self.ops.push(StageOp {
                kind: OP_GUARD,
                addr: r.start,
                len: r.len,
                ..Default::default()
            });
        }
        Ok(())
    }

    fn map_file(
        &mut self,
        dir: &Path,
        r: &Region,
        (hash, offset): (ContentHash, u64),
    ) -> Result<StageOp, ReplayError> {
        let fd = self.open(dir, hash)?;
        check_length(fd, &self.files, r, offset)?;
        Ok(StageOp {
            kind: OP_MAP,
            flags: MAP_PRIVATE,
            fd,
            addr: r.start,
            len: r.len,
            offset,
            ..Default::default()
        })
    }

    /// The descriptor of a content of the trace.
    fn open(&mut self, dir: &Path, hash: ContentHash) -> Result<RawFd, ReplayError> {
        if let Some(fd) = self.known.get(&hash) {
            return Ok(*fd);
        }
        let name = Path::new(FILES_DIR).join(hash.to_string());
        let path = dir.join(&name);
        let file = opened::open(dir, name).map_err(|source| ReplayError::Io {
            what: format!("open {}", path.display()),
            source,
        })?;
        let fd = file.as_raw_fd();
        self.known.insert(hash, fd);
        self.files.push(file);
        Ok(fd)
    }

    /// What a rebuilt program has in the place of regions; its bytes come behind as many of the image.
    fn exchange(&mut self, ops: &[StageOp], own: u64) {
        self.ops.extend(ops.iter().map(|op| match op.kind {
            OP_COPY => StageOp {
                offset: own + op.offset,
                ..*op
            },
            _ => *op,
        }));
    }
}

/// The mapping of a region without a file.
fn map_anonymous(r: &Region) -> StageOp {
    let shared = match r.flags & region_flags::SHARED {
        0 => MAP_PRIVATE,
        _ => MAP_SHARED,
    };
    let stack = match r.flags & region_flags::STACK {
        0 => 0,
        _ => MAP_GROWSDOWN,
    };
    StageOp {
        kind: OP_MAP,
        flags: shared | MAP_ANONYMOUS | MAP_NORESERVE | stack,
        fd: -1,
        addr: r.start,
        len: r.len,
        ..Default::default()
    }
}

/// Puts words at their addresses, where the image has bytes of its own there.
fn write_words(image: &Image, words: &[(u64, u64)], bytes: &mut [u8]) {
    let runs = image.regions.iter().flat_map(|r| r.content.runs());
    for (run, (at, value)) in runs.flat_map(|r| words.iter().map(move |w| (r, w))) {
        if (run.address..run.address + run.len).contains(at) {
            let i = (run.blob_offset + (at - run.address)) as usize;
            bytes[i..i + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
}

fn close(file: &File) -> StageOp {
    StageOp {
        kind: OP_CLOSE,
        fd: file.as_raw_fd(),
        ..Default::default()
    }
}

/// The directory of a trace's contents.
fn open_directory(dir: &Path) -> Result<File, ReplayError> {
    let path = dir.join(FILES_DIR);
    File::open(&path).map_err(|source| ReplayError::Io {
        what: format!("open {}", path.display()),
        source,
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_trace::Run;

    const READ: u32 = 1;
    const FILE_LEN: usize = 2 * PAGE as usize;

    /// A trace with one content, of two pages.
    fn trace() -> (tempfile::TempDir, ContentHash) {
        let dir = tempfile::tempdir().expect("a directory");
        let content = vec![7; FILE_LEN];
        let hash = ContentHash::of(&content);
        let files = dir.path().join(FILES_DIR);
        std::fs::create_dir(&files).expect("a directory");
        std::fs::write(files.join(hash.to_string()), content).expect("a content");
        (dir, hash)
    }

    fn region(start: u64, pages: u64, content: Content) -> Region {
        Region {
            start,
            len: pages * PAGE,
            prot: READ,
            flags: 0,
            content,
            name: "somewhere".into(),
        }
    }

    fn run(address: u64, blob_offset: u64) -> Run {
        Run {
            address,
            len: PAGE,
            blob_offset,
        }
    }

    fn plan(dir: &Path, regions: Vec<Region>, exchange: Exchange) -> Result<Prepared, ReplayError> {
        let bytes = vec![0; 2 * PAGE as usize];
        prepare(dir, &Image { regions }, bytes, Some(exchange))
    }

    fn kinds(plan: &Plan) -> Vec<u32> {
        plan.ops.iter().map(|op| op.kind).collect()
    }

    #[test]
    fn what_was_changed_is_copied_before_the_region_gets_its_rights() {
        let (dir, _) = trace();
        let runs = vec![run(0x11000, 0), run(0x13000, PAGE)];
        let regions = vec![
            region(0x10000, 4, Content::Bytes { runs }),
            region(0x20000, 1, Content::Zero),
        ];
        let p = plan(dir.path(), regions, Exchange::default()).expect("a plan");
        assert_eq!(
            kinds(&p.plan),
            [OP_MAP, OP_COPY, OP_COPY, OP_PROTECT, OP_MAP]
        );
        let ops = &p.plan.ops;
        assert_eq!((ops[0].prot, ops[3].prot), (READ | PROT_RW, READ));
        assert_eq!(
            (ops[2].addr, ops[2].len, ops[2].offset),
            (0x13000, PAGE, PAGE)
        );
        // Nothing was changed there.
        assert_eq!((ops[4].prot, ops[4].fd), (READ, -1));
        // The directory of contents alone is open.
        assert_eq!(p.files.len(), 1);
    }

    #[test]
    fn flags_say_what_memory_it_is() {
        let of = |flags| {
            map_anonymous(&Region {
                flags,
                ..region(0x10000, 1, Content::Zero)
            })
            .flags
        };
        let always = MAP_ANONYMOUS | MAP_NORESERVE;
        assert_eq!(of(0), always | MAP_PRIVATE);
        assert_eq!(of(region_flags::SHARED), always | MAP_SHARED);
        assert_eq!(
            of(region_flags::STACK),
            always | MAP_PRIVATE | MAP_GROWSDOWN
        );
    }

    #[test]
    fn a_file_is_opened_once_and_closed_in_the_end() {
        let (dir, hash) = trace();
        let of = |file_offset| Content::File {
            hash,
            file_offset,
            runs: Vec::new(),
        };
        let regions = vec![region(0x10000, 1, of(0)), region(0x20000, 1, of(PAGE))];
        let p = plan(dir.path(), regions, Exchange::default()).expect("a plan");
        assert_eq!(kinds(&p.plan), [OP_MAP, OP_MAP, OP_CLOSE]);
        let [a, b, closes] = p.plan.ops[..] else {
            panic!("three steps");
        };
        assert!(a.fd == b.fd && b.fd == closes.fd && a.fd == p.files[0].as_raw_fd());
        assert_eq!((a.offset, b.offset, b.flags), (0, PAGE, MAP_PRIVATE));
        assert_eq!(p.files.len(), 2);
        assert_eq!(p.plan.files, p.files[1].as_raw_fd());
    }

    #[test]
    fn a_file_that_is_shorter_than_what_was_changed_of_it_is_refused() {
        let (dir, hash) = trace();
        let content = Content::File {
            hash,
            file_offset: 0,
            runs: vec![run(0x10000 + FILE_LEN as u64, 0)],
        };
        let refused = plan(
            dir.path(),
            vec![region(0x10000, 4, content)],
            Exchange::default(),
        );
        let why = refused.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(why.contains("somewhere is shorter than it was"), "{why}");
        let missing = Content::File {
            hash: ContentHash::of(b"another"),
            file_offset: 0,
            runs: Vec::new(),
        };
        let refused = plan(
            dir.path(),
            vec![region(0x10000, 1, missing)],
            Exchange::default(),
        );
        assert!(matches!(refused, Err(ReplayError::Io { .. })));
    }

    #[test]
    fn a_rebuilt_program_takes_the_place_of_regions() {
        let (dir, _) = trace();
        let runs = vec![run(0x20000, PAGE)];
        let regions = vec![
            region(0x10000, 1, Content::Zero),
            region(0x20000, 1, Content::Bytes { runs }),
        ];
        let copy = StageOp {
            kind: OP_COPY,
            addr: 0x10000,
            len: 3,
            offset: 1,
            ..Default::default()
        };
        let exchange = Exchange {
            was: 0x10000..0x11000,
            ops: vec![copy],
            bytes: vec![1, 2, 3, 4],
            words: vec![(0x20008, 0x0102_0304_0506_0708), (0x30000, 1)],
            ..Exchange::default()
        };
        let p = plan(dir.path(), regions, exchange).expect("a plan");
        assert_eq!(kinds(&p.plan), [OP_MAP, OP_COPY, OP_PROTECT, OP_COPY]);
        assert_eq!(p.plan.ops[0].addr, 0x20000);
        let own = 2 * PAGE;
        // Its bytes come behind those of the image.
        assert_eq!(p.plan.ops[3].offset, own + 1);
        assert_eq!(p.plan.bytes[own as usize..], [1, 2, 3, 4]);
        // A word of memory that the image has bytes of.
        let at = PAGE as usize + 8;
        assert_eq!(
            p.plan.bytes[at..at + 8],
            0x0102_0304_0506_0708u64.to_le_bytes()
        );
        assert!(p.plan.bytes[..at].iter().all(|b| *b == 0));
    }
}
