//! Why a thread has stopped by SIGTRAP: of its tracer's doing, or of the program's (ptrace(2), sigaction(2)).
//!
//! A debug exception says in DR6 what it is about. Under some hypervisors that is empty now and then (measured: about once in some millions of steps, on a machine
//! with more to do than it has processors), and the kernel then takes it for that of an `int1`: si_code is TRAP_BRKPT (arch/x86/kernel/traps.c, `exc_debug_user`).
//! A program that has made no `int1` is not to see it; what it was follows from what the tracer has asked for, and from the instruction.

use crate::breakpoints::Watched;
use crate::debuggee::{Debuggee, General};
use crate::origin::flow;
use crate::ptrace;
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use libc::{pid_t, user_regs_struct};

/// What a stop by SIGTRAP is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trap {
    /// An instruction of the program's, or somebody has sent it.
    Own,
    /// The thread was told to make one instruction.
    Step,
    /// Memory that is watched was touched.
    DebugRegister,
    /// One of these two; which, the processor doesn't tell.
    Untold,
}

/// Bytes of the longest instruction.
const MOST_CODE: usize = 15;
/// An instruction that has been made has moved its stack or string pointer by so many bytes at the most.
const MOVED: u64 = 16;

impl Debuggee {
    /// Why the thread that has these registers stopped.
    pub(crate) fn trap(&self, tid: pid_t, r: &user_regs_struct) -> Trap {
        const TRAP_BRKPT: i32 = 1;
        const TRAP_TRACE: i32 = 2;
        const TRAP_HWBKPT: i32 = 4;
        const INT1: u8 = 0xf1;
        match ptrace::signal_info(tid).map(|i| i.si_code) {
            Ok(TRAP_TRACE) => Trap::Step,
            Ok(TRAP_HWBKPT) => Trap::DebugRegister,
            Ok(TRAP_BRKPT) if self.byte_before(r) != Some(INT1) => Trap::Untold,
            _ => Trap::Own,
        }
    }

    fn byte_before(&self, r: &user_regs_struct) -> Option<u8> {
        let mut before = [0];
        let known = self.read(r.rip.wrapping_sub(1), &mut before).is_ok();
        known.then_some(before[0])
    }

    /// Is it a trap of our doing that came when nobody waited for it any more? The program is never to see it. Whose own trap flag was set before an instruction has it
    /// still, unless that was one that takes it away. Debug registers are always ours: a program whose own they were would be traced, and perf_event_open(2) traps
    /// with another code.
    pub(crate) fn is_late(&self, tid: pid_t, r: &user_regs_struct) -> bool {
        const TRAP_FLAG: u64 = 1 << 8;
        const POPF: u8 = 0x9d;
        let no_flag = r.eflags & TRAP_FLAG == 0;
        match self.trap(tid, r) {
            Trap::DebugRegister => true,
            Trap::Untold => no_flag,
            Trap::Step => no_flag && self.byte_before(r).is_some_and(|b| b != POPF),
            Trap::Own => false,
        }
    }

    /// The watchpoint that a thread has hit, if it has, which stopped with the registers `r`. `before`: it has made one instruction, and had these before.
    pub(crate) fn watch_hit(
        &self,
        tid: pid_t,
        r: &user_regs_struct,
        before: Option<&user_regs_struct>,
    ) -> Option<Watched> {
        if !self.points.is_watching() {
            return None;
        }
        self.told_hit(tid).or_else(|| {
            let untold = self.trap(tid, r) == Trap::Untold;
            untold.then(|| self.untold_hit(r, before)).flatten()
        })
    }

    /// Which it was, where the processor doesn't tell. Without a step it was one of them.
    fn untold_hit(
        &self,
        r: &user_regs_struct,
        before: Option<&user_regs_struct>,
    ) -> Option<Watched> {
        let mut all = self.points.all_watched();
        if let Some(before) = before {
            let mut code = [0; MOST_CODE];
            let n = self.read_some(before.rip, &mut code).unwrap_or(0);
            let i = decoded(&code[..n], before.rip);
            return all.find(|w| touches(&i, before, w, 0));
        }
        let first = self.points.all_watched().next();
        all.find(|w| {
            (1..=MOST_CODE).any(|len| {
                let at = r.rip.wrapping_sub(len as u64);
                let mut code = [0; MOST_CODE];
                let known = self.read(at, &mut code[..len]).is_ok();
                let i = decoded(&code[..len], at);
                known && i.len() == len && touches(&i, r, w, MOVED)
            })
        })
        .or(first)
    }
}

fn decoded(code: &[u8], at: u64) -> Instruction {
    Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode()
}

/// Does the instruction, begun with these registers, use memory that is watched, or what is `beside` it?
fn touches(i: &Instruction, r: &user_regs_struct, w: &Watched, beside: u64) -> bool {
    let g = General::of(r);
    let mut factory = InstructionInfoFactory::new();
    factory.info(i).used_memory().iter().any(|m| {
        let at = m.virtual_address(0, |register, _, _| flow::value(i, &g, register));
        let len = m.memory_size().size().max(1) as u64;
        at.is_some_and(|at| {
            at.saturating_sub(beside) < w.at.saturating_add(w.len)
                && w.at < at.saturating_add(len + beside)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdbstub::target::ext::breakpoints::WatchKind;

    #[test]
    fn what_an_instruction_touches() {
        // mov [rax + 8], ecx; push rbx; rep stosb
        let cases: [(&[u8], u64, bool); 7] = [
            (&[0x89, 0x48, 0x08], 0x1008, true),
            (&[0x89, 0x48, 0x08], 0x1000, false),
            (&[0x89, 0x48, 0x08], 0x1010, false),
            (&[0x53], 0x1ff8, true),
            (&[0x53], 0x2000, false),
            (&[0xf3, 0xaa], 0x3000, true),
            (&[0x01, 0xd8], 0x1000, false),
        ];
        // SAFETY: plain integers.
        let mut r: user_regs_struct = unsafe { std::mem::zeroed() };
        (r.rax, r.rsp, r.rdi, r.rcx) = (0x1000, 0x2000, 0x3000, 4);
        for (code, at, is) in cases {
            let (len, kind) = (8, WatchKind::Write);
            let w = Watched { at, len, kind };
            assert_eq!(
                touches(&decoded(code, 0), &r, &w, 0),
                is,
                "{code:x?} {at:#x}"
            );
        }
    }
}
