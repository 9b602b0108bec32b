//! Programs that attack their recorder (`tests/guests/hostile`): they share memory with it, and write there what is not true. Nobody else may be harmed, nothing
//! may hang, and what becomes of the recording is said.

mod common;

use common::{run, Guest, Recording, Workplace};
use reprise_abi::layout::SESSION_BASE;
use reprise_abi::session::{Process, RequestBox, Session, Slot};
use std::mem::offset_of;
use std::process::{Child, Command, Stdio};

/// A process that has nothing to do with any recording.
struct Outsider(Child);

impl Outsider {
    fn new() -> Outsider {
        let mut command = Command::new("sleep");
        let command = command.arg("600").stdin(Stdio::null());
        Outsider(command.spawn().expect("an outsider"))
    }

    /// Does it sleep, as it did, traced by nobody?
    fn assert_untouched(&mut self, by: &str) {
        let ended = self.0.try_wait().expect("to be asked");
        assert!(ended.is_none(), "{by}: the outsider has ended: {ended:?}");
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()));
        let status = status.expect("the outsider's status");
        for line in [
            "State:\tS (sleeping)",
            "TracerPid:\t0",
            "SigPnd:\t0000000000000000",
        ] {
            assert!(status.lines().any(|l| l == line), "{by}: {status}");
        }
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A recording of the attack.
fn attacked(place: &Workplace, attack: &str, flags: &[&str]) -> Recording {
    let mut outsider = Outsider::new();
    let mut args = vec![attack.to_string(), outsider.0.id().to_string()];
    let words = [
        SESSION_BASE as usize,
        offset_of!(Session, request),
        Session::slot_address(0, 0),
        offset_of!(Slot, kernel_pid),
        offset_of!(Slot, kernel_tid),
        offset_of!(Session, processes),
        offset_of!(Process, kernel_pid),
    ];
    args.extend(words.map(|w| w.to_string()));
    assert_eq!(offset_of!(RequestBox, args), 16, "as the guest knows it");
    let guest = Guest::new("hostile/forges").args(args);
    let recording = place.record_with(&guest, flags);
    outsider.assert_untouched(&format!("{attack} {flags:?}: {}", recording.run.describe()));
    recording
}

const ENGINES: [&str; 2] = ["serial", "order"];

/// Requests for what only a thread of the program may ask for itself: refused, and said.
#[test]
fn nobody_is_seized_for_a_forged_exec() {
    for engine in ENGINES {
        for attack in ["exec", "exec_own", "exec_nobody"] {
            let place = Workplace::new();
            let r = attacked(&place, attack, &["--engine", engine]);
            let said = r.run.describe();
            assert!(r.run.text().contains("asked to exec it: 1\n"), "{said}");
            assert!(
                said.contains("a thread that had not asked for it"),
                "{said}"
            );
        }
    }
}

#[test]
fn no_file_of_somebody_else_is_read() {
    for engine in ENGINES {
        let place = Workplace::new();
        let r = attacked(&place, "file", &["--engine", engine]);
        let said = r.run.describe();
        assert!(r.run.text().contains("asked for its file: 5\n"), "{said}");
    }
}

/// The agent asks who has the baton for long to give it up: with a signal that would end anybody else.
#[test]
fn nobody_else_gets_the_agents_signals() {
    let place = Workplace::new();
    let r = attacked(&place, "cut", &["--engine", "serial"]);
    assert!(
        r.run.text().contains("was another one\n"),
        "{}",
        r.run.describe()
    );
    // It has read ids out of the session, which are others in a replay: its trace is one, and no more is promised.
    let info = run(&mut place.reprise(["info"]), None);
    assert!(info.status.success(), "{}", info.describe());
}

#[test]
fn nobody_else_is_ended_with_a_full_trace() {
    for engine in ENGINES {
        let place = Workplace::new();
        let flags = ["--engine", engine, "--max-size", "1M", "--on-full=stop"];
        let r = attacked(&place, "full", &flags);
        let said = r.run.describe();
        assert!(!r.run.text().contains("not ended"), "{said}");
    }
}
