//! A process out of the beginning of a trace of which only the last stretch was kept: the reverse of [`crate::freeze`].
//!
//! A replay is started as always, and waits for its first event, which it is not given. Then its memory is exchanged from outside, by calls
//! that it makes in the driver's name; what the kernel knows of a replay beside that (handlers, what traps, limits) is the same at any time. At last
//! its threads are made. They go on when the caller lets them.

use crate::feed;
use crate::freeze::{descriptor_of_files, mappings, memory_of, Stopped};
use crate::tree::memory_file;
use crate::ReplayError;
use libc::{pid_t, user_regs_struct};
use reprise_abi::layout::{IMAGE_BASE, IMAGE_MAX, MAX_SLOTS};
use reprise_abi::order::OrderHead;
use reprise_abi::session::{region_flags, Session};
use reprise_abi::waits::What;
use reprise_launch::inject::{Gate, ALL_SIGNALS, THREAD};
use reprise_launch::kernel_state;
use reprise_launch::{ptrace, Part, SavedSession, SharedSession};
use reprise_trace::beginning::{COPIES, COPIES_END, COPY};
use reprise_trace::{opened, Content, ImageReader, Moment, Region, StoppedThread, FILES_DIR};
use std::collections::{hash_map::Entry, BTreeMap, HashMap};
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// Of madvise(2), Linux 6.13; no libc has it yet.
const MADV_GUARD_INSTALL: i32 = 102;

/// Of the threads that are traced meanwhile.
const OPTIONS: i32 =
    libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;

/// The beginning of a trace, and the files that its memory shows: opened before the process is made, which has them from then on.
pub(crate) struct Beginning {
    image: ImageReader,
    pub moment: Moment,
    files: HashMap<String, File>,
    /// Those that were mapped shared, by number.
    pub copies: BTreeMap<u64, File>,
}

impl Beginning {
    /// That of the trace in `dir`; `None` when it has all events.
    pub fn open(dir: &Path) -> std::result::Result<Option<Beginning>, ReplayError> {
        match reprise_trace::beginning::open(dir)? {
            Some((image, moment)) => Beginning::of(dir, image, moment).map(Some),
            None => Ok(None),
        }
    }

    /// One that is this image, of this moment.
    pub fn of(
        dir: &Path,
        image: ImageReader,
        moment: Moment,
    ) -> std::result::Result<Beginning, ReplayError> {
        let mut files = HashMap::new();
        let mut copies = BTreeMap::new();
        for c in &moment.copies {
            let copy = memory_file(c.len).map_err(|source| ReplayError::Io {
                what: "make room for the copy of a mapped file".into(),
                source,
            })?;
            copies.insert(c.number, copy);
        }
        for r in &image.image().regions {
            if let (Content::File { hash, .. }, None) = (&r.content, number_of(r)) {
                let name = hash.to_string();
                let path = dir.join(FILES_DIR).join(&name);
                if let Entry::Vacant(new) = files.entry(name) {
                    let name = Path::new(FILES_DIR).join(new.key());
                    new.insert(opened::open(dir, name).map_err(|source| ReplayError::Io {
                        what: format!("open {}", path.display()),
                        source,
                    })?);
                }
            }
        }
        Ok(Beginning {
            image,
            moment,
            files,
            copies,
        })
    }

    /// The descriptors of its files, which the process needs.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let all = self.files.values().chain(self.copies.values());
        all.map(AsRawFd::as_raw_fd).collect()
    }

    /// Makes a replay that waits for its first event what the trace begins with, still stopped. `None`: it does not wait yet.
    pub fn thaw(
        &mut self,
        pid: pid_t,
        shared: &mut SharedSession,
        dir: &Path,
    ) -> std::result::Result<Option<Stopped>, ReplayError> {
        let io = |source| ReplayError::Io {
            what: "make a process of the trace's beginning".into(),
            source,
        };
        let Some(mut stopped) = Stopped::all(pid, OPTIONS).map_err(io)? else {
            return Ok(None);
        };
        let [first] = stopped.tids[..] else {
            return Ok(None);
        };
        let gate = stopped.gate;
        ptrace::set_signal_mask(first, ALL_SIGNALS).map_err(io)?;
        let own = descriptor_of_files(pid, dir).map_err(io)?;
        self.map(first, gate).map_err(io)?;
        let memory = memory_of(pid).map_err(io)?;
        let saved = self.fill(&memory)?;
        let s = shared.session();
        let (flags, only) = (s.flags, s.only);
        let tamper = (s.tamper_address, s.tamper_event);
        let voids = Voids::of(shared);
        shared.put_back(&saved)?;
        voids.put_back(shared);
        let s = shared.session_mut();
        (s.flags, s.only) = (flags, only);
        (s.tamper_address, s.tamper_event) = tamper;
        self.give_descriptors(first, gate, own).map_err(io)?;
        for (number, file) in &self.copies {
            let word = shared.session().shared_files.get(*number as usize);
            let word = word.ok_or_else(|| io(Error::other("a file has an impossible number")))?;
            word.store(file.as_raw_fd() as u32 + 1, SeqCst);
        }
        for thread in &self.moment.threads[1..] {
            let made = gate.make(first, THREAD, thread.clears);
            stopped.tids.push(made.map_err(io)?);
        }
        for (thread, tid) in self.moment.threads.iter().zip(&stopped.tids) {
            revive(thread, *tid, gate, &memory).map_err(io)?;
        }
        let now = stopped.tids.iter().copied();
        let pairs: Vec<(pid_t, pid_t)> =
            self.moment.threads.iter().map(|t| t.tid).zip(now).collect();
        at_home(shared, pid, &pairs);
        Ok(Some(stopped))
    }

    /// Exchanges all mappings but those that are the same in each replay.
    fn map(&self, tid: pid_t, gate: Gate) -> Result<()> {
        let call = |number: i64, args: &[u64]| gate.call(tid, number, args)?.ok();
        let (stay, go): (Vec<_>, Vec<_>) = mappings(tid)?.into_iter().partition(|m| m.stays());
        for m in &go {
            call(libc::SYS_munmap, &[m.start, m.end - m.start])?;
        }
        for r in self.regions() {
            // Else the image would bring along another runtime than the one that is known.
            if stay.iter().any(|m| r.start < m.end && m.start < r.end()) {
                return Err(Error::other("memory lies where the runtime's is"));
            }
            let kind = match r.flags & region_flags::SHARED {
                0 => libc::MAP_PRIVATE,
                _ => libc::MAP_SHARED,
            };
            let grows = match r.flags & region_flags::STACK {
                0 => 0,
                _ => libc::MAP_GROWSDOWN,
            };
            let fixed = kind | grows | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let (flags, fd, offset) = match &r.content {
                Content::File {
                    hash, file_offset, ..
                } => {
                    let file = match number_of(r) {
                        Some(number) => self.copies.get(&number),
                        None => self.files.get(&hash.to_string()),
                    };
                    let file = file.ok_or_else(|| Error::other("a file is missing"))?;
                    (fixed, file.as_raw_fd() as u64, *file_offset)
                }
                _ => (fixed | libc::MAP_ANONYMOUS, u64::MAX, 0),
            };
            let args = [r.start, r.len, r.prot as u64, flags as u64, fd, offset];
            if call(libc::SYS_mmap, &args)? != r.start {
                return Err(Error::other("memory is not where it was wanted"));
            }
            let advice = [
                (region_flags::NOT_INHERITED, libc::MADV_DONTFORK),
                (region_flags::WIPED, libc::MADV_WIPEONFORK),
                (region_flags::GUARDED, MADV_GUARD_INSTALL),
            ];
            for (_, how) in advice.iter().filter(|(flag, _)| r.flags & flag != 0) {
                call(libc::SYS_madvise, &[r.start, r.len, *how as u64])?;
            }
        }
        Ok(())
    }

    /// Gives the process the descriptors that it had: of the trace's files, which are its descriptor `files` now, and of copies.
    fn give_descriptors(&self, tid: pid_t, gate: Gate, files: i32) -> Result<()> {
        /// Above all that a replay has.
        const HIGH: u64 = 512;
        let call = |number: i64, args: &[u64]| gate.call(tid, number, args)?.ok();
        let copies = self.moment.copies.iter().filter_map(|c| {
            let now = self.copies.get(&c.number)?.as_raw_fd();
            (c.descriptor >= 0).then_some((now, c.descriptor))
        });
        let mut moved = Vec::new();
        for (now, then) in copies.chain([(files, self.moment.files)]) {
            let args = [now as u64, libc::F_DUPFD_CLOEXEC as u64, HIGH];
            moved.push((call(libc::SYS_fcntl, &args)?, then as u64));
        }
        for (now, then) in moved {
            call(libc::SYS_dup2, &[now, then])?;
            call(libc::SYS_close, &[now])?;
        }
        Ok(())
    }

    /// All regions but those of the session, and what was in files.
    fn regions(&self) -> impl Iterator<Item = &Region> {
        let all = self.image.image().regions.iter();
        all.filter(|r| part_in(r).is_none() && !is_copy(r))
    }

    /// The copy that is in this region, and where that begins.
    fn copy_in(&self, r: &Region) -> Option<(&File, u64)> {
        let mut start = COPIES;
        for c in &self.moment.copies {
            if start == r.start {
                return Some((self.copies.get(&c.number)?, start));
            }
            start = start.saturating_add(c.room());
        }
        None
    }

    /// Fills the memory; the session's.
    fn fill(&mut self, memory: &File) -> std::result::Result<SavedSession, ReplayError> {
        let mut saved = SavedSession::default();
        let io = |source| ReplayError::Io {
            what: "fill the memory of the trace's beginning".into(),
            source,
        };
        for i in 0..self.image.image().regions.len() {
            let region = &self.image.image().regions[i];
            let of_session = part_in(region);
            let missing = is_copy(region) && self.copy_in(region).is_none();
            let copy = self
                .copy_in(region)
                .map(|(file, at)| (file.try_clone(), at));
            let copy = match copy {
                Some((Ok(file), at)) => Some((file, at)),
                Some((Err(e), _)) => return Err(io(e)),
                None if missing => return Err(io(Error::other("a shared file is not known"))),
                None => None,
            };
            let mut failed = None;
            self.image.read_region(i, |at, bytes| {
                if let Some(part) = of_session {
                    if !saved.add(part, at, bytes) {
                        failed.get_or_insert(Error::other("the session's memory is too large"));
                    }
                } else if let Some((file, start)) = &copy {
                    failed = failed.take().or(file.write_all_at(bytes, at - start).err());
                } else if let Err(e) = memory.write_all_at(bytes, at) {
                    failed.get_or_insert(e);
                }
                Ok(())
            })?;
            if let Some(source) = failed {
                return Err(io(source));
            }
        }
        for c in &self.moment.copies {
            if let Some(file) = self.copies.get(&c.number) {
                file.set_len(c.len).map_err(io)?;
            }
        }
        Ok(saved)
    }
}

/// The part of the session's memory that is in this region.
fn part_in(r: &Region) -> Option<Part> {
    Part::ALL.into_iter().find(|p| p.start == r.start)
}

/// Is it no memory of the process, but what was in a file?
fn is_copy(r: &Region) -> bool {
    (COPIES..COPIES_END).contains(&r.start)
}

/// Under `order`: the stamps that no event has. Who made the beginning did not know them yet.
struct Voids(Vec<u64>);

impl Voids {
    fn of(shared: &SharedSession) -> Voids {
        let known = |h: &OrderHead| {
            let n = h.voids.load(SeqCst) as usize;
            let all = h.void.iter().map(|v| v.load(SeqCst));
            all.take(n).collect()
        };
        Voids(shared.order().map_or(Vec::new(), known))
    }

    fn put_back(self, shared: &SharedSession) {
        let Some(head) = shared.order() else {
            return;
        };
        for (to, stamp) in head.void.iter().zip(&self.0) {
            to.store(*stamp, SeqCst);
        }
        head.voids.store(self.0.len() as u64, SeqCst);
        // The next one may be among them: then its turn is over, which those who wait for the one after it are told.
        let mut next = (head.stamp.0.load(SeqCst)..).filter(|n| self.0.binary_search(n).is_err());
        if let Some(n) = next.next() {
            head.stamp.0.store(n, SeqCst);
            feed::call(head, What::Stamp(n), 0);
        }
    }
}

/// The number of the copy that a region shows.
fn number_of(r: &Region) -> Option<u64> {
    let name = std::str::from_utf8(r.name.as_bytes()).ok()?;
    name.strip_prefix(COPY)?.parse().ok()
}

/// Gives a thread what it had.
fn revive(thread: &StoppedThread, tid: pid_t, gate: Gate, memory: &File) -> Result<()> {
    const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
    const ON: u64 = 1;
    let registers = registers_of(thread)?;
    let dispatch = [PR_SET_SYSCALL_USER_DISPATCH, ON, IMAGE_BASE, IMAGE_MAX];
    ptrace::set_signal_mask(tid, ALL_SIGNALS)?;
    gate.call(tid, libc::SYS_set_tid_address, &[thread.clears])?
        .ok()?;
    gate.call(tid, libc::SYS_prctl, &dispatch)?.ok()?;
    kernel_state::give_signal_stack(gate, tid, memory, registers.rsp, thread.signal_stack)?;
    ptrace::set_vectors(tid, &mut thread.vectors.clone())?;
    ptrace::set_registers(tid, &registers)?;
    ptrace::set_signal_mask(tid, thread.mask)
}

fn registers_of(thread: &StoppedThread) -> Result<user_regs_struct> {
    let words: [u64; reprise_trace::beginning::REGISTERS] = thread
        .registers
        .clone()
        .try_into()
        .map_err(|_| Error::other("a thread has an impossible number of registers"))?;
    // SAFETY: the structure is as many plain words.
    Ok(unsafe { std::mem::transmute::<[u64; 27], user_regs_struct>(words) })
}

/// The session is that of another driver: what belongs to this one is set. `pairs`: the kernel's ids of the threads, then and now.
fn at_home(shared: &SharedSession, pid: pid_t, pairs: &[(pid_t, pid_t)]) {
    let s: &Session = shared.session();
    let used = s.slots_used.load(SeqCst) as usize;
    for i in 0..used.min(MAX_SLOTS) {
        let slot = shared.slot(i);
        let old = slot.kernel_tid.load(SeqCst) as pid_t;
        if let Some((_, new)) = pairs.iter().find(|(was, _)| *was == old) {
            slot.kernel_tid.store(*new as u32, SeqCst);
            slot.kernel_pid.store(pid as u32, SeqCst);
        }
    }
    s.processes[0].kernel_pid.store(pid as u32, SeqCst);
    s.processes[0].debugged.store(0, SeqCst);
    s.agent_pid.store(std::process::id(), SeqCst);
    s.agent_asleep.store(0, SeqCst);
    s.ring.producer_asleep.store(0, SeqCst);
    s.counters.hashes.store(0, SeqCst);
    s.counters.hashed.store(0, SeqCst);
}
