//! What can go wrong while a process is taken over.

use std::path::PathBuf;

/// An error of this crate, in one line for the user.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LaunchError {
    #[error("{program}: not found")]
    NotFound { program: String },
    #[error("{program}: can't be run: {why}")]
    CannotRun { program: String, why: String },
    #[error("{what}: {source}")]
    Os {
        what: String,
        source: std::io::Error,
    },
    #[error("the program ended before its first instruction (wait status {0:#x})")]
    Died(i32),
    #[error("the runtime image {0} is damaged: {1}")]
    BadRuntime(PathBuf, String),
    #[error("{0}")]
    Unsupported(String),
}

impl LaunchError {
    /// The exit status of reprise for this error: 127 not found, 126 can't be run, 125 otherwise.
    pub fn exit_status(&self) -> i32 {
        match self {
            LaunchError::NotFound { .. } => 127,
            LaunchError::CannotRun { .. } => 126,
            _ => 125,
        }
    }
}

/// The error of the last libc call, with what was being done.
pub(crate) fn os(what: impl Into<String>) -> LaunchError {
    LaunchError::Os {
        what: what.into(),
        source: std::io::Error::last_os_error(),
    }
}

/// A call's error, with what was being done.
pub(crate) fn os_as<E: Into<std::io::Error>>(what: &str) -> impl FnOnce(E) -> LaunchError + '_ {
    move |error| LaunchError::Os {
        what: what.into(),
        source: error.into(),
    }
}

/// Short form.
pub type Result<T> = std::result::Result<T, LaunchError>;
