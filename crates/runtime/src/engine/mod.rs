//! The engine seam (DESIGN 2): what a gate asks of whoever decides order and logging. A gate knows nothing of batons, stamps or views.

pub mod order;
pub mod waits;
pub mod wish;

use crate::engine::wish::Wish;
use crate::memory::capture::Call;
use crate::signal::frame::Ucontext;
use crate::thread::area::Area;
use crate::thread::signals::Siginfo;
use crate::thread::{Block, Frame, ENGINE_WORDS};
use reprise_abi::event::Instruction;
use reprise_code::elf::Exports;

/// The result of a call that is to be made again by the program's own instruction, after a handler ran.
pub const RESTART: i64 = i64::MIN;

/// An engine in one of its roles, statically dispatched ([`crate::dispatch`]).
///
/// What has a body here is what an engine does that has nothing to say about it.
pub trait Engine {
    /// The kernel acts for real: false in replay.
    const LIVE: bool;
    /// Asynchronous signals are delivered wherever they arrive, not at gates.
    const IMMEDIATE: bool;

    /// Answers a system call in short, straight from the frame, if this engine can; otherwise it goes the long way.
    #[inline(always)]
    fn short(_t: &mut Block, _frame: &Frame) -> Option<i64> {
        None
    }
    /// A system call whose result and outputs come from the kernel. May return [`RESTART`].
    fn syscall(t: &mut Block, c: &mut Call, frame: &Frame) -> i64;
    /// A system call that the runtime has answered by itself.
    fn computed(t: &mut Block, c: &Call, result: i64) -> i64;
    /// A system call that the runtime answers by itself, with what the machine allows: in replay `act` learns first what the
    /// recording's result was.
    fn acted(t: &mut Block, c: &Call, act: impl FnOnce(Option<i64>) -> i64) -> i64;
    /// A call that shapes the address space.
    fn address_space(t: &mut Block, c: &mut Call) -> i64;
    /// A wait or wake on a word of the program.
    fn futex(t: &mut Block, c: &mut Call, frame: &Frame) -> i64;
    /// sched_yield(2).
    fn sched_yield(t: &mut Block, c: &mut Call) -> i64 {
        Self::syscall(t, c, &Frame::default())
    }
    /// A non-deterministic instruction: its result in edx:eax, and ecx.
    fn instruction(t: &mut Block, which: Instruction) -> (u64, u64);
    /// The end of a gate: the place where signals are delivered and slices end.
    fn signal_point(t: &mut Block, frame: &mut Frame);
    /// A synchronous fault of the program, before anything is done about it. True: nothing is, the program makes the instruction again, which it `can`
    /// unless something was done for it already.
    fn fault(_t: &mut Block, _info: &Siginfo, _uc: &mut Ucontext, _can: bool) -> bool {
        false
    }
    /// The program is about to go on outside of a gate: in a handler, or after an emulated instruction.
    fn goes_on(_t: &mut Block, _uc: &mut Ucontext) {}
    /// Threads are where the kernel puts them, and the program may say where that is. (Elsewhere they share a processor, whatever it says.)
    const KERNEL_PLACES: bool = Self::IMMEDIATE;
    /// State of the slot of a thread that has not begun yet.
    const BORN: u32;

    /// Makes a new thread; the result is its thread id as the program sees it. `start` is the child's frame.
    fn thread_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64;
    /// Makes a new process; the result is its process id as the program sees it. `start` is the child's frame.
    fn process_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64;
    /// First thing the first thread of a new process does.
    fn process_start(t: &mut Block);
    /// First thing a new thread does.
    fn thread_start(t: &mut Block);
    /// Last thing a thread does.
    fn thread_exit(t: &mut Block, c: &Call, frame: &Frame) -> !;
    /// The calling thread wants to exec. The result is an errno: who succeeds does not come back.
    fn exec(t: &mut Block, c: &mut Call, frame: &Frame) -> i64;
    /// First thing the program does that a process has become.
    fn image_start(_t: &mut Block) {}
    /// The process is about to be ended by `signal`: what is to be said is said now.
    fn process_dies(_t: &mut Block, _signal: u32) {}
    /// The whole process ends.
    fn process_exit(t: &mut Block, c: &Call, frame: &Frame) -> !;
    /// An asynchronous signal has come and waits for delivery; the thread may be anywhere.
    fn arrived(_t: &mut Block, _uc: &mut Ucontext) {}
    /// The thread is at the end of the gate of a call that has a signal mask of its own, which is still in force.
    fn passes_point_under_mask(_t: &mut Block, _frame: &mut Frame) {}
    /// The agent asks the thread to leave its slice; the thread may be anywhere.
    fn cut(_t: &mut Block, _uc: &mut Ucontext) {}
    /// A timer of the engine's own is over; the thread may be anywhere.
    fn timer(_t: &mut Block, _uc: &mut Ucontext) {}
    /// The thread stepped, by the trap flag; true when the engine wanted it to.
    fn stepped(_t: &mut Block, _uc: &mut Ucontext) -> bool {
        false
    }
    /// A synchronous signal; true when it was due to the engine's own changes to the code, and is dealt with.
    fn trap(_t: &mut Block, _signal: u32, _uc: &mut Ucontext) -> bool {
        false
    }

    /// A thread's block is made: what the engine keeps of the thread is put into its area.
    fn fills(_block: &mut Block) {}
    /// The runtime has taken this process over: the `first` of the session, or one that has become another program.
    fn takes_over(_first: bool) {}
    /// The program's code is about to be searched for the first time, and `frame` is where it begins.
    fn program_begins(_t: &mut Block, _frame: &mut Frame) {}
    /// What is to be hooked is about to be looked for.
    fn before_hooks(_t: &mut Block) {}
    /// A libc was found, with these exports.
    fn finds_libc(_exports: &Exports) {}
    /// The functions of its libc are hooked.
    fn is_hooked() {}
    /// Has memory mapped in the program's name for an allocator of the runtime's own.
    #[inline(always)]
    fn with_new_memory<R>(t: &mut Block, map: impl FnOnce(&mut Block) -> R) -> R {
        map(t)
    }
    /// A thread that waits by looking at memory is before the instruction at `place`, and its looks are used up ([`crate::sync::spin`]). True: it was
    /// said when the engine wants to be asked again; else nobody asks any more.
    fn at_look(_t: &mut Block, _frame: &mut Frame, _place: u64) -> bool {
        false
    }
    /// The call site before `after` has been dispatched often: it may be rewritten.
    fn rewrites(_t: &mut Block, _after: u64) {}
    /// A replay, at the start of a gate: what the recording rewrote there is rewritten.
    #[inline(always)]
    fn rewrites_again(_t: &mut Block) {}
    /// Words that lay on the thread's stack at its last calls, the latest first, where that is kept.
    fn lately(_t: &Block) -> impl Iterator<Item = u64> {
        core::iter::empty()
    }
    /// The program has left the recorded path, at `pc`.
    fn diverges(_t: &Block, _pc: u64) {}
    /// The calling thread does nothing any more: what was recorded of it is as good as done.
    fn gives_up() -> ! {
        crate::machine::sys::exit_group(125)
    }
    /// A gate begins, and nothing has been done yet.
    #[inline(always)]
    fn enters_gate(_t: &mut Block, _frame: &Frame) {}
    /// The block of the first thread of a new process is made.
    fn prepares_process(_t: &Block, _child: &mut Block, _wish: &Wish) {}
    /// Makes the kernel's thread of this block, the first one of a process with a memory of its own, with these flags of clone(2); `None`: it is made
    /// as that of any thread.
    fn makes_process(_child: &Block, _flags: u64) -> Option<i64> {
        None
    }
    /// First thing in the copy of a memory that fork(2) made: leaves what is not for children, ...
    fn leaves_parent(_t: &mut Block) {}
    /// ... and, when the tables of the runtime are the child's, forgets the threads that aren't here.
    fn after_fork() {}
    /// Replay: may the next thread have slot `i`, which is in this state: is nothing left that was recorded of the last one?
    fn is_vacant(_i: u32, state: u32) -> bool {
        state != reprise_abi::session::slot_state::LEFT
    }

    /// Threads can [stand](crate::gate::stand) under this engine.
    const STANDS: bool = false;
    /// Can the calling thread stand where it is, as far as the engine is concerned?
    fn can_stand(_t: &Block) -> bool {
        Self::STANDS
    }
    /// Hooked functions that the thread has called since something of it was last logged or counted.
    fn unlogged_calls(_t: &Block) -> u64 {
        0
    }
    /// Of a thread that stands in a hooked function, which is to be called anew: has the function left something in the log? Then it is none that leaves nothing there.
    fn has_logged(_t: &Block) -> bool {
        false
    }
    /// A thread that is alone was told of a signal, and is about to go on in its handler, at `frame`; it stood in the middle of the program's code, or at a gate.
    fn told_alone(_t: &mut Block, _frame: &Frame, _in_code: bool) {}
    /// The program is about to make a call: is the epoch to end before it? It makes the call again then, when the next one begins.
    #[inline(always)]
    fn defers(_t: &mut Block, _frame: &Frame) -> bool {
        false
    }
    /// The end of a gate or of a hooked function, when all is done: `frame` is where the program goes on.
    #[inline(always)]
    fn passes_point(_t: &mut Block, _frame: &mut Frame) {}
    /// The calling thread, which stood, is about to go on.
    fn reenters(_t: &mut Block, _frame: &mut Frame) {}
    /// A thread that stood goes on, under this engine; `before`: what the engine in which it stood had kept of it.
    fn resumed(_t: &mut Block, _before: &Area<ENGINE_WORDS>) {}

    /// Signals are delivered to this thread wherever they arrive.
    fn delivers_at_once(_t: &Block) -> bool {
        Self::IMMEDIATE
    }
    /// A hooked function returns to the program, or begins anew: is this a place for handlers?
    #[inline(always)]
    fn delivers_in_hook(_t: &Block, _anew: bool) -> bool {
        true
    }
    /// A signal, before anything else is done about it. True: it was the engine's own.
    #[inline(always)]
    fn takes_signal(_t: &mut Block, _info: &Siginfo, _uc: &mut Ucontext) -> bool {
        false
    }
    /// Is this the signal of one of the engine's timers?
    fn is_timer(_info: &Siginfo) -> bool {
        false
    }
    /// A signal that was sent to the program has come to this thread. True: nothing is left to be done about it.
    fn passes_on(_t: &mut Block, _info: &Siginfo) -> bool {
        false
    }
    /// A signal as the program is told of it.
    fn received(info: &Siginfo) -> Siginfo {
        *info
    }
}
