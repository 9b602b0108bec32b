//! Proxy calls: system calls that one thread-process makes for another. To the kernel threads are processes, and what belongs to a process (its timers, its
//! children, the program that it becomes) belongs to one of them: to the **first**, whose process the program is to others. Another thread that wants
//! something of it asks, in its turn, and the first does it, wherever it waits: in the loop in which it waits for its turn, or in the handler of the signal
//! that asks it. Stacks and scratch memory of the runtime are shared, so what the call's arguments point to is the same for both.

use super::call::call;
use super::members::slots;
use super::phases::phases;
use super::{commit, ending, owned, space};
use crate::gate::clone::make_kernel_thread;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::thread::process;
use crate::thread::{block_address, slot, take_block, Block};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::syscalls;

/// Nobody asks; else the slot that is asked, plus 1.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// The call's number, or one of these.
static NUMBER: AtomicU64 = AtomicU64::new(0);
static ARGS: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];
static RESULT: AtomicI64 = AtomicI64::new(0);
static DONE: AtomicU32 = AtomicU32::new(0);

/// No system call: to make a process, on this block, with these flags.
const MAKE_PROCESS: u64 = 1 << 32;
/// Nor this: to become another program.
const BECOME: u64 = 2 << 32;
/// Nor this: to give back pages of its own, from the first of these addresses to the second.
const GIVE_BACK: u64 = 3 << 32;

/// The slot of the first thread.
pub fn first() -> Option<u32> {
    slots().find(|s| slot(*s).kernel_tid.load(Relaxed) == process::kernel_pid())
}

/// In a turn: has the first thread make this call, if it isn't the calling one.
pub fn by_first(number: u64, args: &[u64; 6]) -> i64 {
    match first().filter(|_| !ending::is_first()) {
        Some(s) => ask(s, number, args),
        // SAFETY: the program's own call.
        None => unsafe { sys::syscall6(number, *args) },
    }
}

/// In a turn: a process of the program is made by the first thread, whose child it is. Memory is as the calling thread has committed it; the child makes itself a
/// copy of that.
pub fn make_process(b: &Block, flags: u64) -> i64 {
    match first().filter(|_| !ending::is_first()) {
        Some(s) => {
            // The child has its address space.
            space::wait_for(s);
            ask(s, MAKE_PROCESS, &[b.slot.into(), flags, 0, 0, 0, 0])
        }
        None => make_kernel_thread(b, flags),
    }
}

/// In a turn: the thread of this slot gives back its own pages between these addresses.
pub fn give_back(s: u32, start: u64, end: u64, how: owned::How) {
    ask(s, GIVE_BACK, &[start, end, how.word(), 0, 0, 0]);
}

/// In its turn: another thread than the first has the first become another program, which ends all others.
pub fn become_another(first: u32, t: &Block, c: &Call) -> ! {
    let a = c.args;
    space::wait_for(first);
    ask(
        first,
        BECOME,
        &[c.nr, a[0], a[1], a[2], t.slot.into(), a[4]],
    );
    // It would have come back if it could.
    loop {
        sys::pause();
    }
}

/// In a turn: has the thread of this slot make this call.
pub fn by(s: u32, number: u64, args: &[u64; 6]) -> i64 {
    ask(s, number, args)
}

/// Becomes another program, in the handler of the first thread, in the turn of another one.
fn become_now(args: [u64; 6]) -> ! {
    // SAFETY: whoever has another reference, further up or in what the handler has interrupted, doesn't go on: this never returns.
    let t = unsafe { take_block() };
    let [number, path, second, third, asker, fifth] = args;
    // What the asker has committed is to be seen, and nothing else matters any more.
    commit::forget_all(t);
    // SAFETY: its thread waits for this one.
    let asker = unsafe { &*(block_address(asker as u32) as *const Block) };
    t.mask = asker.mask;
    ending::end_others();
    let args = [path, second, third, 0, fifth, 0];
    let c = Call::new(number, args, syscalls::lookup(number));
    crate::gate::exec::attempt(t, &c);
    sys::complain(&["reprise: det: the program can't become another one: its other threads have ended already\n"]);
    ending::end(ending::FAILED << 8)
}

/// In a turn: has the thread of this slot make a call.
fn ask(s: u32, number: u64, args: &[u64; 6]) -> i64 {
    NUMBER.store(number, Relaxed);
    for (to, from) in ARGS.iter().zip(args) {
        to.store(*from, Relaxed);
    }
    DONE.store(0, Relaxed);
    ASKED.store(s + 1, SeqCst);
    call(s);
    phases().rouse(s);
    while DONE.load(SeqCst) == 0 {
        ending::look_after_threads();
        sys::sched_yield();
    }
    RESULT.load(Relaxed)
}

/// Does what was asked of the thread of this slot, which is the calling one.
pub fn serve(s: u32) {
    if ASKED.load(SeqCst) != s + 1 || ASKED.compare_exchange(s + 1, 0, SeqCst, SeqCst).is_err() {
        return;
    }
    let args = ARGS.each_ref().map(|a| a.load(Relaxed));
    let result = match NUMBER.load(Relaxed) {
        MAKE_PROCESS => {
            // SAFETY: the block was prepared, and its process doesn't run yet.
            let block = unsafe { &*(block_address(args[0] as u32) as *const Block) };
            make_kernel_thread(block, args[1])
        }
        BECOME => become_now(args),
        GIVE_BACK => {
            owned::give_back(args[0], args[1], owned::How::of_word(args[2]));
            0
        }
        // SAFETY: a call of the program's, with arguments that it gave.
        number => unsafe { sys::syscall6(number, args) },
    };
    RESULT.store(result, Relaxed);
    DONE.store(1, SeqCst);
}
