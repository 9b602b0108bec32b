//! Divergence: traces are tampered with, and every replay of one must say so instead of passing (Castor 3.8).

use crate::common;

use common::tampered::tampered;
use common::{large_enough_to_be_cut, run, Guest, Recording, Run, Workplace, OWN_FAILURE};
use reprise_abi::event::{Event, Kind, Tag, HEADER_LEN, SECTION_LEN};
use reprise_trace::Reader;
use std::path::Path;

const SYS_WRITE: u32 = 1;
const SYS_GETPPID: u32 = 110;

fn parse(bytes: &[u8]) -> Event<'_> {
    Event::parse(bytes).expect("an event")
}

/// The replay ends with 125 and a message with both sides, the thread and the event's number.
fn assert_diverges(replay: &Run, number: u64, what: &str) {
    replay.assert_own_failure(OWN_FAILURE);
    let said = replay.said();
    let lower = said.to_lowercase();
    assert!(
        lower.contains("diverge"),
        "{what}: does not speak of divergence: {}",
        replay.describe()
    );
    assert!(
        lower.contains("recorded") && (lower.contains("actual") || lower.contains("replayed")),
        "{what}: not both sides: {}",
        replay.describe()
    );
    assert!(
        lower.contains("thread"),
        "{what}: no thread: {}",
        replay.describe()
    );
    assert!(
        said.contains(&number.to_string()),
        "{what}: does not name event {number}: {}",
        replay.describe()
    );
}

fn recorded(place: &Workplace, name: &str, args: &[&str]) -> Recording {
    let recording = place.record(&Guest::new(name).args(args.iter().copied()));
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    recording
}

/// Numbers of the events for which `wanted` is true.
fn find(dir: &Path, wanted: impl Fn(&Event) -> bool) -> Vec<u64> {
    let mut reader = Reader::open(dir).expect("the trace");
    let mut found = Vec::new();
    while let Some(event) = reader.next().expect("an event") {
        if wanted(&parse(event.bytes)) {
            found.push(event.number);
        }
    }
    found
}

fn is_call(event: &Event, number: u32) -> bool {
    matches!(event.kind, Kind::Syscall | Kind::Enter) && event.header.detail == number
}

#[test]
fn an_untouched_copy_replays() {
    // If copying alone made traces diverge, the tests below would prove nothing.
    let place = Workplace::new();
    let recording = recorded(&place, "thread_create", &["4"]);
    let copy = tampered(&place, &recording.dir, |_, _| true);
    common::assert_same(&recording.run, &place.replay(&copy));
}

#[test]
fn another_event() {
    let place = Workplace::new();
    let recording = recorded(&place, "counter_lines", &["50"]);
    let target = find(&recording.dir, |e| is_call(e, SYS_WRITE))[10];
    let copy = tampered(&place, &recording.dir, |number, bytes| {
        if number == target {
            bytes[8..12].copy_from_slice(&SYS_GETPPID.to_le_bytes());
        }
        true
    });
    assert_diverges(&place.replay(&copy), target, "another call");
    // An event that is missing altogether.
    let copy = tampered(&place, &recording.dir, |number, _| number != target);
    assert_diverges(&place.replay(&copy), target, "a call left out");
}

#[test]
fn other_arguments_and_other_bytes_written() {
    let place = Workplace::new();
    let recording = recorded(&place, "counter_lines", &["50"]);
    let target = find(&recording.dir, |e| is_call(e, SYS_WRITE))[20];
    let copy = tampered(&place, &recording.dir, |number, bytes| {
        if number == target {
            // The first argument: the descriptor.
            bytes[HEADER_LEN] ^= 1;
        }
        true
    });
    assert_diverges(&place.replay(&copy), target, "another descriptor");
    let copy = tampered(&place, &recording.dir, |number, bytes| {
        if number == target {
            // The hash of what was written.
            bytes[24] ^= 1;
        }
        true
    });
    assert_diverges(&place.replay(&copy), target, "other bytes written");
}

#[test]
fn another_result_is_noticed_where_it_matters() {
    // A read gets other bytes: what the program says then differs from what it said.
    let place = Workplace::new();
    let recording = place.record(&Guest::new("echo_input").stdin("recorded input"));
    let target = find(&recording.dir, |e| {
        e.sections()
            .any(|s| s.tag == Tag::Output && s.bytes == b"recorded input")
    })[0];
    let copy = tampered(&place, &recording.dir, |number, bytes| {
        if number == target {
            let at = bytes
                .windows(14)
                .position(|w| w == b"recorded input")
                .expect("the input");
            bytes[at] ^= 1;
        }
        true
    });
    let replay = place.replay(&copy);
    replay.assert_own_failure(OWN_FAILURE);
    assert!(
        replay.said().to_lowercase().contains("diverge"),
        "{}",
        replay.describe()
    );
}

#[test]
fn a_deadlock() {
    // From some event on, everything belongs to a thread that does not exist.
    let place = Workplace::new();
    let recording = recorded(&place, "mutex_contention", &["2", "300"]);
    let writes = find(&recording.dir, |e| is_call(e, SYS_WRITE));
    let target = writes[writes.len() / 2];
    let copy = tampered(&place, &recording.dir, |number, bytes| {
        if number >= target {
            bytes[6..8].copy_from_slice(&900u16.to_le_bytes());
        }
        true
    });
    let replay = place.replay(&copy);
    replay.assert_own_failure(OWN_FAILURE);
    let said = replay.said().to_lowercase();
    assert!(
        said.contains("deadlock") || said.contains("diverge"),
        "{}",
        replay.describe()
    );
}

#[test]
fn another_hash_of_the_state() {
    let place = Workplace::new();
    let recording = recorded(&place, "racey", &["2", "1000"]);
    let target = *find(&recording.dir, |e| e.kind == Kind::Hash)
        .last()
        .expect("a hash");
    let copy = tampered(&place, &recording.dir, |number, bytes| {
        if number == target {
            bytes[16] ^= 1;
        }
        true
    });
    let replay = place.replay(&copy);
    replay.assert_own_failure(OWN_FAILURE);
    assert!(
        replay.said().to_lowercase().contains("diverge"),
        "{}",
        replay.describe()
    );
    let verify = place.verify(&copy);
    assert_eq!(
        verify.status.code(),
        Some(OWN_FAILURE),
        "{}",
        verify.describe()
    );
}

/// A place in the code that is named with one register altered is never found: the replay diverges and does not pass.
#[test]
fn an_altered_register_of_a_cut() {
    let place = Workplace::new();
    for name in [
        "cut_counter",
        "cut_counter-O0",
        "cut_spin_counting",
        "cut_sampling",
    ] {
        let mut guest = Guest::new(name);
        if name == "cut_sampling" {
            guest = large_enough_to_be_cut(&guest.args(["100000000"]), 0);
        }
        let recording = place.record(&guest);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        let cuts = find(&recording.dir, |e| e.kind == Kind::Cut);
        assert!(!cuts.is_empty(), "{name} was never cut");
        let target = cuts[cuts.len() / 2];
        // All of them where it is quick; a replay that never finds its place takes its time.
        let registers: &[usize] = match name {
            "cut_sampling" => &(0..16).collect::<Vec<_>>(),
            _ if common::full() => &(0..16).collect::<Vec<_>>(),
            _ => &[0, 4],
        };
        for &register in registers {
            let copy = tampered(&place, &recording.dir, |number, bytes| {
                if number == target {
                    let at = state_section(bytes);
                    // A name begins with 8 bytes of its own; the general registers follow.
                    bytes[at + 8 + 8 * register + 1] ^= 0x40;
                }
                true
            });
            let replay = place.replay(&copy);
            assert_eq!(
                replay.status.code(),
                Some(OWN_FAILURE),
                "{name}: register {register} of a name altered, and the replay passed: {}",
                replay.describe()
            );
            assert!(
                replay.said().to_lowercase().contains("diverge"),
                "{name}: {}",
                replay.describe()
            );
            let _ = std::fs::remove_dir_all(&copy);
        }
        let _ = std::fs::remove_dir_all(&recording.dir);
    }
}

/// Where the bytes of the state section begin in an event.
fn state_section(bytes: &[u8]) -> usize {
    let event = parse(bytes);
    let mut at = HEADER_LEN + 8 * event.header.nargs as usize;
    for section in event.sections() {
        if section.tag == Tag::State {
            return at + SECTION_LEN;
        }
        at += SECTION_LEN + section.bytes.len().div_ceil(8) * 8;
    }
    panic!("a cut without a name");
}

#[test]
fn another_program_in_the_trace() {
    // The program's own bytes, kept in the trace, are changed together with nothing else.
    let place = Workplace::new();
    let recording = recorded(&place, "hello", &[]);
    let program = std::fs::read(common::built("hello")).expect("hello");
    let text = program
        .windows(12)
        .position(|w| w == b"hello, world")
        .expect("the text in the program");
    let copy = tampered(&place, &recording.dir, |_, _| true);
    let mut changed = false;
    for entry in std::fs::read_dir(copy.join("files"))
        .expect("files")
        .flatten()
    {
        let mut bytes = std::fs::read(entry.path()).expect("a content");
        if bytes == program {
            bytes[text] = b'j';
            std::fs::remove_file(entry.path()).expect("remove");
            std::fs::write(entry.path(), bytes).expect("write");
            changed = true;
        }
    }
    assert!(
        changed,
        "the program is not among the contents of its trace"
    );
    let replay = place.replay(&copy);
    replay.assert_own_failure(OWN_FAILURE);
    assert!(!replay.text().contains("jello"), "{}", replay.describe());
}

/// One bit of data, heap or stack flipped in mid-replay is noticed, although the program never looks there again.
#[test]
fn a_flipped_bit_of_memory() {
    let place = Workplace::new();
    let recording = recorded(&place, "memory_places", &[]);
    let getppids = find(&recording.dir, |e| is_call(e, SYS_GETPPID));
    let event = getppids[getppids.len() / 2];
    let text = recording.run.text();
    let places: Vec<(&str, &str)> = text.lines().filter_map(|l| l.split_once(' ')).collect();
    assert_eq!(places.len(), 5, "{text}");
    for (name, address) in places {
        let tamper = format!("{address}@{event}");
        for words in [
            &["replay", "--tamper"][..],
            &["verify", "-n", "1", "--tamper"],
        ] {
            let mut command = place.reprise(words);
            let replay = run(command.arg(&tamper).arg(&recording.dir), None);
            assert_eq!(
                replay.status.code(),
                Some(OWN_FAILURE),
                "{name}: {}",
                replay.describe()
            );
            // `verify` reports on standard output.
            let report = format!("{}{}", replay.said(), replay.text()).to_lowercase();
            assert!(report.contains("diverge"), "{name}: {}", replay.describe());
        }
    }
    common::assert_same(&recording.run, &place.replay(&recording.dir));
}
