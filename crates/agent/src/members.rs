//! Who belongs to the session, as the kernel tells it. The ids in shared memory are the program's to write: it could name anybody there, and an agent
//! with more rights than it would signal, seize or read whom it names.
//!
//! A process belongs to the session when it has the session's memory mapped, which nobody gets into a foreign one. It is looked for once, when an id
//! comes up first; from then on a descriptor (pidfd_open(2)) says whether it is still the same process. What a process has mapped can't be seen when it
//! said so (PR_SET_DUMPABLE), except by root: to an agent without privileges a child of one that belongs to the session belongs there, too.

use crate::spare;
use reprise_abi::layout::{IMAGE_BASE, SESSION_BASE};
use reprise_abi::session::{RequestBox, Session};
use reprise_abi::syscalls::nr;
use reprise_launch::proc_files::{Stat, Whereabouts};
use reprise_launch::{proc_files, process, SharedSession};
use rustix::process::{pidfd_send_signal, Signal};
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::parent_id;
use std::time::{Duration, Instant};

/// Descriptors that are left for other work: an exec takes most.
const SPARED: u64 = 10;
/// Who asks for something sleeps at once, but may have to wait for a processor before.
const FALLS_ASLEEP: Duration = Duration::from_secs(2);

/// The processes that are known to belong to the session.
#[derive(Default)]
pub struct Members {
    known: RefCell<HashMap<u32, Member>>,
    /// The calling process records, and this one has launched it.
    launcher: Option<u32>,
}

/// A process, and how to tell that it still is the same one.
struct Member {
    /// Where there are enough descriptors.
    fd: Option<OwnedFd>,
    /// When it began, in the kernel's ticks (proc_pid_stat(5), field 22).
    began: u64,
}

/// Does this process run what the agent runs? So do the launcher, and the replay that follows a recording of which the last stretch is kept.
fn is_recorder(pid: u32) -> bool {
    let file = |of: &str| {
        let found = std::fs::metadata(format!("/proc/{of}/exe")).ok()?;
        Some((found.dev(), found.ino()))
    };
    let own = file("self");
    own.is_some() && own == file(&pid.to_string())
}

impl Members {
    /// None known yet. The calling process records, and so does its launcher.
    pub fn of_recorder(launcher: i32) -> Members {
        Members {
            launcher: Some(launcher as u32),
            ..Members::default()
        }
    }

    /// Is it one of the recorder's own processes? They have the session's memory mapped, too; no word of the program's makes members of them.
    fn records(&self, pid: u32) -> bool {
        // A launcher that is gone may have left its id to anybody.
        let has_launched = |launcher| parent_id() == launcher;
        self.launcher.is_some_and(|launcher| {
            pid == std::process::id() || pid == launcher && has_launched(launcher)
        })
    }

    /// Is this a process of the session, alive or not reaped yet?
    pub fn has(&self, shared: &SharedSession, pid: u32) -> bool {
        self.has_thread(shared, pid, pid)
    }

    /// Is this a thread of a process of the session?
    pub fn has_thread(&self, shared: &SharedSession, pid: u32, tid: u32) -> bool {
        if pid == 0 || tid == 0 || self.records(pid) {
            return false;
        }
        if !self.is_known(pid) {
            match self.meet(shared, pid, tid) {
                Some(member) => self.known.borrow_mut().insert(pid, member),
                None => return false,
            };
        }
        pid == tid || began(&format!("/proc/{pid}/task/{tid}/stat")).is_some()
    }

    /// Is it certain that this process, which there is, does not belong to the session?
    pub fn is_foreign(&self, shared: &SharedSession, pid: u32) -> bool {
        !self.has(shared, pid) && matches!(shared.is_mapped_by(pid, pid), Ok(false))
    }

    fn is_known(&self, pid: u32) -> bool {
        let mut known = self.known.borrow_mut();
        let same = known.get(&pid).is_some_and(|m| m.is_same(pid));
        if !same {
            known.remove(&pid);
        }
        same
    }

    /// The processes that have the session's memory mapped, of all that there are, but for the recorder's own, as far as that can be seen: a look at each of them.
    pub fn who_map(shared: &SharedSession) -> Vec<u32> {
        Members::who_map_above(shared, 0)
    }

    /// Those of them whose ids are larger: unless the kernel has begun anew with small ones, all that began later.
    pub fn who_map_above(shared: &SharedSession, least: u32) -> Vec<u32> {
        let pids = proc_files::processes();
        let maps = |pid: &u32| Members::maps(shared, *pid) == Some(true);
        pids.filter(|pid| *pid > least && maps(pid) && !is_recorder(*pid))
            .collect()
    }

    /// Has this process the session's memory mapped? `None`: that can't be seen. Its first thread may have ended before the others.
    pub fn maps(shared: &SharedSession, pid: u32) -> Option<bool> {
        for tid in proc_files::threads_of(pid).into_iter().flatten() {
            match shared.is_mapped_by(pid, tid) {
                Ok(maps) => return Some(maps),
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return None,
                // It has ended.
                Err(_) => {}
            }
        }
        Some(false)
    }

    /// May this process have the session's memory mapped? One that can't be looked at may, if it is known to belong to the session, or is younger than the
    /// agent: whoever was there before and is none of the session's, as the system's first process, can't have become one.
    pub fn may_map(&self, shared: &SharedSession, pid: u32) -> bool {
        let may = || {
            Members::maps(shared, pid).unwrap_or_else(|| {
                let age = |pid: u32| began(&format!("/proc/{pid}/stat"));
                self.is_known(pid) || age(pid) >= age(std::process::id())
            })
        };
        !self.records(pid) && may()
    }

    /// Is there such a thread, and [may its process](Members::may_map) be one of the session?
    pub fn may_have_thread(&self, shared: &SharedSession, pid: u32, tid: u32) -> bool {
        let is_there = || began(&format!("/proc/{pid}/task/{tid}/stat")).is_some();
        self.has_thread(shared, pid, tid)
            || pid != 0 && tid != 0 && is_there() && self.may_map(shared, pid)
    }

    /// Ends a process, if it is one of the session.
    pub fn kill(&self, shared: &SharedSession, pid: u32) {
        if !self.has(shared, pid) {
            return;
        }
        let known = self.known.borrow();
        let _ = match known.get(&pid).and_then(|m| m.fd.as_ref()) {
            Some(fd) => pidfd_send_signal(fd, Signal::KILL).map_err(Into::into),
            None => process::send(pid as i32, Signal::KILL),
        };
    }

    /// Sends a signal to a thread, if it is one of the session.
    pub fn signal(&self, shared: &SharedSession, pid: u32, tid: u32, signal: i32) {
        // The call itself says whether the process has such a thread.
        let known = pid != 0 && (self.has(shared, pid) || self.has_thread(shared, pid, tid));
        if known && tid != 0 {
            // SAFETY: plain call.
            unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
        }
    }

    /// Is the thread one of the session's that waits for the answer to a request? What only its own thread may ask for is not done to others.
    pub fn asks(&self, shared: &SharedSession, pid: u32, tid: u32) -> bool {
        let kind = offset_of!(Session, request) + offset_of!(RequestBox, kind);
        // It may have been stopped while it woke the agent, looked at the clock, or at whether there still is an agent.
        let word = |at: usize| SESSION_BASE + at as u64;
        let calls: [(u64, &[u64]); 4] = [
            (nr::FUTEX, &[word(kind)]),
            (nr::FUTEX, &[word(offset_of!(Session, agent_asleep))]),
            (nr::CLOCK_GETTIME, &[1]),
            (nr::KILL, &[std::process::id().into(), 0]),
        ];
        let asks = |place: &Whereabouts| match place {
            Whereabouts::InCall { number, words } => calls
                .iter()
                .any(|(call, first)| call == number && words.starts_with(first)),
            Whereabouts::Outside { pc } => is_in_runtime(*pc),
            Whereabouts::Runs => false,
        };
        let begun = Instant::now();
        while self.has_thread(shared, pid, tid) {
            match spare::read(&format!("/proc/{pid}/task/{tid}/syscall")) {
                Ok(line) if Whereabouts::parse(&line).as_ref().is_some_and(asks) => return true,
                // A kernel without this file, and one that doesn't show it.
                Err(_) => return true,
                Ok(_) if begun.elapsed() > FALLS_ASLEEP => return false,
                Ok(_) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        false
    }

    /// Looks at a process whose id was named.
    fn meet(&self, shared: &SharedSession, pid: u32, tid: u32) -> Option<Member> {
        let member = Member {
            began: began(&format!("/proc/{pid}/stat"))?,
            fd: open(pid),
        };
        let has_it = match shared.is_mapped_by(pid, tid) {
            Ok(has_it) => has_it,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                let parent = field(&format!("/proc/{pid}/stat"), 4)?;
                self.is_known(parent as u32)
            }
            Err(_) => false,
        };
        // What was looked at has to be what the descriptor is for.
        (has_it && member.is_same(pid)).then_some(member)
    }
}

impl Member {
    fn is_same(&self, pid: u32) -> bool {
        match &self.fd {
            Some(fd) if !is_dead(fd) => true,
            // A zombie keeps its id, too.
            _ => began(&format!("/proc/{pid}/stat")) == Some(self.began),
        }
    }
}

/// Is this of the runtime? A thread that was stopped there was on its way to sleep.
fn is_in_runtime(pc: u64) -> bool {
    (IMAGE_BASE..SESSION_BASE).contains(&pc)
}

/// When a process or thread began.
fn began(stat: &str) -> Option<u64> {
    field(stat, 22)
}

/// A field of such a file, from the fourth on (proc_pid_stat(5)).
pub(crate) fn field(stat: &str, number: usize) -> Option<u64> {
    Stat::new(spare::read(stat).ok()?).field(number)
}

/// A descriptor that tells of a process's death, where there are enough of them.
pub(crate) fn open(pid: u32) -> Option<OwnedFd> {
    let fd = process::open(pid as i32).ok()?;
    (fd.as_raw_fd() as u64 + SPARED < reprise_launch::limits::descriptors()).then_some(fd)
}

pub(crate) fn is_dead(fd: &OwnedFd) -> bool {
    process::has_ended(fd, Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_the_sessions_memory_is_a_member() {
        let shared = SharedSession::create().expect("a session");
        let members = Members::default();
        let me = std::process::id();
        let tid = rustix::thread::gettid().as_raw_pid() as u32;
        let parent = parent_id();
        assert!(members.has(&shared, me));
        assert!(members.has_thread(&shared, me, tid));
        assert!(!members.has_thread(&shared, me, 1));
        for nobody in [parent, 0, 1, u32::MAX, 0x3fff_ffff] {
            assert!(!members.has(&shared, nobody), "{nobody}");
        }
        // Who records is none, whatever stands in the session.
        let recorder = Members::of_recorder(parent as i32);
        assert!(!recorder.has(&shared, me) && !recorder.may_map(&shared, me));
        assert!(!recorder.has_thread(&shared, me, tid) && !recorder.has(&shared, parent));
        // Of another session it is none.
        let other = SharedSession::create().expect("a session");
        drop(shared);
        assert!(!Members::default().has_thread(&other, parent, parent));
    }

    #[test]
    fn who_was_stopped_on_the_way_to_sleep() {
        assert!(is_in_runtime(0x5500_000c_4de6));
        assert!(!is_in_runtime(0x7fff_f7dd_6000));
    }

    #[test]
    fn a_member_that_is_gone_is_none() {
        let mut sleep = std::process::Command::new("sleep");
        let mut child = sleep.arg("60").spawn().expect("a child");
        let pid = child.id();
        let (shared, members) = (
            SharedSession::create().expect("a session"),
            Members::default(),
        );
        assert!(!members.has(&shared, pid) && members.is_foreign(&shared, pid));
        let began = began(&format!("/proc/{pid}/stat")).expect("its beginning");
        let member = Member {
            fd: open(pid),
            began,
        };
        members.known.borrow_mut().insert(pid, member);
        assert!(members.has(&shared, pid));
        members.kill(&shared, pid);
        // Dead and not reaped: nobody can say any more.
        while !is_dead(&open(pid).expect("a descriptor")) {}
        assert!(!Members::default().is_foreign(&shared, pid));
        let status = child.wait().expect("its end");
        assert!(!status.success());
        assert!(!members.has(&shared, pid));
    }
}
