//! What stops, continues and ends processes: the table of docs/internals/stops-and-signals.md, and what is not in it.

use crate::common;

use common::leftovers::agent_of;
use common::order::ORDER;
use common::{
    check_times, full, knob, mismatch, system_program, try_times, Guest, Outcome, Running,
    Workplace,
};
use std::io::Read;

guests! { stop_cells, stops_of_itself, namespaces_nested, killed_at_birth, faults_sent, words_of_the_dead, frames_without_room, trap_flag }

/// What is sent, in the ordinary tests; the long test knows more of the same kind.
const SIGNALS: [&str; 9] = [
    "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGCONT", "SIGTERM", "SIGKILL", "SIGSEGV", "SIGTRAP",
    "SIGCHLD",
];
const MORE_SIGNALS: [&str; 5] = ["SIGTTOU", "SIGBUS", "SIGFPE", "SIGILL", "SIGRTMIN"];
const DISPOSITIONS: [&str; 4] = ["default", "ignored", "handled", "blocked"];
/// Cells of a signal and a disposition: the only thread in four places, the main one and another one in five.
const CELLS: usize = 14;

/// Rows of the table: a signal and a disposition, 14 cells each.
fn rows() -> Vec<[&'static str; 2]> {
    let more = MORE_SIGNALS.iter().filter(|_| full());
    let rows = SIGNALS
        .iter()
        .chain(more)
        .flat_map(|s| DISPOSITIONS.map(|d| [*s, d]));
    let possible = |[signal, disposition]: &[&str; 2]| {
        *disposition == "default" || !matches!(*signal, "SIGSTOP" | "SIGKILL")
    };
    rows.filter(possible).collect()
}

/// Each row natively, recorded, and replayed: all three say the same.
fn table(flags: &[&str], part: usize, parts: usize) {
    let times = knob("REPRISE_TEST_RECORDINGS", 1);
    let mut failures = Vec::new();
    let mine = rows().into_iter().enumerate();
    for (_, row) in mine.filter(|(i, _)| i % parts == part) {
        let guest = Guest::new("stop_cells").args(row);
        let place = Workplace::new();
        let native = guest.native(&place);
        let told = native.text().lines().filter(|l| l.ends_with(':')).count();
        assert_eq!(told, CELLS, "{}", native.describe());
        for i in 0..times {
            let recording = place.record_with(&guest, flags);
            let replay = place.replay(&recording.dir);
            let wrong = (native.stdout != recording.run.stdout)
                .then(|| format!("natively {}", native.describe()))
                .or_else(|| mismatch(&recording.run, &replay));
            if let Some(why) = wrong {
                let run = recording.run.describe();
                failures.push(format!("{row:?}, recording {i}: {why}\n{run}"));
            }
            let _ = std::fs::remove_dir_all(&recording.dir);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_table_under_serial_1() {
    table(&[], 0, 2);
}

#[test]
fn the_table_under_serial_2() {
    table(&[], 1, 2);
}

#[test]
fn the_table_under_order_1() {
    table(&ORDER, 0, 2);
}

#[test]
fn the_table_under_order_2() {
    table(&ORDER, 1, 2);
}

#[test]
fn under_order() {
    let guests = [
        ("stops_of_itself", &[][..]),
        ("namespaces_nested", &["3"]),
        ("namespaces_nested", &["1", "40"]),
        ("killed_at_birth", &[]),
        ("faults_sent", &[]),
        ("frames_without_room", &[]),
        ("trap_flag", &[]),
    ];
    let failures: Vec<_> = guests
        .into_iter()
        .filter_map(|(name, args)| try_times(&Guest::new(name).args(args), &ORDER, 1, 2).err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn words_of_all_the_dead_are_cleared() {
    check_times(&Guest::new("words_of_the_dead"), &[], 2, 2);
}

#[test]
fn faults_that_were_sent_are_taken() {
    check_times(&Guest::new("faults_sent"), &[], 2, 2);
}

#[test]
fn many_rounds_of_the_trap_flag() {
    // Sites of calls are rewritten meanwhile.
    check_times(&Guest::new("trap_flag").args(["2000"]), &[], 2, 2);
}

/// Starts a shell script whose first word is `ready`, kills launcher and agent once it has said so, and gives it the file `go`; what it says then, when
/// all processes that can write to its output are gone.
fn bereft(script: &str, flags: &[&str]) -> String {
    let place = Workplace::new();
    let guest = Guest::program(system_program("sh"))
        .args(["-c", script])
        .ends(Outcome::Any);
    let dir = place.fresh("trace");
    let mut command = place.record_command(&guest, flags, &dir);
    let go = command.get_current_dir().expect("a directory").join("go");
    let mut running = Running::start_reading(&mut command, None);
    let out = running.child.stdout.as_mut().expect("a pipe");
    let mut ready = [0; 6];
    out.read_exact(&mut ready).expect("its first line");
    let launcher = running.pid();
    for pid in [agent_of(launcher), launcher] {
        // SAFETY: processes that this test started.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    }
    std::fs::write(go, "").expect("a file");
    // It waits until nobody has the output open any more.
    running.finish().text()
}

#[test]
fn a_program_that_needs_nobody_goes_on_without_recorder_and_agent() {
    for flags in [&[][..], &ORDER] {
        let said = bereft(
            "echo ready; until [ -e go ]; do :; done; echo still there",
            flags,
        );
        assert_eq!(said, "still there\n", "{flags:?}");
    }
}

#[test]
fn processes_that_need_each_other_end_without_recorder_and_agent() {
    let said = bereft(
        "while :; do echo >/dev/null; done & other=$!
         echo ready; until [ -e go ]; do :; done
         kill -9 $other; wait $other; echo not recorded",
        &[],
    );
    // Who gets so far before anybody looks is nobody's promise.
    assert!(["", "not recorded\n"].contains(&&*said), "{said}");
}
