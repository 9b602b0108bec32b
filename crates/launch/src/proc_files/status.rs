//! What the kernel says of a process or thread by name (proc_pid_status(5)).

use super::text;
use std::fmt::Display;
use std::io;
use std::str::FromStr;

/// What stands in `status` of a process or thread: a name, a colon, and what it has, on each line.
#[derive(Debug)]
pub struct Status(String);

impl Status {
    /// That of a process: `/proc/PID/status`.
    ///
    /// # Errors
    /// When it can't be read, as where the process has ended.
    pub fn of_process(pid: impl Display) -> io::Result<Status> {
        Ok(Status::new(text(format!("/proc/{pid}/status"))?))
    }

    /// That of a thread: `/proc/PID/task/TID/status`.
    ///
    /// # Errors
    /// When it can't be read, as where the thread has ended.
    pub fn of_thread(pid: impl Display, tid: impl Display) -> io::Result<Status> {
        Ok(Status::new(text(format!("/proc/{pid}/task/{tid}/status"))?))
    }

    /// That of the calling thread.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn of_this_thread() -> io::Result<Status> {
        Ok(Status::new(text("/proc/thread-self/status")?))
    }

    /// That which the file said.
    #[must_use]
    pub fn new(text: String) -> Status {
        Status(text)
    }

    /// What has this name, without space around it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(value.trim())
    }

    /// The number of this name.
    #[must_use]
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// The numbers of this name; none where nothing stands behind it.
    #[must_use]
    pub fn numbers<T: FromStr>(&self, name: &str) -> Option<Vec<T>> {
        let words = self.get(name)?.split_ascii_whitespace();
        words.map(|word| word.parse().ok()).collect()
    }

    /// Signals, by bits: signal 1 is the lowest.
    #[must_use]
    pub fn signals(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.get(name)?, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_names() {
        let text = "Name:\ta b\nPPid:\t12\nNSpid:\t4711\t12\t1\nGroups:\t \nNSpidX:\t3\nSigBlk:\t0000000000014000\n";
        let status = Status::new(text.into());
        assert_eq!(status.get("Name"), Some("a b"));
        assert_eq!(status.number("PPid"), Some(12));
        assert_eq!(status.numbers("NSpid"), Some(vec![4711, 12, 1]));
        assert_eq!(status.numbers::<u32>("Groups"), Some(vec![]));
        assert_eq!(status.signals("SigBlk"), Some(0x14000));
        assert_eq!(
            (status.get("NS"), status.number::<u32>("Name")),
            (None, None)
        );
        assert_eq!(status.numbers::<u8>("NSpid"), None);
    }

    #[test]
    fn the_kernels_own_form_is_read() {
        let own = Status::of_process("self").expect("this process");
        assert_eq!(own.number("Pid"), Some(std::process::id()));
        let thread = Status::of_this_thread().expect("this thread");
        let tid: i32 = thread.number("Pid").expect("its number");
        assert_eq!(tid, rustix::thread::gettid().as_raw_pid());
        assert!(Status::of_thread(std::process::id(), tid).is_ok());
    }
}
