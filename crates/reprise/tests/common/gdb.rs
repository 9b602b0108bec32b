//! Sessions of gdb on recordings, driven by scripts.

use super::{run, Guest, Run, Workplace, REPRISE};
use std::path::Path;
use std::process::Command;

/// One session: `flags` for `replay -d`, then commands of gdb.
pub fn session(place: &Workplace, dir: &Path, flags: &[&str], commands: &[&str]) -> Run {
    // What gdb says on standard output and error is wanted in its order.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" replay -d \"$@\" 2>&1", REPRISE]);
    place.settle(&mut command);
    command.args(flags).arg(dir).args(["--", "-nx", "-batch"]);
    // What is written is asked for in one language.
    command.env("LC_ALL", "C").env("DEBUGINFOD_URLS", "");
    for line in commands {
        command.args(["-ex", line]);
    }
    let run = run(&mut command, None);
    run.assert_civil();
    run
}

/// All that a session said.
pub fn said(run: &Run) -> String {
    run.text()
}

/// Fails unless these texts are in what was said, in this order.
pub fn assert_said(run: &Run, wanted: &[&str]) {
    let all = run.text();
    let mut rest = all.as_str();
    for text in wanted {
        match rest.find(text) {
            Some(at) => rest = &rest[at + text.len()..],
            None => panic!("`{text}` was not said (or not in this order): {all}"),
        }
    }
}

/// Records a guest, and fails unless a session on the recording says these texts in this order.
pub fn assert_session(guest: &Guest, flags: &[&str], commands: &[&str], wanted: &[&str]) -> Run {
    let place = Workplace::new();
    let trace = place.record(guest);
    let run = session(&place, &trace.dir, flags, commands);
    assert_said(&run, wanted);
    run
}

/// Goes to these events, one after the other; the state at each. `least`: so many checkpoints are made on the way.
pub fn states(place: &Workplace, dir: &Path, at: &str, events: &[u64], least: u64) -> Vec<String> {
    let commands: Vec<String> = events
        .iter()
        .flat_map(|e| [format!("run-to {e}"), "when".into(), "monitor state".into()])
        .chain(["monitor checkpoints".into()])
        .collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let run = session(place, dir, &["--at", at], &commands);
    let text = said(&run);
    let mut lines = text.lines();
    let found: Vec<String> = events
        .iter()
        .map(|e| {
            let when = format!("event {e} of ");
            let at = lines.find(|l| l.starts_with(&when));
            assert!(
                at.is_some(),
                "event {e} was not come to: {}",
                run.describe()
            );
            lines.next().unwrap_or_default().to_string()
        })
        .collect();
    assert!(
        found.iter().all(|state| state.starts_with("memory ")),
        "no states: {}",
        run.describe()
    );
    let mut kept = text
        .lines()
        .map(|l| l.strip_prefix("the debugger itself keeps "));
    let kept = kept.find_map(|l| l?.split(' ').next()?.parse::<u64>().ok());
    assert!(
        kept.is_some_and(|n| n >= least),
        "no checkpoints: {}",
        run.describe()
    );
    found
}
