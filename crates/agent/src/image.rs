//! Memory images of programs that are stopped: before their first instruction, or anywhere, with all their threads.

use crate::kept::Keeper;
use reprise_abi::layout::{PAGE, STAGE_MAX};
use reprise_abi::session::region_flags;
use reprise_launch::attach::Attached;
use reprise_launch::pages::{Pages, Wanted};
use reprise_launch::record::{Mapping, Stopped};
use reprise_launch::SharedSession;
use reprise_trace::{
    ByteString, Content, ContentHash, ImageWriter, Images, Region, Start, TraceError,
};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// Writes the image of the first program, into a file of its own.
///
/// # Errors
/// What went wrong, for people.
pub fn write(
    stopped: &Stopped,
    shared: &mut SharedSession,
    keeper: &mut Keeper,
) -> Result<(), String> {
    let mut write = |keeper: &mut Keeper| {
        let mut image = ImageWriter::create(&keeper.dir)?;
        fill(stopped, shared, keeper, &mut image)?;
        image.finish()
    };
    write(keeper).map(drop).map_err(|e| e.to_string())
}

/// Appends image `n`, of a program that a process became, to those of the trace.
///
/// # Errors
/// As [`write()`].
pub fn append(
    stopped: &Stopped,
    shared: &mut SharedSession,
    keeper: &mut Keeper,
    images: &mut Images,
    n: u64,
) -> Result<(), String> {
    let mut write = || {
        let mut image = images.begin(n)?;
        fill(stopped, shared, keeper, &mut image)?;
        image.start(start(shared));
        images.end(image)
    };
    write().map_err(|e: TraceError| e.to_string())
}

/// Writes the image of a process that was running already: all that it has in memory, and what is to be known of its threads.
///
/// # Errors
/// What went wrong, for people.
pub fn write_attached(
    attached: &Attached,
    shared: &mut SharedSession,
    keeper: &mut Keeper,
) -> Result<(), String> {
    let pid = attached.pid();
    let io = |source| TraceError::Io {
        action: "read the memory of process",
        path: pid.to_string().into(),
        source,
    };
    let mut write = || {
        let pages = Pages::of(pid).map_err(io)?;
        let mut image = ImageWriter::create(&keeper.dir)?;
        // The table of threads is no mapping of the program's, but lies among these.
        let of_threads = Mapping {
            start: reprise_abi::attached::BASE,
            end: reprise_abi::attached::thread_at(attached.threads() as u32),
            prot: 3,
            flags: 0,
            offset: 0,
            name: "threads".into(),
            inode: 0,
        };
        let all = attached.mappings().iter().enumerate();
        let mut regions: Vec<(Option<usize>, &Mapping)> = all.map(|(i, m)| (Some(i), m)).collect();
        let place = regions.partition_point(|(_, m)| m.start < of_threads.start);
        regions.insert(place, (None, &of_threads));
        let mut files = Files::default();
        for (i, m) in regions {
            let private = m.flags & region_flags::FILE != 0;
            let hash = files.content(pid, shared, keeper, m);
            if let (Some(hash), Some(i)) = (hash, i) {
                if let Some(r) = shared.session_mut().initial_regions.get_mut(i) {
                    r.content = hash.to_words();
                }
            }
            let (content, wanted) = match hash {
                Some(hash) => {
                    let content = Content::File {
                        hash,
                        file_offset: m.offset,
                        runs: Vec::new(),
                    };
                    (content, Wanted::Changed)
                }
                // What a file that is gone shows need not be in memory; nor need what is shared be mapped.
                None if private || m.flags & region_flags::SHARED != 0 => {
                    (Content::Zero, Wanted::Readable)
                }
                None => (Content::Zero, Wanted::Present),
            };
            image.region(region(m, content, ByteString::from(m.name.as_os_str())))?;
            pages.each(m.start..m.end, wanted, io, |at, bytes| {
                image.bytes(at, bytes)
            })?;
        }
        image.finish()
    };
    let image = write().map_err(|e: TraceError| e.to_string())?;
    let runs = image.regions.iter().flat_map(|r| r.content.runs());
    let bytes: u64 = runs.map(|run| run.len).sum();
    match bytes < STAGE_MAX {
        true => Ok(()),
        false => Err(format!(
            "it has {} MiB in memory, and no replay can begin with more than {} MiB",
            bytes >> 20,
            STAGE_MAX >> 20
        )),
    }
}

fn fill(
    stopped: &Stopped,
    shared: &mut SharedSession,
    keeper: &mut Keeper,
    image: &mut ImageWriter,
) -> Result<(), TraceError> {
    let mut files = Files::default();
    for (i, m) in stopped.mappings.iter().enumerate() {
        let hash = files.content(stopped.pid, shared, keeper, m);
        let writable = m.prot & libc::PROT_WRITE as u32 != 0;
        // What can be written was changed by whoever loaded it; what can't is as in the file.
        let was = hash.filter(|_| writable).and_then(|hash| {
            let part = keeper.part(hash, m.offset, m.end - m.start)?;
            Some((hash, part))
        });
        let shown = match &was {
            Some((hash, _)) => Some(*hash),
            None => hash.filter(|_| !writable),
        };
        if let (Some(hash), Some(r)) = (shown, shared.session_mut().initial_regions.get_mut(i)) {
            r.content = hash.to_words();
        }
        let content = match shown {
            Some(hash) => Content::File {
                hash,
                file_offset: m.offset,
                runs: Vec::new(),
            },
            None => Content::Zero,
        };
        let name = ByteString::from(m.name.as_os_str());
        image.region(region(m, content, name))?;
        let whole = shown.is_none() || was.is_some();
        if whole && m.prot & libc::PROT_READ as u32 != 0 {
            copy_memory(stopped, m, was.as_ref().map(|(_, part)| &part[..]), image)?;
        }
    }
    Ok(())
}

/// The state in which the program in the session's head starts.
pub fn start(shared: &SharedSession) -> Start {
    let s = shared.session();
    Start {
        entry: s.entry,
        initial_sp: s.initial_sp,
        brk_start: s.brk_start,
        stack_limit: s.stack_limit,
        xsave_mask: s.xsave_mask,
        xsave_size: s.xsave_size,
        cpuid: s.cpuid[..s.cpuid_len as usize].to_vec(),
        initial_mask: s.initial_mask.load(Relaxed),
        initial_ignored: s.initial_ignored.load(Relaxed),
        affinity: s.affinity.to_vec(),
        affinity_len: s.affinity_len,
        cpu: s.cpu,
        attached: s.attached,
        brk_now: s.brk_now,
    }
}

fn region(m: &Mapping, content: Content, name: ByteString) -> Region {
    Region {
        start: m.start,
        len: m.end - m.start,
        prot: m.prot,
        flags: m.flags,
        content,
        name,
    }
}

/// The files behind mappings: those of one file follow one another, and it is kept once.
#[derive(Default)]
struct Files<'a> {
    last: Option<(&'a Path, ContentHash)>,
}

impl<'a> Files<'a> {
    /// What the file of a private mapping contains, kept in the trace.
    fn content(
        &mut self,
        pid: i32,
        shared: &SharedSession,
        keeper: &mut Keeper,
        m: &'a Mapping,
    ) -> Option<ContentHash> {
        if m.flags & (region_flags::FILE | region_flags::SHARED) != region_flags::FILE {
            return None;
        }
        let known = self.last.filter(|(name, _)| *name == m.name);
        let hash = match known {
            Some((_, hash)) => hash,
            None => keep_mapped(pid, shared, keeper, m)?,
        };
        self.last = Some((&m.name, hash));
        Some(hash)
    }
}

/// Keeps the file behind a mapping, if it still is where it was as the program sees it.
fn keep_mapped(
    pid: i32,
    shared: &SharedSession,
    keeper: &mut Keeper,
    m: &Mapping,
) -> Option<ContentHash> {
    let root = Path::new("/proc").join(pid.to_string()).join("root");
    let below = m.name.strip_prefix("/").ok()?;
    for path in [&m.name, &root.join(below)] {
        let Some(meta) = path.metadata().ok().filter(|meta| meta.ino() == m.inode) else {
            continue;
        };
        if let Some(kept) = keeper.known(&meta) {
            return Some(kept.hash);
        }
        let file = File::open(path).ok();
        let same = |f: &File| f.metadata().is_ok_and(|meta| meta.ino() == m.inode);
        if let Some(file) = file.filter(same) {
            return keeper.keep(shared, &file, &m.name).ok().map(|k| k.hash);
        }
    }
    None
}

/// Adds what a mapping holds to the image: the pages that are there, and differ from what they `were`, where that is known.
fn copy_memory(
    stopped: &Stopped,
    m: &Mapping,
    were: Option<&[u8]>,
    image: &mut ImageWriter,
) -> Result<(), TraceError> {
    const CHUNK: u64 = 1 << 20;
    const PAGE_LEN: usize = PAGE as usize;
    // No larger than needed: most mappings are small, and the buffer is cleared for each.
    let mut buffer = vec![0; CHUNK.min(m.end - m.start).next_multiple_of(PAGE) as usize];
    let mut add = |at: u64, bytes: &[u8]| match were {
        None => image.bytes(at, bytes),
        Some(were) => {
            let pages = bytes.chunks_exact(PAGE_LEN).zip((at..).step_by(PAGE_LEN));
            let old = were[(at - m.start) as usize..].chunks_exact(PAGE_LEN);
            let mut changed = pages.zip(old).filter(|((new, _), old)| new != old);
            changed.try_for_each(|((page, at), _)| image.bytes(at, page))
        }
    };
    let mut at = m.start;
    if m.flags & region_flags::STACK != 0 {
        // Below the first stack pointer nothing was ever written.
        at = at.max(stopped.stack_pointer() & !(PAGE - 1));
    }
    while at < m.end {
        let n = (m.end - at).min(CHUNK) as usize;
        // The end of a file mapping may lie beyond the file: such pages can't be read, and nothing is lost.
        if stopped.read(at, &mut buffer[..n]).is_ok() {
            add(at, &buffer[..n])?;
        } else {
            for k in (0..n).step_by(PAGE_LEN) {
                if stopped.read(at + k as u64, &mut buffer[..PAGE_LEN]).is_ok() {
                    add(at + k as u64, &buffer[..PAGE_LEN])?;
                }
            }
        }
        at += n as u64;
    }
    Ok(())
}
