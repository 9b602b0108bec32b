//! Going back in a recording by checkpoints: every place is the same whenever and from wherever it is come to.

use crate::common;

use common::gdb::{assert_said, said, session, states};
use common::{Guest, Recording, Workplace};

guests! { moments, moments_everywhere, moments_in_one_loop, debugged_alike }

/// Places that are gone to.
const PLACES: u64 = 12;

fn recorded(place: &Workplace) -> (Recording, u64) {
    let trace = place.record(&Guest::new("moments"));
    let info = place.info(&trace.dir);
    assert!(info.counter("cuts") > 0, "no cut");
    let events = info.events();
    (trace, events)
}

#[test]
fn the_state_at_an_event_is_the_same_from_wherever_it_is_come_to() {
    let place = Workplace::new();
    let (trace, all) = recorded(&place);
    let events: Vec<u64> = (1..=PLACES).map(|i| all * i / (PLACES + 1)).collect();
    let straight = states(&place, &trace.dir, "0", &events, 2);
    assert!(
        straight.windows(2).all(|w| w[0] != w[1]),
        "states do not differ: {straight:?}"
    );
    // From the end back; then to and fro.
    let mut back = events.clone();
    back.reverse();
    let mut found = states(&place, &trace.dir, "end", &back, 2);
    found.reverse();
    assert_eq!(found, straight);
    let mixed: Vec<usize> = (0..PLACES as usize)
        .map(|i| i * 5 % PLACES as usize)
        .collect();
    let wanted: Vec<u64> = mixed.iter().map(|i| events[*i]).collect();
    let found = states(&place, &trace.dir, "end", &wanted, 2);
    let expected: Vec<String> = mixed.iter().map(|i| straight[*i].clone()).collect();
    assert_eq!(found, expected);
}

#[test]
fn steps_back_between_two_events_are_undone_by_steps_forward() {
    let place = Workplace::new();
    let (trace, all) = recorded(&place);
    let middle = (all / 2).to_string();
    let mut commands = vec!["break on_signal", "continue", "delete"];
    // Farther than the steps for which a new checkpoint is made.
    commands.extend(["stepi 400", "monitor state", "echo back\\n"]);
    commands.extend(["reverse-stepi 390", "stepi 390", "monitor state"]);
    let run = session(&place, &trace.dir, &["--at", &middle], &commands);
    assert_said(&run, &["Breakpoint 1, on_signal", "back\n"]);
    let text = said(&run);
    let hashes: Vec<&str> = text.lines().filter(|l| l.starts_with("memory ")).collect();
    assert_eq!(hashes.len(), 2, "{text}");
    assert_eq!(hashes[0], hashes[1], "{text}");
}

/// The gate before is hundreds of millions of instructions away, and so is every other place that has a name.
#[test]
fn a_step_back_is_found_in_a_loop_that_a_signal_ended() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("moments_in_one_loop"));
    let mut commands = vec!["break on_signal", "continue", "delete"];
    commands.extend(["reverse-stepi 2", "info symbol $pc", "monitor state"]);
    commands.extend(["reverse-stepi 40", "stepi 40", "monitor state"]);
    let run = session(&place, &trace.dir, &[], &commands);
    assert_said(&run, &["Breakpoint 1, on_signal", "main"]);
    let text = said(&run);
    let states: Vec<&str> = text.lines().filter(|l| l.starts_with("memory ")).collect();
    assert_eq!(states.len(), 2, "{text}");
    assert_eq!(states[0], states[1], "{text}");
}

#[test]
fn places_are_remembered_and_come_to_again() {
    let place = Workplace::new();
    let (trace, all) = recorded(&place);
    let (first, second) = ((all / 3).to_string(), format!("run-to {}", all * 2 / 3));
    let commands = [
        "break on_signal",
        "continue",
        "delete",
        "stepi 3",
        "checkpoint",
        "monitor state",
        second.as_str(),
        "checkpoint",
        "events 2",
        "info checkpoints",
        "restart 1",
        "monitor state",
        "restart 2",
        "when",
        "delete checkpoint 1",
        "restart 1",
        "when",
    ];
    let run = session(&place, &trace.dir, &["--at", &first], &commands);
    let here = format!("event {} of", all * 2 / 3);
    assert_said(
        &run,
        &[
            "Breakpoint 1, on_signal",
            "checkpoint 1 is at event",
            "memory ",
            "checkpoint 2 is at event",
            "-> here",
            "checkpoint 1 is at event",
            "the debugger itself keeps",
            "memory ",
            &here,
            "checkpoint 1 is forgotten",
            "there is no checkpoint 1",
            &here,
        ],
    );
    let text = said(&run);
    let states: Vec<&str> = text.lines().filter(|l| l.starts_with("memory ")).collect();
    assert_eq!(states[0], states[1], "{text}");
}

#[test]
fn who_wrote_a_variable_last_is_found() {
    let place = Workplace::new();
    let (trace, _) = recorded(&place);
    let commands = [
        "last-write handled",
        "backtrace 1",
        "print handled",
        "stepi",
        "print handled",
    ];
    let run = session(&place, &trace.dir, &["--at", "end"], &commands);
    // The last of eight signals.
    assert_said(&run, &["on_signal", "$1 = 70", "$2 = 80"]);
}

#[test]
fn a_step_back_is_found_where_only_memory_tells_visits_apart() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("debugged_alike"));
    let commands = [
        "break here if passed == 299",
        "continue",
        "reverse-stepi",
        "print passed",
        "stepi",
        "print passed",
        "delete",
        "continue",
        "print passed",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    let wanted = [
        "Breakpoint 1, here ()",
        "main (argc=",
        "$1 = 299",
        "Breakpoint 1, here ()",
        "$2 = 299",
        "No more reverse-execution history",
        "$3 = 400",
    ];
    assert_said(&run, &wanted);
}

/// Ways to and fro leave neither more copies of the program than there may be, nor too few to go back by.
#[test]
fn ways_to_and_fro_keep_the_memory_of_checkpoints_in_bounds() {
    /// Checkpoints of a program with 20 MiB may take 32 MiB, the two that are nearest may be beside them, and two more were just made.
    const MOST_KIB: u64 = (32 + 4 * 20) << 10;
    let place = Workplace::new();
    let trace = place.record(&Guest::new("moments_everywhere"));
    let all = place.info(&trace.dir).events();
    let mut commands = vec!["monitor checkpoints".to_string()];
    for tenths in [8, 5, 3, 9, 6, 2, 7, 4, 1, 8, 5] {
        commands.push(format!("run-to {}", all * tenths / 10));
        commands.push("monitor checkpoints".to_string());
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let run = session(&place, &trace.dir, &["--at", "end"], &commands);
    let text = said(&run);
    let kept: Vec<(u64, u64)> = text
        .lines()
        .filter_map(|l| {
            let rest = l.strip_prefix("the debugger itself keeps ")?;
            let (count, rest) = rest.split_once(" checkpoints, which take ")?;
            let size = rest.strip_suffix(" KiB")?;
            Some((count.parse().ok()?, size.parse().ok()?))
        })
        .collect();
    assert_eq!(kept.len(), 12, "{text}");
    let in_bounds = |(count, size): &(u64, u64)| *count >= 2 && *size <= MOST_KIB;
    assert!(kept.iter().all(in_bounds), "{kept:?}: {text}");
    assert!(kept.iter().any(|(count, _)| *count >= 3), "{kept:?}");
}
