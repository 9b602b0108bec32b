//! Traces that were changed at random, as damage or an attacker changes them: whatever reads or replays one ends, soon, by a status of its own and with little
//! memory, and does nothing but that.
//!
//! `REPRISE_TEST_MUTATIONS`: how many (300); `REPRISE_TEST_SEED`: another series of them.

use crate::common;

use common::tampered::tampered;
use common::{knob, Guest, Running, Workplace};
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
    let command = |words: &[&str], dir: &Path| {
        let mut command: Command = place.reprise(words);
        command.arg(dir);
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
    };
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
    mutate("det", &Guest::new("sync_sem"));
}
