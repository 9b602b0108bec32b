//! System calls under `--pure`: what would tell the program of time, chance and the kernel's ids is answered here, or said in the program's own terms.

use super::super::{calls, io_turns, token};
use super::{clock, ids, random, sleep};
use crate::isolate::{output_descriptors, split};
use crate::machine::guard;
use crate::machine::sys::Timespec;
use crate::memory::capture::Call;
use crate::thread::process;
use crate::thread::signals::Siginfo;
use crate::thread::{Block, Frame};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::effect::{Effect, Told};
use reprise_abi::spec::{Mem, Print, Ret};
use reprise_abi::syscalls::{self, nr};

const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const SECOND: u64 = 1_000_000_000;
/// Longest path with an id in it that is looked at.
const PATH_ROOM: usize = 128;

/// A system call whose result and outputs come from the kernel, as far as they do.
pub fn syscall(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    if !io_turns::on() || !output_descriptors::writes(c) {
        // What a thread prints takes no time.
        t.det().pure.clock.step();
    }
    if let Some(r) = answered(t, c) {
        return r;
    }
    // What the kernel is told instead of what the program has in its memory.
    let mut path = [0u8; PATH_ROOM];
    let mut times = [0u64; 4];
    let mut group = 0u32;
    ids_for_kernel(c, &mut group);
    path_for_kernel(c, &mut path);
    // Looked at now: select(2) changes it.
    let limit = sleep::limit_of(c);
    let alone = !split::in_force() || token::live() <= 1;
    let r = match c.nr {
        _ if c.effect == Effect::Sleeps && alone => return sleep::nanosleep(t, c, frame),
        _ if matches!(c.effect, Effect::SetsTimer(_)) => {
            sleep::settime(t, c, &mut times);
            calls::given(t, c, frame)
        }
        _ if c.effect == Effect::SetsIntervalTimer => {
            sleep::sets_timer();
            calls::given(t, c, frame)
        }
        // A sleep by another name.
        nr::POLL if alone && c.args[1] == 0 && limit.is_some() && !sleep::outside_is_awaited() => 0,
        _ => calls::given(t, c, frame),
    };
    if let Some(limit) = limit.filter(|_| alone && sleep::is_over(c, r)) {
        let until = t.det().pure.clock.now().saturating_add(limit);
        t.det().pure.clock.pass(until);
    }
    told(t, c, r)
}

/// Calls that ask for what the runtime says by itself.
fn answered(t: &mut Block, c: &Call) -> Option<i64> {
    let written = |good: bool| Some(if good { 0 } else { EFAULT });
    let Effect::Tells(what) = c.effect else {
        return None;
    };
    match what {
        Told::ProcessId => Some(process::visible_pid() as i64),
        Told::ThreadId => Some(t.slot().visible_tid.load(Relaxed) as i64),
        Told::Clock => {
            let now = clock::read(t, c.args[0] as u32)?;
            written(guard::write(c.args[1], &Timespec::from_ns(now as i64)))
        }
        Told::Resolution => {
            clock::read(t, c.args[0] as u32)?;
            let finest = Timespec { sec: 0, nsec: 1 };
            written(c.args[1] == 0 || guard::write(c.args[1], &finest))
        }
        Told::TimeOfDay => {
            let now = clock::read(t, 0)?;
            let day = [now / SECOND, now % SECOND / 1000];
            let zone = c.args[1] == 0 || guard::write(c.args[1], &0u64);
            written(zone && (c.args[0] == 0 || guard::write(c.args[0], &day)))
        }
        Told::Seconds => {
            let now = clock::read(t, 0)? / SECOND;
            match c.args[0] == 0 || guard::write(c.args[0], &now) {
                true => Some(now as i64),
                false => Some(EFAULT),
            }
        }
        Told::Ticks => {
            const TICK_NS: u64 = 10_000_000;
            let ticks = t.det().pure.clock.now() / TICK_NS;
            let good = c.args[0] == 0 || guard::write(c.args[0], &[ticks, 0, 0, 0]);
            match good {
                true => Some((clock::UP_NS / TICK_NS + ticks) as i64),
                false => Some(EFAULT),
            }
        }
        Told::Usage => {
            /// RUSAGE_CHILDREN, RUSAGE_SELF, RUSAGE_THREAD
            const WHO: core::ops::RangeInclusive<i32> = -1..=1;
            if !WHO.contains(&(c.args[0] as i32)) {
                return Some(EINVAL);
            }
            let own = match c.args[0] as i32 {
                -1 => None,
                0 => clock::read(t, 2),
                _ => clock::read(t, 3),
            };
            written(write_usage(c.args[1], own.unwrap_or(0)))
        }
        Told::Processor => {
            let tell = |at: u64, value: u32| at == 0 || guard::write(at, &value);
            let first = crate::gate::processor::first_allowed();
            written(tell(c.args[0], first) && tell(c.args[1], 0))
        }
        Told::Random => Some(random::getrandom(t, c)),
        // The kernel tells, and not all of it is handed on.
        Told::Machine => None,
    }
}

/// A `struct rusage` of a program that has used so many ns, and nothing else.
fn write_usage(at: u64, ns: u64) -> bool {
    let mut usage = [0u64; 18];
    (usage[0], usage[1]) = (ns / SECOND, ns % SECOND / 1000);
    guard::write(at, &usage)
}

/// The kernel's ids where the program gives its own. `group` gets one that is behind a pointer.
fn ids_for_kernel(c: &mut Call, group: &mut u32) {
    const TIOCSPGRP: u64 = 0x5410;
    if is_ioctl(c) && c.args[1] == TIOCSPGRP {
        if let Some(id) = guard::read::<u32>(c.args[2]) {
            *group = ids::kernel(id);
            c.local[2] = group as *const u32 as u64;
        }
        return;
    }
    let spec = syscalls::lookup(c.nr).map_or(&[][..], |call| call.args);
    for (n, arg) in spec.iter().enumerate() {
        let is_id = match arg.print {
            Print::Pid => true,
            Print::PidBy { which, from, to } => (from..=to).contains(&(c.arg(which) as u32)),
            _ => false,
        };
        if is_id {
            c.local[n] = ids::kernel_signed(c.args[n] as i32) as i64 as u64;
        }
    }
}

/// Paths below /proc name processes and threads: the kernel gets its own ids.
fn path_for_kernel(c: &mut Call, room: &mut [u8; PATH_ROOM]) {
    const PROC: &[u8] = b"/proc/";
    for n in 0..c.nargs {
        if c.mem[n] != Mem::Path
            || guard::read::<[u8; 6]>(c.args[n]).as_ref().map(|p| &p[..]) != Some(PROC)
        {
            continue;
        }
        let mut path = [0u8; PATH_ROOM];
        let len = guard::string_len(c.args[n], PATH_ROOM).unwrap_or(PATH_ROOM);
        if len >= PATH_ROOM || !guard::read_bytes(c.args[n], &mut path[..len]) {
            continue;
        }
        if with_kernel_ids(&path[..len], room) {
            c.local[n] = room.as_ptr() as u64;
        }
    }
}

/// The same path with other ids, closed by a NUL; `false`: it has none, or there is no room.
fn with_kernel_ids(path: &[u8], room: &mut [u8; PATH_ROOM]) -> bool {
    let (mut to, mut changed) = (0, false);
    for (n, part) in path.split(|b| *b == b'/').enumerate() {
        let id = number(part).filter(|id| ids::is_ours(*id));
        let mut digits = [0; 10];
        let bytes = match id {
            Some(id) => crate::thread::panic::decimal(ids::kernel(id), &mut digits).as_bytes(),
            None => part,
        };
        changed |= id.is_some();
        let start = to + (n != 0) as usize;
        let Some(place) = room.get_mut(start..start + bytes.len() + 1) else {
            return false;
        };
        place[..bytes.len()].copy_from_slice(bytes);
        place[bytes.len()] = 0;
        if n != 0 {
            room[to] = b'/';
        }
        to = start + bytes.len();
    }
    changed
}

fn number(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// What the kernel has told, as the program is told it; and the result.
fn told(t: &mut Block, c: &Call, r: i64) -> i64 {
    match c.nr {
        _ if matches!(c.effect, Effect::Reads(..)) && r > 0 && random::is_device(c.args[0]) => {
            random::replace(t, c, r)
        }
        // si_pid of a signal that it has taken.
        _ if c.effect == Effect::TakesSignal && r > 0 && c.args[1] != 0 => {
            if let Some(mut info) = guard::read::<Siginfo>(c.args[1]) {
                ids::in_signal(&mut info);
                guard::write(c.args[1], &info);
            }
        }
        nr::WAIT4 if r > 0 => {
            if c.args[3] != 0 {
                write_usage(c.args[3], 0);
            }
            return child_came(t, r as u32);
        }
        nr::WAITID if r == 0 => {
            if c.args[4] != 0 {
                write_usage(c.args[4], 0);
            }
            // si_pid is the first word of the union.
            if let Some(kernel) = guard::read::<u32>(c.args[2] + 16).filter(|id| *id != 0) {
                let id = child_came(t, kernel) as u32;
                guard::write(c.args[2] + 16, &id);
            }
        }
        _ if returns_id(c) && r > 0 => {
            return ids::visible(r as u32) as i64;
        }
        _ if is_ioctl(c) && r == 0 => {
            const TIOCGPGRP: u64 = 0x540f;
            const TIOCGSID: u64 = 0x5429;
            if matches!(c.args[1], TIOCGPGRP | TIOCGSID) {
                tell_id(c.args[2]);
            }
        }
        nr::GETSOCKOPT if r == 0 => {
            const SOL_SOCKET: u64 = 1;
            const SO_PEERCRED: u64 = 17;
            if c.args[1] == SOL_SOCKET && c.args[2] == SO_PEERCRED {
                tell_id(c.args[3]);
            }
        }
        _ if c.effect == Effect::Tells(Told::Machine) && r == 0 => tell_of_machine(t, c.args[0]),
        _ => {
            if let (Effect::ReadsLink(path), true) = (c.effect, r > 0) {
                return link(c.arg(path), c.arg(path + 1), c.arg(path + 2), r);
            }
        }
    }
    r
}

fn is_ioctl(c: &Call) -> bool {
    c.nr == nr::IOCTL
}

fn returns_id(c: &Call) -> bool {
    syscalls::lookup(c.nr).is_some_and(|call| call.ret == Ret::Pid)
}

/// A child was waited for: it is as late as it was for that one when it ended. Its id.
fn child_came(t: &mut Block, kernel: u32) -> i64 {
    let id = ids::visible(kernel);
    t.det().pure.clock.pass(ids::time_of(id));
    id as i64
}

fn tell_id(at: u64) {
    if let Some(kernel) = guard::read::<u32>(at) {
        guard::write(at, &ids::visible(kernel));
    }
}

/// sysinfo(2): how long the machine has been running, and that it has nothing else to do.
fn tell_of_machine(t: &Block, at: u64) {
    const UPTIME: usize = 0;
    const LOADS: core::ops::Range<usize> = 1..4;
    const TOTAL: usize = 4;
    const FREE: usize = 5;
    const SHARED_AND_BUFFERS: core::ops::Range<usize> = 6..8;
    const SWAP: usize = 8;
    const FREE_SWAP: usize = 9;
    const PROCESSES: usize = 10;
    let Some(mut info) = guard::read::<[u64; 11]>(at) else {
        return;
    };
    info[UPTIME] = (clock::UP_NS + t.det().pure.clock.now()) / SECOND;
    info[LOADS].fill(0);
    info[FREE] = info[TOTAL] / 2;
    info[SHARED_AND_BUFFERS].fill(0);
    info[FREE_SWAP] = info[SWAP];
    info[PROCESSES] = 1;
    guard::write(at, &info);
}

/// readlink(2): /proc/self is a link to an id.
fn link(path: u64, to: u64, room: u64, r: i64) -> i64 {
    const SELF: &[u8; 11] = b"/proc/self\0";
    if guard::read::<[u8; 11]>(path).as_ref() != Some(SELF) {
        return r;
    }
    let mut digits = [0; 10];
    let id = crate::thread::panic::decimal(process::visible_pid(), &mut digits);
    let n = id.len().min(room as usize);
    guard::write_bytes(to, &id.as_bytes()[..n]);
    n as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_without_ids_stay() {
        let mut room = [0; PATH_ROOM];
        assert!(!with_kernel_ids(b"/proc/self/maps", &mut room));
        assert!(!with_kernel_ids(b"/proc/4/maps", &mut room));
    }

    #[test]
    fn numbers_of_paths() {
        assert_eq!(number(b"5000001"), Some(5_000_001));
        assert_eq!(number(b"self"), None);
    }
}
