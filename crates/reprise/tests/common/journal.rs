//! What tests did, for the report when all are over: `scripts/test.sh` names a file, and each test adds a line for each of its workplaces, and for
//! being skipped. Lines are words between tabs: `tried TEST SECONDS RECORDINGS REPLAYS`, `skipped TEST WHY`.

use super::test_name;
use std::ffi::OsStr;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

/// Adds a line, if there is a journal.
pub fn write(line: &str) {
    let Some(path) = std::env::var_os("REPRISE_TEST_JOURNAL") else {
        return;
    };
    let file = std::fs::File::options()
        .append(true)
        .create(true)
        .open(path);
    // In one write: many tests write at once.
    let written = file.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes()));
    written.expect("write to the journal of tests");
}

/// Counts what is done in a workplace; told when it is dropped.
pub struct Tries {
    begun: Instant,
    recordings: AtomicU32,
    replays: AtomicU32,
}

impl Tries {
    /// Nothing yet.
    pub fn begin() -> Tries {
        Tries {
            begun: Instant::now(),
            recordings: AtomicU32::new(0),
            replays: AtomicU32::new(0),
        }
    }

    /// A command of `reprise` is made, by this first argument.
    pub fn count(&self, command: Option<&OsStr>) {
        match command.and_then(OsStr::to_str) {
            Some("record" | "run" | "attach") => self.recordings.fetch_add(1, Relaxed),
            Some("replay" | "verify" | "backtrace" | "races" | "core") => {
                self.replays.fetch_add(1, Relaxed)
            }
            _ => 0,
        };
    }
}

impl Drop for Tries {
    fn drop(&mut self) {
        let (name, seconds) = (test_name(), self.begun.elapsed().as_secs_f64());
        let (made, played) = (self.recordings.load(Relaxed), self.replays.load(Relaxed));
        write(&format!("tried\t{name}\t{seconds:.2}\t{made}\t{played}"));
    }
}
