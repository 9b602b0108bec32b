//! Futexes of the program (futex(2)): what a call asks for, which futex an address is, and the bits of their words.

use crate::machine::guard;
use crate::memory;
use crate::memory::capture::Call;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use reprise_abi::futex::*;
use reprise_abi::schedule::FutexKey;
use reprise_abi::session::region_flags;

/// Bits of a futex word that keeps priority inheritance or robustness (futex(2)).
pub const WAITERS: u32 = 0x8000_0000;
/// The owner died while holding it.
pub const OWNER_DIED: u32 = 0x4000_0000;
/// The owner's thread id.
pub const TID_MASK: u32 = 0x3fff_ffff;

/// The operation without its flags.
pub fn command(c: &Call) -> u32 {
    c.args[1] as u32 & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME)
}

/// What the futex at `address` is: memory that is really shared is the same for all who share it.
pub fn key(address: u64, private: bool) -> FutexKey {
    match memory::map().at(address).filter(|_| !private) {
        Some(r) if r.flags & region_flags::SHARED != 0 && r.space != 0 => FutexKey {
            space: r.space,
            address: r.offset + (address - r.start),
        },
        _ => FutexKey {
            space: crate::thread::process::space(),
            address,
        },
    }
}

/// How often somebody was woken at one of the words that share a count.
static WAKES: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

fn count_of(address: u64) -> &'static AtomicU32 {
    &WAKES[(address >> 2) as usize % WAKES.len()]
}

/// Of a call that waits at a word of the program's own: how often somebody was woken there so far. A wait that was interrupted is over if that has changed, since it could have been this thread's
/// turn; futex(2) says that a wait can end for nothing.
pub fn wakes(c: &Call) -> u32 {
    count_of(c.args[0]).load(SeqCst)
}

/// The call is about to be made: those whom it would have woken, if they weren't interrupted, learn of it.
pub fn counts_wake(c: &Call) {
    let Some(operation) = lookup(c.args[1]).filter(|o| o.effect != Effect::Wait) else {
        return;
    };
    count_of(c.args[0]).fetch_add(1, SeqCst);
    if operation.second {
        count_of(c.args[4]).fetch_add(1, SeqCst);
    }
}

/// Does the call only wait, for its own threads to wake it? Such a wait can be interrupted, and begun once more.
pub fn waits_for_own(c: &Call) -> bool {
    let waits = matches!(command(c), FUTEX_WAIT | FUTEX_WAIT_BITSET);
    let region = memory::map().at(c.args[0]);
    waits && region.is_some_and(|r| r.flags & region_flags::SHARED == 0)
}

/// FUTEX_WAKE_OP: the new value of the word, and whether its old value fits the comparison.
pub fn wake_op(encoded: u32, old: u32) -> Option<(u32, bool)> {
    let op = encoded >> 28 & 7;
    let shift = encoded >> 31 != 0;
    let cmp = encoded >> 24 & 15;
    // Both operands are 12 bits, signed.
    let sign = |v: u32| ((v << 20) as i32) >> 20;
    let mut arg = sign(encoded >> 12 & 0xfff) as u32;
    let against = sign(encoded & 0xfff);
    if shift {
        arg = 1u32.wrapping_shl(arg);
    }
    let new = match op {
        0 => arg,
        1 => old.wrapping_add(arg),
        2 => old | arg,
        3 => old & !arg,
        4 => old ^ arg,
        _ => return None,
    };
    let old = old as i32;
    let fits = match cmp {
        0 => old == against,
        1 => old != against,
        2 => old < against,
        3 => old <= against,
        4 => old > against,
        5 => old >= against,
        _ => return None,
    };
    Some((new, fits))
}

/// The word of the program that this futex operation changes without ever waiting. Whom it wakes may be there before the call is over.
pub fn word_changed_at_once(c: &Call) -> Option<u64> {
    let waits = lookup(c.args[1])?.effect == Effect::Wait;
    changed_word(c).filter(|_| !waits)
}

/// What such an operation has left in its `word`, which was `old` before. Whom FUTEX_WAKE_OP woke may have changed that once more by now.
pub fn left_in_word(c: &Call, word: u64, old: Option<u32>) -> Option<u32> {
    match command(c) {
        FUTEX_WAKE_OP => wake_op(c.args[5] as u32, old?).map(|(new, _)| new),
        _ => guard::read(word),
    }
}

/// The word of the program that the kernel changes when this futex operation succeeds.
pub fn changed_word(c: &Call) -> Option<u64> {
    let operation = lookup(c.args[1])?;
    match operation.nr {
        FUTEX_WAKE_OP | FUTEX_WAIT_REQUEUE_PI | FUTEX_CMP_REQUEUE_PI => Some(c.args[4]),
        _ => operation.pi.then_some(c.args[0]),
    }
}
