//! What the kernel counts of a process or thread (proc_pid_stat(5)).

use super::text;
use std::fmt::Display;
use std::io;

/// What stands in `stat` of a process or thread: numbered fields, the second of which is a name that may hold anything.
#[derive(Debug)]
pub struct Stat(String);

impl Stat {
    /// That of a process: `/proc/PID/stat`.
    ///
    /// # Errors
    /// When it can't be read, as where the process has ended.
    pub fn of_process(pid: impl Display) -> io::Result<Stat> {
        Ok(Stat::new(text(format!("/proc/{pid}/stat"))?))
    }

    /// That of a thread: `/proc/PID/task/TID/stat`.
    ///
    /// # Errors
    /// When it can't be read, as where the thread has ended.
    pub fn of_thread(pid: impl Display, tid: impl Display) -> io::Result<Stat> {
        Ok(Stat::new(text(format!("/proc/{pid}/task/{tid}/stat"))?))
    }

    /// That which the file said.
    #[must_use]
    pub fn new(text: String) -> Stat {
        Stat(text)
    }

    /// Fields from the third on.
    fn behind_name(&self) -> impl Iterator<Item = &str> {
        let behind = self.0.rsplit_once(") ").map_or("", |(_, behind)| behind);
        behind.split_ascii_whitespace()
    }

    /// Field 3: runs or could (R), sleeps (S, D), is stopped (T, t), has ended (Z, X).
    #[must_use]
    pub fn state(&self) -> Option<char> {
        self.behind_name().next()?.chars().next()
    }

    /// Has it ended, and is only kept by the kernel until somebody asks how?
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state(), Some('Z' | 'X'))
    }

    /// A field by its number in the manual, from the fourth on; `None` for a negative one.
    #[must_use]
    pub fn field(&self, number: usize) -> Option<u64> {
        self.behind_name().nth(number.checked_sub(3)?)?.parse().ok()
    }

    /// The time that it has computed in the program and in the kernel (utime, stime), in ticks of the clock (sysconf(3), _SC_CLK_TCK).
    #[must_use]
    pub fn computed(&self) -> Option<(u64, u64)> {
        Some((self.field(14)?, self.field(15)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_fields() {
        let stat = Stat::new("7 (a) S 1) (b) R 5 6 7 -1 1 0 0 0 0 0 8 9 0".into());
        assert_eq!((stat.state(), stat.has_ended()), (Some('R'), false));
        assert_eq!([4, 7, 14].map(|n| stat.field(n)), [Some(5), None, Some(8)]);
        assert_eq!([0, 3, 99].map(|n| stat.field(n)), [None; 3]);
        assert_eq!(stat.computed(), Some((8, 9)));
        assert!(Stat::new("7 (a) Z 1".into()).has_ended());
        assert_eq!(Stat::new(String::new()).state(), None);
    }
}
