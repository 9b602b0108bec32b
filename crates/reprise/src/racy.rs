//! The program that the demo records: four threads, one counter, no lock.

use reprise_console::tell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The argument by which this binary knows that it is the demo's program.
pub const ARGUMENT: &str = "--racy-program-of-the-demo";
const THREADS: u64 = 4;
const ADDITIONS: u64 = 100_000;

/// Adds without a lock and prints how many additions survived.
pub fn run() {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            std::thread::spawn(|| {
                for i in 0..ADDITIONS {
                    // A load, some work, a store: what another thread adds in between is lost.
                    let seen = COUNTER.load(Relaxed);
                    if i % 64 == 0 {
                        std::thread::yield_now();
                    }
                    COUNTER.store(std::hint::black_box(seen) + 1, Relaxed);
                }
            })
        })
        .collect();
    for t in threads {
        let _ = t.join();
    }
    // A program like any other: its status is 0, whoever reads it.
    let _ = tell!(
        "{} of {} additions counted",
        COUNTER.load(Relaxed),
        THREADS * ADDITIONS
    );
}
