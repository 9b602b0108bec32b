//! Programs that write random bytes into the memory that they share with their recorder (`tests/guests/hostile/scribbles.c`): no other process is touched,
//! the recording ends, and there is a trace of what came before.
//!
//! `REPRISE_TEST_SCRIBBLES`: how many for each engine (8); `REPRISE_TEST_SEED`: another series of them.

use crate::common;

use common::outsider::Outsider;
use common::{allow_uncaptured, knob, Guest, Running, Workplace};
use reprise_abi::layout::{BLOCKS_BASE, BLOCK_STRIDE, RING_BASE, RING_SIZE, SESSION_BASE};
use reprise_abi::order::{OrderHead, Shard, WaitingRoom, ORDER_BASE, SHARDS};
use reprise_abi::ring::RingControl;
use reprise_abi::session::{process_state, slot_state, Process, RequestBox, Session, Slot};
use reprise_abi::waits::Awaited;
use std::mem::{offset_of, size_of};
use std::time::Duration;

/// No recording of these takes longer than a second, if it is left alone.
const LIMIT: Duration = Duration::from_secs(10);
/// So many slots and processes the guest has.
const USED: usize = 5;
/// Bytes of a chunk of the heap that `order` puts in the place of malloc's.
const CHUNK: usize = 1 << 20;

/// Where the words are that a recording uses: first byte, and how many.
fn stretches(engine: &str) -> Vec<String> {
    let session = SESSION_BASE as usize;
    let between = |from: usize, to: usize| (session + from, to - from);
    let mut all = vec![
        (session, 512),
        between(offset_of!(Session, agent_life), offset_of!(Session, cpuid)),
        between(
            offset_of!(Session, schedule_lock),
            offset_of!(Session, futex_head),
        ),
        between(
            offset_of!(Session, futex_head),
            offset_of!(Session, agent_asleep),
        ),
        between(
            offset_of!(Session, agent_asleep),
            offset_of!(Session, file_identities),
        ),
        (
            session + offset_of!(Session, request),
            size_of::<RequestBox>(),
        ),
        (
            session + offset_of!(Session, ring),
            size_of::<RingControl>(),
        ),
        (
            session + offset_of!(Session, processes),
            USED * size_of::<Process>(),
        ),
        (Session::slot_address(session, 0), USED * size_of::<Slot>()),
        (RING_BASE as usize, RING_SIZE as usize / 64),
        (BLOCKS_BASE as usize, USED * BLOCK_STRIDE as usize),
    ];
    if engine == "order" {
        let order = ORDER_BASE as usize;
        let part = |at: usize, len: usize| (order + at, len);
        all.extend([
            part(0, offset_of!(OrderHead, total)),
            part(offset_of!(OrderHead, rooms), 64 * size_of::<WaitingRoom>()),
            part(offset_of!(OrderHead, waits), USED * size_of::<Awaited>()),
            part(offset_of!(OrderHead, shared_runs), 4096),
            part(offset_of!(OrderHead, shards), SHARDS * size_of::<Shard>()),
            part(
                offset_of!(OrderHead, rings),
                USED * size_of::<RingControl>(),
            ),
            // Where blocks of each thread's heap come from.
            (0, CHUNK),
        ]);
    }
    let words = all.iter().flat_map(|(at, len)| [*at, *len]);
    words.map(|n| n.to_string()).collect()
}

fn scribble(engine: &str) {
    let mut outsider = Outsider::new();
    let first = knob("REPRISE_TEST_SEED", 1) << 32;
    let mut failures = Vec::new();
    for seed in first..first + knob("REPRISE_TEST_SCRIBBLES", 8) {
        let place = Workplace::new();
        let mut args = vec![seed.to_string()];
        args.extend(stretches(engine));
        let guest = Guest::new("hostile/scribbles").args(args);
        let dir = place.fresh("trace");
        let mut command = place.record_command(&guest, &["--engine", engine], &dir);
        let running = Running::start(allow_uncaptured(&mut command), None);
        let Some(r) = running.finish_within(LIMIT) else {
            failures.push(format!("seed {seed}: no end within {LIMIT:?}"));
            continue;
        };
        let said = r.describe();
        outsider.assert_untouched(&format!("seed {seed}: {said}"));
        if r.status.code().is_none() || said.contains("panicked") {
            failures.push(format!("seed {seed}: {said}"));
            continue;
        }
        for words in [&["info"][..], &["dump"]] {
            let read = common::run(place.reprise(words).arg(&dir), None);
            if !read.status.success() {
                failures.push(format!(
                    "seed {seed}: {words:?}: {}\n{said}",
                    read.describe()
                ));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures: {}",
        failures.len(),
        failures.join("\n")
    );
}

/// One recording that is overwritten so; what is told of it.
fn overwritten(engine: &str, words: &[(usize, u32)]) -> String {
    let place = Workplace::new();
    let mut outsider = Outsider::new();
    let args = words
        .iter()
        .flat_map(|(at, value)| [(SESSION_BASE as usize + at).to_string(), value.to_string()]);
    let guest = Guest::new("hostile/overwrites").args(args);
    let dir = place.fresh("trace");
    let mut command = place.record_command(&guest, &["--engine", engine], &dir);
    let running = Running::start(allow_uncaptured(&mut command), None);
    let run = running.finish_within(LIMIT);
    let run = run.unwrap_or_else(|| panic!("{engine} {words:?}: no end within {LIMIT:?}"));
    outsider.assert_untouched(&run.describe());
    for words in [&["info"][..], &["dump"]] {
        let read = common::run(place.reprise(words).arg(&dir), None);
        assert!(read.status.success(), "{}", read.describe());
    }
    run.describe()
}

/// Nobody ever lets a lock go that nobody has: the recording ends, and says why.
#[test]
fn a_lock_that_nobody_has() {
    let lock = offset_of!(Session, schedule_lock);
    for value in [2, 0x8000_0002, 0x2123_4567, 0x3fff_ffff] {
        let said = overwritten("serial", &[(lock, value)]);
        assert!(
            said.contains("damaged the session's memory (a lock that nobody has)"),
            "{value:#x}: {said}"
        );
    }
}

/// The turn of a thread that there is not, and states that there are not: what becomes of it depends on who writes that word next.
#[test]
fn turns_of_nobody() {
    let slot = |i| Session::slot_address(0, i);
    for (at, value) in [
        (offset_of!(Session, baton), 4000),
        (offset_of!(Session, baton), 0),
        (offset_of!(Session, slots_used), 1 << 30),
        (slot(0) + offset_of!(Slot, state), 77),
        (slot(1) + offset_of!(Slot, state), 77),
    ] {
        overwritten("serial", &[(at, value)]);
    }
}

/// A thread that waits for its turn is in no list any more: nobody would ever tell it, whatever all others do.
#[test]
fn a_thread_that_is_in_no_list() {
    let slot = Session::slot_address(0, 1);
    let words = [
        (offset_of!(Session, ready_head), 0),
        (offset_of!(Session, ready_tail), 0),
        (offset_of!(Session, ready_count), 0),
        (slot + offset_of!(Slot, state), slot_state::IN_CALL),
    ];
    // Neither is it where threads are looked for.
    let unseen = [&words[..], &[(offset_of!(Session, slots_used), 1)]].concat();
    for (words, what) in [
        (&words[..], "a thread whose turn never comes"),
        (&unseen, "an impossible number of threads"),
    ] {
        let said = overwritten("serial", words);
        assert!(
            said.contains(&format!("damaged the session's memory ({what})")),
            "{said}"
        );
    }
}

/// The box of requests is kept by a thread that lives, and knows nothing of it.
#[test]
fn a_box_that_is_not_given_back() {
    let taken = offset_of!(Session, request) + offset_of!(RequestBox, taken);
    for engine in ["serial", "order"] {
        let said = overwritten(engine, &[(taken, 1)]);
        assert!(
            said.contains("damaged the session's memory (a lock that is not given back)")
                || said.contains("over\n"),
            "{engine}: {said}"
        );
    }
}

/// The session names processes that there are not, or that are others: the recorder ends with those that there were.
#[test]
fn processes_that_there_are_not() {
    let third = offset_of!(Session, processes) + 2 * size_of::<Process>();
    let mut forged = vec![
        (third + offset_of!(Process, state), process_state::LIVE),
        (offset_of!(Session, processes_used), 3),
    ];
    // 0 is a process that does not know itself yet; the system's first one may be one that nobody can look at, and the second one is a thread of the kernel's.
    for pid in [0, 1, 2, 0x7fff_fff0] {
        forged.push((third + offset_of!(Process, kernel_pid), pid));
        for engine in ["serial", "order"] {
            let said = overwritten(engine, &forged);
            assert!(said.contains("over\n"), "{pid} {engine}: {said}");
        }
        forged.pop();
    }
}

/// A process that is said to end, and doesn't: its threads wait for that, but for one that waits for them in a call of the program's.
#[test]
fn a_process_that_does_not_end() {
    let state = offset_of!(Session, processes) + offset_of!(Process, state);
    let said = overwritten("order", &[(state, process_state::ENDING)]);
    assert!(
        said.contains("damaged the session's memory (threads that nobody wakes or ends)"),
        "{said}"
    );
}

/// By these words threads find their rings, and know what they are to do.
#[test]
fn words_that_never_change() {
    let size = ORDER_BASE as usize - SESSION_BASE as usize + offset_of!(OrderHead, ring_size);
    for (engine, at, value) in [
        ("order", size, 0),
        ("order", size, 4096),
        ("order", offset_of!(Session, engine), 77),
        ("serial", offset_of!(Session, mode), 77),
    ] {
        let said = overwritten(engine, &[(at, value)]);
        assert!(
            said.contains("damaged the session's memory (a word that never changes)"),
            "{engine} {at} {value}: {said}"
        );
    }
}

#[test]
fn of_serial() {
    scribble("serial");
}

#[test]
fn of_order() {
    scribble("order");
}
