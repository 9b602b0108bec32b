//! The same run every time, data races included, with nothing recorded (DThreads; DESIGN 5, `det`).
//!
//! Threads are processes ([`threads`]) with private views of one memory ([`crate::isolate`]). What they do to each other they do in turns, whose order
//! follows from the program alone ([`token`], [`turns`]): synchronisation ([`crate::sync::libc`], whose functions are made in turns as a whole; [`wait`]), locked
//! instructions ([`crate::sync::locked`]), system calls ([`calls`]), calls that shape the address space ([`space`]).

pub mod address_space;
pub mod calls;
pub mod child_waits;
pub mod clock;
pub mod deadlock;
pub mod hooked;
pub mod idle;
pub mod io_turns;
pub mod log;
pub mod look_ahead;
pub mod new_thread;
pub mod ownership_fault;
pub mod phases;
pub mod polled;
pub mod pure;
pub mod retained;
pub mod shared_word;
pub mod signal_calls;
pub mod spin;
pub mod stdio;
pub mod streams;
pub mod threads;
pub mod token;
pub mod turns;
pub mod wait;
pub mod whole;

use crate::code::patch;
use crate::common::plain::{self, AsItIs};
use crate::engine::wish::Wish;
use crate::engine::Engine;
use crate::isolate::commit::{self};
use crate::isolate::{
    apart, children,
    ending::{self, Fault},
    output_descriptors, outside, owned, proxy, shared_signals, signals, space, split,
};
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::frame::Ucontext;
use crate::thread::in_force;
use crate::thread::process;
use crate::thread::signals::Siginfo;
use crate::thread::{Block, Current, Frame};
use reprise_abi::event::Instruction;
use reprise_abi::session::slot_state;
use reprise_abi::syscalls::nr;
use reprise_code::elf::Exports;

/// What the engine keeps for a thread, in its block.
#[derive(Default)]
pub struct Local {
    /// It is the thread's turn.
    pub in_turn: bool,
    /// The program's code runs in the thread's turn, for so many operations more; 0: it doesn't.
    pub keeps: u32,
    /// It has kept its turn since it gave back a mutex, being about to take the next one ([`look_ahead`]).
    pub is_near: bool,
    /// It has the lead of this phase, in which the program's code runs ([`retained`]).
    pub leads: bool,
    /// Whether it has just been made, and what it did first.
    pub newborn: new_thread::Newborn,
    /// Made in another's lead: it begins with that one's view of memory, ...
    pub inherits: bool,
    /// ... in which it puts its id here.
    pub told: [u64; 2],
    /// The frame of the hooked function in which its turn began.
    pub begun_in: u64,
    /// So many mutexes it has taken in the turn that it keeps: it ends when the last one is given back.
    pub holds: u32,
    /// When its last turn was over, signals to the process waited for somebody who opens them.
    pub signals_wait: bool,
    /// Its turn for input and output, and streams that it has locked.
    pub io: io_turns::Local,
    /// Whether it waits by looking at plain memory.
    pub look: spin::Look,
    /// What it has touched of others' own pages.
    pub touch: ownership_fault::Touch,
    /// Its last readings of clocks.
    pub clocks: clock::Readings,
    /// By which it is looked after when nobody else could.
    pub tick: spin::Tick,
    /// Its part of the log ([`log`]).
    pub log: log::Local,
    /// Its time, and what is random to it ([`pure`]).
    pub pure: pure::Local,
    /// What the last instruction that faulted has raised, until it goes on.
    pub faulted: Option<Fault>,
}

impl Current {
    /// Its time ([`pure::clock`]).
    #[inline(always)]
    fn program_time(self) -> u64 {
        // SAFETY: the area is this room's own; a word of it that only the thread itself changes.
        unsafe { (*self.engine().at::<Local>()).pure.clock.now() }
    }

    /// Is it in a process that is not recorded?
    #[inline(always)]
    fn has_left(self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.engine().at::<Local>()).log.left }
    }
}

impl Block {
    /// What this engine keeps of the thread.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn det(&self) -> &mut Local {
        // SAFETY: the area is this room's own; filled when the block was made.
        unsafe { self.engine.get::<Local>() }
    }
}

/// Is the calling thread the only one left of several?
pub fn is_alone() -> bool {
    in_force::has_private_views() && split::in_force() && token::live() == 1
}

/// The engine.
pub struct Det;

impl AsItIs for Det {
    fn copies_moved(t: &Block) -> bool {
        log::records(t)
    }

    fn whole(c: &Call, result: i64) -> i64 {
        whole::rest(c, result)
    }
}

impl Engine for Det {
    const LIVE: bool = true;
    const IMMEDIATE: bool = true;
    const BORN: u32 = slot_state::RUNNING;

    fn fills(block: &mut Block) {
        block.engine.put(Local::default());
    }

    /// A replay rewrites what its recording did, by the same counts.
    fn rewrites(_t: &mut Block, after: u64) {
        if process::has_memory_to_itself() {
            patch::rewrite(after, false);
        }
    }

    fn finds_libc(exports: &Exports) {
        stdio::libc(exports);
    }

    #[inline(always)]
    fn with_new_memory<R>(t: &mut Block, map: impl FnOnce(&mut Block) -> R) -> R {
        address_space::with_new_memory(t, map)
    }

    fn takes_over(first: bool) {
        crate::thread::panic::tell_before_end(|| ending::announce(125 << 8));
        crate::isolate::phases::start(&phases::Ring);
        if first {
            log::world::start();
        }
    }

    fn program_begins(t: &mut Block, frame: &mut Frame) {
        if pure::on() {
            pure::image_starts(t);
            frame.rsp = pure::stack::settle(frame.rsp);
        }
    }

    fn is_hooked() {
        output_descriptors::note();
    }

    #[inline(always)]
    fn enters_gate(t: &mut Block, frame: &Frame) {
        if owned::any() {
            ownership_fault::before_call(t, frame);
        }
    }

    fn prepares_process(_t: &Block, child: &mut Block, wish: &Wish) {
        child.view().apart = wish.shares_memory() && in_force::threads_are_processes();
    }

    fn makes_process(child: &Block, flags: u64) -> Option<i64> {
        split::in_force().then(|| proxy::make_process(child, flags))
    }

    fn leaves_parent(t: &mut Block) {
        if in_force::threads_are_processes() {
            apart::leave(t);
        }
    }

    fn delivers_at_once(t: &Block) -> bool {
        !log::follows(t)
    }

    #[inline(always)]
    fn delivers_in_hook(t: &Block, anew: bool) -> bool {
        log::may_deliver(t, anew)
    }

    fn takes_signal(t: &mut Block, info: &Siginfo, uc: &mut Ucontext) -> bool {
        spin::takes(t, info.signal(), info, uc)
            || ownership_fault::takes(t, info.signal(), info, uc)
    }

    fn passes_on(t: &mut Block, info: &Siginfo) -> bool {
        outside::takes(t, info)
    }

    fn received(info: &Siginfo) -> Siginfo {
        let mut info = *info;
        if pure::on() {
            pure::ids::in_signal(&mut info);
        }
        signals::received(&info)
    }

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
        if c.nr == nr::RT_SIGPROCMASK && c.args[1] != 0 && t.det().signals_wait {
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
        address_space::call(t, c)
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
                crate::gate::processor::first_allowed().into(),
            ),
            false => log::ask::instruction(t, which),
        }
    }

    fn signal_point(t: &mut Block, frame: &mut Frame) {
        match log::follows(t) {
            true => log::signal_point(t, frame),
            false => plain::signal_point(t, frame),
        }
    }

    fn fault(t: &mut Block, info: &Siginfo, uc: &mut Ucontext, _can: bool) -> bool {
        t.det().faulted = Some(Fault {
            code: info.code(),
            at: uc.mc.rip,
            address: info.address(),
        });
        false
    }

    fn goes_on(t: &mut Block, _uc: &mut Ucontext) {
        t.det().faulted = None;
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
        t.det().log.left = true;
        plain::process_start(t);
        if pure::on() {
            pure::ids::child_starts(t, told);
        }
    }

    fn thread_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        threads::exit(t, (c.args[0] as u32 & 255) << 8)
    }

    fn exec(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
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
        plain::exec(t, c)
    }

    fn image_start(t: &mut Block) {
        t.det().log.left = true;
    }

    fn process_dies(t: &mut Block, signal: u32) {
        if pure::on() {
            pure::leaves(t);
        }
        log::ask::ends(t, signal);
        ending::tell_of_death(t.slot, signal, t.det().faulted.take());
        ending::announce(signal);
    }

    fn process_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        signals::hears_no_more(t);
        crate::sync::libc::count(t);
        turns::begin_anew(t);
        if pure::on() {
            pure::leaves(t);
        }
        log::ask::ends(t, (c.args[0] as u32 & 255) << 8);
        ending::leave_program(t, (c.args[0] as u32 & 255) << 8)
    }

    fn arrived(t: &mut Block, _uc: &mut Ucontext) {
        if split::in_force() {
            token::signalled(t.slot);
        }
    }
}

impl Det {
    fn make_process(t: &mut Block, _c: &Call, wish: &Wish, start: &Frame) -> i64 {
        if !split::in_force() {
            return pure::ids::of_child(t, wish, |t| plain::process_create::<Det>(t, wish, start));
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
            apart::begins();
            if wish.shares_memory() && !ending::is_first() {
                children::has_own(t);
            }
            pure::ids::of_child(t, wish, |t| {
                let pid = plain::process_create::<Det>(t, wish, start);
                if !sys::is_error(pid) && !wish.shares_memory() {
                    children::made(t, pid as u32);
                    apart::wait_for_copy(pid as u64);
                }
                pid
            })
        })
    }
}
