//! Who writes a file while it is read? What is read of a file that somebody has open for writing is logged by its bytes. For others the kernel makes whoever opens
//! them for writing, or cuts them off, wait until what was read is kept: that is what a lease is for (fcntl(2), "Leases").

use reprise_abi::session::{process_state, Session};
use reprise_launch::dispositions;
use reprise_launch::maps::Maps;
use std::fs::{File, Metadata};
use std::io::Error;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Acquire;

/// A lease for reading, or what stands in its place where there can be none. It is given back with the file.
#[derive(Debug)]
pub struct Lease {
    held: bool,
}

impl Lease {
    /// On a file that is open for reading only; None when somebody has it open for writing, or mapped so that what is written there gets into it. Leases are for the
    /// file's owner; to others only the recorded processes tell whether they write.
    pub fn take(s: &Session, file: &File, meta: &Metadata) -> Option<Lease> {
        match lease(file, libc::F_RDLCK) {
            Ok(()) => Some(Lease { held: true }),
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => None,
            Err(_) => (!recorded(s, meta)).then_some(Lease { held: false }),
        }
    }

    /// Is it one?
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Does somebody wait who wants to write?
    pub fn is_wanted(&self, file: &File) -> bool {
        // SAFETY: integers only.
        self.held && unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) } != libc::F_RDLCK
    }

    /// Whoever waits may write.
    pub fn give_back(&mut self, file: &File) {
        if std::mem::take(&mut self.held) {
            let _ = lease(file, libc::F_UNLCK);
        }
    }
}

fn lease(file: &File, how: i32) -> Result<(), Error> {
    // SAFETY: integers only.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, how) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// That somebody waits is told by this signal, which ends a process that does not expect it. It is looked for instead: the agent comes often enough.
pub fn ignore_signals() {
    dispositions::ignore(libc::SIGIO);
}

/// Does one of the recorded processes have it so?
fn recorded(s: &Session, meta: &Metadata) -> bool {
    let all = s.processes.iter();
    let live = all.filter(|p| p.state.load(Acquire) == process_state::LIVE);
    live.map(|p| p.kernel_pid.load(Acquire))
        .filter(|pid| *pid != 0)
        .any(|pid| has_open(pid, meta) || has_mapped(pid, meta))
}

fn has_open(pid: u32, meta: &Metadata) -> bool {
    // One that can't be looked at counts as one that writes.
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return true;
    };
    entries.flatten().any(|entry| {
        let same = std::fs::metadata(entry.path())
            .is_ok_and(|m| m.dev() == meta.dev() && m.ino() == meta.ino());
        let fd = entry.file_name();
        same && writes(pid, &fd.to_string_lossy())
    })
}

/// Is a descriptor open for writing? (proc_pid_fdinfo(5))
fn writes(pid: u32, fd: &str) -> bool {
    let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let flags = info.lines().find_map(|l| l.strip_prefix("flags:"));
    let flags = flags.and_then(|f| i32::from_str_radix(f.trim(), 8).ok());
    flags.is_none_or(|f| f & libc::O_ACCMODE != libc::O_RDONLY)
}

fn has_mapped(pid: u32, meta: &Metadata) -> bool {
    let Ok(maps) = Maps::of(pid) else {
        return true;
    };
    // By the inode alone: some file systems show another device there.
    let mut lines = maps.lines();
    lines.any(|l| l.is_written_for_others() && l.inode == meta.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_launch::SharedSession;

    #[test]
    fn whoever_has_it_open_for_writing_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, "content").expect("a file");
        let shared = SharedSession::create().expect("a session");
        let file = File::open(&path).expect("open");
        let meta = file.metadata().expect("metadata");
        ignore_signals();
        let s = shared.session();
        let mut lease = Lease::take(s, &file, &meta).expect("nobody writes");
        assert!(!lease.is_wanted(&file));
        let waiter = {
            let path = path.clone();
            std::thread::spawn(move || File::options().append(true).open(path))
        };
        while !lease.is_wanted(&file) {
            assert!(!waiter.is_finished());
        }
        lease.give_back(&file);
        drop(waiter.join().expect("a thread").expect("open"));
        let me = std::process::id();
        assert!(!has_open(me, &meta) && !has_mapped(me, &meta));
        let writer = File::options().append(true).open(&path).expect("open");
        assert!(Lease::take(s, &file, &meta).is_none());
        assert!(has_open(me, &meta));
        drop(writer);
        assert!(Lease::take(s, &file, &meta).is_some());
    }
}
