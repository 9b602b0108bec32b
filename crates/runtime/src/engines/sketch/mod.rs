//! The engine that only a test has: a sketch of private views without an order. Threads run freely on views of their own, and commit at gates in whatever
//! order they come there ([`meeting`]); nothing is logged. It proves that [`crate::isolate`] knows no engine.
//!
//! What a program does without synchronising it may do in vain, and one that waits by looking at plain memory hangs. With threads it can't make processes.

mod meeting;
pub use meeting::AtGates;

use crate::common::plain::{self, syscall, AsItIs};
use crate::engine::{waits::Wait, wish::Wish, Engine, RESTART};
use crate::gate::instruction;
use crate::isolate::{call, commit, ending, one_process, phases, signals, space, split};
use crate::log::events;
use crate::machine::{guard, sys};
use crate::memory::{capture::Call, futex, scratch::Scratch};
use crate::signal::frame::Ucontext;
use crate::sync::libc::{count, malloc};
use crate::thread::{panic, signals::Siginfo, Block, Frame};
use core::sync::atomic::Ordering::SeqCst;
use meeting::{begin, within};
use reprise_abi::event::Instruction;
use reprise_abi::session::slot_state;
use reprise_abi::{spec::Blocking, syscalls::nr};

const EINTR: i64 = -4;
const EAGAIN: i64 = -11;
const ENOSYS: i64 = -38;

/// The engine.
pub struct Sketch;

impl AsItIs for Sketch {}

/// In a turn: a call that may wait is made beside all others, on scratch memory.
fn beside(t: &mut Block, c: &mut Call) -> i64 {
    let mut scratch = Scratch::new(t, c.scratch_needed());
    if let Err(e) = c.localise(&mut scratch) {
        return e;
    }
    let r = meeting::outside(t, |t| syscall::<Sketch>(t, c));
    if r != RESTART {
        events::copy_out(c, r);
    }
    r
}

impl Engine for Sketch {
    const LIVE: bool = true;
    const IMMEDIATE: bool = true;
    const BORN: u32 = slot_state::RUNNING;

    fn takes_over(_first: bool) {
        panic::tell_before_end(|| ending::announce(ending::FAILED << 8));
        phases::start(&meeting::AtMeeting);
    }
    fn takes_signal(t: &mut Block, info: &Siginfo, uc: &mut Ucontext) -> bool {
        call::takes(t, info, uc)
    }
    fn received(info: &Siginfo) -> Siginfo {
        signals::received(info)
    }
    fn arrived(_t: &mut Block, _uc: &mut Ucontext) {
        meeting::news();
    }
    fn syscall(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        if !split::in_force() {
            return syscall::<Sketch>(t, c);
        }
        within(t, |t| {
            signals::address_thread(c);
            match c.blocking {
                _ if one_process::is_for_all(c) => one_process::make(t, c, syscall::<Sketch>),
                Blocking::Never | Blocking::Rarely => syscall::<Sketch>(t, c),
                _ => beside(t, c),
            }
        })
    }
    fn computed(t: &mut Block, c: &Call, result: i64) -> i64 {
        if c.nr == nr::RT_SIGACTION && result == 0 && c.args[1] != 0 && split::in_force() {
            within(t, |t| space::tell_handler(t, c.args[0] as u32));
        }
        result
    }
    fn acted(t: &mut Block, c: &Call, act: impl FnOnce(Option<i64>) -> i64) -> i64 {
        within(t, |t| match c.nr {
            nr::BRK => space::brk(t, c.args[0], || act(None)),
            _ => act(None),
        })
    }
    fn address_space(t: &mut Block, c: &mut Call) -> i64 {
        match split::in_force() {
            true => within(t, |t| space::change(t, c)),
            false => plain::address_space::<Sketch>(t, c),
        }
    }
    fn futex(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        const WAIT: u32 = 0;
        const WAKE: u32 = 1;
        let [address, _, value, limit, ..] = c.args;
        within(t, |t| match futex::command(c) {
            _ if !split::in_force() => syscall::<Sketch>(t, c),
            WAIT if guard::read(address) != Some(value as u32) => EAGAIN,
            WAIT if limit == 0 => match meeting::wait(t, address, None) {
                Wait::Signal => EINTR,
                _ => 0,
            },
            WAKE => meeting::wake(address, value as u32).into(),
            _ => ENOSYS,
        })
    }
    fn instruction(_t: &mut Block, which: Instruction) -> (u64, u64) {
        instruction::read_clock(which)
    }
    fn signal_point(t: &mut Block, frame: &mut Frame) {
        plain::signal_point(t, frame);
    }
    fn thread_create(t: &mut Block, _c: &Call, wish: &Wish, start: &Frame) -> i64 {
        if !split::in_force() {
            split::split(t);
            meeting::start(t.slot);
        }
        within(t, |t| {
            let (tid, slot) = plain::thread_create::<Sketch>(t, wish, start, meeting::enrol);
            if sys::is_error(tid) {
                meeting::seat(slot).store(meeting::GONE, SeqCst);
            }
            tid
        })
    }
    fn thread_start(t: &mut Block) {
        ending::ends_with_first();
        signals::hears(t);
        meeting::go_on(t, commit::forget_all);
    }
    fn thread_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        signals::hears_no_more(t);
        count(t);
        begin(t);
        malloc::thread_ends::<AtGates>(t);
        let status = (c.args[0] as u32 & 255) << 8;
        ending::give_up_all(t, status, meeting::wake, |_| {});
        meeting::leave(t, meeting::GONE);
        ending::end_thread(t)
    }
    fn process_create(t: &mut Block, _c: &Call, wish: &Wish, start: &Frame) -> i64 {
        match split::in_force() {
            true => ENOSYS,
            false => plain::process_create::<Sketch>(t, wish, start),
        }
    }
    fn process_start(t: &mut Block) {
        plain::process_start(t);
    }
    fn exec(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        ending::end_others();
        plain::exec(t, c)
    }
    fn process_dies(t: &mut Block, signal: u32) {
        ending::tell_of_death(t.slot, signal, None);
        ending::announce(signal);
    }
    fn process_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        signals::hears_no_more(t);
        count(t);
        begin(t);
        ending::leave_program(t, (c.args[0] as u32 & 255) << 8)
    }
}
