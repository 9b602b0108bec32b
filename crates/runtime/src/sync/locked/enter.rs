//! The long way of a stub: from the program's code into the runtime and back, without the program's stack. A learned load that finds what the
//! thread knows of the word ([`Known`]) is a quiet operation, as that of an atomic variable is ([`crate::sync::hook::loads`]), and comes back sooner.
//!
//! What the stub has kept in the thread's block (rax, rcx, rdx and where it goes on) is the stub's to restore; all else is the program's.

use super::stub::Purpose;
use super::Save;
use crate::dispatch::with_order;
use crate::engine::order::Order;
use crate::log::debugger;
use crate::machine::asm::push_registers;
use crate::sync::known::{Known, FACTOR, PLACE_SHIFT, SIZE_SHIFT};
use crate::thread::shards;
use crate::thread::{take_block, Block, Frame, QUIET_BEHIND_PENDING};
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// For reports: where the thread is.
pub fn note_place(t: &Block) {
    t.slot().last_pc.store(t.saved().resume, Relaxed);
}

/// Shows a debugger the thread before its instruction, or behind it. `f` has those registers that the stub has left as they were.
pub fn show(t: &mut Block, f: &Frame, made: bool) {
    if !debugger::traces() {
        return;
    }
    let resume = t.saved().resume;
    let place = match made {
        true => super::place_behind(resume),
        false => super::place_of(resume),
    };
    t.shown = Frame {
        rax: t.saved().rax,
        rcx: t.saved().rcx,
        rdx: t.saved().rdx,
        rip: place.unwrap_or(resume),
        ..*f
    };
    if !made {
        t.shown.rflags = super::flags_over(t, f.rflags);
    }
    debugger::show_frame(t, &t.shown);
}

/// Before the instruction.
#[no_mangle]
extern "C" fn rt_locked_turn(shard: u64, _: u64, f: &Frame) {
    // SAFETY: the thread comes from the program's code, by a stub of one of its instructions.
    let t = unsafe { take_block() };
    let begun = with_order!(O => O::begins_instruction(t, shard, f));
    let s = t.saved();
    // Where nobody orders it, its shard isn't touched: all processes of the session have the same, and others may count in it.
    (s.shard, s.next) = begun.unwrap_or((NOBODYS.as_ptr() as u64, 0));
}

/// What a stub opens where it had no shard to lock: the size of one.
static NOBODYS: [AtomicU64; shards::SIZE / 8] = [const { AtomicU64::new(0) }; shards::SIZE / 8];

/// A learned load: what is at this address. `load` is where the load is, and its bytes from bit [`SIZE_SHIFT`] on.
#[no_mangle]
extern "C" fn rt_locked_load(address: u64, load: u64, f: &Frame) {
    // SAFETY: as of `rt_locked_turn`.
    let t = unsafe { take_block() };
    note_place(t);
    let (pc, size) = (load & !(0xff << SIZE_SHIFT), (load >> SIZE_SHIFT) as usize);
    with_order!(O => {
        O::begins_load(t, f);
        t.saved().value = O::loaded(t, pc, address, size);
        O::made_load(t);
    });
}

/// After the instruction: somebody waits, or a signal comes.
#[no_mangle]
extern "C" fn rt_locked_made(shard: u64, _: u64, f: &Frame) {
    // SAFETY: as of `rt_locked_turn`.
    let t = unsafe { take_block() };
    with_order!(O => O::made_instruction(t, shard, f));
}

/// Before an instruction that takes a turn: the stub has kept rax only.
#[no_mangle]
extern "C" fn rt_locked_begin(_: u64, _: u64, f: &Frame) {
    // SAFETY: as of `rt_locked_turn`.
    let t = unsafe { take_block() };
    with_order!(O => O::begins_turn(t, f));
}

/// After it.
#[no_mangle]
extern "C" fn rt_locked_end() {
    // SAFETY: as of `rt_locked_turn`.
    let t = unsafe { take_block() };
    with_order!(O => O::ends_turn(t));
}

global_asm!(
    r#"
    .macro LONG_WAY name, function
    .hidden \name
    .globl \name
    .p2align 4
\name:
    mov gs:[8], rsp
    mov rsp, gs:[16]
    // A frame, as far as the registers are the program's.
    push 0
    push qword ptr gs:[8]
    pushfq
    cld
    push rax
    "#,
    push_registers!(),
    r#"
    mov rdi, rdx
    mov rsi, rcx
    mov rdx, rsp
    call \function
    add rsp, 32
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    add rsp, 16
    pop rdx
    pop rcx
    add rsp, 8
    popfq
    mov rsp, gs:[8]
    .globl \name\()_leaves
\name\()_leaves:
    jmp qword ptr gs:[{resume}]
    .endm

    LONG_WAY rt_locked_begin_turn, rt_locked_begin
    LONG_WAY rt_locked_end_turn, rt_locked_end
    LONG_WAY rt_locked_enter, rt_locked_turn
    LONG_WAY rt_locked_wake, rt_locked_made
    LONG_WAY rt_locked_value, rt_locked_load

    // rdx: the address, rcx: where the load is, and its bytes. What memory had is in the thread's block. `left`: so many operations that are
    // only counted must be left, and one more.
    .macro SHORT_WAY name, left
    .hidden \name
    .globl \name
    .p2align 6
\name:
    mov gs:[{scratch}], rcx
    movabs rax, {factor}
    imul rax, rdx
    shr rax, {place_shift}
    lea rax, [8 * rax + {known}]
    add rax, gs:[0]
    shr rcx, {size_shift}
    shl rcx, {size_shift}
    xor rcx, rdx
    cmp rcx, [rax + {tags}]
    jne 2f
    mov rcx, [rax + {values}]
    cmp rcx, gs:[{value}]
    jne 2f
    mov rax, gs:[{pending_word}]
    cmp dword ptr [rax + {quiet}], \left
    jbe 2f
    dec dword ptr [rax + {quiet}]
    jmp qword ptr gs:[{resume}]
2:  mov rcx, gs:[{scratch}]
    jmp rt_locked_value
    .endm

    SHORT_WAY rt_locked_value_recorded, 1
    SHORT_WAY rt_locked_value_replayed, 0
"#,
    resume = const offset_of!(Block, stub) + offset_of!(Save, resume),
    value = const offset_of!(Block, stub) + offset_of!(Save, value),
    // No shard is locked during a load.
    scratch = const offset_of!(Block, stub) + offset_of!(Save, next),
    factor = const FACTOR,
    place_shift = const PLACE_SHIFT,
    size_shift = const SIZE_SHIFT,
    known = const offset_of!(Block, known),
    tags = const offset_of!(Known, tags),
    values = const offset_of!(Known, values),
    pending_word = const offset_of!(Block, pending_word),
    quiet = const QUIET_BEHIND_PENDING,
);

extern "C" {
    fn rt_locked_enter();
    fn rt_locked_wake();
    fn rt_locked_value();
    fn rt_locked_value_recorded();
    fn rt_locked_value_replayed();
    fn rt_locked_begin_turn();
    fn rt_locked_end_turn();
}

/// Where stubs ask for a turn in which they make their instruction, under `det`.
pub fn begin_turn() -> u64 {
    rt_locked_begin_turn as *const () as u64
}

/// Where they end it.
pub fn end_turn() -> u64 {
    rt_locked_end_turn as *const () as u64
}

/// Where stubs ask for their turn.
pub fn turn() -> u64 {
    rt_locked_enter as *const () as u64
}

/// Where they ask for what is loaded.
pub fn load(purpose: Purpose) -> u64 {
    let way: unsafe extern "C" fn() = match purpose {
        Purpose::Record => rt_locked_value_recorded,
        Purpose::Replay if !debugger::traces() => rt_locked_value_replayed,
        // Each is asked for, or shown.
        Purpose::Replay | Purpose::List => rt_locked_value,
    };
    way as *const () as u64
}

/// Where they have others woken.
pub fn wake() -> u64 {
    rt_locked_wake as *const () as u64
}
