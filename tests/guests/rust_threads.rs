//! Rust's standard threads: mpsc channels, Mutex, Condvar, RwLock, Barrier, scoped threads, a panic caught at join, HashMap's random order.
// run: 2000

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 29)
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(2000);
    let (sender, receiver) = channel::<(u64, u64)>();
    let (back, answers) = sync_channel::<u64>(2);
    let total = Arc::new(Mutex::new(0u64));
    let threads: Vec<_> = (0..4)
        .map(|me| {
            let (sender, total) = (sender.clone(), total.clone());
            thread::spawn(move || {
                for i in 0..rounds {
                    *total.lock().unwrap() += i;
                    sender.send((me, i)).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let collector = thread::spawn(move || {
        let mut order = 0;
        for (me, i) in receiver {
            order = mix(order + me * 1_000_003 + i);
            if i % 100 == 0 {
                back.send(order).unwrap();
            }
        }
        order
    });
    let mut answered = 0;
    for a in answers {
        answered = mix(answered ^ a);
    }
    for t in threads {
        t.join().unwrap();
    }
    assert_eq!(*total.lock().unwrap(), 4 * (rounds * (rounds - 1) / 2));
    println!("order {} answered {}", collector.join().unwrap(), answered);

    let (barrier, table, ready) = (Barrier::new(4), RwLock::new(HashMap::new()), (Mutex::new(0), Condvar::new()));
    let leaders = AtomicU64::new(0);
    thread::scope(|s| {
        for me in 0..4u64 {
            let (barrier, table, ready, leaders) = (&barrier, &table, &ready, &leaders);
            s.spawn(move || {
                for i in 0..50 {
                    table.write().unwrap().insert(me * 100 + i, thread::current().name().map(str::len));
                    if table.read().unwrap().len() % 7 == 0 {
                        thread::yield_now();
                    }
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(mix(me + i) % 1000, Ordering::SeqCst);
                    }
                }
                *ready.0.lock().unwrap() += 1;
                ready.1.notify_all();
            });
        }
        let mut n = ready.0.lock().unwrap();
        while *n < 4 {
            n = ready.1.wait(n).unwrap();
        }
    });
    let mut random = 0;
    for k in table.read().unwrap().keys() {
        random = mix(random + k);
    }
    println!("leaders {}, order of the table {}", leaders.load(Ordering::SeqCst), random);
    let panicked = thread::spawn(|| {
        let v: Vec<u32> = Vec::new();
        let index = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs() as usize);
        v[index]
    })
    .join();
    assert!(panicked.is_err());
    let start = Instant::now();
    thread::sleep(Duration::from_millis(1));
    thread::park_timeout(Duration::from_millis(1));
    println!("slept {}", start.elapsed().as_nanos());
}
