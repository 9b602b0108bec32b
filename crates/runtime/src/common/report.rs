//! Divergence: what replay leaves behind when the program did not do what it did before (Castor 3.8).

use crate::dispatch::with_engine;
use crate::engine::Engine;
use crate::log::epoch;
use crate::log::ring;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::epoch::Why;
use reprise_abi::event::{EventHeader, Kind};
use reprise_abi::session::REPORT_EVENT;

/// What the program did.
pub struct Actual<'a> {
    /// As what kind of event it would be logged.
    pub kind: Kind,
    /// Call number, signal, instruction.
    pub detail: u32,
    /// Result or hash.
    pub value: i64,
    /// Hash of inputs.
    pub input_hash: u64,
    /// Arguments.
    pub args: &'a [u64],
}

impl Actual<'static> {
    /// An event of which only the kind says something.
    pub fn of(kind: Kind) -> Actual<'static> {
        Actual {
            kind,
            detail: 0,
            value: 0,
            input_hash: 0,
            args: &[],
        }
    }
}

impl<'a> Actual<'a> {
    /// The beginning of a call, with the hash of its inputs.
    pub fn of_call(c: &'a Call, input_hash: u64) -> Actual<'a> {
        Actual {
            detail: c.nr as u32,
            input_hash,
            args: &c.args[..c.nargs],
            ..Actual::of(Kind::Syscall)
        }
    }
}

/// Where the thread is: at the last gate, in a call of a hooked function, at an instruction in a stub.
fn place(t: &Block) -> u64 {
    let pc = t.slot().last_pc.load(Relaxed);
    if t.hooked != 0 {
        return crate::machine::guard::read(t.program_sp).unwrap_or(pc);
    }
    crate::sync::locked::place_of(pc).unwrap_or(pc)
}

/// Nobody can ever go on: proposes the functions that the calling thread is in, which waits for its turn. An operation too many, or one too few, made
/// after a race, shows as this: whoever made it is as likely to be among those who wait as not.
#[cold]
pub fn add_functions(t: &Block) {
    let d = &session().divergence;
    while d.adds.swap(1, Acquire) != 0 {
        sys::call(reprise_abi::syscalls::nr::SCHED_YIELD, &[]);
    }
    with_engine!(E => crate::sync::locked::learned::propose(t, place(t), E::lately(t)));
    d.adds.store(0, Release);
    d.added.fetch_add(1, SeqCst);
}

/// Fills the report and ends the process; the driver tells the user.
pub fn diverge(t: &Block, kind: u32, expected: Option<&EventHeader>, actual: &Actual) -> ! {
    if epoch::is_open() {
        // A copy that runs an epoch by slices: the program looks at what came of it.
        epoch::fails_at(t.slot, Why::Slice, ring::event_number());
    }
    let d = &session().divergence;
    // Where threads run at the same time, the first report counts.
    if d.taken.swap(1, Relaxed) != 0 {
        if crate::thread::in_force::looks_for_races() {
            crate::races::strays();
            with_engine!(E => E::gives_up());
        }
        loop {
            sys::futex_wait(d.taken.as_ptr(), 1, None);
        }
    }
    if actual.kind == Kind::Syscall {
        crate::common::rebuilt::show(actual.detail, actual.args);
    }
    with_engine!(E => E::diverges(t, place(t)));
    d.slot.store(t.slot, Relaxed);
    d.event.store(ring::event_number(), Relaxed);
    d.pc.store(place(t), Relaxed);
    d.sp.store(t.program_sp, Relaxed);
    d.actual_kind.store(actual.kind as u32, Relaxed);
    d.actual_detail.store(actual.detail, Relaxed);
    d.actual_value.store(actual.value as u64, Relaxed);
    d.actual_input_hash.store(actual.input_hash, Relaxed);
    for (to, a) in d.actual_args.iter().zip(actual.args) {
        to.store(*a, Relaxed);
    }
    let mut len = 0;
    if let Some(h) = expected {
        let mut r = ring::Reader::begin(*h);
        let mut bytes = [0u8; REPORT_EVENT];
        bytes[..32].copy_from_slice(&h.to_bytes());
        let body = r.left().min(REPORT_EVENT - 32);
        let n = r.to_buffer(body, &mut bytes[32..32 + body]);
        len = 32 + n;
        for (to, w) in d.expected.iter().zip(bytes.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(w);
            to.store(u64::from_le_bytes(word), Relaxed);
        }
    }
    if crate::thread::in_force::orders_synchronisation() {
        with_engine!(E => crate::sync::locked::learned::propose(t, place(t), E::lately(t)));
    }
    d.expected_len.store(len as u64, Relaxed);
    d.kind.store(kind, Release);
    if crate::thread::in_force::looks_for_races() {
        crate::races::strays();
        with_engine!(E => E::gives_up());
    }
    sys::exit_group(125)
}
