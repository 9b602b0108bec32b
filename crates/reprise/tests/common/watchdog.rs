//! No test hangs: one whose workplace stays for too long ends its whole test program, with a picture of what its processes do. Without this, a wait
//! that has no limit of its own ends with the machine's patience, and nothing after it is tested.

use super::{full, hang_limit, living, picture, test_name};
use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

/// The workplaces there are: their tests, and since when.
static LIVE: Mutex<Vec<(u64, String, Instant)>> = Mutex::new(Vec::new());

/// A workplace that is watched until this is dropped.
pub struct Watched(u64);

impl Watched {
    /// From now on.
    pub fn begin() -> Watched {
        static WATCHDOG: Once = Once::new();
        WATCHDOG.call_once(|| {
            thread::spawn(watch);
        });
        let mut live = LIVE.lock().expect("no panic while it is held");
        let id = live.last().map_or(0, |(id, ..)| id + 1);
        live.push((id, test_name(), Instant::now()));
        Watched(id)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut live = LIVE.lock().expect("no panic while it is held");
        live.retain(|(id, ..)| *id != self.0);
    }
}

fn watch() {
    let limit = hang_limit() * if full() { 20 } else { 5 };
    loop {
        thread::sleep(Duration::from_secs(1));
        let live = LIVE.lock().expect("no panic while it is held");
        if let Some((_, test, _)) = live.iter().find(|(.., begun)| begun.elapsed() > limit) {
            give_up(test, limit);
        }
    }
}

/// Ends the processes that the tests of this program started, and the program.
fn give_up(test: &str, limit: Duration) -> ! {
    let own = std::process::id() as i32;
    let mut processes = living(|parent, _| parent == own);
    let mut looked = 0;
    while let Some(&parent) = processes.get(looked) {
        processes.extend(living(|its, _| its == parent));
        looked += 1;
    }
    eprintln!(
        "HANG: {test} did not end within {limit:?}; the tests of this program end here\n{}",
        picture(&processes)
    );
    for process in processes {
        // SAFETY: a plain call; they descend from this process, which has not ended.
        unsafe { libc::kill(process, libc::SIGKILL) };
    }
    std::process::exit(101)
}
