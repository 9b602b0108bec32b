//! Programs that bring an allocator of their own under the engines that replace libc's: in front of libc (LD_PRELOAD), or linked in. It need not define
//! all that libc defines, and a block goes back to where it came from.

use crate::common;

use common::order::{learns, ORDER};
use common::{assert_same, run, Guest, Workplace};
use std::path::{Path, PathBuf};

/// Allocators of Debian's packages, none of which defines `reallocarray` but mimalloc.
const LIBRARIES: [&str; 3] = [
    "libjemalloc.so.2",
    "libtcmalloc_minimal.so.4",
    "libmimalloc.so.2.0",
];

fn library(name: &str) -> PathBuf {
    let path = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
    assert!(
        path.exists(),
        "{} (scripts/setup-tests.sh installs it)",
        path.display()
    );
    path
}

/// libc's own, one that is linked in, and those of libraries.
fn all() -> Vec<Guest> {
    let mut guests = vec![Guest::new("allocators"), Guest::new("allocators-own")];
    guests.extend(
        LIBRARIES.map(|name| Guest::new("allocators").env("LD_PRELOAD", library(name).as_os_str())),
    );
    guests
}

/// Those whose threads look at words by plain loads that others change meanwhile: a race, which replays learn.
const RACES: [&str; 2] = ["libjemalloc.so.2", "libmimalloc.so.2.0"];

fn races(guest: &Guest) -> bool {
    let is_one = |value: &str| RACES.iter().any(|name| value.ends_with(name));
    let mut env = guest.env.iter();
    env.any(|(_, value)| is_one(&value.to_string_lossy()))
}

#[test]
fn one_whose_threads_race_is_learned() {
    for guest in all().iter().filter(|guest| races(guest)) {
        let place = Workplace::new();
        learns(&place, || place.record_with(guest, &ORDER), guest);
    }
}

#[test]
fn blocks_go_back_to_where_they_came_from() {
    for guest in all().into_iter().filter(|guest| !races(guest)) {
        let place = Workplace::new();
        let recording = place.record_with(&guest, &ORDER);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        for order in ["partial", "total"] {
            let replay = place.replay_with(&recording.dir, &["--order", order]);
            assert_same(&recording.run, &replay);
        }
        let same = place.verify(&recording.dir);
        assert!(same.status.success(), "{}", same.describe());
    }
}

/// The same under `det`, and where nothing is recorded.
#[test]
fn as_much_without_a_log() {
    for guest in all() {
        let place = Workplace::new();
        let recording = place.record_with(&guest, &["--engine", "det"]);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        assert_same(&recording.run, &place.replay(&recording.dir));
        let mut command = place.reprise(["run"]);
        command.arg(&guest.program).envs(guest.env.iter().cloned());
        let ran = run(&mut command, None);
        assert!(ran.status.success(), "{}", ran.describe());
        assert_eq!(ran.text(), recording.run.text());
    }
}
