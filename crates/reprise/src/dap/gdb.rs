//! gdb at the side of a replay, spoken to through its machine interface: two processes of ours, that of `replay -d` and gdb, as long as the session takes.

use super::mi::quoted;
use super::wire::{hear_gdb, hear_text, Ear};
use crate::debug::{self, Session};
use crate::mcp::last_words;
use anyhow::{bail, Context, Result};
use reprise_debug::Place;
use reprise_launch::process;
use rustix::process::{set_parent_process_death_signal, Signal};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Between two looks whether the replay is ready.
const LOOK: Duration = Duration::from_millis(5);
/// How long the replay may take to end when its debugger has gone.
const GRACE: Duration = Duration::from_secs(5);

/// The variable by which the editor hands over the token of a server; no business of programs that are started.
pub const TOKEN: &str = "REPRISE_DAP_TOKEN";

/// Settings: nobody is asked, and nothing is cut into pages, nor fetched.
const SETTINGS: &[&str] = &[
    "-enable-pretty-printing",
    "-gdb-set confirm off",
    "-gdb-set pagination off",
    "-gdb-set width 0",
    "-gdb-set height 0",
    "-gdb-set print elements 200",
    "-gdb-set max-value-size 1048576",
    "-gdb-set backtrace limit 10000",
    "-gdb-set unwindonsignal on",
    "-gdb-set debuginfod enabled off",
    "-gdb-set breakpoint pending on",
];

/// Both processes.
pub struct Gdb {
    // Ended before their directory goes.
    gdb: Child,
    server: Child,
    to: ChildStdin,
    token: u64,
    room: TempDir,
}

impl Gdb {
    /// Starts a replay that stands `at` a place of the process `birth` of the trace `dir`, and gdb. What the program writes goes to `ear` if it is `shown`.
    /// `still` is asked between two looks: may it go on?
    ///
    /// # Errors
    /// When the trace can't be debugged, or one of them can't be started.
    pub fn start(
        dir: &Path,
        birth: u32,
        at: Place,
        shown: bool,
        ear: &Ear,
        mut still: impl FnMut() -> Result<()>,
    ) -> Result<Gdb> {
        let room = tempfile::tempdir().context("make a directory for gdb's socket")?;
        let socket = room.path().join("gdb");
        let said = room.path().join("said");
        let unseen = room.path().join("unseen");
        let session = Session {
            dir,
            birth,
            at,
            arguments: ["-nx", "--interpreter=mi3"].map(Into::into).into(),
            answer: (!shown).then_some(&unseen),
            limit: None,
            given_up: None,
            marks: false,
            debugger: None,
            unseen: !shown,
        };
        let mut command = debug::server(&session, &socket)?;
        let errors = File::create(&said).context("make a file for what the replay says")?;
        command.stderr(errors).env_remove(TOKEN);
        if shown {
            command.stdout(Stdio::piped());
        }
        let mut server = Ended(Some(command.spawn().context("start the replay")?));
        let replay = server.0.as_mut().context("start the replay")?;
        if let Some(out) = replay.stdout.take() {
            hear_text(out, "stdout", ear.clone());
        }
        while !socket.exists() {
            if replay.try_wait().context("wait for the replay")?.is_some() {
                bail!("{}", last_words(&std::fs::read(&said).unwrap_or_default()));
            }
            still()?;
            std::thread::sleep(LOOK);
        }
        let mut command = debug::gdb(&socket, &session)?;
        ends_with_us(&mut command);
        command
            .env("LC_ALL", "C")
            .env("DEBUGINFOD_URLS", "")
            .env_remove(TOKEN)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut gdb = command
            .spawn()
            .context("start gdb, which must be installed")?;
        let (to, from) = (gdb.stdin.take(), gdb.stdout.take());
        hear_gdb(from.context("read what gdb says")?, ear.clone());
        Ok(Gdb {
            gdb,
            server: server.0.take().context("start the replay")?,
            to: to.context("speak to gdb")?,
            token: 0,
            room,
        })
    }

    /// What it is told first.
    pub fn settings() -> impl Iterator<Item = &'static str> {
        SETTINGS.iter().copied()
    }

    /// Gives it a command; its number.
    ///
    /// # Errors
    /// When it is gone.
    pub fn send(&mut self, command: &str) -> Result<u64> {
        self.token += 1;
        let line = format!("{}{command}\n", self.token);
        let sent = self.to.write_all(line.as_bytes());
        sent.map_err(|_| self.why_gone())?;
        Ok(self.token)
    }

    /// As by Ctrl-C.
    pub fn interrupt(&self) {
        // Our own child, which has not been reaped.
        let _ = process::send(self.gdb.id() as i32, Signal::INT);
    }

    /// Where the files of the trace are laid out.
    pub fn root(&self) -> std::path::PathBuf {
        self.room.path().join("root")
    }

    /// Why it does not answer any more: the replay says that as it ends.
    pub fn why_gone(&mut self) -> anyhow::Error {
        let begun = std::time::Instant::now();
        while begun.elapsed() < GRACE && matches!(self.server.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK);
        }
        let said = std::fs::read(self.room.path().join("said")).unwrap_or_default();
        match said.is_empty() {
            true => anyhow::anyhow!("gdb has ended unexpectedly"),
            false => anyhow::anyhow!("{}", last_words(&said)),
        }
    }
}

impl Drop for Gdb {
    fn drop(&mut self) {
        for child in [&mut self.gdb, &mut self.server] {
            // What it replays ends with it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ends a child unless it was taken out.
struct Ended(Option<Child>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Lets the kernel end a child with the thread that starts it.
pub fn ends_with_us(command: &mut Command) {
    // SAFETY: a plain call in the child.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
}

/// A command of gdb's command line.
pub fn console(command: &str) -> String {
    format!("-interpreter-exec console {}", quoted(command))
}
