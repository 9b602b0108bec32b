//! Memory images of programs that are stopped before their first instruction.

use reprise_abi::session::region_flags;
use reprise_launch::record::{Mapping, Stopped};
use reprise_launch::SharedSession;
use reprise_trace::{
    ByteString, Content, ContentHash, ImageWriter, Region, Start, Store, TraceError,
};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// Writes image `n` of the trace in `dir`.
///
/// # Errors
/// What went wrong, for people.
pub fn write(
    stopped: &Stopped,
    shared: &SharedSession,
    store: &Store,
    dir: &Path,
    n: u64,
) -> Result<(), String> {
    write_image(stopped, shared, store, dir, n).map_err(|e| e.to_string())
}

fn write_image(
    stopped: &Stopped,
    shared: &SharedSession,
    store: &Store,
    dir: &Path,
    n: u64,
) -> Result<(), TraceError> {
    let mut image = ImageWriter::create_nth(dir, n)?;
    for m in &stopped.mappings {
        let file = if m.flags & region_flags::FILE != 0 && m.prot & libc::PROT_WRITE as u32 == 0 {
            keep_mapped(stopped, store, dir, m)
        } else {
            None
        };
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
            copy_memory(stopped, m, &mut image)?;
        }
    }
    if n > 0 {
        image.start(start(shared));
    }
    image.finish()?;
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
fn keep_mapped(stopped: &Stopped, store: &Store, dir: &Path, m: &Mapping) -> Option<ContentHash> {
    let there = |path: &Path| {
        let file = File::open(path).ok()?;
        let meta = file.metadata().ok()?;
        (meta.ino() == m.inode).then_some(file)
    };
    let root = Path::new("/proc")
        .join(stopped.pid.to_string())
        .join("root");
    let below = m.name.strip_prefix("/").ok()?;
    let file = there(&m.name).or_else(|| there(&root.join(below)))?;
    store.keep_into(&file, &m.name, dir).ok().map(|k| k.hash)
}

fn copy_memory(stopped: &Stopped, m: &Mapping, image: &mut ImageWriter) -> Result<(), TraceError> {
    const CHUNK: u64 = 1 << 20;
    let mut buffer = vec![0; CHUNK as usize];
    let mut at = m.start;
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
