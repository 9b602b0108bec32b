//! What tests/debug_languages.rs looks at with gdb: a variable that another thread spoils long before the program notices and aborts.
//! The tests know these names.
// run: => SIGABRT

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

static BALANCE: AtomicI32 = AtomicI32::new(100);

#[inline(never)]
fn spoil(what: &AtomicI32) {
    what.store(-7, Ordering::Relaxed);
}

#[inline(never)]
fn deposit(total: &Mutex<Vec<i32>>, amount: i32) {
    total.lock().unwrap().push(amount);
}

fn main() {
    let total = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (1..=3)
        .map(|me| {
            let total = total.clone();
            thread::spawn(move || {
                for round in 0..5 {
                    deposit(&total, me);
                    if me == 2 && round == 2 {
                        spoil(&BALANCE);
                    }
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    let sum: i32 = total.lock().unwrap().iter().sum();
    println!("total {sum}");
    if BALANCE.load(Ordering::Relaxed) < 0 {
        std::process::abort();
    }
}
