//! Non-deterministic instructions: rdtsc and rdtscp trap by PR_SET_TSC, cpuid by cpuid faulting; both arrive as SIGSEGV. Where the
//! processor has no cpuid faulting, cpuid arrives as SIGTRAP (see [`crate::cpuid`]).

use crate::engine::Engine;
use crate::guard;
use crate::signal::frame::SigContext;
use crate::sys;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::event::Instruction;
use reprise_abi::syscalls::nr;

const PR_SET_TSC: u64 = 26;
const PR_TSC_ENABLE: u64 = 1;
const PR_TSC_SIGSEGV: u64 = 2;
const ARCH_SET_CPUID: u64 = 0x1012;

/// Makes rdtsc and, where the processor can, cpuid trap in this thread and all that it creates.
pub fn arm() {
    sys::call(nr::PRCTL, &[PR_SET_TSC, PR_TSC_SIGSEGV]);
    if session().flags & reprise_abi::session::FLAG_CPUID_FAULTING != 0 {
        sys::call(nr::ARCH_PRCTL, &[ARCH_SET_CPUID, 0]);
    }
}

/// Reads the time stamp counter for the program; (counter, ecx of rdtscp).
pub fn read_clock(which: Instruction) -> (u64, u64) {
    sys::call(nr::PRCTL, &[PR_SET_TSC, PR_TSC_ENABLE]);
    // SAFETY: reads a counter.
    let tsc = unsafe { core::arch::x86_64::_rdtsc() };
    sys::call(nr::PRCTL, &[PR_SET_TSC, PR_TSC_SIGSEGV]);
    // The processor's number would change with every migration; the program sees processor 0 of node 0.
    let _ = which;
    (tsc, 0)
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
    t.slot().last_pc.store(c.rip, Relaxed);
    session().counters.instructions.fetch_add(1, Relaxed);
    c.rip += len;
    let (tsc, aux) = E::instruction(t, which);
    c.rax = tsc & 0xffff_ffff;
    c.rdx = tsc >> 32;
    if which == Instruction::Rdtscp {
        c.rcx = aux;
    }
    true
}

/// Emulates a cpuid that was replaced, when it was one that trapped: the context's pc is behind its first byte.
pub fn emulate_replaced(c: &mut SigContext) -> bool {
    let is_site = crate::cpuid::is_site(c.rip.wrapping_sub(1));
    if is_site {
        cpuid(c);
        c.rip += 1;
    }
    is_site
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
