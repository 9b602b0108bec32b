//! `bisect`: the hand-off that makes a run fail, of programs with a known fault (`tests/guests/chaos`), and what is said where there is none.

use crate::common;

use common::attached::{closed, Subject};
use common::{built, run, Guest, Workplace};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Status of a program whose fault was hit (`fault.h`), as wait(2) tells it.
const FAULT: i64 = 42 << 8;

/// Recordings of a run that fails, and of one that passes.
fn recorded(place: &Workplace, program: &Path, flags: &[&str]) -> [PathBuf; 2] {
    let [failing, passing] = ["failing", "passing"].map(|what| place.fresh(what));
    let mut command = place.reprise(["record", "--chaos=1", "--until-failure", "100"]);
    command.args(flags).arg("-o").arg(&failing).arg("--");
    let found = run(command.arg(program), None);
    assert_ne!(found.status.code(), Some(0), "{}", found.describe());
    // Long slices hide the fault, mostly.
    for _ in 0..20 {
        let mut command = place.reprise(["record", "-o"]);
        command.arg(&passing).arg("--").arg(program);
        if run(&mut command, None).status.success() {
            return [failing, passing];
        }
        std::fs::remove_dir_all(&passing).expect("removed");
    }
    panic!("no run of {} passes", program.display());
}

fn bisect(place: &Workplace, [failing, passing]: &[PathBuf; 2]) -> (Option<i32>, Value) {
    let mut command = place.reprise(["bisect", "--json"]);
    let run = run(command.arg(failing).arg(passing), None);
    run.assert_civil();
    let found = serde_json::from_str(run.text().trim());
    (run.status.code(), found.expect("JSON"))
}

/// The threads at the hand-off that was found, with their stacks.
fn threads_behind(place: &Workplace, failing: &Path, found: &Value) -> Vec<Value> {
    let event = found["event"].as_u64().expect("a number");
    let mut there = place.reprise(["backtrace", "--json", "--at"]);
    let there = run(there.arg((event + 1).to_string()).arg(failing), None);
    let there: Value = serde_json::from_str(&there.text()).expect("JSON");
    there["threads"].as_array().expect("threads").clone()
}

/// Names of the functions in a stack.
fn functions(thread: &Value) -> Vec<&str> {
    let frames = thread["frames"].as_array().expect("frames");
    frames
        .iter()
        .filter_map(|f| f["function"].as_str())
        .collect()
}

#[test]
fn the_hand_off_that_decides_is_found() {
    let place = Workplace::new();
    // Races, locks that are left too early, threads that are made after the hand-off.
    for name in [
        "check_then_act",
        "lost_update",
        "split_section",
        "order_violation",
    ] {
        let program = built(&format!("chaos/{name}"));
        let both = recorded(&place, &program, &[]);
        let (status, found) = bisect(&place, &both);
        assert_eq!(status, Some(0), "{name}: {found}");
        assert_eq!(found["left_out"], 0, "{name}: {found}");
        // Either at once, or where the other thread loses its turn next.
        let ends = [&found["taken"], &found["behind"]["status"]];
        let fails = ends.contains(&&Value::from(FAULT));
        let last = found["hand_off"] == found["of"];
        assert!(fails || last, "{name}: {found}");
        assert_ne!(found["from"]["thread"], found["to"]["thread"], "{found}");
        // It is a place in the recording, and both threads are there.
        let known = threads_behind(&place, &both[0], &found);
        for side in ["from", "to"] {
            let is_it = |t: &&Value| t["thread"] == found[side]["thread"];
            let thread = known.iter().find(is_it).expect("the thread");
            assert_eq!(functions(thread), functions(&found[side]), "{name}");
            assert!(!functions(thread).is_empty(), "{name}: {found}");
            // The program is named as the recording knew it, not by its copy in the trace.
            let objects = thread["frames"].to_string();
            assert!(!objects.contains("/files/"), "{name}: {objects}");
        }
    }
}

/// A thread ends the process while the first one waits for it: that is no deadlock, though the first one is gone last.
#[test]
fn who_waits_when_the_process_ends_is_not_stuck() {
    let place = Workplace::new();
    let both = recorded(&place, &built("chaos/check_then_act"), &[]);
    let (first, found) = bisect(&place, &both);
    assert_eq!(first, Some(0), "{found}");
    for _ in 0..10 {
        assert_eq!(bisect(&place, &both), (first, found.clone()));
    }
}

#[test]
fn a_deadlock_is_a_failure_that_does_not_end() {
    let place = Workplace::new();
    let source = place.path().join("two.c");
    let text = "#include <pthread.h>
        static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
        static void *with(pthread_mutex_t *x, pthread_mutex_t *y) {
            for (int i = 0; i < 3000; i++) {
                pthread_mutex_lock(x), pthread_mutex_lock(y);
                pthread_mutex_unlock(y), pthread_mutex_unlock(x);
            }
            return 0;
        }
        static void *one(void *p) { return with(&a, &b); }
        static void *two(void *p) { return with(&b, &a); }
        int main(void) {
            pthread_t x, y;
            pthread_create(&x, 0, one, 0), pthread_create(&y, 0, two, 0);
            pthread_join(x, 0), pthread_join(y, 0);
        }";
    std::fs::write(&source, text).expect("a source");
    let program = place.path().join("two");
    let mut compiler = std::process::Command::new("gcc");
    compiler.args(["-g", "-O1", "-pthread", "-o"]).arg(&program);
    let compiled = compiler.arg(&source).status().expect("gcc");
    assert!(compiled.success());
    let both = recorded(&place, &program, &["--time-limit", "5"]);
    let (status, found) = bisect(&place, &both);
    assert_eq!(status, Some(0), "{found}");
    assert_eq!(
        (&found["left_out"], &found["taken"]),
        (&0.into(), &Value::Null)
    );
    // One of the two has one lock, and the other comes for it: by itself, or made or begun by who gets the turn.
    let known = threads_behind(&place, &both[0], &found);
    let is_in_it = |t: &Value| functions(t).contains(&"with");
    assert!(known.iter().any(is_in_it), "{found} {known:?}");
}

#[test]
fn what_can_not_be_bisected_is_said() {
    let place = Workplace::new();
    let shell = |script: &str, flags: &[&str]| {
        let guest = Guest::program("/bin/sh").args(["-c", script]);
        place.record_with(&guest, flags).dir
    };
    let refused = |a: &Path, b: &Path| {
        let mut command = place.reprise(["bisect"]);
        let run = run(command.arg(a).arg(b), None);
        assert_eq!(run.status.code(), Some(125), "{}", run.describe());
        run.said()
    };
    let (good, bad) = (shell("exit 0", &[]), shell("exit 1", &[]));
    let same = refused(&good, &good);
    assert!(same.contains("ended alike: exited with 0"), "{same}");
    let (status, found) = bisect(&place, &[bad.clone(), good.clone()]);
    assert_eq!((status, &found["why"]), (Some(1), &"alone".into()));
    let other = place.record(&Guest::new("hello")).dir;
    let two = refused(&bad, &other);
    assert!(two.contains("recordings of two programs"), "{two}");
    let tree = shell("(exit 3); (exit 4)", &[]);
    let tree = refused(&tree, &good);
    assert!(tree.contains("several processes"), "{tree}");
    let [of_order, well] = ["exit 1", "exit 0"].map(|s| shell(s, &["--engine", "order"]));
    let order = refused(&of_order, &well);
    assert!(order.contains("by the engine serial"), "{order}");
}

#[test]
fn a_program_that_reads_is_told_of() {
    let place = Workplace::new();
    let both = recorded(&place, &built("chaos/two_writes"), &[]);
    let mut command = place.reprise(["bisect"]);
    let run = run(command.args(&both), None);
    assert_eq!(run.status.code(), Some(1), "{}", run.describe());
    assert!(run.text().contains("no mixture passes"), "{}", run.text());
    let said = "calls that only a recording answers: read";
    assert!(run.said().contains(said), "{}", run.describe());
}

#[test]
fn a_recording_without_its_beginning_is_refused() {
    let [good, bad] = [libc::SIGTERM, libc::SIGKILL].map(|signal| {
        let mut subject = Subject::computing(1_000_000);
        let dir = subject.attach(&[]);
        // SAFETY: a signal to a child.
        unsafe { libc::kill(subject.pid(), signal) };
        subject.finish();
        closed(&dir);
        (subject, dir)
    });
    let mut command = good.0.place.reprise(["bisect"]);
    let run = run(command.arg(&bad.1).arg(&good.1), None);
    assert_eq!(run.status.code(), Some(125), "{}", run.describe());
    let said = run.said();
    assert!(said.contains("does not begin with the program"), "{said}");
}
