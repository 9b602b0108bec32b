//! Memory images of programs that are stopped before their first instruction.

use crate::kept::Keeper;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;
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
/// As [`write`].
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

fn fill(
    stopped: &Stopped,
    shared: &mut SharedSession,
    keeper: &mut Keeper,
    image: &mut ImageWriter,
) -> Result<(), TraceError> {
    // Mappings of one file follow one another.
    let mut last: Option<(&Path, Option<ContentHash>)> = None;
    for (i, m) in stopped.mappings.iter().enumerate() {
        let file = if m.flags & region_flags::FILE != 0 && m.prot & libc::PROT_WRITE as u32 == 0 {
            let known = last.filter(|(name, _)| *name == m.name).map(|(_, hash)| hash);
            known.unwrap_or_else(|| keep_mapped(stopped, shared, keeper, m))
        } else {
            None
        };
        if file.is_some() {
            last = Some((&m.name, file));
        }
        if let (Some(hash), Some(r)) = (file, shared.session_mut().initial_regions.get_mut(i)) {
            r.content = hash.to_words();
        }
        let whole = file.is_none();
        let content = match file {
            Some(hash) => Content::File {
                hash,
                file_offset: m.offset,
                runs: Vec::new(),
            },
            None => Content::Zero,
        };
        let name = ByteString::from(m.name.as_os_str());
        image.region(region(m, content, name))?;
        if whole && m.prot & libc::PROT_READ as u32 != 0 {
            copy_memory(stopped, m, image)?;
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
        cpu: s.cpu,
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

/// Keeps the file behind a mapping, if it still is where it was as the program sees it.
fn keep_mapped(
    stopped: &Stopped,
    shared: &SharedSession,
    keeper: &mut Keeper,
    m: &Mapping,
) -> Option<ContentHash> {
    let root = Path::new("/proc")
        .join(stopped.pid.to_string())
        .join("root");
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

fn copy_memory(stopped: &Stopped, m: &Mapping, image: &mut ImageWriter) -> Result<(), TraceError> {
    const CHUNK: u64 = 1 << 20;
    // No larger than needed: most mappings are small, and the buffer is cleared for each.
    let mut buffer = vec![0; CHUNK.min(m.end - m.start).next_multiple_of(4096) as usize];
    let mut at = m.start;
    if m.flags & region_flags::STACK != 0 {
        // Below the first stack pointer nothing was ever written.
        at = at.max(stopped.stack_pointer() & !(PAGE - 1));
    }
    while at < m.end {
        let n = (m.end - at).min(CHUNK) as usize;
        // The end of a file mapping may lie beyond the file: such pages can't be read, and nothing is lost.
        if stopped.read(at, &mut buffer[..n]).is_ok() {
            image.bytes(at, &buffer[..n])?;
        } else {
            for k in (0..n).step_by(4096) {
                if stopped.read(at + k as u64, &mut buffer[..4096]).is_ok() {
                    image.bytes(at + k as u64, &buffer[..4096])?;
                }
            }
        }
        at += n as u64;
    }
    Ok(())
}
