//! References to files where it is hard to keep what they refer to: the agent is killed while a program reads, a program reads already when it is attached to,
//! threads and processes move one position. And kernels that read their input, each with several threads.
#![allow(clippy::print_stdout)]

use crate::common;

use common::attached::{closed, Subject};
use common::inputs::{assert_kept, content, on_disk, referred, settled};
use common::leftovers::agent_of;
use common::{assert_same, full, knob, run, Guest, Numbers, Running, Workplace};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Engines whose recordings are replayed from a log.
const ENGINES: [&str; 2] = ["serial", "order"];

/// The agent is killed while threads read: the program goes on as by itself, and what is in the trace until then is replayed, since no reference is written
/// before its bytes.
fn killed_amid_reads(engine: &str) {
    const SIZE: usize = 1_500_000;
    const LINES: u64 = 400;
    let rounds = knob("REPRISE_TEST_KILLS", if full() { 100 } else { 6 });
    let mut numbers = Numbers(knob("REPRISE_TEST_SEED", 5));
    let place = Workplace::new();
    let path = settled(&place, "file", &content(SIZE, 8));
    let guest = Guest::new("threads_read").args([path.as_os_str(), LINES.to_string().as_ref()]);
    let native = guest.native(&place);
    let mut amid = 0;
    for round in 0..rounds {
        let (lines, work) = (1 + numbers.below(LINES - 1), numbers.below(3_000_000));
        let what = format!("{engine}, round {round}, after {lines} lines or more");
        let dir = place.fresh("trace");
        let mut command = place.record_command(&guest, &["--engine", engine], &dir);
        let mut running = Running::start_reading(&mut command, None);
        let mut out = BufReader::new(running.child.stdout.take().expect("a pipe"));
        let mut said = Vec::new();
        // Events are written some at a time: every other kill waits for the first ones.
        let events = || dir.join("events.zst").metadata().map_or(0, |m| m.len());
        let is_due = || round % 2 == 0 || events() > 0;
        let mut line = 0;
        while line < lines || (line < LINES - 1 && !is_due()) {
            out.read_until(b'\n', &mut said).expect("a line");
            line += 1;
        }
        // Where in the next round that is, is left to chance.
        (0..work).for_each(|n| {
            std::hint::black_box(n);
        });
        let agent = agent_of(running.pid());
        // SAFETY: a process that this test started.
        assert_eq!(unsafe { libc::kill(agent, libc::SIGKILL) }, 0);
        out.read_to_end(&mut said).expect("the rest");
        let mut recorded = running.finish();
        recorded.stdout = said;
        recorded.assert_civil();
        assert_same(&native, &recorded);
        assert!(
            recorded.notes.contains("agent died"),
            "{what}: {}",
            recorded.describe()
        );
        let bytes = assert_kept(&dir);
        let mut dump = place.reprise(["dump".as_ref(), dir.as_os_str()]);
        let dumped = run(&mut dump, None);
        assert!(dumped.status.success(), "{what}: {}", dumped.describe());
        let replayed = place.replay(&dir);
        replayed.assert_civil();
        assert!(
            !replayed.said().contains("diverge")
                && replayed.said().contains("the recording was cut off"),
            "{what}: {}",
            replayed.describe()
        );
        assert!(
            recorded.stdout.starts_with(&replayed.stdout),
            "{what}: {}",
            replayed.describe()
        );
        // Some was read and is referred to, and some is read after the kill.
        let all = LINES * 2 * SIZE as u64;
        let replayed = replayed.text().lines().count() as u64;
        amid += u64::from(bytes > 0 && bytes < all * 9 / 10 && replayed + 1 < LINES);
        println!("{what}: {bytes} bytes referred to, {replayed} lines replayed");
        std::fs::remove_dir_all(&dir).expect("remove");
    }
    assert!(
        amid * 2 >= rounds,
        "{engine}: only {amid} of {rounds} were killed amid reads"
    );
}

#[test]
fn the_agent_is_killed_amid_reads_serial() {
    killed_amid_reads("serial");
}

#[test]
fn the_agent_is_killed_amid_reads_order() {
    killed_amid_reads("order");
}

/// Of a program that is attached to, what it reads from then on is referred to.
#[test]
fn attached_to_while_it_reads() {
    const SIZE: usize = 1_500_000;
    for threads in [1, 3] {
        let files = Workplace::new();
        let path = settled(&files, "file", &content(SIZE, 9));
        let mut subject = Subject::reading(&path, threads);
        let dir = subject.attach(&[]);
        subject.catch_up();
        for _ in 0..20 {
            subject.read_to("round ");
        }
        assert_eq!(subject.finish(), Some(0), "{}", subject.said);
        closed(&dir);
        let bytes = assert_kept(&dir);
        assert_eq!(bytes, referred(&subject.place.info(&dir)));
        // A replay knows nothing of the file.
        std::fs::write(&path, b"something else").expect("a file");
        let replay = subject.place.replay(&dir);
        assert!(replay.status.success(), "{}", replay.describe());
        assert!(
            subject.said.ends_with(&replay.text()),
            "{}",
            replay.describe()
        );
        let rounds = replay.text().lines().count();
        assert!(rounds >= 20, "{}", replay.describe());
        // The first one may have begun before; and each descriptor brings some bytes that are logged.
        let least = (rounds - 1) * 2 * SIZE - (threads as usize + 1) * (256 << 10);
        assert!(bytes >= least as u64, "{bytes} of {rounds} rounds");
        let events = on_disk(&dir, "events.zst");
        assert!(events < 3 << 20, "events take {events} bytes");
        let verified = subject.place.verify(&dir);
        assert!(verified.status.success(), "{}", verified.describe());
    }
}

/// Records the guest by an engine, and asserts that all replays are exact; how many bytes were referred to, and what the recording said.
fn exact(place: &Workplace, guest: &Guest, engine: &str) -> (u64, common::Run) {
    let recording = place.record_with(guest, &["--engine", engine]);
    let run = &recording.run;
    assert!(run.status.success(), "{engine}: {}", run.describe());
    let info = place.info(&recording.dir);
    assert_eq!(info.0["warnings"], serde_json::json!([]), "{engine}");
    assert_same(run, &place.replay(&recording.dir));
    let verified = place.verify(&recording.dir);
    assert!(
        verified.status.success(),
        "{engine}: {}",
        verified.describe()
    );
    std::fs::remove_dir_all(&recording.dir).expect("remove");
    (referred(&info), recording.run)
}

/// How many bytes the guest `shares_a_position` says that it has read.
fn said_bytes(run: &common::Run) -> u64 {
    let text = run.text();
    let words = text.lines().filter_map(|line| line.split(' ').nth(2));
    words
        .map(|word| word.parse::<u64>().expect("a number"))
        .sum()
}

/// Parent, thread and children take turns at one position, in any order: what each got is what the position says, or bytes.
fn one_position(path: &Path, place: &Workplace, more: &[&str]) {
    for engine in ENGINES {
        let guest = Guest::new("shares_a_position");
        let guest = guest.args([path.as_os_str(), "3".as_ref()]).args(more);
        let (mut bytes, mut all) = (0, 0);
        for _ in 0..knob("REPRISE_TEST_RECORDINGS", 3) {
            let (referred, run) = exact(place, &guest, engine);
            assert_eq!(run.text().lines().count(), 5, "{}", run.describe());
            let said = said_bytes(&run);
            if more.is_empty() {
                assert_eq!(said, path.metadata().expect("a file").len());
            }
            bytes += referred;
            all += said;
        }
        assert!(bytes > all / 10, "{engine}: {bytes} of {all} bytes");
    }
}

#[test]
fn processes_share_a_position() {
    let place = Workplace::new();
    let path = settled(&place, "file", &content(6_000_000, 10));
    one_position(&path, &place, &[]);
}

#[test]
fn processes_move_a_position() {
    let place = Workplace::new();
    let path = settled(&place, "file", &content(2_000_000, 11));
    one_position(&path, &place, &["seeks"]);
}

/// While one thread reads, another moves the position to and fro: now and then it is where it would be after the read, though the bytes came from elsewhere.
#[test]
fn a_position_is_moved_to_and_fro() {
    let place = Workplace::new();
    let path = settled(&place, "file", &content(2_000_000, 15));
    let args = [path.as_os_str(), "0".as_ref(), "back_and_forth".as_ref()];
    for engine in ENGINES {
        for _ in 0..knob("REPRISE_TEST_RECORDINGS", 3) {
            let guest = Guest::new("shares_a_position").args(args);
            let (referred, _) = exact(&place, &guest, engine);
            assert!(referred > 0, "{engine}: nothing was referred to");
        }
    }
}

/// A descriptor becomes another file under the same number, where the next read of the first one would have begun: what was known of it is known no more.
#[test]
fn other_files_under_the_same_number() {
    let place = Workplace::new();
    let [path, other] = [("file", 13), ("other", 14)]
        .map(|(name, seed)| settled(&place, name, &content(2_000_000, seed)));
    let guest = Guest::new("same_number").args([&path, &other]);
    let native = guest.native(&place);
    for engine in ENGINES {
        let (referred, run) = exact(&place, &guest, engine);
        assert_eq!(run.text(), native.text(), "{engine}");
        // Most of them, and what came after.
        assert!(referred > 1_000_000, "{engine}: {referred}");
    }
}

/// Text with words, and with numbers at the ends of lines.
fn text() -> String {
    let (mut numbers, mut text) = (Numbers(12), String::new());
    while text.len() < 3_000_000 {
        for _ in 0..numbers.below(12) {
            let letter = |numbers: &mut Numbers| char::from(b'a' + numbers.below(26) as u8);
            let word: String = (0..1 + numbers.below(8))
                .map(|_| letter(&mut numbers))
                .collect();
            text += ["be ", "file ", &word, " "][numbers.below(4) as usize];
        }
        let _ = writeln!(text, "it {}", numbers.below(20_000));
    }
    text
}

#[test]
fn kernels_of_a_file() {
    const KERNELS: [&str; 5] = [
        "histogram",
        "linear_regression",
        "string_match",
        "reverse_index",
        "dedup",
    ];
    let text = text();
    for kernel in KERNELS {
        let place = Workplace::new();
        let path = settled(&place, "file", text.as_bytes());
        let with = |threads: &str| {
            let guest = Guest::new("of_a_file");
            guest.args([kernel.as_ref(), path.as_os_str(), threads.as_ref()])
        };
        let native = with("1").native(&place);
        for engine in ["serial", "order", "det"] {
            let (bytes, run) = exact(&place, &with("3"), engine);
            assert_eq!(native.text(), run.text(), "{engine}");
            assert!(bytes > 2_000_000, "{kernel}, {engine}: {bytes}");
        }
    }
}
