//! How a trace of `--engine order` is replayed: in partial order, the threads at the same time, or in total order, one at a time.

use crate::common;

use common::{assert_same, run, Guest, Run, Workplace};
use std::path::Path;

const ORDER: [&str; 2] = ["--engine", "order"];

fn total(place: &Workplace, trace: &Path) -> Run {
    place.replay_with(trace, &["--order", "total"])
}

/// The guest's threads meet, each inside a critical section of its own: a replay that let one in at a time would never end.
#[test]
fn critical_sections_run_at_once() {
    let place = Workplace::new();
    let recording = place.record_with(&Guest::new("sections_at_once"), &ORDER);
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    for _ in 0..3 {
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
}

/// A data race that matters makes a replay another run than the recording; in total order it is the same other run each time.
#[test]
fn in_total_order_all_replays_are_the_same() {
    let place = Workplace::new();
    let guest = Guest::new("racy_sum").args(["4", "30000"]);
    let (trace, first) = (0..20)
        .map(|_| place.record_with(&guest, &ORDER).dir)
        .map(|dir| (total(&place, &dir), dir))
        .find_map(|(run, dir)| (!run.status.success()).then_some((dir, run)))
        .expect("a recording in which the race mattered");
    assert!(first.said().contains("divergence"), "{}", first.describe());
    for _ in 0..4 {
        let run = total(&place, &trace);
        assert_eq!(run.status, first.status);
        assert_eq!(run.stdout, first.stdout);
        assert_eq!(run.said(), first.said());
    }
}

/// In code without gates nothing tells that the place of a signal never comes, and yet each replay ends.
#[test]
fn a_place_that_never_comes_is_told() {
    let place = Workplace::new();
    let guest = Guest::new("place_never_found");
    let lost = (0..20)
        .map(|_| place.record_with(&guest, &ORDER).dir)
        .map(|trace| place.replay(&trace))
        .find(|replay| !replay.status.success())
        .expect("a replay that the race made another run");
    let said = lost.said();
    assert!(said.contains("state divergence"), "{}", lost.describe());
    assert!(said.contains("no visit of"), "{said}");
}

/// Rounds of learning, at most.
const MOST_ROUNDS: u32 = 20;
/// So many recordings one after the other that are replayed exactly show that nothing is left to be learned.
const EXACT_ROUNDS: u32 = 4;

/// The event of a report is one of the thread's in the trace, so that it can be looked at, and gone to in the debugger.
fn told_at_its_event(place: &Workplace, trace: &Path, said: &str) {
    let words = said
        .split_once("divergence at event ")
        .map(|(_, rest)| rest);
    let (event, rest) = words.and_then(|w| w.split_once(", thread ")).expect(said);
    let thread: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let mut dump = place.reprise(["dump", "--from", event, "--to", event]);
    let dumped = run(dump.arg(trace), None);
    let dumped = String::from_utf8_lossy(&dumped.stdout);
    assert!(dumped.contains(&format!(" [{thread} ")), "{said}: {dumped}");
}

/// Records and learns until nothing is left to be learned, `function` among all that was: every replay that leaves its path learns something new.
fn learn(place: &Workplace, guest: &Guest, function: &str) {
    let (mut exact_rounds, mut learned) = (0, String::new());
    for round in 0.. {
        assert!(round < MOST_ROUNDS, "replays still differ: {learned}");
        let recording = place.record_with(guest, &ORDER);
        let run = &recording.run;
        assert!(run.status.success(), "{}", run.describe());
        let mut exact = true;
        for flags in [&[][..], &[], &["--order", "total"]] {
            let flags: Vec<_> = flags.iter().copied().chain(["--learn"]).collect();
            let replay = place.replay_with(&recording.dir, &flags);
            if replay.status.success() {
                assert_same(run, &replay);
                continue;
            }
            // What one replay of this recording has taught, the next can't teach once more.
            let said = replay.said();
            told_at_its_event(place, &recording.dir, &said);
            assert!(!exact || said.contains("learned: "), "{said}");
            assert!(!exact || said.contains("record again"), "{said}");
            learned += &said;
            exact = false;
        }
        exact_rounds = if exact { exact_rounds + 1 } else { 0 };
        // At first, threads may have come to their turns as they did in the recording.
        if exact_rounds == EXACT_ROUNDS && learned.contains(&format!("learned: {function}")) {
            break;
        }
    }
}

/// Replays until one shows which of the learned functions' loads race; what it says.
fn narrow(place: &Workplace, trace: &Path) -> String {
    (0..50)
        .map(|_| place.replay_with(trace, &["--narrow"]).said())
        .find(|said| said.contains("this load races"))
        .expect("a replay in which a look came at another time than in the recording")
}

/// Plain loads that race are nobody's to see, until a replay has left its path there: from then on they are logged.
#[test]
fn a_race_is_learned() {
    let place = Workplace::new();
    let guest = Guest::new("plain_handover");
    learn(&place, &guest, "take_turns");
    let trace = place.record_with(&guest, &ORDER).dir;
    let narrowed = narrow(&place, &trace);
    assert!(narrowed.contains("plain_handover.c:1"), "{narrowed}");
    // The recording was made with whole functions, which are not in the list any more.
    let none = place.replay_with(&trace, &["--narrow"]).said();
    assert!(none.contains("nothing changes"), "{none}");
}

/// A function that only loads a word is on no stack when its caller goes astray: it is found among those that the caller calls.
#[test]
fn a_race_in_a_called_function_is_learned() {
    let place = Workplace::new();
    learn(&place, &Guest::new("plain_leaf"), "look");
}

/// Each form of a load does in a stub what it does natively, recorded and replayed.
#[test]
fn learned_loads_of_every_form() {
    let place = Workplace::new();
    let guest = Guest::new("learned_forms");
    learn(&place, &guest, "take_turns");
    let native = guest.native(&place);
    for _ in 0..3 {
        let recording = place.record_with(&guest, &ORDER);
        assert_same(&native, &recording.run);
        for flags in [&[][..], &["--order", "total"]] {
            assert_same(&native, &place.replay_with(&recording.dir, flags));
        }
    }
}
