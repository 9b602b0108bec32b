//! What a program maps of a large file is recorded as ranges of a copy, which the program doesn't wait for.

use crate::common;

use common::gdb::{assert_said, session};
use common::tampered::tampered;
use common::{assert_same, Guest, Info, Numbers, Recording, Workplace};
use reprise_abi::event::{Event, Tag, HEADER_LEN, SECTION_LEN};
use reprise_abi::mapped::LEAST_MAPPED;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

guests! { maps_parts }

const ENGINES: [&str; 3] = ["serial", "order", "det"];
/// Longer than a tick of a file system's clock, after which a file counts as settled.
const TICK: Duration = Duration::from_millis(30);
/// Not a number of pages.
const LEN: u64 = (64 << 20) + 1234;
/// Bytes at each sixteenth of it, where the guest maps it.
const ISLAND: u64 = 400_000;

fn content(len: u64, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    (0..len).map(|_| numbers.below(256) as u8).collect()
}

fn part(n: u64) -> u64 {
    (LEN / 16 * n) & !4095
}

/// A large file that has something where the guest looks, and that can be referred to.
fn large(place: &Workplace, seed: u64) -> PathBuf {
    let path = place.path().join("file");
    let file = File::create(&path).expect("a file");
    file.set_len(LEN).expect("a long file");
    let bytes = content(ISLAND, seed);
    for n in 0..16 {
        file.write_all_at(&bytes[n as usize..], part(n))
            .expect("write");
    }
    file.write_all_at(&bytes[..100_000], LEN - 100_000)
        .expect("write");
    drop(file);
    std::thread::sleep(TICK);
    path
}

/// `det` records one process, whose threads can't be lent what is mapped shared.
fn ways(engine: &str) -> &'static [&'static str] {
    match engine {
        "det" => &["alone"],
        _ => &["", "threads"],
    }
}

fn guest(path: &Path, words: &[&str]) -> Guest {
    let words = words.iter().filter(|w| !w.is_empty());
    Guest::new("maps_parts")
        .args([path.as_os_str()])
        .args(words.copied())
}

/// The whole contents of the file in the trace.
fn whole(dir: &Path) -> usize {
    let files = std::fs::read_dir(dir.join("files")).expect("files");
    let whole = |e: &std::fs::DirEntry| {
        let is_input = e.file_name().to_string_lossy().starts_with("input.");
        !is_input && e.metadata().is_ok_and(|m| m.len() == LEN)
    };
    files.flatten().filter(whole).count()
}

fn on_disk(dir: &Path) -> u64 {
    let meta = dir.join("files/input.1").metadata();
    meta.map_or(0, |meta| meta.blocks() * 512)
}

fn referred(info: &Info) -> u64 {
    info.0["inputs"][0]["bytes_referred"].as_u64().unwrap_or(0)
}

/// Without the file, which is gone.
fn assert_replays(place: &Workplace, path: &Path, recording: &Recording) {
    std::fs::remove_file(path).expect("remove");
    for _ in 0..2 {
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
    let verified = place.verify(&recording.dir);
    assert!(verified.status.success(), "{}", verified.describe());
}

#[test]
fn the_ways_to_map() {
    for engine in ENGINES {
        for way in ways(engine) {
            let place = Workplace::new();
            let path = large(&place, 1);
            let guest = guest(&path, &[way]);
            let native = guest.native(&place);
            let recording = place.record_with(&guest, &["--engine", engine]);
            assert_eq!(native.stdout, recording.run.stdout, "{engine} {way}");
            let info = place.info(&recording.dir);
            assert!(referred(&info) > 200_000, "{engine}: {}", info.0["inputs"]);
            assert_eq!(info.0["warnings"], serde_json::json!([]), "{engine}");
            // Nobody has kept the file: there was nothing to wait for.
            assert_eq!(whole(&recording.dir), 0, "{engine} {way}");
            assert_ranges(&recording.dir);
            let kept = on_disk(&recording.dir);
            assert!((100_000..2 << 20).contains(&kept), "{kept} bytes");
            assert_replays(&place, &path, &recording);
        }
    }
}

/// From its first write on, a replay has all of the file.
#[test]
fn the_program_changes_what_it_has_mapped() {
    for engine in ENGINES {
        for way in ways(engine) {
            let place = Workplace::new();
            let path = large(&place, 2);
            let native = guest(&path, &[way, "writes"]).native(&place);
            let path = large(&place, 2);
            let guest = guest(&path, &[way, "writes"]);
            let recording = place.record_with(&guest, &["--engine", engine]);
            assert_eq!(native.stdout, recording.run.stdout, "{engine} {way}");
            let info = place.info(&recording.dir);
            assert_eq!(info.0["warnings"], serde_json::json!([]), "{engine}");
            assert!(on_disk(&recording.dir) > 0 && whole(&recording.dir) > 0);
            assert_replays(&place, &path, &recording);
        }
    }
}

/// Small files, those that somebody may write to, and code are kept whole, and so is everything where that is asked for.
#[test]
fn what_is_kept_whole() {
    let place = Workplace::new();
    let path = large(&place, 3);
    let guest = guest(&path, &["alone"]);
    let recorded = |flags: &[&str], refers: bool| {
        let recording = place.record_with(&guest, flags);
        assert_eq!(on_disk(&recording.dir) > 0, refers, "{flags:?}");
        assert_eq!(whole(&recording.dir), usize::from(!refers), "{flags:?}");
        assert_same(&recording.run, &place.replay(&recording.dir));
    };
    recorded(&[], true);
    recorded(&["--inputs", "copy"], false);
    recorded(&["--keep", "1h"], false);
    let writer = OpenOptions::new().append(true).open(&path).expect("open");
    recorded(&[], false);
    drop(writer);
    recorded(&[], true);
    let file = OpenOptions::new().write(true).open(&path).expect("open");
    file.write_all_at(b"\x7fELF", 0).expect("write");
    drop(file);
    std::thread::sleep(TICK);
    recorded(&[], false);
    let small = place.path().join("small");
    std::fs::write(&small, content(LEAST_MAPPED - 1, 3)).expect("a file");
    std::thread::sleep(TICK);
    let guest = Guest::new("maps_parts").args([small.as_os_str(), "alone".as_ref()]);
    let recording = place.record(&guest);
    assert_eq!(on_disk(&recording.dir), 0);
    assert_same(&recording.run, &place.replay(&recording.dir));
}

/// Of a large file only what was mapped is packed, and what was redacted in it is gone.
#[test]
fn packs_have_what_was_mapped() {
    let place = Workplace::new();
    let path = large(&place, 4);
    let secret = b"what nobody is to know";
    let file = OpenOptions::new().write(true).open(&path).expect("open");
    // Where the guest maps the file, and does not look.
    file.write_all_at(secret, part(13) + 5 * 4096 + 100)
        .expect("write");
    drop(file);
    std::thread::sleep(TICK);
    let recording = place.record(&guest(&path, &["threads"]));
    std::fs::remove_file(&path).expect("remove");
    let packed = |flags: &[&str]| {
        let pack = place.fresh("pack.reprise");
        let mut command = place.reprise(["pack".as_ref(), recording.dir.as_os_str()]);
        let done = common::run(command.args(flags).arg("-o").arg(&pack), None);
        assert!(done.status.success(), "{}", done.describe());
        assert!(pack.metadata().expect("a pack").len() < 20 << 20);
        pack
    };
    let pack = packed(&[]);
    assert_same(&recording.run, &place.replay(&pack));
    let redacted = packed(&["--redact", "=what nobody is to know"]);
    let info = place.info(&redacted);
    let places = info.0["redacted"]["places"].as_u64();
    assert!(places.is_some_and(|n| n > 0), "{}", info.0);
    assert_same(&recording.run, &place.replay(&redacted));
}

/// gdb sees a mapping as it was, under the name that the file had.
#[test]
fn a_debugger_reads_it() {
    for engine in &ENGINES[..2] {
        let place = Workplace::new();
        let path = large(&place, 5);
        let recording = place.record_with(&guest(&path, &["alone"]), &["--engine", engine]);
        let word = |at: u64| {
            let file = File::open(&path).expect("open");
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at).expect("read");
            format!("= {:#x}\n", u64::from_le_bytes(bytes))
        };
        let (own, end) = (word(part(1) + 4096), word((LEN - 1) & !4095));
        std::fs::remove_file(&path).expect("remove");
        let commands = [
            "break say",
            "continue",
            "print/x *(unsigned long *)(p + 4096)",
            "ignore 1 7",
            "continue",
            "print what",
            "print/x *(unsigned long *)p",
            "info proc mappings",
            "delete",
            "break say",
            "reverse-continue",
            "print what",
        ];
        let run = session(&place, &recording.dir, &[], &commands);
        let name = path.to_string_lossy();
        assert_said(&run, &[&own, "\"end\"", &end, &name, "\"again\""]);
    }
}

/// Whoever is not recorded and opens the file for writing waits until what was mapped is copied. What is mapped later is copied as long as he has not changed it.
#[test]
fn others_wait() {
    for engine in &ENGINES[..2] {
        let place = Workplace::new();
        let path = place.path().join("file");
        let bytes = content(LEN, 6);
        std::fs::write(&path, &bytes).expect("a file");
        std::thread::sleep(TICK);
        let dir = place.fresh("trace");
        let mut command =
            place.record_command(&guest(&path, &["waits"]), &["--engine", engine], &dir);
        let run = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !place.path().join("file.mapped").exists() {
                    std::thread::sleep(Duration::from_micros(100));
                }
                drop(OpenOptions::new().write(true).open(&path).expect("open"));
                let copied = std::fs::read(dir.join("files/input.1")).expect("the copy");
                std::fs::write(place.path().join("file.go"), "").expect("a file");
                let half = LEN as usize / 2 / 4096 * 4096;
                let was_kept = copied[..half] == bytes[..half];
                assert!(was_kept, "{engine}: the file could be changed before");
                assert!(copied[half..].iter().all(|b| *b == 0), "{engine}");
            });
            common::run(&mut command, None)
        });
        assert_eq!(whole(&dir), 0);
        assert_eq!(place.info(&dir).0["warnings"], serde_json::json!([]));
        std::fs::remove_file(&path).expect("remove");
        assert_same(&run, &place.replay(&dir));
    }
}

/// Copies that are not there, or are no such file, and ranges that no file has.
#[test]
fn a_trace_that_lies() {
    let place = Workplace::new();
    let path = large(&place, 7);
    let recording = place.record(&guest(&path, &["alone"]));
    let with = |word: usize, value: u64| {
        let mut changed = 0;
        let copy = tampered(&place, &recording.dir, |_, bytes| {
            if let Some(at) = mapped(bytes) {
                let at = at + 8 * word;
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                changed += 1;
            }
            true
        });
        assert!(changed > 3);
        copy
    };
    let refused = |dir: &Path| place.replay(dir).assert_own_failure(common::OWN_FAILURE);
    for number in [0, 2, 1 << 62, u64::MAX] {
        refused(&with(0, number));
    }
    for offset in [u64::MAX, i64::MAX as u64 + 1] {
        refused(&with(1, offset));
    }
    // What is wrong with a copy by the recording's own word is shown as it is.
    place.replay(&with(0, 1 | 1 << 63)).assert_civil();
    let of = |change: &dyn Fn(&Path)| {
        let copy = tampered(&place, &recording.dir, |_, _| true);
        let input = copy.join("files/input.1");
        let own = place.fresh("input");
        std::fs::copy(&input, &own).expect("a copy");
        std::fs::remove_file(&input).expect("remove");
        std::fs::rename(&own, &input).expect("rename");
        change(&input);
        copy
    };
    assert_same(&recording.run, &place.replay(&of(&|_| ())));
    let set_len = |input: &Path, len: u64| {
        let file = OpenOptions::new().write(true).open(input).expect("open");
        file.set_len(len).expect("another length");
    };
    refused(&of(&|input| set_len(input, 4096)));
    refused(&of(&|input| set_len(input, LEN + 1)));
    refused(&of(&|input| std::fs::remove_file(input).expect("remove")));
    refused(&of(&|input| {
        std::fs::remove_file(input).expect("remove");
        std::os::unix::fs::symlink("/etc/passwd", input).expect("a link");
    }));
}

/// Events say what docs/FORMAT.md tells of them.
fn assert_ranges(dir: &Path) {
    let mut reader = reprise_trace::Reader::open(dir).expect("the events");
    let (mut maps, mut grows) = (0, 0);
    while let Some(event) = reader.next().expect("an event") {
        let Some(at) = mapped(event.bytes) else {
            continue;
        };
        let word = |at: usize| {
            let bytes = event.bytes[at..at + 8].try_into();
            u64::from_le_bytes(bytes.expect("8 bytes"))
        };
        let [copy, offset, len, hash] = [0, 8, 16, 24].map(|n| word(at + n));
        let address = word(at - SECTION_LEN);
        let call = Event::parse(event.bytes).expect("an event");
        assert_eq!((copy, hash), (1, 0));
        match i64::from(call.header.detail) {
            libc::SYS_mmap => {
                let end = call.arg(5) + call.arg(1).next_multiple_of(4096);
                let shown = end.min(LEN).saturating_sub(call.arg(5));
                assert_eq!((address, offset, len), (LEN, call.arg(5), shown));
                assert!(call.header.flags >> 16 > 0);
                maps += 1;
            }
            libc::SYS_mremap => {
                assert_eq!((address, offset % 4096, len % 4096), (0, 0, 0));
                grows += 1;
            }
            other => panic!("call {other}"),
        }
    }
    assert!(maps >= 5 && grows == 2, "{maps} mappings, {grows} grow");
}

/// Where in an event the range is that a mapping shows.
fn mapped(bytes: &[u8]) -> Option<usize> {
    let event = Event::parse(bytes).ok()?;
    let mut at = HEADER_LEN + 8 * event.header.nargs as usize;
    for section in event.sections() {
        if section.tag == Tag::Mapped {
            return Some(at + SECTION_LEN);
        }
        at += SECTION_LEN + section.bytes.len().next_multiple_of(8);
    }
    None
}
