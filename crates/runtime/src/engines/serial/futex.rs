//! futex(2) under `serial`: only the holder of the baton touches the words, so plain lists do what the kernel's hash table does,
//! and every outcome is decided by the order that the log records.
//!
//! **Fairness.** A thread that unlocks and locks again keeps the baton meanwhile, and whoever it has woken for the lock finds it
//! taken. By itself, and with several processors, that ends sooner or later, when the other one comes in between; where slices
//! only ever end inside the critical section, because the one gate of the loop is there or all of its time is spent there, it would
//! never end. So a thread whose slice was ended by others gives way at the next call that wakes somebody, which most often is the end of the
//! critical section that it was interrupted in; and so does who wakes a thread that has waited for the same futex [`PATIENCE`]
//! times in a row.

use super::baton::{self, Wait};
use super::stands::{self, Stands};
use crate::engine::RESTART;
use crate::gate::{leader, robust};
use crate::log::events;
use crate::machine::guard;
use crate::machine::sys::{self, monotonic, Timespec};
use crate::memory::capture::Call;
use crate::memory::futex::command;
use crate::memory::futex::counts_wake;
use crate::memory::futex::key;
use crate::memory::futex::wake_op;
use crate::memory::futex::OWNER_DIED;
use crate::memory::futex::TID_MASK;
use crate::memory::futex::WAITERS;
use crate::memory::futex::{left_in_word, word_changed_at_once};
use crate::thread::schedule;
use crate::thread::signals::{ACTIONS, SA_RESTART};
use crate::thread::{slot, Block};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::event::{section_len, EventHeader, Kind, Tag, FLAG_RESTARTED};
use reprise_abi::futex::*;
use reprise_abi::schedule::FutexKey;
use reprise_abi::session::{futex_wait, Slot};

const EINVAL: i64 = -22;
const EFAULT: i64 = -14;
const EAGAIN: i64 = -11;
const EPERM: i64 = -1;
const EINTR: i64 = -4;
const ENOSYS: i64 = -38;
const ETIMEDOUT: i64 = -110;
const EDEADLK: i64 = -35;
const ANY: u32 = u32::MAX;

/// Waits on one futex in a row after which the thread gets its turn as soon as it is woken.
const PATIENCE: u64 = 8;

/// When a wait ends, and whether that is on CLOCK_REALTIME.
fn deadline(c: &Call, relative: bool, realtime: bool) -> Result<Option<(Timespec, bool)>, i64> {
    if c.args[3] == 0 {
        return Ok(None);
    }
    let t = guard::read::<Timespec>(c.args[3]).ok_or(EFAULT)?;
    if t.sec < 0 || !(0..1_000_000_000).contains(&t.nsec) {
        return Err(EINVAL);
    }
    if relative {
        return Ok(Some((
            Timespec::from_ns(monotonic().ns().saturating_add(t.ns())),
            false,
        )));
    }
    Ok(Some((t, realtime)))
}

/// Makes the call while recording; logs everything itself.
pub fn record(t: &mut Block, c: &Call) -> i64 {
    if leader::pause::is_on(t) {
        counts_wake(c);
    }
    let plain = |t: &Block, r: i64| {
        events::call_with(t, c, r, 0, 0, &[]);
        r
    };
    let word_out = |t: &Block, r: i64, address: u64| {
        events::call_with(t, c, r, 0, 0, &[(Tag::Output, address, address, 4)]);
        r
    };
    let [address, op, value, count2, second, value3] = c.args;
    let value = value as u32;
    let key = |address: u64| key(address, op as u32 & FUTEX_PRIVATE_FLAG != 0);
    if address % 4 != 0 {
        return plain(t, EINVAL);
    }
    if let Some(word) = word_changed_at_once(c).filter(|_| leader::is_alone()) {
        // The others sleep in the kernel.
        let old = guard::read(word);
        // SAFETY: the program's own call, with its own arguments.
        let r = unsafe { sys::syscall6(c.nr, c.local) };
        return match !sys::is_error(r) && left_in_word(c, word, old).is_some() {
            true => word_out(t, r, word),
            false => plain(t, r),
        };
    }
    match command(c) {
        FUTEX_WAIT | FUTEX_WAIT_BITSET => {
            let relative = command(c) == FUTEX_WAIT;
            let bitset = if relative { ANY } else { value3 as u32 };
            if bitset == 0 {
                return plain(t, EINVAL);
            }
            let end = match deadline(c, relative, op as u32 & FUTEX_CLOCK_REALTIME != 0) {
                Ok(d) => d,
                Err(e) => return plain(t, e),
            };
            match guard::read::<u32>(address) {
                None => return plain(t, EFAULT),
                Some(v) if v != value => return plain(t, EAGAIN),
                Some(_) => {}
            }
            sleep(t, c, key(address), bitset, end)
        }
        FUTEX_WAKE | FUTEX_WAKE_BITSET => {
            let bitset = if command(c) == FUTEX_WAKE {
                ANY
            } else {
                value3 as u32
            };
            if bitset == 0 {
                return plain(t, EINVAL);
            }
            let n = wake(t, &schedule::lock(), key(address), bitset, value);
            plain(t, n as i64)
        }
        FUTEX_REQUEUE | FUTEX_CMP_REQUEUE => {
            if (value as i32) < 0 || (count2 as i32) < 0 {
                return plain(t, EINVAL);
            }
            if command(c) == FUTEX_CMP_REQUEUE {
                match guard::read::<u32>(address) {
                    None => return plain(t, EFAULT),
                    Some(v) if v != value3 as u32 => return plain(t, EAGAIN),
                    Some(_) => {}
                }
            }
            let l = schedule::lock();
            let n = wake(t, &l, key(address), ANY, value);
            let moved = l.futex_requeue(key(address), key(second), count2 as u32);
            drop(l);
            plain(t, (n + moved) as i64)
        }
        FUTEX_WAKE_OP => {
            let Some(old) = guard::read::<u32>(second) else {
                return plain(t, EFAULT);
            };
            let Some((new, fits)) = wake_op(value3 as u32, old) else {
                return plain(t, ENOSYS);
            };
            if !guard::write(second, &new) {
                return plain(t, EFAULT);
            }
            let l = schedule::lock();
            let mut n = wake(t, &l, key(address), ANY, value);
            if fits {
                n += wake(t, &l, key(second), ANY, count2 as u32);
            }
            drop(l);
            word_out(t, n as i64, second)
        }
        cmd @ (FUTEX_LOCK_PI | FUTEX_LOCK_PI2 | FUTEX_TRYLOCK_PI) => {
            let me = t.slot().visible_tid.load(Relaxed);
            let Some(v) = guard::read::<u32>(address) else {
                return plain(t, EFAULT);
            };
            if v & TID_MASK == me {
                return plain(t, EDEADLK);
            }
            if v & TID_MASK == 0 {
                guard::write(address, &(me | v & (WAITERS | OWNER_DIED)));
                return word_out(t, 0, address);
            }
            if cmd == FUTEX_TRYLOCK_PI {
                return plain(t, EAGAIN);
            }
            let realtime = cmd == FUTEX_LOCK_PI || op as u32 & FUTEX_CLOCK_REALTIME != 0;
            let end = match deadline(c, false, realtime) {
                Ok(d) => d,
                Err(e) => return plain(t, e),
            };
            mark_waiters(address);
            sleep(t, c, key(address), ANY, end)
        }
        FUTEX_UNLOCK_PI => {
            let me = t.slot().visible_tid.load(Relaxed);
            let Some(v) = guard::read::<u32>(address) else {
                return plain(t, EFAULT);
            };
            if v & TID_MASK != me {
                return plain(t, EPERM);
            }
            let next = hand_over(key(address), &schedule::lock());
            guard::write(address, &next);
            word_out(t, 0, address)
        }
        _ => plain(t, ENOSYS),
    }
}

/// The word that an unlocked futex with priority inheritance gets: the next owner, who is woken, or 0.
pub fn hand_over(key: FutexKey, l: &schedule::Locked) -> u32 {
    match l.futex_wake_one(key) {
        Some(i) => slot(i).visible_tid.load(Relaxed) | WAITERS,
        None => 0,
    }
}

/// Wakes up to `n` that wait; how many it were. The calling thread gives way where that is due.
pub fn wake(t: &mut Block, l: &schedule::Locked, key: FutexKey, bitset: u32, n: u32) -> u32 {
    let mut starves = false;
    let woken = l.futex_wake(key, bitset, n, |one| {
        starves |= one.futex_waits.load(Relaxed) >= PATIENCE;
    });
    if woken != 0 && (starves || t.cut().interrupted) {
        t.cut().interrupted = false;
        t.cut().gives_way = true;
    }
    woken
}

/// Counts the waits of a thread on one futex in a row.
fn count_wait(me: &Slot, key: FutexKey) {
    let same =
        me.futex_space.load(Relaxed) == key.space && me.futex_address.load(Relaxed) == key.address;
    let before = if same {
        me.futex_waits.load(Relaxed)
    } else {
        0
    };
    // Who got its turn begins anew.
    let before = if before >= PATIENCE { 0 } else { before };
    me.futex_waits.store(before + 1, Relaxed);
}

/// Says in the word that somebody waits.
pub fn mark_waiters(address: u64) {
    if let Some(v) = guard::read::<u32>(address) {
        guard::write(address, &(v | WAITERS));
    }
}

/// Says that the call waits, and hands the baton on; with the baton back, how the wait ended, and whether the thread has inherited the futex.
pub fn wait(
    t: &mut Block,
    c: &Call,
    key: FutexKey,
    bitset: u32,
    end: Option<(Timespec, bool)>,
) -> (Wait, bool) {
    events::enter(t.slot, 0);
    robust::put_down(t);
    count_wait(t.slot(), key);
    let mut inherited = false;
    let how = loop {
        let l = schedule::lock();
        l.futex_insert(t.slot, key, bitset);
        if robust::is_behind() {
            // Its owner may have died since this thread looked.
            l.look_again(key);
        }
        let how = baton::futex_sleep(l, t, end);
        super::arrived::arrived(t);
        let asked = t.slot().futex_notes.swap(0, Relaxed) & futex_wait::LOOK != 0;
        if how != Wait::Woken || !asked {
            break how;
        }
        match look(t, c, key) {
            Look::Over => break how,
            Look::Inherited => {
                inherited = true;
                break how;
            }
            Look::GoesOn => {}
        }
    };
    robust::pick_up(t);
    (how, inherited)
}

fn sleep(
    t: &mut Block,
    c: &Call,
    key: FutexKey,
    bitset: u32,
    end: Option<(Timespec, bool)>,
) -> i64 {
    let timed = end.is_some();
    let may_stand = stands::in_calls(t, c, 0);
    let (how, inherited) = wait(t, c, key, bitset, end);
    let is_told = how == Wait::Interrupted && t.pending.first(t.mask).is_none();
    if let (Some(Stands::In(call)), true, Some(request)) =
        (may_stand, is_told, leader::pause::is_wanted(t))
    {
        stands::stands_in_call(t, &call, request);
    }
    let mut flags = 0;
    let r = match how {
        Wait::Woken => 0,
        Wait::TimedOut => ETIMEDOUT,
        Wait::Interrupted => {
            // With a timeout the kernel never restarts after a handler (futex(2), signal(7)).
            let again = match t.pending.first(t.mask) {
                Some(s) => !timed && ACTIONS.get(s.signal()).flags & SA_RESTART != 0,
                None => true,
            };
            if again {
                flags = FLAG_RESTARTED;
            }
            EINTR
        }
    };
    let sections = if inherited { section_len(4) } else { 0 };
    let h = EventHeader {
        detail: c.nr as u32,
        flags,
        value: r,
        ..events::header(Kind::Exit, t.slot, 0, sections)
    };
    let mut w = crate::log::ring::Writer::begin(&h);
    if inherited {
        w.put_section(Tag::Output as u32, c.args[0], c.args[0], 4);
    }
    w.finish();
    if flags & FLAG_RESTARTED != 0 {
        RESTART
    } else {
        r
    }
}

/// What a thread that waits finds when somebody has died.
enum Look {
    /// The wait is over, or may be: its caller looks for itself.
    Over,
    /// The futex keeps priorities, and is this thread's now.
    Inherited,
    /// It was somebody else's futex.
    GoesOn,
}

fn look(t: &Block, c: &Call, key: FutexKey) -> Look {
    let (me, address) = (t.slot(), c.args[0]);
    let moved =
        me.futex_space.load(Relaxed) != key.space || me.futex_address.load(Relaxed) != key.address;
    let Some(v) = guard::read::<u32>(address).filter(|_| !moved) else {
        return Look::Over;
    };
    if matches!(command(c), FUTEX_LOCK_PI | FUTEX_LOCK_PI2) {
        if v & TID_MASK != 0 {
            return Look::GoesOn;
        }
        let tid = me.visible_tid.load(Relaxed);
        guard::write(address, &(tid | v & (WAITERS | OWNER_DIED)));
        return Look::Inherited;
    }
    match v & OWNER_DIED != 0 || v != c.args[2] as u32 {
        true => Look::Over,
        false => Look::GoesOn,
    }
}

#[cfg(test)]
mod tests {
    use super::wake_op;

    #[test]
    fn wake_op_as_in_the_man_page() {
        // FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_GT, 1): what glibc's condition variables used.
        let add = 1 << 28 | 4 << 24 | 1 << 12 | 1;
        assert_eq!(wake_op(add, 1), Some((2, false)));
        assert_eq!(wake_op(add, 2), Some((3, true)));
        // OR with 1 << 4, compare equal to -1.
        let or = 1 << 31 | 2 << 28 | 4 << 12 | 0xfff;
        assert_eq!(wake_op(or, u32::MAX), Some((u32::MAX, true)));
        assert_eq!(wake_op(5 << 28, 0), None);
    }
}
