//! A replay of `order` that goes on no further: who waits for what, where everybody is, and what each thread did last (Castor 3.8).

use crate::report::{describe, operation_of};
use crate::{children, symbols};
use libc::pid_t;
use reprise_abi::event::{Event, Kind, Tag, NO_SLOT};
use reprise_abi::layout::{BLOCKS_BASE, BLOCK_STRIDE, MAX_SLOTS, RESERVATION, RESERVATION_END};
use reprise_abi::order::{Entry, OrderHead, ENTRY_LEN, SHARDS};
use reprise_abi::session::slot_state;
use reprise_abi::waits::What;
use reprise_launch::proc_files::Whereabouts;
use reprise_launch::process;
use reprise_launch::SharedSession;
use reprise_trace::stamps::stamps_of;
use reprise_trace::Reader;
use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// Threads that are told of.
const MOST: usize = 24;
/// Events of each.
const LAST: usize = 3;
/// In a thread's block: its stack pointer in the program, and whether it is in a hooked function (`runtime/thread.rs`).
const PROGRAM_SP: u64 = 8;
const HOOKED: u64 = 40;
/// The lowest bits of an object's count say who made the last operation.
const COUNT_SHIFT: u32 = 16;

/// A thread of a replay that stands still.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Its slot.
    pub slot: usize,
    /// The id by which the program knows it.
    pub tid: u32,
    /// What it does.
    pub does: String,
    /// Where it is, or was last seen.
    pub place: Option<String>,
    /// The last of the recorded events that it has had.
    pub last: Vec<String>,
}

/// A replay that stands still.
#[derive(Clone, Debug, Default)]
pub struct Standstill {
    /// Its threads, those who wait for their turn first; not all where there are many.
    pub threads: Vec<Thread>,
    /// How many threads there are besides.
    pub more: usize,
    /// Whose turn it is: what has the stamp that comes next.
    pub due: Option<String>,
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(due) = &self.due {
            write!(f, "\n  next call {due}")?;
        }
        for t in &self.threads {
            write!(f, "\n  thread {} (tid {}) {}", t.slot, t.tid, t.does)?;
            if let Some(place) = &t.place {
                write!(f, "\n    at      {place}")?;
            }
            for event in &t.last {
                write!(f, "\n    after   {event}")?;
            }
        }
        match self.more {
            0 => Ok(()),
            n => write!(f, "\n  and {n} threads more"),
        }
    }
}

/// Looks at a replay whose processes are stopped, or can't go on.
pub(crate) fn look(shared: &SharedSession, dir: &Path) -> Standstill {
    let Some(head) = shared.order() else {
        return Standstill::default();
    };
    let used = shared.session().slots_used.load(SeqCst) as usize;
    let unused = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
    let mut all: Vec<(bool, usize)> = (0..used.min(MAX_SLOTS))
        .filter(|i| !unused.contains(&shared.slot(*i).state.load(SeqCst)))
        .map(|i| (!waits_for_turn(head, i), i))
        .collect();
    all.sort_unstable();
    let more = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    let mut threads: Vec<Thread> = all
        .iter()
        .map(|(_, i)| thread(shared, head, *i, dir))
        .collect();
    let due = history(head, dir, &mut threads);
    Standstill { threads, more, due }
}

fn waits_for_turn(head: &OrderHead, slot: usize) -> bool {
    let for_what = head.parked(slot).map(|p| What::of(p.key));
    for_what.is_some_and(|w| !matches!(w, What::Feed | What::Over) && !w.is_looked_for())
}

fn thread(shared: &SharedSession, head: &OrderHead, slot: usize, dir: &Path) -> Thread {
    let s = shared.slot(slot);
    let (pid, tid) = (
        s.kernel_pid.load(Relaxed) as pid_t,
        s.kernel_tid.load(Relaxed),
    );
    let next = next_entry(shared, head, slot);
    let does = match head.parked(slot).map(|p| What::of(p.key)) {
        None => "runs".into(),
        Some(What::Feed) => "waits for more events of the trace".into(),
        Some(What::Over) => "has done all that was recorded of it".into(),
        Some(What::Word(at)) => format!("waits until another thread lets it go on, at {at:#x}"),
        Some(What::Value(at)) => format!("waits until the word at {at:#x} is another"),
        Some(What::Done(other)) => {
            format!("waits until thread {other} has done all that was recorded of it")
        }
        Some(What::Gone(other)) => format!("waits until thread {other} is gone"),
        Some(What::Stamp(n)) => format!(
            "waits for the turn of its call, number {n}, where {} is due",
            head.stamp.0.load(SeqCst)
        ),
        Some(What::Shard(n)) => {
            let made = head.shards[n as usize % SHARDS].sequence.load(SeqCst) / 2;
            waits_behind(&format!("shard {n:#x}"), next, Some(made))
        }
        Some(What::Object(at)) => {
            let made = read(pid, at).map(|w| w >> COUNT_SHIFT);
            waits_behind(&format!("object {at:#x}"), next, made)
        }
    };
    Thread {
        slot,
        tid: s.visible_tid.load(Relaxed),
        does,
        place: place(pid, tid, slot, s.last_pc.load(Relaxed))
            .and_then(|pc| symbols::place(dir, u64::MAX, pc)),
        last: Vec::new(),
    }
}

fn waits_behind(object: &str, next: Option<Entry>, made: Option<u64>) -> String {
    let number = next.map_or("an operation".into(), |e| format!("operation {}", e.value));
    let made = made.map_or(String::new(), |n| format!(", where {n} have been made"));
    format!("waits for its turn to make {number} on {object}{made}")
}

/// What is next in the ring of a slot, if that is an entry.
fn next_entry(shared: &SharedSession, head: &OrderHead, slot: usize) -> Option<Entry> {
    let ring = &head.rings[slot];
    let at = ring.position.load(SeqCst);
    // Where entries are aligned, none lies across the ring's end.
    let aligned = at % 8 == 0;
    if !aligned || at.saturating_add(ENTRY_LEN as u64) > ring.head.load(SeqCst) {
        return None;
    }
    let word = |i: u64| {
        let offset = (at.wrapping_add(i) % shared.ring_size()) as usize;
        // SAFETY: inside the slot's ring; a word at a multiple of 8 never wraps.
        unsafe {
            shared
                .slot_ring(slot)
                .add(offset)
                .cast::<u64>()
                .read_unaligned()
        }
    };
    Entry::from_words([word(0), word(8)])
}

/// A word of a process's memory.
pub(crate) fn read(pid: pid_t, address: u64) -> Option<u64> {
    if !children::is_ours(pid) {
        return None;
    }
    let mut word = [0; 8];
    let n = process::read(pid, address, &mut word).ok()?;
    (n == word.len()).then(|| u64::from_ne_bytes(word))
}

/// Where in the program a thread is: where it computes, in which call of a hooked function it is, or at which gate it was last.
fn place(pid: pid_t, tid: u32, slot: usize, last: u64) -> Option<u64> {
    let now = Whereabouts::of_thread(pid, tid).ok().flatten();
    let now = now.and_then(|place| place.pc());
    if let Some(pc) = now.filter(|pc| !(RESERVATION..RESERVATION_END).contains(pc)) {
        return Some(pc);
    }
    let block = BLOCKS_BASE + slot as u64 * BLOCK_STRIDE;
    if read(pid, block + HOOKED).is_some_and(|hooked| hooked != 0) {
        return read(pid, read(pid, block + PROGRAM_SP)?)?.checked_sub(1);
    }
    (last != 0).then_some(last)
}

/// Puts to each thread what it had last, by the trace; what has the stamp whose turn it is.
fn history(head: &OrderHead, dir: &Path, threads: &mut [Thread]) -> Option<String> {
    let mut position = vec![0u64; MAX_SLOTS];
    let due = head.stamp.0.load(SeqCst);
    let mut found = None;
    let mut reader = Reader::open(dir).ok()?;
    while let Ok(Some(next)) = reader.next() {
        let number = next.number;
        let Ok(e) = next.parse() else { break };
        let slot = e.header.slot as usize;
        if matches!(e.kind, Kind::End | Kind::Gone) || e.header.slot == NO_SLOT || slot >= MAX_SLOTS
        {
            continue;
        }
        if stamps_of(&e).any(|s| s == due) {
            found = Some(format!("{} (event {number}, thread {slot})", named(&e)));
        }
        let read = head.rings[slot].position.load(SeqCst);
        let mut t = threads.iter_mut().find(|t| t.slot == slot);
        let mut note = |len: usize, text: &dyn Fn() -> Option<String>| {
            position[slot] += len as u64;
            let Some(t) = t.as_mut().filter(|_| position[slot] <= read) else {
                return;
            };
            if let Some(text) = text() {
                t.last.push(format!("event {number}: {text}"));
                if t.last.len() > LAST {
                    t.last.remove(0);
                }
            }
        };
        match (e.kind, e.sections().find(|s| s.tag == Tag::Entries)) {
            (Kind::Sync, Some(s)) => s.bytes.chunks_exact(ENTRY_LEN).for_each(|c| {
                note(ENTRY_LEN, &|| {
                    let word = |i: usize| c[i..i + 8].try_into().map(u64::from_le_bytes);
                    operation_of(&Entry::from_words([word(0).ok()?, word(8).ok()?])?)
                })
            }),
            _ => note(e.bytes().len(), &|| Some(named(&e))),
        }
    }
    found
}

fn named(e: &Event) -> String {
    let h = &e.header;
    let args: Vec<u64> = (0..h.nargs as usize).map(|i| e.arg(i)).collect();
    describe(Some(e.kind), None, h.detail, h.value as u64, &args, 0)
}
