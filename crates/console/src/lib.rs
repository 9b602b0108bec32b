//! What Reprise itself says, to whom it may concern: messages on the standard error, data on the standard output.
//!
//! Both may be closed, full, or pipes that nobody reads. `println!` and `eprintln!` panic then, and a panic of a recorder loses the status
//! of the program that it records; so they are forbidden in this workspace (`clippy::print_stdout`, `clippy::print_stderr`), and this takes
//! their place:
//!
//! - A **message** ([`say!`], [`say_text`]) that can't be written is lost, and nothing else is.
//! - **Data** ([`tell!`], [`tell_text`], [`Output`]) that can't be written is an error that the command ends with, in the way of other tools:
//!   where the reader has gone, by SIGPIPE ([`Lost::is_unread`], [`end_unread`]), else with a line that says why.
//!
//! What a recorded program writes is not written from here.

mod beginning;
pub mod log;

pub use beginning::{was_closed, was_sigpipe_ignored};

use rustix::io::Errno;
use std::fmt;
use std::io::{self, Write};

/// A line on the standard error, as by `format!`, that begins with `reprise: `.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => {
        $crate::say_text(&format!("reprise: {}\n", format_args!($($part)*)))
    };
}

/// A line on the standard output, as by `format!`; an error when it can't be written.
#[macro_export]
macro_rules! tell {
    ($($part:tt)*) => {
        $crate::tell_text(&format!("{}\n", format_args!($($part)*)))
    };
}

/// Text on the standard error, in one write: lines of several processes don't mix. Lost, if nobody takes it.
pub fn say_text(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Text on the standard output.
///
/// # Errors
/// [`Lost`], inside of an [`io::Error`].
pub fn tell_text(text: &str) -> io::Result<()> {
    Output.write_all(text.as_bytes())
}

/// The standard output, for data. Not buffered: put a `BufWriter` around it where there is much.
#[derive(Clone, Copy, Debug)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if was_closed(libc::STDOUT_FILENO) {
            // The standard library has put /dev/null there.
            return Err(Lost(libc::EBADF).into());
        }
        rustix::io::write(rustix::stdio::stdout(), bytes).map_err(|errno| match errno {
            Errno::INTR => errno.into(),
            errno => Lost(errno.raw_os_error()).into(),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Data that the standard output didn't take, with the error of write(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost(pub i32);

impl Lost {
    /// Whether an error, or what has caused it, is that nobody reads the standard output any more, and that this is a reason to end without
    /// a word: the caller of this program has not asked for SIGPIPE to be ignored.
    pub fn is_unread(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(e) = next {
            // An io::Error passes over what it was made of, when asked for its source.
            let inside = e
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref)
                .and_then(|inner| inner.downcast_ref::<Lost>());
            if let Some(lost) = e.downcast_ref::<Lost>().or(inside) {
                return lost.0 == libc::EPIPE && !was_sigpipe_ignored();
            }
            next = e.source();
        }
        false
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = io::Error::from_raw_os_error(self.0);
        write!(f, "can't write to the standard output: {why}")
    }
}

impl std::error::Error for Lost {}

impl From<Lost> for io::Error {
    fn from(lost: Lost) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(lost.0).kind(), lost)
    }
}

/// Ends this process as SIGPIPE ends other tools when nobody reads their output any more.
pub fn end_unread() -> ! {
    // SAFETY: plain calls. A SIGPIPE that is blocked doesn't end the process; then the status says the same.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
        libc::_exit(128 + libc::SIGPIPE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unread_output_is_known_whatever_is_around_it() {
        let of = |errno| io::Error::from(Lost(errno));
        assert!(Lost::is_unread(&of(libc::EPIPE)) || was_sigpipe_ignored());
        assert!(!Lost::is_unread(&of(libc::ENOSPC)));
        // One of a pipe of another kind is none.
        assert!(!Lost::is_unread(&io::Error::from_raw_os_error(libc::EPIPE)));
        assert!(of(libc::ENOSPC).to_string().contains("No space left"));
    }
}
