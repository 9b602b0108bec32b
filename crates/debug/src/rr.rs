//! What tools expect that know rr: packets of its server beside those of gdb's protocol, its commands, and how it tells of both ends of a
//! recording (rr's GdbServerConnection.cc, GdbServer.cc and GdbCommand.cc; Delve's pkg/proc/gdbserial is one that asks).
//!
//! - `qRRCmd:NAME:THREAD:ARGUMENT...` is a command of rr's; arguments and answer are text in hexadecimal.
//! - `vRun;FILE;WHERE` begins anew at a checkpoint (`cN`), at an event (`N`), or, with nothing, where the session began anew last. It is
//!   answered at once, breakpoints are gone, and the next motion, whatever it is, ends there.
//! - `vKill` ends nothing: gdb sends it before each `vRun`.
//! - `!` is the extended mode, without which gdb doesn't begin anew.
//! - `qXfer:features` has the description of registers in parts.
//! - Forward, the end is told as a signal 9 that comes before it; backward, the beginning is told as signal 0.

use crate::packets::{portion, two_numbers};
use crate::registers::described_in;
use crate::target::{Goal, Session};
use crate::DebugError;
use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::base::reverse_exec::ReplayLogPosition;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const COMMAND: &[u8] = b"qRRCmd:";
const RUN: &[u8] = b"vRun;";
const KILL: &[u8] = b"vKill;";
const EXTENDED: &[u8] = b"!";
const REGISTERS: &[u8] = b"qXfer:features:read:";

const DONE: &[u8] = b"OK";
const FAILED: &[u8] = b"E01";

/// How a server takes part that is to pass for rr's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AsRr {
    /// The debugger that its users are told to start.
    pub debugger: String,
    /// The next one is waited for when a debugger leaves.
    pub keeps_listening: bool,
}

/// Is it answered here?
pub(crate) fn is_ours(body: &[u8]) -> bool {
    body == EXTENDED
        || [COMMAND, RUN, KILL, REGISTERS]
            .iter()
            .any(|p| body.starts_with(p))
}

/// How users and tools learn where to connect, and to what: Delve takes the address from what follows `target extended-remote`, and the
/// program's file from the last word.
pub(crate) fn invitation(debugger: &str, port: u16, program: &Path) -> String {
    let remote = format!("target extended-remote 127.0.0.1:{port}");
    let program = program.display();
    format!(
        "Launch debugger with\n  '{debugger}' '-l' '10000' '-ex' 'set sysroot target:' '-ex' '{remote}' '{program}'\n"
    )
}

/// A stop as rr tells of it.
pub(crate) fn told(stop: MultiThreadStopReason<u64>) -> MultiThreadStopReason<u64> {
    match stop {
        MultiThreadStopReason::ReplayLog { tid, pos } => MultiThreadStopReason::SignalWithThread {
            tid: tid.unwrap_or(Tid::MIN),
            signal: match pos {
                ReplayLogPosition::Begin => Signal::SIGZERO,
                ReplayLogPosition::End => Signal::SIGKILL,
            },
        },
        other => other,
    }
}

impl Session {
    /// Answers a packet that [`is_ours`].
    ///
    /// # Errors
    /// When the debuggee is gone.
    pub(crate) fn answer_as_rr(&mut self, body: &[u8]) -> Result<Vec<u8>, DebugError> {
        if let Some(command) = body.strip_prefix(COMMAND) {
            return Ok(match Command::of(command) {
                Some(command) => in_hex(&format!("{}\n", self.obey(&command)?)),
                None => FAILED.to_vec(),
            });
        }
        if let Some(part) = body.strip_prefix(REGISTERS) {
            return Ok(registers(part).unwrap_or_else(|| FAILED.to_vec()));
        }
        match body.strip_prefix(RUN) {
            Some(words) => self.run_anew(words),
            None => Ok(DONE.to_vec()),
        }
    }

    /// What rr says to its commands.
    fn obey(&mut self, command: &Command) -> Result<String, DebugError> {
        if !self.is_astray() {
            self.end_diversion()?;
        }
        let argument = command.arguments.first().map_or("", String::as_str);
        Ok(match command.name {
            "when" => format!("Current event: {}", self.debuggee()?.next_event()),
            "when-tid" => {
                let d = self.debuggee()?;
                let asked = d
                    .slots()
                    .find(|s| i64::from(d.visible(*s)) == command.thread);
                format!("Current tid: {}", d.visible(asked.unwrap_or(d.current)))
            }
            "checkpoint" => match self.remember(argument)? {
                Ok((n, _)) => format!("Checkpoint {n} at {}", in_one_field(argument)),
                Err(why) => why,
            },
            "delete checkpoint" => match argument.parse().map(|n| (n, self.kept.remove(&n))) {
                Ok((n, Some(_))) => format!("Deleted checkpoint {n}."),
                _ => format!("No checkpoint number {argument}."),
            },
            "info checkpoints" if self.kept.is_empty() => "No checkpoints.".into(),
            "info checkpoints" => {
                let mut list = String::from("ID\tWhen\tWhere");
                for (n, kept) in &self.kept {
                    let place = in_one_field(&kept.place);
                    let _ = write!(list, "\n{n}\t{}\t{place}", kept.event);
                }
                list
            }
            name => format!("Command '{name}' not found."),
        })
    }

    /// `FILE;WHERE`, each in hexadecimal.
    fn run_anew(&mut self, words: &[u8]) -> Result<Vec<u8>, DebugError> {
        let mut words = words.split(|b| *b == b';').skip(1);
        let place = match words.next() {
            Some(word) => from_hex(word),
            None => Some(String::new()),
        };
        let place = place.unwrap_or_default();
        let goal = match place.strip_prefix('c') {
            _ if place.is_empty() => Ok(self.began.clone()),
            Some(number) => {
                let kept = number.parse().ok().and_then(|n: u32| self.kept.get(&n));
                let kept = kept.map(|k| Goal::Checkpoint(Rc::clone(&k.checkpoint)));
                kept.ok_or_else(|| format!("there is no checkpoint {number}"))
            }
            None => match place.parse() {
                Ok(event) => match self.out_of_reach(event)? {
                    Some(why) => Err(why),
                    None => Ok(Goal::Event(event)),
                },
                Err(_) => Err(format!("{place} is no number of an event")),
            },
        };
        let goal = match goal {
            Ok(goal) => goal,
            Err(why) => {
                reprise_console::say!("{why}");
                return Ok(FAILED.to_vec());
            }
        };
        self.began = goal.clone();
        self.goal = Some(goal);
        let d = self.debuggee()?;
        d.points = std::mem::take(&mut d.points).forgotten();
        d.points.calls = None;
        d.set_watchpoints()?;
        let here = d.visible(d.current);
        Ok(format!("T05thread:p01.{here:x};").into_bytes())
    }

    /// Who debugged is gone, and with him what he wanted to stop at.
    ///
    /// # Errors
    /// When the debuggee is gone.
    pub(crate) fn is_left(&mut self) -> Result<(), DebugError> {
        self.end_diversion()?;
        self.goal = None;
        let d = self.debuggee()?;
        d.points = std::mem::take(&mut d.points).forgotten();
        d.points.calls = None;
        d.set_watchpoints()
    }

    /// The file of the program that is debugged: out of the trace, whatever this machine has under its name today; where the trace does not
    /// have it whole, that of its name.
    ///
    /// # Errors
    /// When the debuggee is gone.
    pub(crate) fn program_file(&mut self) -> Result<PathBuf, DebugError> {
        let d = self.debuggee()?;
        let name = d.executable();
        let kept = d
            .kept(&name)
            .map(|hash| d.dir.join(reprise_trace::FILES_DIR).join(hash.to_string()));
        let kept = kept.and_then(|path| path.canonicalize().ok());
        Ok(kept.unwrap_or_else(|| String::from_utf8_lossy(&name).into_owned().into()))
    }
}

/// A command of rr's: `NAME:THREAD:ARGUMENT...`.
#[derive(Debug, PartialEq, Eq)]
struct Command<'a> {
    name: &'a str,
    /// As gdb numbers it; -1 where it has none.
    thread: i64,
    arguments: Vec<String>,
}

impl Command<'_> {
    fn of(text: &[u8]) -> Option<Command<'_>> {
        let mut words = std::str::from_utf8(text).ok()?.split(':');
        let name = words.next()?;
        let thread = words.next()?.parse().ok()?;
        let arguments = words.map(|word| from_hex(word.as_bytes()));
        Some(Command {
            name,
            thread,
            arguments: arguments.collect::<Option<_>>()?,
        })
    }
}

/// `FILE:OFFSET,LENGTH` of the description of registers.
fn registers(asked: &[u8]) -> Option<Vec<u8>> {
    let at = asked.iter().position(|b| *b == b':')?;
    let (offset, length) = two_numbers(&asked[at + 1..])?;
    let file = described_in(std::str::from_utf8(&asked[..at]).ok()?)?;
    Some(portion(file.as_bytes(), offset, length))
}

/// Reads what a packet that [`is_ours`] asks.
#[cfg(any(test, fuzzing))]
pub(crate) fn questions(body: &[u8]) {
    body.strip_prefix(COMMAND).and_then(Command::of);
    body.strip_prefix(REGISTERS).and_then(registers);
    let words = body.strip_prefix(RUN).into_iter();
    words
        .flat_map(|w| w.split(|b| *b == b';'))
        .for_each(|word| {
            from_hex(word);
        });
}

/// Text that tools split at tabs and line feeds.
fn in_one_field(text: &str) -> String {
    text.trim().replace(char::is_control, " ")
}

fn in_hex(text: &str) -> Vec<u8> {
    let digits: String = text.bytes().map(|b| format!("{b:02x}")).collect();
    digits.into_bytes()
}

fn from_hex(digits: &[u8]) -> Option<String> {
    let byte = |pair: &[u8]| {
        let all = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        let pair = std::str::from_utf8(pair).ok().filter(|_| all)?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_delve_and_gdb_send_them() {
        let when = Command::of(b"when:-1").expect("a command");
        assert_eq!((when.name, when.thread), ("when", -1));
        let checkpoint = Command::of(b"checkpoint:42:6d61696e2e676f3a37").expect("a command");
        assert_eq!(checkpoint.thread, 42);
        assert_eq!(checkpoint.arguments, ["main.go:7"]);
        for bad in [
            "when",
            "when:",
            "when:x",
            "checkpoint:1:6",
            "checkpoint:1:+6",
            "checkpoint:1:ff",
        ] {
            assert_eq!(Command::of(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn text_goes_there_and_back() {
        let text = "ID\tWhen\tWhere\n";
        assert_eq!(in_hex("k\n"), b"6b0a");
        assert_eq!(from_hex(&in_hex(text)).as_deref(), Some(text));
        assert_eq!(in_one_field(" a\tb\nc "), "a b c");
    }

    #[test]
    fn the_invitation_is_what_delve_reads() {
        let said = invitation("gdb", 4711, Path::new("/a b/c"));
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("Launch debugger with"));
        let command = lines.next().expect("a command");
        assert!(command.starts_with("  'gdb' '-l' '10000' "), "{command}");
        let end = "'-ex' 'target extended-remote 127.0.0.1:4711' '/a b/c'";
        assert!(command.ends_with(end), "{command}");
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn both_ends_are_told_as_signals() {
        let end = |pos| {
            let tid = Tid::new(7);
            match told(MultiThreadStopReason::ReplayLog { tid, pos }) {
                MultiThreadStopReason::SignalWithThread { signal, .. } => signal.0,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(end(ReplayLogPosition::End), 9);
        assert_eq!(end(ReplayLogPosition::Begin), 0);
    }
}
