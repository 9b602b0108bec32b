//! What the tests of `--engine order` have in common.

use super::{assert_same, check_times, Guest, Recording, Run, Workplace};

/// The engine.
pub const ORDER: [&str; 2] = ["--engine", "order"];

/// Rounds of learning, at most.
const MOST_ROUNDS: u32 = 20;
/// So many recordings one after the other that are replayed exactly show that nothing is left to be learned.
const EXACT_ROUNDS: u32 = 4;

/// Records a guest, replays it twice in partial order and once in total order.
///
/// # Panics
/// With what was not as it should be.
pub fn check(name: &str, args: &[&str]) {
    check_times(&Guest::new(name).args(args), &ORDER, 1, 2);
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
