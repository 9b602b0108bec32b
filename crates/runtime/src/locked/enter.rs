//! The long way of a stub: from the program's code into the runtime and back, without the program's stack. A learned load that finds what the
//! thread knows of the word ([`Known`]) is a quiet operation, as that of an atomic variable is ([`crate::hook::loads`]), and comes back sooner.
//!
//! What the stub has kept in the thread's block (rax, rcx, rdx and where it goes on) is the stub's to restore; all else is the program's.

use super::stub::Purpose;
use super::Save;
use crate::asm::push_registers;
use crate::debugger;
use crate::det::newborn;
use crate::engine::{ENGINE, ORDER_RECORD, ORDER_REPLAY};
use crate::isolate::conflicts;
use crate::order::known::{Known, FACTOR, PLACE_SHIFT, SIZE_SHIFT};
use crate::order::{listing, record, replay, shards, with_order, Local, Order};
use crate::thread::{current, Block, Frame, QUIET_BEHIND_PENDING};
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

/// For reports: where the thread is.
fn note_place(t: &Block) {
    t.slot().last_pc.store(t.locked.resume, Relaxed);
}

/// Shows a debugger the thread before its instruction, or behind it. `f` has those registers that the stub has left as they were.
fn show(t: &mut Block, f: &Frame, made: bool) {
    if !debugger::traces() {
        return;
    }
    let resume = t.locked.resume;
    let place = match made {
        true => super::place_behind(resume),
        false => super::place_of(resume),
    };
    t.shown = Frame {
        rax: t.locked.rax,
        rcx: t.locked.rcx,
        rdx: t.locked.rdx,
        rip: place.unwrap_or(resume),
        ..*f
    };
    if !made {
        t.shown.rflags = super::flags_over(t, f.rflags);
    }
    debugger::show_frame(t, &t.shown);
}

/// Before the instruction: the shard at this address becomes the thread's; where operations are listed, that of the word at this address.
#[no_mangle]
extern "C" fn rt_locked_turn(shard: u64, _: u64, f: &Frame) {
    let t = current();
    if ENGINE.load(Relaxed) == ORDER_RECORD {
        t.locked.shard = shard;
        t.locked.next = record::begin_operation(t, shards::number_at(shard));
        return;
    }
    if ENGINE.load(Relaxed) != ORDER_REPLAY {
        // A diversion, in which there is no order.
        t.locked.shard = shard;
        t.locked.next = shards::shard(shards::number_at(shard))
            .sequence
            .load(Relaxed)
            + 2;
        return;
    }
    note_place(t);
    show(t, f, false);
    let (number, address) = match listing::on() {
        true => (shards::number_of(shard), Some(shard)),
        false => (shards::number_at(shard), None),
    };
    let (number, next) = replay::begin_operation(t, number, address);
    t.locked.shard = shards::place(number);
    t.locked.next = next;
}

/// A learned load: what is at this address. `load` is where the load is, and its bytes from bit [`SIZE_SHIFT`] on.
#[no_mangle]
extern "C" fn rt_locked_load(address: u64, load: u64, f: &Frame) {
    let t = current();
    note_place(t);
    if ENGINE.load(Relaxed) == ORDER_REPLAY {
        show(t, f, false);
    }
    let (pc, size) = (load & !(0xff << SIZE_SHIFT), (load >> SIZE_SHIFT) as usize);
    t.locked.value = with_order!(O => O::loaded(t, pc, address, size));
    if ENGINE.load(Relaxed) == ORDER_REPLAY {
        replay::after_operation(t);
    }
}

/// A replay, after it: somebody waits, or a signal comes.
#[no_mangle]
extern "C" fn rt_locked_made(shard: u64, _: u64, f: &Frame) {
    let t = current();
    if ENGINE.load(Relaxed) != ORDER_REPLAY {
        return;
    }
    show(t, f, true);
    replay::end_operation(t, shards::number_at(shard), t.locked.next);
}

/// Under `det`, before the instruction: the stub has kept rax only.
#[no_mangle]
extern "C" fn rt_locked_begin(_: u64, _: u64, f: &Frame) {
    let t = current();
    if conflicts::on() {
        let place = super::place_of(t.locked.resume);
        t.shown = Frame {
            rip: place.unwrap_or(t.locked.resume),
            ..*f
        };
        debugger::show_frame(t, &t.shown);
    }
    if !newborn::needs_no_turn(t, f) {
        crate::det::streams::before(t, f);
    }
}

/// After it.
#[no_mangle]
extern "C" fn rt_locked_end() {
    let t = current();
    crate::det::streams::after(t);
    crate::det::turns::end(t);
    crate::det::spin::see_to_signals(t);
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
    resume = const offset_of!(Block, locked) + offset_of!(Save, resume),
    value = const offset_of!(Block, locked) + offset_of!(Save, value),
    // No shard is locked during a load.
    scratch = const offset_of!(Block, locked) + offset_of!(Save, next),
    factor = const FACTOR,
    place_shift = const PLACE_SHIFT,
    size_shift = const SIZE_SHIFT,
    known = const offset_of!(Block, order) + offset_of!(Local, known),
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
