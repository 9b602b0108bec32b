//! Processes by the numbers that the kernel and the session have for them: signals to them (kill(2)), descriptors of them (pidfd_open(2)), their ends. 0 is
//! no process here, where the calls themselves take it for the caller's whole group.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::{retry_on_intr, Errno};
use rustix::process::{
    kill_process, pidfd_open, test_kill_process, waitpid, Pid, PidfdFlags, Signal, WaitOptions,
};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::time::Duration;

fn of(pid: i32) -> Result<Pid> {
    let positive = Some(pid).filter(|pid| *pid > 0);
    let pid = positive.and_then(Pid::from_raw);
    pid.ok_or_else(|| Error::from(Errno::SRCH))
}

/// Sends it a signal.
///
/// # Errors
/// When there is none, or it is not ours to signal.
pub fn send(pid: i32, signal: Signal) -> Result<()> {
    Ok(kill_process(of(pid)?, signal)?)
}

/// Is there one that we may signal?
pub fn is_there(pid: i32) -> bool {
    of(pid).is_ok_and(|pid| test_kill_process(pid).is_ok())
}

/// Is it certain that there is none, whoever may signal it?
pub fn is_nobody(pid: i32) -> bool {
    of(pid).map_or(true, |pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// A descriptor of it, by which its end is seen, and which never means another one.
///
/// # Errors
/// When there is none, or descriptors are short.
pub fn open(pid: i32) -> Result<OwnedFd> {
    Ok(pidfd_open(of(pid)?, PidfdFlags::empty())?)
}

/// Waits so long for the end of the process that a descriptor is of; a signal ends the wait, too.
pub fn has_ended(process: &OwnedFd, within: Duration) -> bool {
    let within = Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: within.subsec_nanos().into(),
    };
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&within)).is_ok_and(|n| n > 0)
}

/// Waits for the end of a child: its wait status.
///
/// # Errors
/// When it is no child of ours.
pub fn reap(child: i32) -> Result<i32> {
    let child = of(child)?;
    let heard = retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()))?;
    // Who waits without end hears of something.
    let (_, status) = heard.ok_or(ErrorKind::WouldBlock)?;
    Ok(status.as_raw())
}

/// The wait status of a child that has ended already; `None` while it lives.
///
/// # Errors
/// When it is no child of ours.
pub fn reap_ended(child: i32) -> Result<Option<i32>> {
    let heard = waitpid(Some(of(child)?), WaitOptions::NOHANG)?;
    Ok(heard.map(|(_, status)| status.as_raw()))
}

/// Reads its memory (process_vm_readv(2)): how many bytes were there.
///
/// # Errors
/// When none of it is there, or it is not ours to read.
pub fn read(pid: i32, address: u64, into: &mut [u8]) -> Result<usize> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: the kernel copies into bytes of ours, and looks at what is there.
    let n = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    usize::try_from(n).map_err(|_| Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    #[test]
    fn a_child_is_signalled_and_heard_of() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let pid = child.id() as i32;
        let end = open(pid).expect("a descriptor");
        assert!(is_there(pid) && !has_ended(&end, Duration::ZERO));
        assert_eq!(reap_ended(pid).expect("our child"), None);
        send(pid, Signal::KILL).expect("our child");
        assert!(has_ended(&end, Duration::from_secs(100)));
        let status = ExitStatus::from_raw(reap(pid).expect("our child"));
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
        assert!(!is_there(pid) && is_nobody(pid) && !is_nobody(1));
        assert!(reap_ended(pid).is_err() && send(pid, Signal::KILL).is_err());
        assert!(child.wait().is_err(), "it has been heard of");
    }

    #[test]
    fn memory_is_read_where_it_is() {
        let (here, mut copy) = (*b"remembered", [0; 10]);
        let at = here.as_ptr() as u64;
        let me = std::process::id() as i32;
        assert_eq!(read(me, at, &mut copy).expect("ours"), here.len());
        assert_eq!(copy, here);
        assert!(read(me, 0, &mut copy).is_err());
    }

    #[test]
    fn no_number_means_a_group() {
        for none in [0, -1] {
            assert!(
                !is_there(none) && is_nobody(none) && open(none).is_err() && reap(none).is_err()
            );
            assert_eq!(
                send(none, Signal::KILL).expect_err("nobody").kind(),
                Error::from(Errno::SRCH).kind()
            );
        }
    }
}
