//! Faults between threads come where they came ([`crate::engines::order::faults`]).
//!
//! A thread whose next event is such a fault waits for its turn before it goes on. From there to the fault the memory is protected as it was in the
//! recording when the fault came; and the visit at which it came is known by the thread's registers and the words at its stack pointer.
//!
//! Any other access that faults went well in the recording: it came before the memory was protected. Nobody needs the protection until the turn
//! of a fault comes, so that it is taken away until then ([`BARE`]). While another thread is on its way to its fault, the thread waits for that one; on
//! its own way it makes the one instruction by itself, by the trap flag. When it has done so [`MOST_STEPS`] times, it looks for the place by a
//! patch instead, as for that of a signal ([`crate::engines::order::cut`]), and needs no protection any more: loops look at pages a million times.

use super::entries::event_is_next;
use crate::engines::order::faults::{arguments_of_visit, is_of_others, wanted, ANY_STATE};
use crate::engines::order::{cut, turns};
use crate::log::awaited;
use crate::log::ring::{self, Reader};
use crate::machine::sys;
use crate::memory;
use crate::memory::regions::Region;
use crate::memory::space;
use crate::signal::frame::{SigContext, Ucontext};
use crate::signal::kernel::TRAP_FLAG;
use crate::thread::rings::head;
use crate::thread::signals::Siginfo;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::event::{EventHeader, Kind};
use reprise_abi::syscalls::nr;
use reprise_abi::waits::What;

/// The slot of the thread that is on its way to its fault, plus 1: it has the turn.
static ON_ITS_WAY: AtomicU32 = AtomicU32::new(0);
/// Stretches of memory, at most, whose protection is taken away at a time.
const MOST_BARE: usize = 64;
/// Where they begin, and their lengths; 0 where there is none. Changed with the lock of the address space held.
static BARE: [[AtomicU64; 2]; MOST_BARE] =
    [const { [AtomicU64::new(0), AtomicU64::new(0)] }; MOST_BARE];
/// Accesses, at most, that a thread makes by itself on its way to one fault. Each costs some 10 microseconds, a patch some 100.
const MOST_STEPS: u32 = 32;

/// What a thread that replays knows of it.
#[derive(Default)]
pub struct Way {
    /// Where the memory begins that is bare for the instruction that it makes; an access may reach into two mappings.
    bare: [u64; 2],
    /// The program has not set the trap flag itself.
    is_our_flag: bool,
    /// Instructions that it has made so, on its way.
    steps: u32,
    /// Where it was when an access was made again, and the next stamp then.
    made_again: (u64, u64),
}

/// What a fault of the running thread is.
pub(super) enum Met {
    /// None that was recorded: the access is made again.
    Again,
    /// The one that is next.
    Due,
    /// Nothing that is known here.
    Other,
}

/// Is it a fault that has a stamp, the last of its arguments?
pub(super) fn has_stamp(h: &EventHeader) -> bool {
    h.kind == Kind::Fault as u8 && h.nargs == 5
}

/// The fault with a stamp that comes before anything else that the thread does.
fn next(t: &mut Block) -> Option<EventHeader> {
    match event_is_next(t) {
        true => ring::peek().filter(has_stamp),
        false => None,
    }
}

fn is_on_its_way(t: &Block) -> bool {
    ON_ITS_WAY.load(SeqCst) == t.slot + 1
}

/// What those wait for who wait for the thread that is on its way.
fn key() -> u64 {
    What::Value(ON_ITS_WAY.as_ptr() as u64).key()
}

/// The thread that is on its way needs no protection any more.
fn leave_way(t: &Block) {
    if is_on_its_way(t) {
        ON_ITS_WAY.store(0, SeqCst);
        awaited::call(key());
    }
}

/// In a new process: who was on its way is in the old one. What was bare is so here, too.
pub fn after_fork() {
    ON_ITS_WAY.store(0, SeqCst);
}

/// Gives memory the protection that the program wants. The lock of the address space is held.
fn protect(start: u64, end: u64) {
    let mut at = start;
    while let Some(r) = memory::map().after(at).filter(|r| r.start < end) {
        let (from, to) = (r.start.max(start), r.end.min(end));
        sys::mprotect(from, to - from, r.prot.into());
        at = r.end;
    }
}

/// All that is bare for all is protected again. The lock of the address space is held.
fn protect_all() {
    for [start, len] in &BARE {
        let (start, len) = (start.load(Relaxed), len.swap(0, Relaxed));
        if len != 0 {
            protect(start, start + len);
        }
    }
}

/// The thread goes on: if it comes to a fault before anything else, then when it is its turn.
pub(super) fn await_turn(t: &mut Block) {
    if t.order().walks || is_on_its_way(t) {
        return;
    }
    let Some(h) = next(t) else { return };
    turns::wait_for_stamp(t, Reader::begin(h).args()[4]);
    go_on_protected(t);
}

/// The thread, whose turn it is, goes on while the memory is protected as it was when it faulted.
fn go_on_protected(t: &mut Block) {
    let _lock = space::lock();
    t.order().way.steps = 0;
    ON_ITS_WAY.store(t.slot + 1, SeqCst);
    protect_all();
}

/// A fault of the program's; `can`: the access can be made again.
pub(super) fn meet(t: &mut Block, info: &Siginfo, uc: &mut Ucontext, can: bool) -> Met {
    let is_recorded = |h: &EventHeader| h.kind == Kind::Fault as u8 && !has_stamp(h);
    if !can
        || session().slots_used.load(Relaxed) == 1
        || !is_of_others(info)
        || event_is_next(t) && ring::peek().is_some_and(|h| is_recorded(&h))
    {
        return Met::Other;
    }
    if let Some(h) = next(t).filter(|_| !t.order().walks) {
        if !is_on_its_way(t) {
            await_turn(t);
            return Met::Again;
        }
        let recorded = Reader::begin(h).args();
        let actual = arguments_of_visit(info, &uc.mc);
        let same_state = [ANY_STATE, actual[2]].contains(&recorded[2]);
        if h.value == uc.mc.rip as i64 && recorded[..2] == actual[..2] && same_state {
            stepped(t, uc);
            return Met::Due;
        }
        if t.order().way.steps >= MOST_STEPS && cut::replay::plant_fault(t, h) {
            stepped(t, uc);
            leave_way(t);
        }
    }
    match let_through(t, info.address(), uc) {
        true => Met::Again,
        false => Met::Other,
    }
}

/// Lets an access have its memory.
fn let_through(t: &mut Block, address: u64, uc: &mut Ucontext) -> bool {
    loop {
        let lock = space::lock();
        let Some(region) = memory::map().at(address) else {
            return false;
        };
        match ON_ITS_WAY.load(SeqCst) {
            0 => return bare_for_all(t, &region, &uc.mc),
            slot if slot == t.slot + 1 => return bare_for_step(t, &region, uc),
            other => {
                drop(lock);
                turns::wait(t, key(), || ON_ITS_WAY.load(SeqCst) != other);
            }
        }
    }
}

/// Takes the protection away. The lock of the address space is held.
fn bare(region: &Region, mc: &SigContext) -> bool {
    const READ_WRITE: u32 = 3;
    const EXEC: u32 = 4;
    let more = READ_WRITE | if wanted(mc) == EXEC { EXEC } else { 0 };
    let prot = region.prot | more;
    let args = [region.start, region.end - region.start, prot.into()];
    sys::call(nr::MPROTECT, &args) == 0
}

/// Until a fault's turn comes. False: it can't be, or it was not for the protection that the access faulted.
fn bare_for_all(t: &mut Block, region: &Region, mc: &SigContext) -> bool {
    let here = (mc.rip, head().stamp.0.load(SeqCst));
    let is_it = |[start, len]: &&[AtomicU64; 2]| {
        start.load(Relaxed) == region.start && len.load(Relaxed) == region.end - region.start
    };
    let free = |[_, len]: &&[AtomicU64; 2]| len.load(Relaxed) == 0;
    // Another thread may have protected it meanwhile.
    let known = BARE.iter().find(is_it);
    if known.is_some() && t.order().way.made_again == here {
        return false;
    }
    let Some([start, len]) = known.or_else(|| BARE.iter().find(free)) else {
        return false;
    };
    t.order().way.made_again = here;
    start.store(region.start, Relaxed);
    len.store(region.end - region.start, Relaxed);
    bare(region, mc)
}

/// For one instruction of the thread that is on its way.
fn bare_for_step(t: &mut Block, region: &Region, uc: &mut Ucontext) -> bool {
    let way = &mut t.order().way;
    let free = way.bare.iter().position(|start| *start == 0);
    let is_so = way.bare.contains(&region.start);
    let Some(free) = free.filter(|_| !is_so && bare(region, &uc.mc)) else {
        return false;
    };
    way.bare[free] = region.start;
    way.steps += 1;
    way.is_our_flag |= uc.mc.rflags & TRAP_FLAG == 0;
    uc.mc.rflags |= TRAP_FLAG;
    true
}

/// The instruction is over. True: its trap was for that.
pub(super) fn stepped(t: &mut Block, uc: &mut Ucontext) -> bool {
    let way = &mut t.order().way;
    let bare = core::mem::take(&mut way.bare);
    let ours = core::mem::take(&mut way.is_our_flag);
    if bare == [0; 2] {
        return false;
    }
    let _lock = space::lock();
    for start in bare.into_iter().filter(|start| *start != 0) {
        if let Some(r) = memory::map().at(start) {
            protect(r.start, r.end);
        }
    }
    if ours {
        uc.mc.rflags &= !TRAP_FLAG;
    }
    ours
}

/// The fault with this stamp came: the turn is over.
pub(super) fn came(t: &mut Block, stamp: u64) {
    turns::take(t, stamp);
    leave_way(t);
}

/// The thread is at the place of its next fault, which was looked for by a patch: there it faults now.
pub(in crate::engines::order) fn is_found(t: &mut Block) {
    if next(t).is_some() {
        go_on_protected(t);
    }
}
