//! The long way of a stub: from the program's code into the runtime and back, without the program's stack.
//!
//! What the stub has kept in the thread's block (rax, rcx, rdx and where it goes on) is the stub's to restore; all else is the program's.

use super::Save;
use crate::asm::push_registers;
use crate::debugger;
use crate::engine::{ENGINE, ORDER_RECORD, ORDER_REPLAY};
use crate::order::{listing, record, replay, shards, with_order, Order};
use crate::thread::{current, Block, Frame};
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

/// Where a stub tells a load's bytes, above its address.
pub const SIZE_SHIFT: u32 = 56;

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

/// A learned load: what is at this address. `load` is where the load is, and its bytes above [`SIZE_SHIFT`].
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
extern "C" fn rt_locked_begin() {
    crate::det::turns::begin(current());
}

/// After it.
#[no_mangle]
extern "C" fn rt_locked_end() {
    let t = current();
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
"#,
    resume = const offset_of!(Block, locked) + offset_of!(Save, resume),
);

extern "C" {
    fn rt_locked_enter();
    fn rt_locked_wake();
    fn rt_locked_value();
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
pub fn load() -> u64 {
    rt_locked_value as *const () as u64
}

/// Where they have others woken.
pub fn wake() -> u64 {
    rt_locked_wake as *const () as u64
}
