//! Panics: unwound through frames with destructors, in threads, carried on, with values of their own; one while unwinding aborts.
// run: => SIGABRT

use std::panic::{catch_unwind, panic_any, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

static DROPPED: AtomicU32 = AtomicU32::new(0);

struct Guard(u32);

impl Drop for Guard {
    fn drop(&mut self) {
        DROPPED.fetch_add(self.0, Ordering::SeqCst);
        if self.0 == 77 {
            panic!("while unwinding");
        }
    }
}

fn deep(n: u32) -> u32 {
    let guard = Guard(1);
    if n == 0 {
        panic_any(String::from("at the bottom"));
    }
    deep(n - 1) + guard.0
}

fn main() {
    let why = catch_unwind(|| deep(100)).unwrap_err();
    assert_eq!(why.downcast_ref::<String>().map(String::as_str), Some("at the bottom"));
    assert_eq!(DROPPED.swap(0, Ordering::SeqCst), 101);
    // Carried on, past another frame; no hook runs for it.
    let again = catch_unwind(AssertUnwindSafe(|| {
        let _guard = Guard(5);
        resume_unwind(why)
    }));
    assert!(again.unwrap_err().is::<String>());
    assert_eq!(DROPPED.swap(0, Ordering::SeqCst), 5);
    let threads: Vec<_> = (0..4)
        .map(|i| {
            thread::spawn(move || {
                for _ in 0..10 {
                    assert!(catch_unwind(|| deep(i * 5)).is_err());
                }
                let none: Vec<u32> = Vec::new();
                none[i as usize]
            })
        })
        .collect();
    let ended: Vec<_> = threads.into_iter().map(|t| t.join().is_err()).collect();
    assert_eq!(ended, [true; 4]);
    assert_eq!(DROPPED.swap(0, Ordering::SeqCst), 10 * (1 + 6 + 11 + 16));
    let sums = [i32::MAX, 0].map(|x| catch_unwind(move || x.checked_add(1).expect("an overflow")).is_err());
    assert_eq!(sums, [true, false]);
    println!("unwound; process {}", std::process::id());
    std::panic::set_hook(Box::new(|info| {
        println!("hook: line {}", info.location().map_or(0, |l| l.line()));
    }));
    let _last = Guard(77);
    panic!("the first of two");
}
