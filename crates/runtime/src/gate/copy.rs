//! Copies of a running program: a fork(2) with all its threads (Respec 4.1), made while all of them [stand](crate::gate::stand).
//!
//! The copy has what the program has: its memory, and a kernel's thread for each of its threads, which stands as that does. It has nothing of what
//! others could notice: no descriptors, so that pipes end and locks go; no signal at its end, so that no wait of the program's finds it; nothing to
//! write to that is shared: the session is a copy, too. It ends with the thread that made it.
//!
//! Threads that stay in their calls are not in the copy yet, nor are memory that others share, and what a fork leaves out (MADV_DONTFORK).

use crate::gate::clone::{self, BIRTH_COPIED};
use crate::machine::present::Presence;
use crate::machine::sys;
use crate::memory::compared;
use crate::thread::blocks::{block_of, in_use_here};
use crate::thread::{block_address, session, standing, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::layout::{PAGE, SESSION_BASE};
use reprise_abi::session::{region_flags, SESSION_TOTAL};
use reprise_abi::syscalls::nr;

const SIGKILL: u64 = 9;
const PR_SET_PDEATHSIG: u64 = 1;
/// wait4(2): children without an exit signal, too.
const WALL: u64 = 0x4000_0000;

/// Makes a copy. All other threads stand for this request, and the calling one is taken down. The process id of the copy, or an error; in the copy this
/// doesn't return.
pub fn make(t: &mut Block, request: u32) -> i64 {
    // SAFETY: without any flag, a fork: the child goes on here, on its own copy of this stack.
    let r = unsafe { sys::syscall6(nr::CLONE, [0; 6]) };
    if r != 0 {
        return r;
    }
    sys::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    sys::call(nr::CLOSE_RANGE, &[0, u32::MAX as u64, 0]);
    if has_own_session() {
        for i in (0..session().slots_used.load(Relaxed)).filter(|i| *i != t.slot) {
            if in_use_here(i).is_some() && block_of(i).stands.load(Relaxed) == request {
                make_thread(i);
            }
        }
        standing::await_release(request);
    }
    sys::exit_group(125)
}

/// Makes the kernel's thread of slot `i`.
fn make_thread(i: u32) {
    // SAFETY: its thread is in the other process; nobody uses the block before the new one does.
    let b = unsafe { &mut *(block_address(i) as *mut Block) };
    b.birth = BIRTH_COPIED;
    clone::make_kernel_thread(b, clone::OF_A_THREAD);
}

/// In the copy: what such a thread does first, and last for now.
pub fn stands_again(t: &Block) -> ! {
    standing::await_release(t.stands.load(Relaxed));
    sys::exit_group(125)
}

/// In the copy: the session becomes its own. False: there is no memory for it.
fn has_own_session() -> bool {
    const FLAGS: u64 = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;
    const MAYMOVE_FIXED: u64 = 3;
    let len = (SESSION_TOTAL as u64 + PAGE - 1) & !(PAGE - 1);
    let new = sys::mmap(0, len, sys::PROT_RW, FLAGS, u64::MAX, 0);
    if sys::is_error(new) {
        return false;
    }
    let shared = region_flags::SHARED;
    Presence::now().each(SESSION_BASE, SESSION_BASE + len, shared, |page| {
        let to = new as u64 + (page - SESSION_BASE);
        // SAFETY: from the session to the memory that was mapped for it.
        unsafe { crate::machine::guard::copy(to, page, PAGE as usize) };
    });
    !sys::is_error(sys::mremap(
        new as u64,
        len,
        len,
        MAYMOVE_FIXED,
        SESSION_BASE,
    ))
}

/// Ends a copy.
pub fn end(pid: u32) {
    sys::kill(pid as u64, SIGKILL);
    sys::wait4(pid as u64, 0, WALL, 0);
}

/// The test, while all stand: a copy is the same as the program; where one bit of it is changed, that is found.
pub fn test(t: &mut Block, request: u32, n: u64) {
    let s = session();
    let begun = sys::monotonic().ns();
    let pid = make(t, request);
    let pause = sys::monotonic().ns() - begun;
    if sys::is_error(pid) {
        return;
    }
    s.copies.fetch_add(1, Relaxed);
    s.copies_pause_ns.fetch_add(pause as u64, Relaxed);
    let pid = pid as u32;
    let same = compared::with(pid).is_some_and(|c| c.different == 0);
    let spoilt = compared::spoil(pid, n);
    let found = compared::with(pid).is_some_and(|c| c.different == 1 && Some(c.first) == spoilt);
    if same && found {
        s.copies_found.fetch_add(1, Relaxed);
    }
    end(pid);
}
