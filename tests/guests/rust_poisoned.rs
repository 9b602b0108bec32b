//! A thread that panics while it holds a lock poisons it: Mutex, RwLock, a Condvar's mutex, Once; and how others go on.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, TryLockError};
use std::thread;

static NEVER: LazyLock<u32> = LazyLock::new(|| panic!("on purpose: lazy"));

fn main() {
    std::panic::set_hook(Box::new(|info| {
        let what = info.payload().downcast_ref::<&str>().copied().unwrap_or("something else");
        println!("hook: {what}");
    }));
    let lock = Arc::new(Mutex::new(5));
    let other = lock.clone();
    let ended = thread::spawn(move || {
        let mut held = other.lock().unwrap();
        *held += 1;
        panic!("on purpose: mutex");
    })
    .join();
    assert_eq!(ended.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose: mutex"));
    assert!(lock.is_poisoned());
    assert!(matches!(lock.try_lock(), Err(TryLockError::Poisoned(_))));
    // What it left half done can be seen, and repaired.
    let held = lock.lock().unwrap_or_else(|e| e.into_inner());
    assert_eq!(*held, 6);
    assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
    drop(held);
    lock.clear_poison();
    assert_eq!(*lock.lock().unwrap(), 6);

    // Readers don't poison, writers do.
    let table = RwLock::new(vec![1, 2, 3]);
    let read = catch_unwind(AssertUnwindSafe(|| {
        let seen = table.read().unwrap();
        assert_eq!(seen.len(), 3);
        panic!("on purpose: reader");
    }));
    assert!(read.is_err() && !table.is_poisoned());
    let write = catch_unwind(AssertUnwindSafe(|| {
        table.write().unwrap().clear();
        let mut kept = table.write().unwrap();
        kept.push(7);
        panic!("on purpose: writer");
    }));
    assert!(write.is_err() && table.is_poisoned());
    assert_eq!(*table.read().unwrap_or_else(|e| e.into_inner()), [7]);

    // A waiter wakes up to a poisoned mutex.
    let pair = (Mutex::new(false), Condvar::new());
    let woken = thread::scope(|s| {
        let waiter = s.spawn(|| {
            // Whether it comes before the breaker or after it, it learns of it.
            let mut ready = match pair.0.lock() {
                Ok(held) => held,
                Err(poisoned) => return *poisoned.into_inner(),
            };
            loop {
                match pair.1.wait(ready) {
                    Ok(held) => ready = held,
                    Err(poisoned) => return *poisoned.into_inner(),
                }
            }
        });
        let breaker = s.spawn(|| {
            let mut ready = pair.0.lock().unwrap();
            *ready = true;
            pair.1.notify_all();
            panic!("on purpose: condition");
        });
        assert!(breaker.join().is_err());
        waiter.join().unwrap()
    });
    assert!(woken);

    let once = Once::new();
    assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| panic!("on purpose: once")))).is_err());
    assert!(!once.is_completed());
    once.call_once_force(|state| assert!(state.is_poisoned()));
    assert!(once.is_completed());
    assert!(catch_unwind(|| *NEVER).is_err());
    assert!(catch_unwind(|| *NEVER).is_err());
    let cell = OnceLock::new();
    thread::scope(|s| {
        for i in 0..4 {
            let cell = &cell;
            s.spawn(move || *cell.get_or_init(|| i));
        }
    });
    println!("first {}", cell.get().unwrap());
}
