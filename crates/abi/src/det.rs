//! The optimisations of the `det` engine (DThreads 5), each of which a test can do without (`run --without`): the same run, at another cost.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// All of them, by name.
pub const OPTIMISATIONS: [&str; 7] = [ALONE, KEPT_TURNS, RETAKEN, SCANS, COPIES, TWINS, LEAD];

/// The only thread of the ring has its turns at once, and commits when there is somebody to see it (single-threaded mode).
pub const ALONE: &str = "alone";
/// A thread keeps its turn while it has a mutex, for some deeds at most (lock ownership).
pub const KEPT_TURNS: &str = "kept-turns";
/// It keeps it for longer if it gives a mutex back and is about to take one again (bound on re-acquisition).
pub const RETAKEN: &str = "retaken";
/// No scan for copies of pages while the thread had no page fault.
pub const SCANS: &str = "scans";
/// Copies that are likely to be written again are made anew instead of dropped.
pub const COPIES: &str = "copies";
/// A twin is left only of a page that was changed (twins are made lazily, and none for what doesn't differ).
pub const TWINS: &str = "twins";

/// Who makes threads goes on beside them, and without turns of its own for some deeds. Without it: in its turn, before them.
pub const LEAD: &str = "lead";

/// The bit of the optimisation with this name.
pub const fn bit(name: &str) -> Option<u64> {
    let mut i = 0;
    while i < OPTIMISATIONS.len() {
        if same(OPTIMISATIONS[i].as_bytes(), name.as_bytes()) {
            return Some(1 << i);
        }
        i += 1;
    }
    None
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Does this set hold the optimisation with this name?
#[inline(always)]
pub const fn holds(set: u64, name: &str) -> bool {
    match bit(name) {
        Some(b) => set & b != 0,
        None => false,
    }
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
    /// Of all: who came back into the ring?
    pub const KNOCK: u32 = 32;
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
            KNOCK => "came back",
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
        let all = OPTIMISATIONS.iter().fold(0, |set, n| {
            let b = bit(n).expect("a bit");
            assert_eq!(set & b, 0);
            set | b
        });
        assert_eq!(all, 127);
        assert!(holds(all, TWINS) && !holds(0, TWINS));
        assert_eq!(bit("twin"), None);
    }
}
