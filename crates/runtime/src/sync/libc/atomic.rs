//! Atomic operations of programs built with `reprise cc`: the functions that clang calls for them (`__tsan_atomic*`), which the wrapper's
//! support object defines, lead here.
//!
//! **Order**: an operation that changes the word, or may, is an operation on the word's shard ([`Order::ordered`]). A load isn't: it only has
//! to see what it saw, and to come after what was seen ([`Order::seen`]), so that threads that poll a word don't get into each other's way.
//!
//! **Memory order**: every operation on a shard is a full barrier before the operation; a store that is to be one afterwards, too
//! (`memory_order_seq_cst`), is made by `xchg`. All others have what the processor gives: loads acquire, stores release.

use super::object;
use crate::engine::order::Order;
use crate::races::objects::Change;
use crate::races::Atomic;
use crate::sync::hook::shim::Done;
use crate::thread::{Block, Frame};
use core::sync::atomic::Ordering::*;

/// `memory_order_seq_cst`
const SEQ_CST: u32 = 5;

/// From [`crate::sync::hook::loads`]: a load has found what is in rdx, but a signal waits.
pub fn loaded<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    O::does_not_count(t);
    Done::value(f.rdx)
}

macro_rules! sized {
    ($name:ident, $t:ty, $atomic:ty, $doc:literal) => {
        #[doc = $doc]
        pub mod $name {
            use super::*;

            fn word(f: &Frame) -> &'static $atomic {
                // SAFETY: only atomics; a fault ends the operation (`Order::faulted`).
                unsafe { object(f.rdi) }
            }

            /// Makes an operation that may change the word; `told` says whether it did, and the memory order.
            fn change<O: Order, R>(
                t: &mut Block,
                f: &Frame,
                operation: impl FnOnce(&$atomic) -> R,
                told: impl FnOnce(&R) -> (Option<Change>, u64),
            ) -> R {
                let w = word(f);
                let (result, now) = O::ordered(t, f.rdi, || {
                    let result = operation(w);
                    (result, w.load(Relaxed))
                });
                let known_as = O::known_as(t, f.rdi);
                t.known().put(known_as, size_of::<$t>(), now as u64);
                tell::<O>(t, f, told(&result), now as u64);
                result
            }

            fn tell<O: Order>(
                t: &mut Block,
                f: &Frame,
                (change, order): (Option<Change>, u64),
                value: u64,
            ) {
                let a = Atomic {
                    address: f.rdi,
                    size: size_of::<$t>(),
                    change,
                    value,
                    order: order as u32,
                };
                O::atomic(t, f, &a);
            }

            /// `load(address, order)`
            pub fn load<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
                let w = word(f);
                let v = O::seen(t, f.rdi, size_of::<$t>(), || w.load(SeqCst) as u64);
                tell::<O>(t, f, (None, f.rsi), v);
                Done::value(v)
            }

            /// `store(address, value, order)`
            pub fn store<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
                let (v, order) = (f.rsi as $t, f.rdx as u32);
                let store = |w: &$atomic| {
                    if order == SEQ_CST {
                        w.swap(v, SeqCst);
                    } else {
                        w.store(v, Release);
                    }
                };
                change::<O, _>(t, f, store, |()| (Some(Change::Store), f.rdx));
                Done::value(0)
            }

            sized!(@ $t, exchange, swap, "`exchange(address, value, order)`");
            sized!(@ $t, fetch_add, fetch_add, "`fetch_add(address, value, order)`");
            sized!(@ $t, fetch_sub, fetch_sub, "`fetch_sub(address, value, order)`");
            sized!(@ $t, fetch_and, fetch_and, "`fetch_and(address, value, order)`");
            sized!(@ $t, fetch_or, fetch_or, "`fetch_or(address, value, order)`");
            sized!(@ $t, fetch_xor, fetch_xor, "`fetch_xor(address, value, order)`");
            sized!(@ $t, fetch_nand, fetch_nand, "`fetch_nand(address, value, order)`");

            fn exchange_if<O: Order>(t: &mut Block, f: &Frame, expected: $t, new: $t) -> Result<$t, $t> {
                let exchange = |w: &$atomic| w.compare_exchange(expected, new, SeqCst, SeqCst);
                change::<O, _>(t, f, exchange, |made| match made {
                    Ok(_) => (Some(Change::Update), f.rcx),
                    Err(_) => (None, f.r8),
                })
            }

            /// `compare_exchange(address, &expected, value, order, order of failure)`: whether it was made; if not, `expected` gets the value
            /// found. The weak form never fails without a reason.
            pub fn compare_exchange<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
                // SAFETY: as for `word`.
                let expected: &$atomic = unsafe { object(f.rsi) };
                match exchange_if::<O>(t, f, expected.load(Relaxed), f.rdx as $t) {
                    Ok(_) => Done::value(1),
                    Err(found) => {
                        expected.store(found, Relaxed);
                        Done::value(0)
                    }
                }
            }

            /// `compare_exchange_val(address, expected, value, order, order of failure)`: the value found.
            pub fn compare_exchange_val<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
                let found = exchange_if::<O>(t, f, f.rsi as $t, f.rdx as $t);
                Done::value(found.unwrap_or_else(|v| v) as u64)
            }
        }
    };
    (@ $t:ty, $name:ident, $operation:ident, $doc:literal) => {
        #[doc = $doc]
        pub fn $name<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
            let v = f.rsi as $t;
            let told = |_: &$t| (Some(Change::Update), f.rdx);
            Done::value(change::<O, _>(t, f, |w| w.$operation(v, SeqCst), told) as u64)
        }
    };
}

sized!(a8, u8, core::sync::atomic::AtomicU8, "On bytes.");
sized!(a16, u16, core::sync::atomic::AtomicU16, "On 2 bytes.");
sized!(a32, u32, core::sync::atomic::AtomicU32, "On 4 bytes.");
sized!(a64, u64, core::sync::atomic::AtomicU64, "On 8 bytes.");

/// On 16 bytes: values are pairs of registers, as the ABI passes `__int128`.
pub mod a128 {
    use super::*;
    use core::arch::asm;

    fn pair(low: u64, high: u64) -> u128 {
        low as u128 | (high as u128) << 64
    }

    /// Puts `new` at the address if `expected` is there; what was there.
    fn exchange_if_equal(address: u64, expected: u128, new: u128) -> u128 {
        let (mut low, mut high) = (expected as u64, (expected >> 64) as u64);
        // SAFETY: the program's operation on the program's memory; a fault ends it. rbx, which LLVM may use itself, is kept in rsi.
        unsafe {
            asm!(
                "xchg rbx, rsi",
                "lock cmpxchg16b [rdi]",
                "mov rbx, rsi",
                in("rdi") address,
                inout("rsi") new as u64 => _,
                in("rcx") (new >> 64) as u64,
                inout("rax") low,
                inout("rdx") high,
            );
        }
        pair(low, high)
    }

    /// Changes the value at the frame's address: what was there.
    fn change<O: Order>(t: &mut Block, f: &Frame, new: impl Fn(u128) -> u128) -> u128 {
        let at = f.rdi;
        let (old, now) = O::ordered(t, at, || {
            let mut old = 0;
            loop {
                let now = new(old);
                let found = exchange_if_equal(at, old, now);
                if found == old {
                    return (old, now);
                }
                old = found;
            }
        });
        tell::<O>(t, f, Some(Change::Update), now);
        old
    }

    /// The order is taken for the strictest one, as the processor's is.
    fn tell<O: Order>(t: &mut Block, f: &Frame, change: Option<Change>, value: u128) {
        let a = Atomic {
            address: f.rdi,
            size: 16,
            change,
            value: value as u64 ^ (value >> 64) as u64,
            order: SEQ_CST,
        };
        O::atomic(t, f, &a);
    }

    fn exchange_if<O: Order>(t: &mut Block, f: &Frame, wanted: u128, new: u128) -> u128 {
        let at = f.rdi;
        let found = O::ordered(t, at, || exchange_if_equal(at, wanted, new));
        match found == wanted {
            true => tell::<O>(t, f, Some(Change::Update), new),
            false => tell::<O>(t, f, None, found),
        }
        found
    }

    fn returned(f: &mut Frame, value: u128) -> Done {
        f.rdx = (value >> 64) as u64;
        Done::pair(value as u64)
    }

    /// `load(address, order)`
    pub fn load<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
        let at = f.rdi;
        let v = O::ordered(t, at, || exchange_if_equal(at, 0, 0));
        tell::<O>(t, f, None, v);
        returned(f, v)
    }

    /// `store(address, value, order)`
    pub fn store<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
        exchange::<O>(t, f);
        Done::value(0)
    }

    macro_rules! operations {
        ($($name:ident: $operation:expr, $doc:literal;)*) => {$(
            #[doc = $doc]
            pub fn $name<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
                let v = pair(f.rsi, f.rdx);
                let operation: fn(u128, u128) -> u128 = $operation;
                let old = change::<O>(t, f, |old| operation(old, v));
                returned(f, old)
            }
        )*};
    }

    operations! {
        exchange: |_, v| v, "`exchange(address, value, order)`";
        fetch_add: u128::wrapping_add, "`fetch_add(address, value, order)`";
        fetch_sub: u128::wrapping_sub, "`fetch_sub(address, value, order)`";
        fetch_and: |old, v| old & v, "`fetch_and(address, value, order)`";
        fetch_or: |old, v| old | v, "`fetch_or(address, value, order)`";
        fetch_xor: |old, v| old ^ v, "`fetch_xor(address, value, order)`";
        fetch_nand: |old, v| !(old & v), "`fetch_nand(address, value, order)`";
    }

    /// `compare_exchange(address, &expected, value, order, order of failure)`
    pub fn compare_exchange<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
        // SAFETY: as for the smaller ones; the words are the calling thread's own.
        let expected: &[core::sync::atomic::AtomicU64; 2] = unsafe { object(f.rsi) };
        let wanted = pair(expected[0].load(Relaxed), expected[1].load(Relaxed));
        let found = exchange_if::<O>(t, f, wanted, pair(f.rdx, f.rcx));
        if found != wanted {
            expected[0].store(found as u64, Relaxed);
            expected[1].store((found >> 64) as u64, Relaxed);
        }
        Done::value((found == wanted) as u64)
    }

    /// `compare_exchange_val(address, expected, value, order, order of failure)`: the value found.
    pub fn compare_exchange_val<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
        let found = exchange_if::<O>(t, f, pair(f.rsi, f.rdx), pair(f.rcx, f.r8));
        returned(f, found)
    }
}
