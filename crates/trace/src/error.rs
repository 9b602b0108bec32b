//! What can go wrong with a trace, as one line for the user: what failed, on what, what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, TraceError>;

/// Why a trace can't grow any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FullReason {
    /// The file system has no room (ENOSPC).
    Disk,
    /// The user's quota is used up (EDQUOT).
    Quota,
    /// The file may not get larger (EFBIG, `ulimit -f`).
    FileSize,
    /// The limit given for this recording is reached.
    MaxSize,
}

impl FullReason {
    /// The reason behind an error of the system, if it is about room at all.
    pub fn of(error: &io::Error) -> Option<FullReason> {
        match error.raw_os_error()? {
            libc::ENOSPC => Some(FullReason::Disk),
            libc::EDQUOT => Some(FullReason::Quota),
            libc::EFBIG => Some(FullReason::FileSize),
            _ => None,
        }
    }
}

impl std::fmt::Display for FullReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FullReason::Disk => "the disk is full; make room there",
            FullReason::Quota => "the disk quota is used up; make room there",
            FullReason::FileSize => "the file size limit is reached; raise `ulimit -f`",
            FullReason::MaxSize => "the limit of this recording is reached; raise `--max-size`",
        })
    }
}

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The system refused something.
    #[error("can't {action} {path}: {}", reason_of(source))]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no room for more; what was written before is a good trace.
    #[error("trace full: can't write more to {path}: {reason}, or record less; what is there stays readable")]
    TraceFull {
        /// The file that could not grow.
        path: PathBuf,
        /// Why.
        reason: FullReason,
    },
    /// A directory or file that is no trace.
    #[error("{path} is not a trace ({why}); `reprise ls` lists the traces there are")]
    NotATrace {
        /// What was given.
        path: PathBuf,
        /// How one sees that.
        why: String,
    },
    /// There is no trace to choose.
    #[error("no trace yet in {root}; make one with `reprise record -- PROGRAM`")]
    NoTraces {
        /// Where traces are looked for.
        root: PathBuf,
    },
    /// No place for traces is known.
    #[error("don't know where to keep traces: set REPRISE_TRACE_DIR (or HOME)")]
    NoRoot,
    /// The target exists and isn't empty.
    #[error("{path} exists already; name another place, or remove it first")]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// Made by a newer reprise.
    #[error("{path} has trace format {found}, this reprise reads up to {ours}; upgrade reprise to replay it{}", made_by(.by))]
    Newer {
        /// The trace or the file in it.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version we read.
        ours: u32,
        /// The version of the reprise that made it, where that is known.
        by: Option<String>,
    },
    /// The event stream is bad from here on.
    #[error("{path} is damaged at byte {at_byte} ({why}); events 0 to {event} (exclusive) are good, replay up to there")]
    Damaged {
        /// The stream.
        path: PathBuf,
        /// Number of the first event that is not known to be good.
        event: u64,
        /// Where in the file.
        at_byte: u64,
        /// What is wrong there.
        why: String,
    },
    /// Another file of the trace is bad.
    #[error("{path} is damaged ({why}); the trace can't be used, get a good copy or record again")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An event that the stream doesn't have.
    #[error("{path} has no event {event}; it has {len} events, the first is 0")]
    NoSuchEvent {
        /// The stream.
        path: PathBuf,
        /// The number asked for.
        event: u64,
        /// Events it has.
        len: u64,
    },
    /// Something larger than its named limit.
    #[error("{what} is {found}, the limit is {limit}")]
    Limit {
        /// What it is.
        what: &'static str,
        /// How large it is.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The caller handed over bytes that are no event.
    #[error("not an event: {0}; this is a bug in reprise, please report it")]
    BadEvent(&'static str),
    /// The store has no such content (any more).
    #[error("content {hash} is not in {store}; record again")]
    NoContent {
        /// The hash asked for, in hex.
        hash: String,
        /// The store.
        store: PathBuf,
    },
    /// A key that can't be used.
    #[error("can't use {path}: {why}")]
    Key {
        /// Its file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// An encrypted pack that can't be opened, or made.
    #[error("can't decrypt {path}: {why}")]
    Encrypted {
        /// The pack.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A packed trace that is not what its signature says.
    #[error("{packed} is not what its signature {path} says ({why}): don't use it, get a good copy of both")]
    Signature {
        /// The signature.
        path: PathBuf,
        /// The packed trace.
        packed: PathBuf,
        /// How one sees that.
        why: String,
    },
    /// A trace out of which nothing, or not this, can be taken.
    #[error("can't redact: {0}")]
    Redaction(String),
    /// Only regular files have contents to keep.
    #[error("{path} is not a regular file; its contents can't be kept in a trace")]
    NotAFile {
        /// The file as it was known to the caller.
        path: PathBuf,
    },
}

fn reason_of(error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "; it belongs to another user, or its mode forbids it",
        _ => "",
    };
    format!("{error}{hint}")
}

fn made_by(by: &Option<String>) -> String {
    by.as_ref()
        .map(|v| format!(" (it was made by reprise {v})"))
        .unwrap_or_default()
}

impl TraceError {
    /// An error of the system; lack of room becomes [`TraceError::TraceFull`].
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> TraceError {
        match FullReason::of(&source) {
            Some(reason) => TraceError::TraceFull {
                path: path.into(),
                reason,
            },
            None => TraceError::Io {
                action,
                path: path.into(),
                source,
            },
        }
    }

    pub(crate) fn corrupt(path: &Path, why: impl Into<String>) -> TraceError {
        TraceError::Corrupt {
            path: path.into(),
            why: why.into(),
        }
    }

    /// Whether it says that there is no room for more.
    pub fn is_full(&self) -> bool {
        matches!(self, TraceError::TraceFull { .. })
    }

    /// The errno that says the same to a program, for errors of the system.
    pub fn errno(&self) -> Option<i32> {
        match self {
            TraceError::Io { source, .. } => source.raw_os_error(),
            TraceError::TraceFull { .. } => Some(libc::ENOSPC),
            _ => None,
        }
    }
}

/// Adds what was tried on what to an error of the system.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| TraceError::io(action, path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_room_is_typed() {
        for (errno, reason) in [
            (libc::ENOSPC, FullReason::Disk),
            (libc::EDQUOT, FullReason::Quota),
            (libc::EFBIG, FullReason::FileSize),
        ] {
            let e = TraceError::io("write", Path::new("x"), io::Error::from_raw_os_error(errno));
            assert!(
                matches!(e, TraceError::TraceFull { reason: r, .. } if r == reason),
                "{e}"
            );
        }
        let e = TraceError::io(
            "write",
            Path::new("x"),
            io::Error::from_raw_os_error(libc::EIO),
        );
        assert!(!e.is_full());
        assert_eq!(e.errno(), Some(libc::EIO));
    }

    #[test]
    fn messages_are_one_line() {
        let e = TraceError::Newer {
            path: "t".into(),
            found: 9,
            ours: 1,
            by: Some("7.0".into()),
        };
        let text = e.to_string();
        assert!(
            text.contains('9')
                && text.contains("up to 1")
                && text.contains("7.0")
                && !text.contains('\n')
        );
    }
}
