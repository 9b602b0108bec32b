//! Copies of a running program: a fork(2) with all its threads (Respec 4.1), made while all of them [stand].
//!
//! The copy has what the program has: its memory, and a kernel's thread for each of its threads, which stands as that does. It has nothing of what
//! others could notice: no descriptors, so that pipes end and locks go; no group whose signals reach it; no signal at its end, so that no wait of the program's finds it; nothing to
//! write to that is shared: the session is a copy, too. It ends when the program does.
//!
//! A fork leaves out three kinds of memory, which the copy gets in other ways: what is mapped shared is copied by the copy itself, so that what either
//! writes is its own; what isn't inherited (MADV_DONTFORK), and what children find wiped (MADV_WIPEONFORK), is written into the copy by the program,
//! which nobody needs to permit. Only what is mapped shared of a file and can't be written stays the file's.
//!
//! A thread that [stays in its call](stand::staying) is in the copy as one that stands in that call.

use crate::gate::clone::{self, BIRTH_COPIED};
use crate::gate::epochs::{ahead, slices};
use crate::gate::stand::{self, rt_reenter};
use crate::log::epoch;
use crate::machine::present::{self, Presence};
use crate::machine::{guard, sys};
use crate::memory::{self, transfer, Region};
use crate::thread::blocks::in_use_here;
use crate::thread::{block_address, in_force, session, slot, standing, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::layout::{EPOCH_RENDEZVOUS, MAX_SLOTS, PAGE, SESSION_BASE};
use reprise_abi::order::{ORDER_BASE, ORDER_HEAD_LEN};
use reprise_abi::session::{
    region_flags, FLAG_EPOCHS, FLAG_TEST_COPIES, FLAG_TEST_EPOCHS, FLAG_TEST_SLICES, SESSION_TOTAL,
};
use reprise_abi::syscalls::nr;

const SIGKILL: u64 = 9;
const PR_SET_PTRACER: u64 = 0x5961_6d61;
const ANY: u64 = u64::MAX;
/// wait4(2): children without an exit signal, too.
const WALL: u64 = 0x4000_0000;
const ENOMEM: i64 = -12;
const PROT_READ: u32 = 1;
/// Bytes of the session.
const SESSION_LEN: u64 = (SESSION_TOTAL as u64 + PAGE - 1) & !(PAGE - 1);

/// Can copies be made of this process?
#[inline(always)]
pub fn are_made() -> bool {
    let flags = session().flags;
    flags & FLAG_EPOCHS != 0
        || standing::is_tested() && flags & (FLAG_TEST_COPIES | FLAG_TEST_EPOCHS) != 0
}

/// Makes a copy. All other threads stand for this request, and the calling one is taken down. The process id of the copy, or an error; in the copy this
/// doesn't return.
pub fn make(t: &mut Block, request: u32, task: Task) -> i64 {
    let Some(rendezvous) = Rendezvous::new() else {
        return ENOMEM;
    };
    let parent = sys::getpid() as u64;
    // SAFETY: without any flag, a fork: the child goes on here, on its own copy of this stack.
    let r = unsafe { sys::syscall6(nr::CLONE, [0; 6]) };
    if r == 0 {
        become_copy(t, request, parent, &rendezvous, task);
    }
    if sys::is_error(r) {
        return r;
    }
    let pid = r as u32;
    if rendezvous.copy_has_its_own(pid) && fill_left_out(pid) {
        rendezvous.say(IS_WHOLE);
        return r;
    }
    end(pid);
    ENOMEM
}

/// The copy's first steps.
fn become_copy(t: &Block, request: u32, parent: u64, rendezvous: &Rendezvous, task: Task) -> ! {
    // Signals to the program's group are not for it.
    sys::call(nr::SETSID, &[]);
    sys::call(nr::CLOSE_RANGE, &[0, u32::MAX as u64, 0]);
    let own = memory::each().try_for_each(|r| has_own(&r)).is_some();
    let session_copy = own_copy(SESSION_BASE, SESSION_BASE + SESSION_LEN);
    let head_copy = own_copy(ORDER_BASE, ORDER_BASE + ORDER_HEAD_LEN as u64);
    if let (true, Some(session_copy), Some(head_copy)) = (own, session_copy, head_copy) {
        rendezvous.say(HAS_ITS_OWN);
        if !rendezvous.copy_is_whole(parent) {
            sys::exit_group(125);
        }
        memory::each().for_each(|r| protects(&r));
        let has_session = moves(session_copy, SESSION_BASE, SESSION_LEN);
        if has_session && moves(head_copy, ORDER_BASE, ORDER_HEAD_LEN as u64) {
            for i in (0..session().slots_used.load(Relaxed)).filter(|i| *i != t.slot) {
                if in_use_here(i).is_some() && stand::stands_in_copy(i, request) {
                    make_thread(i);
                }
            }
            stand::stands_in_copy(t.slot, request);
            match task {
                Task::Nothing => {}
                Task::Keeps => {
                    // Another copy is to look at it, and it at another one.
                    sys::prctl(PR_SET_PTRACER, ANY, 0, 0, 0);
                    ahead::judge(t, || sys::getppid() as u64 != parent);
                }
                Task::Follows => runs_again(t, parent, epoch::RUN, in_force::FOLLOW),
                Task::Reads => runs_again(t, parent, epoch::READ, in_force::BY_SLICES),
            }
            rest_while_lives(parent);
        }
    }
    sys::exit_group(125)
}

/// What a copy is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// To be looked at.
    Nothing,
    /// To stay as it is, when it has [compared](ahead::judge) what the copy of the epoch before has come to.
    Keeps,
    /// To run the epoch that begins, by the log of what the program did in it.
    Follows,
    /// To run it by the slices that the copy before has written.
    Reads,
}

/// Does a copy that runs an epoch by its log write slices?
#[inline(always)]
pub fn writes_slices() -> bool {
    session().flags & (FLAG_TEST_SLICES | FLAG_EPOCHS) != 0
}

/// In a copy: hooked functions take the long way out, also those that have a short one, so that the copy that writes slices and the one that runs by them
/// count the same calls.
#[inline(always)]
pub fn takes_long_ways(t: &Block) {
    if writes_slices() {
        t.slot().signal_pending.store(1, Relaxed);
    }
}

/// The copy is to run an epoch again when it is told so: its threads go on then, one at a time, in this role.
fn runs_again(t: &Block, parent: u64, when: u32, role: u32) {
    let has_ended = || sys::getppid() as u64 != parent;
    // Another copy of the program is to look at this one.
    sys::prctl(PR_SET_PTRACER, ANY, 0, 0, 0);
    let mut told = epoch::OPEN;
    while told != when {
        told = epoch::await_change(told, has_ended);
        if has_ended() {
            return;
        }
    }
    if writes_slices() && !epoch::slices_become_ring(role == in_force::BY_SLICES) {
        return;
    }
    limit_processor_time();
    // Nobody waits for the baton, which is handed on when all are there.
    let s = session();
    s.baton.store(MAX_SLOTS as u32 + 1, Relaxed);
    for word in [&s.ready_head, &s.ready_tail, &s.ready_count, &s.slice_over] {
        word.store(0, Relaxed);
    }
    for i in 0..s.slots_used.load(Relaxed) {
        slot(i).go.store(0, Relaxed);
    }
    in_force::ENGINE.store(role, Relaxed);
    // What the kernel does not give to a child.
    crate::gate::arm_dispatch();
    standing::release();
    // SAFETY: nothing of this stack, which the thread of this slot is to have, is needed any more.
    unsafe {
        core::arch::asm!(
            "mov rsp, {end}",
            "call {rests}",
            end = in(reg) epoch::stack_end(role == in_force::BY_SLICES),
            rests = sym makes_last_thread,
            in("rdi") t.slot as u64,
            in("rsi") parent,
            in("rdx") u64::from(role == in_force::FOLLOW),
            options(noreturn),
        )
    }
}

/// The copy's first thread is none of the program's: the kernel shows nothing of the memory of a process whose first thread has ended.
extern "C" fn makes_last_thread(i: u32, parent: u64, by_log: u64) -> ! {
    make_thread(i);
    if by_log != 0 && writes_slices() {
        slices::attends(parent);
    }
    rest_while_lives(parent);
    sys::exit_group(125)
}

/// Whatever becomes of the program, a copy that finds no end is ended by the kernel.
fn limit_processor_time() {
    const RLIMIT_CPU: u64 = 0;
    const SECONDS: u64 = 30;
    let limit = [SECONDS; 2];
    sys::call(nr::PRLIMIT64, &[0, RLIMIT_CPU, limit.as_ptr() as u64, 0]);
}

/// The copy rests until the program is no more. (A signal for that comes from the kernel when the *thread* ends that made the copy.)
pub fn rest_while_lives(parent: u64) {
    const LOOK_AGAIN: sys::Timespec = sys::Timespec {
        sec: 0,
        nsec: 20_000_000,
    };
    while sys::getppid() as u64 == parent {
        sys::nanosleep(&LOOK_AGAIN as *const sys::Timespec as u64, 0);
    }
}

/// What a program and a copy of it tell each other while that comes to be: a word in memory that both have.
struct Rendezvous;

/// The copy has all of its memory, but for what the program is to write into it.
const HAS_ITS_OWN: u32 = 1;
/// That is done.
const IS_WHOLE: u32 = 2;

impl Rendezvous {
    fn new() -> Option<Rendezvous> {
        sys::map_shared(EPOCH_RENDEZVOUS, PAGE).then_some(Rendezvous)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped for as long as this lives.
        unsafe { &*(EPOCH_RENDEZVOUS as *const AtomicU32) }
    }

    fn say(&self, what: u32) {
        self.word().store(what, Release);
        sys::futex_wake_all(self.word().as_ptr());
    }

    /// In the copy. False: the program has ended instead.
    fn copy_is_whole(&self, parent: u64) -> bool {
        self.is_said(IS_WHOLE, || sys::getppid() as u64 != parent)
    }

    /// Waits until the other one has said it; false: it has ended before.
    fn is_said(&self, what: u32, has_ended: impl Fn() -> bool) -> bool {
        const LOOK_AGAIN: i64 = 5_000_000;
        loop {
            let said = self.word().load(Acquire);
            if said == what {
                return true;
            }
            let until = sys::Timespec::from_ns(sys::monotonic().ns() + LOOK_AGAIN);
            sys::futex_wait(self.word().as_ptr(), said, Some(&until));
            if has_ended() {
                return self.word().load(Acquire) == what;
            }
        }
    }

    /// In the program. False: the copy has ended instead.
    fn copy_has_its_own(&self, pid: u32) -> bool {
        self.is_said(HAS_ITS_OWN, || has_ended(pid))
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        sys::munmap(EPOCH_RENDEZVOUS, PAGE);
    }
}

/// Is the child with this id over? It isn't waited for.
pub fn has_ended(pid: u32) -> bool {
    how_it_ended(pid) != Some(None)
}

/// How the copy with this id has ended, if it has: `si_code` and `si_status` of waitid(2), one above the other. `None`: there is no such copy.
pub fn how_it_ended(pid: u32) -> Option<Option<u64>> {
    const P_PID: u64 = 1;
    const WEXITED: u64 = 4;
    const WNOHANG: u64 = 1;
    const WNOWAIT: u64 = 0x0100_0000;
    let mut info = [0u64; 16];
    let at = info.as_mut_ptr() as u64;
    let options = WEXITED | WNOHANG | WNOWAIT | WALL;
    let r = sys::call(nr::WAITID, &[P_PID, pid as u64, at, options, 0]);
    // si_signo is 0 where nobody has ended.
    match (r, info[0] as u32) {
        (0, 0) => Some(None),
        (0, _) => Some(Some(info[1] << 32 | u64::from(info[3] as u32))),
        _ => None,
    }
}

/// Is this memory that a fork leaves to others, or that others write to, too?
fn is_left_out(r: &Region) -> bool {
    const OUT: u32 = region_flags::NOT_INHERITED | region_flags::WIPED;
    r.flags & OUT != 0 && !memory::is_read_only_file_memory(r)
}

/// In the copy: this memory becomes its own, where it isn't yet, or is there to be written to by the program.
fn has_own(r: &Region) -> Option<()> {
    let (start, len) = (r.start, r.end - r.start);
    if is_left_out(r) {
        const FIXED: u64 = OWN | sys::MAP_FIXED;
        return (sys::mmap(start, len, sys::PROT_RW, FIXED, u64::MAX, 0) as u64 == start)
            .then_some(());
    }
    if r.flags & region_flags::SHARED == 0 || memory::is_read_only_file_memory(r) {
        return Some(());
    }
    if r.prot & PROT_READ == 0 {
        sys::mprotect(start, len, PROT_READ as u64);
    }
    let copy = own_copy(start, r.end)?;
    moves(copy, start, len).then_some(())
}

/// In the copy: memory that was mapped anew gets the protection that the program has given it.
fn protects(r: &Region) {
    let is_new = is_left_out(r)
        || (r.flags & region_flags::SHARED != 0 && !memory::is_read_only_file_memory(r));
    if is_new && u64::from(r.prot) != sys::PROT_RW {
        sys::mprotect(r.start, r.end - r.start, u64::from(r.prot));
    }
    if is_new && r.is_guarded() {
        sys::madvise(r.start, r.end - r.start, memory::MADV_GUARD_INSTALL);
    }
}

/// Flags of memory that is a copy's own.
const OWN: u64 = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;

/// A copy of what is shared from `start` to `end`, elsewhere. `None`: there is no memory for it.
fn own_copy(start: u64, end: u64) -> Option<u64> {
    let new = sys::mmap(0, end - start, sys::PROT_RW, OWN, u64::MAX, 0);
    if sys::is_error(new) {
        return None;
    }
    let shared = region_flags::SHARED;
    Presence::now().each(start, end, shared, |page| {
        let to = new as u64 + (page - start);
        // Behind a file's end there is nothing.
        // SAFETY: to the memory that was mapped for it.
        let _ = guard::guarded(|| unsafe { guard::copy(to, page, PAGE as usize) });
    });
    Some(new as u64)
}

/// Moves a mapping over what is at `to`.
fn moves(from: u64, to: u64, len: u64) -> bool {
    const MAYMOVE_FIXED: u64 = 3;
    !sys::is_error(sys::mremap(from, len, len, MAYMOVE_FIXED, to))
}

/// In the program: what the fork has left out is written into the copy.
fn fill_left_out(pid: u32) -> bool {
    memory::each().filter(is_left_out).all(|r| {
        let mut done = true;
        let known = present::each_written(r.start, r.end, |page| {
            done &= transfer::put(pid, page, page, PAGE).is_some();
        });
        known && done
    })
}

/// Makes the kernel's thread of slot `i`.
fn make_thread(i: u32) {
    // SAFETY: its thread is in the other process; nobody uses the block before the new one does.
    let b = unsafe { &mut *(block_address(i) as *mut Block) };
    b.birth = BIRTH_COPIED;
    clone::make_kernel_thread(b, clone::OF_A_THREAD);
}

/// In the copy: what such a thread does first. It goes on when the copy is to run.
pub fn stands_again(t: &Block) -> ! {
    standing::await_release(t.stands.load(Relaxed));
    // SAFETY: the form says all that the thread needs.
    unsafe { rt_reenter(t.this) }
}

/// Ends a copy.
pub fn end(pid: u32) {
    sys::kill(pid as u64, SIGKILL);
    sys::wait4(pid as u64, 0, WALL, 0);
}
