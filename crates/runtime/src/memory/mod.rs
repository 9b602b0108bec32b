//! The program's address space: its map as the runtime keeps it, the calls that shape it, and the hash of all that can be written.

pub mod address_limit;
pub mod as_then;
pub mod beside;
pub mod by_reference;
pub mod capture;
pub mod compared;
pub mod files;
pub mod futex;
pub mod grown;
pub mod identity;
pub mod input_files;
pub mod input_rows;
pub mod kept;
pub mod limits;
pub mod lock_memory;
pub mod memory_file;
pub mod moved;
pub mod of_file;
pub mod opening;
pub mod partly;
pub mod populated;
pub mod regions;
pub mod scratch;
pub mod shm;
pub mod space;
pub mod stand;
pub mod track;
pub mod transfer;
pub mod written;

use crate::machine::hash;
use crate::machine::present::Presence;
use crate::machine::sys::{self, *};
use crate::memory::capture::Call;
use crate::memory::of_file::OfFile;
pub use crate::memory::regions::{Map, Region};
use crate::thread::session;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use reprise_abi::effect::Effect;
use reprise_abi::event::Tag;
use reprise_abi::layout::{PAGE, RESERVATION, USER_END};
use reprise_abi::session::region_flags;

const EINVAL: i64 = -22;
const ENOMEM: i64 = -12;
const ENODEV: i64 = -19;
const PROT_WRITE: u32 = 2;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MADV_REMOVE: u64 = 9;
const MADV_DONTFORK: u64 = 10;
const MADV_DOFORK: u64 = 11;
const MADV_WIPEONFORK: u64 = 18;
const MADV_KEEPONFORK: u64 = 19;
const MADV_POPULATE_WRITE: u64 = 23;
const MADV_DONTNEED_LOCKED: u64 = 24;
/// madvise(2): the pages are guards from then on (Linux 6.13).
pub const MADV_GUARD_INSTALL: u64 = 102;
/// They are none any more.
pub const MADV_GUARD_REMOVE: u64 = 103;

/// Most mappings that the map can hold (the kernel's own default limit is 65,530).
const MAX_REGIONS: usize = 66_000;

// SAFETY: empty until `start`.
static MAP: Map = unsafe { Map::over(core::ptr::null_mut(), 0) };
static BRK: AtomicU64 = AtomicU64::new(0);
static BRK_START: AtomicU64 = AtomicU64::new(0);
static STACK_LIMIT: AtomicU64 = AtomicU64::new(0);

/// The highest soft limit of the stack that was seen, in bytes; no limit counts as 1 GiB.
pub fn stack_limit() -> u64 {
    const MOST: u64 = 1 << 30;
    let now = crate::memory::limits::of_stack().map_or(0, |[soft, _]| soft.min(MOST));
    STACK_LIMIT.fetch_max(now, Relaxed).max(now)
}

/// The end of the program's heap.
pub fn current_brk() -> u64 {
    BRK.load(Relaxed)
}

/// The program's map. It is changed only by the holder of the baton, under `order` by that of the lock of the address space, while others may look;
/// under `none` by calls that the program itself may not race.
pub fn map() -> &'static Map {
    &MAP
}

/// All mappings from the lowest on. The map may change meanwhile.
pub fn each() -> impl Iterator<Item = Region> {
    each_within(0, u64::MAX)
}

/// As [`each`], of those in which some of these addresses are.
pub fn each_within(start: u64, end: u64) -> impl Iterator<Item = Region> {
    let mut at = start;
    core::iter::from_fn(move || {
        let r = map().after(at).filter(|r| r.start < end)?;
        at = r.end;
        Some(r)
    })
}

/// This mapping and those below it, down to the lowest. None, if it isn't there any more. The map may change meanwhile.
pub fn down_from(r: &Region) -> impl Iterator<Item = Region> {
    let same = |now: &Region| now.start == r.start;
    let mut next = map().at(r.start).filter(same);
    core::iter::from_fn(move || {
        let r = next?;
        next = map().before(r.start);
        Some(r)
    })
}

/// The mappings of `start..end` as far as there is no hole, each as a whole.
pub fn without_hole(start: u64, end: u64) -> impl Iterator<Item = Region> {
    let mut at = start;
    core::iter::from_fn(move || {
        let r = map().at(at).filter(|_| at < end)?;
        at = r.end;
        Some(r)
    })
}

/// Where a call has mapped something that can be run, or made it so: address and length.
pub fn new_code(c: &Call, result: i64) -> Option<(u64, u64)> {
    const PROT_EXEC: u64 = 4;
    const SHM_EXEC: u64 = 0o100000;
    match c.effect {
        _ if is_error(result) => None,
        Effect::Maps if c.args[2] & PROT_EXEC != 0 => Some((result as u64, c.args[1])),
        Effect::Protects if c.args[2] & PROT_EXEC != 0 => Some((c.args[0], c.args[1])),
        Effect::Attaches if c.args[2] & SHM_EXEC != 0 => Some((result as u64, 1)),
        _ => None,
    }
}

/// Takes over the mappings that the program has at its first instruction.
pub fn start() {
    let len = (MAX_REGIONS * core::mem::size_of::<Region>()) as u64;
    let Some(at) = crate::memory::scratch::arena(len) else {
        crate::thread::panic::give_up("no memory for the map")
    };
    // SAFETY: just mapped, never unmapped.
    unsafe { map().begin(at as *mut Region, MAX_REGIONS) };
    let s = session();
    for r in &s.initial_regions[..s.initial_regions_len as usize] {
        map().insert(Region {
            start: r.start,
            end: r.end,
            prot: r.prot,
            flags: r.flags,
            // Only a process that was running before has memory that it shares.
            space: match r.flags & (region_flags::SHARED | region_flags::FILE) {
                region_flags::SHARED => crate::thread::process::new_space(),
                _ => 0,
            },
            ..Region::default()
        });
    }
    BRK_START.store(s.brk_start, Relaxed);
    BRK.store(s.brk_start.max(s.brk_now), Relaxed);
    STACK_LIMIT.store(s.stack_limit, Relaxed);
}

pub(crate) fn up(n: u64) -> u64 {
    n.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Does this range touch what is ours?
pub fn is_ours(start: u64, len: u64) -> bool {
    beside::has_own(start, start.saturating_add(len))
}

/// Can the program write all of this memory?
pub fn is_writable(start: u64, len: u64) -> bool {
    let Some(end) = start.checked_add(len) else {
        return false;
    };
    let mut at = start;
    while at < end {
        match map().at(at) {
            Some(r) if r.is_writable() && !r.is_guarded() => at = r.end,
            Some(_) => return false,
            // The stack grows when it is touched.
            None => match map().after(at) {
                Some(r) if r.flags & region_flags::STACK != 0 => {
                    if r.end - at > stack_limit() {
                        return false;
                    }
                    at = r.start;
                }
                _ => return false,
            },
        }
    }
    true
}

/// How many bytes from `start` on the program can write, of `len`.
pub fn writable_part(start: u64, len: u64) -> u64 {
    if is_writable(start, len) {
        return len;
    }
    // The first page that can't be written ends it.
    let mut end = start;
    while end < start.saturating_add(len) {
        let next = (end & !(PAGE - 1)) + PAGE;
        if !is_writable(end, next - end) {
            break;
        }
        end = next;
    }
    end - start
}

/// Is all of this memory mapped, as far as that is known?
pub fn is_mapped(start: u64, len: u64) -> bool {
    let end = start.saturating_add(len);
    let mut at = start;
    while at < end {
        match map().at(at) {
            Some(r) if r.prot != 0 => at = r.end,
            _ => return is_writable(at, end - at),
        }
    }
    true
}

/// Does this advice change what memory holds, whether it may be touched, or what a child gets of it?
pub(crate) fn advice_matters(advice: u64) -> bool {
    matches!(
        advice,
        MADV_DONTNEED
            | MADV_REMOVE
            | MADV_DONTFORK
            | MADV_DOFORK
            | MADV_WIPEONFORK
            | MADV_KEEPONFORK
            | MADV_DONTNEED_LOCKED
            | MADV_POPULATE_WRITE
            | MADV_GUARD_INSTALL
            | MADV_GUARD_REMOVE
    )
}

/// Is this shared memory of a file that can't be written here?
pub fn is_read_only_file_memory(r: &Region) -> bool {
    const OF_A_FILE: u32 = region_flags::SHARED | region_flags::FILE;
    r.flags & OF_A_FILE == OF_A_FILE && !r.is_writable()
}

/// First thing in the copy of a memory that fork(2) made: mappings that are not for children are not there.
pub fn after_fork() {
    lock_memory::after_fork();
    let kept_out = |r: &&Region| r.flags & region_flags::NOT_INHERITED != 0;
    while let Some(r) = map().regions().iter().find(kept_out).copied() {
        map().remove(r.start, r.end);
    }
}

/// Does the program have memory that it can write to, and that others may have mapped, too?
pub fn is_shared_with_others() -> bool {
    let shared = |r: &Region| r.flags & region_flags::SHARED != 0 && r.prot & PROT_WRITE != 0;
    each().any(|r| shared(&r))
}

/// First byte and length of the pages that hold these bytes.
pub fn pages_of(at: u64, len: u64) -> (u64, u64) {
    let first = at & !(PAGE - 1);
    (first, (at + len - first).next_multiple_of(PAGE))
}

/// Is none of this memory mapped shared?
#[inline]
pub fn is_private(start: u64, len: u64) -> bool {
    !map().has_shared(start, start.saturating_add(len))
}

/// Most who are told of changes.
const MOST_TOLD: usize = 2;
/// Who keeps something of the program's code, and is told what of it is gone: each a `fn(u64, u64)`.
static TOLD: [AtomicUsize; MOST_TOLD] = [const { AtomicUsize::new(0) }; MOST_TOLD];

/// From now on `forget(first, end)` is called when what lay there is gone.
pub fn tell_when_gone(forget: fn(u64, u64)) {
    let free = TOLD.iter().find(|told| told.load(Relaxed) == 0);
    free.inspect(|told| told.store(forget as usize, Relaxed));
}

fn tell_of_change(start: u64, end: u64) {
    for told in &TOLD {
        let forget = told.load(Relaxed);
        if forget != 0 {
            // SAFETY: only a `fn(u64, u64)` is stored there.
            unsafe { core::mem::transmute::<usize, fn(u64, u64)>(forget)(start, end) }
        }
    }
}

/// What came of a call that shapes the address space.
pub struct Done {
    /// Its result.
    pub result: i64,
    /// Descriptor of a file that is now mapped.
    pub file: Option<u64>,
    /// What it has done although it failed, see [`partly`].
    pub partly: u64,
    /// What a mapping of a file shows in addition.
    grown: Option<by_reference::Growth>,
    shown: Option<by_reference::Shown>,
}

impl Done {
    /// The section of the call's event that says what it has done although it failed, or what a mapping that has grown shows. The event has to be written.
    pub fn section(&mut self) -> Option<(Tag, u64, u64, usize)> {
        self.shown = self.grown.take().and_then(|grown| grown.shown());
        let shown = self.shown.as_ref().map(by_reference::Shown::section);
        shown.or((self.partly != 0).then_some((Tag::Partly, self.partly, 0, 0)))
    }
}

/// Does the program want memory whose content the kernel takes away when it likes (MADV_FREE; MAP_DROPPABLE, Linux 6.11)? When that happened is not
/// known, so there is none: as with kernels that don't have it.
pub fn may_lose_content(c: &Call) -> bool {
    const MAP_TYPE: u64 = 0xf;
    const MAP_DROPPABLE: u64 = 8;
    match c.effect {
        Effect::Advises => c.args[2] == MADV_FREE,
        Effect::Maps => c.args[3] & MAP_TYPE == MAP_DROPPABLE,
        _ => false,
    }
}

/// Makes the call for the program, while recording (or without a log).
pub fn perform(c: &Call) -> Done {
    let a = c.args;
    let only = |result| Done {
        result,
        file: None,
        partly: 0,
        grown: None,
        shown: None,
    };
    let failed = |result| {
        let partly = partly::of(c, result);
        partly::follow(c, partly, true);
        Done {
            partly,
            ..only(result)
        }
    };
    if may_lose_content(c) {
        return only(EINVAL);
    }
    match c.effect {
        Effect::Maps => {
            let (fixed, anonymous) = (
                a[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0,
                a[3] & MAP_ANONYMOUS != 0,
            );
            let backing = if anonymous {
                Backing::Memory
            } else {
                backing(a[4])
            };
            if backing == Backing::Device {
                crate::thread::message::say(crate::thread::message::DEVICE_NOT_MAPPED);
                return only(ENODEV);
            }
            let mut args = a;
            if is_ours(a[0], a[1]) {
                if fixed {
                    return only(ENOMEM);
                }
                // Only a hint: the kernel chooses.
                args[0] = 0;
            }
            let replaced = if fixed { mapped_in(a[0], a[1]) } else { 0 };
            if address_limit::is_exceeded_by(up(a[1]).saturating_sub(replaced)) {
                return only(ENOMEM);
            }
            // SAFETY: the program's own call.
            let r = unsafe { sys::syscall6(c.nr, args) };
            if is_error(r) {
                return failed(r);
            }
            if let Err(why) = lock_memory::mapped(r as u64, up(a[1])) {
                sys::munmap(r as u64, up(a[1]));
                map().remove(r as u64, r as u64 + up(a[1]));
                return only(why);
            }
            let file = backing == Backing::File;
            remember_map(r as u64, &a, file);
            populated::mapped(r as u64, up(a[1]), a[3], true);
            Done {
                file: file.then_some(a[4]),
                ..only(r)
            }
        }
        Effect::Unmaps if is_ours(a[0], a[1]) => only(unmap_around(&a)),
        // As over a hole.
        Effect::Protects | Effect::Advises if is_ours(a[0], a[1]) => only(ENOMEM),
        Effect::Remaps
            if is_ours(a[0], a[1]) || (a[3] & MREMAP_FIXED != 0 && is_ours(a[4], a[2])) =>
        {
            only(EINVAL)
        }
        Effect::Remaps if address_limit::is_exceeded_by(growth(&a)) => only(ENOMEM),
        _ => {
            // SAFETY: the program's own call.
            let r = unsafe { sys::syscall6(c.nr, a) };
            if is_error(r) {
                return failed(r);
            }
            let grown = match c.effect {
                Effect::Remaps => by_reference::growth(&a),
                _ => None,
            };
            remember(c, r, true);
            Done { grown, ..only(r) }
        }
    }
}

/// munmap(2) of memory in which something is ours: that stays.
fn unmap_around(a: &[u64; 6]) -> i64 {
    let (start, end) = (a[0], a[0].saturating_add(up(a[1])));
    if start % PAGE != 0 || a[1] == 0 || end > USER_END {
        return EINVAL;
    }
    let mut result = 0;
    beside::each_between(start, end, |from, to| {
        result = sys::munmap(from, to - from);
        if result == 0 {
            forget(from, to - from);
        }
        result == 0
    });
    result
}

/// How many bytes of this range are mapped.
fn mapped_in(start: u64, len: u64) -> u64 {
    let end = start.saturating_add(up(len));
    let inside = |r: &Region| r.end.min(end).saturating_sub(r.start.max(start));
    each_within(start, end).map(|r| inside(&r)).sum()
}

/// How much more memory there is after mremap(2) with these arguments.
fn growth(a: &[u64; 6]) -> u64 {
    let kept = match a[3] & MREMAP_DONTUNMAP {
        0 => up(a[1]),
        _ => 0,
    };
    up(a[2]).saturating_sub(kept)
}

/// Says which file a new mapping shows: all who map it share its futexes.
pub fn remember_file(c: &Call, at: i64, number: u32) {
    map().set_file(at as u64, at as u64 + up(c.args[1]), number);
}

/// What a mapping shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backing {
    /// Memory of its own.
    Memory,
    /// A file, which the trace can keep; or nothing, and the kernel says why.
    File,
    /// What others change, or what answers to being read: it can't be replayed.
    Device,
}

/// What a mapping of this descriptor would show.
fn backing(fd: u64) -> Backing {
    const S_IFMT: u64 = 0o170000;
    const ZERO: u64 = 1 << 8 | 5;
    let mut stat = [0u64; 18];
    if sys::fstat(fd, stat.as_mut_ptr() as u64) != 0 {
        return Backing::File;
    }
    // st_mode, and st_rdev with major 1 and minor 5: /dev/zero.
    match (stat[3] & S_IFMT, stat[5]) {
        (0o100000, _) => Backing::File,
        (0o020000, ZERO) => Backing::Memory,
        // Directories, pipes: the kernel refuses them.
        (0o040000 | 0o010000, _) => Backing::File,
        _ => Backing::Device,
    }
}

fn remember_map(at: u64, a: &[u64; 6], file: bool) {
    let mut flags = 0;
    if a[3] & MAP_SHARED != 0 {
        flags |= region_flags::SHARED;
    }
    if file {
        flags |= region_flags::FILE;
    }
    tell_of_change(at, at + up(a[1]));
    let space = match flags == region_flags::SHARED {
        true => crate::thread::process::new_space(),
        false => 0,
    };
    map().insert(Region {
        start: at,
        end: at + up(a[1]),
        prot: a[2] as u32,
        flags,
        file: 0,
        offset: if file { a[5] } else { 0 },
        space,
    });
}

fn remember(c: &Call, r: i64, live: bool) {
    let a = c.args;
    match c.effect {
        Effect::Unmaps => forget(a[0], up(a[1])),
        Effect::Remaps => moved::follow(&a, r as u64),
        _ => changed(c, up(a[1]), live),
    }
}

/// The map without this memory.
pub(crate) fn forget(start: u64, len: u64) {
    tell_of_change(start, start + len);
    map().remove(start, start + len);
}

/// The map after mprotect(2) or madvise(2), which has changed so many bytes from its beginning on.
pub(crate) fn changed(c: &Call, len: u64, live: bool) {
    let (start, end) = (c.args[0], c.args[0].saturating_add(len));
    match (c.effect, c.args[2]) {
        (Effect::Protects, prot) => {
            if !live && prot as u32 & PROT_WRITE != 0 {
                populated::becomes_writable(start, end);
            }
            map().protect(start, end, prot as u32 & 7);
        }
        (Effect::Advises, advice @ (MADV_DONTFORK | MADV_DOFORK)) => {
            map().set_inherited(start, end, advice == MADV_DOFORK);
        }
        (Effect::Advises, advice @ (MADV_WIPEONFORK | MADV_KEEPONFORK)) => {
            map().set_wiped(start, end, advice == MADV_WIPEONFORK);
        }
        (Effect::Advises, advice @ (MADV_GUARD_INSTALL | MADV_GUARD_REMOVE)) => {
            map().set_guarded(start, end, advice == MADV_GUARD_INSTALL);
        }
        _ => {}
    }
}

/// Makes the call again in replay, so that its result is the recorded one. False when that can't be done.
pub fn redo(c: &Call, result: i64, file: &OfFile, number: u32) -> bool {
    let a = c.args;
    if is_error(result) {
        partly::follow(c, file.partly, false);
        return true;
    }
    match c.effect {
        Effect::Maps => {
            let flags = (a[3]
                & !(MAP_FIXED_NOREPLACE | 0x40000 /* HUGETLB */ | 0x8000 /* POPULATE */ | 0x2000/* LOCKED */))
                | MAP_FIXED;
            let at = result as u64;
            let r = match file.hash {
                None => {
                    let flags = flags | MAP_ANONYMOUS | MAP_NORESERVE;
                    sys::mmap(at, a[1], a[2], flags, u64::MAX, 0)
                }
                Some(hash) if !crate::memory::files::has_length(&hash, file.len) => return false,
                Some(hash) => crate::memory::files::map(&hash, number, at, &a, flags),
            };
            remember_map(at, &a, file.hash.is_some());
            map().set_file(at, at + up(a[1]), number);
            populated::mapped(at, up(a[1]), a[3], false);
            r == result
        }
        Effect::Remaps => {
            let done = moved::again(&a, result as u64);
            remember(c, result, false);
            done
        }
        Effect::Advises if !advice_matters(a[2]) => true,
        // Older kernels don't know it; what it does is seldom seen.
        Effect::Advises if a[2] == MADV_POPULATE_WRITE => {
            sys::madvise(a[0], a[1], a[2]);
            true
        }
        Effect::Unmaps if is_ours(a[0], a[1]) => unmap_around(&a) == result,
        Effect::Unmaps | Effect::Protects | Effect::Advises => {
            // SAFETY: the program's own call.
            let r = unsafe { sys::syscall6(c.nr, a) };
            remember(c, result, false);
            r == result
        }
        Effect::Detaches => {
            crate::memory::shm::detach(a[0], true);
            true
        }
        // mlock, msync and their kin change nothing that the program could see.
        _ => true,
    }
}

/// brk(2), by mappings of our own, so that it is the same in record and replay.
///
/// `recorded`: what it returned when it was recorded, in a replay.
pub fn brk(c: &Call, recorded: Option<i64>) -> i64 {
    let start = BRK_START.load(Relaxed);
    let (now, want) = (BRK.load(Relaxed), c.args[0]);
    let (low, high) = (up(now), up(want));
    let limit = if start < RESERVATION {
        RESERVATION
    } else {
        USER_END
    };
    let mut result = now;
    // Limits of the process, and memory that is short, are those of the recording.
    if want < start || want >= limit || recorded.is_some_and(|r| r as u64 != want) {
        return result as i64;
    }
    if recorded.is_none() && address_limit::is_exceeded_by(high.saturating_sub(low)) {
        return result as i64;
    }
    let ok = if high > low {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
        sys::mmap(low, high - low, PROT_RW, flags, u64::MAX, 0) == low as i64
    } else {
        high == low || sys::munmap(high, low - high) == 0
    };
    if ok {
        if high > low {
            // The kernel would have refused before: so little is hardly worth a second way.
            let _ = lock_memory::mapped(low, high - low);
            map().insert(Region {
                start: low,
                end: high,
                prot: PROT_RW as u32,
                ..Region::default()
            });
        } else {
            map().remove(high, low);
        }
        BRK.store(want, Relaxed);
        result = want;
    }
    result as i64
}

/// Most regions whose hashes are kept one by one, to tell where a difference is.
pub const MAX_SUMS: usize = 64;

/// The hash of all memory that the program can write.
pub struct StateHash {
    /// All together.
    pub sum: u64,
    /// Bytes that were looked at.
    pub bytes: u64,
    /// The first regions: (start, hash).
    pub regions: [[u64; 2]; MAX_SUMS],
    /// How many of them.
    pub len: usize,
}

/// Bytes that the program could write, present or not.
pub fn writable_bytes() -> u64 {
    let writable = map().regions().iter().filter(|r| r.prot & PROT_WRITE != 0);
    writable.map(|r| r.end - r.start).sum()
}

impl StateHash {
    /// That of no memory at all.
    pub const NOTHING: StateHash = StateHash {
        sum: 0,
        bytes: 0,
        regions: [[0; 2]; MAX_SUMS],
        len: 0,
    };
}

/// Hashes all memory that the program can write.
///
/// A page that is absent hashes as one full of zeros, so that it doesn't matter who touched it first.
pub fn hash_all() -> StateHash {
    let mut all = StateHash::NOTHING;
    let presence = Presence::now();
    for r in map().regions() {
        if r.prot & PROT_WRITE == 0 {
            continue;
        }
        let start = grown::first_mapped(r);
        let mut sum = 0u64;
        presence.each(start, r.end, r.flags, |page| {
            all.bytes += PAGE;
            let h = crate::machine::guard::guarded(|| {
                // SAFETY: guarded.
                unsafe {
                    if hash::is_zero_page(page) {
                        0
                    } else {
                        hash::bytes(page, page, PAGE as usize)
                    }
                }
            });
            sum = sum.wrapping_add(h.unwrap_or(0));
        });
        all.sum = all.sum.wrapping_add(sum);
        if all.len < MAX_SUMS {
            all.regions[all.len] = [r.end, sum];
            all.len += 1;
        }
    }
    all
}

/// Calls `f` for each present page that the program can write, in order of addresses.
pub fn each_writable_page(mut f: impl FnMut(u64)) {
    let presence = Presence::now();
    for r in map().regions().iter().filter(|r| r.prot & PROT_WRITE != 0) {
        let start = grown::first_mapped(r);
        presence.each(start, r.end, r.flags, &mut f);
    }
}
