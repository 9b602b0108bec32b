//! Calls that shape the address space (DThreads has none of them in threads; DESIGN 5): made by one thread, in its turn, and followed by all
//! others before they go on, so that memory is mapped at the same places for all, at addresses that follow from the program.

use super::call::call;
use super::members::{member, slots};
use super::phases::{phases, Whereabouts};
use super::views::{self, Extent};
use super::{code, commit, layout, outside, owned, split};
use crate::machine::guard;
use crate::machine::guarded::Guarded;
use crate::machine::sys::{self, *};
use crate::memory::capture::Call;
use crate::memory::moved::pieces;
use crate::memory::{self, map, Region, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE};
use crate::thread::leave::Turn;
use crate::thread::panic;
use crate::thread::Block;
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::effect::Effect;
use reprise_abi::layout::{PAGE, USER_END};
use reprise_abi::session::region_flags;
use reprise_abi::syscalls::nr;

/// Changes that are remembered: nobody is further behind.
const CHANGES: usize = 1 << 12;
const MREMAP_FIXED: u64 = 2;
const MREMAP_MAYMOVE: u64 = 1;
const MADV_DONTNEED: u64 = 4;
const MADV_REMOVE: u64 = 9;
const EINVAL: i64 = -22;
const SHM_RDONLY: u64 = 0o10000;
const SHM_REMAP: u64 = 0o40000;
const ENOMEM: i64 = -12;

/// What others have to do, too.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    /// address, bytes, offset in the backing, protection
    View(u64, u64, u64, u64),
    /// As above, written to by all at once.
    Shared(u64, u64, u64, u64),
    /// address, bytes: address space without access
    Reserve(u64, u64),
    /// The arguments of mmap(2), at its address.
    File([u64; 6]),
    /// address, bytes, offset in the backing, which may be used again
    Hide(u64, u64, u64),
    Unmap(u64, u64),
    Protect(u64, u64, u64),
    Discard(u64, u64),
    /// address, bytes, advice of madvise(2): guard pages, or none any more
    Guard(u64, u64, u64),
    /// The arguments of shmat(2), at its address.
    Attach([u64; 3]),
    Detach(u64),
    /// What a signal does.
    Handler(u32),
    /// More signals are wanted ([`outside`]).
    Wants,
}

/// Each is written in a turn, before the count says so, and not again before all have followed.
static LOG: [Guarded<Change, Turn>; CHANGES] = [const { Guarded::new(Change::Nothing) }; CHANGES];
static MADE: AtomicU64 = AtomicU64::new(0);

/// How many changes there were.
pub fn made() -> u64 {
    MADE.load(SeqCst)
}

/// Are there changes that this thread has not followed?
pub fn is_behind(slot: u32) -> bool {
    member(slot).followed.load(Relaxed) != MADE.load(SeqCst)
}

/// Does what others have done to the address space.
pub fn follow(slot: u32) {
    let m = member(slot);
    let mut n = m.followed.load(Relaxed);
    while n != MADE.load(SeqCst) {
        if MADE.load(SeqCst) - n > CHANGES as u64 {
            panic::give_up("det: a thread has waited in the kernel for more than 4096 changes of the address space");
        }
        // SAFETY: who wrote it has counted it since; it is not written again before this thread, too, has followed.
        let change = unsafe { *LOG[n as usize % CHANGES].look() };
        apply(&change);
        n += 1;
        m.followed.store(n, SeqCst);
    }
}

fn apply(change: &Change) {
    match *change {
        Change::Nothing => {}
        Change::View(at, len, offset, prot) => views::show(at, len, offset, prot),
        Change::Shared(at, len, offset, prot) => views::show_shared(at, len, offset, prot),
        Change::Reserve(at, len) => {
            let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
            if sys::mmap(at, len, sys::PROT_NONE, flags, u64::MAX, 0) != at as i64 {
                panic::give_up("det: address space can't be reserved for all threads");
            }
        }
        Change::File(args) => {
            // SAFETY: a mapping of the program's, which another of its threads has already.
            if unsafe { sys::syscall6(nr::MMAP, args) } != args[0] as i64 {
                panic::give_up("det: a file can't be mapped for all threads");
            }
        }
        Change::Hide(at, len, offset) => views::hide(at, len, offset),
        Change::Unmap(at, len) => {
            sys::munmap(at, len);
        }
        Change::Protect(at, len, prot) => protect(at, len, prot),
        Change::Discard(at, len) => views::drop_copies(at, len),
        Change::Guard(at, len, advice) => {
            sys::madvise(at, len, advice);
        }
        Change::Attach([id, at, flags]) => {
            if sys::shmat(id, at, flags) != at as i64 {
                panic::give_up("det: a shared segment can't be attached for all threads");
            }
        }
        Change::Detach(at) => {
            sys::shmdt(at);
        }
        Change::Handler(signal) => crate::gate::signals::tell_kernel(signal),
        Change::Wants => outside::learn(crate::thread::current().slot_number(), true),
    }
}

/// In a turn: others follow.
fn tell(t: &Block, change: Change) {
    let n = MADE.load(SeqCst);
    // SAFETY: it is this thread's turn, so nobody else writes; nobody is so far behind that he would still look at it.
    unsafe { *LOG[n as usize % CHANGES].change() = change };
    MADE.store(n + 1, SeqCst);
    member(t.slot).followed.store(n + 1, SeqCst);
    // A descriptor may be closed afterwards, a signal sent; and the list has an end.
    let at_once = matches!(change, Change::File(_) | Change::Handler(_) | Change::Wants);
    if at_once || (n + 1) % (CHANGES as u64 / 2) == 0 {
        wait_for_all(t);
    }
}

/// Is the list of changes at a place where [`tell`] waits for all, or will it be after one more call? That needs a turn like all others': who is in a phase
/// doesn't follow.
pub fn soon_all_must_follow() -> bool {
    /// More than one call makes.
    const SOME: u64 = 64;
    let half = CHANGES as u64 / 2;
    (MADE.load(SeqCst) + SOME) / half != MADE.load(SeqCst) / half
}

/// In a turn: what a signal does has changed, for all (it belongs to the process, and the kernel believes that threads are processes).
pub fn tell_handler(t: &Block, signal: u32) {
    tell(t, Change::Handler(signal));
}

/// In a turn: others have this protection there from now on.
pub fn tell_protection(t: &Block, at: u64, len: u64, prot: u64) {
    tell(t, Change::Protect(at, len, prot));
}

/// Protects memory of this process.
pub fn protect(at: u64, len: u64, prot: u64) {
    sys::mprotect(at, len, prot);
}

/// In a turn: more signals are wanted.
pub fn tell_wants(t: &Block) {
    tell(t, Change::Wants);
}

/// In a turn: waits until all others, who wait for their turns or to be woken, have followed. Those who wait in the kernel are called from there; one that
/// the kernel doesn't let go in time follows later.
fn wait_for_all(t: &Block) {
    slots().filter(|s| *s != t.slot).for_each(wait_for);
}

/// As [`wait_for_all`], for the thread of this slot.
pub fn wait_for(s: u32) {
    const IN_TIME_NS: i64 = 1_000_000_000;
    /// Between two calls.
    const PAUSE: Timespec = Timespec {
        sec: 0,
        nsec: 50_000,
    };
    let late = sys::monotonic().ns() + IN_TIME_NS;
    while is_behind(s) {
        match phases().whereabouts(s) {
            Whereabouts::Gone => break,
            Whereabouts::InKernel if sys::monotonic().ns() < late => {
                call(s);
                sys::nanosleep(&PAUSE as *const Timespec as u64, 0);
            }
            Whereabouts::InKernel => break,
            _ => {
                phases().rouse(s);
                sys::sched_yield();
            }
        }
    }
}

fn up(n: u64) -> u64 {
    n.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// The memory that the call reshapes, and whether something of it is a thread's own.
pub fn owned_by_any(c: &Call) -> (bool, [[u64; 2]; 2]) {
    let a = c.args;
    let all = match c.effect {
        _ if !owned::any() => [[0; 2]; 2],
        Effect::Remaps => [[a[0], a[1]], [a[4], a[2]]],
        Effect::Attaches if a[2] & SHM_REMAP != 0 => [[a[1], USER_END], [0; 2]],
        Effect::Attaches | Effect::Detaches => [[0; 2]; 2],
        _ => [[a[0], a[1]], [0; 2]],
    };
    let is_owned = |[at, len]: [u64; 2]| owned::intersects(at, at.saturating_add(up(len)));
    (all.into_iter().any(is_owned), all)
}

/// In a turn: what of it is a thread's own, by [`owned_by_any`], is everybody's before the call reshapes it.
pub fn claim(t: &mut Block, c: &Call, all: [[u64; 2]; 2]) {
    for [at, len] in all {
        let why = match c.effect {
            Effect::Unmaps => owned::Why::Dropped,
            _ => owned::Why::Returned,
        };
        owned::claim(t, at & !(PAGE - 1), at.saturating_add(up(len)), why);
    }
}

/// Does the call only make memory that nobody else can have a part in yet, as for a new thread's stack?
pub fn is_new_memory(c: &Call) -> bool {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    match c.effect {
        Effect::Maps => c.args[3] & (flags | MAP_FIXED) == flags,
        Effect::Protects => true,
        _ => false,
    }
}

/// In a turn: a call that shapes the address space, of all threads.
pub fn change(t: &mut Block, c: &mut Call) -> i64 {
    let a = c.args;
    if memory::may_lose_content(c) {
        return EINVAL;
    }
    match c.effect {
        Effect::Maps => map_memory(t, c),
        Effect::Remaps => move_memory(t, a),
        Effect::Advises if matches!(a[2], MADV_DONTNEED | MADV_REMOVE) => {
            if memory::is_ours(a[0], a[1]) || a[0] % PAGE != 0 {
                return EINVAL;
            }
            discard(t, a[0], up(a[1]));
            0
        }
        Effect::Advises if matches!(a[2], MADV_GUARD_INSTALL | MADV_GUARD_REMOVE) => {
            let r = phases().shape(t, c);
            if !is_error(r) {
                guard_pages(t, a[0], up(a[1]), a[2]);
            }
            r
        }
        Effect::Unmaps => {
            if a[0] % PAGE == 0 && a[1] != 0 && !memory::is_ours(a[0], up(a[1])) {
                give_back(t, a[0], a[0].saturating_add(up(a[1])));
            }
            let r = phases().shape(t, c);
            if !is_error(r) {
                views::forget(a[0], a[0] + up(a[1]));
                tell(t, Change::Unmap(a[0], up(a[1])));
            }
            r
        }
        Effect::Protects => {
            let r = phases().shape(t, c);
            if !is_error(r) {
                let (start, end) = (a[0], a[0] + up(a[1]));
                if a[2] != sys::PROT_NONE {
                    views_of(t, start, end);
                }
                tell(t, Change::Protect(start, end - start, a[2]));
            }
            r
        }
        Effect::Attaches => {
            let r = phases().shape(t, c);
            if !is_error(r) {
                tell(t, Change::Attach([a[0], r as u64, a[2] & SHM_RDONLY]));
                // It may be removed afterwards.
                wait_for_all(t);
            }
            r
        }
        Effect::Detaches => {
            let r = phases().shape(t, c);
            if !is_error(r) {
                tell(t, Change::Detach(a[0]));
            }
            r
        }
        _ => phases().shape(t, c),
    }
}

/// The memory is about to be unmapped: its room in the backing is free.
fn give_back(t: &Block, start: u64, end: u64) {
    views::give_back(start, end, &mut |e| {
        tell(t, Change::Hide(e.start, e.end - e.start, e.offset));
    });
}

/// Private memory that isn't seen through views yet is from now on.
fn views_of(t: &mut Block, start: u64, end: u64) {
    views_of_those(t, start, end, views::is_viewed);
}

/// As [`views_of`], for such regions.
fn views_of_those(t: &mut Block, start: u64, end: u64, which: impl Fn(&Region) -> bool) {
    views::each_unseen(start, end, which, &mut |r| {
        let offset = views::convert(r);
        tell(
            t,
            Change::View(r.start, r.end - r.start, offset, r.prot as u64),
        );
    });
}

/// Is this mmap(2) for memory as heaps are made of?
fn is_plain(c: &Call) -> bool {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    c.args[2] == PROT_RW && c.args[3] & !MAP_NORESERVE == flags
}

fn map_memory(t: &mut Block, c: &mut Call) -> i64 {
    const TYPE: u64 = 15;
    let a = c.args;
    let r = phases().shape(t, c);
    if is_error(r) {
        return r;
    }
    let (start, len) = (r as u64, up(a[1]));
    let end = start + len;
    views::forget(start, end);
    let (private, anonymous) = (a[3] & TYPE == MAP_PRIVATE, a[3] & MAP_ANONYMOUS != 0);
    match (private, anonymous) {
        (true, true) if is_plain(c) && owned::is_born_own(t, len) => {
            let offset = views::add_elsewhere(start, end);
            tell(t, Change::View(start, len, offset, sys::PROT_NONE));
            owned::born(t, start, end);
        }
        (true, true) if a[2] == sys::PROT_NONE && len >= views::RESERVED_LEAST => {
            tell(t, Change::Reserve(start, len));
        }
        (true, true) => {
            let offset = views::add_empty(start, end, a[2]);
            tell(t, Change::View(start, len, offset, a[2]));
        }
        // Its content as it is now.
        (true, false) => {
            let r = Region {
                start,
                end,
                ..map().at(start).unwrap_or_default()
            };
            let offset = views::convert(&r);
            tell(t, Change::View(start, len, offset, a[2]));
        }
        (false, true) => {
            let offset = views::allocate(len);
            views::show_shared(start, len, offset, a[2]);
            tell(t, Change::Shared(start, len, offset, a[2]));
        }
        (false, false) => {
            let flags = a[3] & !MAP_FIXED_NOREPLACE | MAP_FIXED;
            tell(t, Change::File([start, a[1], a[2], flags, a[4], a[5]]));
        }
    }
    if !anonymous && code::mapped(t, c, r) {
        views_of_those(t, 0, USER_END, code::is_beside);
    }
    r
}

/// The memory is full of zeros for all.
fn discard(t: &mut Block, start: u64, len: u64) {
    views::each_part(start, start + len, &mut |e| {
        views::release(e.offset, e.end - e.start);
    });
    views::drop_copies(start, len);
    tell(t, Change::Discard(start, len));
}

/// The calling thread has guard pages there from now on, or has none: so have all. What was there of private memory is gone.
fn guard_pages(t: &mut Block, start: u64, len: u64, advice: u64) {
    for r in pieces(start, start.saturating_add(len)) {
        if advice == MADV_GUARD_INSTALL && r.flags & region_flags::SHARED == 0 {
            discard(t, r.start, r.end - r.start);
        }
        tell(t, Change::Guard(r.start, r.end - r.start, advice));
    }
}

/// The mapping there, guard pages aside; `None` where it isn't one.
fn mapping(start: u64, end: u64) -> Option<Region> {
    let first = map().at(start)?.without_guards();
    let mut at = start;
    for r in pieces(start, end).map(Region::without_guards) {
        if r.start != at || (r.prot, r.flags, r.file) != (first.prot, first.flags, first.file) {
            return None;
        }
        at = r.end;
    }
    (at == end).then_some(first)
}

/// mremap(2): memory that grows gets a new place, and its content is copied there.
fn move_memory(t: &mut Block, a: [u64; 6]) -> i64 {
    let (old, new) = (up(a[1]), up(a[2]));
    if a[0] % PAGE != 0 || new == 0 || a[3] & !(MREMAP_MAYMOVE | MREMAP_FIXED) != 0 {
        return EINVAL;
    }
    let (start, end) = (a[0], a[0] + old);
    let Some(r) = mapping(start, end) else {
        return -14;
    };
    if new == old && a[3] & MREMAP_FIXED == 0 {
        return start as i64;
    }
    if views::offset_of(start).is_none() || old == 0 {
        return ENOMEM;
    }
    if new < old && a[3] & MREMAP_FIXED == 0 {
        sys::munmap(start + new, old - new);
        map().remove(start + new, end);
        views::forget(start + new, end);
        tell(t, Change::Unmap(start + new, old - new));
        return start as i64;
    }
    if a[3] & MREMAP_MAYMOVE == 0 {
        return ENOMEM;
    }
    let fixed = a[3] & MREMAP_FIXED != 0;
    if fixed && (memory::is_ours(a[4], new) || a[4] % PAGE != 0) {
        return EINVAL;
    }
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | if fixed { MAP_FIXED } else { 0 };
    let hint = if fixed { a[4] } else { 0 };
    let place = |hint, flags| sys::mmap(hint, new, 0, flags, u64::MAX, 0);
    let to = phases().find_room(t, &|known| match known {
        None => place(hint, flags),
        Some(at) => place(at, flags | MAP_FIXED),
    });
    if is_error(to) {
        return to;
    }
    let to = to as u64;
    views::forget(to, to + new);
    let offset = views::add_empty(to, to + new, r.prot as u64);
    let moved = old.min(new);
    let mut copy = |e: Extent| {
        let at = layout::MIRROR + offset + (e.start - start);
        // SAFETY: the mirror is ours.
        unsafe { guard::copy(at, layout::MIRROR + e.offset, (e.end - e.start) as usize) };
    };
    // What this thread has written in its turn counts, too.
    commit::commit_again(t);
    views::each_part(start, start + moved, &mut copy);
    give_back(t, start, end);
    sys::munmap(start, old);
    map().insert(Region {
        start: to,
        end: to + new,
        ..r
    });
    views::forget(start, end);
    tell(t, Change::View(to, new, offset, r.prot as u64));
    tell(t, Change::Unmap(start, old));
    move_guards(t, start, start + moved, to);
    map().remove(start, end);
    to as i64
}

/// Guard pages that the map has between `start` and `end` are there from `to` on, too.
fn move_guards(t: &mut Block, start: u64, end: u64, to: u64) {
    for r in pieces(start, end).filter(Region::is_guarded) {
        let (there, len) = (r.start - start + to, r.end - r.start);
        sys::madvise(there, len, MADV_GUARD_INSTALL);
        map().set_guarded(there, there + len, true);
        tell(t, Change::Guard(there, len, MADV_GUARD_INSTALL));
    }
}

/// brk(2), which moves the end of the heap to `wanted`, if it can: `act` does it.
pub fn brk(t: &mut Block, wanted: u64, act: impl FnOnce() -> i64) -> i64 {
    let before = memory::current_brk();
    if wanted != 0 && split::in_force() {
        owned::claim(t, wanted & !(PAGE - 1), before, owned::Why::Returned);
    }
    let r = act();
    let (old, new) = (up(before), up(memory::current_brk()));
    if split::in_force() && new > old {
        views_of(t, old, new);
    } else if split::in_force() && new < old {
        views::forget(new, old);
        tell(t, Change::Unmap(new, old - new));
    }
    r
}
