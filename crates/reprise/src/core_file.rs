//! `core`: an ordinary core file of the program at an event, for any debugger: a session of gdb that only writes it.

use crate::cli::CoreArgs;
use crate::debug::{self, Session};
use anyhow::{Context, Result};
use reprise_console::say;
use reprise_debug::Place;
use reprise_trace::Catalog;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// Runs `core`.
///
/// # Errors
/// When the trace can't be debugged, there is no gdb, or the file can't be written.
pub fn run(args: &CoreArgs) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let room = tempfile::tempdir().context("make a directory for gdb's answer")?;
    // gdb takes what it can of a name; this one is plain.
    let written = room.path().join("core");
    let mut generate = OsString::from("generate-core-file ");
    generate.push(&written);
    let at = debug::place(Some(&args.at), &dir, Place::End)?;
    let session = Session {
        dir: &dir,
        birth: debug::birth(args.pid, at, &dir)?,
        at,
        arguments: ["-nx".into(), "-batch".into(), "-ex".into(), generate].to_vec(),
        answer: Some(&room.path().join("answer")),
        limit: args.time_limit.map(Duration::from_secs),
        given_up: None,
        marks: false,
        debugger: None,
        unseen: false,
    };
    let status = debug::with_gdb(&session)?;
    if !written.exists() {
        // The server has said why.
        anyhow::ensure!(status != 0, "gdb wrote no core file");
        return Ok(status);
    }
    copy_private(&written, &args.output)
        .with_context(|| format!("write {}", args.output.display()))?;
    if !args.quiet {
        say!("wrote {}", args.output.display());
    }
    Ok(0)
}

/// A core holds all that the program had in memory: only its owner may read it, whoever's file was there before.
fn copy_private(from: &Path, to: &Path) -> io::Result<()> {
    let mut target = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(to)?;
    // Not of a terminal, or a pipe.
    if target.metadata()?.is_file() {
        target.set_permissions(Permissions::from_mode(0o600))?;
    }
    io::copy(&mut File::open(from)?, &mut target).map(drop)
}
