//! Variables of threads in libraries that are loaded later (`__thread`): `__tls_get_addr` of ld.so, which finds a thread's copy, and
//! `_dl_allocate_tls`, which makes room for those of a new thread (Drepper, "ELF Handling For Thread-Local Storage", 2).
//!
//! Both look at what dlopen(3) and dlclose(3) change in other threads, by plain loads. For a program this makes no difference, but the
//! memory that is allocated, and the locks that are taken, depend on who is faster. glibc has a lock for what they look at
//! (`dl_load_tls_lock`, since 2.35), which its own dlopen and dlclose hold while they change it, and which is never held while code of the
//! program runs. So both functions hold it from their beginning on: what they find is then in the order of that lock.
//!
//! `__tls_get_addr` stays as it is where it finds a copy at once, by a number that counts all changes. Only its long way leads here. Most that
//! come here are late: some other library came or went. Like older versions of glibc they take the copy that they have, if it is of
//! the library that has the place now, which can't change while that is in use. Such a call leaves no trace, neither in registers nor
//! in any order: whether it was late doesn't matter.
//!
//! **Where things are.** Where a thread's table and the list of libraries lie, libc tells debuggers (nptl_db). The lock, and by what it is locked, is what
//! `_dl_allocate_tls_init` locks first; the long way is the only function that `__tls_get_addr` calls. An ld.so that looks otherwise is left alone.

use super::entry::{Hook, JUMP};
use super::left_out;
use crate::machine::guard::{self, Program};
use crate::thread::session;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::hooks;
use reprise_code::decode::{Flow, Insn};
use reprise_code::elf;
use reprise_code::elf::{Exports, Symbol};

/// Where the original can be called of what `__tls_get_addr` calls when it doesn't find a thread's copy at once.
static LONG_WAY: AtomicU64 = AtomicU64::new(0);
/// Where that of `_dl_allocate_tls` can be.
static ALLOCATE: AtomicU64 = AtomicU64::new(0);
/// The lock. 0: not known.
static LOCK: AtomicU64 = AtomicU64::new(0);
/// Where ld.so has the address of the function that locks it, ...
static LOCKS: AtomicU64 = AtomicU64::new(0);
/// ... and of the one that unlocks it.
static UNLOCKS: AtomicU64 = AtomicU64::new(0);
/// Where ld.so has the address of the list of libraries with variables of threads. 0: not known, as long as there is no libc.
static LIBRARIES: AtomicU64 = AtomicU64::new(0);
/// `_rtld_global`, in which that is.
static RTLD_GLOBAL: AtomicU64 = AtomicU64::new(0);

/// Most instructions of a function that are looked at.
const MOST_INSNS: usize = 1024;

global_asm!(
    r#"
    // rdi: number of the library, and offset of the variable. rax: the entry. A bad pointer faults before anything is changed.
    .hidden rt_thread_local
    .globl rt_thread_local
    .p2align 5
rt_thread_local:
    mov rdx, [rdi + 8]
    mov rdx, [rdi]
    .hidden rt_thread_local_read
    .globl rt_thread_local_read
rt_thread_local_read:
    push rcx
    push rsi
    mov rsi, [rip + {libraries}]
    test rsi, rsi
    jz 8f
    // The thread's table: 16 bytes for each library, and before the first how many.
    mov rax, fs:[8]
    cmp [rax - 16], rdx
    jb 7f
    mov rcx, rdx
    shl rcx, 4
    cmp qword ptr [rax + rcx], -1
    je 7f
    // The list: how many, the next piece, 16 bytes for each.
    mov rsi, [rsi]
1:  test rsi, rsi
    jz 7f
    cmp rdx, [rsi]
    jb 2f
    sub rdx, [rsi]
    mov rsi, [rsi + 8]
    jmp 1b
2:  shl rdx, 4
    mov rdx, [rsi + rdx + 16]
    cmp rdx, [rax]
    ja 7f
    mov rdx, rax
    mov rax, [rax + rcx]
    pop rsi
    pop rcx
    add rax, [rdi + 8]
    .globl rt_thread_local_found
rt_thread_local_found:
    ret
7:  pop rsi
    pop rcx
    mov rax, [rip + {long_way}]
    jmp 9f
8:  pop rsi
    pop rcx
    .globl rt_thread_local_goes_on
rt_thread_local_goes_on:
    jmp qword ptr [rip + {long_way}]

    .hidden rt_thread_local_allocate
    .globl rt_thread_local_allocate
    .p2align 5
rt_thread_local_allocate:
    mov rax, [rip + {allocate}]
9:  push rdi
    push rax
    sub rsp, 8
    mov rdi, [rip + {lock}]
    mov rax, [rip + {locks}]
    call qword ptr [rax]
    mov rdi, [rsp + 16]
    call qword ptr [rsp + 8]
    mov [rsp + 8], rax
    mov rdi, [rip + {lock}]
    mov rax, [rip + {unlocks}]
    call qword ptr [rax]
    mov rax, [rsp + 8]
    add rsp, 24
    .globl rt_thread_local_ends
rt_thread_local_ends:
    ret
"#,
    libraries = sym LIBRARIES,
    long_way = sym LONG_WAY,
    allocate = sym ALLOCATE,
    lock = sym LOCK,
    locks = sym LOCKS,
    unlocks = sym UNLOCKS,
);

extern "C" {
    fn rt_thread_local();
    fn rt_thread_local_read();
    fn rt_thread_local_allocate();
}

/// Is this code here that reads by a pointer of the program? Its registers are then as they were, with the entry in rax.
pub fn reads(pc: u64) -> bool {
    (rt_thread_local as *const () as u64..rt_thread_local_read as *const () as u64).contains(&pc)
}

/// What is replaced in an ld.so with these exports.
pub fn hooks(exports: &Exports) -> Option<[Hook; 2]> {
    let function = |name: &[u8]| {
        let found = exports.find(&Program, name)?;
        (found.kind == elf::FUNC).then_some(found)
    };
    let get = function(b"__tls_get_addr")?;
    let allocate = function(b"_dl_allocate_tls")?;
    let long_way = called_by(&get)?;
    let lock = Lock::first_of(&function(b"_dl_allocate_tls_init")?)?;
    if hooks::holds_function(session().unhooked, b"__tls_get_addr") {
        left_out::add(long_way);
        return None;
    }
    LOCK.store(lock.at, Relaxed);
    LOCKS.store(lock.locked_by, Relaxed);
    UNLOCKS.store(lock.unlocked_by, Relaxed);
    RTLD_GLOBAL.store(exports.find(&Program, b"_rtld_global")?.address, Relaxed);
    Some([
        Hook {
            at: long_way,
            // It holds at least what is moved.
            size: JUMP,
            shim: rt_thread_local as *const () as u64,
            way: None,
            original: Some(&LONG_WAY),
        },
        Hook {
            at: allocate.address,
            size: allocate.size,
            shim: rt_thread_local_allocate as *const () as u64,
            way: None,
            original: Some(&ALLOCATE),
        },
    ])
}

/// What libc says of where things are. From now on late calls are told from others.
pub fn libc(exports: &Exports) {
    // Bits, elements, offset.
    let offset = |name: &[u8]| {
        let [_, _, offset] = guard::read::<[u32; 3]>(exports.find(&Program, name)?.address)?;
        Some(offset)
    };
    let known = [
        (&b"_thread_db_pthread_dtvp"[..], 8),
        (b"_thread_db_dtv_dtv", 0),
        (b"_thread_db_dtv_t_counter", 0),
        (b"_thread_db_dtv_t_pointer_val", 0),
        (b"_thread_db_dtv_slotinfo_list_len", 0),
        (b"_thread_db_dtv_slotinfo_list_next", 8),
        (b"_thread_db_dtv_slotinfo_list_slotinfo", 16),
        (b"_thread_db_dtv_slotinfo_gen", 0),
    ];
    let list = offset(b"_thread_db_rtld_global__dl_tls_dtv_slotinfo_list");
    let global = RTLD_GLOBAL.load(Relaxed);
    if let (Some(list), true) = (list, global != 0) {
        if known.iter().all(|(name, at)| offset(name) == Some(*at)) {
            LIBRARIES.store(global + list as u64, Relaxed);
        }
    }
}

/// The instructions of a function, one after the other.
fn insns(f: &Symbol) -> impl Iterator<Item = Insn> {
    let end = f.address + f.size;
    let first = Insn::at(f.address, &Program);
    let next = move |i: &Insn| (i.end() < end).then(|| Insn::at(i.end(), &Program))?;
    core::iter::successors(first, next).take(MOST_INSNS)
}

/// The only function that this one calls.
fn called_by(f: &Symbol) -> Option<u64> {
    let mut calls = insns(f).filter_map(|i| match i.flow {
        Flow::Call(to) => Some(to),
        _ => None,
    });
    let first = calls.next()?;
    calls.next().is_none().then_some(first)
}

/// A lock of ld.so's.
struct Lock {
    at: u64,
    locked_by: u64,
    unlocked_by: u64,
}

impl Lock {
    /// The one that a function locks first, and unlocks: `lea lock(%rip),%rdi` and `call *function(%rip)`, both twice.
    fn first_of(f: &Symbol) -> Option<Lock> {
        const LEA_RDI: [u8; 3] = [0x48, 0x8d, 0x3d];
        let mut argument = None;
        let mut locked = None;
        for i in insns(f) {
            match i.flow {
                Flow::Next if i.bytes().starts_with(&LEA_RDI) => argument = i.rip_target(),
                Flow::Next | Flow::Branch(..) => {}
                Flow::CallIndirect => {
                    match (argument.take(), i.rip_target(), locked) {
                        (Some(at), Some(by), None) => locked = Some((at, by)),
                        (Some(at), Some(by), Some((lock, locked_by)))
                            if at == lock && by != locked_by =>
                        {
                            return Some(Lock {
                                at,
                                locked_by,
                                unlocked_by: by,
                            });
                        }
                        _ => return None,
                    };
                }
                _ => argument = None,
            }
        }
        None
    }
}
