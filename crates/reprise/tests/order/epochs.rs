//! Epochs that a copy of the program runs again, one thread at a time, by the log of what the program did with its threads on all processors (DoublePlay 5.2): the
//! copy comes to the program's memory and registers, unless threads have raced. What the copy did it writes as slices, and another copy comes to the same by these
//! alone.

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

/// As [`flags`], with slices, and with these.
fn flags_of_slices(seed: u32, more: &[&str]) -> Vec<String> {
    let more = more.iter().copied().map(str::to_owned);
    let slices = ["--test-slices".to_owned()];
    flags(seed).into_iter().chain(slices).chain(more).collect()
}

/// As [`epochs`], by slices.
fn slices(info: &Info) -> [u64; 2] {
    ["slices_same", "slices_unlike"].map(|which| info.counter(which))
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

/// What a copy did is in its slices, and nothing else is needed: another copy comes to the same state by them.
#[test]
fn slices_bring_another_copy_to_the_same_state() {
    for (name, args) in [
        ("epochs", &["2", "100"][..]),
        ("epochs", &["4", "100"]),
        ("pipes", &[]),
    ] {
        let flags = flags_of_slices(2, &[]);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let infos = check_times(&Guest::new(name).args(args), &flags, 1, 1);
        let [same, unlike] = slices(&infos[0]);
        assert!(same >= OFTEN, "{name} {args:?}: only {same}");
        assert_eq!(unlike, 0, "{name} {args:?}: {same} came to the same state");
    }
}

/// Threads that begin and end in an epoch do so in its copies, too, in the places of others that have ended before.
#[test]
fn threads_begin_and_end_in_copies() {
    let flags = flags_of_slices(4, &[]);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let guest = Guest::new("threads_short_lived").args(["100"]);
    let infos = check_times(&guest, &flags, 1, 1);
    let births = infos[0].counter("epochs_with_births");
    assert!(births >= OFTEN, "only {births}");
    for [same, unlike] in [epochs(&infos[0]), slices(&infos[0])] {
        assert_eq!(unlike, 0, "{same} came to the same state");
    }
}

/// Two neighbouring events of the slices change places: the copy that runs by them finds that, each time.
#[test]
fn flipped_slices_are_found() {
    let place = Workplace::new();
    let flags = flags_of_slices(3, &["--test-flip"]);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let recording = place.record_with(&Guest::new("epochs").args(["3", "100"]), &flags);
    let info = place.info(&recording.dir);
    let [same, unlike] = slices(&info);
    assert!(unlike >= OFTEN, "only {unlike} were found");
    assert_eq!(same, 0, "{same} were not found, {unlike} were");
}
