//! The engine seam (DESIGN 2): what a gate asks of whoever decides order and logging. A gate knows nothing of batons, stamps or views.

use crate::capture::Call;
use crate::clone::Wish;
use crate::signal::frame::Ucontext;
use crate::signal::state::Siginfo;
use crate::thread::{Block, Frame};
use reprise_abi::event::Instruction;

/// The result of a call that is to be made again by the program's own instruction, after a handler ran.
pub const RESTART: i64 = i64::MIN;

/// An engine: statically dispatched, one for each of none, serial recording, serial replay.
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
    fn sched_yield(t: &mut Block, c: &mut Call) -> i64;
    /// A non-deterministic instruction: its result in edx:eax, and ecx.
    fn instruction(t: &mut Block, which: Instruction) -> (u64, u64);
    /// The end of a gate: the place where signals are delivered and slices end.
    fn signal_point(t: &mut Block, frame: &mut Frame);
    /// A synchronous fault of the program, before anything is done about it. True: nothing is, the program makes the instruction again, which it `can`
    /// unless something was done for it already.
    fn fault(t: &mut Block, info: &Siginfo, uc: &mut Ucontext, can: bool) -> bool;
    /// The program is about to go on outside of a gate: in a handler, or after an emulated instruction.
    fn goes_on(t: &mut Block, uc: &mut Ucontext);
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
    fn image_start(t: &mut Block);
    /// The process is about to be ended by `signal`: what is to be said is said now.
    fn process_dies(t: &mut Block, signal: u32);
    /// The whole process ends.
    fn process_exit(t: &mut Block, c: &Call, frame: &Frame) -> !;
    /// An asynchronous signal has come and waits for delivery; the thread may be anywhere.
    fn arrived(_t: &mut Block, _uc: &mut Ucontext) {}
    /// The agent asks the thread to leave its slice; the thread may be anywhere.
    fn cut(t: &mut Block, uc: &mut Ucontext);
    /// A timer of the engine's own is over; the thread may be anywhere.
    fn timer(_t: &mut Block, _uc: &mut Ucontext) {}
    /// The thread stepped, by the trap flag; true when the engine wanted it to.
    fn stepped(_t: &mut Block, _uc: &mut Ucontext) -> bool {
        false
    }
    /// A synchronous signal; true when it was due to the engine's own changes to the code, and is dealt with.
    fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool;
}

/// Which engine runs, in this process: set once at start; and by a debugger that makes a diversion.
#[export_name = "rt_engine"]
pub static ENGINE: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
/// No ordering, no log.
pub const NONE: u32 = 0;
/// Serial, recording.
pub const SERIAL_RECORD: u32 = 1;
/// Serial, replaying.
pub const SERIAL_REPLAY: u32 = 2;

/// Order, recording.
pub const ORDER_RECORD: u32 = 3;
/// Order, replaying.
pub const ORDER_REPLAY: u32 = 4;

/// Det: the same run every time.
pub const DET: u32 = 5;

/// Runs an expression with the engine in force as a type.
macro_rules! with_engine {
    ($e:ident => $body:expr) => {
        match $crate::engine::ENGINE.load(core::sync::atomic::Ordering::Relaxed) {
            $crate::engine::SERIAL_RECORD => {
                type $e = $crate::serial::record::Record;
                $body
            }
            $crate::engine::SERIAL_REPLAY => {
                type $e = $crate::serial::replay::Replay;
                $body
            }
            $crate::engine::ORDER_RECORD => {
                type $e = $crate::order::record::Record;
                $body
            }
            $crate::engine::ORDER_REPLAY => {
                type $e = $crate::order::replay::Replay;
                $body
            }
            $crate::engine::DET => {
                type $e = $crate::det::Det;
                $body
            }
            _ => {
                type $e = $crate::none::None;
                $body
            }
        }
    };
}
pub(crate) use with_engine;
