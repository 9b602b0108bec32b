//! The end of the program: all its thread-processes end as threads would, and whoever started it learns the right status.

use super::members::{number_of, slots};
use super::phases::lives;
use super::split;
use crate::gate::robust;
use crate::machine::sys;
use crate::signal::kernel;
use crate::thread::panic::{decimal, hex};
use crate::thread::process;
use crate::thread::signals::SIGCUT;
use crate::thread::{current, session, slot, Block};
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::names;
use reprise_abi::session::slot_state;
use reprise_abi::syscalls::nr;

/// Exit status of reprise's own failures.
pub const FAILED: u32 = 125;
const SIGKILL: u64 = 9;
/// Wait status with which the program's last thread ended it, plus 1, for the first thread, which has ended before.
static LAST_STATUS: AtomicU32 = AtomicU32::new(0);

/// Is the calling thread the one whose process the program is to others?
pub fn is_first() -> bool {
    current().kernel_tid() == process::kernel_pid()
}

/// Ends all others, but for the program's first process, which is to end with the right status.
fn end_threads() {
    end_those(&|s| slot(s).kernel_tid.load(Relaxed) != process::kernel_pid());
}

/// Ends all others.
pub fn end_others() {
    end_those(&|_| true);
}

fn end_those(which: &dyn Fn(u32) -> bool) {
    if !split::in_force() {
        return;
    }
    let me = current().slot_number();
    for s in slots().filter(|s| *s != me && which(*s)) {
        let tid = slot(s).kernel_tid.load(Relaxed);
        if tid != 0 && (lives(s) || tid == process::kernel_pid()) {
            sys::kill(tid as u64, SIGKILL);
        }
    }
}

/// Before the calling thread ends the program with this wait status.
pub fn announce(status: u32) {
    if !split::in_force() || is_first() {
        return end_others();
    }
    // First, since the others' ends are told of, too.
    tell_first(status);
    end_threads();
    let first = process::kernel_pid() as u64;
    sys::tgkill(first, first, SIGCUT as u64);
}

/// A signal has come, or the thread has looked around: was the program's first process told to end?
pub fn is_told() -> bool {
    LAST_STATUS.load(SeqCst) != 0 && split::in_force() && is_first()
}

/// It ends as it was told.
pub fn end_as_told() -> ! {
    end_with(LAST_STATUS.load(SeqCst) - 1)
}

/// The calling thread's process ends with this wait status. To the world only that of the first thread means something.
fn end_with(status: u32) -> ! {
    match status & 0x7f {
        0 => sys::exit_group((status >> 8) as i32),
        signal => kernel::die_now(signal),
    }
}

/// Looks whether a thread that the calling one has made was killed: to the kernel it is a process, and ends alone. Natively, the whole program
/// would have ended. Of those that ended by themselves the kernel forgets; they have no exit signal, so the program's own waits don't see them.
pub fn look_after_threads() {
    if is_told() {
        end_as_told();
    }
    look_after_first();
    const WNOHANG: u64 = 1;
    const WCLONE: u64 = 0x8000_0000;
    loop {
        let mut status = 0u32;
        let to = &mut status as *mut u32 as u64;
        let pid = sys::wait4(u64::MAX, to, WNOHANG | WCLONE, 0);
        if pid <= 0 {
            return;
        }
        let used = session().slots_used.load(Relaxed);
        let here = |s: &u32| slot(*s).kernel_tid.load(Relaxed) as i64 == pid;
        if let Some(s) = (0..used).find(here).filter(|s| lives(*s)) {
            tell_of_death(s, status & 0x7f, None);
            announce(status);
            end_with(status);
        }
    }
}

/// A signal that an instruction has raised (sigaction(2), `si_code`, `si_addr`).
#[derive(Clone, Copy)]
pub struct Fault {
    /// What kind of fault or trap it is.
    pub code: i32,
    /// The instruction; of a trap, the next one.
    pub at: u64,
    /// The address on which it faulted.
    pub address: u64,
}

/// Says which thread a signal has ended, and the program with it: natively the shell would say so, but to it the program is the first thread alone.
pub fn tell_of_death(s: u32, signal: u32, fault: Option<Fault>) {
    if signal == 0 || !split::in_force() || LAST_STATUS.load(SeqCst) != 0 {
        return;
    }
    let (mut n, mut a, mut b) = ([0; 10], [0; 18], [0; 18]);
    let index = number_of(s);
    sys::complain(&[
        "reprise: thread ",
        decimal(index, &mut n),
        " was ended by ",
        names::signal_name(signal).unwrap_or("a signal"),
    ]);
    if let Some(f) = fault {
        sys::complain(&[
            " (code ",
            decimal(f.code as u32, &mut n),
            "), at ",
            hex(f.at, &mut a),
            ", for the address ",
            hex(f.address, &mut b),
        ]);
    }
    sys::complain(&["; the program ends with it\n"]);
}

/// Ends with the others, if the first thread was killed: nobody else tells a thread that waits, and whoever started the program knows.
pub fn look_after_first() {
    const ESRCH: i64 = -3;
    if split::in_force() && !is_first() && sys::kill(process::kernel_pid() as u64, 0) == ESRCH {
        sys::exit_group(1);
    }
}

/// The calling thread, which has just begun, is killed when the first one is (PR_SET_PDEATHSIG(2const)), however long it computes: natively they are one
/// process. Of a thread that another one has made the kernel would do it too early, when its maker ends; it [looks](look_after_first) at its next turn.
pub fn ends_with_first() {
    const PR_SET_PDEATHSIG: u64 = 1;
    let first = i64::from(process::kernel_pid());
    if !split::in_force() || sys::getppid() != first {
        return;
    }
    sys::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    // It may have ended before the kernel knew that.
    if sys::getppid() != first {
        look_after_first();
    }
}

/// Ends the program with this wait status of an exit, by the calling thread's own will.
pub fn leave_program(t: &Block, status: u32) -> ! {
    announce(status);
    crate::thread::schedule::leave(t);
    sys::exit_group((status >> 8) as i32)
}

/// Ends the program with this wait status of an exit.
pub fn end(status: u32) -> ! {
    announce(status);
    sys::exit_group((status >> 8) as i32)
}

/// The first thread has ended: its process stays until the last one has.
///
/// Signals to the process still come to it, for others, and so do [proxy calls](super::proxy).
fn linger(t: &mut Block) -> ! {
    t.mask = !0;
    kernel::sync_mask(t);
    loop {
        match LAST_STATUS.load(SeqCst) {
            0 => {
                sys::futex_wait(LAST_STATUS.as_ptr(), 0, None);
            }
            _ => end_as_told(),
        }
    }
}

/// In its turn: the calling thread ends with this status, and gives up what others may wait for, by `wake`. Of the last one `ends` is called, before whoever
/// started the program is told. It comes back, unless the program ends with the thread.
pub fn give_up_all(
    t: &mut Block,
    status: u32,
    wake: impl Fn(u64, u32) -> u32,
    ends: impl FnOnce(&mut Block),
) {
    t.slot().state.store(slot_state::EXITING, Release);
    let wake = |address, _, n| {
        wake(address, n);
    };
    robust::announce_death(t, robust::write_word, wake, |_| None);
    session().live_threads.fetch_sub(1, Relaxed);
    let last = process::entry().live_threads.fetch_sub(1, Relaxed) == 1;
    if last {
        ends(t);
    }
    if !split::in_force() || (last && is_first()) {
        crate::thread::schedule::leave(t);
        sys::exit_group((status >> 8) as i32);
    }
    if last {
        tell_first(status);
    }
}

/// The calling thread, which has given up all, is no more; the first one [lingers](linger).
pub fn end_thread(t: &mut Block) -> ! {
    if is_first() {
        linger(t);
    }
    leave_slot(t)
}

/// The slot is free.
fn leave_slot(t: &Block) -> ! {
    // SAFETY: from here on the block may be another thread's: nothing of it is touched any more.
    unsafe {
        asm!(
            "mov dword ptr [{alive}], 0",
            "xor edi, edi",
            "syscall",
            "ud2",
            alive = in(reg) t.alive.as_ptr(),
            in("rax") nr::EXIT,
            options(noreturn, nostack)
        );
    }
}

/// The last thread ends, or one that ends all. Who was the first to say so counts.
fn tell_first(status: u32) {
    let _ = LAST_STATUS.compare_exchange(0, status + 1, SeqCst, SeqCst);
    sys::futex_wake(LAST_STATUS.as_ptr(), 1);
}
