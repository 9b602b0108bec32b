//! The driver's side of the box (`reprise_launch::confine`): the kernel asks it about the system calls of replayed processes that may reach something else
//! than themselves (seccomp_unotify(2)).
//!
//! It opens the copies of shared files that the driver holds for them, and where there is no Landlock the trace's contents; lets them signal each other; and
//! refuses everything else. A replay with the runtime that recorded it asks for nothing else: what was refused is told, and the replay counts as
//! different. The answers are given by a thread of their own, since who asks waits, and may be waited for.

use crate::children;
use crate::ReplayError;
use libc::{pid_t, seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp};
use reprise_launch::confine::{self, Confinement, Whose};
use reprise_launch::dispositions::AllBlocked;
use reprise_launch::proc_files::Status;
use reprise_launch::process;
use reprise_trace::{inputs, opened, ContentHash, FILES_DIR};
use rustix::event::{eventfd, EventfdFlags};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Error, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The longest path that is looked at.
const LONGEST: usize = 256;
/// So many calls are told when they were refused.
const TOLD: usize = 8;

/// Answers for the processes of one replay, until it is dropped; then none of them is left.
pub(crate) struct Supervisor {
    confinement: Confinement,
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

/// What driver and answering thread share.
struct Common {
    dir: PathBuf,
    whose: Whose,
    /// Wakes the thread.
    wake: OwnedFd,
    /// Ends of sockets over which listeners come.
    coming: Mutex<Vec<OwnedFd>>,
    /// The driver's files that replayed processes may open, by the descriptor.
    lent: Mutex<BTreeMap<RawFd, File>>,
    refused: Mutex<Vec<String>>,
}

/// What is said to who asks.
enum Answer {
    /// The kernel makes the call. All that was judged are registers, which nobody changes meanwhile.
    Go,
    /// It gets this file.
    File(OwnedFd),
    /// It gets this error.
    Error(i32),
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a thread that panicked has left is as good as before.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does the user want replayed programs to run with all his rights?
fn is_unwanted() -> bool {
    std::env::var_os("REPRISE_UNCONFINED").is_some_and(|v| v == "1")
}

impl Supervisor {
    /// For a replay of the trace in `dir` with such processes; `None` where the user wants none.
    ///
    /// # Errors
    /// When the kernel has no such thing, or descriptors or threads are short.
    pub fn start(dir: &Path, whose: Whose) -> Result<Option<Supervisor>, ReplayError> {
        if is_unwanted() {
            return Ok(None);
        }
        let io = |what: &str| {
            let what = what.to_string();
            move |source| ReplayError::Io { what, source }
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC);
        let common = Arc::new(Common {
            dir: dir.to_path_buf(),
            whose,
            wake: wake
                .map_err(Error::from)
                .map_err(io("make a descriptor of events"))?,
            coming: Mutex::default(),
            lent: Mutex::default(),
            refused: Mutex::default(),
        });
        let confinement = Confinement::new(&dir.join(FILES_DIR), whose).map_err(|e| {
            ReplayError::Unsupported(format!(
                "{e}; with REPRISE_UNCONFINED=1 it is replayed with all your rights: do that with traces that you trust"
            ))
        })?;
        let of_thread = Arc::clone(&common);
        let answers = move || of_thread.answer_all();
        let thread = {
            let _blocked = AllBlocked::here();
            std::thread::Builder::new().spawn(answers)
        };
        Ok(Some(Supervisor {
            confinement,
            common,
            thread: Some(thread.map_err(io("start a thread"))?),
        }))
    }

    /// What a child that is about to be made needs: the box, and the socket over which its questions are announced.
    pub fn admit(&self) -> Result<(&Confinement, OwnedFd), ReplayError> {
        let (ours, its) = confine::pair()?;
        lock(&self.common.coming).push(ours);
        self.common.wake();
        Ok((&self.confinement, its))
    }

    /// Replayed processes may open this file of the driver's, by its descriptor, for reading and writing.
    pub fn lend(&self, file: &File) -> std::io::Result<()> {
        lock(&self.common.lent).insert(file.as_raw_fd(), file.try_clone()?);
        Ok(())
    }

    /// What was refused since the last time that somebody asked.
    pub fn take_refused(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.common.refused))
    }

    /// Something that no recording does, beside what was refused.
    pub fn note(&self, what: String) {
        self.common.note(what);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Of a trace that made processes behind the recording's back.
        for pid in strays() {
            children::signal(pid, Signal::KILL);
        }
        lock(&self.common.coming).clear();
        self.common.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Children of ours that are replayed processes: they run no program of their own.
pub(crate) fn strays() -> impl Iterator<Item = pid_t> {
    children::all().into_iter().filter(|pid| is_replayed(*pid))
}

/// Is this a process that we, or who descends from us, forked and that runs nothing else, or has ended?
fn is_replayed(pid: pid_t) -> bool {
    let own = std::process::id() as pid_t;
    let program = |pid: pid_t| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let mut at = pid;
    for _ in 0..64 {
        let Some(kin) = Kin::of(at) else {
            return false;
        };
        if at == own || !kin.confined || !(kin.ended || program(at) == program(own)) {
            return false;
        }
        if kin.parent == own {
            return true;
        }
        at = kin.parent;
    }
    false
}

/// What proc_pid_status(5) says of a process.
struct Kin {
    parent: pid_t,
    /// Its system calls are filtered.
    confined: bool,
    /// Nobody has waited for it yet.
    ended: bool,
}

impl Kin {
    /// `None`: there is no such process.
    fn of(pid: pid_t) -> Option<Kin> {
        let status = Status::of_process(pid).ok()?;
        Some(Kin {
            parent: status.number("PPid")?,
            confined: status.get("Seccomp")? == "2",
            ended: status.get("State")?.starts_with(['Z', 'X']),
        })
    }
}

impl Common {
    const END: u64 = 1 << 32;

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn end(&self) {
        let _ = rustix::io::write(&self.wake, &Common::END.to_ne_bytes());
    }

    fn note(&self, what: String) {
        let mut refused = lock(&self.refused);
        if refused.len() < TOLD && !refused.contains(&what) {
            refused.push(what);
        }
    }

    /// The thread: sleeps until somebody asks.
    fn answer_all(&self) {
        let (mut sockets, mut listeners): (Vec<OwnedFd>, Vec<OwnedFd>) = (Vec::new(), Vec::new());
        loop {
            sockets.append(&mut lock(&self.coming));
            let all = [&self.wake].into_iter().chain(&sockets).chain(&listeners);
            let looked_at = all.map(|fd| PollFd::new(fd, PollFlags::IN));
            let mut looked_at: Vec<PollFd> = looked_at.collect();
            let _ = poll(&mut looked_at, None);
            let happened: Vec<PollFlags> = looked_at.iter().map(PollFd::revents).collect();
            if !happened[0].is_empty() {
                let mut word = [0; 8];
                let _ = rustix::io::read(&self.wake, &mut word);
                if u64::from_ne_bytes(word) >= Common::END {
                    return;
                }
            }
            let mut now = happened[1..].iter();
            let (mut left, mut come) = (Vec::new(), Vec::new());
            for socket in sockets.drain(..) {
                match now.next() {
                    // A listener comes, or the child ended before it was confined.
                    Some(r) if !r.is_empty() => come.extend(receive(&socket).inspect(wake_nearby)),
                    _ => left.push(socket),
                }
            }
            sockets = left;
            listeners.retain(|listener| match now.next() {
                Some(r) if r.contains(PollFlags::IN) => {
                    self.answer(listener.as_raw_fd());
                    true
                }
                // Nobody is left who could ask.
                Some(r) => !r.intersects(PollFlags::HUP | PollFlags::ERR),
                None => true,
            });
            listeners.append(&mut come);
        }
    }

    /// Answers one question, if it is still asked.
    fn answer(&self, listener: RawFd) {
        // SAFETY: the kernel fills a structure of ours, which must be zeros before.
        let question = unsafe {
            let mut question: seccomp_notif = std::mem::zeroed();
            if libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut question) != 0 {
                return;
            }
            question
        };
        let mut response = seccomp_notif_resp {
            id: question.id,
            val: 0,
            error: 0,
            flags: 0,
        };
        match self.judge(listener, &question) {
            Answer::Go => response.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
            Answer::Error(error) => response.error = -error,
            Answer::File(file) => match give(listener, question.id, &file) {
                Ok(None) => return,
                Ok(Some(fd)) => response.val = fd.into(),
                Err(e) => response.error = -e.raw_os_error().unwrap_or(libc::EIO),
            },
        }
        // SAFETY: a structure of ours. Who has died needs no answer.
        unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response) };
    }

    fn judge(&self, listener: RawFd, question: &seccomp_notif) -> Answer {
        let (number, a) = (i64::from(question.data.nr), question.data.args);
        let asker = question.pid as pid_t;
        tracing::trace!(pid = asker, number, "call asked for");
        match number {
            libc::SYS_openat => match self.file(listener, question) {
                Some(answer) => answer,
                None => self.refuse(question, path(asker, a[1])),
            },
            // To a process or a thread; of groups, nobody knows who is in them when the signal comes.
            libc::SYS_kill
            | libc::SYS_rt_sigqueueinfo
            | libc::SYS_tgkill
            | libc::SYS_rt_tgsigqueueinfo
            | libc::SYS_tkill
                if a[0] as pid_t > 0 =>
            {
                match a[0] as pid_t {
                    to if is_replayed(to) => Answer::Go,
                    // It has just ended.
                    to if Kin::of(to).is_none() => Answer::Error(libc::ESRCH),
                    _ => self.refuse(question, None),
                }
            }
            libc::SYS_prlimit64 if is_replayed(a[0] as pid_t) => Answer::Go,
            // `det` asks what a path leads to before it is opened, also where the answer is the recording's.
            libc::SYS_newfstatat if self.whose == Whose::Threads => Answer::Error(libc::ENOENT),
            _ => self.refuse(question, None),
        }
    }

    /// The file that openat(2) is for, where that is one which a replay opens.
    fn file(&self, listener: RawFd, question: &seccomp_notif) -> Option<Answer> {
        let path = path(question.pid as pid_t, question.data.args[1])?;
        let writes = question.data.args[2] as i32 & libc::O_ACCMODE != libc::O_RDONLY;
        let own = |name: &str| File::open(format!("/proc/{}/{name}", question.pid));
        let file = match path.as_slice() {
            b"/proc/self/pagemap" | b"/proc/thread-self/pagemap" if !writes => own("pagemap"),
            b"/proc/self/maps" if !writes => own("maps"),
            b"/proc/self/auxv" if !writes => own("auxv"),
            path => match (self.lent_by(path), content(path)) {
                (Some(lent), _) => lent,
                (None, Some(name)) if !writes => {
                    opened::open(&self.dir, Path::new(FILES_DIR).join(name))
                }
                _ => return None,
            },
        };
        // What was read of its memory, and what was opened of it, is its own only if it is still there.
        // SAFETY: the kernel reads the word.
        let still =
            unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &question.id) };
        if still != 0 {
            return Some(Answer::Error(libc::ESRCH));
        }
        Some(match file {
            Ok(file) => Answer::File(file.into()),
            Err(e) => Answer::Error(e.raw_os_error().unwrap_or(libc::EIO)),
        })
    }

    /// The driver's file that is asked for as `/proc/DRIVER/fd/N`, opened anew.
    fn lent_by(&self, path: &[u8]) -> Option<std::io::Result<File>> {
        let path = std::str::from_utf8(path).ok()?;
        let (pid, fd) = path.strip_prefix("/proc/")?.split_once("/fd/")?;
        if pid.parse() != Ok(std::process::id()) {
            return None;
        }
        let lent = lock(&self.lent);
        let file = lent.get(&fd.parse().ok()?)?;
        let anew = format!("/proc/self/fd/{}", file.as_raw_fd());
        Some(File::options().read(true).write(true).open(anew))
    }

    fn refuse(&self, question: &seccomp_notif, path: Option<Vec<u8>>) -> Answer {
        let number = question.data.nr as u64;
        let mut what = match reprise_abi::syscalls::lookup(number) {
            Some(call) => call.name.to_string(),
            None => format!("system call {number}"),
        };
        if let Some(path) = path {
            let path = String::from_utf8_lossy(&path).replace(char::is_control, "?");
            let _ = write!(what, " of {path}");
        }
        tracing::warn!(pid = question.pid, ?what, "call refused");
        self.note(what);
        Answer::Error(libc::EPERM)
    }
}

/// The name of the content that is asked for: a hash, or the copy of a file that was read.
fn content(path: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(path).ok()?;
    let known = ContentHash::from_hex(name).is_some() || inputs::number(name).is_some();
    known.then_some(name)
}

/// The string at an address in the asker's memory, if it ends.
fn path(asker: pid_t, at: u64) -> Option<Vec<u8>> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    while text.len() < LONGEST {
        let from = at.checked_add(text.len() as u64)?;
        // Not into a page that may not be there, when it isn't needed.
        let len = (PAGE - from % PAGE).min((LONGEST - text.len()) as u64) as usize;
        let mut part = vec![0u8; len];
        let n = process::read(asker, from, &mut part).ok();
        let part = &part[..n.filter(|n| *n > 0)?];
        match part.iter().position(|b| *b == 0) {
            Some(end) => {
                text.extend_from_slice(&part[..end]);
                return Some(text);
            }
            None => text.extend_from_slice(part),
        }
    }
    None
}

/// Gives who asks the descriptor, as the answer; `None`. On kernels before 5.14 it gets it, and is to be told which.
fn give(listener: RawFd, id: u64, file: &OwnedFd) -> std::io::Result<Option<i32>> {
    let mut request = seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
        srcfd: file.as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: libc::O_CLOEXEC as u32,
    };
    for told in [true, false] {
        if !told {
            request.flags = 0;
        }
        // SAFETY: a structure of ours.
        let fd = unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_ADDFD, &request) };
        match (fd, told) {
            (0.., true) => return Ok(None),
            (0.., false) => return Ok(Some(fd)),
            _ if Error::last_os_error().raw_os_error() == Some(libc::EINVAL) && told => {}
            _ => break,
        }
    }
    Err(Error::last_os_error())
}

/// Who asks waits for the answer, and who answers for the question: the kernel is to run them by turns on one processor, from Linux 6.6 on. To wake another
/// one, which sleeps, takes ten times as long as an answer on a virtual machine.
fn wake_nearby(listener: &OwnedFd) {
    // include/uapi/linux/seccomp.h.
    const NOTIF_SET_FLAGS: libc::Ioctl = 0x4008_2104;
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: plain call; older kernels say EINVAL.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

/// The descriptor that comes over a socket (unix(7), SCM_RIGHTS).
fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut io = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    if recvmsg(socket.as_fd(), &mut io, &mut ancillary, flags).is_err() {
        return None;
    }
    let mut rights = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            rights.extend(fds);
        }
    }
    rights.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_memory() {
        let own = std::process::id() as pid_t;
        let text = c"/a/path";
        assert_eq!(
            path(own, text.as_ptr() as u64).as_deref(),
            Some(b"/a/path" as &[u8])
        );
        let long = [b'x'; LONGEST + 1];
        assert_eq!(path(own, long.as_ptr() as u64), None);
        assert_eq!(path(own, 8), None);
        assert_eq!(path(own, u64::MAX), None);
    }

    #[test]
    fn only_names_of_contents_are_contents() {
        assert!(content(b"2f83d98ffd198a50ac8fbece998e3a4e").is_some());
        for other in [b"../manifest.json" as &[u8], b"/etc/passwd", b"", b"\xff"] {
            assert!(content(other).is_none());
        }
    }

    #[test]
    fn nobody_else_counts_as_replayed() {
        assert!(!is_replayed(1) && !is_replayed(std::process::id() as pid_t));
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        assert!(!is_replayed(child.id() as pid_t));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
