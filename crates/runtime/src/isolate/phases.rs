//! What private views of memory, and processes that look like one, ask of whoever says when a thread shows what it wrote.
//!
//! A **turn** is here whatever time a thread has in which nobody runs the program's code and nobody else changes what is shared. Who has one when, and in which
//! order, is the policy's to say; no module of this room knows.

use crate::engine::waits::Wait;
use crate::machine::guarded::Guarded;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::{self, shm};
use crate::thread::leave::Beginning;
use crate::thread::{panic, Block};
use reprise_abi::syscalls::nr;

/// Where a thread is, as far as others have to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// There is none on this slot.
    Gone,
    /// It runs, or waits for a turn.
    AtWork,
    /// It waits for another thread, or for a signal: somebody has to [recall](Phases::recall) it.
    Waits,
    /// It makes a call that waits in the kernel.
    InKernel,
}

/// See the module. All that isn't said to be otherwise is asked in a turn. What has a body here is what a policy does that has nothing to say about it.
pub trait Phases: Sync {
    /// Number of the round of commits: it grows when a phase begins ([`phase_begins`](super::pages::phase_begins)).
    fn round(&self) -> u32;
    /// May pages become a thread's own? Then others' faults on them are seen to.
    fn lets_own(&self) -> bool {
        false
    }
    /// Is what the thread maps its own from birth, if pages may be? Not while several are at work.
    fn bears_own(&self, _t: &Block) -> bool {
        false
    }
    /// In a phase: the thread is about to look at the table of views, or to open a descriptor for a moment. True: [`Phases::has_looked`] is to be told.
    fn looks(&self) -> bool {
        false
    }
    /// It has looked.
    fn has_looked(&self) {}

    /// Where the thread of this slot is. At any time.
    fn whereabouts(&self, slot: u32) -> Whereabouts;
    /// A thread that waits for a turn, or for another thread, looks whether anything is asked of it
    /// ([`serve`](super::proxy::serve), [`follow`](super::space::follow)).
    fn rouse(&self, slot: u32);
    /// A thread that [waits](Whereabouts::Waits) waits no more, and this is how its wait has ended.
    fn recall(&self, slot: u32, how: Wait);

    /// Are signals from outside passed on to the thread that takes them ([`super::outside`])? Else they stay with the one to which the kernel has given them.
    /// At any time.
    fn passes_signals_on(&self) -> bool {
        false
    }
    /// One of them has come, and is to be [distributed](super::outside::distribute) when nobody runs. In a handler.
    fn signal_has_come(&self) {}
    /// Do signals to the process come to a thread as it takes them? Else something other says where they come.
    fn delivers(&self) -> bool {
        true
    }

    /// Has a call that shapes the address space made for the calling thread, and the map changed accordingly.
    fn shape(&self, _t: &mut Block, c: &mut Call) -> i64 {
        match c.nr {
            nr::SHMAT => shm::attach(c).map_or_else(|e| e, |(r, _)| r),
            // SAFETY: the program's own call.
            nr::SHMDT => unsafe { sys::syscall6(c.nr, c.args) },
            _ => memory::perform(c).result,
        }
    }
    /// Has room found in the address space by `map`, which returns its address, or an error; and which takes the address that it has to be.
    fn find_room(&self, _t: &mut Block, map: &dyn Fn(Option<u64>) -> i64) -> i64 {
        map(None)
    }
}

static POLICY: Guarded<Option<&'static dyn Phases>, Beginning> = Guarded::new(None);

/// Says whom to ask, before anything of this room is in use.
pub fn start(policy: &'static dyn Phases) {
    // SAFETY: there is one thread, and nobody has a view of his own yet.
    unsafe { *POLICY.change() = Some(policy) }
}

/// Whom to ask.
pub fn phases() -> &'static dyn Phases {
    // SAFETY: nobody changes it any more.
    match unsafe { *POLICY.look() } {
        Some(policy) => policy,
        None => panic::give_up("private views without anybody who orders them"),
    }
}

/// Is there a thread on this slot that has not ended?
pub fn lives(slot: u32) -> bool {
    phases().whereabouts(slot) != Whereabouts::Gone
}

/// Looks at the table of views, or opens a descriptor for a moment, in a phase.
pub fn look<R>(f: impl FnOnce() -> R) -> R {
    let looks = phases().looks();
    let r = f();
    if looks {
        phases().has_looked();
    }
    r
}
