//! The same run every time, data races included, with nothing recorded (DThreads; DESIGN 5, `det`).
//!
//! Threads are processes ([`threads`]) with private views of one memory ([`crate::isolate`]). What they do to each other they do in turns, whose order
//! follows from the program alone ([`token`], [`turns`]): synchronisation ([`crate::sync`], whose functions are made in turns as a whole; [`wait`]), locked
//! instructions ([`crate::locked`]), system calls ([`calls`]), calls that shape the address space ([`space`]).

pub mod calls;
pub mod children;
pub mod clock;
pub mod code;
pub mod deadlock;
pub mod ending;
pub mod errand;
pub mod io_turns;
pub mod lead;
pub mod log;
pub mod near;
pub mod newborn;
pub mod one_process;
pub mod options;
pub mod outer;
pub mod outlets;
pub mod outside;
pub mod pure;
pub mod rest;
pub mod shared_signals;
pub mod signal_descriptors;
pub mod signals;
pub mod space;
pub mod spin;
pub mod stdio;
pub mod streams;
pub mod threads;
pub mod token;
pub mod touch;
pub mod tried;
pub mod turns;
pub mod wait;
pub mod whole;

use crate::capture::Call;
use crate::clone::Wish;
use crate::engine::{Engine, DET, ENGINE};
use crate::isolate::commit::{self, Copies};
use crate::isolate::{apart, owned, split};
use crate::none::None as NoEngine;
use crate::signal::frame::Ucontext;
use crate::signal::state::Siginfo;
use crate::sys;
use crate::thread::{Block, Frame};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use reprise_abi::event::Instruction;
use reprise_abi::session::slot_state;
use reprise_abi::syscalls::nr;

/// What the engine keeps for a thread, in its block.
#[derive(Default)]
pub struct Local {
    /// It is the thread's turn.
    pub in_turn: bool,
    /// The program's code runs in the thread's turn, for so many deeds more; 0: it doesn't.
    pub keeps: u32,
    /// It has kept its turn since it gave back a mutex, being about to take the next one ([`near`]).
    pub is_near: bool,
    /// It has the lead of this phase, in which the program's code runs ([`lead`]).
    pub leads: bool,
    /// Whether it has just been made, and what it did first.
    pub newborn: newborn::Newborn,
    /// Made in another's lead: it begins with that one's view of memory, ...
    pub inherits: bool,
    /// ... in which it puts its id here.
    pub told: [u64; 2],
    /// The frame of the hooked function in which its turn began, ...
    pub begun_in: u64,
    /// ... and whether that has said that it writes to its objects only.
    pub narrow: bool,
    /// So many mutexes it has taken in the turn that it keeps: it ends when the last one is given back.
    pub holds: u32,
    /// When its last turn was over, signals to the process waited for somebody who opens them.
    pub signals_wait: bool,
    /// It is a process of vfork(2), in the memory of the thread that made it.
    pub apart: bool,
    /// Its turn for input and output, and streams that it has locked.
    pub io: io_turns::Local,
    /// The thread's copies of pages.
    pub copies: Copies,
    /// Whether it waits by looking at plain memory.
    pub look: spin::Look,
    /// What it has touched of others' own pages.
    pub touch: touch::Touch,
    /// Its last readings of clocks.
    pub clocks: clock::Readings,
    /// By which it is looked after when nobody else could.
    pub tick: spin::Tick,
    /// Its part of the log ([`log`]).
    pub log: log::Local,
    /// Its time, and what is random to it ([`pure`]).
    pub pure: pure::Local,
    /// The instruction that has faulted last, and the address for which it has, until it goes on.
    pub faulted: Option<[u64; 2]>,
}

/// Is this engine in force?
#[inline(always)]
pub fn runs() -> bool {
    ENGINE.load(Relaxed) == DET
}

/// Is the calling thread the only one left of several?
pub fn is_alone() -> bool {
    runs() && split::in_force() && token::live() == 1
}

/// The engine.
pub struct Det;

impl Engine for Det {
    const LIVE: bool = true;
    const IMMEDIATE: bool = true;
    const BORN: u32 = slot_state::RUNNING;

    fn syscall(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
        match pure::on() {
            true => pure::calls::syscall(t, c, frame),
            false => calls::given(t, c, frame),
        }
    }

    fn computed(t: &mut Block, c: &Call, result: i64) -> i64 {
        if c.nr == nr::RT_SIGACTION && result == 0 && c.args[1] != 0 && split::in_force() {
            turns::within_earnest(t, |t| space::tell_handler(t, c.args[0] as u32));
        }
        // Others may have sent some since the thread's last turn: they come in its next one, which the program alone says.
        if c.nr == nr::RT_SIGPROCMASK && c.args[1] != 0 && t.det.signals_wait {
            turns::within(t, shared_signals::take);
        }
        result
    }

    fn acted(t: &mut Block, c: &Call, act: impl FnOnce(Option<i64>) -> i64) -> i64 {
        turns::within_earnest(t, |t| match c.nr {
            nr::BRK => space::brk(t, c.args[0], || act(None)),
            _ => act(None),
        })
    }

    fn address_space(t: &mut Block, c: &mut Call) -> i64 {
        space::call(t, c)
    }

    fn futex(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
        if !split::in_force() || token::live() <= 1 {
            if let Some(r) = pure::on().then(|| pure::sleep::futex(t, c, frame)) {
                return r.unwrap_or_else(|| log::ask::ask(t, c, frame));
            }
            return log::ask::ask(t, c, frame);
        }
        turns::within(t, |t| wait::futex(t, c))
    }

    fn sched_yield(t: &mut Block, _c: &mut Call) -> i64 {
        turns::begin_anew(t);
        turns::end(t);
        0
    }

    fn instruction(t: &mut Block, which: Instruction) -> (u64, u64) {
        match pure::on() {
            true => (
                pure::clock::counter(t),
                crate::processor::first_allowed().into(),
            ),
            false => log::ask::instruction(t, which),
        }
    }

    fn signal_point(t: &mut Block, frame: &mut Frame) {
        match log::follows(t) {
            true => log::signal_point(t, frame),
            false => NoEngine::signal_point(t, frame),
        }
    }

    fn fault(t: &mut Block, info: &Siginfo, uc: &mut Ucontext, can: bool) -> bool {
        t.det.faulted = Some([uc.mc.rip, info.address()]);
        NoEngine::fault(t, info, uc, can)
    }

    fn goes_on(t: &mut Block, uc: &mut Ucontext) {
        t.det.faulted = None;
        NoEngine::goes_on(t, uc)
    }

    fn thread_create(t: &mut Block, _c: &Call, wish: &Wish, start: &Frame) -> i64 {
        threads::create(t, wish, start)
    }

    fn process_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        if log::follows(t) {
            return log::process::create(t, c, wish, start);
        }
        Det::make_process(t, c, wish, start)
    }

    fn thread_start(t: &mut Block) {
        threads::begin(t);
    }

    fn process_start(t: &mut Block) {
        let told = t.publish;
        t.det.log.left = true;
        NoEngine::process_start(t);
        if pure::on() {
            pure::ids::child_starts(t, told);
        }
    }

    fn thread_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        threads::exit(t, (c.args[0] as u32 & 255) << 8)
    }

    fn exec(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
        if log::follows(t) {
            return log::process::exec();
        }
        if split::in_force() && token::live() > 1 {
            if let Err(e) = threads::exec(t, c) {
                return e;
            }
        }
        if pure::on() {
            pure::leaves(t);
        }
        NoEngine::exec(t, c, frame)
    }

    fn image_start(t: &mut Block) {
        t.det.log.left = true;
        NoEngine::image_start(t)
    }

    fn process_dies(t: &mut Block, signal: u32) {
        if pure::on() {
            pure::leaves(t);
        }
        log::ask::ends(t, signal);
        ending::tell_of_death(t.slot, signal, t.det.faulted.take());
        ending::announce(signal);
    }

    fn process_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        signals::hears_no_more(t);
        crate::sync::count(t);
        turns::begin_anew(t);
        if pure::on() {
            pure::leaves(t);
        }
        log::ask::ends(t, (c.args[0] as u32 & 255) << 8);
        ending::announce((c.args[0] as u32 & 255) << 8);
        crate::serial::baton::leave(t);
        sys::exit_group(c.args[0] as i32)
    }

    fn arrived(t: &mut Block, _uc: &mut Ucontext) {
        if split::in_force() {
            token::signalled(t.slot);
        }
    }

    fn cut(_t: &mut Block, _uc: &mut Ucontext) {}

    fn trap(_t: &mut Block, _signal: u32, _uc: &mut Ucontext) -> bool {
        false
    }
}

impl Det {
    fn make_process(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        if !split::in_force() {
            return pure::ids::of_child(t, wish, |t| NoEngine::process_create(t, c, wish, start));
        }
        turns::within_earnest(t, |t| {
            owned::claim_all(t, true);
            commit::commit_again(t);
            if wish.shares_memory() && !wish.waits() {
                sys::complain(&[
                    "reprise: det: a program with threads can't make a process in its memory that runs beside it: it got ENOSYS\n",
                ]);
                return -38;
            }
            rest::copied().store(0, SeqCst);
            if wish.shares_memory() && !ending::is_first() {
                children::has_own(t);
            }
            pure::ids::of_child(t, wish, |t| {
                let pid = NoEngine::process_create(t, c, wish, start);
                if !sys::is_error(pid) && !wish.shares_memory() {
                    children::made(t, pid as u32);
                    apart::wait_for_copy(pid as u64);
                }
                pid
            })
        })
    }
}
