//! The agent of root reads files that a program names which may have dropped its privileges: it opens them with the program's rights, so that nothing gets into a
//! trace, and no hash is told, of what the program could not have read itself.
//!
//! A thread's ids for files are its own (setfsuid(2), and setgroups(2) without libc, which would tell all threads). Who has others than root there has not root's
//! capabilities for files either (capabilities(7), "Effect of user ID changes on capabilities").

use reprise_launch::proc_files::Status;
use rustix::process::{geteuid, Gid};
use rustix::thread::set_thread_groups;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// By whom files are opened: user, group, and the other groups.
#[derive(PartialEq, Eq, Debug)]
struct Ids {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

/// Opens a descriptor of another process anew, for reading, with that process's rights. A pipe without a writer is no reason to wait.
///
/// # Errors
/// As open(2); `EACCES` also where the agent may not look at the process.
pub fn open_descriptor(pid: u32, fd: i32) -> Result<File> {
    // What it is, before anybody's rights come into it: who dropped his may not even look into his own directory in /proc.
    let named = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(format!("/proc/{pid}/fd/{fd}"))?;
    let path = format!("/proc/self/fd/{}", named.as_raw_fd());
    let open = || {
        let mut how = File::options();
        how.read(true).custom_flags(libc::O_NONBLOCK).open(&path)
    };
    if !geteuid().is_root() {
        return open();
    }
    let ids = |status: Status| Ids::of(&status).ok_or(Error::from_raw_os_error(libc::EACCES));
    let its = ids(Status::of_process(pid)?)?;
    let own = ids(Status::of_this_thread()?)?;
    if its == own {
        return open();
    }
    let _taken = Taken::take(&its, own)?;
    open()
}

impl Ids {
    fn of(status: &Status) -> Option<Ids> {
        // Real, effective, saved, and that for files.
        let of_files = |name| status.numbers(name)?.get(3).copied();
        Some(Ids {
            user: of_files("Uid")?,
            group: of_files("Gid")?,
            groups: status.numbers("Groups")?,
        })
    }
}

/// While it lives, the calling thread has somebody else's ids for files.
struct Taken {
    own: Ids,
}

impl Taken {
    fn take(its: &Ids, own: Ids) -> Result<Taken> {
        let taken = Taken { own };
        // The user last: with him go the rights.
        set_groups(&its.groups)?;
        // SAFETY: plain calls.
        unsafe {
            libc::setfsgid(its.group);
            libc::setfsuid(its.user);
            // Neither call tells whether it failed; no user has this number, so this only asks.
            match libc::setfsuid(u32::MAX) as u32 == its.user {
                true => Ok(taken),
                false => Err(Error::from_raw_os_error(libc::EACCES)),
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: plain calls.
        unsafe {
            libc::setfsuid(self.own.user);
            libc::setfsgid(self.own.group);
        }
        // Root may.
        let _ = set_groups(&self.own.groups);
    }
}

/// The other groups of the calling thread alone.
fn set_groups(groups: &[u32]) -> Result<()> {
    let groups: Vec<Gid> = groups.iter().map(|g| Gid::from_raw(*g)).collect();
    Ok(set_thread_groups(&groups)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_for_files() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t9 10 \n";
        let ids = Ids::of(&Status::new(status.into())).expect("ids");
        assert_eq!((ids.user, ids.group, ids.groups), (4, 8, vec![9, 10]));
        assert_eq!(Ids::of(&Status::new("Uid:\t1\t2\t3\n".into())), None);
    }
}
