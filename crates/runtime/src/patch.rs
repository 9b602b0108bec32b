//! Rewriting of hot system call sites into jumps, so that a gate costs nanoseconds instead of a signal (FACTS, "Rewriting syscall sites").
//!
//! Three forms, each replacing whole instructions around one `syscall` that was seen to run:
//! the `mov $nr,%eax` before it, Go's `mov $nr,%rax` before it, or the `syscall` itself with the `cmp $-4095,%rax` after it.
//! Only done while no other thread runs program code; the change is an event, so that replay makes it at the same place.

use crate::engine::{Engine, ENGINE, NONE, SERIAL_RECORD};
use crate::guard;
use crate::memory;
use crate::sys;
use crate::thread::{session, Block};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use reprise_abi::layout::PAGE;
use reprise_abi::session::FLAG_NO_PATCH;
use reprise_abi::syscalls::nr;

/// A site is rewritten when it has been dispatched this many times.
const HOT: u32 = 4;
/// Sites that are counted; more share counters.
const COUNTED: usize = 4096;
/// Most pages of stubs.
const MAX_PAGES: usize = 128;
/// Bytes of a stub.
pub const STUB: u64 = 64;
/// Most sites of the third form, whose return address moves.
const MAX_MOVED: usize = 1024;
/// A jump reaches this far.
const REACH: u64 = 0x7fff_0000;

/// Form of a patch: the `mov` of 5 bytes before the `syscall`.
pub const BEFORE: u32 = 1;
/// The `mov` of 7 bytes before it.
pub const BEFORE_LONG: u32 = 2;
/// The `syscall` and the 6-byte `cmp` after it.
pub const AFTER: u32 = 3;
/// A cpuid that the processor doesn't let trap, see [`crate::cpuid`].
pub const CPUID: u32 = 4;
/// What saves the vector registers in ld.so's resolver, see [`crate::resolver`].
pub const RESOLVER: u32 = 5;

/// Instructions that change memory in one step, see [`crate::locked`]: in all code, when the first thread is made.
pub const LOCKED: u32 = 6;
/// As above, in code that was mapped later.
pub const LOCKED_WITH_CODE: u32 = 7;

struct Tables(UnsafeCell<Inner>);
// SAFETY: used only while no other thread runs program code.
unsafe impl Sync for Tables {}

struct Inner {
    pages: [(u64, u64); MAX_PAGES],
    pages_len: usize,
    moved: [(u64, u64); MAX_MOVED],
    moved_len: usize,
}

static TABLES: Tables = Tables(UnsafeCell::new(Inner {
    pages: [(0, 0); MAX_PAGES],
    pages_len: 0,
    moved: [(0, 0); MAX_MOVED],
    moved_len: 0,
}));
static COUNTS: [AtomicU32; COUNTED] = [const { AtomicU32::new(0) }; COUNTED];
/// The site dispatched last (address after its `syscall`), and its call number.
static LAST_SITE: AtomicU64 = AtomicU64::new(0);
static LAST_NR: AtomicU64 = AtomicU64::new(0);

#[allow(clippy::mut_from_ref)]
fn tables() -> &'static mut Inner {
    // SAFETY: see `Tables`.
    unsafe { &mut *TABLES.0.get() }
}

/// Is this address in a stub of a rewritten site?
pub fn is_stub(pc: u64) -> bool {
    let t = tables();
    t.pages[..t.pages_len]
        .iter()
        .any(|p| pc.wrapping_sub(p.0) < PAGE)
}

/// A call was dispatched from `after` (the address after its `syscall`).
pub fn note_dispatch(after: u64, number: u64) {
    let n =
        COUNTS[(after.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize].fetch_add(1, Relaxed);
    if n + 1 == HOT || (n >= HOT && n % 1024 == 0) {
        LAST_NR.store(number, Relaxed);
        LAST_SITE.store(after, Relaxed);
    }
}

/// At the start of a gate: rewrites the site that has just become hot.
#[inline]
pub fn at_gate<E: Engine>(t: &mut Block) {
    let after = LAST_SITE.load(Relaxed);
    if after != 0 {
        LAST_SITE.store(0, Relaxed);
        consider::<E>(t, after);
    }
    if !E::LIVE {
        replay(t);
    }
}

#[cold]
fn consider<E: Engine>(t: &mut Block, after: u64) {
    let s = session();
    let engine = ENGINE.load(Relaxed);
    if !E::LIVE
        || s.flags & FLAG_NO_PATCH != 0
        || (engine != SERIAL_RECORD && !crate::process::has_memory_to_itself())
    {
        return;
    }
    let Some(form) = form_of(after - 2, LAST_NR.load(Relaxed) as u32) else {
        return;
    };
    let Some(stub) = place(after) else { return };
    if write(after - 2, stub, form) {
        s.counters.patched.fetch_add(1, Relaxed);
        if engine != NONE {
            use reprise_abi::event::Kind;
            crate::serial::events::plain(Kind::Patch, t.slot, form, 0, &[after - 2, stub]);
        }
    }
}

/// Replay, at the start of a gate: makes the patches that come next.
fn replay(t: &mut Block) {
    replay_those(t, |_| true);
}

/// Does a patch of this form belong to the gate that brought the code? Those of call sites belong to the gate that goes through them.
pub fn comes_with_code(form: u32) -> bool {
    matches!(form, CPUID | RESOLVER | LOCKED_WITH_CODE)
}

/// Replay, at the end of a gate that brought code: replaces in it what the recording did. Patches of call sites that come next belong to
/// the gate to come: the program gets there by the code as it is.
pub fn replay_with_code(t: &mut Block) {
    replay_those(t, comes_with_code);
}

fn replay_those(t: &mut Block, wanted: impl Fn(u32) -> bool) {
    if crate::order::runs() {
        crate::order::replay::settle(t);
    }
    use reprise_abi::event::Kind;
    while let Some(h) = crate::ring::peek() {
        if h.kind != Kind::Patch as u8 || h.slot as u32 != t.slot || !wanted(h.detail) {
            return;
        }
        let mut r = crate::ring::Reader::begin(h);
        let [site, stub, len, ..] = r.args();
        r.finish();
        if crate::rebuilt::was_program(site) {
            if matches!(h.detail, LOCKED | LOCKED_WITH_CODE) {
                crate::locked::replay_rebuilt();
            }
            continue;
        }
        if matches!(h.detail, LOCKED | LOCKED_WITH_CODE) {
            if !crate::locked::replay(site, stub, len) {
                crate::panic::give_up(
                    "the locked instructions of the program can't be replaced as recorded",
                );
            }
            continue;
        }
        if crate::order::runs() && !comes_with_code(h.detail) {
            // They were gone when the recording did it.
            crate::order::replay::wait_for_others_to_end();
        }
        if h.detail == CPUID {
            crate::cpuid::replace(site);
            continue;
        }
        let page = stub & !(PAGE - 1);
        let known = tables().pages[..tables().pages_len]
            .iter()
            .any(|p| p.0 == page);
        let done = (known || map_page(page)) && write(site, stub, h.detail);
        if done {
            let counts = (h.detail != RESOLVER) as u64;
            session().counters.patched.fetch_add(counts, Relaxed);
            // Who finds room by itself (hooks) is to find the same as in the recording.
            let t = tables();
            for p in t.pages[..t.pages_len].iter_mut().filter(|p| p.0 == page) {
                p.1 = p.1.max(stub - page + STUB);
            }
        }
    }
}

/// Which form fits the code around a `syscall` at `site`?
fn form_of(site: u64, number: u32) -> Option<u32> {
    let mut b = [0u8; 16];
    if !guard::read_bytes(site - 8, &mut b) || b[8] != 0x0f || b[9] != 0x05 {
        return None;
    }
    let imm = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    if b[1..4] == [0x48, 0xc7, 0xc0] && imm(4) == number {
        return Some(BEFORE_LONG);
    }
    // `b8` after a REX prefix would be another instruction.
    if b[3] == 0xb8 && imm(4) == number && !(0x40..=0x4f).contains(&b[2]) {
        return Some(BEFORE);
    }
    // cmp $-4096,%rax or cmp $-4095,%rax
    if b[10..12] == [0x48, 0x3d] && matches!(b[12], 0 | 1) && b[13..16] == [0xf0, 0xff, 0xff] {
        return Some(AFTER);
    }
    None
}

/// Finds room for a stub of [`STUB`] bytes that the site can reach.
pub fn place(site: u64) -> Option<u64> {
    let t = tables();
    for p in &mut t.pages[..t.pages_len] {
        if p.0.abs_diff(site) < REACH && p.1 + STUB <= PAGE {
            let at = p.0 + p.1;
            p.1 += STUB;
            return Some(at);
        }
    }
    let list = memory::map().regions();
    let i = list.iter().position(|r| r.start <= site && site < r.end)?;
    // Below the module: above it the heap may want to grow.
    for k in (0..=i).rev() {
        let below = list[k].start - PAGE;
        let free = k == 0 || list[k - 1].end <= below;
        if free && below >= 0x1_0000 && site - below < REACH && map_page(below) {
            return place(site);
        }
    }
    for k in i..list.len() {
        let above = list[k].end;
        let free = k + 1 == list.len() || list[k + 1].start > above;
        if free && above - site < REACH && map_page(above) {
            return place(site);
        }
    }
    None
}

fn map_page(at: u64) -> bool {
    let t = tables();
    if t.pages_len == MAX_PAGES || memory::is_ours(at, PAGE) {
        return false;
    }
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE;
    if sys::call(nr::MMAP, &[at, PAGE, 1, flags, u64::MAX, 0]) != at as i64 {
        return false;
    }
    memory::map().insert(memory::Region {
        start: at,
        end: at + PAGE,
        prot: 5,
        ..Default::default()
    });
    t.pages[t.pages_len] = (at, 0);
    t.pages_len += 1;
    true
}

/// Writes code into pages that the program can't write, and restores their protection.
pub fn write_code(at: u64, bytes: &[u8]) -> bool {
    let first = at & !(PAGE - 1);
    let len = (at + bytes.len() as u64 - first).next_multiple_of(PAGE);
    let prot = |page: u64| memory::map().at(page).map_or(5, |r| r.prot as u64);
    if sys::call(nr::MPROTECT, &[first, len, 3]) != 0 {
        return false;
    }
    let ok = guard::write_bytes(at, bytes);
    let mut page = first;
    while page < first + len {
        sys::call(nr::MPROTECT, &[page, PAGE, prot(page)]);
        page += PAGE;
    }
    ok
}

/// Writes stub and jump.
pub fn write(site: u64, stub: u64, form: u32) -> bool {
    let mut code = [0xccu8; STUB as usize];
    if form == RESOLVER {
        let jump = |from: u64, to: u64| {
            let mut jump = [0xe9, 0, 0, 0, 0];
            jump[1..].copy_from_slice(&(to.wrapping_sub(from + 5) as u32).to_le_bytes());
            jump
        };
        let Some(body) = crate::resolver::stub(site) else {
            return false;
        };
        let n = body.bytes().len();
        code[..n].copy_from_slice(body.bytes());
        code[n..n + 5].copy_from_slice(&jump(stub + n as u64, site + 5));
        return write_code(stub, &code) && write_code(site, &jump(site, stub));
    }
    let mut n = 0;
    let mut put = |bytes: &[u8]| {
        code[n..n + bytes.len()].copy_from_slice(bytes);
        n += bytes.len();
        n as u64
    };
    let (from, old_len): (u64, usize) = match form {
        BEFORE => (site - 5, 5),
        BEFORE_LONG => (site - 7, 7),
        AFTER => (site, 8),
        _ => return false,
    };
    let mut old = [0u8; 8];
    if !guard::read_bytes(from, &mut old[..old_len]) {
        return false;
    }
    if form != AFTER {
        put(&old[..old_len]);
    }
    let relative = |to: u64, next: u64| (to.wrapping_sub(next) as u32).to_le_bytes();
    let at = put(&[0x48, 0x8d, 0x0d]);
    put(&relative(site + 2, stub + at + 4));
    put(&[0xff, 0x25, 0, 0, 0, 0]);
    let mut resume = put(&(crate::asm::rt_hook as *const () as u64).to_le_bytes());
    resume += stub;
    if form == AFTER {
        put(&old[2..8]);
        let at = put(&[0xe9]);
        put(&relative(site + 8, stub + at + 4));
        let t = tables();
        if t.moved_len == MAX_MOVED {
            return false;
        }
        t.moved[t.moved_len] = (site + 2, resume);
        t.moved_len += 1;
        note_moved(site + 2, resume);
    }
    if !write_code(stub, &code) {
        return false;
    }
    let mut jump = [0x90u8; 8];
    jump[0] = 0xe9;
    jump[1..5].copy_from_slice(&relative(stub, from + 5));
    if form == AFTER {
        // The last three bytes stay: nothing ever runs them.
        jump[5..8].copy_from_slice(&old[5..8]);
    }
    write_code(from, &jump[..old_len])
}

/// A direct-mapped cache in front of the list of moved return addresses.
const CACHE: usize = 256;
static MOVED_FROM: [AtomicU64; CACHE] = [const { AtomicU64::new(0) }; CACHE];
static MOVED_TO: [AtomicU64; CACHE] = [const { AtomicU64::new(0) }; CACHE];

fn cache_index(rip: u64) -> usize {
    (rip.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

fn note_moved(from: u64, to: u64) {
    let i = cache_index(from);
    if MOVED_FROM[i].load(Relaxed) == 0 {
        MOVED_FROM[i].store(from, Relaxed);
        MOVED_TO[i].store(to, Relaxed);
    } else {
        // Two sites share the place: the list decides.
        MOVED_FROM[i].store(u64::MAX, Relaxed);
    }
}

/// The instruction at `from` is at `to` now, and something else lies in its place.
pub fn note_inner(from: u64, to: u64) {
    let t = tables();
    if t.moved[..t.moved_len].iter().any(|m| m.0 == from) || t.moved_len == MAX_MOVED {
        return;
    }
    t.moved[t.moved_len] = (from, to);
    t.moved_len += 1;
    note_moved(from, to);
}

/// Where the program really goes on when it is to go on at `rip`: bytes that a patch replaced live in its stub.
#[inline]
pub fn resume_address(rip: u64) -> u64 {
    let i = cache_index(rip);
    let from = MOVED_FROM[i].load(Relaxed);
    if from == rip {
        return MOVED_TO[i].load(Relaxed);
    }
    if from == u64::MAX {
        let t = tables();
        if let Some(m) = t.moved[..t.moved_len].iter().find(|m| m.0 == rip) {
            return m.1;
        }
    }
    rip
}
