//! What only the kernel knows of a thread, asked for and set by calls in its name ([`crate::inject`]). The calls want room in the thread's
//! memory.

use crate::inject::Gate;
use libc::pid_t;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;

/// A stack_t: address, flags, size.
pub type SignalStack = [u64; 3];
/// prctl(2): where the kernel clears a thread's id when it ends.
pub(crate) const PR_GET_TID_ADDRESS: u64 = 40;
/// In `ss_flags`: what only says that the thread is on it.
const SS_ONSTACK: u64 = 1;
/// Below a thread's stack pointer and its red zone: room for the answer of a call.
const ROOM_BELOW: u64 = 1024;

/// Where the kernel clears the thread's id when it ends, and its signal stack. `memory` is its process's, `sp` its stack pointer.
///
/// # Errors
/// When the thread is gone.
pub fn ask(gate: Gate, tid: pid_t, memory: &File, sp: u64) -> Result<(u64, SignalStack)> {
    let word = |at| -> Result<u64> {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    };
    with_room(memory, sp, |room| {
        gate.call(tid, libc::SYS_prctl, &[PR_GET_TID_ADDRESS, room])?
            .ok()?;
        let clears = word(room)?;
        gate.call(tid, libc::SYS_sigaltstack, &[0, room])?.ok()?;
        Ok((clears, [word(room)?, word(room + 8)?, word(room + 16)?]))
    })
}

/// Gives the thread this signal stack.
///
/// # Errors
/// As [`ask`].
pub fn give_signal_stack(
    gate: Gate,
    tid: pid_t,
    memory: &File,
    sp: u64,
    [at, flags, len]: SignalStack,
) -> Result<()> {
    with_room(memory, sp, |room| {
        for (word, i) in [at, flags & !SS_ONSTACK, len].into_iter().zip(0..) {
            memory.write_all_at(&word.to_le_bytes(), room + 8 * i)?;
        }
        gate.call(tid, libc::SYS_sigaltstack, &[room, 0])?.ok()?;
        Ok(())
    })
}

/// Gives room for a [`SignalStack`], where a thread with this stack pointer keeps nothing that a call would not find again.
fn with_room<T>(memory: &File, sp: u64, f: impl FnOnce(u64) -> Result<T>) -> Result<T> {
    let room = (sp - ROOM_BELOW) & !63;
    let mut kept = [0; std::mem::size_of::<SignalStack>()];
    memory.read_exact_at(&mut kept, room)?;
    let told = f(room)?;
    memory.write_all_at(&kept, room)?;
    Ok(told)
}
