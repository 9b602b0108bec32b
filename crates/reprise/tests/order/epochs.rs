//! Epochs that a copy of the program runs again, one thread at a time, by the log of what the program did with its threads on all processors (DoublePlay 5.2): the
//! copy comes to the program's memory and registers, unless threads have raced.

use crate::common;

use common::{check_times, Guest, Info, Workplace};

/// So many epochs at the least came to the same state, in a recording that is to show something.
const OFTEN: u64 = 5;
/// Recordings of threads that race, of which at least one has an epoch in which that shows.
const TRIES: u32 = 10;

fn flags(seed: u32) -> [String; 4] {
    let seed = format!("--test-reenter={seed}");
    ["--engine", "order", &seed, "--test-epochs"].map(str::to_owned)
}

/// Of epochs: how many came to the same state, and how many did not.
fn epochs(info: &Info) -> [u64; 2] {
    ["epochs_same", "epochs_unlike"].map(|which| info.counter(which))
}

/// Nobody races: all epochs that can be run again come to the same state. The program notices nothing, and its recording is replayed as any.
#[test]
fn who_does_not_race_comes_to_the_same_state() {
    for (name, args) in [
        ("epochs", &["2", "100"][..]),
        ("epochs", &["4", "100"]),
        ("pipes", &[]),
    ] {
        let flags = flags(1);
        let flags = flags.each_ref().map(String::as_str);
        let infos = check_times(&Guest::new(name).args(args), &flags, 1, 1);
        let [same, unlike] = epochs(&infos[0]);
        assert!(same >= OFTEN, "{name} {args:?}: only {same}");
        assert_eq!(unlike, 0, "{name} {args:?}: {same} came to the same state");
    }
}

/// Threads race: there is an epoch whose copy comes to something else, and that is said.
#[test]
fn who_races_is_found() {
    let place = Workplace::new();
    let guest = Guest::new("epochs").args(["4", "200", "races"]);
    let found = (1..=TRIES).any(|seed| {
        let flags = flags(seed);
        let flags = flags.each_ref().map(String::as_str);
        let recording = place.record_with(&guest, &flags);
        let [same, unlike] = epochs(&place.info(&recording.dir));
        let said = recording.run.said();
        assert!(same > 0, "nothing was run again");
        assert_eq!(
            said.contains("the first that did not: "),
            unlike > 0,
            "{said}"
        );
        unlike > 0
    });
    assert!(found, "no race showed in {TRIES} recordings");
}
