//! What a hooked function becomes: the way from the program's call into [`crate::sync`] and back.
//!
//! A call of a function, unlike a gate, leaves most registers free. The shim keeps those that belong to the caller, and the arguments, in a
//! [`Frame`] on the gate stack: for the operation to be made anew after a signal's handler, and for a fault to be shown as one of the
//! function called. The operation itself preserves the caller's registers as every function does, so that the frame isn't needed when all
//! goes well.

use super::fast;
use crate::engine::{with_engine, Engine};
use crate::guard;
use crate::order::{with_order, Order};
use crate::signal::frame::SigContext;
use crate::sync::{barrier, cond, cxa, join, malloc, mutex, once, rwlock, sem, spin};
use crate::thread::{current, Block, Frame};
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A function to replace.
pub struct Function {
    /// Its name.
    pub name: &'static [u8],
    /// What it becomes.
    pub shim: unsafe extern "C" fn(),
    /// Where the address goes by which the original can still be called.
    pub original: Option<&'static AtomicU64>,
}

/// How an operation ends, in two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    value: u64,
    by_frame: u64,
}

impl Done {
    /// The function returns this.
    #[inline(always)]
    pub fn value(value: u64) -> Done {
        Done { value, by_frame: 0 }
    }

    /// The function returns this error number, or 0.
    #[inline(always)]
    pub fn errno(value: u32) -> Done {
        Done::value(value as u64)
    }

    /// The program goes on as the frame says, which is at the function's entry unless the operation has changed it: with the same
    /// arguments the function is called again, after the handlers of the signals that wait.
    pub fn by_frame() -> Done {
        Done {
            value: 0,
            by_frame: 1,
        }
    }
}

/// The state of the program as the hooked function was called.
fn complete(t: &Block, f: &mut Frame) {
    f.rsp = t.program_sp;
    // Interrupts; a function expects nothing of the other flags but that the direction is upwards.
    f.rflags = 0x202;
    f.rax = 0;
    f.r10 = 0;
}

/// The long way out: handlers run, or the program goes on elsewhere.
#[no_mangle]
extern "C" fn rt_hooked_leave(f: &mut Frame, value: u64, by_frame: u64) {
    let t = current();
    t.hooked = 0;
    complete(t, f);
    if by_frame == 0 {
        f.rax = value;
        // As the short ways out leave them.
        f.rcx = 0;
        f.rdx = 0;
        f.r8 = 0;
        f.rip = guard::read(f.rsp).unwrap_or(0);
        f.rsp += 8;
    }
    with_engine!(E => E::signal_point(t, f));
}

/// The operation touched memory that isn't there: the interrupted code becomes the program's, at the entry of the function. False: the
/// thread is in no hooked function.
pub fn fault(t: &mut Block, c: &mut SigContext) -> bool {
    if fast::is_inside(c.rip) {
        // Whose registers are the program's but those that a function may change, with the entry in r10.
        c.rip = c.r10;
        c.rax = 0;
        return true;
    }
    if t.hooked == 0 {
        return false;
    }
    // SAFETY: the shim's frame on this thread's gate stack, where the operation still runs.
    let f = unsafe { &mut *(t.hooked as *mut Frame) };
    t.hooked = 0;
    complete(t, f);
    c.set_frame(f);
    with_order!(O => O::faulted(t));
    true
}

global_asm!(
    r#"
    // The end of every shim: what the function returns is in rax, whether the frame says where to go on in edx. What a function may change of
    // the registers is the same afterwards whichever way was taken, since it may show: as the unused arguments of a system call.
    .hidden rt_hooked_exit
    .globl rt_hooked_exit
    .p2align 4
rt_hooked_exit:
    mov rcx, gs:[48]
    // What told the function that it goes on must not tell the next call the same.
    xor r8d, r8d
    test edx, edx
    jnz 2f
    cmp dword ptr [rcx], 0
    .hidden rt_hooked_out
    .globl rt_hooked_out
rt_hooked_out:
    jne 2f
    xor ecx, ecx
    xor r10d, r10d
    mov r11, [rsp + 32]
    mov r9, [rsp + 48]
    mov rdi, [rsp + 64]
    mov rsi, [rsp + 72]
    mov qword ptr gs:[40], 0
    mov rsp, gs:[8]
    .hidden rt_hooked_ret
    .globl rt_hooked_ret
rt_hooked_ret:
    ret
2:
    mov rdi, rsp
    mov rsi, rax
    call {leave}
    jmp rt_leave
"#,
    leave = sym rt_hooked_leave,
);

extern "C" {
    fn rt_hooked_out();
    fn rt_hooked_ret();
}

/// A signal came where a hooked function has looked for signals for the last time: the function returns, and the signal finds the program's
/// code. Otherwise it would have to wait until the thread comes by again.
pub fn step_out(t: &mut Block, c: &mut SigContext) {
    if t.slot().signal_pending.load(Relaxed) != 0 {
        return;
    }
    let between = |first: unsafe extern "C" fn(), last: unsafe extern "C" fn()| {
        (first as *const () as u64..=last as *const () as u64).contains(&c.rip)
    };
    if between(rt_hooked_out, rt_hooked_ret) {
        t.hooked = 0;
        c.rsp = t.program_sp;
    } else if fast::is_out(c.rip) {
        c.rax = 0;
    } else {
        return;
    }
    if let Some(back) = guard::read(c.rsp) {
        c.rip = back;
        c.rsp += 8;
    }
}

macro_rules! shims {
    ($list:ident, $doc:literal; $($shim:ident: $name:literal => $module:ident :: $operation:ident $(, $original:path)?;)*) => {
        $(
            #[allow(non_snake_case)]
            mod $shim {
                use super::*;

                pub extern "C" fn operation(f: &mut Frame) -> Done {
                    let t = current();
                    t.operations += 1;
                    with_order!(O => $module::$operation::<O>(t, f))
                }

                extern "C" {
                    pub fn $shim();
                }

                global_asm!(
                    concat!(".hidden ", stringify!($shim)),
                    concat!(".globl ", stringify!($shim)),
                    ".p2align 6",
                    concat!(stringify!($shim), ":"),
                    "mov gs:[8], rsp",
                    "mov rsp, gs:[16]",
                    "sub rsp, 144",
                    "mov [rsp], r15",
                    "mov [rsp + 8], r14",
                    "mov [rsp + 16], r13",
                    "mov [rsp + 24], r12",
                    "mov [rsp + 32], r11",
                    "mov [rsp + 48], r9",
                    "mov [rsp + 56], r8",
                    "mov [rsp + 64], rdi",
                    "mov [rsp + 72], rsi",
                    "mov [rsp + 80], rbp",
                    "mov [rsp + 88], rbx",
                    "mov [rsp + 96], rdx",
                    "mov [rsp + 104], rcx",
                    // The stub says where the function's entry is.
                    "mov [rsp + 136], rax",
                    "mov gs:[40], rsp",
                    "mov rdi, rsp",
                    "call {operation}",
                    "jmp rt_hooked_exit",
                    operation = sym operation,
                );
            }
        )*

        #[doc = $doc]
        pub static $list: &[Function] = &[$(
            Function {
                name: $name,
                shim: $shim::$shim,
                original: shims!(@ $($original)?),
            },
        )*];
    };
    (@) => { None };
    (@ $original:path) => { Some(&$original) };
}

shims! { GLIBC, "Functions of glibc. What only fills in an object (`pthread_mutex_init`) or does nothing at all (`sem_destroy`) stays as it is.";
    rt_mutex_lock: b"pthread_mutex_lock" => mutex::lock;
    rt_mutex_trylock: b"pthread_mutex_trylock" => mutex::trylock;
    rt_mutex_timedlock: b"pthread_mutex_timedlock" => mutex::timedlock;
    rt_mutex_clocklock: b"pthread_mutex_clocklock" => mutex::clocklock;
    rt_mutex_unlock: b"pthread_mutex_unlock" => mutex::unlock;
    rt_cond_wait: b"pthread_cond_wait" => cond::wait;
    rt_cond_timedwait: b"pthread_cond_timedwait" => cond::timedwait;
    rt_cond_clockwait: b"pthread_cond_clockwait" => cond::clockwait;
    rt_cond_signal: b"pthread_cond_signal" => cond::signal;
    rt_cond_broadcast: b"pthread_cond_broadcast" => cond::broadcast;
    rt_cond_destroy: b"pthread_cond_destroy" => cond::destroy;
    rt_sem_init: b"sem_init" => sem::init;
    rt_sem_wait: b"sem_wait" => sem::wait;
    rt_sem_trywait: b"sem_trywait" => sem::trywait;
    rt_sem_timedwait: b"sem_timedwait" => sem::timedwait;
    rt_sem_clockwait: b"sem_clockwait" => sem::clockwait;
    rt_sem_post: b"sem_post" => sem::post;
    rt_sem_getvalue: b"sem_getvalue" => sem::getvalue;
    rt_barrier_init: b"pthread_barrier_init" => barrier::init;
    rt_barrier_wait: b"pthread_barrier_wait" => barrier::wait;
    rt_barrier_destroy: b"pthread_barrier_destroy" => barrier::destroy;
    rt_rwlock_rdlock: b"pthread_rwlock_rdlock" => rwlock::rdlock;
    rt_rwlock_tryrdlock: b"pthread_rwlock_tryrdlock" => rwlock::tryrdlock;
    rt_rwlock_timedrdlock: b"pthread_rwlock_timedrdlock" => rwlock::timedrdlock;
    rt_rwlock_clockrdlock: b"pthread_rwlock_clockrdlock" => rwlock::clockrdlock;
    rt_rwlock_wrlock: b"pthread_rwlock_wrlock" => rwlock::wrlock;
    rt_rwlock_trywrlock: b"pthread_rwlock_trywrlock" => rwlock::trywrlock;
    rt_rwlock_timedwrlock: b"pthread_rwlock_timedwrlock" => rwlock::timedwrlock;
    rt_rwlock_clockwrlock: b"pthread_rwlock_clockwrlock" => rwlock::clockwrlock;
    rt_rwlock_unlock: b"pthread_rwlock_unlock" => rwlock::unlock;
    rt_once: b"pthread_once" => once::once, once::ORIGINAL;
    rt_join: b"pthread_join" => join::join, join::ORIGINAL;
    rt_spin_lock: b"pthread_spin_lock" => spin::lock;
    rt_spin_trylock: b"pthread_spin_trylock" => spin::trylock;
}

shims! { ALLOCATION, "Functions of glibc that give memory, for engines to which addresses matter.";
    rt_malloc: b"malloc" => malloc::malloc;
    rt_calloc: b"calloc" => malloc::calloc;
    rt_realloc: b"realloc" => malloc::realloc;
    rt_reallocarray: b"reallocarray" => malloc::reallocarray;
    rt_free: b"free" => malloc::free;
    rt_memalign: b"memalign" => malloc::memalign;
    rt_aligned_alloc: b"aligned_alloc" => malloc::memalign;
    rt_posix_memalign: b"posix_memalign" => malloc::posix_memalign;
    rt_valloc: b"valloc" => malloc::valloc;
    rt_pvalloc: b"pvalloc" => malloc::valloc;
    rt_usable_size: b"malloc_usable_size" => malloc::usable_size;
}

shims! { CXX, "Functions of the C++ runtime: static variables in functions.";
    rt_guard_acquire: b"__cxa_guard_acquire" => cxa::acquire;
    rt_guard_release: b"__cxa_guard_release" => cxa::release;
    rt_guard_abort: b"__cxa_guard_abort" => cxa::abort;
}

shims! { INNER, "Where the short ways of [`fast`] go on when it gets longer; no functions of a module.";
    rt_mutex_entered: b"" => mutex::entered;
    rt_mutex_left: b"" => mutex::left;
    rt_mutex_nothing: b"" => mutex::nothing;
}
