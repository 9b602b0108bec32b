//! A replayed process as data: what a trace begins with of which only the last stretch was kept ([`reprise_trace::beginning`]).
//!
//! The process is a replay that waits for events that it is not given: under `serial` one thread waits for the ring, all others wait until it is
//! their turn; under `order` each waits for its ring or for another one; all in a call of the runtime. Nothing of it is in the kernel but its
//! mappings and what is asked for here: a replay has no files of the program's open, no timers, no signals on their way.

use crate::ReplayError;
use libc::pid_t;
use reprise_abi::layout::{IMAGE_BASE, IMAGE_MAX, PAGE, RESERVATION, RESERVATION_END};
use reprise_abi::layout::{RING_BASE, RING_SIZE, SESSION_BASE, USER_END};
use reprise_abi::order::ORDER_BASE;
use reprise_abi::session::region_flags;
use reprise_launch::inject::{is_in_call, to_go_on, Gate, ALL_SIGNALS};
use reprise_launch::kernel_state;
use reprise_launch::maps::Line;
use reprise_launch::pages::{Pages, Wanted};
use reprise_launch::proc_files::{self, Stat};
use reprise_launch::{ptrace, Part, SavedSession, SharedSession};
use reprise_trace::{
    beginning, ByteString, Content, ContentHash, ImageWriter, Known, Moment, Region, RingStart,
    StoppedThread, FILES_DIR,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// A mapping of a process, as /proc tells of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    pub start: u64,
    pub end: u64,
    pub prot: u32,
    pub shared: bool,
    pub offset: u64,
    pub inode: u64,
    pub name: String,
    pub grows_down: bool,
    /// A child gets nothing of it, or zeros (madvise(2)).
    pub not_inherited: bool,
    pub wiped: bool,
}

/// The process's mappings, in order.
pub(crate) fn mappings(pid: pid_t) -> Result<Vec<Mapping>> {
    let text = std::fs::read(format!("/proc/{pid}/smaps"))?;
    let mut all: Vec<Mapping> = Vec::new();
    for line in text.split(|b| *b == b'\n') {
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            if let Some(last) = all.last_mut() {
                let flags = flags.split(u8::is_ascii_whitespace);
                let has = |flag: &[u8]| flags.clone().any(|f| f == flag);
                (last.grows_down, last.not_inherited, last.wiped) =
                    (has(b"gd"), has(b"dc"), has(b"wf"));
            }
        } else if let Some(line) = Line::parse(line) {
            all.push(Mapping::of(&line));
        }
    }
    all.retain(|m| m.end <= USER_END);
    Ok(all)
}

impl Mapping {
    fn of(line: &Line) -> Mapping {
        Mapping {
            start: line.range.start,
            end: line.range.end,
            prot: line.prot(),
            shared: line.is_shared(),
            offset: line.offset,
            inode: line.inode,
            name: line.name.to_string_lossy().into_owned(),
            ..Mapping::default()
        }
    }

    fn is_within(&self, start: u64, len: u64) -> bool {
        start <= self.start && self.end <= start + len
    }

    /// Is it of the runtime's own image?
    pub fn is_image(&self) -> bool {
        self.is_within(IMAGE_BASE, IMAGE_MAX)
    }

    /// Is it the same in each replay of a trace: shared memory of the session, and the runtime's code?
    pub fn stays(&self) -> bool {
        let of_session = self.shared && self.is_within(RESERVATION, RESERVATION_END - RESERVATION);
        of_session || (self.is_image() && self.prot & libc::PROT_WRITE as u32 == 0)
    }
}

/// The threads of a process that waits, stopped and traced; they are let go when this is dropped.
pub(crate) struct Stopped {
    pub tids: Vec<pid_t>,
    pub gate: Gate,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for tid in &self.tids {
            let _ = ptrace::detach(*tid);
        }
    }
}

impl Stopped {
    /// Stops all threads of a process with these options of ptrace(2); `None` when one of them does something other than wait in the runtime.
    pub fn all(pid: pid_t, options: i32) -> Result<Option<Stopped>> {
        let mut stopped = Stopped {
            tids: Vec::new(),
            gate: Gate::default(),
        };
        let mut quiet = true;
        loop {
            let mut new: BTreeSet<pid_t> = BTreeSet::new();
            let tids = proc_files::threads_of(pid)?;
            new.extend(tids.filter(|tid| !stopped.tids.contains(tid)));
            // A first thread that has ended while others live can't be traced.
            new.retain(|tid| !has_ended(pid, *tid));
            if new.is_empty() {
                break;
            }
            for tid in new {
                match stop(pid, tid, options) {
                    Ok(gate) => {
                        stopped.tids.push(tid);
                        stopped.gate = gate.unwrap_or(stopped.gate);
                        quiet &= gate.is_some();
                    }
                    // It has just ended.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                    Err(e) => return Err(e),
                }
            }
        }
        // The first thread is what becomes of a process that is made anew.
        stopped.tids.sort_by_key(|tid| (*tid != pid, *tid));
        Ok((quiet && !stopped.tids.is_empty()).then_some(stopped))
    }
}

/// Stops a thread: the gate behind which it waits, if it does.
fn stop(pid: pid_t, tid: pid_t, options: i32) -> Result<Option<Gate>> {
    ptrace::seize(tid, options)?;
    ptrace::interrupt(tid)?;
    if !libc::WIFSTOPPED(ptrace::wait(tid)?) {
        return match tid == pid {
            true => Err(Error::other("the replayed process has ended")),
            false => Err(Error::from_raw_os_error(libc::ESRCH)),
        };
    }
    let r = ptrace::registers(tid)?;
    let memory = memory_of(tid)?;
    let in_runtime = (RESERVATION..RESERVATION_END).contains(&r.rip);
    let gate = Gate::of(&r, |at, into| memory.read_exact_at(into, at).is_ok());
    Ok(gate.filter(|_| in_runtime && waits(&r)))
}

/// Was a thread of the runtime with these registers stopped where it waits for the driver or for another thread? One that is in any other call is about to
/// go on, however long the kernel takes: what it has asked for, a descriptor of the driver's perhaps, means nothing in another process.
fn waits(r: &libc::user_regs_struct) -> bool {
    /// The last one is how one of the others goes on that was interrupted before.
    const WAITS: [i64; 4] = [
        libc::SYS_futex,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_restart_syscall,
    ];
    is_in_call(r) && WAITS.contains(&(r.orig_rax as i64))
}

fn has_ended(pid: pid_t, tid: pid_t) -> bool {
    Stat::of_thread(pid, tid).map_or(true, |stat| stat.has_ended())
}

/// A process's memory.
pub(crate) fn memory_of(pid: pid_t) -> Result<File> {
    let path = format!("/proc/{pid}/mem");
    File::options().read(true).write(true).open(path)
}

/// A process's descriptors, in order.
fn descriptors(pid: pid_t) -> Result<Vec<i32>> {
    let mut fds: Vec<i32> = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        fds.extend(
            entry
                .file_name()
                .to_str()
                .and_then(|n| n.parse::<i32>().ok()),
        );
    }
    fds.sort_unstable();
    Ok(fds)
}

/// The descriptor by which a replayed process opens the files of its trace.
pub(crate) fn descriptor_of_files(pid: pid_t, dir: &Path) -> Result<i32> {
    let wanted = dir.join(FILES_DIR).canonicalize()?;
    let is_it = |fd: &i32| {
        std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).is_ok_and(|link| link == wanted)
    };
    // The child was made with it: it is the last of them.
    let found = descriptors(pid)?.into_iter().rev().find(is_it);
    found.ok_or_else(|| Error::other("the replayed process has not the trace's files open"))
}

/// Where a trace begins.
pub(crate) struct Begins<'a> {
    /// The first event that it is to have.
    pub event: u64,
    /// Where the frame of that begins in the stream.
    pub at_byte: u64,
    /// Under `order`: where that lies in the rings.
    pub rings: Vec<RingStart>,
    /// What the events before it told.
    pub known: &'a Known,
}

/// The process as data: what has used up all events before that one, and waits. `begin` makes the image that gets its memory. `None`: it does not wait yet.
///
/// # Errors
/// When it has memory that can't be kept, or it can't be written.
pub(crate) fn freeze<I>(
    pid: pid_t,
    shared: &SharedSession,
    copies: &BTreeMap<u64, File>,
    dir: &Path,
    begins: Begins,
    begin: impl FnOnce() -> reprise_trace::Result<I>,
) -> std::result::Result<Option<(I, Moment)>, ReplayError>
where
    I: AsMut<ImageWriter>,
{
    let io = |source| ReplayError::Io {
        what: "keep the state of a replay".into(),
        source,
    };
    let Some(stopped) = Stopped::all(pid, libc::PTRACE_O_TRACESYSGOOD).map_err(io)? else {
        return Ok(None);
    };
    // Of a process whose first thread has ended /proc tells by another one.
    let pid = stopped.tids[0];
    let mut threads = Vec::new();
    let memory = memory_of(pid).map_err(io)?;
    for tid in &stopped.tids {
        threads.push(thread(*tid, stopped.gate, &memory).map_err(io)?);
    }
    let mut begun = begin()?;
    let image = begun.as_mut();
    let all = mappings(pid).map_err(io)?;
    let reader = MemoryReader {
        files: dir.join(FILES_DIR).canonicalize().map_err(io)?,
        inodes: inodes(copies).map_err(io)?,
        pages: Pages::of(pid).map_err(io)?,
    };
    let below = |limit: u64, from: u64, image: &mut ImageWriter| {
        let there = all.iter().filter(|m| (from..limit).contains(&m.start));
        there.into_iter().try_for_each(|m| reader.regions(m, image))
    };
    let saved = shared.save()?;
    below(SESSION_BASE, 0, image)?;
    session(&saved, Part::SESSION, image)?;
    below(beginning::COPIES, SESSION_BASE, image)?;
    let copies = keep_copies(pid, copies, image)?;
    below(ORDER_BASE, beginning::COPIES, image)?;
    if shared.order().is_some() {
        session(&saved, Part::ORDER, image)?;
    }
    below(u64::MAX, ORDER_BASE, image)?;
    let moment = Moment {
        event: begins.event,
        at_byte: begins.at_byte,
        rings: begins.rings,
        stamp: shared.order().map_or(0, |h| h.stamp.0.load(SeqCst)),
        copies,
        known: begins.known.clone(),
        files: descriptor_of_files(pid, dir).map_err(io)?,
        threads,
    };
    Ok(Some((begun, moment)))
}

/// What is to be known of a stopped thread. It makes calls for that, and then is as it was.
fn thread(tid: pid_t, gate: Gate, memory: &File) -> Result<StoppedThread> {
    let stopped = ptrace::registers(tid)?;
    let registers = to_go_on(stopped);
    let mut thread = StoppedThread {
        tid,
        registers: words_of(&as_woken(stopped)),
        vectors: ptrace::vectors(tid)?,
        mask: ptrace::signal_mask(tid)?,
        clears: 0,
        signal_stack: [0; 3],
    };
    ptrace::set_signal_mask(tid, ALL_SIGNALS)?;
    let asked = kernel_state::ask(gate, tid, memory, registers.rsp);
    ptrace::set_registers(tid, &registers)?;
    ptrace::set_signal_mask(tid, thread.mask)?;
    (thread.clears, thread.signal_stack) = asked?;
    Ok(thread)
}

/// The registers with which a thread goes on that slept: it looks again for itself, and may then find that it has to wait for something else. In total
/// order that is its turn, and whoever has the turn would never be woken from a sleep that another one is to end.
fn as_woken(mut r: libc::user_regs_struct) -> libc::user_regs_struct {
    if r.orig_rax != libc::SYS_futex as u64 {
        return to_go_on(r);
    }
    r.rax = -(libc::EINTR as i64) as u64;
    r.orig_rax = u64::MAX;
    r
}

fn words_of(r: &libc::user_regs_struct) -> Vec<u64> {
    // SAFETY: the structure is as many plain words.
    let words: [u64; beginning::REGISTERS] = unsafe { std::mem::transmute(*r) };
    words.to_vec()
}

/// A part of the session's memory, as one more region, where it is mapped.
fn session(
    saved: &SavedSession,
    part: Part,
    image: &mut ImageWriter,
) -> std::result::Result<(), ReplayError> {
    image.region(Region {
        start: part.start,
        len: part.len,
        prot: 3,
        flags: region_flags::SHARED,
        content: Content::Zero,
        name: ByteString::from("session"),
    })?;
    for (at, page) in saved.pages(part) {
        image.bytes(at, page)?;
    }
    Ok(())
}

/// The files' numbers, by their inodes.
fn inodes(copies: &BTreeMap<u64, File>) -> Result<BTreeMap<u64, u64>> {
    let inode = |(n, file): (&u64, &File)| Ok((file.metadata()?.ino(), *n));
    copies.iter().map(inode).collect()
}

/// The copies of files that are mapped shared, each as one more region.
fn keep_copies(
    pid: pid_t,
    copies: &BTreeMap<u64, File>,
    image: &mut ImageWriter,
) -> std::result::Result<Vec<beginning::Copy>, ReplayError> {
    let io = |source| ReplayError::Io {
        what: "read a shared file of a replay".into(),
        source,
    };
    let open = descriptors(pid).map_err(io)?;
    let (mut kept, mut start) = (Vec::new(), beginning::COPIES);
    for (number, file) in copies {
        let meta = file.metadata().map_err(io)?;
        let is_it = |fd: &&i32| {
            let there = std::fs::metadata(format!("/proc/{pid}/fd/{fd}"));
            there.is_ok_and(|m| (m.dev(), m.ino()) == (meta.dev(), meta.ino()))
        };
        // The driver's own descriptor of it was there before.
        let descriptor = open.iter().rev().find(is_it).copied().unwrap_or(-1);
        let copy = beginning::Copy {
            number: *number,
            len: meta.len(),
            descriptor,
        };
        if copy.room() > beginning::COPIES_END - start {
            return Err(ReplayError::Unsupported(
                "the program has more files mapped shared than can be kept".into(),
            ));
        }
        image.region(Region {
            start,
            len: copy.room(),
            prot: 3,
            flags: region_flags::SHARED,
            content: Content::Zero,
            name: ByteString::from("copy"),
        })?;
        let mut at = 0;
        let mut bytes = vec![0u8; CHUNK];
        while at < copy.len {
            let n = (copy.room() - at).min(CHUNK as u64) as usize;
            let there = (copy.len - at).min(n as u64) as usize;
            bytes[there..n].fill(0);
            file.read_exact_at(&mut bytes[..there], at).map_err(io)?;
            image.bytes(start + at, &bytes[..n])?;
            at += n as u64;
        }
        start += copy.room();
        kept.push(copy);
    }
    Ok(kept)
}

/// What the memory of a process is read from.
struct MemoryReader {
    files: PathBuf,
    inodes: BTreeMap<u64, u64>,
    pages: Pages,
}

impl MemoryReader {
    /// A mapping, with what differs from the file that it shows or from zeros; its guard pages are regions of their own.
    fn regions(
        &self,
        m: &Mapping,
        image: &mut ImageWriter,
    ) -> std::result::Result<(), ReplayError> {
        if m.stays() {
            return Ok(());
        }
        for (part, guarded) in self.pages.parts(m.start..m.end) {
            let skipped = if m.inode != 0 {
                part.start - m.start
            } else {
                0
            };
            let part = Mapping {
                start: part.start,
                end: part.end,
                offset: m.offset + skipped,
                ..m.clone()
            };
            self.region(&part, guarded, image)?;
        }
        Ok(())
    }

    fn region(
        &self,
        m: &Mapping,
        guarded: bool,
        image: &mut ImageWriter,
    ) -> std::result::Result<(), ReplayError> {
        let path = Path::new(&m.name);
        let of_trace = path.parent() == Some(&self.files);
        let hash = path
            .file_name()
            .and_then(|n| ContentHash::from_hex(n.to_str()?));
        let hash = hash.filter(|_| of_trace && !m.shared);
        let copy = match m.name.starts_with("/memfd:shared") {
            true => self.inodes.get(&m.inode),
            false => None,
        };
        let content = match hash.or(copy.map(|_| ContentHash::default())) {
            Some(hash) => Content::File {
                hash,
                file_offset: m.offset,
                runs: Vec::new(),
            },
            None => Content::Zero,
        };
        let anonymous = m.name.is_empty() || m.name.starts_with('[');
        let is_file = matches!(content, Content::File { .. });
        let zeros = m.shared && m.name.starts_with("/dev/zero");
        if !(anonymous || is_file || zeros || m.is_image()) {
            return Err(ReplayError::Unsupported(format!(
                "the program has memory of which the last stretch can't be kept: {}, at {:#x}",
                m.name, m.start
            )));
        }
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        image.region(Region {
            start: m.start,
            len: m.end - m.start,
            prot: m.prot,
            flags: flag(m.shared, region_flags::SHARED)
                | flag(is_file, region_flags::FILE)
                | flag(m.grows_down, region_flags::STACK)
                | flag(m.not_inherited, region_flags::NOT_INHERITED)
                | flag(m.wiped, region_flags::WIPED)
                | flag(guarded, region_flags::GUARDED),
            content,
            name: match copy {
                Some(number) => ByteString::from(&format!("{}{number}", beginning::COPY)),
                None => ByteString::from(&m.name),
            },
        })?;
        if guarded || (m.shared && is_file) {
            return Ok(());
        }
        let wanted = match () {
            () if is_file => Wanted::Changed,
            // Pages of a private file that is the runtime's, and those that are shared, may be there without being mapped.
            () if m.shared || m.is_image() => Wanted::All,
            () => Wanted::Present,
        };
        let io = |source| ReplayError::Io {
            what: format!("read the memory of a replay at {:#x}", m.start),
            source,
        };
        let add = |at, bytes: &[u8]| image.bytes(at, bytes).map_err(ReplayError::from);
        self.pages.each(m.start..m.end, wanted, io, add)
    }
}

const _: () = assert!(RING_BASE % PAGE == 0 && RING_SIZE % PAGE == 0);

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers of a thread that was stopped in this call, which it would make again.
    fn stopped_in(call: i64) -> libc::user_regs_struct {
        const ERESTARTSYS: i64 = 512;
        // SAFETY: plain words.
        let mut r: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (r.orig_rax, r.rax) = (call as u64, -ERESTARTSYS as u64);
        r
    }

    #[test]
    fn only_who_waits_for_others_is_at_rest() {
        assert!(waits(&stopped_in(libc::SYS_futex)));
        assert!(waits(&stopped_in(libc::SYS_nanosleep)));
        assert!(waits(&stopped_in(libc::SYS_restart_syscall)));
        // A supervisor may keep it waiting, but its path has the driver's number in it.
        assert!(!waits(&stopped_in(libc::SYS_openat)));
        let mut computes = stopped_in(libc::SYS_futex);
        computes.orig_rax = u64::MAX;
        assert!(!waits(&computes));
    }
}
