//! Was a trap that of a single step (TF)?
//!
//! What the processor gives as its reason (DR6) may be lost on the way through a hypervisor. The kernel then takes the trap for that of an `int1` (arch/x86/kernel/traps.c,
//! `exc_debug_user`): its si_code is TRAP_BRKPT. The thread has stepped all the same, and whose `int1` it would be can be looked for.

use crate::machine::guard;
use crate::signal::frame::SigContext;
use crate::signal::kernel::TRAP_FLAG;
use crate::thread::signals::{Siginfo, SIGTRAP};

/// si_code of a single step, ...
const TRAP_TRACE: i32 = 2;
/// ... and of a trap for which the processor gave no reason.
const TRAP_BRKPT: i32 = 1;
/// The instruction that traps by itself.
const INT1: u8 = 0xf1;

/// Has the thread trapped because it made one instruction with the trap flag set?
pub fn is_step(info: &Siginfo, c: &SigContext) -> bool {
    let before = || guard::read::<u8>(c.rip.wrapping_sub(1));
    info.signal() == SIGTRAP && is_by_flag(info.code(), c.rflags, before)
}

/// `before`: the byte before the instruction that comes next.
fn is_by_flag(code: i32, flags: u64, before: impl FnOnce() -> Option<u8>) -> bool {
    match code {
        TRAP_TRACE => true,
        TRAP_BRKPT => flags & TRAP_FLAG != 0 && before() != Some(INT1),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::kernel::SI_KERNEL;

    #[test]
    fn a_step_is_known_without_its_reason() {
        let nop = || Some(0x90);
        assert!(is_by_flag(TRAP_TRACE, TRAP_FLAG, nop));
        // popf has taken the flag away.
        assert!(is_by_flag(TRAP_TRACE, 0, nop));
        assert!(is_by_flag(TRAP_BRKPT, TRAP_FLAG, nop));
        // Nothing that can be read lies before it.
        assert!(is_by_flag(TRAP_BRKPT, TRAP_FLAG, || None));
        assert!(!is_by_flag(TRAP_BRKPT, TRAP_FLAG, || Some(INT1)));
        assert!(!is_by_flag(TRAP_BRKPT, 0, nop));
        assert!(!is_by_flag(SI_KERNEL, TRAP_FLAG, nop));
    }
}
