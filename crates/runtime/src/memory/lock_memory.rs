//! mlockall(2): locks what is the program's. The kernel would lock, and so fill, all that the runtime has reserved as well: the rings of thousands of
//! threads that never were. So the program's mappings are locked one by one, those to come where they are mapped ([`mapped`]).
//!
//! The kernel says no by the limit of the first mapping that doesn't fit (RLIMIT_MEMLOCK), which stays unlocked with all that was locked for
//! this call.

use crate::machine::sys;
use crate::memory;
use crate::memory::regions::Region;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const EINVAL: i64 = -22;
const EAGAIN: i64 = -11;
const MCL_CURRENT: u64 = 1;
const MCL_FUTURE: u64 = 2;
const MCL_ONFAULT: u64 = 4;
const MLOCK_ONFAULT: u64 = 1;

/// What mlockall has said of mappings to come; a fork and an exec forget it, as the kernel does.
static FUTURE: AtomicU64 = AtomicU64::new(0);

/// mlockall(2), in a recording: in a replay nothing is locked.
pub fn all(flags: u64) -> i64 {
    if flags & (MCL_CURRENT | MCL_FUTURE) == 0
        || flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0
    {
        return EINVAL;
    }
    if flags & MCL_CURRENT != 0 {
        for r in memory::each() {
            if let Err(why) = lock_whole(r.start, r.end - r.start, flags) {
                memory::each()
                    .take_while(|earlier| earlier.start < r.start)
                    .for_each(unlock);
                return why;
            }
        }
    }
    FUTURE.store(if flags & MCL_FUTURE != 0 { flags } else { 0 }, Relaxed);
    0
}

/// Locks a mapping, and fills it as far as that can be done: mlock(2) would complain of what can't be read, and of what lies behind the end of a
/// file, mlockall(2) doesn't.
fn lock_whole(start: u64, len: u64, flags: u64) -> Result<(), i64> {
    let done = lock(start, len, MCL_ONFAULT);
    if sys::is_error(done) {
        return Err(done);
    }
    if flags & MCL_ONFAULT == 0 {
        lock(start, len, flags);
    }
    Ok(())
}

fn lock(start: u64, len: u64, flags: u64) -> i64 {
    let how = if flags & MCL_ONFAULT != 0 {
        MLOCK_ONFAULT
    } else {
        0
    };
    sys::mlock2(start, len, how)
}

fn unlock(r: Region) {
    sys::munlock(r.start, r.end - r.start);
}

/// munlockall(2): what is mapped from now on isn't locked.
pub fn none() -> i64 {
    FUTURE.store(0, Relaxed);
    sys::munlockall()
}

/// In the copy of a memory that fork(2) made.
pub fn after_fork() {
    FUTURE.store(0, Relaxed);
}

/// The program has mapped this; an errno where it would have to be locked, and can't be.
pub fn mapped(start: u64, len: u64) -> Result<(), i64> {
    match FUTURE.load(Relaxed) {
        0 => Ok(()),
        flags => lock_whole(start, len, flags).map_err(|_| EAGAIN),
    }
}
