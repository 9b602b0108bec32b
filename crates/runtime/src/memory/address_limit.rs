//! RLIMIT_AS, the limit of the address space, counts what is the program's and not what the runtime has reserved: rings and blocks for thousands of
//! threads that never were would leave nothing of 300 MB.
//!
//! The kernel is told the program's limit and [`OURS`], which no process ever fills, so that a fork, an exec, or another process that asks finds
//! it there; mappings that go beyond the program's part are refused here, where they are made. A hard limit that was set before the recording
//! can't be raised: then the kernel's word stands, reservations and all.

use crate::machine::guard;
use crate::machine::sys;
use crate::memory;
use crate::memory::capture::Call;
use reprise_abi::syscalls::nr;

/// What is added to a limit.
const OURS: u64 = 1 << 46;
const INFINITY: u64 = u64::MAX;
const RLIMIT_AS: u64 = 9;
const EFAULT: i64 = -14;

/// `struct rlimit`: soft, hard.
type Limit = [u64; 2];

/// What the kernel is to be told.
fn for_kernel(limit: u64) -> u64 {
    limit.saturating_add(OURS)
}

/// What the program is to be told.
fn for_program(limit: u64) -> u64 {
    match limit {
        INFINITY => INFINITY,
        _ => limit.checked_sub(OURS).unwrap_or(limit),
    }
}

/// The kernel's limit of a process (0: this one).
fn of(pid: u64) -> Option<Limit> {
    let mut now: Limit = [INFINITY; 2];
    let r = sys::prlimit64(pid, RLIMIT_AS, 0, now.as_mut_ptr() as u64);
    (r == 0).then_some(now)
}

/// Makes a call that asks for the limit or sets it, where its arguments are now; `None`: it is another one.
pub fn call(c: &Call) -> Option<i64> {
    let a = &c.local;
    let (pid, which, new, old) = match c.nr {
        nr::GETRLIMIT => (0, a[0], None, Some(a[1])),
        nr::SETRLIMIT => (0, a[0], Some(a[1]), None),
        nr::PRLIMIT64 => (
            a[0],
            a[1],
            Some(a[2]).filter(|p| *p != 0),
            Some(a[3]).filter(|p| *p != 0),
        ),
        _ => return None,
    };
    // Where threads are processes each has its own.
    let ours = which as u32 as u64 == RLIMIT_AS && !crate::thread::in_force::has_private_views();
    ours.then(|| limit(pid, new, old))
}

fn limit(pid: u64, new: Option<u64>, old: Option<u64>) -> i64 {
    let mut wanted: Limit = [INFINITY; 2];
    if let Some(at) = new {
        let Some(given) = guard::read::<Limit>(at) else {
            return EFAULT;
        };
        // Set before the recording, and not to be raised.
        let fixed = of(pid).is_some_and(|now| now[1] < OURS);
        wanted = if fixed { given } else { given.map(for_kernel) };
    }
    let mut before: Limit = [INFINITY; 2];
    let new = new.map_or(0, |_| wanted.as_ptr() as u64);
    let r = sys::prlimit64(pid, RLIMIT_AS, new, before.as_mut_ptr() as u64);
    match old {
        Some(at) if !sys::is_error(r) && !guard::write(at, &before.map(for_program)) => EFAULT,
        _ => r,
    }
}

/// Would the program have more than it may, with so many bytes more?
pub fn is_exceeded_by(more: u64) -> bool {
    let soft = of(0).map_or(INFINITY, |now| now[0]);
    if more == 0 || soft == INFINITY || soft < OURS {
        return false;
    }
    let all: u64 = memory::each().map(|r| r.end - r.start).sum();
    all.saturating_add(more) > for_program(soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_sees_what_it_set() {
        for limit in [0, 4096, 300 << 20, 1 << 50, INFINITY] {
            assert_eq!(for_program(for_kernel(limit)), limit);
        }
        // One from before the recording.
        assert_eq!(for_program(1 << 30), 1 << 30);
    }
}
