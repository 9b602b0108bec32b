//! The box in which a replayed process runs. A trace is somebody's code: its runtime, its program, and whatever that jumps to. Before the first
//! instruction of any of it the process gives up, for good, all that a replay does not need:
//!
//! - new rights by exec (PR_SET_NO_NEW_PRIVS),
//! - the file system and the network (landlock(7), where the kernel has it), but for reading the trace's contents,
//! - system calls: those that reach nothing but the process itself are made; of the others the kernel asks the driver (seccomp_unotify(2)), which opens
//!   what else is needed in the process's place, lets signals among the replayed pass, and refuses the rest; `filter.rs` has the list. Without Landlock
//!   the contents are among what is asked for,
//! - descriptors that the driver has open for itself, and its input.
//!
//! What is left to it: computing, memory, its own threads, and what is written to its standard output and error, which are the driver's own, so that
//! both streams keep their order.

mod filter;

use crate::error::{os, LaunchError, Result};
use crate::hand;
use landlock::{
    Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope, ABI,
};
use rustix::fs::{Mode, OFlags};
use rustix::process::{setrlimit, Resource, Rlimit};
use rustix::stdio::{dup2_stdin, stderr};
use rustix::thread::set_no_new_privs;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// What is prepared once, and entered by each process that is made.
pub struct Confinement {
    /// No right to anything but to read the trace's contents; `None` where the kernel has no Landlock.
    domain: Option<OwnedFd>,
    whose: Whose,
}

/// What kind of processes are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Each is a program's process.
    Processes,
    /// They are a program's threads (`det`): they signal each other all the time, look at their own memory in /proc, and can't wait for answers, which
    /// signals end before they are heard. Landlock keeps their signals among themselves, and what is private of others in /proc from them.
    Threads,
}

impl Confinement {
    /// Prepares it for a trace whose contents lie in `files`.
    ///
    /// # Errors
    /// [`LaunchError::Unsupported`] where the kernel asks nobody about system calls (Linux before 5.9, some sandboxes).
    pub fn new(files: &Path, whose: Whose) -> Result<Confinement> {
        let action: u32 = libc::SECCOMP_RET_USER_NOTIF;
        // SAFETY: the kernel reads the word.
        let known = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_GET_ACTION_AVAIL,
                0,
                &action,
            )
        };
        if known != 0 {
            return Err(LaunchError::Unsupported(format!(
                "replayed programs can't be confined here: seccomp(2) does not know SECCOMP_RET_USER_NOTIF ({})",
                std::io::Error::last_os_error()
            )));
        }
        let domain = domain(files, whose);
        tracing::debug!(landlock = domain.is_some(), ?whose, "box");
        Ok(Confinement { domain, whose })
    }

    /// The filter for a process whose descriptor `files` is the directory of contents.
    pub(crate) fn filter(&self, files: RawFd) -> Vec<libc::sock_filter> {
        filter::program(filter::Guarded {
            files: self.domain.is_some().then_some(files),
            own_memory: self.domain.is_some() && self.whose == Whose::Threads,
            signals: self.whose == Whose::Threads && keeps_signals(),
        })
    }

    /// Confines the calling thread, the only one of its process, for good; the descriptor by which the kernel asks about its calls goes over `socket`,
    /// and of all descriptors from 3 on those in `keep` (ascending) stay open. Ends the process where that can't be done.
    ///
    /// # Safety
    /// To be called in a forked child: it makes system calls only.
    pub(crate) unsafe fn enter(
        &self,
        filter: &[libc::sock_filter],
        socket: BorrowedFd,
        keep: &[RawFd],
    ) {
        // SAFETY: plain calls; the kernel copies the filter.
        unsafe {
            let none = Rlimit {
                current: Some(0),
                maximum: Some(0),
            };
            let _ = setrlimit(Resource::Core, none);
            // Whatever the driver's input is, it may be open for writing, too.
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let nothing = rustix::fs::open(c"/dev/null", flags, Mode::empty());
            // It is the input itself where that was closed.
            let nothing = nothing.map(ManuallyDrop::new);
            if nothing.and_then(|n| dup2_stdin(&*n)).is_err() {
                give_up(b"/dev/null");
            }
            if set_no_new_privs(true).is_err() {
                give_up(b"no_new_privs");
            }
            if let Some(domain) = &self.domain {
                if libc::syscall(libc::SYS_landlock_restrict_self, domain.as_raw_fd(), 0) != 0 {
                    give_up(b"landlock");
                }
            }
            let program = libc::sock_fprog {
                len: filter.len() as u16,
                filter: filter.as_ptr() as *mut libc::sock_filter,
            };
            let listener = install(&program);
            if listener < 0 {
                give_up(b"seccomp");
            }
            let listener = BorrowedFd::borrow_raw(listener);
            if hand::send(socket, &[listener]).is_err() {
                give_up(b"the driver");
            }
            let mut next = 3u32;
            for fd in keep.iter().map(|fd| *fd as u32) {
                if fd > next {
                    libc::syscall(libc::SYS_close_range, next, fd - 1, 0);
                }
                next = next.max(fd + 1);
            }
            libc::syscall(libc::SYS_close_range, next, u32::MAX, 0);
        }
    }
}

/// A Landlock domain that has all rights taken away, as far as this kernel knows them, but to read what is beneath `files`.
fn domain(files: &Path, whose: Whose) -> Option<OwnedFd> {
    let all = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let all = all.handle_access(AccessFs::from_all(ABI::V5)).ok()?;
    let all = all.handle_access(AccessNet::from_all(ABI::V5)).ok()?;
    let mut all = all.scope(Scope::AbstractUnixSocket).ok()?;
    let mut readable = vec![files];
    if whose == Whose::Threads {
        all = all.scope(Scope::Signal).ok()?;
        readable.push(Path::new("/proc"));
    }
    let mut all = all.create().ok()?;
    for path in readable {
        let path = PathFd::new(path).ok()?;
        all = all
            .add_rule(PathBeneath::new(path, AccessFs::ReadFile))
            .ok()?;
    }
    all.into()
}

/// Does Landlock keep signals inside of a domain (Linux 6.12)?
fn keeps_signals() -> bool {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    let none = std::ptr::null::<u8>();
    // SAFETY: with this flag it says its version, and nothing else.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            none,
            0,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    version >= 6
}

/// Installs the filter: its listener. Who has been heard is not woken by signals before the answer is there, from Linux 5.19 on.
unsafe fn install(program: &libc::sock_fprog) -> RawFd {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    for more in [libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 0] {
        // SAFETY: the kernel copies the filter.
        let listener = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags | more,
                program,
            )
        };
        if listener >= 0 {
            return listener as RawFd;
        }
    }
    -1
}

/// Nothing of the trace runs outside of the box.
unsafe fn give_up(what: &[u8]) -> ! {
    for part in [
        b"reprise: can't confine the replayed program (" as &[u8],
        what,
        b"); REPRISE_UNCONFINED=1 replays traces that you trust without\n",
    ] {
        let _ = rustix::io::write(stderr(), part);
    }
    // SAFETY: ends the child, which has nothing to flush.
    unsafe { libc::_exit(125) }
}

/// A pair of connected sockets: one end for the child, one for the driver.
///
/// # Errors
/// When descriptors are short.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let pair = std::os::unix::net::UnixStream::pair();
    let (a, b) = pair.map_err(|_| os("make a pair of sockets"))?;
    Ok((a.into(), b.into()))
}
