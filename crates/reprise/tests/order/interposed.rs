//! Entry hooks: libc's synchronisation replaced by the runtime's own. Nothing that a program can see changes.

use crate::common;

use common::{knob, run, shape, Guest, Run, Source, Workplace};

guests! {
    sync_mutex, sync_cond, sync_sem, sync_barrier, sync_rwlock, sync_once, sync_faults, sync_static, sync_signals, waits_to_the_end,
}

/// Guests of other tests whose threads synchronise by libc.
const OTHERS: [&str; 16] = [
    "thread_create",
    "threads_many",
    "threads_short_lived",
    "mutex_contention",
    "condition_variables",
    "rwlock_barrier_semaphore",
    "timed_waits",
    "detached_and_local",
    "thread_cancel",
    "robust_mutex",
    "pi_mutex",
    "exit_while_others",
    "main_ends_first",
    "exit_race",
    "tiny_stacks",
    "changing_ids",
];

/// The numbers in what Reprise says at the end: functions hooked, calls of them.
fn hooked(ours: &Run) -> (u64, u64) {
    let line = ours
        .notes
        .lines()
        .find(|l| l.contains("functions hooked"))
        .unwrap_or_else(|| panic!("nothing said about hooks: {}", ours.describe()));
    let mut numbers = line.split(' ').filter_map(|w| w.parse().ok());
    let mut next = || {
        numbers
            .next()
            .unwrap_or_else(|| panic!("no number: {line}"))
    };
    (next(), next())
}

/// Runs every variant of a guest with hooks; the fewest calls of hooked functions that a run made.
fn same_with_hooks(name: &str) -> u64 {
    let mut fewest = u64::MAX;
    for guest in Source::read(name).guests() {
        let place = Workplace::new();
        let native = guest.native(&place);
        assert!(
            guest.outcome.fits(native.status),
            "{} by itself: {}",
            guest.label(),
            native.describe()
        );
        for _ in 0..knob("REPRISE_TEST_RECORDINGS", 2) {
            let mut command = place.reprise(["record", "--engine", "none", "--hooks", "--"]);
            command.arg(&guest.program).args(&guest.args);
            let ours = run(&mut command, None);
            assert!(
                guest.outcome.fits(ours.status),
                "{} with hooks: {}",
                guest.label(),
                ours.describe()
            );
            assert_eq!(
                shape(&native.stdout),
                shape(&ours.stdout),
                "{} says something else with hooks",
                guest.label()
            );
            let (functions, calls) = hooked(&ours);
            if guest.program.to_string_lossy().contains("-static") {
                assert_eq!(functions, 0, "{}", guest.label());
                continue;
            }
            assert!(functions >= 33, "{}: only {functions}", guest.label());
            fewest = fewest.min(calls);
        }
    }
    fewest
}

macro_rules! with_hooks {
    ($($name:ident: $calls:literal,)*) => {
        mod with_hooks {
            $(
                #[test]
                fn $name() {
                    let calls = super::same_with_hooks(stringify!($name));
                    assert!(calls >= $calls, "only {calls} calls of hooked functions: the test proves nothing");
                }
            )*
        }
    };
}

// How many calls each makes at the least, by counting them in its source.
with_hooks! {
    sync_mutex: 10_000,
    sync_cond: 4_000,
    sync_sem: 3_000,
    sync_barrier: 2_000,
    sync_rwlock: 3_000,
    sync_once: 400,
    sync_signals: 100,
    sync_faults: 20,
    sync_static: 300,
}

#[test]
fn guests_of_other_tests() {
    let calls: u64 = OTHERS.iter().map(|name| same_with_hooks(name)).sum();
    assert!(calls > 50_000, "only {calls} calls of hooked functions");
}

#[test]
fn without_the_switch_nothing_is_hooked() {
    let place = Workplace::new();
    let guest = Guest::new("sync_once");
    let mut command = place.reprise(["record", "--engine", "none", "--"]);
    let ours = run(command.arg(&guest.program), None);
    assert!(ours.status.success(), "{}", ours.describe());
    assert!(!ours.notes.contains("hooked"), "{}", ours.describe());
}

#[test]
fn a_static_program_has_no_hooks() {
    let place = Workplace::new();
    let guest = Guest::new("auxv-static");
    let mut command = place.reprise(["record", "--engine", "none", "--hooks", "--"]);
    let ours = run(command.arg(&guest.program), None);
    assert!(ours.status.success(), "{}", ours.describe());
    assert_eq!(hooked(&ours), (0, 0), "{}", ours.describe());
}
