//! Traces that were changed at random, as damage or an attacker changes them: whatever reads or replays one ends, soon, by a status of its own and with little
//! memory, and does nothing but that.
//!
//! `REPRISE_TEST_MUTATIONS`: how many (300); `REPRISE_TEST_SEED`: another series of them.

use crate::common;

use common::tampered::{last_checkpoint, tampered, write_checkpoint, Apart};
use common::{knob, run, Guest, Run, Running, Workplace};
use reprise_trace::{beginning, Content, ContentHash};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Address space of a command and what it replays: the session alone maps some gigabytes, of which hardly any is used.
const MEMORY: u64 = 64 << 30;
/// Under `det` all of a program's memory has a second place.
const MEMORY_OF_DET: u64 = 64 << 40;
/// No command takes longer: they are made for traces of some hundred events.
const LIMIT: Duration = Duration::from_secs(60);

/// A series of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Changes some bytes: others in their place, fewer, more, or some twice.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(3) {
            let at = self.below(bytes.len());
            let len = (1 + self.below(64)).min(bytes.len() - at);
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => {
                    let noise: Vec<u8> = (0..len).map(|_| self.next() as u8).collect();
                    bytes.splice(at..at, noise);
                }
                2 => {
                    let part = bytes[at..at + len].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, part);
                }
                3 if len > 0 => bytes[at] ^= 1 << self.below(8),
                // Numbers that are easily taken for sizes.
                4 => bytes[at..at + len].fill([0, 0xff, 0x7f, 0x80][self.below(4)]),
                _ => bytes[at..at + len]
                    .iter_mut()
                    .for_each(|b| *b = self.next() as u8),
            }
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), &target).expect("a copy")),
        }
    }
}

/// All files of a trace.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        match entry.file_type().expect("a type").is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all.sort();
    all
}

/// A trace with something changed in it: in a file, whose hashes and checksums then are wrong, or in an event, which is written as it should be.
fn changed(place: &Workplace, dir: &Path, n: &mut Numbers) -> (PathBuf, String) {
    if n.below(2) == 0 {
        let events = 300;
        let which = n.below(events) as u64;
        let copy = tampered(place, dir, |number, bytes| {
            if number == which {
                // What it is and how long stays: else the writer would not take it.
                let at = 8 + n.below(bytes.len() - 8);
                for b in bytes[at..].iter_mut().take(1 + n.below(16)) {
                    *b = n.next() as u8;
                }
            }
            number != which || n.below(8) != 0
        });
        return (copy, format!("event {which}"));
    }
    let to = place.fresh("mutated");
    copy(dir, &to);
    let all = files(&to);
    // One in two: small files, which say what is where.
    let small = ["manifest.json", "summary.json", "image", "events.zst"];
    let path = match n.below(2) {
        0 => to.join(small[n.below(small.len())]),
        _ => all[n.below(all.len())].clone(),
    };
    let mut bytes = std::fs::read(&path).expect("a file");
    n.change(&mut bytes);
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, bytes).expect("written");
    (to, path.display().to_string())
}

/// Runs a command on a trace, with limits; `None` when it does not end.
fn limited(place: &Workplace, words: &[&str], dir: &Path, memory: u64) -> Option<Run> {
    let mut command: Command = place.reprise(words);
    // Debuggers begin at a checkpoint, however little time that saves.
    command.arg(dir).env("REPRISE_TEST_CHECKPOINTS", "1");
    let limit = libc::rlimit {
        rlim_cur: memory,
        rlim_max: memory,
    };
    // SAFETY: a plain call in the child.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let running = Running::start(&mut command, None);
    running.finish_within(LIMIT)
}

fn mutate(engine: &str, guest: &Guest) {
    let place = Workplace::new();
    let whole = place.record_with(guest, &["--engine", engine]);
    let memory = match engine {
        "det" => MEMORY_OF_DET,
        _ => MEMORY,
    };
    // A program that was told something else may compute for ever.
    let limit = ["--trust-runtime", "--time-limit", "20"];
    let with_limit = |words: &[&'static str]| [words, &limit].concat();
    let replay = with_limit(&["replay"]);
    let total = with_limit(&["replay", "--order", "total"]);
    let verify = with_limit(&["verify"]);
    let mut commands = vec![
        vec!["info"],
        vec!["dump"],
        replay,
        verify.clone(),
        vec!["ps"],
    ];
    if engine != "det" {
        commands.push(with_limit(&["backtrace"]));
    }
    let command = |words: &[&str], dir: &Path| limited(&place, words, dir, memory);
    let seed = knob("REPRISE_TEST_SEED", 1);
    let mut failures = Vec::new();
    for i in 0..knob("REPRISE_TEST_MUTATIONS", 300) / 3 {
        let mut n = Numbers(seed << 32 | i);
        let (dir, what) = changed(&place, &whole.dir, &mut n);
        let words = &commands[n.below(commands.len())];
        let why = match command(words, &dir) {
            None => Some(format!("no end within {LIMIT:?}")),
            Some(run) if run.status.code().is_none() => Some(run.describe()),
            Some(run) if run.said().contains("panicked") => Some(run.describe()),
            // A thread that waits does not compute.
            Some(run)
                if engine == "order" && (run.said() + &run.text()).contains("ended after 20 s") =>
            {
                let seen = command(&total, &dir).map_or(String::new(), |run| run.said());
                (!seen.contains(") runs")).then_some(seen)
            }
            Some(_) => None,
        };
        match why {
            Some(why) => failures.push(format!("{i}: {words:?}, {what}: {why}")),
            None => std::fs::remove_dir_all(&dir).expect("removed"),
        }
    }
    // What was not changed is replayed with that much memory.
    let verified = command(&verify, &whole.dir).expect("an end");
    assert!(verified.status.success(), "{}", verified.describe());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn of_serial() {
    mutate("serial", &Guest::new("fork_with_threads"));
}

#[test]
fn of_order() {
    mutate("order", &Guest::new("sync_cond"));
}

#[test]
fn of_det() {
    mutate("det", &Guest::new("sync_sem").args(["4", "60"]));
}

/// Numbers that are easily taken for something, and those near what stands there.
fn other(n: &mut Numbers, was: u64) -> u64 {
    const EASY: [u64; 8] = [
        0,
        1,
        4096,
        1 << 31,
        u32::MAX as u64,
        1 << 47,
        1 << 63,
        u64::MAX,
    ];
    match n.below(4) {
        0 => EASY[n.below(EASY.len())],
        1 => was ^ 1 << n.below(64),
        2 => was.wrapping_add(n.next() % 8192).wrapping_sub(4096),
        _ => n.next(),
    }
}

/// Changes a checkpoint where it is to be believed: what threads had, where memory is and what is in it, descriptors and copies of files.
fn hostile(n: &mut Numbers, apart: &mut Apart) -> String {
    let threads = apart.moment.threads.len();
    let which = n.below(threads);
    match n.below(12) {
        0 => {
            let m = &mut apart.moment;
            m.event = other(n, m.event);
            "its event".into()
        }
        1 => {
            let m = &mut apart.moment;
            (m.files, m.at_byte) = (other(n, m.files as u64) as i32, n.next());
            format!("its descriptor {}", m.files)
        }
        2 => {
            let copy = beginning::Copy {
                number: other(n, 1),
                len: other(n, 4096),
                descriptor: other(n, 7) as i32,
            };
            let said = format!("{copy:?}");
            let times = [1, 1, 1, 2000][n.below(4)];
            apart.moment.copies.extend(vec![copy; times]);
            said
        }
        3 => {
            let i = n.below(beginning::REGISTERS);
            let word = &mut apart.moment.threads[which].registers[i];
            *word = other(n, *word);
            format!("register {i} is {word:#x}")
        }
        4 => {
            let vectors = &mut apart.moment.threads[which].vectors;
            n.change(vectors);
            "vector registers".into()
        }
        5 => {
            let t = &mut apart.moment.threads[which];
            match n.below(4) {
                0 => t.mask = other(n, t.mask),
                1 => t.clears = other(n, t.clears),
                2 => t.tid = other(n, t.tid as u64) as i32,
                _ => {
                    let i = n.below(3);
                    t.signal_stack[i] = other(n, t.signal_stack[i]);
                }
            }
            format!(
                "thread {which}: {:?}",
                (t.mask, t.clears, t.tid, t.signal_stack)
            )
        }
        6 => {
            let t = apart.moment.threads[which].clone();
            let times = [1, 5, 20_000][n.below(3)];
            apart.moment.threads.extend(vec![t; times]);
            format!("{times} more threads")
        }
        7 => {
            let i = n.below(apart.regions.len());
            let (region, _) = &mut apart.regions[i];
            match n.below(5) {
                0 => region.prot = n.below(8) as u32,
                1 => region.flags = other(n, region.flags.into()) as u32 & 0x7f,
                2 => region.len = other(n, region.len) & !4095,
                3 => region.start = other(n, region.start) & !4095,
                _ => region.name = "copy:1".into(),
            }
            format!("{region:?}")
        }
        8 => {
            let i = n.below(apart.regions.len());
            let (region, _) = &mut apart.regions[i];
            if let Content::File {
                hash, file_offset, ..
            } = &mut region.content
            {
                match n.below(2) {
                    0 => *file_offset = other(n, *file_offset) & !4095,
                    _ => *hash = ContentHash::of(b"nobody has this"),
                }
            }
            format!("{region:?}")
        }
        9 => {
            let i = n.below(apart.regions.len());
            let (region, _) = apart.regions.remove(i);
            format!("no {region:?}")
        }
        _ => {
            // The session's memory is among them, and the runtime's.
            let ours = n.below(2) == 0;
            let ours = |start: u64| !ours || reprise_abi::layout::RESERVATION <= start;
            let mut all: Vec<_> = apart.regions.iter_mut().collect();
            all.retain(|(r, written)| !written.is_empty() && ours(r.start));
            let i = n.below(all.len());
            let (region, written) = &mut all[i];
            let j = n.below(written.len());
            let (at, bytes) = &mut written[j];
            for _ in 0..1 + n.below(64) {
                let to = n.below(bytes.len()) & !7;
                let word: [u8; 8] = bytes[to..to + 8].try_into().expect("8 bytes");
                let word = other(n, u64::from_le_bytes(word));
                bytes[to..to + 8].copy_from_slice(&word.to_le_bytes());
            }
            format!("contents at {at:#x} of {}", region.start)
        }
    }
}

/// Checkpoints on disk are as untrusted as the rest.
#[test]
fn of_checkpoints() {
    let place = Workplace::new();
    let mut outsider = common::outsider::Outsider::new();
    let whole = place.record(&Guest::new("moments"));
    let mut command = place.reprise(["checkpoint", "--every", "100ev"]);
    let made = run(command.arg(&whole.dir), None);
    assert!(made.status.success(), "{}", made.describe());
    let end = place.info(&whole.dir).events().to_string();
    // With other registers a program may well compute for ever: that is let be for a moment.
    let limits = ["--trust-runtime", "--time-limit", "2"];
    let from = ["--from", &end];
    let verify = [&["verify"][..], &from, &limits].concat();
    let replay = [&["replay"][..], &from, &limits].concat();
    let backtrace = [&["backtrace", "--at", &end][..], &limits].concat();
    let commands = [
        verify.clone(),
        replay,
        verify.clone(),
        backtrace,
        vec!["info"],
    ];
    let seed = knob("REPRISE_TEST_SEED", 1);
    let (mut failures, mut taken) = (Vec::new(), 0);
    for i in 0..knob("REPRISE_TEST_MUTATIONS", 300) / 15 {
        let mut n = Numbers(seed << 32 | i | 1 << 63);
        let dir = place.fresh("mutated");
        copy(&whole.dir, &dir);
        let what = match n.below(4) {
            0 => {
                let path = dir.join("checkpoints");
                let mut bytes = std::fs::read(&path).expect("a file");
                n.change(&mut bytes);
                std::fs::write(&path, bytes).expect("written");
                "bytes".to_string()
            }
            _ => {
                let mut apart = last_checkpoint(&dir);
                let what = hostile(&mut n, &mut apart);
                if !write_checkpoint(&dir, apart) {
                    continue;
                }
                what
            }
        };
        let words = &commands[n.below(commands.len())];
        let said = match limited(&place, words, &dir, MEMORY) {
            None => format!("no end within {LIMIT:?}"),
            Some(run) => {
                let said = run.describe();
                outsider.assert_untouched(&format!("{i}: {words:?}, {what}: {said}"));
                taken += u64::from(!run.said().contains("without"));
                if run.status.code().is_some() && !said.contains("panicked") {
                    std::fs::remove_dir_all(&dir).expect("removed");
                    continue;
                }
                said
            }
        };
        failures.push(format!("{i}: {words:?}, {what}: {said}"));
    }
    assert!(taken > 0, "no changed checkpoint was taken");
    let verified = limited(&place, &verify, &whole.dir, MEMORY).expect("an end");
    assert!(verified.status.success(), "{}", verified.describe());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
