//! Non-deterministic instructions: rdtsc and rdtscp trap by PR_SET_TSC, cpuid by cpuid faulting; both arrive as SIGSEGV. Where the
//! processor has no cpuid faulting, cpuid arrives as SIGTRAP (see [`crate::gate::cpuid`]).

use crate::code::replaced::{self, Was};
use crate::engine::Engine;
use crate::gate::clock;
use crate::machine::guard;
use crate::machine::sys;
use crate::signal::frame::SigContext;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::event::Instruction;

const PR_SET_TSC: u64 = 26;
const PR_TSC_ENABLE: u64 = 1;
const PR_TSC_SIGSEGV: u64 = 2;
const ARCH_SET_CPUID: u64 = 0x1012;

/// Makes rdtsc and, where the processor can, cpuid trap in this thread and all that it creates.
pub fn arm() {
    trap_clock();
    if session().flags & reprise_abi::session::FLAG_CPUID_FAULTING != 0 {
        sys::arch_prctl(ARCH_SET_CPUID, 0);
    }
}

/// From now on reading the clock traps in this thread.
pub fn trap_clock() {
    sys::prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
}

/// From now on it doesn't.
pub fn let_clock_run() {
    sys::prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
}

/// Reads the time stamp counter for the program; (counter, ecx of rdtscp).
pub fn read_clock(which: Instruction) -> (u64, u64) {
    let mut processor = 0u32;
    // SAFETY: reads a counter; the program itself wants rdtscp, where the processor has it.
    let mut read = || unsafe {
        match which {
            Instruction::Rdtscp => core::arch::x86_64::__rdtscp(&mut processor),
            _ => core::arch::x86_64::_rdtsc(),
        }
    };
    let tsc = loop {
        if clock::traps() {
            let_clock_run();
        }
        // Guarded, since another thread may have it trap in this moment.
        if let Some(tsc) = guard::guarded(&mut read) {
            break tsc;
        }
    };
    if clock::traps() {
        trap_clock();
    }
    (tsc, processor.into())
}

/// Emulates the instruction at the context's pc if it is one of ours.
pub fn emulate<E: Engine>(t: &mut Block, c: &mut SigContext) -> bool {
    let mut code = [0u8; 3];
    // Two bytes tell most; the third is read only when it is needed, it may lie on a page that isn't there.
    if !guard::read_bytes(c.rip, &mut code[..2]) {
        return false;
    }
    let (which, len) = match code {
        [0x0f, 0x31, _] => (Instruction::Rdtsc, 2),
        [0x0f, 0xa2, _] => {
            cpuid(c);
            c.rip += 2;
            return true;
        }
        [0x0f, 0x01, _] if guard::read::<u8>(c.rip + 2) == Some(0xf9) => (Instruction::Rdtscp, 3),
        _ => return false,
    };
    if t.slot().tsc_faults.load(Relaxed) != 0 {
        return false;
    }
    tell_clock::<E>(t, c, which, len);
    true
}

/// Gives the program the clock, and goes on behind the instruction.
fn tell_clock<E: Engine>(t: &mut Block, c: &mut SigContext, which: Instruction, len: u64) {
    t.slot().last_pc.store(c.rip, Relaxed);
    session().counters.instructions.fetch_add(1, Relaxed);
    c.rip += len;
    let (tsc, aux) = E::instruction(t, which);
    c.rax = tsc & 0xffff_ffff;
    c.rdx = tsc >> 32;
    if which == Instruction::Rdtscp {
        c.rcx = aux;
    }
}

/// What became of a trap that may stand for an instruction that was replaced.
pub enum Stood {
    /// For none.
    ForNothing,
    /// The instruction was made.
    Made,
    /// For one that the program wants to fault (PR_SET_TSC): the context's pc is at it.
    Faults,
}

/// Emulates an instruction that was replaced, when it was one that trapped: the context's pc is behind its first byte.
pub fn emulate_replaced<E: Engine>(t: &mut Block, c: &mut SigContext) -> Stood {
    let pc = c.rip.wrapping_sub(1);
    let (which, len) = match replaced::at(pc) {
        None => return Stood::ForNothing,
        Some(Was::Cpuid) => {
            cpuid(c);
            c.rip += 1;
            return Stood::Made;
        }
        Some(Was::Rdtsc) => (Instruction::Rdtsc, 2),
        Some(Was::Rdtscp) => (Instruction::Rdtscp, 3),
    };
    c.rip = pc;
    if t.slot().tsc_faults.load(Relaxed) != 0 {
        return Stood::Faults;
    }
    tell_clock::<E>(t, c, which, len);
    Stood::Made
}

/// cpuid from the session's table.
fn cpuid(c: &mut SigContext) {
    let s = session();
    let (leaf, subleaf) = (c.rax as u32, c.rcx as u32);
    let table = &s.cpuid[..s.cpuid_len as usize];
    let exact = table
        .iter()
        .find(|l| l.leaf == leaf && l.subleaf == subleaf);
    // Leaves without subleaves are listed once.
    let entry = exact.or_else(|| {
        table
            .iter()
            .find(|l| l.leaf == leaf && l.subleaf == u32::MAX)
    });
    let regs = entry.map_or([0; 4], |l| l.regs);
    c.rax = regs[0] as u64;
    c.rbx = regs[1] as u64;
    c.rcx = regs[2] as u64;
    c.rdx = regs[3] as u64;
}
