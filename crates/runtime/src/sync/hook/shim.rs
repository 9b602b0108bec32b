//! What a hooked function becomes: the way from the program's call into [`crate::sync::libc`] and back.
//!
//! A call of a function, unlike a gate, leaves most registers free. The shim keeps those that belong to the caller, and the arguments, in a
//! [`Frame`] on the gate stack: for the operation to be made anew after a signal's handler, and for a fault to be shown as one of the
//! function called. The operation itself preserves the caller's registers as every function does, so that the frame is hardly needed when
//! all goes well.
//!
//! What a function may leave behind in a register is left the same by every way out, in a recording as in its replay, which run other code:
//! rcx, rdx, r8, r10, r11 are 0, and rsi, rdi, r9 what they were. Programs hand such leftovers on, to system calls that don't look at them.
//! (What r11 was says whether this thread was the first of several to call a function that ld.so binds when it is called.)

use super::{fast, loads, thread_local};
use crate::dispatch::with_engine;
use crate::dispatch::{with_order, with_order_of_heaps};
use crate::engine::order::Order;
use crate::engine::Engine;
use crate::gate::stand;
use crate::log::debugger;
use crate::machine::guard;
use crate::signal::frame::SigContext;
use crate::sync::libc::atomic::{a128, a16, a32, a64, a8};
use crate::sync::libc::{
    atomic, barrier, cancel, cond, cxa, join, kill, malloc, mutex, once, rwlock, sem, spin,
};
use crate::thread::{take_block, Block, Frame};
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

/// The frame says where the program goes on.
const AT_FRAME: u64 = 1;
/// The function returns, with rdx as in the frame.
const PAIR: u64 = 2;

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

    /// A function that may be called again has told itself by r9 what it had come to. When it returns nothing may tell whether it was called again: another
    /// run of it, which is not interrupted, leaves the same registers.
    pub fn ends_what_r9_told(self, f: &mut Frame) -> Done {
        if self.by_frame != AT_FRAME {
            f.r9 = 0;
        }
        self
    }

    /// The function returns two registers, of which the frame has rdx already.
    pub fn pair(low: u64) -> Done {
        Done {
            value: low,
            by_frame: PAIR,
        }
    }

    /// The program goes on as the frame says, which is at the function's entry unless the operation has changed it: with the same
    /// arguments the function is called again, after the handlers of the signals that wait.
    pub fn by_frame() -> Done {
        Done {
            value: 0,
            by_frame: AT_FRAME,
        }
    }
}

/// The state of the program as the hooked function was called.
fn complete(t: &Block, f: &mut Frame) {
    f.rsp = t.program_sp;
    f.rflags = FLAGS;
    f.rax = 0;
    f.r10 = 0;
    f.r11 = 0;
}

/// Flags after a hooked function: interrupts, and those of `xor ecx, ecx`. A function expects nothing of them but that the direction is upwards.
const FLAGS: u64 = 0x246;

/// The long way out: handlers run, or the program goes on elsewhere.
#[no_mangle]
extern "C" fn rt_hooked_leave(f: &mut Frame, value: u64, by_frame: u64) {
    // SAFETY: the function's operation is over, and with it the reference that it had; the thread is on its way back to the program.
    let t = unsafe { take_block() };
    t.hooked = 0;
    complete(t, f);
    if by_frame != AT_FRAME {
        f.rax = value;
        f.rcx = 0;
        if by_frame != PAIR {
            f.rdx = 0;
        }
        f.r8 = 0;
        f.rip = guard::read(f.rsp).unwrap_or(0);
        f.rsp += 8;
    }
    t.hook_ends = true;
    with_engine!(E => {
        if E::delivers_in_hook(t, by_frame == AT_FRAME) {
            E::signal_point(t, f);
        }
        t.hook_ends = false;
        stand::point::<E>(t, f);
    });
}

/// The operation touched memory that isn't there: the interrupted code becomes the program's, at the entry of the function. False: the
/// thread is in no hooked function.
pub fn fault(t: &mut Block, c: &mut SigContext) -> bool {
    if let Some(entry) = fast::entry_of(c.rip) {
        // All registers are the program's but those that a function may change.
        c.rip = entry;
        c.rax = 0;
        return true;
    }
    if thread_local::reads(c.rip) {
        c.rip = c.rax;
        return true;
    }
    if loads::reads(c.rip) {
        c.rip = c.rax;
        [c.rax, c.r10, c.r11] = [0; 3];
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
    // The end of every shim: what the function returns is in rax, whether the frame says where to go on in edx.
    .hidden rt_hooked_exit
    .globl rt_hooked_exit
    .p2align 4
rt_hooked_exit:
    mov rcx, gs:[48]
    // What told the function that it goes on must not tell the next call the same.
    xor r8d, r8d
    xor r10d, r10d
    test edx, edx
    jnz 2f
    mov rdi, [rsp + 64]
    mov rsi, [rsp + 72]
    mov r9, [rsp + 48]
    xor r11d, r11d
    cmp dword ptr [rcx], 0
    .hidden rt_hooked_out
    .globl rt_hooked_out
rt_hooked_out:
    jne 2f
    mov qword ptr gs:[40], 0
    mov rsp, gs:[8]
    xor ecx, ecx
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
        c.rcx = 0;
    } else if fast::is_out(c.rip) {
        // As it will leave them.
        [c.rax, c.rcx, c.rdx, c.r8, c.r10, c.r11] = [0; 6];
    } else if !loads::step_out(c) {
        return;
    }
    if let Some(back) = guard::read(c.rsp) {
        c.rip = back;
        c.rsp += 8;
    }
}

macro_rules! shims {
    ($list:ident, $with:ident, $doc:literal; $($shim:ident: $name:literal => $module:ident :: $operation:ident $(, $original:path)?;)*) => {
        $(
            #[allow(non_snake_case)]
            mod $shim {
                use super::*;

                pub extern "C" fn operation(f: &mut Frame) -> Done {
                    // SAFETY: the thread comes from the program, which has called the function.
                    let t = unsafe { take_block() };
                    t.operations += 1;
                    $with!(O => {
                        if O::shows() {
                            complete(t, f);
                            debugger::show_frame(t, f);
                        }
                        O::enters(t);
                        let done = $module::$operation::<O>(t, f);
                        O::leaves(t, done.by_frame != AT_FRAME);
                        done
                    })
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

shims! { GLIBC, with_order, "Functions of glibc. What only fills in an object (`pthread_mutex_init`) or does nothing at all (`sem_destroy`) stays as it is.";
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
    rt_kill: b"pthread_kill" => kill::kill;
    rt_cancel: b"pthread_cancel" => cancel::cancel, cancel::CANCEL;
    rt_setcancelstate: b"pthread_setcancelstate" => cancel::set_state, cancel::STATE;
    rt_once: b"pthread_once" => once::once, once::ORIGINAL;
    rt_join: b"pthread_join" => join::join, join::ORIGINAL;
    rt_spin_lock: b"pthread_spin_lock" => spin::lock;
    rt_spin_trylock: b"pthread_spin_trylock" => spin::trylock;
}

shims! { ALLOCATION, with_order_of_heaps, "Functions of glibc that give memory, for engines to which addresses matter. `reallocarray` is none: it asks whichever `realloc` the program has, which another allocator may define (jemalloc has no `reallocarray`).";
    rt_malloc: b"malloc" => malloc::malloc;
    rt_calloc: b"calloc" => malloc::calloc;
    rt_realloc: b"realloc" => malloc::realloc;
    rt_free: b"free" => malloc::free;
    rt_memalign: b"memalign" => malloc::memalign;
    rt_aligned_alloc: b"aligned_alloc" => malloc::memalign;
    rt_posix_memalign: b"posix_memalign" => malloc::posix_memalign;
    rt_valloc: b"valloc" => malloc::valloc;
    rt_pvalloc: b"pvalloc" => malloc::valloc;
    rt_usable_size: b"malloc_usable_size" => malloc::usable_size;
}

shims! { CXX, with_order, "Functions of the C++ runtime: static variables in functions.";
    rt_guard_acquire: b"__cxa_guard_acquire" => cxa::acquire;
    rt_guard_release: b"__cxa_guard_release" => cxa::release;
    rt_guard_abort: b"__cxa_guard_abort" => cxa::abort;
}

shims! { ATOMIC, with_order, "Atomic operations of programs that `reprise cc` built (`compiler-rt`, tsan_interface_atomic.h).";
    rt_atomic8_load: b"__tsan_atomic8_load" => a8::load;
    rt_atomic8_store: b"__tsan_atomic8_store" => a8::store;
    rt_atomic8_exchange: b"__tsan_atomic8_exchange" => a8::exchange;
    rt_atomic8_fetch_add: b"__tsan_atomic8_fetch_add" => a8::fetch_add;
    rt_atomic8_fetch_sub: b"__tsan_atomic8_fetch_sub" => a8::fetch_sub;
    rt_atomic8_fetch_and: b"__tsan_atomic8_fetch_and" => a8::fetch_and;
    rt_atomic8_fetch_or: b"__tsan_atomic8_fetch_or" => a8::fetch_or;
    rt_atomic8_fetch_xor: b"__tsan_atomic8_fetch_xor" => a8::fetch_xor;
    rt_atomic8_fetch_nand: b"__tsan_atomic8_fetch_nand" => a8::fetch_nand;
    rt_atomic8_compare_exchange_strong: b"__tsan_atomic8_compare_exchange_strong" => a8::compare_exchange;
    rt_atomic8_compare_exchange_weak: b"__tsan_atomic8_compare_exchange_weak" => a8::compare_exchange;
    rt_atomic8_compare_exchange_val: b"__tsan_atomic8_compare_exchange_val" => a8::compare_exchange_val;
    rt_atomic16_load: b"__tsan_atomic16_load" => a16::load;
    rt_atomic16_store: b"__tsan_atomic16_store" => a16::store;
    rt_atomic16_exchange: b"__tsan_atomic16_exchange" => a16::exchange;
    rt_atomic16_fetch_add: b"__tsan_atomic16_fetch_add" => a16::fetch_add;
    rt_atomic16_fetch_sub: b"__tsan_atomic16_fetch_sub" => a16::fetch_sub;
    rt_atomic16_fetch_and: b"__tsan_atomic16_fetch_and" => a16::fetch_and;
    rt_atomic16_fetch_or: b"__tsan_atomic16_fetch_or" => a16::fetch_or;
    rt_atomic16_fetch_xor: b"__tsan_atomic16_fetch_xor" => a16::fetch_xor;
    rt_atomic16_fetch_nand: b"__tsan_atomic16_fetch_nand" => a16::fetch_nand;
    rt_atomic16_compare_exchange_strong: b"__tsan_atomic16_compare_exchange_strong" => a16::compare_exchange;
    rt_atomic16_compare_exchange_weak: b"__tsan_atomic16_compare_exchange_weak" => a16::compare_exchange;
    rt_atomic16_compare_exchange_val: b"__tsan_atomic16_compare_exchange_val" => a16::compare_exchange_val;
    rt_atomic32_load: b"__tsan_atomic32_load" => a32::load;
    rt_atomic32_store: b"__tsan_atomic32_store" => a32::store;
    rt_atomic32_exchange: b"__tsan_atomic32_exchange" => a32::exchange;
    rt_atomic32_fetch_add: b"__tsan_atomic32_fetch_add" => a32::fetch_add;
    rt_atomic32_fetch_sub: b"__tsan_atomic32_fetch_sub" => a32::fetch_sub;
    rt_atomic32_fetch_and: b"__tsan_atomic32_fetch_and" => a32::fetch_and;
    rt_atomic32_fetch_or: b"__tsan_atomic32_fetch_or" => a32::fetch_or;
    rt_atomic32_fetch_xor: b"__tsan_atomic32_fetch_xor" => a32::fetch_xor;
    rt_atomic32_fetch_nand: b"__tsan_atomic32_fetch_nand" => a32::fetch_nand;
    rt_atomic32_compare_exchange_strong: b"__tsan_atomic32_compare_exchange_strong" => a32::compare_exchange;
    rt_atomic32_compare_exchange_weak: b"__tsan_atomic32_compare_exchange_weak" => a32::compare_exchange;
    rt_atomic32_compare_exchange_val: b"__tsan_atomic32_compare_exchange_val" => a32::compare_exchange_val;
    rt_atomic64_load: b"__tsan_atomic64_load" => a64::load;
    rt_atomic64_store: b"__tsan_atomic64_store" => a64::store;
    rt_atomic64_exchange: b"__tsan_atomic64_exchange" => a64::exchange;
    rt_atomic64_fetch_add: b"__tsan_atomic64_fetch_add" => a64::fetch_add;
    rt_atomic64_fetch_sub: b"__tsan_atomic64_fetch_sub" => a64::fetch_sub;
    rt_atomic64_fetch_and: b"__tsan_atomic64_fetch_and" => a64::fetch_and;
    rt_atomic64_fetch_or: b"__tsan_atomic64_fetch_or" => a64::fetch_or;
    rt_atomic64_fetch_xor: b"__tsan_atomic64_fetch_xor" => a64::fetch_xor;
    rt_atomic64_fetch_nand: b"__tsan_atomic64_fetch_nand" => a64::fetch_nand;
    rt_atomic64_compare_exchange_strong: b"__tsan_atomic64_compare_exchange_strong" => a64::compare_exchange;
    rt_atomic64_compare_exchange_weak: b"__tsan_atomic64_compare_exchange_weak" => a64::compare_exchange;
    rt_atomic64_compare_exchange_val: b"__tsan_atomic64_compare_exchange_val" => a64::compare_exchange_val;
    rt_atomic128_load: b"__tsan_atomic128_load" => a128::load;
    rt_atomic128_store: b"__tsan_atomic128_store" => a128::store;
    rt_atomic128_exchange: b"__tsan_atomic128_exchange" => a128::exchange;
    rt_atomic128_fetch_add: b"__tsan_atomic128_fetch_add" => a128::fetch_add;
    rt_atomic128_fetch_sub: b"__tsan_atomic128_fetch_sub" => a128::fetch_sub;
    rt_atomic128_fetch_and: b"__tsan_atomic128_fetch_and" => a128::fetch_and;
    rt_atomic128_fetch_or: b"__tsan_atomic128_fetch_or" => a128::fetch_or;
    rt_atomic128_fetch_xor: b"__tsan_atomic128_fetch_xor" => a128::fetch_xor;
    rt_atomic128_fetch_nand: b"__tsan_atomic128_fetch_nand" => a128::fetch_nand;
    rt_atomic128_compare_exchange_strong: b"__tsan_atomic128_compare_exchange_strong" => a128::compare_exchange;
    rt_atomic128_compare_exchange_weak: b"__tsan_atomic128_compare_exchange_weak" => a128::compare_exchange;
    rt_atomic128_compare_exchange_val: b"__tsan_atomic128_compare_exchange_val" => a128::compare_exchange_val;
}

shims! { INNER, with_order, "Where the short ways of [`fast`] and [`loads`] go on when it gets longer; no functions of a module.";
    rt_mutex_entered: b"" => mutex::entered;
    rt_mutex_left: b"" => mutex::left;
    rt_mutex_called: b"" => mutex::called;
    rt_mutex_nothing: b"" => mutex::nothing;
    rt_atomic_loaded: b"" => atomic::loaded;
}

/// See [`fast`].
pub const LOCK: unsafe extern "C" fn() = rt_mutex_lock::rt_mutex_lock;
/// As above.
pub const UNLOCK: unsafe extern "C" fn() = rt_mutex_unlock::rt_mutex_unlock;
/// As above.
pub const ENTERED: unsafe extern "C" fn() = rt_mutex_entered::rt_mutex_entered;
/// As above.
pub const LEFT: unsafe extern "C" fn() = rt_mutex_left::rt_mutex_left;
/// As above.
pub const CALLED: unsafe extern "C" fn() = rt_mutex_called::rt_mutex_called;
/// As above.
pub const NOTHING: unsafe extern "C" fn() = rt_mutex_nothing::rt_mutex_nothing;
