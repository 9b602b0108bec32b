//! Does the agent take processor time from the program? Where a processor is idle it doesn't, and may compress as well as it can; where there
//! is work for all of them, what the agent computes is what others lose.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Whether processors are busy.
#[derive(Debug)]
pub struct Pressure {
    /// `None` where the kernel doesn't tell.
    file: Option<File>,
    processors: u64,
}

impl Pressure {
    /// Of this machine.
    pub fn new() -> Pressure {
        // SAFETY: plain call.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        Pressure {
            file: File::open("/proc/loadavg").ok(),
            processors: processors.max(1) as u64,
        }
    }

    /// Are there more threads that run, or could run, than processors, the calling one among them?
    pub fn is_there(&self) -> bool {
        let mut text = [0; 128];
        let runnable = self.file.as_ref().and_then(|f| {
            let n = f.read_at(&mut text, 0).ok()?;
            runnable(std::str::from_utf8(&text[..n]).ok()?)
        });
        runnable.is_some_and(|n| n > self.processors)
    }
}

impl Default for Pressure {
    fn default() -> Self {
        Pressure::new()
    }
}

/// How many threads can run now (proc(5), `/proc/loadavg`, the fourth field).
fn runnable(text: &str) -> Option<u64> {
    let (running, _all) = text.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn threads_that_can_run_are_read() {
        assert_eq!(runnable("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(runnable("0.20 0.18 0.12"), None);
        assert_eq!(runnable("0.20 0.18 0.12 many 1"), None);
    }

    #[test]
    fn busy_processors_are_seen() {
        let pressure = Pressure::new();
        if pressure.file.is_none() {
            return;
        }
        let over = AtomicBool::new(false);
        let seen = std::thread::scope(|s| {
            for _ in 0..pressure.processors {
                s.spawn(|| {
                    while !over.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let seen = (0..1_000_000).any(|_| pressure.is_there());
            over.store(true, Relaxed);
            seen
        });
        assert!(seen);
    }
}
