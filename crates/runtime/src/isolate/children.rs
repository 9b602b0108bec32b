//! The program's children, which any of its threads may wait for. To the kernel they are the first thread's ([`proxy::make_process`]); only those that share a
//! thread's memory for a while (vfork(2), posix_spawn(3)) are that thread's own.
//!
//! A thread that waits for a child of another thread-process can't do that in the kernel: it asks, again and again.

use super::members::slots;
use super::phases::lives;
use super::{ending, proxy};
use crate::log::events;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::scratch::Scratch;
use crate::thread::{slot, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::syscalls::nr;

const ECHILD: i64 = -10;
const WNOHANG: u64 = 1;
/// Only children of the calling thread: __WNOTHREAD.
const WNOTHREAD: u64 = 0x2000_0000;
/// Children of which it is known which thread has made them, at most.
const MAX_CHILDREN: usize = 1024;

/// Who has made children of its own, by slot: its id for the kernel.
static PARENTS: [AtomicU32; MAX_SLOTS] = [const { AtomicU32::new(0) }; MAX_SLOTS];

/// Children that are the first thread's to the kernel, and which thread has made them: both by their ids. 0: nobody.
static CHILDREN: [[AtomicU32; 2]; MAX_CHILDREN] =
    [const { [const { AtomicU32::new(0) }; 2] }; MAX_CHILDREN];

/// In its turn: the calling thread has made a child by fork(2).
pub fn made(t: &Block, pid: u32) {
    let of = |c: &&[AtomicU32; 2]| matches!(c[0].load(Relaxed), 0) || c[0].load(Relaxed) == pid;
    if let Some(free) = CHILDREN.iter().find(of) {
        free[1].store(t.kernel_tid, Relaxed);
        free[0].store(pid, Relaxed);
    }
}

fn forget(pid: u32) {
    let is = |c: &&[AtomicU32; 2]| c[0].load(Relaxed) == pid;
    if let Some(c) = CHILDREN.iter().find(is) {
        c[0].store(0, Relaxed);
    }
}

/// Children that were made by another thread.
fn others_have(t: &Block) -> bool {
    let others = |c: &[AtomicU32; 2]| c[0].load(Relaxed) != 0 && c[1].load(Relaxed) != t.kernel_tid;
    CHILDREN.iter().any(others)
}

/// In its turn: the calling thread has made a child that is its own.
pub fn has_own(t: &Block) {
    PARENTS[t.slot as usize].store(t.kernel_tid, Relaxed);
}

/// In a process that has left the memory of the threads.
pub fn undo() {
    PARENTS.iter().for_each(|p| p.store(0, Relaxed));
    CHILDREN.iter().for_each(|c| c[0].store(0, Relaxed));
}

/// The slots of those that may have children.
fn parents() -> impl Iterator<Item = u32> {
    let first = proxy::first();
    let is = move |s: &u32| {
        let (own, tid) = (
            PARENTS[*s as usize].load(Relaxed),
            slot(*s).kernel_tid.load(Relaxed),
        );
        Some(*s) == first || lives(*s) && own != 0 && own == tid
    };
    slots().filter(is)
}

/// Are all children that this wait may be for the calling thread's own? Then it can wait in the kernel.
pub fn are_own(t: &Block, c: &Call) -> bool {
    // WNOHANG, WEXITED, WSTOPPED, WCONTINUED, WNOWAIT
    const ASK: u64 = 1 | 2 | 4 | 8 | 0x0100_0000;
    const P_PID: u64 = 1;
    let options = c.args[options_of(c)];
    if parents().all(|s| s == t.slot) && (options & WNOTHREAD == 0 || !others_have(t)) {
        return true;
    }
    let one = match c.nr {
        nr::WAIT4 => (c.args[0] as i32 > 0).then_some(c.local[0]),
        _ => (c.args[0] == P_PID).then_some(c.local[1]),
    };
    let mut info = [0u64; 16];
    let to = info.as_mut_ptr() as u64;
    one.is_some_and(|pid| sys::waitid(P_PID, pid, to, ASK, 0) == 0)
}

/// The number of the argument of wait4(2) or waitid(2) that has its options.
fn options_of(c: &Call) -> usize {
    if c.nr == nr::WAIT4 {
        2
    } else {
        3
    }
}

/// Does the call only ask, and never wait?
pub fn only_asks(c: &Call) -> bool {
    c.args[options_of(c)] & WNOHANG != 0
}

/// In a turn: asks all that may have children of this wait4(2) or waitid(2); `None`: there are such, but nothing is to be told of them.
pub fn ask(t: &mut Block, c: &Call) -> Option<i64> {
    let options = options_of(c);
    let mut found = ECHILD;
    let mut tell = |r: Option<i64>| match r {
        None => {
            found = 0;
            None
        }
        Some(ECHILD) => None,
        told => told,
    };
    if c.args[options] & WNOTHREAD != 0 && !names_one(c) {
        for child in &CHILDREN {
            let [pid, maker] = child.each_ref().map(|w| w.load(Relaxed));
            if pid == 0 || maker != t.kernel_tid {
                continue;
            }
            let r = ask_one(t, c, options, proxy::first()?, Some(pid));
            if r == Some(ECHILD) {
                forget(pid);
            }
            if let Some(r) = tell(r) {
                return Some(r);
            }
        }
        let own = !ending::is_first() && parents().any(|s| s == t.slot);
        let own = own.then(|| ask_one(t, c, options, t.slot, None));
        return match own.and_then(&mut tell) {
            None => (found != 0).then_some(found),
            told => told,
        };
    }
    for s in parents() {
        let r = ask_one(t, c, options, s, None);
        if let Some(r) = tell(r) {
            return Some(r);
        }
    }
    (found != 0).then_some(found)
}

/// Does the wait name a child?
fn names_one(c: &Call) -> bool {
    const P_PID: u64 = 1;
    match c.nr {
        nr::WAIT4 => c.args[0] as i32 > 0,
        _ => c.args[0] == P_PID,
    }
}

/// Asks one thread-process of its children, or of one; `None`: nothing is to be told of them.
fn ask_one(t: &mut Block, c: &Call, options: usize, s: u32, pid: Option<u32>) -> Option<i64> {
    const P_PID: u64 = 1;
    let c = &mut c.clone();
    let mut scratch = Scratch::new(t, c.scratch_needed());
    if let Err(e) = c.localise(&mut scratch) {
        return Some(e);
    }
    c.local[options] = (c.args[options] | WNOHANG) & !WNOTHREAD;
    match (pid, c.nr) {
        (Some(pid), nr::WAIT4) => c.local[0] = pid.into(),
        (Some(pid), _) => c.local[..2].copy_from_slice(&[P_PID, pid.into()]),
        _ => {}
    }
    let r = match s == t.slot {
        // SAFETY: the program's own call, on scratch memory.
        true => unsafe { sys::syscall6(c.nr, c.local) },
        false => proxy::by(s, c.nr, &c.local),
    };
    let told = match c.nr {
        nr::WAIT4 => r as u32 * (r > 0) as u32,
        _ if r == 0 && c.args[2] != 0 => said(c),
        _ => 0,
    };
    if told != 0 {
        forget(told);
        events::copy_out(c, r);
        return Some(r);
    }
    (r != 0).then_some(r)
}

/// si_pid, where waitid(2) has put it.
fn said(c: &Call) -> u32 {
    // si_signo, si_errno, si_code, padding, si_pid.
    crate::machine::guard::read::<[u32; 5]>(c.local[2]).map_or(0, |w| w[4])
}
