//! The optimisations of the `det` engine (DThreads 5), each of which a test can do without (`run --without`): the same run, at another cost.

use crate::atomic::{AtomicU32, AtomicU64};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimisation {
    /// By which it is left out.
    pub name: &'static str,
    /// Its bit in a set.
    pub bit: u64,
}

const fn number(n: u32, name: &'static str) -> Optimisation {
    Optimisation { name, bit: 1 << n }
}

/// All of them.
pub const OPTIMISATIONS: [Optimisation; 12] = [
    ALONE,
    KEPT_TURNS,
    RETAKEN,
    SCANS,
    COPIES,
    TWINS,
    EARLY_LOOKS,
    OBJECTS,
    LEAD,
    ISOLATION,
    OWNERSHIP,
    IO_TURNS,
];

/// The only thread of the ring has its turns at once, and commits when there is somebody to see it (single-threaded mode).
pub const ALONE: Optimisation = number(0, "alone");
/// A thread keeps its turn while it has a mutex, for some operations at most (lock ownership).
pub const KEPT_TURNS: Optimisation = number(1, "kept-turns");
/// It keeps it for longer if it gives a mutex back and is about to take one again (bound on re-acquisition).
pub const RETAKEN: Optimisation = number(2, "retaken");
/// No scan for copies of pages while the thread had no page fault.
pub const SCANS: Optimisation = number(3, "scans");
/// Copies that are likely to be written again are made anew instead of dropped.
pub const COPIES: Optimisation = number(4, "copies");
/// A twin is left only of a page that was changed and that others have, too; pages that nobody else has are not compared (lazy twins, diff elimination).
pub const TWINS: Optimisation = number(5, "twins");
/// What a thread has written in a phase is found before it has its turn, beside all others (work outside of the token).
pub const EARLY_LOOKS: Optimisation = number(6, "early-looks");
/// At the end of a turn of a function that writes to its objects only, no other pages are looked at.
pub const OBJECTS: Optimisation = number(7, "objects");
/// Who makes threads goes on beside them, and without turns of its own for some operations. Without it: in its turn, before them.
pub const LEAD: Optimisation = number(8, "lead");

/// What a thread writes is its own until it synchronises. Without it the order in which threads synchronise is the same, and what races is not: the paper's "sync-only"
/// (6.5), by which is measured what isolation costs.
pub const ISOLATION: Optimisation = number(9, "isolation");

/// Pages that one thread alone writes again and again are committed when another one wants them (lazy commits, page ownership). That is a
/// synchronisation point: a program that races runs in another way without, though in the same one always.
pub const OWNERSHIP: Optimisation = number(10, "ownership");

/// What a thread prints, and memory that its heap gets, is no synchronisation: it has an order, and ends no phase. Without it each print is a turn, and one
/// that is inserted into a program changes the order of what follows.
pub const IO_TURNS: Optimisation = number(11, "io-turns");

/// The bit of the optimisation with this name.
pub fn bit(name: &str) -> Option<u64> {
    let found = OPTIMISATIONS.iter().find(|o| o.name == name);
    found.map(|o| o.bit)
}

/// `record --engine det`: what is asked of the world, as [`Kind::Told`](crate::event::Kind::Told) tells it.
pub mod question {
    #![allow(missing_docs)]
    /// Does a signal wait?
    pub const SIGNAL: u32 = 1;
    /// Is the descriptor ready?
    pub const READY: u32 = 2;
    /// Is the time over, by the kernel's clock?
    pub const OVER: u32 = 3;
    /// How long is it until then?
    pub const LEFT: u32 = 4;
    /// The flags of a descriptor.
    pub const FLAGS: u32 = 5;
    /// How much was written?
    pub const WRITTEN: u32 = 6;
    /// Is the call to be made again?
    pub const RESTARTS: u32 = 7;
    /// Will the signal come?
    pub const COMES: u32 = 8;
    /// Who takes the signal?
    pub const TAKER: u32 = 9;
    /// The slot and the id of a new thread.
    pub const THREAD: u32 = 10;
    /// The id of a new process.
    pub const CHILD: u32 = 11;
    /// An address of new memory.
    pub const ADDRESS: u32 = 12;
    /// How did a wait end?
    pub const WAITED: u32 = 13;
    /// Did the others go on while this thread waited for a child?
    pub const PASSED_OVER: u32 = 14;
    /// Does the descriptor lead out of the program?
    pub const OUTLET: u32 = 15;
    /// Of all: who came back into the ring?
    pub const NOTIFY: u32 = 32;
    /// Whose time was over while nobody could go on?
    pub const LATE: u32 = 33;
    /// Did something come while only one thread was in the ring?
    pub const DISTURBED: u32 = 34;

    /// What is asked, in a word or two.
    pub fn name(what: u32) -> &'static str {
        match what {
            SIGNAL => "a signal waits",
            READY => "ready",
            OVER => "time is over",
            LEFT => "time left",
            FLAGS => "descriptor flags",
            WRITTEN => "written",
            RESTARTS => "call is made again",
            COMES => "signal comes",
            TAKER => "taker of a signal",
            THREAD => "new thread",
            CHILD => "new process",
            ADDRESS => "address",
            WAITED => "wait ended",
            PASSED_OVER => "passed over",
            OUTLET => "leads out",
            NOTIFY => "came back",
            LATE => "its time was over",
            DISTURBED => "disturbed",
            _ => "unknown",
        }
    }
}

/// `record --engine det`: the slot whose ring has what the world decides for all threads. No thread has it.
pub const WORLD_SLOT: u32 = 1;

/// `run --pure`: the id of the first process. No kernel gives one like it: those end at 2^22.
pub const FIRST_ID: u32 = 5_000_000;
/// The first id of whom the program meets and has not made.
pub const FIRST_OUTSIDER: u32 = 9_000_000;
/// Ids that are known at a time.
pub const MAX_IDS: usize = 8192;

/// `run --pure`: processes and threads that the program knows by other ids than the kernel does, in the order in which they became known. When there are more than
/// [`MAX_IDS`], the first ones are forgotten.
#[repr(C)]
pub struct FamiliarIds {
    /// Ids that were given to processes and threads of the program.
    pub made: AtomicU32,
    /// And to others.
    pub outsiders: AtomicU32,
    /// How many ever became known.
    pub len: AtomicU32,
    _pad: AtomicU32,
    /// By what id the program knows them.
    pub visible: [AtomicU32; MAX_IDS],
    /// The kernel's ids.
    pub kernel: [AtomicU32; MAX_IDS],
    /// The program's time when the process ended, or became another program.
    pub time: [AtomicU64; MAX_IDS],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_bit_of_its_own() {
        let all = OPTIMISATIONS.iter().fold(0, |set, o| {
            assert_eq!(set & o.bit, 0);
            assert_eq!(bit(o.name), Some(o.bit));
            set | o.bit
        });
        assert_eq!(all, (1 << OPTIMISATIONS.len()) - 1);
        assert_eq!(bit("twin"), None);
    }
}
