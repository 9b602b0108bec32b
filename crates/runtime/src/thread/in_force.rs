//! Which engine is in force in this process, and in which of its roles: what a room below the engines may ask of it is what it *can*, not who it is.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
pub use reprise_abi::engine::role::*;
use reprise_abi::engine::{can, roles_that_can};

/// The role of who runs by slices.
pub const BY_SLICES: u32 = SERIAL_REPLAY;

/// The role in force: set once at start; and by a debugger that makes a diversion.
#[export_name = "rt_engine"]
pub static ENGINE: AtomicU32 = AtomicU32::new(0);

/// All threads of this process stand, and are to go on freely, on all processors ([`crate::gate::leader`]).
pub fn runs_freely() {
    ENGINE.store(ORDER_RECORD, Relaxed);
}

/// All threads of this process stand, and one is to go on.
pub fn runs_one() {
    ENGINE.store(SERIAL_RECORD, Relaxed);
}

#[inline(always)]
fn role() -> u32 {
    ENGINE.load(Relaxed)
}

/// Is the role in force one of these?
#[inline(always)]
fn can_one_of(roles: u32) -> bool {
    roles >> role() & 1 != 0
}

/// Threads run freely, on all processors, and the operations by which they synchronise have an order.
#[inline(always)]
pub fn orders_synchronisation() -> bool {
    can_one_of(const { roles_that_can(can::ORDER_SYNCHRONISATION) })
}

/// The same, while recording.
#[inline(always)]
pub fn records_synchronisation() -> bool {
    role() == ORDER_RECORD
}

/// The same, in a replay.
#[inline(always)]
pub fn replays_synchronisation() -> bool {
    role() == ORDER_REPLAY
}

/// One thread of the session runs at a time: what it waits for, another one can only do when this one lets it run.
#[inline(always)]
pub fn runs_one_at_a_time() -> bool {
    can_one_of(const { roles_that_can(can::RUN_ONE_AT_A_TIME) | 1 << FOLLOW })
}

/// Each thread has private views of memory, and shows the others what it wrote at commits.
#[inline(always)]
pub fn has_private_views() -> bool {
    can_one_of(const { roles_that_can(can::SEPARATE_MEMORY) })
}

/// An epoch of the program is run again here, by its log ([`crate::gate::epochs`]).
#[inline(always)]
pub fn runs_epoch_again() -> bool {
    role() == FOLLOW
}

/// Gates take results from a trace, or from the log of another process, and the kernel is not asked.
#[inline(always)]
pub fn takes_from_trace() -> bool {
    matches!(role(), SERIAL_REPLAY | ORDER_REPLAY | FOLLOW)
}

/// Nothing is ordered or logged.
#[inline(always)]
pub fn is_none() -> bool {
    role() == NONE
}

/// Whoever gives threads private views has made processes of them.
pub static SPLIT: AtomicBool = AtomicBool::new(false);

/// Are the program's threads processes to the kernel by now?
#[inline(always)]
pub fn threads_are_processes() -> bool {
    SPLIT.load(Relaxed)
}

/// A replay that looks for races.
#[inline(always)]
pub fn looks_for_races() -> bool {
    crate::thread::session().flags & reprise_abi::session::FLAG_RACES != 0
}

/// A replay in which all operations are asked for, one by one, since they are listed.
#[inline(always)]
pub fn lists_operations() -> bool {
    use reprise_abi::session::{FLAG_LISTS, FLAG_REBUILT};
    crate::thread::session().flags & (FLAG_LISTS | FLAG_REBUILT) != 0
}
