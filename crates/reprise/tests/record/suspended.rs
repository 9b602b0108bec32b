//! Job control: a program that is recorded from a shell stops, and the shell comes back; it is put into the foreground, and goes on.

use crate::common;

use common::terminal::{controlled_by, terminal};
use common::{hang_limit, run, Workplace, REPRISE};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A shell that works at a terminal of its own.
struct Shell {
    shell: Child,
    terminal: File,
    said: String,
}

impl Shell {
    fn start(place: &Workplace) -> Shell {
        let (keyboard, slave) = terminal();
        let mut command = Command::new("bash");
        place.settle(&mut command);
        command.args(["--norc", "--noprofile", "--noediting", "-i"]);
        let streams = [(); 3].map(|()| slave.try_clone().expect("a descriptor"));
        let [stdin, stdout, stderr] = streams.map(Stdio::from);
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        controlled_by(&mut command, &slave);
        Shell {
            shell: command.spawn().expect("bash"),
            terminal: keyboard,
            said: String::new(),
        }
    }

    /// Types a line.
    fn types(&mut self, line: &str) {
        self.terminal
            .write_all(line.as_bytes())
            .expect("a terminal");
        self.terminal.write_all(b"\n").expect("a terminal");
    }

    /// Waits until the terminal shows this, behind what was waited for before.
    fn shows(&mut self, what: &str) {
        let until = Instant::now() + hang_limit();
        loop {
            if let Some(at) = self.said.find(what) {
                self.said.drain(..at + what.len());
                return;
            }
            let left = until.saturating_duration_since(Instant::now()).as_millis();
            let mut ready = libc::pollfd {
                fd: self.terminal.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one descriptor of ours.
            let n = unsafe { libc::poll(&mut ready, 1, left as i32) };
            assert_eq!(n, 1, "no {what:?} in {:?}", self.said);
            let mut bytes = [0; 4096];
            let n = self.terminal.read(&mut bytes).expect("a terminal");
            self.said.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
    }

    /// The shell that reads now answers, and says who it is.
    fn answers(&mut self, who: &str) {
        // What is typed is shown as well, but not computed.
        self.types(&format!("echo {who} $((6*7))"));
        self.shows(&format!("{who} 42"));
    }

    fn records(&mut self, engine: &str, dir: &Path, program: &str) {
        let dir = dir.display();
        self.types(&format!(
            "{REPRISE} record -q --engine {engine} -o {dir} -- {program}"
        ));
    }

    fn ends(mut self) {
        self.types("exit");
        assert!(self.shell.wait().expect("its end").success());
    }
}

fn is_exact(place: &Workplace, dir: &Path) {
    let verified = run(place.reprise(["verify"]).arg(dir), None);
    assert!(verified.status.success(), "{}", verified.describe());
}

/// It has a group of its own, to which it gives the terminal, and keeps that when it stops (rr's issue 3875 is about such a shell).
#[test]
fn a_shell_is_suspended_in_a_shell() {
    for engine in ["serial", "order"] {
        let place = Workplace::new();
        let dir = place.fresh("trace");
        let mut shell = Shell::start(&place);
        shell.answers("below");
        shell.records(engine, &dir, "bash --norc --noprofile --noediting -i");
        shell.answers("above");
        for _ in 0..2 {
            shell.types("suspend -f");
            shell.shows("Stopped");
            shell.answers("below");
            shell.types("fg");
            shell.answers("above");
        }
        shell.types("exit 0");
        shell.answers("below");
        shell.ends();
        is_exact(&place, &dir);
    }
}

/// It is in the group of the recorder.
#[test]
fn a_program_stops_itself() {
    for engine in ["serial", "order"] {
        let place = Workplace::new();
        let dir = place.fresh("trace");
        let mut shell = Shell::start(&place);
        shell.records(engine, &dir, "sh -c 'kill -STOP $$; echo on $((6*7))'");
        shell.shows("Stopped");
        shell.answers("below");
        shell.types("fg");
        shell.shows("on 42");
        shell.answers("below");
        // In the background it goes on as well, and takes no terminal.
        let again = place.fresh("trace");
        shell.records(engine, &again, "sh -c 'kill -STOP $$; echo on $((6*7))'");
        shell.shows("Stopped");
        shell.types("bg");
        shell.shows("on 42");
        shell.types("wait");
        shell.answers("below");
        shell.ends();
        is_exact(&place, &dir);
        is_exact(&place, &again);
    }
}
