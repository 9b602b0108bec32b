//! The short ways of `pthread_mutex_lock` and `_unlock`, which most calls take: a plain mutex that is free, and that the same thread had last,
//! is taken without leaving the program's stack. All else goes on in the shims.
//!
//! They make a **quiet** operation ([`crate::order`]): the run of the mutex goes on by one, and [`Slot::quiet_left`](reprise_abi::session::Slot)
//! goes down. When it is 0 the shims are asked, so that an engine decides how many operations it lets pass. In a replay those who wait for
//! their turn are called when the mutex is given back: they could not have it earlier.
//!
//! Until they touch nothing any more, r10 holds the function's entry, and all other registers are the program's but rax, rcx, rdx, r8, which a
//! function may change: a fault is shown at the entry ([`super::shim::fault`]).

use super::shim::Function;
use crate::engine::{ENGINE, ORDER_REPLAY};
use crate::order::turns;
use crate::thread::QUIET_BEHIND_PENDING;
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::order::WaitingRoom;

global_asm!(
    r#"
    .hidden rt_fast
    .globl rt_fast
rt_fast:
    // rdi: the mutex: lock at 0, owner at 8, users at 12, kind at 16, run at 24. rax: the entry.
    .hidden rt_fast_lock
    .globl rt_fast_lock
    .p2align 5
rt_fast_lock:
    mov r10, rax
    cmp dword ptr [rdi + 16], 0
    jne rt_mutex_lock
    mov ecx, gs:[72]
    cmp word ptr [rdi + 24], cx
    jne rt_mutex_lock
    mov rdx, gs:[48]
    cmp dword ptr [rdx + {quiet}], 0
    je rt_mutex_lock
    mov r8d, gs:[64]
    test r8d, r8d
    jz rt_mutex_lock
    xor eax, eax
    mov edx, 1
    lock cmpxchg [rdi], edx
    mov rax, r10
    jne rt_mutex_lock
    // Has another thread had it between the look and the lock?
    cmp word ptr [rdi + 24], cx
    jne rt_mutex_entered
    mov rcx, gs:[48]
    add qword ptr [rdi + 24], 0x10000
    dec dword ptr [rcx + {quiet}]
    inc qword ptr gs:[56]
    mov [rdi + 8], r8d
    inc dword ptr [rdi + 12]
    cmp dword ptr [rcx], 0
    .hidden rt_fast_lock_out
    .globl rt_fast_lock_out
rt_fast_lock_out:
    jne rt_mutex_nothing
    xor r8d, r8d
    xor r10d, r10d
    xor r11d, r11d
    xor edx, edx
    xor ecx, ecx
    xor eax, eax
    .hidden rt_fast_lock_ret
    .globl rt_fast_lock_ret
rt_fast_lock_ret:
    ret

    .hidden rt_fast_unlock
    .globl rt_fast_unlock
    .p2align 5
rt_fast_unlock:
    mov r10, rax
    cmp dword ptr [rdi + 16], 0
    jne rt_mutex_unlock
    mov dword ptr [rdi + 8], 0
    dec dword ptr [rdi + 12]
    xor ecx, ecx
    xchg [rdi], ecx
    // From here on the mutex may be gone.
    inc qword ptr gs:[56]
    cmp ecx, 2
    je rt_mutex_left
    mov rcx, gs:[48]
    cmp dword ptr [rcx], 0
    .hidden rt_fast_unlock_out
    .globl rt_fast_unlock_out
rt_fast_unlock_out:
    jne rt_mutex_nothing
    xor r8d, r8d
    xor r10d, r10d
    xor r11d, r11d
    xor edx, edx
    xor ecx, ecx
    xor eax, eax
    .hidden rt_fast_unlock_ret
    .globl rt_fast_unlock_ret
rt_fast_unlock_ret:
    ret

    // As rt_fast_unlock, in a replay: others may wait for their turn.
    .hidden rt_fast_unlock_again
    .globl rt_fast_unlock_again
    .p2align 5
rt_fast_unlock_again:
    mov r10, rax
    cmp dword ptr [rdi + 16], 0
    jne rt_mutex_unlock
    mov dword ptr [rdi + 8], 0
    dec dword ptr [rdi + 12]
    mov r8, [rdi + 24]
    xor ecx, ecx
    xchg [rdi], ecx
    inc qword ptr gs:[56]
    cmp ecx, 2
    je rt_mutex_left
    // The room of those who wait for the run.
    lea rdx, [rdi + 24]
    movabs rcx, {factor}
    imul rcx, rdx
    shr rcx, {shift}
    movabs rdx, {rooms}
    cmp dword ptr [rdx + 8 * rcx + {waiting}], 0
    jne rt_mutex_called
    mov rcx, gs:[48]
    cmp dword ptr [rcx], 0
    jmp rt_fast_unlock_out
    .hidden rt_fast_end
    .globl rt_fast_end
rt_fast_end:
"#,
    quiet = const QUIET_BEHIND_PENDING,
    factor = const turns::FACTOR,
    shift = const turns::SHIFT,
    rooms = const turns::rooms(),
    waiting = const offset_of!(WaitingRoom, waiting),
);

extern "C" {
    fn rt_fast();
    fn rt_fast_lock();
    fn rt_fast_lock_out();
    fn rt_fast_lock_ret();
    fn rt_fast_unlock();
    fn rt_fast_unlock_out();
    fn rt_fast_unlock_ret();
    fn rt_fast_unlock_again();
    fn rt_fast_end();
}

fn at(code: unsafe extern "C" fn()) -> u64 {
    code as *const () as u64
}

/// Where a function's hook leads: the short way if there is one, else the shim.
pub fn entry(f: &Function) -> u64 {
    match f.name {
        // Every unlock is to be seen.
        _ if crate::races::on() => at(f.shim),
        b"pthread_mutex_lock" => at(rt_fast_lock),
        b"pthread_mutex_unlock" if ENGINE.load(Relaxed) == ORDER_REPLAY => at(rt_fast_unlock_again),
        b"pthread_mutex_unlock" => at(rt_fast_unlock),
        _ => at(f.shim),
    }
}

/// Is this code here?
pub fn is_inside(pc: u64) -> bool {
    (at(rt_fast)..at(rt_fast_end)).contains(&pc)
}

/// Is all done there but returning 0?
pub fn is_out(pc: u64) -> bool {
    (at(rt_fast_lock_out)..=at(rt_fast_lock_ret)).contains(&pc)
        || (at(rt_fast_unlock_out)..=at(rt_fast_unlock_ret)).contains(&pc)
}
