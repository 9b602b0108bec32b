//! Rewriting of hot system call sites into jumps, so that a gate costs nanoseconds instead of a signal (FACTS, "Rewriting syscall sites").
//!
//! The forms are those of [`reprise_code::call_site`]; this finds which sites are hot, room for their stubs, and writes both.
//! The change is an event, so that replay makes it at the same place. Under `order`, where other threads may be running the code
//! meanwhile ([`live_code`]), it belongs to the calls of the address space. A thread may stand behind the `syscall` for any time, and the
//! third form puts a jump of five bytes there: its stub is placed so that the jump's third byte is a breakpoint, which leads on.

use crate::code::live_code;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory;
use crate::memory::pages_of;
use crate::thread::session;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use reprise_abi::layout::PAGE;
use reprise_code::call_site::{self, Rewritten, BEFORE_SITE};
use reprise_code::patchable::INT3;

pub use reprise_code::call_site::STUB;
pub use reprise_code::resolver::RESOLVER_STUB;

/// A site is rewritten when it has been dispatched this many times.
const HOT: u32 = 4;
/// Sites that are counted; more share counters.
const COUNTED: usize = 4096;
/// Most pages of stubs.
const MAX_PAGES: usize = 256;
/// Most sites of the third form, whose return address moves.
const MAX_MOVED: usize = 1024;
/// Bytes of a jump.
const JUMP: usize = 5;
/// Less than this between two mappings is a hole in the program's memory.
const HOLE: u64 = 256 * 1024;
/// Stretches of 64 KiB that are searched for room near a site.
const MAX_WINDOWS: u64 = 4096;
const PROT_RW: u64 = 3;
const READ_EXEC: u64 = 5;
/// Other threads run what is there.
pub const PROT_RWX: u64 = 7;
/// A jump reaches this far.
const REACH: u64 = 0x7fff_0000;

pub use reprise_abi::event::patch_form::*;

/// A list of pairs that only grows, so that others may look through it meanwhile. It grows while no other thread runs the program's code, or under
/// the lock of the address space.
struct Pairs<const MOST: usize> {
    list: [(AtomicU64, AtomicU64); MOST],
    len: AtomicUsize,
}

impl<const MOST: usize> Pairs<MOST> {
    const fn new() -> Pairs<MOST> {
        Pairs {
            list: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MOST],
            len: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn all(&self) -> &[(AtomicU64, AtomicU64)] {
        &self.list[..self.len.load(Acquire)]
    }

    /// Is this the first of a pair?
    fn has(&self, first: u64) -> bool {
        self.all().iter().any(|p| p.0.load(Relaxed) == first)
    }

    fn is_full(&self) -> bool {
        self.len.load(Relaxed) == MOST
    }

    fn push(&self, first: u64, second: u64) {
        let n = self.len.load(Relaxed);
        self.list[n].0.store(first, Relaxed);
        self.list[n].1.store(second, Relaxed);
        self.len.store(n + 1, Release);
    }
}

/// Pages of stubs: where, and how many bytes are in use.
static PAGES: Pairs<MAX_PAGES> = Pairs::new();
/// Where instructions were, and where they are.
static MOVED: Pairs<MAX_MOVED> = Pairs::new();
static COUNTS: [AtomicU32; COUNTED] = [const { AtomicU32::new(0) }; COUNTED];
/// The site dispatched last (address after its `syscall`), and its call number.
static LAST_SITE: AtomicU64 = AtomicU64::new(0);
static LAST_NR: AtomicU64 = AtomicU64::new(0);

/// Is this address in a stub of a rewritten site?
pub fn is_stub(pc: u64) -> bool {
    let pages = PAGES.all().iter();
    pages
        .map(|p| p.0.load(Relaxed))
        .any(|at| pc.wrapping_sub(at) < PAGE)
}

/// Who else has stubs: a `fn(u64) -> bool`, if anybody.
static OTHERS: AtomicUsize = AtomicUsize::new(0);

/// From now on addresses for which `is_stub` says so are in stubs, too ([`is_any_stub`]).
pub fn others_have_stubs(is_stub: fn(u64) -> bool) {
    OTHERS.store(is_stub as usize, Relaxed);
}

/// Is this address in a stub, whosever it is?
pub fn is_any_stub(pc: u64) -> bool {
    let others = OTHERS.load(Relaxed);
    // SAFETY: only a `fn(u64) -> bool` is stored there.
    is_stub(pc)
        || others != 0 && unsafe { core::mem::transmute::<usize, fn(u64) -> bool>(others)(pc) }
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

/// The site that has just become hot: the address after its `syscall`. It is told once.
#[inline]
pub fn take_hot_site() -> Option<u64> {
    let after = LAST_SITE.load(Relaxed);
    if after == 0 {
        return None;
    }
    LAST_SITE.store(0, Relaxed);
    Some(after)
}

/// Rewrites the site before `after`, if it has a form that can be; the form, and where the stub is. `among`: other threads may be running
/// the code.
pub fn rewrite(after: u64, among: bool) -> Option<(u32, u64)> {
    let form = form_of(after - 2, LAST_NR.load(Relaxed) as u32)?;
    let stub = match among && form == AFTER {
        true => place_with_breakpoint(after - 2)?,
        false => place(after, STUB)?,
    };
    if !write(after - 2, stub, form, among) {
        return None;
    }
    session().counters.patched.fetch_add(1, Relaxed);
    Some((form, stub))
}

/// Does a patch of this form belong to the gate that brought the code? Those of call sites belong to the gate that goes through them.
pub fn comes_with_code(form: u32) -> bool {
    matches!(
        form,
        CPUID | RESOLVER | LOCKED_WITH_CODE | PAUSES_WITH_CODE | SPIN
    )
}

/// Replay: rewrites the site as recorded.
pub fn put(site: u64, stub: u64, form: u32, among: bool) {
    let page = stub & !(PAGE - 1);
    if (PAGES.has(page) || map_page(page)) && write(site, stub, form, among) {
        let counts = (form != RESOLVER) as u64;
        session().counters.patched.fetch_add(counts, Relaxed);
        // Who finds room by itself (hooks) is to find the same as in the recording.
        fill(
            page,
            match form {
                AFTER if among => PAGE,
                RESOLVER => stub - page + RESOLVER_STUB,
                _ => stub - page + STUB,
            },
        );
    }
}

/// Which form fits the code around a `syscall` at `site`?
fn form_of(site: u64, number: u32) -> Option<u32> {
    let around = guard::read(site - BEFORE_SITE)?;
    call_site::form_of(&around, number)
}

/// Finds room for a stub of so many bytes, a multiple of [`STUB`], that the site can reach.
pub fn place(site: u64, len: u64) -> Option<u64> {
    for (page, used) in PAGES.all() {
        let (at, n) = (page.load(Relaxed), used.load(Relaxed));
        if at.abs_diff(site) < REACH && n + len <= PAGE {
            used.store(n + len, Relaxed);
            return Some(at + n);
        }
    }
    // Nobody else changes the map meanwhile, and what is found changes it last.
    let map = memory::map();
    let i = map
        .regions()
        .iter()
        .position(|r| r.start <= site && site < r.end)?;
    // Below the module: above it the heap may want to grow.
    let below = (0..=i).rev().map(|k| map.regions()[k].start - PAGE);
    let above = (i..map.regions().len()).map(|k| map.regions()[k].end);
    let wanted = |roomy: bool| {
        let mut near = below
            .clone()
            .filter(|at| site - at < REACH)
            .chain(above.clone().filter(|at| at - site < REACH));
        near.find(|at| *at >= 0x1_0000 && is_free(*at, roomy) && map_page(*at))
    };
    wanted(true).or_else(|| wanted(false))?;
    place(site, len)
}

/// Is nothing in the page at `at`? `roomy`: nor in many around it. A small hole is one that the program has made, and may take to be there.
fn is_free(at: u64, roomy: bool) -> bool {
    let list = memory::map().regions();
    let i = list.partition_point(|r| r.end <= at);
    let begins = i.checked_sub(1).map_or(0, |before| list[before].end);
    let ends = list.get(i).map_or(u64::MAX, |next| next.start);
    at + PAGE <= ends && (!roomy || ends - begins >= HOLE)
}

/// Room for a stub that a jump at `site` leads to whose third byte is a breakpoint: one of 256 bytes in every 64 KiB.
fn place_with_breakpoint(site: u64) -> Option<u64> {
    let next = site + JUMP as u64;
    let wanted = |roomy: bool| {
        (1..MAX_WINDOWS).find_map(|k| {
            let window = next.wrapping_sub(k << 16) + ((INT3 as u64) << 8);
            let stub = window.next_multiple_of(STUB);
            let page = stub & !(PAGE - 1);
            let fits = page >= 0x1_0000 && page < site && is_free(page, roomy);
            (fits && map_page(page)).then(|| {
                fill(page, PAGE);
                stub
            })
        })
    };
    wanted(true).or_else(|| wanted(false))
}

/// Nobody else gets room in the first bytes of this page of stubs.
fn fill(page: u64, bytes: u64) {
    for (_, used) in PAGES.all().iter().filter(|p| p.0.load(Relaxed) == page) {
        used.fetch_max(bytes, Relaxed);
    }
}

fn map_page(at: u64) -> bool {
    if PAGES.is_full() || memory::is_ours(at, PAGE) {
        return false;
    }
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE;
    if sys::mmap(at, PAGE, 1, flags, u64::MAX, 0) != at as i64 {
        return false;
    }
    memory::map().insert(memory::Region {
        start: at,
        end: at + PAGE,
        prot: 5,
        ..Default::default()
    });
    PAGES.push(at, 0);
    memory::beside::note(at, PAGE);
    true
}

/// Writes code into pages that the program can't write, and restores their protection.
pub fn write_code(at: u64, bytes: &[u8]) -> bool {
    write_under(at, bytes, PROT_RW)
}

/// As [`write_code`], with this protection meanwhile.
fn write_under(at: u64, bytes: &[u8], meanwhile: u64) -> bool {
    unprotected(at, bytes.len() as u64, meanwhile, || {
        guard::write_bytes(at, bytes)
    })
    .unwrap_or(false)
}

/// Runs `write` while the pages of these bytes have another protection, and restores theirs. `None`: they can't have it.
pub fn unprotected<R>(at: u64, len: u64, meanwhile: u64, write: impl FnOnce() -> R) -> Option<R> {
    let (first, len) = pages_of(at, len);
    if sys::mprotect(first, len, meanwhile) != 0 {
        return None;
    }
    let result = write();
    for page in (first..first + len).step_by(PAGE as usize) {
        let prot = memory::map().at(page).map_or(READ_EXEC, |r| r.prot as u64);
        sys::mprotect(page, PAGE, prot);
    }
    Some(result)
}

/// Writes stub and jump. `among`: other threads may be running the code.
pub fn write(site: u64, stub: u64, form: u32, among: bool) -> bool {
    if form == RESOLVER {
        let mut code = [0xccu8; RESOLVER_STUB as usize];
        let jump = |from: u64, to: u64| {
            let mut jump = [0xe9, 0, 0, 0, 0];
            jump[1..].copy_from_slice(&(to.wrapping_sub(from + 5) as u32).to_le_bytes());
            jump
        };
        let Some(body) = crate::code::resolver::stub(site) else {
            return false;
        };
        let n = body.bytes().len();
        code[..n].copy_from_slice(body.bytes());
        code[n..n + 5].copy_from_slice(&jump(stub + n as u64, site + body.replaces as u64));
        return write_code(stub, &code) && write_code(site, &jump(site, stub));
    }
    let Some((from, old_len)) = call_site::replaced(site, form) else {
        return false;
    };
    let mut old = [0u8; 8];
    if !guard::read_bytes(from, &mut old[..old_len]) {
        return false;
    }
    let gate = crate::machine::asm::rt_hook as *const () as u64;
    let Some(new) = Rewritten::of(site, stub, form, &old, gate) else {
        return false;
    };
    if form == AFTER && MOVED.is_full() {
        return false;
    }
    // Other stubs lie in the page, and are run.
    let meanwhile = if among { PROT_RWX } else { PROT_RW };
    if !write_under(stub, &new.stub, meanwhile) {
        return false;
    }
    let resume = stub + new.resume;
    if form == AFTER {
        note_moved(site + 2, resume);
    }
    let jump = &new.jump[..old_len];
    if among {
        let inner = (form == AFTER).then_some((2, resume));
        return live_code::replace(from, jump, inner);
    }
    write_code(from, jump)
}

/// A direct-mapped cache in front of the list of moved return addresses.
const CACHE: usize = 256;
static MOVED_FROM: [AtomicU64; CACHE] = [const { AtomicU64::new(0) }; CACHE];
static MOVED_TO: [AtomicU64; CACHE] = [const { AtomicU64::new(0) }; CACHE];

fn cache_index(rip: u64) -> usize {
    (rip.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

fn note_moved(from: u64, to: u64) {
    MOVED.push(from, to);
    let i = cache_index(from);
    if MOVED_FROM[i].load(Relaxed) == 0 {
        MOVED_TO[i].store(to, Relaxed);
        MOVED_FROM[i].store(from, Release);
    } else {
        // Two sites share the place: the list decides.
        MOVED_FROM[i].store(u64::MAX, Relaxed);
    }
}

/// The instruction at `from` is at `to` now, and something else lies in its place.
pub fn note_inner(from: u64, to: u64) {
    if MOVED.has(from) || MOVED.is_full() {
        return;
    }
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
        let mut moved = MOVED.all().iter();
        if let Some((_, to)) = moved.find(|m| m.0.load(Relaxed) == rip) {
            return to.load(Relaxed);
        }
    }
    rip
}
