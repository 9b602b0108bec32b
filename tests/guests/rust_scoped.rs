//! Scoped threads that borrow from their parent, pipelines of bounded and unbounded channels, who disconnects and who learns of it.
// run: 300

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel, RecvTimeoutError, TryRecvError, TrySendError};
use std::thread;
use std::time::Duration;

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 29)
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(300);
    // Three stages: numbers, their squares by several workers, the sum.
    let words: Vec<u64> = (0..rounds).collect();
    let order = AtomicU64::new(0);
    let sum = thread::scope(|s| {
        let (numbers, taken) = sync_channel::<u64>(4);
        let taken = std::sync::Mutex::new(taken);
        let (squares, results) = channel();
        let (words, order) = (&words, &order);
        s.spawn(move || {
            for w in words {
                numbers.send(*w).unwrap();
            }
        });
        let taken = std::sync::Arc::new(taken);
        for me in 0..3 {
            let (squares, taken) = (squares.clone(), taken.clone());
            s.spawn(move || loop {
                let next = taken.lock().unwrap().recv();
                let Ok(n) = next else { return };
                order.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |o| Some(mix(o + me))).unwrap();
                squares.send(n * n).unwrap();
            });
        }
        drop(squares);
        results.iter().sum::<u64>()
    });
    assert_eq!(sum, words.iter().map(|w| w * w).sum());
    println!("order {}", order.load(Ordering::SeqCst));

    let (sender, receiver) = sync_channel::<u32>(1);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(receiver.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
    sender.try_send(1).unwrap();
    assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    drop(sender);
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(1000)), Err(RecvTimeoutError::Disconnected));
    // A channel without room is a meeting.
    let (sender, receiver) = sync_channel::<u32>(0);
    thread::scope(|s| {
        s.spawn(|| (0..20).for_each(|i| sender.send(i).unwrap()));
        (0..20).for_each(|i| assert_eq!(receiver.recv(), Ok(i)));
    });
    drop(receiver);
    assert!(sender.send(7).is_err());

    // Threads of a scope change disjoint parts of what the parent owns, and give values back.
    let mut parts = vec![[0u64; 100]; 4];
    let sums: Vec<u64> = thread::scope(|s| {
        let threads: Vec<_> = parts
            .iter_mut()
            .enumerate()
            .map(|(i, part)| {
                thread::Builder::new()
                    .name(format!("part {i}"))
                    .stack_size(65536)
                    .spawn_scoped(s, move || {
                        part.iter_mut().enumerate().for_each(|(k, x)| *x = (i * k) as u64);
                        assert_eq!(thread::current().name(), Some(format!("part {i}").as_str()));
                        part.iter().sum()
                    })
                    .unwrap()
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(sums, [0, 4950, 9900, 14850]);
    // Parked and unparked, in turns.
    let turn = AtomicU64::new(0);
    let parent = thread::current();
    thread::scope(|s| {
        let other = s.spawn(|| {
            for i in 0..50 {
                while turn.load(Ordering::SeqCst) != 2 * i + 1 {
                    thread::park();
                }
                turn.fetch_add(1, Ordering::SeqCst);
                parent.unpark();
            }
        });
        for i in 0..50 {
            turn.fetch_add(1, Ordering::SeqCst);
            other.thread().unpark();
            while turn.load(Ordering::SeqCst) != 2 * i + 2 {
                thread::park();
            }
        }
    });
    println!("turns {}", turn.load(Ordering::SeqCst));
}
