//! Robust futexes (set_robust_list(2)): when a thread dies with them, the next owners are told.
//!
//! A thread that ends by itself is buried by [`announce_death`], at its own event. Beyond that the kernel has the program's list, as
//! it has natively, and under `none` and `order` it does the rest. Under `serial` it must not: it would mark words in shared memory at
//! no known place among others' instructions, and its wake-ups reach nobody, since waiters sleep in the runtime's lists. So
//!
//! - a thread that gives the baton away puts its futexes in shared memory down in a table of the session ([`reprise_abi::owed`]), and the
//!   kernel's list is empty until it has the baton again. Should its process be killed meanwhile, or become another program, the
//!   next holder of the baton that has the memory marks them ([`settle`]), and logs what it wrote;
//! - a process that ends with the baton (exit_group(2), a fault) does the same for all its threads before its last event;
//! - of one that is killed with the baton in its hand the kernel marks what it had. Nobody runs before it is found dead, and then
//!   everybody logs what shared memory holds ([`crate::engines::serial::loss`]).
//!
//! Whoever waits is made to look at its futex again ([`reprise_abi::schedule::Lists::look_again`]). A replay takes it all from the events.

use crate::log::events;
use crate::log::ring;
use crate::machine::{guard, sys};
use crate::memory;
use crate::memory::futex;
use crate::memory::futex::{OWNER_DIED, TID_MASK, WAITERS};
use crate::thread::schedule;
use crate::thread::{message, process};
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::event::{section_len, Kind, Tag};
use reprise_abi::notes;
use reprise_abi::owed::OwedTable;
use reprise_abi::schedule::FutexKey;
use reprise_abi::session::region_flags;

/// Most futexes in a list that are looked at (the kernel's ROBUST_LIST_LIMIT).
const ROBUST_LIMIT: usize = 2048;
/// Most futexes that are marked by one event.
const BATCH: usize = 64;
const WRITE: u32 = 2;

/// `struct robust_list_head`: the first link, from there to the futex, the link that is being put in or taken out.
type Head = [u64; 3];

/// Gives the kernel the list that it goes through when this thread dies; 0: none.
pub fn tell_kernel(head: u64) {
    sys::set_robust_list(head, size_of::<Head>() as u64);
}

/// Calls `each` with the addresses of the futexes of a list; bit 0 of a link, which it gets too, says that the futex keeps priorities.
fn walk(list: u64, mut each: impl FnMut(u64, bool)) {
    let Some([mut entry, offset, pending]) = guard::read::<Head>(list) else {
        return;
    };
    let mut tell = |link: u64| each((link & !1).wrapping_add(offset), link & 1 != 0);
    for _ in 0..ROBUST_LIMIT {
        if entry & !1 == list {
            break;
        }
        let Some(next) = guard::read::<u64>(entry & !1) else {
            break;
        };
        if entry & !1 != pending & !1 {
            tell(entry);
        }
        entry = next;
    }
    if pending & !1 != 0 {
        tell(pending);
    }
}

/// A word of the program's that the kernel changes when a thread ends, as [`announce_death`] writes it where nothing orders such words.
pub fn write_word(_: &mut Block, address: u64, value: u32) {
    guard::write(address, &value);
}

/// Replay: marks the futexes of the calling thread, whose process ends or becomes another program, as the recorded kernel did.
pub fn mark_own(t: &mut Block) {
    let tid = t.slot().visible_tid.load(Relaxed);
    let list = core::mem::take(&mut t.robust_list);
    if list == 0 {
        return;
    }
    walk(list, |address, _| {
        if let Some(v) = guard::read::<u32>(address).filter(|v| v & TID_MASK == tid) {
            guard::write(address, &(v & WAITERS | OWNER_DIED));
        }
    });
}

/// What the kernel does when a thread ends: robust futexes, then the thread id word. `write(address, value)`; `wake(address, bitset, n)`;
/// `inherit(address)` gives a futex that keeps priorities to its next waiter and says what its word becomes.
pub fn announce_death(
    t: &mut Block,
    write: impl Fn(&mut Block, u64, u32),
    wake: impl Fn(u64, u32, u32),
    mut inherit: impl FnMut(u64) -> Option<u32>,
) {
    let tid = t.slot().visible_tid.load(Relaxed);
    let list = core::mem::take(&mut t.robust_list);
    if list != 0 {
        // By the time the thread is gone, others may use the list's memory for something else.
        tell_kernel(0);
        walk(list, |address, pi| {
            let Some(v) = guard::read::<u32>(address).filter(|v| v & TID_MASK == tid) else {
                return;
            };
            if pi && v & WAITERS != 0 {
                if let Some(word) = inherit(address) {
                    write(t, address, word | OWNER_DIED);
                }
                return;
            }
            write(t, address, v & WAITERS | OWNER_DIED);
            if v & WAITERS != 0 {
                wake(address, u32::MAX, 1);
            }
        });
    }
    if t.clear_tid != 0 {
        write(t, t.clear_tid, 0);
        wake(t.clear_tid, u32::MAX, 1);
    }
}

/// The calling thread is about to be without the baton.
#[inline]
pub fn put_down(t: &mut Block) {
    if t.robust_list != 0 && !t.robust_down {
        put_down_list(t);
    }
}

fn put_down_list(t: &mut Block) {
    let list = t.robust_list;
    match guard::read::<Head>(list) {
        Some([first, _, pending]) if first != list || pending != 0 => {}
        _ => return,
    }
    let (tid, mut room) = (t.slot().visible_tid.load(Relaxed), true);
    walk(list, |address, _| {
        let key = futex::key(address, false);
        if key.space != process::space() {
            let _lock = schedule::lock();
            room &= OwedTable::of(session()).enter(t.slot, tid, key);
            t.robust_down = true;
        }
    });
    if !room {
        message::note(notes::ROBUST_FUTEXES);
    }
    if t.robust_down {
        tell_kernel(0);
    }
}

/// The calling thread has the baton again.
#[inline]
pub fn pick_up(t: &mut Block) {
    if t.robust_down {
        t.robust_down = false;
        tell_kernel(t.robust_list);
        let _lock = schedule::lock();
        OwedTable::of(session()).leave(t.slot);
    }
}

/// The calling thread's process ends: marks the futexes of all its threads.
pub fn leave(t: &mut Block) {
    put_down(t);
    if !OwedTable::of(session()).is_empty() {
        schedule::lock().fall_due(t);
        settle(t);
    }
}

/// The deaths after which this memory has looked at what is due.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Has something fallen due since this memory looked last?
#[inline]
pub fn is_behind() -> bool {
    SEEN.load(Relaxed) != OwedTable::of(session()).deaths()
}

/// The calling thread holds the baton again: marks what is due.
#[inline]
pub fn look(t: &Block) {
    if is_behind() {
        settle(t);
    }
}

/// The calling thread's process has mapped something: marks what is due in it.
#[inline]
pub fn look_at_mapping(t: &Block) {
    if !OwedTable::of(session()).is_empty() {
        settle(t);
    }
}

#[cold]
fn settle(t: &Block) {
    let table = OwedTable::of(session());
    SEEN.store(table.deaths(), Relaxed);
    loop {
        let (mut marked, mut n) = ([0; BATCH], 0);
        let lock = schedule::lock();
        for e in table.due() {
            if n == BATCH {
                break;
            }
            let Some(address) = here(e.key()) else {
                continue;
            };
            match guard::read::<u32>(address) {
                Some(v) if e.clears() => {
                    if v != 0 && guard::write(address, &0u32) {
                        marked[n] = address;
                        n += 1;
                    }
                    lock.futex_wake(e.key(), u32::MAX, 1, |_| {});
                }
                Some(v) if v & TID_MASK == e.tid() => {
                    guard::write(address, &(v & WAITERS | OWNER_DIED));
                    marked[n] = address;
                    n += 1;
                }
                // It was given back, or was never taken.
                _ => {}
            }
            table.free(e);
        }
        drop(lock);
        if n != 0 {
            log(t, &marked[..n]);
        }
        if n < BATCH {
            return;
        }
    }
}

/// A process was made that shares the calling one's memory: the word that the kernel would clear at its end, whatever that is.
pub fn made(slot: u32, word: u64) {
    let _lock = schedule::lock();
    let key = FutexKey {
        space: process::space(),
        address: word,
    };
    if word != 0 && !OwedTable::of(session()).enter_word(slot, key) {
        message::note(notes::ROBUST_FUTEXES);
    }
}

/// It could not be made.
pub fn not_made(slot: u32) {
    let _lock = schedule::lock();
    OwedTable::of(session()).leave_word(slot);
}

/// The calling thread has cleared its word, or has none any more.
pub fn word_is_cleared(t: &Block) {
    if !OwedTable::of(session()).is_empty() {
        let _lock = schedule::lock();
        OwedTable::of(session()).leave_word(t.slot);
    }
}

/// Where a futex is in this memory, if it can be written.
fn here(key: FutexKey) -> Option<u64> {
    if key.space == process::space() {
        return Some(key.address);
    }
    let holds = |r: &crate::memory::regions::Region| {
        let wanted = region_flags::SHARED;
        let len = r.end - r.start;
        r.flags & wanted != 0
            && r.prot & WRITE != 0
            && r.space == key.space
            && (r.offset..r.offset.saturating_add(len)).contains(&key.address)
    };
    let r = memory::each().find(holds)?;
    Some(r.start + (key.address - r.offset))
}

/// Logs words that are not the program's doing.
fn log(t: &Block, words: &[u64]) {
    let sections = words.len() * section_len(4);
    let mut w = ring::Writer::begin(&events::header(Kind::Shared, t.slot, 0, sections));
    for address in words {
        w.put_section(Tag::Output as u32, *address, *address, 4);
    }
    w.finish();
}
