//! The shared memory of a session: between the runtime in the program and the agent (record) or the driver (replay).
//!
//! Mapped at [`layout::SESSION_BASE`](crate::layout::SESSION_BASE) in the program and anywhere in the agent. All of it is
//! plain integers and atomics, valid for every bit pattern, because the program can scribble over it.

use crate::atomic::Ordering::Relaxed;
use crate::atomic::{AtomicU32, AtomicU64, AtomicU8};
use crate::det::FamiliarIds;
use crate::layout::MAX_SLOTS;
use crate::learned::CodeList;
use crate::ring::RingControl;

/// "reprise\0" as a little-endian word.
pub const MAGIC: u64 = 0x0065_7369_7270_6572;
/// Version of this layout, of the events and of the syscall semantics. A runtime and its driver must agree on it.
pub const VERSION: u32 = 13;

/// [`Session::mode`]: the program runs for the first time.
pub const MODE_RECORD: u32 = 1;
/// [`Session::mode`]: the program runs from a trace.
pub const MODE_REPLAY: u32 = 2;

/// [`Session::baton`]: nobody holds it.
pub const BATON_FREE: u32 = 0;

/// Most entries of the cpuid table.
pub const MAX_CPUID: usize = 192;

/// One cpuid leaf as the program sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuidLeaf {
    /// eax before the instruction.
    pub leaf: u32,
    /// ecx before the instruction.
    pub subleaf: u32,
    /// eax, ebx, ecx, edx after it.
    pub regs: [u32; 4],
}

/// States of a [`Slot`]. `IN_CALL` to `RUNNING` is the only transition on the fast path.
pub mod slot_state {
    /// No thread has it.
    pub const FREE: u32 = 0;
    /// Its thread holds the baton and runs.
    pub const RUNNING: u32 = 1;
    /// Its thread waits for the baton in the ready queue.
    pub const READY: u32 = 2;
    /// Its thread holds the baton inside a system call; the baton can be taken from it.
    pub const IN_CALL: u32 = 3;
    /// Its thread is inside a system call without the baton.
    pub const BLOCKED: u32 = 4;
    /// Its thread waits on a futex of the program, in the runtime.
    pub const FUTEX: u32 = 5;
    /// Its thread is ending; the slot can be had again by everybody in whose memory the thread doesn't run any more.
    pub const EXITING: u32 = 6;
    /// Its process is ending with it; the slot is free once the agent or the driver has seen the process dead.
    pub const LEFT: u32 = 7;
}

/// What [`Slot::shown`] points to, in the lowest bit of the address.
pub mod shown {
    /// A gate's frame: the general registers, r15 first, down to rax, then flags, rsp, rip.
    pub const FRAME: u64 = 0;
    /// The kernel's frame of a signal (a `ucontext_t`).
    pub const CONTEXT: u64 = 1;
}

/// Bits of [`Slot::futex_notes`].
pub mod futex_wait {
    /// The futex is in memory that processes share.
    pub const SHARED: u32 = 1;
    /// Somebody died: the thread is to look at the futex again, which may have been his.
    pub const LOOK: u32 = 2;
}

/// The most processes a session can have at one time.
pub const MAX_PROCESSES: usize = 1024;

/// States of a [`Process`].
pub mod process_state {
    /// No process has it.
    pub const FREE: u32 = 0;
    /// It runs.
    pub const LIVE: u32 = 1;
    /// It has said how it ends, and has given up the baton.
    pub const ENDING: u32 = 2;
    /// It was found dead; the next holder of the baton logs that.
    pub const LOST: u32 = 3;
    /// Somebody is about to make it, and fills its entry.
    pub const TAKEN: u32 = 4;
}

/// One more than the highest number that a mapped file can have.
pub const MAX_SHARED_FILES: usize = 4096;

/// Descriptors whose stream a replay follows.
pub const FOLLOWED_STREAMS: usize = 4096;

/// A process of the session.
#[repr(C, align(64))]
pub struct Process {
    /// One of [`process_state`].
    pub state: AtomicU32,
    /// The kernel's process id, as the agent or the driver sees it.
    pub kernel_pid: AtomicU32,
    /// The process id that the program sees (that of the recording).
    pub visible_pid: AtomicU32,
    /// Its threads that are alive.
    pub live_threads: AtomicU32,
    /// Wait status of a process that was found dead, plus 1; 0 when it is not known.
    pub status: AtomicU32,
    /// Record: how many pid namespaces it is further inside than the agent; its maker's number of them until it knows its own.
    pub inside: AtomicU32,
    /// Which of the session's processes it is, in the order of their first steps; 0 before its own, and for the first of all. While `order` records the order in
    /// which the trace has them may be another one.
    pub birth: AtomicU32,
    /// Record: the process that makes it, as the agent sees it; 0 for the first of all.
    pub maker: AtomicU32,
    /// Record: 1 once its making is in the trace.
    pub announced: AtomicU32,
    /// Replay: 1 while a debugger traces it.
    pub debugged: AtomicU32,
    /// The first 96 processors that the thread wanted to be on that execs; all zero: it never said. Before its first step another thing: see [`Process::made_for`].
    pub affinity: [AtomicU32; 3],
    /// Record: the id by which its maker knows it, once it has taken its first step. It counts in the maker's namespace, ...
    pub told: AtomicU32,
    /// ... which is so many further inside than the agent's.
    pub told_inside: AtomicU32,
    /// Record: threads of it that came back from a call, or whose time is over, and wait for the baton.
    pub came_back: AtomicU32,
}

const _: () = assert!(core::mem::size_of::<Process>() == 64);

/// A thread's place in the session.
#[repr(C, align(64))]
pub struct Slot {
    /// One of [`slot_state`].
    pub state: AtomicU32,
    /// Futex on which the thread sleeps while it waits for the baton or for a program's futex, while recording: see `schedule/baton.rs`. Elsewhere 0 asleep, 1 go.
    pub go: AtomicU32,
    /// The kernel's thread id, as the agent or the driver sees it.
    pub kernel_tid: AtomicU32,
    /// The thread id that the program sees (that of the recording).
    pub visible_tid: AtomicU32,
    /// Kernel's process id.
    pub kernel_pid: AtomicU32,
    /// Next slot in the ready queue plus 1, 0 at its end.
    pub next_ready: AtomicU32,
    /// Number of the system call the thread is in (for taking the baton, for `who waits for what`).
    pub call_nr: AtomicU32,
    /// 1 while a signal for the thread waits in the runtime for a gate.
    pub signal_pending: AtomicU32,
    /// Arguments of that call.
    pub call_args: [AtomicU64; 6],
    /// Hash of that call's inputs.
    pub call_input_hash: AtomicU64,
    /// Where in its space the program's futex is on which the thread waits.
    pub futex_address: AtomicU64,
    /// Bitset of that wait.
    pub futex_bitset: AtomicU32,
    /// What is to be known of that wait, bits of [`futex_wait`].
    pub futex_notes: AtomicU32,
    /// When that wait began, in waits of the session (first come, first woken).
    pub futex_ticket: AtomicU64,
    /// Replay: pc of the last gate of this thread, for reports.
    pub last_pc: AtomicU64,
    /// 1 while the thread runs towards a breakpoint of a cut: the agent (record) or the driver (replay) tells it that time passes.
    pub cut_waiting: AtomicU64,
    /// Generation of the baton for which the agent asked for a cut.
    pub cut_generation: AtomicU64,
    /// 1 when the thread did nothing but wait at its last cut.
    pub cut_spins: AtomicU32,
    /// 1 when it came into the ready queue from a call, or because its time was over ([`crate::schedule::Lists::push_returned`]).
    pub returned: AtomicU32,
    /// Number of the thread's process in [`Session::processes`].
    pub process: AtomicU32,
    /// `order`, record: how many quiet operations the thread may still make before it logs their number; it lies here, so that those of a
    /// thread that is killed are known. 0 before the first. Replay: how many it may still make without asking.
    pub quiet_left: AtomicU32,
    /// The space of that futex: an address space, or memory that several share.
    pub futex_space: AtomicU64,
    /// Number of the thread's seccomp filter (see [`crate::filters`]), 0 for none.
    pub filter: AtomicU64,
    /// 1 when the program wants rdtsc to fault in this thread (PR_SET_TSC).
    pub tsc_faults: AtomicU64,
    /// How often in a row the thread waited on one and the same futex of the program (record).
    pub futex_waits: AtomicU64,
    /// `order`: the stamp of the call that made the thread, plus 1; 0 for the first of all. It tells those who had the slot apart.
    pub born: AtomicU64,
    /// `order`, replay: 1 while what the thread's last event brings about is still to be done.
    pub busy: AtomicU64,
    /// Replay: where the program's registers are while the thread is in the runtime, for a debugger: see [`shown`].
    pub shown: AtomicU64,
    /// Replay: the stub of the place of a cut that the thread looks for: its first byte, ...
    pub stub_first: AtomicU64,
    /// ... and its length; 0: there is none.
    pub stub_len: AtomicU64,
    /// `order`, record: the thread with this in [`born`](Slot::born), less 1, is about to write how its process ends, or has done so.
    pub told: AtomicU64,
}

const _: () = assert!(core::mem::size_of::<Slot>() == 256);

/// Kinds of divergence (Castor 3.8).
pub mod divergence_kind {
    /// None happened.
    pub const NONE: u32 = 0;
    /// The program reached a gate that does not fit the next event.
    pub const EVENT: u32 = 1;
    /// The right event with other arguments or inputs.
    pub const ARGUMENT: u32 = 2;
    /// No thread can go on: the next event belongs to a thread that isn't there.
    pub const DEADLOCK: u32 = 3;
    /// The right event, but memory or registers differ.
    pub const STATE: u32 = 4;
}

/// Most bytes of the recorded event that are kept for the report.
pub const REPORT_EVENT: usize = 1024;

/// What the runtime leaves for the driver when replay can't go on.
#[repr(C)]
pub struct DivergenceReport {
    /// One of [`divergence_kind`]; stored last, with release order.
    pub kind: AtomicU32,
    /// Slot of the thread that found it.
    pub slot: AtomicU32,
    /// Not 0: a thread is writing the report.
    pub taken: AtomicU32,
    /// Number of the recorded event (the first event of the trace is 0).
    pub event: AtomicU64,
    /// Program counter of the thread.
    pub pc: AtomicU64,
    /// Stack pointer of the thread.
    pub sp: AtomicU64,
    /// What the program did instead: kind, detail, value.
    pub actual_kind: AtomicU32,
    /// Its detail.
    pub actual_detail: AtomicU32,
    /// Its value or hash.
    pub actual_value: AtomicU64,
    /// Its input hash.
    pub actual_input_hash: AtomicU64,
    /// Its arguments.
    pub actual_args: [AtomicU64; 8],
    /// Bytes used in `expected`.
    pub expected_len: AtomicU64,
    /// The recorded event (its beginning).
    pub expected: [AtomicU64; REPORT_EVENT / 8],
    /// `order`: functions that the thread was in, as its stack tells, libc's left out.
    pub functions: CodeList,
    /// Not 0: nobody can ever go on, and each thread that waits is to add the functions that it is in.
    pub all_to_add: AtomicU32,
    /// Not 0: a thread adds its functions.
    pub adds: AtomicU32,
    /// So many have added theirs.
    pub added: AtomicU32,
}

/// Requests of the runtime to the agent, answered before the program goes on.
pub mod request {
    /// None is open.
    pub const NONE: u32 = 0;
    /// Keep the file behind descriptor `args[0]` of process `args[1]`; answer: its content hash, `answer[2]` its length, `answer[3]`
    /// its identity. `args[2]` is 1 when its times don't tell whether it changed.
    pub const KEEP_FILE: u32 = 1;
    /// Keep the file of which `args[0]` bytes from offset `args[1]` on are in the window; 0 bytes: that was all, and the answer is as
    /// for [`KEEP_FILE`]. For files of processes into which the agent can't look: not dumpable, of another user.
    pub const HAND_FILE: u32 = 16;
    /// The thread `args[0]` of process `args[1]` (both the kernel's) wants to exec; its slot is `args[2]`. The answer comes when
    /// the agent watches: status 0, and the thread may call execve(2).
    pub const EXEC: u32 = 2;
    /// The process that was writing an event was killed: what is in the ring of that event is to be forgotten, and the next begins at
    /// position `args[0]`.
    pub const FORGET_EVENT: u32 = 17;
    /// Process `args[0]` has mapped a file at `args[1]` in which there may be a cpuid that stays as it is: the trace is to name the file.
    pub const NATIVE_CPUID: u32 = 18;
    /// Descriptor `args[0]` of process `args[1]` is read, and may be referred to ([`crate::inputs`]). Answer: the row plus 1; status `EAGAIN`: not
    /// yet, `EINVAL`: never.
    pub const REFER: u32 = 19;
    /// The file of row `args[0]` of the inputs is about to be changed: answered when all that was promised of it is kept.
    pub const SETTLE: u32 = 20;
    /// Which thread is that which calls itself thread `args[1]` of process `args[0]`, in a pid namespace of its own? It is of the session's
    /// process number `args[2]`. Answer: its process id and its thread id, as the agent sees them, and how many namespaces it is
    /// further inside than the agent.
    pub const FIND: u32 = 5;
    /// Replay: slot `args[0]` becomes image `args[1]` in a new process. Answered when that process is about to run.
    pub const BECOME: u32 = 3;
    /// Replay: memory for the writable copy of the file with number `args[0]`, `args[1]` bytes long. Answer: the driver's descriptor of it.
    pub const SHARE_FILE: u32 = 4;
}

/// Values of [`Session::hold`]. All others are the most bytes that the stream of events may have until some of them are forgotten.
pub mod hold {
    /// There is no limit.
    pub const NO: u64 = 0;
    /// Nothing can be forgotten any more: the recording ends here.
    pub const FAILED: u64 = u64::MAX;
}

/// What tells an open or mapped file from all others: its device and inode.
pub const fn file_identity(device: u64, inode: u64) -> u64 {
    inode ^ device.rotate_left(40)
}

/// A request to the agent.
#[repr(C)]
pub struct RequestBox {
    /// Slot plus 1 of the thread that uses the box, 0 when nobody does (a futex; without a baton, several may want to).
    pub taken: AtomicU32,
    _pad: AtomicU32,
    /// One of [`request`]; the agent sets it back to 0 (futex).
    pub kind: AtomicU32,
    /// 0 when the agent could do it, else an errno.
    pub status: AtomicU32,
    /// Arguments.
    pub args: [AtomicU64; 4],
    /// Answer words.
    pub answer: [AtomicU64; 4],
}

/// Counters, for `info` and for tests that prove that something really happened.
#[repr(C)]
pub struct Counters {
    /// System calls that came by dispatch (SIGSYS).
    pub dispatched: AtomicU64,
    /// Sites rewritten.
    pub patched: AtomicU64,
    /// Hand-offs of the baton.
    pub handoffs: AtomicU64,
    /// Cuts in mid-code.
    pub cuts: AtomicU64,
    /// Signals delivered at gates.
    pub signals_at_gates: AtomicU64,
    /// Signals delivered in mid-code.
    pub signals_in_code: AtomicU64,
    /// Baton taken from a thread inside a call.
    pub stolen: AtomicU64,
    /// Bytes hashed.
    pub hashed: AtomicU64,
    /// State hashes taken (record) or compared (replay).
    pub hashes: AtomicU64,
    /// Visits of a planted breakpoint in replay that were no match.
    pub false_hits: AtomicU64,
    /// Calls that went through the write-tracking fallback.
    pub tracked: AtomicU64,
    /// Nanoseconds for which the program waited for room in the ring.
    pub ring_full_ns: AtomicU64,
    /// Non-deterministic instructions emulated.
    pub instructions: AtomicU64,
    /// Events written or consumed.
    pub events: AtomicU64,
    /// Nanoseconds that the last cut took.
    pub last_cut_ns: AtomicU64,
    /// Events whose writers were killed when a part was with the agent already, and that are forgotten.
    pub torn_events: AtomicU64,
    /// Functions of libc that were replaced.
    pub hooked: AtomicU64,
    /// Calls of them, as far as their threads have ended.
    pub operations: AtomicU64,
    /// Jumps to stubs that make locked instructions in their order.
    pub locked_sites: AtomicU64,
    /// Traps that lead there.
    pub locked_traps: AtomicU64,
    /// Instructions that neither could replace.
    pub locked_missed: AtomicU64,
    /// `order`: threads' rings in which the agent looked for news, ...
    pub ring_looks: AtomicU64,
    /// ... and those of which it was told that there were some.
    pub ring_news: AtomicU64,
    /// `det`: turns of threads that waited by looking at plain memory.
    pub det_spins: AtomicU64,
    /// `det`: phases that were ended by all threads, ...
    pub det_rounds: AtomicU64,
    /// ... turns of the ring's only thread, for which nobody had to be waited for, ...
    pub det_alone: AtomicU64,
    /// ... and turns that went on in an earlier one.
    pub det_kept: AtomicU64,
    /// `det`: scans for copies of pages, ...
    pub det_scans: AtomicU64,
    /// ... copies that were made anew by the runtime, instead of by page faults, ...
    pub det_renewed: AtomicU64,
    /// ... and twins that were left.
    pub det_twins: AtomicU64,
    /// `det`: operations of who had the lead of a phase.
    pub det_led: AtomicU64,
    /// ... and pages that were committed as a whole.
    pub det_whole: AtomicU64,
    /// ... and looks at pages that were made outside of turns, ...
    pub det_early: AtomicU64,
    /// ... or need not be made.
    pub det_spared: AtomicU64,
    /// `det`: pages whose commits were put off, since one thread owned them, ...
    pub det_owned: AtomicU64,
    /// ... and those that were committed when another one wanted them.
    pub det_claimed: AtomicU64,
    /// `det`: turns for input and output, which end no phase.
    pub det_io: AtomicU64,
}

/// Most mappings that a program has at its first instruction.
pub const MAX_INITIAL_REGIONS: usize = 8192;
/// Buckets of the futex table.
pub const FUTEX_BUCKETS: usize = 256;

/// A mapping that the program has at its first instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitialRegion {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// PROT_ bits.
    pub prot: u32,
    /// See [`region_flags`].
    pub flags: u32,
    /// Record: offset of the first byte in the file.
    pub offset: u64,
    /// Record: content hash of the file that the trace keeps of it; zeros without one.
    pub content: [u64; 2],
}

/// Flags of a mapping, as the runtime's own map of the address space keeps them.
pub mod region_flags {
    /// MAP_SHARED.
    pub const SHARED: u32 = 1;
    /// Backed by a file.
    pub const FILE: u32 = 2;
    /// The main thread's stack, which grows down by itself.
    pub const STACK: u32 = 4;
    /// Our vDSO.
    pub const VDSO: u32 = 8;
    /// A child does not get it (MADV_DONTFORK).
    pub const NOT_INHERITED: u32 = 16;
    /// A child gets zeros instead (MADV_WIPEONFORK).
    pub const WIPED: u32 = 32;
    /// It is locked (mlock(2)).
    pub const LOCKED: u32 = 64;
    /// Guard pages (MADV_GUARD_INSTALL): whoever touches them has a fault, whatever their protection.
    pub const GUARDED: u32 = 128;
}

/// [`Session::flags`]: address space randomisation is on in this recording.
pub const FLAG_ASLR: u32 = 1;
/// [`Session::flags`]: cpuid traps.
pub const FLAG_CPUID_FAULTING: u32 = 2;
/// [`Session::flags`]: chaos mode.
pub const FLAG_CHAOS: u32 = 4;
/// [`Session::flags`]: never rewrite system call sites (dispatch only); a test switch.
pub const FLAG_NO_PATCH: u32 = 8;
/// [`Session::flags`]: cpuid trapped in the recording and can't be made to here: this replay replaces the instructions by itself.
pub const FLAG_CPUID_REPLACED: u32 = 16;
/// [`Session::flags`]: synchronisation of libc is replaced by the runtime's own.
pub const FLAG_HOOKS: u32 = 32;
/// [`Session::flags`]: locked instructions in the program's code are ordered.
pub const FLAG_LOCKED: u32 = 64;
/// [`Session::flags`]: a replay of `order` lets one thread run at a time.
pub const FLAG_TOTAL: u32 = 128;
/// [`Session::flags`]: a replay of `order` in total order looks for data races ([`crate::races`]).
pub const FLAG_RACES: u32 = 256;
/// In the detail of an operation that a report tells of: objects are named by their addresses, and what was recorded has no number.
pub const BY_ADDRESS: u32 = 1 << 8;
/// [`Session::flags`]: a replay with a rebuilt program ([`crate::rebuilt`]).
pub const FLAG_REBUILT: u32 = 512;
/// [`Session::flags`]: a replay of `order` that writes down all its operations ([`crate::listing`]).
pub const FLAG_LISTS: u32 = 1024;
/// [`Session::flags`]: `det` makes up time, randomness and ids (`run --pure`).
pub const FLAG_PURE: u32 = 2048;
/// [`Session::flags`]: `det` logs what comes from the kernel, or replays that (`record --engine det`).
pub const FLAG_LOGS: u32 = 4096;
/// [`Session::flags`]: a test of what the table says that calls write (`record --test-writes`).
pub const FLAG_TEST_WRITES: u32 = 1 << 16;
/// [`Session::flags`]: with [`Session::test_reenter`], a copy of the process is made each time that all threads stand (`record --test-copies`).
pub const FLAG_TEST_COPIES: u32 = 1 << 17;
/// [`Session::flags`]: with [`Session::test_reenter`], what happens between two times that all threads stand is an epoch, which a copy of the process runs
/// again (`record --test-epochs`).
pub const FLAG_TEST_EPOCHS: u32 = 1 << 18;
/// [`Session::flags`]: with the one before, another copy runs each epoch by the slices that the first one has written (`record --test-slices`).
pub const FLAG_TEST_SLICES: u32 = 1 << 19;
/// [`Session::flags`]: with the one before, two neighbouring events of the slices are exchanged, which is to be found (`record --test-flip`).
pub const FLAG_FLIP_SLICES: u32 = 1 << 20;

/// [`Session::flags`]: while the program has threads it is recorded in epochs, each of which a copy runs again (`record --engine uniparallel`). In a replay: it was.
pub const FLAG_EPOCHS: u32 = 1 << 21;
/// [`Session::flags`]: with it, epochs go on also where they cost more than they bring (`record --test-keep-epochs`).
pub const FLAG_KEEP_EPOCHS: u32 = 1 << 22;

/// The head of a session's shared memory; the slots follow it.
#[repr(C, align(4096))]
pub struct Session {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// [`MODE_RECORD`] or [`MODE_REPLAY`].
    pub mode: u32,
    /// Number of the engine in [the table](crate::engine).
    pub engine: u32,
    /// Flags, see [`FLAG_ASLR`] and those after it.
    pub flags: u32,
    /// The program's first instruction (of ld.so, where there is one).
    pub entry: u64,
    /// Its first stack pointer.
    pub initial_sp: u64,
    /// Start of the program's brk area.
    pub brk_start: u64,
    /// XCR0 components that a signal frame holds.
    pub xsave_mask: u64,
    /// Bytes of the XSAVE area of a signal frame, without the trailing magic.
    pub xsave_size: u64,
    /// Seed of chaos mode.
    pub chaos_seed: u64,
    /// State hash every so many events; 0: chosen by cost.
    pub checksum_every: u64,
    /// Kernel process id of the agent (record) or the driver (replay).
    pub agent_pid: AtomicU32,
    /// Process id of the first process: the kernel's (record), that of the recording (replay).
    pub program_pid: AtomicU32,
    /// Soft limit of the stack when recorded, in bytes.
    pub stack_limit: u64,
    /// A test switch: this system call number is treated as unknown to the table (plus 1; 0: none).
    pub forget_syscall: u64,
    /// A test switch: replay flips one bit at this address before the event `tamper_event`.
    pub tamper_address: u64,
    /// See `tamper_address`.
    pub tamper_event: u64,
    /// Signals blocked at the program's first instruction.
    pub initial_mask: AtomicU64,
    /// Signals ignored at the program's first instruction.
    pub initial_ignored: AtomicU64,
    /// The processors that the program may use, as it is told: what it was started with, before it was pinned.
    pub affinity: [u64; 16],
    /// Record: the processor that the program is pinned to.
    pub cpu: u64,
    /// Replay: only the output of the process with this birth (see [`Process::birth`]) is shown, plus 1; 0: that of all.
    pub only: u32,
    /// Bytes of the kernel's mask of processors: what sched_getaffinity(2) wants room for, and what it writes at most. 0 in older recordings.
    pub affinity_len: [u16; 2],
    /// `order`: code whose plain loads are recorded as values.
    pub learned: CodeList,
    /// Replay: loads of it that found another value in memory than the recorded one.
    pub raced: CodeList,
    /// A test switch, `order`: classes of hooks that are left out (see [`crate::hooks`]).
    pub unhooked: u64,
    /// `det`: how long threads wait for one that runs without synchronising, in ns, before that is the end; 0: for ever.
    pub det_patience_ns: u64,
    /// A test switch, `det`: seed of delays at gates, plus 1; 0: there are none.
    pub det_delays: u64,
    /// `det`: writes of two threads to the same memory are told of (see [`crate::conflicts`]).
    pub det_report: u64,
    /// A test switch, `det`: optimisations that are left out (see [`crate::det`]).
    pub det_without: u64,
    /// Record: what a flight recorder wants of the agent, see [`hold`].
    pub hold: AtomicU64,
    /// Record: the kernel's id of the process that forgets old events; 0: none does.
    pub follower_pid: AtomicU64,
    /// End of the program's brk area when it was [attached](crate::attached) to.
    pub brk_now: u64,
    /// Threads of a process that was [running already](crate::attached); 0: the program begins.
    pub attached: u32,
    /// A test switch, `order`: threads stand at random, by this seed, and go on; 0: they don't.
    pub test_reenter: u32,
    /// `det`: of what random bytes are made (`run --seed`).
    pub det_seed: u64,
    /// Record: the agent's thread id, as it sees itself; the kernel marks it when the agent dies
    /// ([`OWNER_DIED`](crate::schedule::OWNER_DIED)). 0 where nobody looks.
    pub agent_life: AtomicU32,
    /// Record: the same of the launcher.
    pub launcher_life: AtomicU32,

    /// Number of leaves in `cpuid`.
    pub cpuid_len: u32,
    _pad0: u32,
    /// What cpuid answers.
    pub cpuid: [CpuidLeaf; MAX_CPUID],

    /// Number of entries in `initial_regions`.
    pub initial_regions_len: u32,
    /// Kernel process id of an agent that was killed, and whose signals may still come; 0 for none.
    pub former_agent: AtomicU32,
    /// The program's mappings at its first instruction, by address.
    pub initial_regions: [InitialRegion; MAX_INITIAL_REGIONS],

    /// Lock of everything down to `futex_tail`; a holder's death is noticed (see [`crate::schedule`]).
    pub schedule_lock: AtomicU32,
    /// Slot that holds the baton, plus 1; [`BATON_FREE`] when nobody does.
    pub baton: AtomicU32,
    /// Grows with every change of `baton`, so that the agent sees when a slice began.
    pub baton_generation: AtomicU64,
    /// First slot of the ready queue plus 1.
    pub ready_head: AtomicU32,
    /// Last slot of the ready queue plus 1.
    pub ready_tail: AtomicU32,
    /// Threads in the ready queue.
    pub ready_count: AtomicU32,
    /// Threads alive, in all processes.
    pub live_threads: AtomicU32,
    /// Set by the agent: the holder's slice is over, hand on at the next gate.
    pub slice_over: AtomicU32,
    /// One more than the highest slot ever used.
    pub slots_used: AtomicU32,
    /// Next futex ticket.
    pub futex_tickets: AtomicU64,
    /// State of chaos mode's generator.
    pub chaos_state: AtomicU64,
    /// Slot plus 1 from which the baton was taken inside a call, until the next holder has logged it.
    pub stolen_from: AtomicU32,
    /// Processes that were found dead and are not logged yet.
    pub lost: AtomicU32,
    /// Address spaces and shared memories numbered so far, see [`Slot::futex_space`].
    pub spaces: AtomicU64,
    /// Images that the recorded processes became by exec, so far.
    pub images: AtomicU32,
    /// Slot plus 1 of a thread that execs: its start parameters are in this head. 0 when nobody does (a futex).
    pub starting: AtomicU32,
    /// First waiting slot plus 1, by hash of the futex's address; linked by [`Slot::next_ready`].
    pub futex_head: [AtomicU32; FUTEX_BUCKETS],
    /// Last waiting slot plus 1.
    pub futex_tail: [AtomicU32; FUTEX_BUCKETS],

    /// Futex on which the agent sleeps: 1 asleep; whoever sets it to 0 wakes it.
    pub agent_asleep: AtomicU32,
    /// Set when nothing is logged any more: the agent died, or the trace is full and `--on-full=continue`.
    pub recording_lost: AtomicU32,
    /// Set by the agent: the program is to be ended because the trace is full (`--on-full=stop`).
    pub stop_program: AtomicU32,
    /// Wait status set by the launcher once the program has been reaped, plus 1; 0 before.
    pub wait_status: AtomicU32,
    /// Set by the launcher when it is done with the session.
    pub launcher_done: AtomicU32,
    /// A message of the runtime for the user, as an index into its own messages; 0 none.
    pub message: AtomicU32,
    /// An argument to that message.
    pub message_arg: AtomicU64,
    /// What the user should know in the end, a bit for each of [`crate::notes`].
    pub notes: AtomicU64,

    /// Replay: wait status plus 1 of the first process, when another process saw it killed.
    pub root_status: AtomicU32,
    /// Record: how often a process was found dead that held the baton, and so may have written to shared memory after its last event.
    pub losses: AtomicU32,
    /// Processes that have taken their first step, but the first one.
    pub births: AtomicU32,

    /// Replay: the streams that a process has open when it becomes another program, by descriptor.
    pub streams: [AtomicU8; FOLLOWED_STREAMS],
    /// Record: identities ([`file_identity`]) of the files that were mapped, by their numbers; 0 is no number.
    pub file_identities: [AtomicU64; MAX_SHARED_FILES],
    /// Record: 1 for a file that was ever mapped shared: what it contains changes without a trace in its times.
    pub file_ever_shared: [AtomicU8; MAX_SHARED_FILES],
    /// Record: how many files have numbers.
    pub files_known: AtomicU32,
    /// Replay: how many copies were made.
    pub copies_made: AtomicU32,
    /// Replay: content hash of a file when it was mapped last, by its number.
    pub file_contents: [[AtomicU64; 2]; MAX_SHARED_FILES],
    /// Replay: the driver's descriptor plus 1 of the writable copy of a file, by the file's number.
    pub shared_files: [AtomicU32; MAX_SHARED_FILES],
    /// All processes.
    pub processes: [Process; MAX_PROCESSES],

    /// The open request.
    pub request: RequestBox,
    /// The ring's indices.
    pub ring: RingControl,
    /// Counters.
    pub counters: Counters,
    /// Filled when replay diverges.
    pub divergence: DivergenceReport,
    /// Record: code in which instructions were looked for, so that the next process with the same code needn't.
    pub searched: [SearchedCode; MAX_SEARCHED],
    /// Record: how many files are in `kept`.
    pub kept_len: AtomicU32,
    /// One more than the highest number that a process ever had.
    pub processes_used: AtomicU32,
    /// Record: files that the trace holds, written by the agent: whoever maps one of them needn't ask it.
    pub kept: [KnownFile; MAX_KNOWN_FILES],
    /// `det`: the ids of `run --pure`.
    pub det_ids: FamiliarIds,
    /// Record: what the program's standard output and error led to when it began: device, inode, and the device that it is.
    pub outputs: [[AtomicU64; 3]; 2],
    /// Bytes that went to each of them: while recording by what descriptors lead to, in a replay as it wrote them again.
    pub output_bytes: [AtomicU64; 2],
    /// 1 when the last that got the baton had come back from a call, and was preferred.
    pub preferred: AtomicU32,
    /// Times that all threads of a process stood, ...
    pub stood: AtomicU64,
    /// ... and that not all of them came to stand in time.
    pub stood_not: AtomicU64,
    /// Copies that were made of the process, ...
    pub copies: AtomicU64,
    /// ... those of which all was found that differed, and nothing else, ...
    pub copies_found: AtomicU64,
    /// ... those before which what was written since the last one was known, and looked at, ...
    pub copies_after_epochs: AtomicU64,
    /// ... and for how long the making of them has kept the program waiting, in nanoseconds.
    pub copies_pause_ns: AtomicU64,
    /// Epochs of which a copy has come to the state of the program, ...
    pub epochs_same: AtomicU64,
    /// ... those of which it has not, because threads raced or something is wrong, ...
    pub epochs_unlike: AtomicU64,
    /// ... and those that can't be run again.
    pub epochs_left_out: AtomicU64,
    /// The same by what has kept them out: the number of a [reason](crate::epoch::Why), 0 where so much was logged or written that it isn't known.
    pub epochs_left_out_by: [AtomicU64; crate::epoch::REASONS],
    /// Of the first: those in which threads began or ended.
    pub epochs_with_births: AtomicU64,
    /// What the first of those was that didn't come to the same state, 0: there was none: the [kind](crate::epoch), ...
    pub epoch_difference: AtomicU64,
    /// ... and where: an address, or what the copy has told.
    pub epoch_difference_at: AtomicU64,
    /// Epochs that another copy has run by slices, and come to the state of the program, ...
    pub slices_same: AtomicU64,
    /// ... and those where it has not, ...
    pub slices_unlike: AtomicU64,
    /// ... with the first difference, as of epochs.
    pub slice_difference: AtomicU64,
    /// See above.
    pub slice_difference_at: AtomicU64,
    /// Bytes of slices that were written.
    pub slices_bytes: AtomicU64,
    /// Epochs at whose end the program took over what its copy had come to, since that was something else (DoublePlay 5.2.4).
    pub epochs_recovered: AtomicU64,
    /// An epoch is open: what the program does isn't in the recording yet.
    pub epoch_open: AtomicU32,
    /// The agent: the open epoch has lasted long enough.
    pub epoch_due: AtomicU32,
    /// Why an epoch could not become a part of the recording, as [`Why`](crate::epoch::Why) plus 1; 0: all could.
    pub epoch_lost: AtomicU32,
    /// How often the program has gone on while the copy of the epoch before ran.
    pub epochs_ahead: AtomicU64,
    /// Record: where the last first step of a process stands in the ring (`serial`), plus 1.
    pub born_at: AtomicU64,
    /// How often the program went back to the beginning of an epoch that no copy could run again, and went on with one thread at a time.
    pub epochs_serial: AtomicU64,
    /// A test (`record --test-fail-epochs`): with this seed some epochs count as ones that can't be run again; 0: none.
    pub test_fail_epochs: AtomicU32,
    /// Epochs at whose end a thread computed without coming to a gate: the program took over what the copy had come to.
    pub epochs_in_code: AtomicU64,
    /// Output waits for its epoch to be good, or for those who read it.
    pub epoch_holds: AtomicU32,
    /// The agent: the open epoch is to end although no thread comes to a gate: who is told looks at this.
    pub epoch_asked: AtomicU32,
    /// How many calls wrote what was held.
    pub outputs_held: AtomicU64,
    /// How often the program went on with one thread at a time for a while, since epochs cost more than they brought.
    pub epochs_paused: AtomicU64,
}

impl Process {
    /// Of a process that has not taken its first step: the slot that its first thread is to have, plus 1; 0 for the first process of all. (A word that has no other use
    /// before that.)
    pub fn made_for(&self) -> u32 {
        match self.maker.load(Relaxed) {
            0 => 0,
            _ => self.affinity[0].load(Relaxed),
        }
    }

    /// A process is being made, whose first thread is to have this slot.
    pub fn is_made_for(&self, slot: u32) {
        self.affinity[0].store(slot + 1, Relaxed);
    }

    /// Replay: it has taken its first step, and may become another program that wants no processors: the word says so. (While recording, whoever execs
    /// writes it, and until the step is in the trace it is needed.)
    pub fn has_begun(&self) {
        self.affinity[0].store(0, Relaxed);
    }
}

/// Is a file with this mode and number of a device one of the devices of memory: /dev/null, /dev/zero, /dev/full?
pub fn is_memory_device(mode: u64, device: u64) -> bool {
    const S_IFMT: u64 = 0o170000;
    const S_IFCHR: u64 = 0o020000;
    const MEMORY: u64 = 1;
    mode & S_IFMT == S_IFCHR && device >> 8 & 0xfff == MEMORY
}

/// Most files that [`Session::kept`] tells of.
pub const MAX_KNOWN_FILES: usize = 1024;

/// Words that tell a file, and that it did not change: device, inode, length, and the times of its last changes in seconds and nanoseconds.
pub const FILE_STAMP: usize = 7;

/// A file that the trace holds.
#[repr(C)]
pub struct KnownFile {
    /// The file as it was.
    pub stamp: [AtomicU64; FILE_STAMP],
    /// Its content hash, in two words.
    pub content: [AtomicU64; 2],
    _pad: AtomicU64,
}

/// Most pieces of code in which what was found is remembered.
pub const MAX_SEARCHED: usize = 128;
/// Most instructions that are remembered of such a piece.
pub const MAX_SEARCHED_SITES: usize = 61;

/// In the hash of a [`SearchedCode`]: somebody is writing what he found.
pub const SEARCH_CLAIMED: u64 = u64::MAX;

/// Where the instructions that were looked for are in a piece of code.
#[repr(C)]
pub struct SearchedCode {
    /// Hash of the code, or of the file that it is from, and of what was looked for; 0: not used.
    pub hash: AtomicU64,
    /// How many there are.
    pub len: AtomicU32,
    /// How far from the beginning.
    pub sites: [AtomicU32; MAX_SEARCHED_SITES],
}

/// Bytes of the session head, padded to pages.
pub const SESSION_LEN: usize = core::mem::size_of::<Session>();
/// Offset of the window through which files are handed to the agent.
pub const WINDOW_OFFSET: usize = crate::filters::FILTERS_OFFSET + crate::filters::FILTERS_LEN;
/// Bytes of the window.
pub const WINDOW_LEN: usize = 1 << 20;
/// Bytes of the session with all slots, the filters, the window, the futexes that are owed and the table of inputs.
pub const SESSION_TOTAL: usize = crate::inputs::INPUTS_OFFSET + crate::inputs::INPUTS_LEN;

const _: () = assert!(SESSION_LEN % 4096 == 0);
const _: () = assert!(SESSION_TOTAL < 0x1000_0000);

impl Session {
    /// Record: arguments of the event that says of process `p` that it was found dead ([`ProcessEnd`](crate::event::Kind::ProcessEnd)): its id, which one of
    /// the trace it is, and if it is none of those, what the trace knows of it: the slot plus 1 that it was made for. Who was
    /// killed in its first step is none of them, and the next to begin gets its place.
    pub fn found_dead(&self, p: &Process) -> [u32; 3] {
        let birth = p.birth.load(Relaxed);
        let torn = self.ring.position.load(Relaxed) < self.born_at.load(Relaxed);
        if birth != 0 && birth == self.births.load(Relaxed) && torn {
            self.births.store(birth - 1, Relaxed);
            p.birth.store(0, Relaxed);
        }
        let birth = p.birth.load(Relaxed);
        let made_for = match birth {
            0 => p.made_for(),
            _ => 0,
        };
        [p.visible_pid.load(Relaxed), birth, made_for]
    }

    /// The engine of the session.
    pub fn engine(&self) -> &'static crate::engine::Engine {
        crate::engine::Engine::of(self.engine).unwrap_or(&crate::engine::NONE)
    }

    /// Slot `i`, behind the head.
    ///
    /// # Panics
    /// When `i` is not below [`MAX_SLOTS`].
    pub fn slot(&self, i: usize) -> &Slot {
        let at = Session::slot_address(self as *const Session as usize, i);
        // SAFETY: a session's memory holds its slots behind its head; they are only atomics.
        unsafe { &*(at as *const Slot) }
    }

    /// Address of slot `i`, given the address of the session.
    ///
    /// # Panics
    /// When `i` is not below [`MAX_SLOTS`].
    pub fn slot_address(session: usize, i: usize) -> usize {
        assert!(i < MAX_SLOTS);
        session + SESSION_LEN + i * core::mem::size_of::<Slot>()
    }
}
