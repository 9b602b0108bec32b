//! Where a thread is (proc_pid_syscall(5)).

use super::text;
use std::fmt::Display;
use std::io;

/// Where a thread is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// It runs, or waits for a processor.
    Runs,
    /// It waits in a system call.
    InCall {
        /// Which.
        number: u64,
        /// Its arguments, the stack pointer and the program counter.
        words: Vec<u64>,
    },
    /// It waits, and is in no call: stopped, say, or in a page fault.
    Outside {
        /// The program counter.
        pc: u64,
    },
}

impl Whereabouts {
    /// That of a thread: `/proc/PID/task/TID/syscall`; nothing where the file has another form.
    ///
    /// # Errors
    /// When it can't be read: the thread has ended, the kernel has no such file, or doesn't show this one.
    pub fn of_thread(pid: impl Display, tid: impl Display) -> io::Result<Option<Whereabouts>> {
        let line = text(format!("/proc/{pid}/task/{tid}/syscall"))?;
        Ok(Whereabouts::parse(&line))
    }

    /// What the file said.
    #[must_use]
    pub fn parse(line: &str) -> Option<Whereabouts> {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        if first == "running" {
            return Some(Whereabouts::Runs);
        }
        let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let words: Vec<u64> = words.map(hex).collect::<Option<_>>()?;
        Some(match first {
            "-1" => Whereabouts::Outside {
                pc: words.get(1).copied()?,
            },
            number => Whereabouts::InCall {
                number: number.parse().ok()?,
                words,
            },
        })
    }

    /// The program counter of one that waits.
    #[must_use]
    pub fn pc(&self) -> Option<u64> {
        match self {
            Whereabouts::Runs => None,
            Whereabouts::InCall { words, .. } => words.last().copied(),
            Whereabouts::Outside { pc } => Some(*pc),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Whereabouts::{InCall, Outside, Runs};

    #[test]
    fn a_line_says_where() {
        let call = InCall {
            number: 202,
            words: vec![0x10, 0, 7],
        };
        let cases = [
            ("running\n", Some(Runs), None),
            (
                "-1 0x7ffe00 0x5500\n",
                Some(Outside { pc: 0x5500 }),
                Some(0x5500),
            ),
            ("202 0x10 0x0 0x7\n", Some(call), Some(7)),
            ("-1", None, None),
            ("202 16", None, None),
            ("call 0x1", None, None),
            ("", None, None),
        ];
        for (line, wanted, pc) in cases {
            let is = Whereabouts::parse(line);
            assert_eq!(is.as_ref().and_then(Whereabouts::pc), pc, "{line:?}");
            assert_eq!(is, wanted, "{line:?}");
        }
    }
}
