//! The assembly through which control passes between the program and the runtime.
//!
//! Offsets into the thread's block ([`crate::thread::Block`]) are fixed here and asserted there.

use core::arch::global_asm;

/// Offset of the end of the gate stack.
pub const GATE_TOP: u64 = 0x4_0000;

/// The registers of a [`Frame`](crate::machine::frame::Frame) below rax, onto a stack.
macro_rules! push_registers {
    () => {
        "push rcx
        push rdx
        push rbx
        push rbp
        push rsi
        push rdi
        push r8
        push r9
        push r10
        push r11
        push r12
        push r13
        push r14
        push r15"
    };
}
pub(crate) use push_registers;

global_asm!(
    ".macro SAVE_REGS
    push rax",
    push_registers!(),
    r#"
    .endm

    // A gate. rax: call number, rcx: where the program goes on; everything else is the program's.
    .hidden rt_hook
    .globl rt_hook
    .p2align 6
rt_hook:
    mov gs:[8], rsp
    mov rsp, gs:[16]
    push rcx
    push qword ptr gs:[8]
    pushfq
    cld
    SAVE_REGS
    mov rdi, rsp
    call rt_gate
    // Leaves the runtime with the frame at rsp.
    .hidden rt_leave
    .globl rt_leave
rt_leave:
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbp
    pop rbx
    pop rdx
    pop rcx
    // rsp points to rax, rflags, rsp, rip. popfq is slow; the arithmetic flags can be had without it.
    // TF, DF, NT, RF, AC are rare and need it.
    test dword ptr [rsp + 8], 0x54500
    jnz 3f
    // Overflow by adding 0x7f to bit 11, the others by sahf.
    mov ah, [rsp + 8]
    bt dword ptr [rsp + 8], 11
    setc al
    add al, 0x7f
    sahf
    pop rax
    lea rsp, [rsp + 8]
    pop qword ptr gs:[8]
    pop qword ptr gs:[24]
    mov rsp, gs:[8]
    // The last instruction before the program's next one, here and below: a debugger knows it.
    .globl rt_leaves
rt_leaves:
    jmp qword ptr gs:[24]
3:
    pop rax
    popfq
    pop qword ptr gs:[8]
    // Where a program that steps itself (TF) traps, one instruction behind popfq.
    .hidden rt_leaves_stepping
    .globl rt_leaves_stepping
rt_leaves_stepping:
    pop qword ptr gs:[24]
    mov rsp, gs:[8]
    .globl rt_leaves_with_flags
rt_leaves_with_flags:
    jmp qword ptr gs:[24]

    // extern "C" fn rt_leave_with(frame: *const Frame) -> !
    .hidden rt_leave_with
    .globl rt_leave_with
rt_leave_with:
    mov rsp, rdi
    jmp rt_leave

    // First instruction of a new thread: rsp is its gate stack, holding the address of its block.
    .hidden rt_thread_entry
    .globl rt_thread_entry
rt_thread_entry:
    xor ebp, ebp
    mov rdi, [rsp]
    call rt_thread_begin
    ud2

    // extern "C" fn rt_clone(flags, stack, ptid, ctid, tls) -> i64: returns in the parent only.
    .hidden rt_clone
    .globl rt_clone
rt_clone:
    mov r10, rcx
    mov eax, 56
    syscall
    test rax, rax
    jz rt_thread_entry
    ret

    // extern "C" fn rt_blocking(nr, args: *const [u64; 6], pending: *const u32) -> i64
    // -512 when a signal was already waiting: the call was not made.
    .hidden rt_blocking
    .globl rt_blocking
    .hidden rt_blocking_check
    .globl rt_blocking_check
    .hidden rt_blocking_syscall
    .globl rt_blocking_syscall
    .hidden rt_blocking_abort
    .globl rt_blocking_abort
rt_blocking:
    mov rax, rdi
    mov rcx, rdx
    mov rdi, [rsi]
    mov rdx, [rsi+16]
    mov r10, [rsi+24]
    mov r8, [rsi+32]
    mov r9, [rsi+40]
    mov rsi, [rsi+8]
rt_blocking_check:
    cmp dword ptr [rcx], 0
    jne rt_blocking_abort
rt_blocking_syscall:
    syscall
    ret
rt_blocking_abort:
    mov rax, -512
    ret

    // extern "C" fn rt_guard(f: extern "C" fn(*mut u8), arg: *mut u8) -> i32: 1 when f touched memory that isn't there.
    .hidden rt_guard
    .globl rt_guard
    .hidden rt_guard_fault
    .globl rt_guard_fault
rt_guard:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    push qword ptr gs:[32]
    mov gs:[32], rsp
    mov rax, rdi
    mov rdi, rsi
    call rax
    xor eax, eax
2:
    pop qword ptr gs:[32]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
rt_guard_fault:
    mov eax, 1
    jmp 2b

    // The kernel returns from our handlers through this.
    .hidden rt_restorer
    .globl rt_restorer
rt_restorer:
    mov eax, 15
    .globl rt_leaves_handler
rt_leaves_handler:
    syscall
    ud2

    // Ends this thread without touching its stack again.
    .hidden rt_exit_thread
    .globl rt_exit_thread
rt_exit_thread:
    xor edi, edi
    mov eax, 60
    syscall
    ud2

    // Tell the debugger that its breakpoints are to be out of the program's code, and may be in it again.
    .globl rt_breakpoints_out
rt_breakpoints_out:
    int3
    ret
    .globl rt_breakpoints_in
rt_breakpoints_in:
    int3
    ret

    // Entry points of the image, called by the launcher (record) and by the driver's child (replay).
    .globl rt_start
rt_start:
    // rdi: the first thread's block.
    cld
    xor ebp, ebp
    lea rsp, [rdi + {gate_top}]
    call rt_start_record
    ud2
    .globl rt_start_replay
rt_start_replay:
    cld
    xor ebp, ebp
    lea rsp, [rdi + {gate_top}]
    call rt_start_from_stage
    ud2
    // The entry of all but the first thread of a process that was running before; rdi: its block.
    .globl rt_start_attached
rt_start_attached:
    cld
    xor ebp, ebp
    lea rsp, [rdi + {gate_top}]
    call rt_attached_thread
    ud2

    // extern "C" fn rt_reenter(block) -> !: a thread that stood goes on, on a stack that holds nothing but room for its frame, as at a gate.
    .hidden rt_reenter
    .globl rt_reenter
rt_reenter:
    cld
    xor ebp, ebp
    lea rsp, [rdi + {gate_top} - {frame}]
    call rt_reenters
    ud2
"#,
    gate_top = const GATE_TOP,
    frame = const core::mem::size_of::<crate::machine::frame::Frame>(),
);

extern "C" {
    /// The gate that rewritten and dispatched system calls enter.
    pub fn rt_hook();
    /// Leaves the runtime with this frame.
    pub fn rt_leave_with(frame: *const crate::machine::frame::Frame) -> !;
    /// clone(2) whose child starts in [`crate::gate::clone`].
    pub fn rt_clone(flags: u64, stack: u64, ptid: u64, ctid: u64, tls: u64) -> i64;
    /// A system call that a signal can stop from happening.
    pub fn rt_blocking(nr: u64, args: *const [u64; 6], pending: *const u32) -> i64;
    /// First address at which a signal must divert [`rt_blocking`].
    pub fn rt_blocking_check();
    /// Last address at which a signal must divert [`rt_blocking`].
    pub fn rt_blocking_syscall();
    /// Where it is diverted to.
    pub fn rt_blocking_abort();
    /// Calls `f(arg)`; 1 when it faulted.
    pub fn rt_guard(f: extern "C" fn(*mut u8), arg: *mut u8) -> i32;
    /// Where a fault under [`rt_guard`] goes on.
    pub fn rt_guard_fault();
    /// The restorer of our signal handlers.
    pub fn rt_restorer();
    /// Has the debugger take its breakpoints out of the program's code.
    pub fn rt_breakpoints_out();
    /// Lets it put them back.
    pub fn rt_breakpoints_in();
    /// Where a thread leaves the runtime with the trap flag set.
    pub fn rt_leaves_stepping();
    /// Ends this thread.
    pub fn rt_exit_thread() -> !;
}
