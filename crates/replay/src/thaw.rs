//! A process out of the beginning of a trace of which only the last stretch was kept: the reverse of [`crate::freeze`].
//!
//! A replay is started as always, and waits for its first event, which it is not given. Then its memory is exchanged from outside, by calls
//! that it makes in the driver's name; what the kernel knows of a replay beside that (handlers, what traps, limits) is the same at any time. At last
//! its threads are made.

use crate::freeze::{descriptor_of_files, mappings, memory_of, with_room, Stopped};
use crate::ReplayError;
use libc::{pid_t, user_regs_struct};
use reprise_abi::layout::{IMAGE_BASE, IMAGE_MAX, MAX_SLOTS, SESSION_BASE};
use reprise_abi::session::{region_flags, Session};
use reprise_launch::inject::{Gate, ALL_SIGNALS};
use reprise_launch::{ptrace, SavedSession, SharedSession};
use reprise_trace::{Content, ImageReader, Moment, Region, StoppedThread, FILES_DIR};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// How a thread is made.
const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_CHILD_CLEARTID;
/// Of the threads that are traced meanwhile.
const OPTIONS: i32 =
    libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
/// In the flags of a signal stack: what only says that the thread is on it.
const SS_ONSTACK: u64 = 1;

/// The beginning of a trace, and the files that its memory shows: opened before the process is made, which has them from then on.
pub(crate) struct Beginning {
    image: ImageReader,
    pub moment: Moment,
    files: HashMap<String, File>,
}

impl Beginning {
    /// That of the trace in `dir`; `None` when it has all events.
    pub fn open(dir: &Path) -> std::result::Result<Option<Beginning>, ReplayError> {
        let Some((image, moment)) = reprise_trace::beginning::open(dir)? else {
            return Ok(None);
        };
        let mut files = HashMap::new();
        for r in &image.image().regions {
            if let Content::File { hash, .. } = &r.content {
                let name = hash.to_string();
                let path = dir.join(FILES_DIR).join(&name);
                let open = || File::open(&path);
                if !files.contains_key(&name) {
                    let file = open().map_err(|source| ReplayError::Io {
                        what: format!("open {}", path.display()),
                        source,
                    })?;
                    files.insert(name, file);
                }
            }
        }
        Ok(Some(Beginning {
            image,
            moment,
            files,
        }))
    }

    /// Makes a replay that waits for its first event what the trace begins with. False: it does not wait yet.
    pub fn thaw(
        &mut self,
        pid: pid_t,
        shared: &mut SharedSession,
        dir: &Path,
    ) -> std::result::Result<bool, ReplayError> {
        let io = |source| ReplayError::Io {
            what: "make a process of the trace's beginning".into(),
            source,
        };
        let Some(mut stopped) = Stopped::all(pid, OPTIONS).map_err(io)? else {
            return Ok(false);
        };
        let [first] = stopped.tids[..] else {
            return Ok(false);
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
        shared.put_back(&saved)?;
        let s = shared.session_mut();
        (s.flags, s.only) = (flags, only);
        (s.tamper_address, s.tamper_event) = tamper;
        if own != self.moment.files {
            let moved = [own as u64, self.moment.files as u64];
            let made = gate.call(first, libc::SYS_dup2, &moved);
            made.and_then(|a| a.ok()).map_err(io)?;
        }
        for thread in &self.moment.threads[1..] {
            let made = gate.make(first, THREAD, thread.clears);
            stopped.tids.push(made.map_err(io)?);
        }
        for (thread, tid) in self.moment.threads.iter().zip(&stopped.tids) {
            revive(thread, *tid, gate, &memory).map_err(io)?;
        }
        let now = stopped.tids.iter().copied();
        let pairs: Vec<(pid_t, pid_t)> = self.moment.threads.iter().map(|t| t.tid).zip(now).collect();
        at_home(shared, pid, &pairs);
        Ok(true)
    }

    /// Exchanges all mappings but those that are the same in each replay.
    fn map(&self, tid: pid_t, gate: Gate) -> Result<()> {
        let call = |number: i64, args: &[u64]| gate.call(tid, number, args)?.ok();
        for m in mappings(tid)?.iter().filter(|m| !m.stays()) {
            call(libc::SYS_munmap, &[m.start, m.end - m.start])?;
        }
        for r in self.regions() {
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
                    let file = self.files.get(&hash.to_string());
                    let file = file.ok_or_else(|| Error::other("a file is missing"))?;
                    (fixed, file.as_raw_fd() as u64, *file_offset)
                }
                _ => (fixed | libc::MAP_ANONYMOUS, u64::MAX, 0),
            };
            let args = [r.start, r.len, r.prot as u64, flags as u64, fd, offset];
            if call(libc::SYS_mmap, &args)? != r.start {
                return Err(Error::other("memory is not where it was wanted"));
            }
        }
        Ok(())
    }

    /// All regions but the session.
    fn regions(&self) -> impl Iterator<Item = &Region> {
        let all = self.image.image().regions.iter();
        all.filter(|r| r.start != SESSION_BASE)
    }

    /// Fills the memory; the session's.
    fn fill(&mut self, memory: &File) -> std::result::Result<SavedSession, ReplayError> {
        let mut saved = SavedSession::default();
        for i in 0..self.image.image().regions.len() {
            let of_session = self.image.image().regions[i].start == SESSION_BASE;
            let mut failed = None;
            self.image.read_region(i, |at, bytes| {
                if of_session {
                    if !saved.add(at - SESSION_BASE, bytes) {
                        failed.get_or_insert(Error::other("the session's memory is too large"));
                    }
                } else if let Err(e) = memory.write_all_at(bytes, at) {
                    failed.get_or_insert(e);
                }
                Ok(())
            })?;
            if let Some(source) = failed {
                return Err(ReplayError::Io {
                    what: "fill the memory of the trace's beginning".into(),
                    source,
                });
            }
        }
        Ok(saved)
    }
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
    let [at, flags, len] = thread.signal_stack;
    with_room(memory, registers.rsp, |room| {
        for (word, i) in [at, flags & !SS_ONSTACK, len].into_iter().zip(0..) {
            memory.write_all_at(&word.to_le_bytes(), room + 8 * i)?;
        }
        gate.call(tid, libc::SYS_sigaltstack, &[room, 0])?.ok()?;
        Ok(())
    })?;
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
