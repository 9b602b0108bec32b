//! Checkpoints on disk: whatever begins at one is what it would be from the beginning; damage costs speed.

use crate::common;

use common::gdb::states;
use common::{run, Guest, Run, Workplace, OWN_FAILURE};
use std::path::{Path, PathBuf};

/// Events between two of them.
const EVERY: &str = "100ev";
/// What says that one was not used.
const WITHOUT: &str = "without";

fn checkpoint(place: &Workplace, dir: &Path, every: &str) -> Run {
    let mut command = place.reprise(["checkpoint", "--every", every]);
    run(command.arg(dir), None)
}

/// How many checkpoints there are.
fn count(place: &Workplace, dir: &Path) -> u64 {
    let info = run(place.reprise(["info", "--json"]).arg(dir), None).text();
    let line = info.lines().find(|l| l.contains("\"checkpoints\""));
    let number = line.and_then(|l| l.split_once(": ")?.1.trim_end_matches(',').parse().ok());
    number.unwrap_or_else(|| panic!("no count: {info}"))
}

fn file(dir: &Path) -> PathBuf {
    dir.join("checkpoints")
}

/// Debuggers of this test's process take each, however little time that saves. Other traces have none.
fn take_each() {
    std::env::set_var("REPRISE_TEST_CHECKPOINTS", "1");
}

#[test]
fn the_state_at_an_event_is_the_same_from_a_checkpoint_on_disk() {
    take_each();
    let place = Workplace::new();
    let trace = place.record(&Guest::new("moments"));
    let all = place.info(&trace.dir).events();
    let events: Vec<u64> = (1..=6).map(|i| all * i / 7).collect();
    let straight = states(&place, &trace.dir, "0", &events, 0);
    let made = checkpoint(&place, &trace.dir, EVERY);
    assert!(made.status.success(), "{}", made.describe());
    let n = count(&place, &trace.dir);
    assert!(n >= all / 200, "{n} checkpoints for {all} events");
    assert_eq!(states(&place, &trace.dir, "0", &events, 0), straight);
    let mut back = events.clone();
    back.reverse();
    let mut found = states(&place, &trace.dir, "end", &back, 0);
    found.reverse();
    assert_eq!(found, straight);
}

#[test]
fn a_replay_from_a_checkpoint_ends_as_the_recording() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("moments"));
    let all = place.info(&trace.dir).events();
    let made = checkpoint(&place, &trace.dir, EVERY);
    assert!(made.status.success(), "{}", made.describe());
    let mut before = trace.run.stdout.len();
    for at in [all / 3, all / 2, all] {
        let from = at.to_string();
        let verified = place.verify_with(&trace.dir, &["--from", &from]);
        assert!(verified.status.success(), "{}", verified.describe());
        assert!(
            verified.text().contains("the same: from "),
            "{}",
            verified.describe()
        );
        let rest = place.replay_with(&trace.dir, &["--from", &from]);
        assert_eq!(rest.status, trace.run.status, "{}", rest.describe());
        assert!(
            trace.run.stdout.ends_with(&rest.stdout) && rest.stdout.len() <= before,
            "{}",
            rest.describe()
        );
        before = rest.stdout.len();
        // How many events the program has before its first line is chance; its last one it has written.
        assert!(at < all || before == 0, "{}", rest.describe());
    }
}

#[test]
fn damage_to_checkpoints_costs_speed_only() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("moments"));
    let all = place.info(&trace.dir).events();
    let made = checkpoint(&place, &trace.dir, EVERY);
    assert!(made.status.success(), "{}", made.describe());
    let whole = std::fs::read(file(&trace.dir)).expect("checkpoints");
    let from = all.to_string();
    let len = whole.len();
    // Everywhere in the file, the table among it; cut off; empty.
    let flipped = (0..12).map(|i| {
        let mut bytes = whole.clone();
        bytes[(len - 1) * i / 11] ^= 0x10;
        bytes
    });
    let cut = [0, 1, len / 2, len - 1].map(|n| whole[..n].to_vec());
    let mut told = 0;
    for bytes in flipped.chain(cut) {
        std::fs::write(file(&trace.dir), bytes).expect("write");
        let verified = place.verify_with(&trace.dir, &["--from", &from]);
        assert!(verified.status.success(), "{}", verified.describe());
        let said = verified.said();
        let lines = said.lines().filter(|l| l.contains(WITHOUT)).count();
        assert!(lines <= 1, "{said}");
        told += lines;
    }
    // A flip may be in what the last ones do not need.
    assert!(told >= 5, "told of {told}");
    std::fs::remove_file(file(&trace.dir)).expect("remove");
    let verified = place.verify_with(&trace.dir, &["--from", &from]);
    assert!(verified.status.success() && !verified.said().contains(WITHOUT));
    // Those of another recording.
    let other = place.record(&Guest::new("moments"));
    std::fs::write(file(&other.dir), &whole).expect("write");
    let verified = place.verify_with(&other.dir, &["--from", &from]);
    assert!(verified.status.success(), "{}", verified.describe());
    assert!(verified.said().contains("another trace"));
}

#[test]
fn a_pack_has_them_or_not() {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("hello"), &["--checkpoints"]);
    assert!(count(&place, &trace.dir) > 0);
    for (flag, there) in [(None, true), (Some("--no-checkpoints"), false)] {
        let packed = place.fresh("packed").with_extension("reprise");
        let mut command = place.reprise(["pack", "-o"]);
        command.arg(&packed).arg(&trace.dir).args(flag);
        let out = run(&mut command, None);
        assert!(out.status.success(), "{}", out.describe());
        assert_eq!(count(&place, &packed) > 0, there);
        let verified = place.verify_with(&packed, &["--from", "1000000"]);
        assert!(verified.status.success(), "{}", verified.describe());
        assert_eq!(verified.text().contains("from "), there);
    }
}

#[test]
fn who_can_not_have_them_is_told_in_a_sentence() {
    let place = Workplace::new();
    for engine in ["order", "det"] {
        let trace = place.record_with(&Guest::new("hello"), &["--engine", engine]);
        checkpoint(&place, &trace.dir, "1s").assert_own_failure(OWN_FAILURE);
    }
}
