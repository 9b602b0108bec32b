//! Threads for which rdtsc does not trap (`order`). To switch between a thread for which it does and one for which it doesn't, as between a
//! server's and the idle one, the kernel writes a control register: under a hypervisor that is an exit of its own, twice a switch, and a
//! server that sleeps between requests loses a seventh of its time by it (ARCHITECTURE, "Instructions that trap").
//!
//! So all code is looked through when it is mapped. Where each place that has the bytes of rdtsc or rdtscp either is one or is proven to be
//! none ([`seek`]), those that are one are replaced by `int3` when the process makes its first thread; nothing needs to trap any more then,
//! and the threads **run free**. When code comes later in which that can't be said, a compiler's own for one, or which reads the clock, all of
//! them trap again before it can run, and for good.
//!
//! Each replacement is an event. A replay traps, and finds the same bytes.

use crate::functions::Functions;
use crate::instruction;
use crate::memory::{map, Region};
use crate::patch;
use crate::searched::{self, Found, Searched, What};
use crate::seek::{self, Way};
use crate::signal::state::{Siginfo, SIGCUT};
use crate::sys;
use crate::thread::{current, slot, Block};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use reprise_abi::event::{Instruction, Kind};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::region_flags;
use reprise_abi::syscalls::nr;

/// Most sites of a process.
const MAX_SITES: usize = 512;
/// How often others are looked at before the processor is given to them.
const BUSY_LOOKS: usize = 1000;
/// `si_code` of the signal that makes a thread's clock trap.
const ARM: i32 = -4711;

/// What holds for a process; it only grows.
mod state {
    /// The clock traps, as long as there is one thread.
    pub const BEGINNING: u32 = 0;
    /// Threads run free.
    pub const FREE: u32 = 1;
    /// The clock traps.
    pub const TRAPS: u32 = 2;
}

static STATE: AtomicU32 = AtomicU32::new(state::BEGINNING);
/// For which slot's thread the clock does not trap.
static FREE: [AtomicBool; MAX_SLOTS] = [const { AtomicBool::new(false) }; MAX_SLOTS];
static SITES: [AtomicU64; MAX_SITES] = [const { AtomicU64::new(0) }; MAX_SITES];
static LEN: AtomicUsize = AtomicUsize::new(0);

/// In [`SITES`]: the place was an rdtscp.
const IS_RDTSCP: u64 = 1 << 63;
/// The instructions, and how many bytes of them are looked for.
const RDTSC: [u8; 2] = [0x0f, 0x31];
const RDTSCP: [u8; 3] = [0x0f, 0x01, 0xf9];
/// What stands in their place; the third byte of the longer one stays.
const TRAP: [u8; 2] = [0xcc, 0x90];
const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;

/// Which instruction was replaced at `pc`.
pub fn replaced(pc: u64) -> Option<Instruction> {
    let sites = &SITES[..LEN.load(Acquire).min(MAX_SITES)];
    let site = sites
        .iter()
        .map(|s| s.load(Relaxed))
        .find(|s| s & !IS_RDTSCP == pc)?;
    Some(match site & IS_RDTSCP {
        0 => Instruction::Rdtsc,
        _ => Instruction::Rdtscp,
    })
}

fn remember(pc: u64, is_rdtscp: bool) -> bool {
    let i = LEN.load(Relaxed);
    if i >= MAX_SITES {
        return false;
    }
    SITES[i].store(pc | if is_rdtscp { IS_RDTSCP } else { 0 }, Relaxed);
    LEN.store(i + 1, Release);
    true
}

/// Replay: replaces the instruction at `pc`.
pub fn replace(pc: u64, is_rdtscp: bool) -> bool {
    remember(pc, is_rdtscp) && patch::write_code(pc, &TRAP)
}

/// Something else lies there now.
pub fn forget(start: u64, end: u64) {
    for s in &SITES[..LEN.load(Acquire).min(MAX_SITES)] {
        if (start..end).contains(&(s.load(Relaxed) & !IS_RDTSCP)) {
            s.store(0, Relaxed);
        }
    }
}

/// Does the clock trap in this process?
pub fn traps() -> bool {
    STATE.load(SeqCst) != state::FREE
}

/// Record: looks through the code that a program has at its first instruction.
pub fn start() {
    let mut next = 0;
    while let Some(r) = map().regions().iter().find(|r| r.start >= next).copied() {
        next = r.end;
        collect(&r, searched::initial_content(&r));
    }
}

/// There is one thread: remembers where a mapping reads the clock.
fn collect(r: &Region, content: [u64; 3]) {
    let mut found = Found::default();
    let clear = is_clear(r, content, &mut found);
    let mut fit = true;
    for pc in found.sites() {
        let is_rdtscp = crate::guard::read::<[u8; 3]>(*pc) == Some(RDTSCP);
        fit &= remember(*pc, is_rdtscp);
    }
    if !clear || !fit {
        STATE.store(state::TRAPS, SeqCst);
    }
}

/// Record: a thread is about to be made. From the first on threads run free, if they may.
pub fn before_thread(t: &mut Block) {
    if STATE.load(Relaxed) != state::BEGINNING {
        return;
    }
    for site in &SITES[..LEN.load(Relaxed).min(MAX_SITES)] {
        let (pc, is_rdtscp) = match site.load(Relaxed) {
            0 => continue,
            s => (s & !IS_RDTSCP, s & IS_RDTSCP != 0),
        };
        let there = match crate::guard::read::<[u8; 3]>(pc) {
            Some(code) => code == RDTSCP || code[..2] == RDTSC,
            None => false,
        };
        if !there || !patch::write_code(pc, &TRAP) {
            STATE.store(state::TRAPS, SeqCst);
            return;
        }
        let which = is_rdtscp as i64;
        crate::serial::events::plain(Kind::Patch, t.slot, patch::CLOCK, which, &[pc, 0]);
    }
    STATE.store(state::FREE, SeqCst);
    FREE[t.slot as usize].store(true, SeqCst);
    instruction::let_clock_run();
}

/// Record: a thread begins, of this process or the first of a new one. The kernel gave it what its maker had.
pub fn thread_begins(t: &Block) {
    if STATE.load(Relaxed) == state::BEGINNING {
        return;
    }
    let own = &FREE[t.slot as usize];
    own.store(true, SeqCst);
    if traps() {
        // That may have come about since it was made.
        instruction::trap_clock();
        own.store(false, SeqCst);
    }
}

/// The child of a fork has none of the other threads.
pub fn after_fork() {
    FREE.iter().for_each(|f| f.store(false, Relaxed));
}

/// Record: a thread makes no instruction of the program any more.
pub fn thread_ends(t: &Block) {
    FREE[t.slot as usize].store(false, SeqCst);
}

/// Record: a call has mapped `len` bytes at `at`, or changed how they are protected, under the lock of the address space. `content`: hash of the
/// file that was mapped, zeros where it isn't known. Must the clock [trap in all threads](all_trap) before anybody runs what is there?
pub fn after_mapping(at: u64, len: u64, content: [u64; 2]) -> bool {
    let state = STATE.load(SeqCst);
    if state == state::TRAPS {
        // Another thread may be about to make it so.
        return FREE.iter().any(|f| f.load(SeqCst));
    }
    let (mut at, end) = (at, at.saturating_add(len));
    while let Some(r) = map().at(at).filter(|_| at < end) {
        at = r.end;
        let content = [content[0], content[1], r.offset];
        if state == state::BEGINNING {
            collect(&r, content);
            continue;
        }
        let mut found = Found::default();
        if !is_clear(&r, content, &mut found) || !found.sites().is_empty() {
            return true;
        }
    }
    false
}

/// Is it known of each place of a mapping whether the clock is read there? Those where it is are added.
fn is_clear(r: &Region, content: [u64; 3], found: &mut Found) -> bool {
    let ours = |pc| patch::is_stub(pc) || crate::locked::is_stub(pc);
    if r.prot & PROT_EXEC == 0
        || r.flags & region_flags::VDSO != 0
        || ours(r.start) && ours(r.end - 1)
    {
        return true;
    }
    if r.flags & region_flags::FILE == 0
        || r.flags & region_flags::SHARED != 0
        || r.prot & PROT_WRITE != 0
    {
        return false;
    }
    let searched = Searched::of(r, content, What::Clock);
    if searched
        .as_ref()
        .is_some_and(|s| s.tell(r, RDTSCP.len(), found))
    {
        return !found.is_unsure();
    }
    search(r, found);
    if let Some(s) = searched {
        s.remember(r, found);
    }
    !found.is_unsure()
}

fn search(r: &Region, found: &mut Found) {
    let functions = Functions::around(r);
    for (first, len) in [(RDTSC, 2), ([RDTSCP[0], RDTSCP[1]], 3)] {
        let mut way = Way::default();
        let mut at = r.start;
        while let Some(pc) = seek::find(at, r.end, first) {
            at = pc + 1;
            if len == 3 && crate::guard::read::<u8>(pc + 2) != Some(RDTSCP[2]) {
                continue;
            }
            let known = functions
                .as_ref()
                .and_then(|f| seek::is_instruction(f, &mut way, pc));
            match known {
                Some(true) => found.add(pc),
                Some(false) => {}
                None => return found.be_unsure(),
            }
        }
    }
}

/// Record: makes the clock trap in all threads of the process, before this returns. The caller holds no lock.
pub fn all_trap(t: &Block) {
    STATE.store(state::TRAPS, SeqCst);
    FREE[t.slot as usize].store(false, SeqCst);
    instruction::trap_clock();
    let pid = sys::call(nr::GETPID, &[]) as u64;
    for (i, free) in FREE.iter().enumerate() {
        let mut looks = 0;
        let mut told = 0;
        while free.load(SeqCst) {
            let tid = slot(i as u32).kernel_tid.load(SeqCst);
            if tid != 0 && tid != told {
                told = tid;
                let mut info = Siginfo::ZERO;
                info.words[0] = SIGCUT as u64;
                info.words[1] = ARM as u32 as u64;
                let info = info.words.as_ptr() as u64;
                let args = [pid, tid as u64, SIGCUT as u64, info];
                if sys::is_error(sys::call(nr::RT_TGSIGQUEUEINFO, &args)) {
                    // It has ended, or is a vfork's child, which only execs.
                    break;
                }
            }
            looks += 1;
            if looks > BUSY_LOOKS {
                sys::call(nr::SCHED_YIELD, &[]);
            }
        }
    }
}

/// Takes the signal that asks the calling thread to let its clock trap.
pub fn takes(info: &Siginfo) -> bool {
    let ours = info.code() == ARM;
    if ours {
        instruction::trap_clock();
        FREE[current().slot as usize].store(false, SeqCst);
    }
    ours
}
