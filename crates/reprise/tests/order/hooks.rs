//! Each class of hooks of `--engine order` matters: without it (`record --test-without CLASS`) the program that needs it is not replayed
//! exactly, and with all of them it is.

use crate::common;

use common::{assert_same, knob, run, sources, Guest, Running, Workplace};
use std::path::PathBuf;
use std::time::Duration;

const ORDER: [&str; 2] = ["--engine", "order"];
/// Recordings without a class, at most, until one of them is not replayed exactly.
const TRIES: u32 = 60;
/// A replay that takes longer is given up, and shows nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// Is a recording without these classes replayed as it was? A replay whose threads wait for each other for ever shows nothing.
fn is_exact_without(place: &Workplace, guest: &Guest, classes: &[&str]) -> bool {
    let mut flags = ORDER.to_vec();
    for class in classes {
        flags.extend(["--test-without", class]);
    }
    let recording = place.record_with(guest, &flags);
    assert!(
        guest.outcome.fits(recording.run.status),
        "{}",
        recording.run.describe()
    );
    let trace = recording.dir.to_str().expect("UTF-8");
    let replay = Running::start(&mut place.reprise(["replay", trace]), None);
    let Some(replay) = replay.finish_within(PATIENCE) else {
        return true;
    };
    replay.assert_civil();
    let _ = std::fs::remove_dir_all(&recording.dir);
    replay.stdout == recording.run.stdout && replay.status == recording.run.status
}

/// With all hooks every replay is exact, without these classes some replay isn't.
fn matter(guest: &Guest, classes: &[&str]) {
    let place = Workplace::new();
    all_hooks_suffice(&place, guest);
    let unlike = (0..TRIES).any(|_| !is_exact_without(&place, guest, classes));
    assert!(
        unlike,
        "{TRIES} recordings of {} without {classes:?} were all replayed exactly",
        guest.label()
    );
}

fn all_hooks_suffice(place: &Workplace, guest: &Guest) {
    for _ in 0..knob("REPRISE_TEST_RECORDINGS", 3) {
        let recording = place.record_with(guest, &ORDER);
        for order in ["partial", "total"] {
            let replay = place.replay_with(&recording.dir, &["--order", order]);
            assert_same(&recording.run, &replay);
        }
        let _ = std::fs::remove_dir_all(&recording.dir);
    }
}

fn first(what: &str, rounds: &str) -> Guest {
    Guest::new("who_was_first").args([what, rounds])
}

macro_rules! matters {
    ($($name:ident: $guest:expr, $classes:expr;)*) => {
        $(#[test] fn $name() { matter(&$guest, &$classes); })*
    };
}

matters! {
    mutexes: first("mutex", "2000"), ["mutex"];
    spin_locks: first("spin", "2000"), ["spin"];
    rwlocks: first("rwlock", "1000"), ["rwlock"];
    semaphores: first("sem", "1000"), ["sem"];
    conditions: first("cond", "3000"), ["cond"];
    barriers: first("barrier", "1000"), ["barrier"];
    once: first("once", "1000"), ["once"];
    statics: Guest::new("static_winners"), ["static"];
    allocations: first("malloc", "6000"), ["malloc"];
    cancellation: first("cancel", "40"), ["cancel"];
    thread_variables: Guest::new("thread_variables_of_libraries"), ["thread-local"];
    loads_of_thread_ids: first("stacks", "100"), ["thread-id"];
    locked_instructions: Guest::new("locked_forms").args(["2000"]), ["locked"];
}

/// That a thread is gone is also seen by libc's own loads and locked instructions. Without those it is the hook alone by which joins are exact.
#[test]
fn joins() {
    let (place, guest) = (Workplace::new(), first("join", "200"));
    let others = ["thread-id", "locked"];
    for _ in 0..5 {
        assert!(is_exact_without(&place, &guest, &others));
    }
    let all = ["thread-id", "locked", "join"];
    let unlike = (0..TRIES).any(|_| !is_exact_without(&place, &guest, &all));
    assert!(unlike, "{TRIES} recordings were all replayed exactly");
}

#[test]
fn atomics_of_reprise_cc() {
    let place = Workplace::new();
    let program: PathBuf = place.path().join("atomic_handover");
    let mut command = place.reprise(["cc", "-O2", "-pthread", "-I"]);
    command
        .arg(sources())
        .arg(sources().join("atomic_handover.c"))
        .arg("-o")
        .arg(&program)
        .env("XDG_CACHE_HOME", place.path().join("cache"));
    let built = run(&mut command, None);
    assert!(built.status.success(), "{}", built.describe());
    matter(&Guest::program(program).args(["3000"]), &["atomic"]);
}

/// What was learned is forgotten again for one recording.
#[test]
fn learned_loads() {
    let place = Workplace::new();
    let guest = Guest::new("plain_handover");
    let learns = |_| {
        let trace = place.record_with(&guest, &ORDER).dir;
        !place.replay_with(&trace, &["--learn"]).status.success()
    };
    assert!((0..20).any(learns), "no replay left its path");
    all_hooks_suffice(&place, &guest);
    let unlike = (0..TRIES).any(|_| !is_exact_without(&place, &guest, &["learned"]));
    assert!(unlike, "{TRIES} recordings were all replayed exactly");
}

#[test]
fn an_unknown_class_is_refused() {
    let place = Workplace::new();
    let mut command = place.reprise(["record", "--test-without", "nothing", "--", "/bin/true"]);
    let refused = run(&mut command, None);
    assert!(!refused.status.success(), "{}", refused.describe());
    assert!(refused.said().contains("mutex"), "{}", refused.describe());
}
