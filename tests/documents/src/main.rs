//! One thread hands a number to another one.

use std::sync::atomic::{AtomicU32, Ordering};

static NUMBER: AtomicU32 = AtomicU32::new(0);

fn main() {
    let taker = std::thread::spawn(|| loop {
        match NUMBER.load(Ordering::Acquire) {
            0 => std::thread::yield_now(),
            n => break n,
        }
    });
    NUMBER.store(42, Ordering::Release);
    println!("{}", taker.join().unwrap());
}
