//! `rr record`, as `reprise record`.

use super::options::{Words, GLOBAL, RECORD};
use crate::cli::{Command, RecordArgs, Until};
use anyhow::{bail, Result};
use reprise_abi::engine;
use rustix::io::{fcntl_setfd, FdFlags};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

/// What is to be done.
///
/// # Errors
/// When an option is not known, or there is no program.
pub fn command(mut words: Words, marks: bool) -> Result<Command> {
    let no_marks = || {
        bail!("rr's option --mark-stdio has no counterpart while recording: `rr replay -M` marks what the program wrote")
    };
    if marks {
        return no_marks();
    }
    let mut args = RecordArgs::of(&engine::SERIAL, Vec::new());
    // rr's recordings end with the first process, unless it is told to wait for all.
    args.until = Until::MainExits;
    args.as_rr = true;
    args.quiet = true;
    while let Some(option) = words.option(&[RECORD, GLOBAL], "rr record")? {
        match option.name {
            "chaos" => args.chaos = Some(None),
            "output-trace-dir" => args.output = Some(option.value.into()),
            "print-trace-dir" => args.tell_dir = Some(ours(option.number::<u16>()?.into())?),
            "mark-stdio" => return no_marks(),
            "wait" => args.until = Until::AllExit,
            "env" => add_to_environment(option.value.as_bytes())?,
            "nested" => {
                let wanted = option.value.to_string_lossy();
                if !["default", "error"].contains(&&*wanted) {
                    bail!("rr's option --nested={wanted} has no counterpart here: what runs in a recording is recorded with it");
                }
            }
            _ => {}
        }
    }
    args.command = words.rest();
    if args.command.first().is_some_and(|w| w == "--") {
        args.command.remove(0);
    }
    if args.command.is_empty() {
        bail!("`rr record` wants a program");
    }
    Ok(Command::Record(args))
}

/// A descriptor on which the user wants to be told, and which the program does not get.
fn ours(fd: i32) -> Result<i32> {
    if fd > libc::STDERR_FILENO {
        // SAFETY: whether it is open is asked here, and nobody else closes it.
        let named = unsafe { BorrowedFd::borrow_raw(fd) };
        if fcntl_setfd(named, FdFlags::CLOEXEC).is_err() {
            bail!("--print-trace-dir={fd}: this descriptor is not open");
        }
    }
    Ok(fd)
}

/// The program has its environment from us.
fn add_to_environment(text: &[u8]) -> Result<()> {
    let at = text.iter().position(|b| *b == b'=');
    let Some(at) = at.filter(|at| *at > 0 && !text.contains(&0)) else {
        bail!("--env wants NAME=VALUE");
    };
    let word = std::ffi::OsStr::from_bytes;
    std::env::set_var(word(&text[..at]), word(&text[at + 1..]));
    Ok(())
}
