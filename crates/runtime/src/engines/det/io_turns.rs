//! I/O turns: input and output that is no synchronisation has an order, and ends no phase. So a print that is inserted into a thread changes nothing in the
//! schedule: neither the rounds, nor who has a mutex first, nor what is seen of memory that is written without any order.
//!
//! A thread that comes to such a place waits until nobody runs any more. Then those that wait there, a **batch**, have turns, in the ring's order, before any
//! real turn; nobody commits anything; and when all have had theirs, they go on with the phase together ([`token`]). Others stay where they have arrived.
//!
//! Such places are writes to descriptors that lead out of the program ([`output_descriptors`]), the locks of libc's streams ([`super::stdio`]), whose memory is made common by
//! [`super::streams`], and the memory that a thread's heap gets: nobody else has a part in it yet.
//!
//! What turns out to be more than that, since it has to wait or others may read what is written, becomes a real turn
//! ([`turns::in_earnest`]). So does the next one after [`MOST`] of them: who writes for ever would hold up all others. In a turn that is kept, or in the lead, all this is
//! done there and then, and is no operation that counts, up to as many.

use super::log;
use super::spin;
use super::streams::{self, Held};
use super::token::{self, state};
use super::turns;
use crate::isolate::options;
use crate::isolate::options::count;
use crate::isolate::{output_descriptors, split};
use crate::memory::capture::Call;
use crate::thread::{session, Block};
use reprise_abi::det::{question, ALONE, IO_TURNS};

/// So many I/O turns a thread has between two real ones.
const MOST: u32 = 64;
/// So many operations in a turn that is kept are as much as one of them: for a print it takes the stream's lock, writes, and gives the lock back.
const OPERATIONS: u32 = 4;

/// What a thread keeps of its I/O turns, in its block.
#[derive(Default)]
pub struct Local {
    /// It has one, ...
    pub has: bool,
    /// ... and is the ring's only thread: nobody has to be waited for.
    pub alone: bool,
    /// How many it has had since its last real turn, in operations.
    made: u32,
    /// In it, its heap gets memory.
    pub maps: bool,
    /// The locked instruction on a stream's lock that it is about to make.
    pub operation: Option<streams::Deed>,
    /// Streams whose locks it has.
    pub held: Held,
}

/// Are there any?
pub fn on() -> bool {
    options::has(IO_TURNS)
}

/// Begins an I/O turn of the calling thread, or goes on with the one that it has kept; or with another turn.
pub fn begin(t: &mut Block) {
    if t.det().in_turn {
        return;
    }
    if t.det().io.has {
        t.det().in_turn = true;
        return;
    }
    if !on() || t.det().io.made >= MOST * OPERATIONS {
        return turns::begin(t);
    }
    if t.det().keeps != 0 {
        t.det().io.made += 1;
        return turns::go_on(t);
    }
    if !split::in_force() || token::live() <= 1 {
        return;
    }
    options::delay();
    count(&session().counters.det_io);
    t.det().io.made += OPERATIONS;
    t.det().io.alone = options::has(ALONE) && token::is_alone_in_ring(t.slot);
    if !t.det().io.alone {
        token::arrive_for_io(t.slot);
        token::wait_for_turn(t.slot);
    }
    t.det().io.has = true;
    t.det().in_turn = true;
}

/// Ends the I/O turn, unless libc's code runs in it, which has locked a stream.
pub fn end(t: &mut Block) {
    t.det().in_turn = false;
    if t.det().io.held.any_in_io_turn() {
        return;
    }
    t.det().io.has = false;
    if t.det().io.alone {
        return;
    }
    let before = token::batches();
    token::pass(t.slot, state::IO_DONE);
    token::wait_for_batch(t.slot, before);
    spin::phase_begins(t);
}

/// The thread's next turn is a real one. Does it have an I/O turn still, from which others of the batch go on?
pub fn leave(t: &mut Block) -> bool {
    t.det().io.made = 0;
    streams::publish_last(t);
    if !t.det().io.has {
        return false;
    }
    t.det().io.held.outlive_turn();
    t.det().io.has = false;
    !t.det().io.alone
}

/// Does something in an I/O turn.
pub fn within<R>(t: &mut Block, f: impl FnOnce(&mut Block) -> R) -> R {
    let nested = t.det().in_turn;
    begin(t);
    let r = f(t);
    if !nested {
        turns::end(t);
    }
    r
}

/// A system call, in a turn: an I/O turn if it writes to a descriptor that leads out of the program, or is libc's, which asks what a stream's descriptor is.
pub fn call<R>(t: &mut Block, c: &mut Call, f: impl FnOnce(&mut Block, &mut Call) -> R) -> R {
    let writes = output_descriptors::writes(c);
    let asks = || !t.det().io.held.is_empty() && output_descriptors::asks(c);
    if !on() || t.det().in_turn || !writes && !asks() {
        return turns::within(t, |t| f(t, c));
    }
    within(t, |t| {
        if writes && t.det().in_turn && !leads_out(t, c.args[0]) {
            be_ordinary(t);
        }
        f(t, c)
    })
}

/// In a turn: does this descriptor lead out of the program?
fn leads_out(t: &mut Block, fd: u64) -> bool {
    log::told(t, question::OUTLET, |_| {
        output_descriptors::lead_out(fd).into()
    }) != 0
}

/// The turn, or the operation, that has just begun is one like all others.
fn be_ordinary(t: &mut Block) {
    if t.det().io.has {
        turns::in_earnest(t);
    } else if t.det().keeps != 0 {
        turns::end(t);
        turns::begin(t);
    }
}

/// In a turn: for how many ms the thread may wait for a descriptor before others go on. Who reads what comes out of the program may be slow; how slow is not to
/// change the order of anything.
pub fn patience_ms(t: &Block) -> u64 {
    const PATIENCE_MS: u64 = 100;
    match t.det().io.has {
        true => PATIENCE_MS,
        false => 0,
    }
}
