//! Several threads: blocks that others free, recorded and replayed; the ends of threads; forks.

use super::{fill, has};
use crate::api;
use crate::remote::BATCH;
use crate::testing::{Log, Thread, Unordered, World};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::vec::Vec;

/// Steps by which a message is late, so that threads are apart.
const LATE: u64 = 3;

struct Piece {
    address: u64,
    size: u64,
}

type Message = Vec<Piece>;

/// A thread that works for itself, frees what its left neighbour sent, and sends blocks to the right. What it does depends only
/// on its number and its steps.
struct Worker {
    thread: Thread,
    base: u64,
    random: u64,
    own: Vec<Piece>,
    step: u64,
    /// Where everything was that it got, relative to its world.
    addresses: Vec<u64>,
}

impl Worker {
    fn new(world: &'static World, i: u64) -> Worker {
        Worker {
            thread: world.thread(i),
            base: world.base,
            random: i + 1,
            own: Vec::new(),
            step: 0,
            addresses: Vec::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % below
    }

    fn get(&mut self) -> Piece {
        let size = match self.random(50) {
            0 => self.random(400_000),
            1..=5 => self.random(20_000),
            _ => self.random(120),
        };
        let address = self.thread.malloc(size);
        self.addresses.push(address - self.base);
        fill(address, size, address);
        Piece { address, size }
    }

    fn give(&mut self, p: Piece) {
        assert!(has(p.address, p.size, p.size, p.address));
        self.thread.free(p.address);
    }

    fn waits(&self) -> bool {
        self.step >= LATE
    }

    fn make_step(&mut self, received: Message) -> Message {
        self.step += 1;
        received.into_iter().for_each(|p| self.give(p));
        for _ in 0..self.random(8) {
            let p = self.get();
            self.own.push(p);
            if self.own.len() > 20 {
                let i = self.random(20) as usize;
                let p = self.own.swap_remove(i);
                self.give(p);
            }
        }
        (0..self.random(40)).map(|_| self.get()).collect()
    }

    fn finish(mut self, late: Vec<Message>) -> Vec<u64> {
        for p in late.into_iter().flatten() {
            self.give(p);
        }
        while let Some(p) = self.own.pop() {
            self.give(p);
        }
        self.thread.end();
        self.addresses
    }
}

/// Makes the steps of all threads in the order that `choices` says, on this one thread.
fn in_turns(world: &'static World, threads: usize, steps: u64, choices: &[u8]) -> Vec<Vec<u64>> {
    let mut workers: Vec<Worker> = (0..threads as u64).map(|i| Worker::new(world, i)).collect();
    let mut links: Vec<VecDeque<Message>> = (0..threads).map(|_| VecDeque::new()).collect();
    let mut choices = choices.iter().cycle();
    loop {
        let able: Vec<usize> = (0..threads)
            .filter(|&i| workers[i].step < steps && (!workers[i].waits() || !links[i].is_empty()))
            .collect();
        let Some(n) = able.len().checked_sub(1) else {
            break;
        };
        let i = able[*choices.next().unwrap() as usize % (n + 1)];
        let received = if workers[i].waits() {
            links[i].pop_front().unwrap()
        } else {
            Vec::new()
        };
        let sent = workers[i].make_step(received);
        links[(i + 1) % threads].push_back(sent);
    }
    let all = workers.into_iter().zip(links);
    all.map(|(w, late)| w.finish(late.into())).collect()
}

/// Makes them on real threads.
fn at_once(world: &'static World, threads: usize, steps: u64) -> Vec<Vec<u64>> {
    let links: Vec<_> = (0..threads).map(|_| mpsc::channel::<Message>()).collect();
    let senders: Vec<_> = links.iter().map(|l| l.0.clone()).collect();
    let all: Vec<_> = links
        .into_iter()
        .enumerate()
        .map(|(i, (_, from))| {
            let to = senders[(i + 1) % threads].clone();
            std::thread::spawn(move || {
                let mut w = Worker::new(world, i as u64);
                while w.step < steps {
                    let received = if w.waits() {
                        from.recv().unwrap()
                    } else {
                        Vec::new()
                    };
                    let sent = w.make_step(received);
                    to.send(sent).unwrap();
                }
                let late = (0..LATE.min(steps)).map(|_| from.recv().unwrap()).collect();
                w.finish(late)
            })
        })
        .collect();
    all.into_iter().map(|t| t.join().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_order_is_replayed_by_threads_that_run_freely(
        threads in 2usize..5,
        steps in 1u64..80,
        choices in prop::collection::vec(any::<u8>(), 1..200),
    ) {
        let world = World::new(threads as u64, Log::default());
        let recorded = in_turns(world, threads, steps, &choices);
        let again = World::new(threads as u64, Log::replaying(&world.log));
        let replayed = at_once(again, threads, steps);
        prop_assert!(again.log.is_done());
        prop_assert!(recorded == replayed, "other addresses");
        world.end();
        again.end();
    }
}

#[test]
fn what_real_threads_did_is_replayed() {
    for round in 0..10 {
        let threads = 2 + round % 3;
        let world = World::new(threads as u64, Log::default());
        let recorded = at_once(world, threads, 400);
        let again = World::new(threads as u64, Log::replaying(&world.log));
        assert!(recorded == at_once(again, threads, 400), "other addresses");
        assert!(again.log.is_done());
        world.end();
        again.end();
    }
}

#[test]
fn the_order_decides_addresses() {
    // Always the first that can, or always the last: the same program, and other addresses.
    let run = |choice| {
        let world = World::new(2, Log::default());
        let r = in_turns(world, 2, 200, &[choice]);
        world.end();
        r
    };
    assert!(run(0) == run(0) && run(0) != run(1));
}

#[test]
fn a_batch_costs_one_operation() {
    let world = World::new(2, Log::default());
    let (mut a, mut b) = (world.thread(0), world.thread(1));
    b.malloc(1);
    let blocks: Vec<u64> = (0..BATCH as u64 * 10).map(|_| a.malloc(32)).collect();
    let before = world.log.operations.load(Relaxed);
    blocks.iter().for_each(|&p| b.free(p));
    assert_eq!(world.log.operations.load(Relaxed) - before, 10);
    let again: Vec<u64> = (0..2000).map(|_| a.malloc(32)).collect();
    let known = again.iter().filter(|p| blocks.contains(p)).count();
    assert_eq!(known, blocks.len(), "all serve again");
}

#[test]
fn without_an_order_no_block_is_lost_or_given_twice() {
    const EACH: u64 = 200_000;
    const PIECES: u64 = 100;
    let world = World::new(4, Log::default());
    let links: Vec<_> = (0..4).map(|_| mpsc::sync_channel::<Vec<u64>>(8)).collect();
    let senders: Vec<_> = links.iter().map(|l| l.0.clone()).collect();
    let all: Vec<_> = links
        .into_iter()
        .enumerate()
        .map(|(i, (_, from))| {
            let senders = senders.clone();
            std::thread::spawn(move || {
                let mut t = world.thread(i as u64);
                let (mut got, mut mapped) = (0, 0);
                for k in 0..EACH / PIECES {
                    let size = 16 + (k * 37 + i as u64) % 200;
                    let batch: Vec<u64> = (0..PIECES)
                        .map(|_| {
                            let p = api::malloc(&mut t.block, &mut Unordered(&mut t.memory), size);
                            fill(p, 16, p);
                            p
                        })
                        .collect();
                    let to = &senders[(i + 1 + k as usize % 3) % 4];
                    let mut batch = Some(batch);
                    while let Some(b) = batch.take() {
                        if let Err(mpsc::TrySendError::Full(b)) = to.try_send(b) {
                            batch = Some(b);
                            std::thread::yield_now();
                        }
                        for p in from.try_iter().flatten() {
                            assert!(has(p, 16, 16, p), "two had this block");
                            api::free(&mut t.block, &mut Unordered(&mut t.memory), p);
                            got += 1;
                        }
                    }
                    // Its heap goes on, with whoever comes first, while others send to it.
                    if k % 50 == 49 {
                        api::end(&mut t.block, &mut Unordered(&mut t.memory));
                    }
                }
                drop(senders);
                for p in from.into_iter().flatten() {
                    assert!(has(p, 16, 16, p), "two had this block");
                    api::free(&mut t.block, &mut Unordered(&mut t.memory), p);
                    got += 1;
                }
                api::end(&mut t.block, &mut Unordered(&mut t.memory));
                mapped += t.memory.mapped;
                (got, mapped)
            })
        })
        .collect();
    drop(senders);
    let sums: Vec<(u64, i64)> = all.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(sums.iter().map(|s| s.0).sum::<u64>(), 4 * EACH);
    // Everything came back: what is left are the heaps themselves, what they keep, and what was mapped ahead.
    for place in world.registry.used_places() {
        let heap = place.heap.load(Relaxed);
        // SAFETY: all threads have ended.
        let used = unsafe { crate::own::Heap::at(heap) }.used_blocks();
        assert_eq!(used, 0);
    }
}

#[test]
fn the_next_thread_of_a_place_goes_on_with_its_heap() {
    let world = World::new(2, Log::default());
    let (mut a, mut b) = (world.thread(0), world.thread(1));
    let p = a.malloc(100);
    let q = a.malloc(100);
    a.end();
    b.free(q);
    b.end();
    let mut next = world.thread(0);
    next.memory = a.memory;
    let again: Vec<u64> = (0..40).map(|_| next.malloc(100)).collect();
    assert!(again.contains(&q) && !again.contains(&p));
    next.free(p);
}

#[test]
fn memory_of_ended_threads_goes_back() {
    let world = World::new(9, Log::default());
    let mut main = world.thread(8);
    main.malloc(1);
    let mut mapped = 0;
    let mut blocks = Vec::new();
    for i in 0..8 {
        let mut t = world.thread(i);
        blocks.extend((0..100_000).map(|_| t.malloc(200)));
        t.end();
        mapped += t.memory.mapped;
    }
    assert!(mapped > 8 * 20_000_000);
    blocks.iter().for_each(|&p| main.free(p));
    main.end();
    mapped += main.memory.mapped;
    assert!(mapped < 8 * (20 << 20), "{} MiB", mapped >> 20);
    for place in world.registry.used_places() {
        // SAFETY: nobody uses it.
        let heap = unsafe { crate::own::Heap::at(place.heap.load(Relaxed)) };
        assert!(heap.chunks() <= 10, "{} chunks stay", heap.chunks());
    }
}

#[test]
fn a_heap_that_is_someone_elses_is_left_alone() {
    let world = World::new(2, Log::default());
    let (mut a, mut b) = (world.thread(1), world.thread(1));
    // Their memory must differ, the slots are the same, as of processes that were forked.
    b.memory = world.thread(0).memory;
    let (p, q) = (a.malloc(10), b.malloc(10));
    assert_ne!(a.block.heap, b.block.heap);
    b.free(p);
    a.free(q);
    a.end();
    b.end();
}

#[test]
fn a_forked_child_goes_on_with_its_own_heap_only() {
    let world = World::new(3, Log::default());
    let (mut t, mut other) = (world.thread(0), world.thread(1));
    let (mine, theirs) = (t.malloc(100), other.malloc(100));
    let sent = t.malloc(100);
    other.free(sent);
    let on_the_way: Vec<u64> = (0..3).map(|_| other.malloc(100)).collect();
    t.free(on_the_way[0]);
    let heap = t.block.heap;
    let mut child = world.thread(2);
    for (shares, waits, heir) in [(true, false, 0), (true, true, heap), (false, false, heap)] {
        api::inherit(&t.block, &mut child.block, shares, waits);
        assert_eq!(child.block.heap, heir);
    }
    // From here on this is the child: the other thread is gone, and its heap was maybe in the middle of a change.
    api::forked(&mut t.block, world.registry);
    assert_eq!(t.block.heap, heap);
    t.free(mine);
    assert_eq!(t.malloc(100), mine);
    let place = world.registry.place(1);
    assert_eq!(place.heap.load(Relaxed), 0);
    t.free(theirs);
    t.free(on_the_way[1]);
    let moved = t.realloc(on_the_way[2], 500);
    assert_ne!(moved, 0);
    // A new thread of the child.
    let mut new = world.thread(1);
    new.memory = world.thread(2).memory;
    let fresh = new.malloc(100);
    assert!(fresh != theirs && new.block.heap != other.block.heap);
    new.free(fresh);
    new.free(moved);
    new.end();
    t.end();
}
