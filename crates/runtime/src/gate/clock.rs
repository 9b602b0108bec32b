//! Threads for which rdtsc does not trap (`order`). To switch between a thread for which it does and one for which it doesn't, as between a
//! server's and the idle one, the kernel writes a control register: under a hypervisor that is an exit of its own, twice a switch, and a
//! server that sleeps between requests loses a seventh of its time by it (docs/internals/gates.md).
//!
//! So all code is looked through when it is mapped. Where each place that has the bytes of rdtsc or rdtscp either is one or is proven to be
//! none ([`seek`]), those that are one are replaced by `int3` when the process makes its first thread; nothing needs to trap any more then,
//! and the threads **run free**. When code comes later in which that can't be said, a compiler's own for one, or which reads the clock, all of
//! them trap again before it can run, and for good.
//!
//! Each replacement is an event. A replay traps, and finds the same bytes.

use crate::code::functions;
use crate::code::modules;
use crate::code::patch;
use crate::code::replaced::{self, Was, TRAP};
use crate::code::searched::{self, Found, What};
use crate::code::seek;
use crate::gate::instruction;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::{self, Region};
use crate::thread::signals::{send_own, Siginfo};
use crate::thread::{current, slot, Block};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use reprise_abi::event::Kind;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::region_flags;
use reprise_code::sweep::{self, Way};

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

/// The instructions, and how many bytes of them are looked for.
const RDTSC: [u8; 2] = [0x0f, 0x31];
const RDTSCP: [u8; 3] = [0x0f, 0x01, 0xf9];

/// Does the clock trap in this process?
pub fn traps() -> bool {
    STATE.load(SeqCst) != state::FREE
}

/// Record: looks through the code that a program has at its first instruction.
pub fn start() {
    for r in memory::each() {
        collect(&r, searched::initial_content(&r), modules::had_module(&r));
    }
}

/// There is one thread: remembers where a mapping reads the clock.
fn collect(r: &Region, content: [u64; 3], ours: bool) {
    let known = known(r, content, ours);
    let mut fit = true;
    for pc in known.iter().flat_map(|found| found.sites()) {
        let was = match guard::read::<[u8; 3]>(*pc) {
            Some(RDTSCP) => Was::Rdtscp,
            _ => Was::Rdtsc,
        };
        fit &= replaced::remember(*pc, was);
    }
    if known.is_none() || !fit {
        STATE.store(state::TRAPS, SeqCst);
    }
}

/// Record: nobody has looked where the program reads the clock, while it had one thread: it traps for good.
pub fn keeps_trapping() {
    let (beginning, traps) = (state::BEGINNING, state::TRAPS);
    let _ = STATE.compare_exchange(beginning, traps, SeqCst, SeqCst);
}

/// Record: a thread is about to be made. From the first on threads run free, if they may.
pub fn before_thread(t: &mut Block) {
    if STATE.load(Relaxed) != state::BEGINNING {
        return;
    }
    for (pc, was) in replaced::all().filter(|(_, was)| *was != Was::Cpuid) {
        let code = guard::read::<[u8; 3]>(pc);
        let there = code.is_some_and(|code| code == RDTSCP || code[..2] == RDTSC);
        if !there || !patch::write_code(pc, &TRAP) {
            STATE.store(state::TRAPS, SeqCst);
            return;
        }
        let which = (was == Was::Rdtscp) as i64;
        crate::log::events::plain(Kind::Patch, t.slot, patch::CLOCK, which, &[pc, 0]);
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
    let ours = modules::maps_module();
    memory::without_hole(at, at.saturating_add(len)).any(|r| {
        let content = [content[0], content[1], r.offset];
        if state == state::BEGINNING {
            collect(&r, content, ours);
            return false;
        }
        known(&r, content, ours).is_none_or(|found| !found.sites().is_empty())
    })
}

/// Where the clock is read in a mapping, if that is known of each of its places. `ours`: it belongs to a module of this process; elsewhere no
/// instruction may be replaced.
fn known(r: &Region, content: [u64; 3], ours: bool) -> Option<Found> {
    let stub = patch::is_any_stub;
    if !r.is_executable() || r.flags & region_flags::VDSO != 0 || stub(r.start) && stub(r.end - 1) {
        return Some(Found::default());
    }
    if !r.is_code() || r.is_writable() {
        return None;
    }
    let found = searched::found(r, content, What::Clock, RDTSCP.len(), search);
    let usable = ours || found.sites().is_empty();
    (usable && !found.is_unsure()).then_some(found)
}

fn search(r: &Region, found: &mut Found) {
    let functions = functions::around(r);
    for (first, len) in [(RDTSC, 2), ([RDTSCP[0], RDTSCP[1]], 3)] {
        let mut way = Way::default();
        let mut at = r.start;
        while let Some(pc) = seek::find(at, r.end, first) {
            at = pc + 1;
            if len == 3 && guard::read::<u8>(pc + 2) != Some(RDTSCP[2]) {
                continue;
            }
            let known = functions
                .as_ref()
                .and_then(|f| sweep::is_instruction(f, &mut way, pc));
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
    let pid = sys::getpid() as u64;
    for (i, free) in FREE.iter().enumerate() {
        let mut looks = 0;
        let mut told = 0;
        while free.load(SeqCst) {
            let tid = slot(i as u32).kernel_tid.load(SeqCst);
            if tid != 0 && tid != told {
                told = tid;
                if sys::is_error(send_own(pid, tid, ARM)) {
                    // It has ended, or is a vfork's child, which only execs.
                    break;
                }
            }
            looks += 1;
            if looks > BUSY_LOOKS {
                sys::sched_yield();
            }
        }
    }
}

/// Takes the signal that asks the calling thread to let its clock trap.
pub fn takes(info: &Siginfo) -> bool {
    let ours = info.code() == ARM;
    if ours {
        instruction::trap_clock();
        FREE[current().slot_number() as usize].store(false, SeqCst);
    }
    ours
}
