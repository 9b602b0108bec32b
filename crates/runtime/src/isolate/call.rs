//! Calling a thread, wherever it is, by a signal of the runtime's own: in the handler it does what others ask of it. A thread that waits in the kernel has no
//! other way to learn of that.

use super::members::member;
use super::phases::{phases, Whereabouts};
use super::{ending, outside, proxy, space, split};
use crate::machine::sys::{self, Timespec};
use crate::signal::frame::Ucontext;
use crate::signal::kernel::{self, WANTED};
use crate::thread::signals::{Siginfo, SIGCUT};
use crate::thread::{slot, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// By this value such a signal is known. Two may call at once: the second signal then finds that nothing is asked any more, and still is none of the program's.
const LOOK: u64 = 0x7265_706c_6f6f;
/// si_code of a signal that carries a value.
const SI_QUEUE: i32 = -1;

/// The thread of this slot looks, in a handler, whether anything is asked of it.
pub fn call(s: u32) {
    let tid = slot(s).kernel_tid.load(Relaxed) as u64;
    let mut info = Siginfo::ZERO;
    info.words[..4].copy_from_slice(&[SIGCUT as u64, SI_QUEUE as u32 as u64, 0, LOOK]);
    let at = &info as *const Siginfo as u64;
    sys::rt_tgsigqueueinfo(tid, tid, SIGCUT as u64, at);
}

/// Is this the signal that calls?
pub fn is_one(info: &Siginfo) -> bool {
    info.signal() == SIGCUT && info.code() == SI_QUEUE && info.words[3] == LOOK
}

/// A signal, before anything else is done about it. True: it was one that calls, and is answered. Not for the program's first thread when another one has ended
/// the program: it ends, too.
pub fn takes(t: &mut Block, info: &Siginfo, uc: &mut Ucontext) -> bool {
    if info.signal() == SIGCUT && ending::is_told() {
        ending::end_as_told();
    }
    let calls = split::in_force() && is_one(info);
    if calls {
        answer(t, uc);
        note_interruption(t);
    }
    calls
}

/// In its handler: does what others ask of this thread, wherever it is.
pub fn answer(t: &mut Block, uc: &mut Ucontext) {
    proxy::serve(t.slot);
    // The kernel has let it go, and it is nowhere in the midst of anything.
    if phases().whereabouts(t.slot) == Whereabouts::InKernel && kernel::is_at_call(&uc.mc) {
        space::follow(t.slot);
    }
    if member(t.slot).wants.load(Relaxed) != WANTED.load(Relaxed) {
        outside::learn(t.slot, false);
        uc.mask = kernel::kernel_mask(t, t.mask);
    }
    if member(t.slot).called.load(SeqCst) != 0 {
        // A call that is about to be made is not made.
        kernel::divert(&mut uc.mc);
    }
}

/// How long a thread sleeps before it looks whether another one was killed.
pub const LOOK_AROUND_NS: i64 = 200_000_000;

/// Waits in the runtime until `what`, and does what others ask meanwhile. It looks again when the word `news` changes, and at the time `end` (CLOCK_MONOTONIC,
/// ns).
pub fn attend(slot: u32, news: &AtomicU32, end: i64, mut what: impl FnMut() -> bool) {
    loop {
        let seen = news.load(SeqCst);
        space::follow(slot);
        proxy::serve(slot);
        if what() {
            return space::follow(slot);
        }
        let look = end.min(sys::monotonic().ns() + LOOK_AROUND_NS);
        sys::futex_wait(news.as_ptr(), seen, Some(&Timespec::from_ns(look)));
        ending::look_after_threads();
    }
}

/// A signal has come that is none of this thread's: a call that it has ended is made again.
pub fn note_interruption(t: &mut Block) {
    t.view().interrupted = true;
}

/// Was it such a signal that ended a call of the calling thread early? Then it is made again.
pub fn has_interrupted(t: &mut Block) -> bool {
    core::mem::take(&mut t.view().interrupted)
}
