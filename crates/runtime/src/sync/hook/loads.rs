//! The short way of atomic loads (`reprise cc`, [`crate::sync::libc::atomic`]) while recording: one that finds what the thread knows already
//! ([`Known`]) is a quiet operation, made without leaving the program's stack. Loops that wait for another thread make little else: how long
//! they go on before they give the processor away, many programs count in rounds.
//!
//! r10 and r11 are all that differs from the registers that the program called with, until the value is told: a fault, or the shim to which all
//! else is left, finds the call as it was.

use super::shim::Function;
use crate::signal::frame::SigContext;
use crate::sync::known::{Known, FACTOR, PLACE_SHIFT, SIZE_SHIFT};
use crate::thread::in_force;
use crate::thread::{Block, QUIET_BEHIND_PENDING};
use core::arch::global_asm;
use core::mem::offset_of;

/// Where in a thread's block the words are that it knows.
const KNOWN: usize = offset_of!(Block, known);

global_asm!(
    r#"
    // rdi: address, rax: the function's entry. `log`: of the size in bytes; `load`: reads the word at rdi into r10.
    .macro QUICK_LOAD bits, log, load:vararg
    .hidden rt_quick_load\bits
    .globl rt_quick_load\bits
    .p2align 6
rt_quick_load\bits:
    movabs r10, {factor}
    imul r10, rdi
    shr r10, {place_shift}
    mov r11, gs:[0]
    lea r11, [r11 + 8 * r10 + {known}]
    mov r10, rdi
    btc r10, {size_shift} + \log
    cmp r10, [r11 + {tags}]
    jne rt_atomic\bits\()_load
    .hidden rt_quick_load\bits\()_read
    .globl rt_quick_load\bits\()_read
rt_quick_load\bits\()_read:
    \load
    cmp r10, [r11 + {values}]
    jne rt_atomic\bits\()_load
    mov r11, gs:[48]
    cmp dword ptr [r11 + {quiet}], 0
    je rt_atomic\bits\()_load
    dec dword ptr [r11 + {quiet}]
    inc qword ptr gs:[56]
    cmp dword ptr [r11], 0
    .hidden rt_quick_load\bits\()_out
    .globl rt_quick_load\bits\()_out
rt_quick_load\bits\()_out:
    jne 3f
    mov rax, r10
    .hidden rt_quick_load\bits\()_told
    .globl rt_quick_load\bits\()_told
rt_quick_load\bits\()_told:
    xor r8d, r8d
    xor r11d, r11d
    xor edx, edx
    xor ecx, ecx
    xor r10d, r10d
    .hidden rt_quick_load\bits\()_ret
    .globl rt_quick_load\bits\()_ret
rt_quick_load\bits\()_ret:
    ret
3:  mov rdx, r10
    jmp rt_atomic_loaded
    .endm

    QUICK_LOAD 8, 0, movzx r10d, byte ptr [rdi]
    QUICK_LOAD 16, 1, movzx r10d, word ptr [rdi]
    QUICK_LOAD 32, 2, mov r10d, [rdi]
    QUICK_LOAD 64, 3, mov r10, [rdi]
"#,
    factor = const FACTOR,
    place_shift = const PLACE_SHIFT,
    size_shift = const SIZE_SHIFT,
    known = const KNOWN,
    tags = const offset_of!(Known, tags),
    values = const offset_of!(Known, values),
    quiet = const QUIET_BEHIND_PENDING,
);

type Label = unsafe extern "C" fn();

/// The way of one size.
struct Way {
    name: &'static [u8],
    first: Label,
    /// Here the word is read.
    read: Label,
    /// From here on all is done but returning the value, which is in r10, ...
    out: Label,
    /// ... and from here on in rax as well; ...
    told: Label,
    /// ... which ends here.
    ret: Label,
}

macro_rules! ways {
    ($($name:literal: $first:ident, $read:ident, $out:ident, $told:ident, $ret:ident;)*) => {
        extern "C" {
            $(fn $first(); fn $read(); fn $out(); fn $told(); fn $ret();)*
        }
        static WAYS: &[Way] = &[$(Way {
            name: $name,
            first: $first,
            read: $read,
            out: $out,
            told: $told,
            ret: $ret,
        }),*];
    };
}

ways! {
    b"__tsan_atomic8_load": rt_quick_load8, rt_quick_load8_read, rt_quick_load8_out, rt_quick_load8_told, rt_quick_load8_ret;
    b"__tsan_atomic16_load": rt_quick_load16, rt_quick_load16_read, rt_quick_load16_out, rt_quick_load16_told, rt_quick_load16_ret;
    b"__tsan_atomic32_load": rt_quick_load32, rt_quick_load32_read, rt_quick_load32_out, rt_quick_load32_told, rt_quick_load32_ret;
    b"__tsan_atomic64_load": rt_quick_load64, rt_quick_load64_read, rt_quick_load64_out, rt_quick_load64_told, rt_quick_load64_ret;
}

fn at(label: Label) -> u64 {
    label as *const () as u64
}

/// The short way of a function, if it has one here.
pub fn of(f: &Function) -> Option<u64> {
    let way = WAYS.iter().find(|w| w.name == f.name)?;
    in_force::records_synchronisation().then(|| at(way.first))
}

/// Is this where the program's word is read? The call is then as it was, but for r10 and r11, with the entry in rax.
pub fn reads(pc: u64) -> bool {
    WAYS.iter().any(|w| at(w.read) == pc)
}

/// Is all done there but returning the value? Then the registers become what they are when it has returned.
pub fn step_out(c: &mut SigContext) -> bool {
    let Some(way) = WAYS
        .iter()
        .find(|w| (at(w.out)..=at(w.ret)).contains(&c.rip))
    else {
        return false;
    };
    if c.rip < at(way.told) {
        c.rax = c.r10;
    }
    [c.rcx, c.rdx, c.r8, c.r10, c.r11] = [0; 5];
    true
}
