//! Patches of the program's code that other threads may be running at this moment.
//!
//! They are made and removed as [`live_code`] says. Who runs into a breakpoint meanwhile tries again, or goes on in the stub. The stub's
//! memory, and what is known of it, outlives the patch by far, since a thread may have been interrupted in the stub.

use crate::code::live_code;
use crate::common::stopped::Under;
use crate::log::total;
use crate::machine::guard;
use crate::machine::guarded::{Guarded, Leave};
use crate::machine::sys;
use crate::memory::beside;
use crate::memory::scratch::arena;
use crate::thread::STUB_CELL;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_code::patchable::{Form, Place, INT3, JUMP_LEN};
use reprise_place::stub::{Cell, Discriminator, Spot, Stub};

/// Patches that are known at a time; one is forgotten when so many others were made after it.
const KNOWN: usize = 256;

const READ_WRITE: u64 = 3;
const READ_EXEC: u64 = 5;

/// It was never used.
const NEVER: u32 = 0;
/// It is being written or removed.
const CHANGES: u32 = 1;
/// It is in the code.
const IN: u32 = 2;
/// It was removed.
const GONE: u32 = 3;

/// A patch.
pub struct Patch {
    state: AtomicU32,
    /// Slot of the thread that looks for the place.
    pub owner: u32,
    /// The place.
    pub place: Place,
    stub: Stub,
    /// The program's bytes.
    pub(super) under: Under,
    pages: (u64, u64),
}

/// Who changes code. Never held while anybody is waited for but for the lock of the address space, which is always taken after this one.
static LOCK: AtomicU32 = AtomicU32::new(0);
static TABLE: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU64 = AtomicU64::new(0);
/// How many have been removed.
pub static REMOVED: AtomicU32 = AtomicU32::new(0);

struct Changing;

fn lock() -> Changing {
    while LOCK.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        total::let_others();
    }
    Changing
}

impl Drop for Changing {
    fn drop(&mut self) {
        LOCK.store(0, Release);
    }
}

/// To write a patch: the lock of this file, and its state says that it isn't known to anybody. To look at it: its state says that it is whole.
impl Leave for Changing {}

fn table() -> &'static [Guarded<Patch, Changing>] {
    match TABLE.load(Acquire) {
        0 => &[],
        // SAFETY: made by `make`, never unmapped; its entries are looked at only when their state says so.
        at => unsafe { core::slice::from_raw_parts(at as *const _, KNOWN) },
    }
}

/// Was there never any patch?
pub fn are_none() -> bool {
    table().is_empty()
}

/// The patches that are in the code or were, with their states.
fn all() -> impl Iterator<Item = (&'static Patch, u32)> {
    table().iter().filter_map(|cell| {
        let p = cell.at();
        // SAFETY: zero at first, which is NEVER.
        let state = unsafe { (*p).state.load(Acquire) };
        // SAFETY: written as a whole before it got this state; changed only when it has been gone for long.
        (state != NEVER).then(|| (unsafe { &*p }, state))
    })
}

/// Has `f` done while no patch is made or removed, unless one lies near `pc`.
pub fn unless_near<R>(pc: u64, f: impl FnOnce() -> R) -> Option<R> {
    let _changing = lock();
    (!is_near(pc)).then(f)
}

/// What `f` says while no patch is made or removed, and whether one lies near `pc`.
pub fn look<R>(pc: u64, f: impl FnOnce() -> R) -> (R, bool) {
    let _changing = lock();
    (f(), is_near(pc))
}

/// Patches a place for the thread of slot `owner`. `None`: it can't be done, or another patch lies there (then `Some(None)`).
pub fn make(
    owner: u32,
    place: &Place,
    tests: &[Discriminator],
    room: impl FnOnce(&Place) -> Option<(u64, (u64, u64))>,
) -> Option<Option<&'static Patch>> {
    let _changing = lock();
    let near = |p: &Patch| p.place.pc.abs_diff(place.pc) < 2 * JUMP_LEN as u64;
    if all().any(|(p, state)| state != GONE && near(p)) {
        return Some(None);
    }
    if TABLE.load(Relaxed) == 0 {
        let at = arena((KNOWN * core::mem::size_of::<Patch>()) as u64)?;
        TABLE.store(at, Release);
    }
    let n = MADE.fetch_add(1, Relaxed) as usize;
    let entry = table().get(n % KNOWN)?.at();
    // SAFETY: as in `all`.
    let (old, pages) = unsafe { ((*entry).state.load(Relaxed), (*entry).pages) };
    if !matches!(old, NEVER | GONE) {
        return None;
    }
    if old == GONE {
        beside::forget(pages.0);
        sys::munmap(pages.0, pages.1);
        // SAFETY: nobody is in it any more.
        unsafe { (*entry).state.store(NEVER, Release) };
    }
    let (at, pages) = room(place)?;
    beside::note(pages.0, pages.1);
    let unmap = || {
        beside::forget(pages.0);
        sys::munmap(pages.0, pages.1);
        None
    };
    let Ok(stub) = Stub::build(at, Cell::Own(STUB_CELL as u32), place, tests) else {
        return unmap();
    };
    let len = place.patch_len();
    let mut under = Under {
        at: place.pc,
        bytes: [0; JUMP_LEN],
        len,
    };
    if !guard::read_bytes(under.at, &mut under.bytes[..len])
        || !guard::write_bytes(stub.start(), stub.code())
        || sys::mprotect(pages.0, pages.1, READ_EXEC) != 0
    {
        return unmap();
    }
    let patch = Patch {
        state: AtomicU32::new(NEVER),
        owner,
        place: *place,
        stub,
        under,
        pages,
    };
    // SAFETY: free, as seen above; only who holds the lock writes.
    let patch = unsafe {
        entry.write(patch);
        &*entry
    };
    patch.state.store(CHANGES, Release);
    let bytes = place.patch(patch.stub.start());
    if !live_code::change(place.pc, &bytes[..len], |i| patch.begins(i)) {
        patch.state.store(GONE, Release);
        return None;
    }
    patch.state.store(IN, Release);
    Some(Some(patch))
}

impl Patch {
    /// Does an instruction begin at this offset?
    fn begins(&self, i: usize) -> bool {
        let at = self.place.pc + i as u64;
        self.place.insns().iter().any(|insn| insn.pc == at)
    }

    /// Takes it out of the code.
    pub fn remove(&self) {
        let _changing = lock();
        self.state.store(CHANGES, Release);
        live_code::change(self.under.at, &self.under.bytes[..self.under.len], |i| {
            self.begins(i)
        });
        self.state.store(GONE, Release);
        REMOVED.fetch_add(1, SeqCst);
    }

    /// Where the thread goes on after a visit that wasn't the one.
    pub fn resume(&self) -> u64 {
        self.stub.resume()
    }

    /// Hides it in code that the program can write, or shows it again, while nobody else is there.
    pub fn show(&self, visible: bool) {
        let bytes = match visible {
            true => self.place.patch(self.stub.start()),
            false => self.under.bytes,
        };
        guard::write_bytes(self.under.at, &bytes[..self.under.len]);
    }
}

/// Does a patch lie on or near this code, or is one just being made or removed there?
fn is_near(pc: u64) -> bool {
    let near = |p: &Patch| p.place.pc.abs_diff(pc) < 32;
    all().any(|(p, state)| state != GONE && near(p))
}

/// What a breakpoint was.
pub enum Stop {
    /// Not ours.
    Strange,
    /// It is no more: the instruction is to be made.
    Again,
    /// All tests of a stub passed, or there are none.
    Passed(&'static Patch),
    /// An instruction whose copy is at this address; it may expect rcx in the stub's cell.
    Copied(u64),
}

/// A thread ran into a breakpoint at `at`.
pub fn stop(at: u64) -> Stop {
    // What is in the code and what is known of it belong together only while nobody changes them: a patch that is removed between two looks would be
    // taken for a breakpoint of the program's own.
    let _changing = lock();
    let is_breakpoint = guard::read::<u8>(at) == Some(INT3);
    for (p, state) in all() {
        if p.stub.locate(at) == Some(Spot::Trap) {
            return Stop::Passed(p);
        }
        let offset = at.wrapping_sub(p.place.pc);
        if offset >= p.place.patch_len() as u64 {
            continue;
        }
        if offset == 0 && p.place.form == Form::Breakpoint && state == IN {
            return Stop::Passed(p);
        }
        if state == GONE && is_breakpoint {
            continue;
        }
        return match p.stub.copy_of(at).filter(|_| offset != 0 && state != GONE) {
            Some(copy) => Stop::Copied(copy),
            None => Stop::Again,
        };
    }
    Stop::Strange
}

/// Where in a stub this is.
pub fn locate(pc: u64) -> Option<(&'static Patch, Spot)> {
    all().find_map(|(p, _)| p.stub.locate(pc).map(|spot| (p, spot)))
}

const _: () = assert!(READ_WRITE == sys::PROT_RW);
