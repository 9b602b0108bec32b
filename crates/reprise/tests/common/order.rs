//! What the tests of `--engine order` have in common.

use super::{assert_same, check_times, message, Guest, Recording, Run, Workplace};

/// The engine.
pub const ORDER: [&str; 2] = ["--engine", "order"];

/// Rounds of learning, at most.
const MOST_ROUNDS: u32 = 20;
/// So many recordings one after the other that are replayed exactly show that nothing is left to be learned.
const EXACT_ROUNDS: u32 = 4;

/// Records each guest, replays it twice in partial order and once in total order.
///
/// # Panics
/// With what was not as it should be, when all were tried.
pub fn each(names: &[&str]) {
    let plain: Vec<_> = names.iter().map(|n| (*n, &[][..])).collect();
    each_with(&plain);
}

/// As [`each`], with arguments.
///
/// # Panics
/// As [`each`].
pub fn each_with(guests: &[(&str, &[&str])]) {
    let mut failures = Vec::new();
    for (name, args) in guests {
        let attempt = std::panic::catch_unwind(|| {
            check_times(&Guest::new(name).args(*args), &ORDER, 1, 2);
        });
        if let Err(why) = attempt {
            failures.push(format!("{name}: {}", message(&*why)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Recordings, and replays that learn, until nothing is left to be learned.
///
/// # Panics
/// When a replay that keeps the recording's path says something else, or one that doesn't teaches nothing.
pub fn learns(place: &Workplace, mut record: impl FnMut() -> Recording, guest: &Guest) {
    let mut exact_rounds = 0;
    for _ in 0..MOST_ROUNDS {
        let recording = record();
        assert!(
            guest.outcome.fits(recording.run.status),
            "{}",
            recording.run.describe()
        );
        let replays = [(); 2].map(|()| place.replay_with(&recording.dir, &["--learn"]));
        let _ = std::fs::remove_dir_all(&recording.dir);
        let keeps_its_path = |r: &&Run| r.status == recording.run.status;
        // What a replay that keeps its path says is right.
        for replay in replays.iter().filter(keeps_its_path) {
            assert_same(&recording.run, replay);
        }
        if let Some(first) = replays.iter().find(|r| !keeps_its_path(r)) {
            let taught = replays.iter().any(|r| r.said().contains("learned: "));
            assert!(taught, "nothing was learned: {}", first.describe());
            exact_rounds = 0;
            continue;
        }
        exact_rounds += 1;
        if exact_rounds == EXACT_ROUNDS {
            return;
        }
    }
    panic!("after {MOST_ROUNDS} rounds of learning replays still differ");
}
