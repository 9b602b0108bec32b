//! `reprise races`: a happens-before race detector for replays (Castor 6: up to the first data race a replay is exact, so the first race can
//! be found afterwards; FastTrack).
//!
//! A program that `reprise cc --races` built calls a function of one instruction before each access to memory. In such a replay these functions
//! lead here ([`watch`]); recording, and any other replay, they return at once. What orders threads is told by [`crate::sync::libc`], through
//! [`Order`](crate::engine::order::Order), and by system calls ([`calls`]).
//!
//! The replay is in total order: one thread runs at a time, so nothing here needs a lock, every access has a number, and a second replay finds
//! the same access at the same number. That is how the stack of the earlier access of a race is known: the second replay stops there.
//!
//! **What counts as order** is only what the language or POSIX promises, and what a kernel object carries from one to the other: a wrong
//! order would hide a race. Locks inside libc, those of stdio and malloc, count for nothing. Stamps of system calls don't either. Operations
//! of code that was not built for this are seen by the shards of their words, of which there are 1024: this is the one place where
//! something is taken to be ordered that may not be.
//!
//! A thread that leaves the recorded path is held where it is, and the others go on: a race that led it astray may have its other half in them.

pub mod calls;
pub mod clock;
pub mod objects;
pub mod pool;
pub mod shadow;
pub mod watch;

use crate::log::ring;
use crate::log::total;
use crate::machine::{guard, sys};
use crate::memory::map;
use crate::memory::scratch::shadow_arena;
use crate::thread::panic;
use crate::thread::shards;
use crate::thread::{Block, Frame};
use clock::Clock;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering::*};
use objects::{Change, Kind, Objects};
use pool::Pool;
use reprise_abi::layout::{MAX_SLOTS, PAGE};
use reprise_abi::races::{how, Access, Races, MAX_RACES, RACES_BASE};
use shadow::{Past, Shadow, GRAIN};

/// Most threads of a replay, ended ones included.
const MAX_THREADS: usize = 1 << 16;
/// A thread that accesses memory so often without waiting for another one gives way: it may be looking for what another one will write.
const SLICE: u32 = 100_000;
/// Of a larger block that is given back, only what somebody has accessed is looked at behind so many bytes.
const FREED: u64 = 4096;
/// After a divergence the others may go on for so many accesses.
const AFTERMATH: u64 = 50_000_000;

/// [`Kind::Channel`]: the ends of all threads, for those who take the mutex of one that has ended.
pub const ENDS: u64 = 1;
/// [`Kind::Channel`]: signals.
const SIGNALS: u64 = 2;
/// [`Kind::Channel`]: sockets that are connected to nobody knows whom.
const SOCKETS: u64 = 3;
/// The first channel that is one descriptor's.
const FIRST_CHANNEL: u64 = 16;

/// C11's memory orders, as compilers number them.
mod order {
    pub const RELAXED: u32 = 0;
    pub const RELEASE: u32 = 3;

    pub fn acquires(order: u32) -> bool {
        !matches!(order, RELAXED | RELEASE)
    }

    pub fn releases(order: u32) -> bool {
        order >= RELEASE
    }
}

/// An operation on an atomic word that was made.
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    /// The word's address, ...
    pub address: u64,
    /// ... and its size.
    pub size: usize,
    /// `None`: it was loaded, or not exchanged.
    pub change: Option<Change>,
    /// What it is now, or was found to be.
    pub value: u64,
    /// The memory order.
    pub order: u32,
}

/// What is kept of a thread.
#[repr(C)]
struct Thread {
    /// What it knows.
    clock: Clock,
    /// What it knew at its last fence that releases.
    fenced: Clock,
    /// What it has seen without learning it, until a fence that acquires.
    seen: Clock,
    /// The object that it initialises by `pthread_once`, 0: none.
    initialises: u64,
    slot: u32,
    tid: u32,
    /// Accesses since it gave way.
    in_slice: u32,
}

struct Detector {
    pool: Pool,
    shadow: Shadow,
    objects: Objects,
    /// The thread of each slot, plus 1.
    of_slot: [u32; MAX_SLOTS],
    threads: u64,
    threads_len: usize,
    /// Threads that initialise something.
    initialising: u32,
    /// Accesses so far.
    number: u64,
    /// The stop that comes next, and its number.
    stop: (usize, u64),
    /// Accesses after which the replay is given up.
    end: u64,
    channels: calls::Channels,
}

static DETECTOR: AtomicU64 = AtomicU64::new(0);

fn area() -> &'static Races {
    // SAFETY: mapped by the launcher, integers and atomics only.
    unsafe { &*(RACES_BASE as *const Races) }
}

/// The detector, in the hands of the thread whose turn it is. Until it lets go the driver can't take the turn away ([`total::keep`]).
struct Held(&'static mut Detector);

impl Deref for Held {
    type Target = Detector;

    fn deref(&self) -> &Detector {
        self.0
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Detector {
        self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        total::keep_no_longer();
    }
}

/// The detector, when it is the calling thread's turn.
fn detector() -> Held {
    total::keep();
    Held(the_detector())
}

fn the_detector() -> &'static mut Detector {
    let mut at = DETECTOR.load(Relaxed);
    if at == 0 {
        let size = core::mem::size_of::<Detector>() as u64;
        let threads = (MAX_THREADS * core::mem::size_of::<Thread>()) as u64;
        let (Some(new), Some(threads)) = (shadow_arena(size), shadow_arena(threads)) else {
            panic::give_up("races: no memory for the detector");
        };
        at = new;
        // SAFETY: all zero is a detector that knows nothing.
        let d = unsafe { &mut *(at as *mut Detector) };
        d.threads = threads;
        d.end = u64::MAX;
        d.channels.start();
        d.next_stop(0);
        DETECTOR.store(at, Relaxed);
    }
    // SAFETY: made above, never unmapped; used by one thread at a time, for the time of a call.
    unsafe { &mut *(at as *mut Detector) }
}

impl Detector {
    fn thread(&mut self, id: u16) -> &'static mut Thread {
        // SAFETY: a table of so many threads, all zero at first; see `detector`.
        unsafe { &mut *(self.threads as *mut Thread).add(id as usize) }
    }

    fn new_thread(&mut self, slot: u32) -> u16 {
        let id = self.threads_len;
        if id == MAX_THREADS {
            panic::give_up("races: more than 65,536 threads");
        }
        self.threads_len += 1;
        self.of_slot[slot as usize] = id as u32 + 1;
        let new = self.thread(id as u16);
        new.slot = slot;
        new.clock.set(&mut self.pool, id as u16, 1);
        id as u16
    }

    /// The calling thread.
    #[inline]
    fn me(&mut self, t: &Block) -> u16 {
        match self.of_slot[t.slot as usize] {
            0 => self.new_thread(t.slot),
            n => (n - 1) as u16,
        }
    }

    /// The thread has let others know what it did until now.
    fn tick(&mut self, id: u16) {
        let clock = &mut self.thread(id).clock;
        let now = clock.of(id);
        if now == u32::MAX {
            panic::give_up("races: a thread synchronises too often");
        }
        clock.set(&mut self.pool, id, now + 1);
    }

    fn learns(&mut self, t: &Block, kind: Kind, name: u64) {
        let me = self.me(t);
        let thread = self.thread(me);
        if kind == Kind::Atomic {
            let pool: *mut Pool = &mut self.pool;
            if let Some(c) = self.objects.came_last(&mut self.pool, name) {
                // SAFETY: the pool and the object's clock are apart.
                thread.clock.join(unsafe { &mut *pool }, c);
            }
            return;
        }
        let from: *const Clock = self.objects.clock(&mut self.pool, kind, name);
        // SAFETY: the object's clock is in a block of its own.
        thread.clock.join(&mut self.pool, unsafe { &*from });
    }

    fn lets_know(&mut self, t: &Block, kind: Kind, name: u64) {
        let me = self.me(t);
        let known = &self.thread(me).clock;
        if kind == Kind::Atomic {
            // A byte that says that all is done.
            self.objects
                .changed(&mut self.pool, (name, 1), 1, me, Change::Store, Some(known));
            self.shadow.note_object(&mut self.pool, name);
            return self.tick(me);
        }
        let pool: *mut Pool = &mut self.pool;
        let clock = self.objects.clock(&mut self.pool, kind, name);
        let new = clock.is_empty();
        // SAFETY: the pool and the object's clock are apart.
        clock.join(unsafe { &mut *pool }, known);
        if new && !matches!(kind, Kind::Thread | Kind::Shard | Kind::Channel) {
            self.shadow.note_object(&mut self.pool, name);
        }
        self.tick(me);
    }

    fn next_stop(&mut self, i: usize) {
        let stops = area().stops_len.load(Relaxed) as usize;
        let number = area().stops.get(i).filter(|_| i < stops);
        self.stop = (i, number.map_or(0, |s| s.number.load(Relaxed)));
    }

    fn access(&mut self, t: &mut Block, f: &Frame, address: u64, size: u64, how: u32) {
        let me = self.me(t);
        self.number += 1;
        area().accesses.store(self.number, Relaxed);
        if self.number == self.stop.1 {
            self.stops(t, f, me, address, size, how);
        }
        let thread = self.thread(me);
        let time = thread.clock.of(me);
        let end = address.saturating_add(size);
        let mut race = None;
        let mut at = address & !(GRAIN - 1);
        while at < end {
            if how & how::FREES != 0 && at.saturating_sub(address) > FREED {
                match self.shadow.next_known(at, end) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            let first = address.saturating_sub(at) as u32;
            let behind = (end - at).min(GRAIN) as u32;
            let mask = (0xffu32 << first & 0xff) as u8 & (0xffu32 >> (8 - behind)) as u8;
            let new = Past {
                thread: me,
                mask,
                how: how as u8,
                time,
                number: self.number,
                pc: f.rip,
            };
            let found = self.shadow.access(&mut self.pool, &thread.clock, at, new);
            race = race.or(found);
            at += GRAIN;
        }
        if let Some(earlier) = race {
            self.report(t, f, me, (address, size, how), &earlier);
        }
        if self.number >= self.end {
            sys::exit_group(125);
        }
        thread.in_slice += 1;
    }

    /// After an access, when all is told: others run if this thread has had its share.
    fn maybe_gives_way(&mut self, t: &Block) {
        let me = self.me(t);
        let thread = self.thread(me);
        if thread.in_slice >= SLICE {
            thread.in_slice = 0;
            total::give_way();
            total::goes_on();
        }
    }

    fn tell(&mut self, to: &Access, id: u16, number: u64, pc: u64, how: u32) {
        let thread = self.thread(id);
        to.number.store(number, Relaxed);
        to.pc.store(pc, Relaxed);
        to.how.store(how, Relaxed);
        to.thread.store(id as u32, Relaxed);
        to.slot.store(thread.slot, Relaxed);
        to.tid.store(thread.tid, Relaxed);
    }

    /// The thread's own access.
    fn tell_mine(&mut self, to: &Access, t: &Block, f: &Frame, me: u16, what: (u64, u64, u32)) {
        self.thread(me).tid = t.slot().visible_tid.load(Relaxed);
        self.tell(to, me, self.number, f.rip, what.2);
        to.address.store(what.0, Relaxed);
        to.size.store(what.1, Relaxed);
        to.events.store(ring::event_number(), Relaxed);
    }

    fn report(&mut self, t: &Block, f: &Frame, me: u16, what: (u64, u64, u32), earlier: &Past) {
        let a = area();
        let n = a.found.load(Relaxed) as usize;
        let wanted = (a.wanted.load(Relaxed) as usize).min(MAX_RACES);
        let pair =
            |r: &reprise_abi::races::Race| [r.earlier.pc.load(Relaxed), r.later.pc.load(Relaxed)];
        let known = a.list[..n.min(MAX_RACES)].iter().map(pair);
        let [one, two] = [earlier.pc, f.rip];
        if n >= wanted
            || known
                .into_iter()
                .any(|p| p == [one, two] || p == [two, one])
        {
            return;
        }
        let race = &a.list[n];
        self.tell_mine(&race.later, t, f, me, what);
        self.tell(
            &race.earlier,
            earlier.thread,
            earlier.number,
            earlier.pc,
            earlier.how as u32,
        );
        a.found.store(n as u32 + 1, Release);
        if n + 1 == wanted {
            sys::exit_group(125);
        }
    }

    /// An access whose stack is wanted.
    fn stops(&mut self, t: &Block, f: &Frame, me: u16, address: u64, size: u64, how: u32) {
        let a = area();
        let i = self.stop.0;
        let stop = &a.stops[i];
        self.tell_mine(&stop.access, t, f, me, (address, size, how));
        crate::memory::stand::keep(f, &stop.registers, &stop.stack, &stop.stack_len);
        stop.taken.store(1, Release);
        self.next_stop(i + 1);
        if self.stop.1 == 0 {
            sys::exit_group(125);
        }
    }

    fn forget(&mut self, start: u64, end: u64) {
        let objects = &mut self.objects;
        self.shadow.forget(&mut self.pool, start, end, |pool, at| {
            objects.forget(pool, at)
        });
    }

    /// What an operation on an atomic word lets its thread know.
    fn atomic_begins(&mut self, t: &Block, a: &Atomic) {
        let me = self.me(t);
        let thread = self.thread(me);
        let pool: *mut Pool = &mut self.pool;
        let came = match a.change {
            Some(Change::Store) => None,
            Some(Change::Update) => self.objects.came_last(&mut self.pool, a.address),
            None => self
                .objects
                .came_with(&mut self.pool, a.address, a.size, a.value),
        };
        if let Some(clock) = came {
            // SAFETY: the pool, the thread's clocks and the object's are apart.
            let other = unsafe { &mut *pool };
            match order::acquires(a.order) {
                true => thread.clock.join(other, clock),
                false => thread.seen.join(other, clock),
            }
        }
    }

    /// What it lets others know: itself included.
    fn atomic_ends(&mut self, t: &Block, a: &Atomic) {
        let Some(change) = a.change else { return };
        let me = self.me(t);
        let thread = self.thread(me);
        let releases = order::releases(a.order);
        let lets_know = match releases {
            true => Some(&thread.clock),
            false => Some(&thread.fenced).filter(|c| !c.is_empty()),
        };
        let at = (a.address, a.size);
        self.objects
            .changed(&mut self.pool, at, a.value, me, change, lets_know);
        self.shadow.note_object(&mut self.pool, a.address);
        if releases {
            self.tick(me);
        }
    }

    fn fence(&mut self, t: &Block, order: u32) {
        let me = self.me(t);
        let thread = self.thread(me);
        if order::acquires(order) {
            thread.clock.join(&mut self.pool, &thread.seen);
        }
        if order::releases(order) {
            thread.fenced.become_copy(&mut self.pool, &thread.clock);
            self.tick(me);
        }
    }
}

/// The state of the program when the hooked function that it called has returned.
fn returned(t: &Block, f: &Frame) -> Frame {
    Frame {
        rsp: t.program_sp + 8,
        rip: guard::read(t.program_sp).unwrap_or(0),
        ..*f
    }
}

/// The calling thread learns what others left at this object.
pub fn learns(t: &Block, kind: Kind, name: u64) {
    detector().learns(t, kind, name);
}

/// What the calling thread knows can be learnt at this object.
pub fn lets_know(t: &Block, kind: Kind, name: u64) {
    detector().lets_know(t, kind, name);
}

/// An operation on an atomic word, by a function that the program called with this frame.
pub fn atomic(t: &mut Block, f: &Frame, a: &Atomic) {
    let writes = if a.change.is_some() { how::WRITES } else { 0 };
    let mut d = detector();
    let after = returned(t, f);
    d.atomic_begins(t, a);
    d.access(t, &after, a.address, a.size as u64, how::ATOMIC | writes);
    d.atomic_ends(t, a);
    d.maybe_gives_way(t);
}

/// The program has got a block of memory.
pub fn allocated(address: u64, size: u64) {
    if address != 0 {
        detector().forget(address, address + size);
    }
}

/// The program gives a block of memory back, by a function that it called with this frame.
pub fn frees(t: &mut Block, f: &Frame, address: u64, size: u64) {
    if address != 0 {
        let after = returned(t, f);
        detector().access(t, &after, address, size, how::WRITES | how::FREES);
    }
}

/// A thread is about to begin in `slot`, made by the calling one.
pub fn thread_begins(t: &Block, slot: u32) {
    let mut held = detector();
    let d = &mut *held;
    let parent = d.me(t);
    let child = d.new_thread(slot);
    let known = &d.thread(parent).clock;
    d.thread(child).clock.join(&mut d.pool, known);
    d.tick(parent);
}

/// The calling thread begins: its stack, and what libc keeps above it, is nobody else's any more.
pub fn thread_starts(t: &Block) {
    let Some(stack) = map().at(t.start.rsp) else {
        return;
    };
    let end = match (stack.start..stack.end).contains(&t.fs_base) {
        true => t.fs_base + PAGE,
        false => t.start.rsp + PAGE,
    };
    detector().forget(stack.start, end.min(stack.end));
}

/// The calling thread ends: before anybody can know.
pub fn thread_ends(t: &Block) {
    let mut d = detector();
    d.lets_know(t, Kind::Thread, t.fs_base);
    d.lets_know(t, Kind::Channel, ENDS);
    if t.clear_tid != 0 {
        d.lets_know(t, Kind::Shard, shards::number_of(t.clear_tid) as u64);
    }
}

/// The calling thread learns what all did that have ended: it has the mutex of one of them.
pub fn learns_of_ends(t: &Block) {
    detector().learns(t, Kind::Channel, ENDS);
}

/// The calling thread makes an operation on a word of this shard, in code that `reprise cc` did not build; `in_libc`: in code of libc.
pub fn shard(t: &Block, number: u32, in_libc: bool) {
    let mut d = detector();
    d.learns(t, Kind::Shard, number as u64);
    if !in_libc {
        d.lets_know(t, Kind::Shard, number as u64);
    }
}

/// The calling thread was chosen to initialise an object by `pthread_once`.
pub fn initialises(t: &Block, object: u64) {
    let mut d = detector();
    let me = d.me(t);
    let before = core::mem::replace(&mut d.thread(me).initialises, object);
    d.initialising += u32::from(before == 0);
}

/// The calling thread wakes those who wait on a word: libc does so at the end of `pthread_once`.
pub fn wakes(t: &Block, word: u64) {
    let mut d = detector();
    let me = d.me(t);
    if word != 0 && d.thread(me).initialises == word {
        d.thread(me).initialises = 0;
        d.initialising -= 1;
        d.lets_know(t, Kind::Lock, word);
    }
}

/// The calling thread finds that an object is initialised.
pub fn finds_initialised(t: &Block, object: u64) {
    let mut held = detector();
    let d = &mut *held;
    d.learns(t, Kind::Lock, object);
    if d.initialising == 0 {
        return;
    }
    // Whoever has done it, and has not told yet.
    let me = d.me(t);
    for id in 0..d.threads_len as u16 {
        if id != me && d.thread(id).initialises == object {
            let known = &d.thread(id).clock;
            d.thread(me).clock.join(&mut d.pool, known);
            d.tick(id);
        }
    }
}

/// The program's memory from `start` to `end` is new.
pub fn is_new(start: u64, end: u64) {
    detector().forget(start, end);
}

/// The calling thread has left the recorded path, as the session's report says: it stays where it is, and the others go on for a while.
pub fn strays() {
    let mut d = detector();
    if area().wanted.load(Relaxed) != 0 {
        d.end = d.end.min(d.number.saturating_add(AFTERMATH));
    }
}
