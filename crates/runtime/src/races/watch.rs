//! Where a program that `reprise cc --races` built tells of its accesses: functions of its own that return at once (`reprise/cc/races.c`), and
//! that lead here in a replay that looks for races.
//!
//! Each of them has enough bytes that nothing else uses, so that the jump to the runtime needs no stub: the address space of the replay
//! stays that of the recording. Nothing of what happens here shows in a register, in a flag, or below the program's stack pointer.

use super::detector;
use super::objects::Kind;
use crate::code::patch;
use crate::machine::asm::push_registers;
use crate::machine::guard::{self, Program};
use crate::thread::{take_block, Block, Frame};
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::races::how;
use reprise_code::elf;
use reprise_code::elf::Exports;

/// What a module that `reprise cc --races` built exports.
const BUILT_FOR_RACES: &[u8] = b"reprise_cc_races";
/// Bytes of a jump to anywhere.
const JUMP: usize = 14;
/// Bytes that say where a function goes on, in front of the jump.
const TARGET: usize = 24;
/// Bytes at the beginning of a function that goes on that nothing else uses.
const HEAD: u64 = 48;

/// What a function tells: a kind, and for an access whether it writes, and its size.
const WRITE: u32 = 0x100;
const SIZE: u32 = 0xff;
/// `(address)`
const ACCESS: u32 = 0;
/// `(address, bytes)`
const RANGE: u32 = 0x1_0000;
/// `(address, value)`: a pointer to virtual functions, which is a write only if it changes.
const POINTER: u32 = 0x2_0000;
/// `memcpy(to, from, bytes)`
const COPY: u32 = 0x3_0000;
/// `memset(to, value, bytes)`
const FILL: u32 = 0x4_0000;
/// `atomic_thread_fence(order)`
const FENCE: u32 = 0x5_0000;
/// `pthread_spin_unlock(lock)`, which is done here.
const SPIN_UNLOCK: u32 = 0x6_0000;

/// Flags that arithmetic changes.
const ARITHMETIC: u64 = 0x8d5;
/// Those of a zero: ZF and PF.
const OF_ZERO: u64 = 0x44;

/// A function that is watched.
pub struct Watched {
    name: &'static [u8],
    shim: unsafe extern "C" fn(),
    /// Its own code goes on afterwards.
    goes_on: bool,
}

extern "C" fn rt_watched(f: &mut Frame, what: u32) {
    // SAFETY: the thread comes from the program, by a function that it has called.
    let t = unsafe { take_block() };
    f.rsp = t.program_sp + 8;
    f.rip = guard::read(t.program_sp).unwrap_or(0);
    let mut d = detector();
    let how = if what & WRITE != 0 { how::WRITES } else { 0 };
    match what & !(SIZE | WRITE) {
        ACCESS => d.access(t, f, f.rdi, (what & SIZE) as u64, how),
        RANGE => d.access(t, f, f.rdi, f.rsi, how),
        POINTER if guard::read::<u64>(f.rdi) == Some(f.rsi) => {}
        POINTER => d.access(t, f, f.rdi, 8, how::WRITES),
        COPY => {
            d.access(t, f, f.rsi, f.rdx, 0);
            d.access(t, f, f.rdi, f.rdx, how::WRITES);
        }
        FILL => d.access(t, f, f.rdi, f.rdx, how::WRITES),
        FENCE => d.fence(t, f.rdi as u32),
        SPIN_UNLOCK => {
            d.lets_know(t, Kind::Lock, f.rdi);
            guard::write(f.rdi, &1u32);
            f.rax = 0;
            f.rflags = f.rflags & !ARITHMETIC | OF_ZERO;
        }
        _ => {}
    }
    d.maybe_gives_way(t);
}

global_asm!(
    r#"
    // A frame's registers, on the gate stack. rax: what the function tells.
    .macro WATCHED name
    .p2align 4
\name:
    cld
    "#,
    push_registers!(),
    r#"
    mov rdi, rsp
    mov esi, eax
    call {watched}
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
    pop rax
    popfq
    mov rsp, gs:[8]
    .endm

    WATCHED rt_watched_return
    ret
    WATCHED rt_watched_go_on
    jmp qword ptr gs:[{target}]
"#,
    watched = sym rt_watched,
    target = const offset_of!(Block, target),
);

macro_rules! watched {
    ($($shim:ident: $name:literal => $what:expr $(, goes on at $label:ident)?;)*) => {
        $(
            global_asm!(
                concat!(".hidden ", stringify!($shim)),
                concat!(".globl ", stringify!($shim)),
                ".p2align 4",
                concat!(stringify!($shim), ":"),
                "mov gs:[8], rsp",
                "mov rsp, gs:[16]",
                "sub rsp, 16",
                "pushfq",
                "push rax",
                "mov eax, {what}",
                concat!("jmp ", watched!(@label $($label)?)),
                what = const $what,
            );
            extern "C" {
                fn $shim();
            }
        )*

        static WATCHED: &[Watched] = &[$(
            Watched {
                name: $name,
                shim: $shim,
                goes_on: watched!(@goes_on $($label)?),
            },
        )*];
    };
    (@label) => { "rt_watched_return" };
    (@label $label:ident) => { stringify!($label) };
    (@goes_on) => { false };
    (@goes_on $label:ident) => { true };
}

watched! {
    rt_read1: b"__tsan_read1" => ACCESS | 1;
    rt_read2: b"__tsan_read2" => ACCESS | 2;
    rt_read4: b"__tsan_read4" => ACCESS | 4;
    rt_read8: b"__tsan_read8" => ACCESS | 8;
    rt_read16: b"__tsan_read16" => ACCESS | 16;
    rt_write1: b"__tsan_write1" => ACCESS | WRITE | 1;
    rt_write2: b"__tsan_write2" => ACCESS | WRITE | 2;
    rt_write4: b"__tsan_write4" => ACCESS | WRITE | 4;
    rt_write8: b"__tsan_write8" => ACCESS | WRITE | 8;
    rt_write16: b"__tsan_write16" => ACCESS | WRITE | 16;
    rt_unaligned_read2: b"__tsan_unaligned_read2" => ACCESS | 2;
    rt_unaligned_read4: b"__tsan_unaligned_read4" => ACCESS | 4;
    rt_unaligned_read8: b"__tsan_unaligned_read8" => ACCESS | 8;
    rt_unaligned_read16: b"__tsan_unaligned_read16" => ACCESS | 16;
    rt_unaligned_write2: b"__tsan_unaligned_write2" => ACCESS | WRITE | 2;
    rt_unaligned_write4: b"__tsan_unaligned_write4" => ACCESS | WRITE | 4;
    rt_unaligned_write8: b"__tsan_unaligned_write8" => ACCESS | WRITE | 8;
    rt_unaligned_write16: b"__tsan_unaligned_write16" => ACCESS | WRITE | 16;
    rt_read_write1: b"__tsan_read_write1" => ACCESS | WRITE | 1;
    rt_read_write2: b"__tsan_read_write2" => ACCESS | WRITE | 2;
    rt_read_write4: b"__tsan_read_write4" => ACCESS | WRITE | 4;
    rt_read_write8: b"__tsan_read_write8" => ACCESS | WRITE | 8;
    rt_read_write16: b"__tsan_read_write16" => ACCESS | WRITE | 16;
    rt_unaligned_read_write2: b"__tsan_unaligned_read_write2" => ACCESS | WRITE | 2;
    rt_unaligned_read_write4: b"__tsan_unaligned_read_write4" => ACCESS | WRITE | 4;
    rt_unaligned_read_write8: b"__tsan_unaligned_read_write8" => ACCESS | WRITE | 8;
    rt_unaligned_read_write16: b"__tsan_unaligned_read_write16" => ACCESS | WRITE | 16;
    rt_vptr_read: b"__tsan_vptr_read" => ACCESS | 8;
    rt_vptr_update: b"__tsan_vptr_update" => POINTER;
    rt_read_range: b"__tsan_read_range" => RANGE;
    rt_write_range: b"__tsan_write_range" => RANGE | WRITE;
    rt_thread_fence: b"__tsan_atomic_thread_fence" => FENCE;
    rt_memcpy: b"reprise_cc_memcpy" => COPY, goes on at rt_watched_go_on;
    rt_memmove: b"reprise_cc_memmove" => COPY, goes on at rt_watched_go_on;
    rt_memset: b"reprise_cc_memset" => FILL, goes on at rt_watched_go_on;
    rt_spin_unlock: b"pthread_spin_unlock" => SPIN_UNLOCK;
}

/// Has the function at whose beginning these bytes are been replaced?
pub fn is_replaced(code: &[u8]) -> bool {
    code.starts_with(&[0xff, 0x25, 0, 0, 0, 0])
}

/// Replaces what is watched in a module. `libc`: that module is libc.
pub fn module(exports: &Exports, libc: bool) {
    if !crate::thread::in_force::looks_for_races() {
        return;
    }
    if exports.find(&Program, BUILT_FOR_RACES).is_some() {
        super::area().modules.fetch_add(1, Relaxed);
    } else if !libc {
        return;
    }
    for w in WATCHED {
        let of_libc = w.name.starts_with(b"pthread_");
        let found = exports.find(&Program, w.name).filter(|_| of_libc == libc);
        if let Some(s) = found.filter(|s| s.kind == elf::FUNC) {
            replace(s.address, w);
        }
    }
}

fn replace(at: u64, w: &Watched) {
    let mut code = [0; TARGET + JUMP];
    let from = if w.goes_on { 0 } else { TARGET };
    let target = at + HEAD;
    let cell = offset_of!(Block, target) as u32;
    for (i, half) in [target as u32, (target >> 32) as u32].iter().enumerate() {
        // mov dword ptr gs:[cell + 4 * i], half
        let to = &mut code[12 * i..];
        to[..4].copy_from_slice(&[0x65, 0xc7, 0x04, 0x25]);
        to[4..8].copy_from_slice(&(cell + 4 * i as u32).to_le_bytes());
        to[8..12].copy_from_slice(&half.to_le_bytes());
    }
    code[TARGET..TARGET + 6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
    code[TARGET + 6..].copy_from_slice(&(w.shim as *const () as u64).to_le_bytes());
    patch::write_code(at, &code[from..]);
}
