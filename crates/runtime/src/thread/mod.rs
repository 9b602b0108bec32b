//! What the runtime keeps for each thread: its block, hanging off `%gs`, and the frame of a gate.

pub mod area;
pub mod attended;
pub mod blocks;
mod current;
pub mod in_force;
pub mod leave;
pub mod logging;
pub mod message;
pub mod namespace;
pub mod panic;
pub mod process;
pub mod request;
pub mod rings;
pub mod schedule;
pub mod shards;
pub mod signals;
pub mod standing;

pub use crate::machine::asm::GATE_TOP;
pub use crate::machine::frame::Frame;
use crate::thread::signals::{AltStack, Pending};
use area::Area;
use core::cell::Cell;
use core::marker::PhantomPinned;
use core::mem::offset_of;
use core::sync::atomic::AtomicU32;
pub use current::{current, take_block, Current};
use reprise_abi::layout::{BLOCKS_BASE, BLOCK_STRIDE, PAGE, SESSION_BASE};
use reprise_abi::session::{Session, Slot};

/// Offset of the signal stack in a block.
pub const ALT_STACK: u64 = 0x4000;
/// Bytes of the signal stack. AVX-512 frames take about 3 KiB, AMX 11 KiB; handlers nest at most three deep.
pub const ALT_STACK_LEN: u64 = 0x1_4000;
/// Offset of the lowest byte of the gate stack.
pub const GATE_STACK: u64 = ALT_STACK + ALT_STACK_LEN + PAGE;
/// Offset of what stands for another thread in a call of libc ([`crate::sync::libc::cancel`]); before it lies an unmapped page.
pub const STAND_IN: u64 = 0x4_1000;
/// Its bytes: more than libc's own control block of a thread.
pub const STAND_IN_LEN: u64 = 0x1000;
/// Offset of what the thread keeps while it is taken to a place that can be named ([`crate::engines::order::cut`]).
pub const WALK: u64 = STAND_IN + STAND_IN_LEN;
/// Its bytes.
pub const WALK_LEN: u64 = 0x5000;
/// Offset of an image of its vector registers, for hashes.
pub const VECTORS: u64 = WALK + WALK_LEN;
/// Its bytes.
pub const VECTORS_LEN: u64 = 0x4000;
/// Offset of what stubs of places keep for the thread: see [`reprise_place::stub`].
pub const STUB_CELL: u64 = VECTORS + VECTORS_LEN;
/// Its bytes.
pub const STUB_CELL_LEN: u64 = 0x1000;
/// Offset of the scratch memory.
pub const SCRATCH: u64 = STUB_CELL + STUB_CELL_LEN;
/// Bytes of scratch memory that every thread has; more is mapped on demand.
pub const SCRATCH_LEN: u64 = BLOCK_STRIDE - SCRATCH;

/// Words of a block for an engine.
pub(crate) const ENGINE_WORDS: usize = 256;
/// Words of a block for what is known of atomic words.
pub(crate) const KNOWN_WORDS: usize = 512;

/// Everything the runtime knows of one thread of this process.
#[repr(C)]
pub struct Block {
    /// Its own address.
    pub this: u64,
    /// The program's stack pointer while in a gate (used by the assembly).
    pub program_sp: u64,
    /// Top of the gate stack.
    pub gate_sp: u64,
    /// Where the gate goes on in the program (used by the assembly).
    pub target: u64,
    /// Stack pointer of the innermost guard, 0 outside of one.
    pub guard_sp: u64,
    /// Frame of the hooked function that the thread is in, 0 outside of one (used by the assembly).
    pub hooked: u64,
    /// Address of the slot's `signal_pending` (used by the assembly).
    pub pending_word: u64,
    /// Hooked functions called, since they were last added to the session's counter.
    pub operations: u64,
    /// The thread id by which objects know it, 0 before it was needed (used by the assembly).
    pub tid: u32,
    pub(crate) _pad: u32,
    /// The slot number plus 1, as in [`crate::engine::order::Runs`] (used by the assembly).
    pub mark: u32,
    /// Slot number.
    pub slot: u32,
    /// How this thread came to be, see [`crate::gate::clone`].
    pub birth: u32,
    /// Number of its process in the session.
    pub number: u32,
    /// Address of what belongs to its process ([`crate::thread::process::Own`]).
    pub process: u64,
    /// The kernel's thread id.
    pub kernel_tid: u32,
    /// Not 0 while a thread runs on this block; the kernel clears it when the thread is gone (CLONE_CHILD_CLEARTID).
    pub alive: AtomicU32,
    /// The program's signal mask, as the program sees it.
    pub mask: u64,
    /// The processors that the program wants this thread on, if it ever said.
    pub affinity: Option<[u64; 16]>,
    /// The mask to go back to after a handler, when the call replaced it (sigsuspend, ppoll, ...).
    pub saved_mask: Option<u64>,
    /// The program's alternate stack.
    pub alt_stack: AltStack,
    /// Signals that wait for a gate.
    pub pending: Pending,
    /// Where the kernel would clear the thread id (set_tid_address, CLONE_CHILD_CLEARTID); done by the runtime.
    pub clear_tid: u64,
    /// Head of the program's list of robust futexes (set_robust_list(2)); 0: none.
    pub robust_list: u64,
    /// Its futexes are put down for others to mark ([`crate::gate::robust`]).
    pub robust_down: bool,
    /// The program has come into the runtime with the trap flag set.
    pub steps: bool,
    /// Where this thread starts (a new thread's frame).
    pub start: Frame,
    /// Where a new process tells the program its thread id, 0: nowhere.
    pub publish: u64,
    /// The descriptor that the kernel made with the last child, until the program is told of it.
    pub child_descriptor: Option<u32>,
    /// Thread pointer of the program.
    pub fs_base: u64,
    /// Large scratch memory: address and bytes.
    pub big_scratch: Cell<(u64, u64)>,
    /// What the engine keeps of it.
    pub engine: Area<ENGINE_WORDS>,
    /// What is kept of it for another thread that has attached to it.
    pub traced: Area<2>,
    /// What a stub of a locked instruction keeps (used by generated code).
    pub stub: Area<8>,
    /// How often it has looked at memory while it waited (used by generated code).
    pub looks: Area<24>,
    /// What it knows of atomic words (used by generated code).
    pub known: Area<KNOWN_WORDS>,
    /// Its private view of memory.
    pub view: Area<8>,
    /// What is known of the outputs of the call that it makes.
    pub noted: Area<32>,
    /// What it has promised of a file that it reads.
    pub reads: Area<8>,
    /// A hooked function ends, and looks for signals.
    pub hook_ends: bool,
    /// The call at whose gate it is isn't made yet: the epoch ends first ([`crate::gate::leader`]).
    pub deferred: bool,
    /// A signal waits for it, for which the epoch ends: it is delivered while all others stand.
    pub signalled: bool,
    /// The program is to go back: the epoch before has been run again, and came to something else.
    pub goes_back: bool,
    /// The epoch ends for it, and it is to go on when the output that is held is written.
    pub shows: bool,
    /// What the call at whose gate it is comes to, which isn't made: its output is held.
    pub held: Option<i64>,
    /// Another thread has sent it the signal that cancels it, or is about to.
    pub cancels: AtomicU32,
    /// What it keeps of its log.
    pub logging: logging::Logging,
    /// Where it is at such an instruction, for a debugger.
    pub shown: Frame,
    /// Address of its heap ([`reprise_heap`]), 0: none yet.
    pub heap: u64,
    /// Which table of descriptors it has ([`crate::log::output::table`]).
    pub table: Cell<u64>,
    /// The request for which it stands ([`standing`]); 0: it runs.
    pub stands: AtomicU32,
    /// For which request it was told last to stand, while it was in the program's code, and how often for that one.
    pub told: (u32, u32),
    /// It stands where it has stood before, and has done nothing since.
    pub stands_again: bool,
    /// It steps out of a stub, to stand.
    pub steps_out: bool,
    /// The call that it is in again, after it stood there.
    pub entered: Option<Entered>,
    /// The call that nothing may interrupt it in.
    pub stays_in: Option<Entered>,
    /// What that call has come to may be forgotten, if all go back: its form is that of one who stands.
    pub withdraws: bool,
    /// A handler of signals may come between any two instructions of who has a reference to the block, and changes it: so the compiler must not take
    /// the reference for the only one. For types that are pinned it doesn't.
    pub(crate) _pinned: PhantomPinned,
}

/// A call whose beginning is logged, and whose end isn't.
#[derive(Clone, Copy, Debug)]
pub struct Entered {
    /// Hash of its inputs.
    pub hash: u64,
    /// Until when it waits, in nanoseconds of CLOCK_MONOTONIC; 0: it has no limit that says how long.
    pub deadline: i64,
    /// Of a wait at a word of the program's: how often somebody was woken there before (`memory/futex.rs`).
    pub wakes: u32,
}

impl Entered {
    /// It begins, without a limit that says how long.
    pub fn now(hash: u64) -> Entered {
        Entered {
            hash,
            deadline: 0,
            wakes: 0,
        }
    }
}

const _: () = {
    assert!(offset_of!(Block, program_sp) == 8);
    assert!(offset_of!(Block, gate_sp) == 16);
    assert!(offset_of!(Block, target) == 24);
    assert!(offset_of!(Block, guard_sp) == 32);
    assert!(offset_of!(Block, hooked) == 40);
    assert!(offset_of!(Block, pending_word) == 48);
    assert!(offset_of!(Block, operations) == 56);
    assert!(offset_of!(Block, tid) == 64);
    assert!(offset_of!(Block, mark) == 72);
    assert!(core::mem::size_of::<Block>() <= ALT_STACK as usize);
    assert!(GATE_TOP % 16 == 0);
};

/// From a slot's `signal_pending`, of which the block has the address, to its `quiet_left`.
pub const QUIET_BEHIND_PENDING: u64 =
    (offset_of!(Slot, quiet_left) - offset_of!(Slot, signal_pending)) as u64;

/// Address of the block of slot `i`.
pub fn block_address(i: u32) -> u64 {
    BLOCKS_BASE + i as u64 * BLOCK_STRIDE
}

/// The session's shared memory.
pub fn session() -> &'static Session {
    // SAFETY: the launcher maps the session there before the runtime runs; it is only integers and atomics.
    unsafe { &*(SESSION_BASE as *const Session) }
}

/// Slot `i` of the session.
pub fn slot(i: u32) -> &'static Slot {
    // SAFETY: the address lies inside the session's mapping (asserted by slot_address).
    unsafe { &*(Session::slot_address(SESSION_BASE as usize, i as usize) as *const Slot) }
}

impl Block {
    /// Number of this thread's process.
    pub fn slot_process(&self) -> u32 {
        self.slot()
            .process
            .load(core::sync::atomic::Ordering::Relaxed)
    }

    /// How many quiet operations (see [`crate::engines::order`]) the thread may still make without asking.
    #[inline(always)]
    pub fn quiet_left(&self) -> &'static AtomicU32 {
        self.as_current().quiet_left()
    }

    /// This thread's slot.
    pub fn slot(&self) -> &'static Slot {
        slot(self.slot)
    }
}
