//! Threads: their making and their first steps. What they leave behind when they end is in [`crate::gate::robust`].

use crate::dispatch::with_engine;
use crate::engine::wish::*;
use crate::engine::Engine;
use crate::gate::{leader, ptrace};
use crate::log::awaited::Looks;
use crate::log::output;
use crate::log::total;
use crate::machine::asm::rt_clone;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::thread::area::Area;
use crate::thread::blocks::{in_use_here, map_block};
use crate::thread::process;
use crate::thread::signals::{AltStack, Pending};
use crate::thread::take_block;
use crate::thread::*;
use core::cell::Cell;
use core::marker::PhantomPinned;
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::notes;
use reprise_abi::order::slots_with;
use reprise_abi::session::{process_state, slot_state, Process, FLAG_EPOCHS};
use reprise_abi::syscalls::nr;

const EINVAL: i64 = -22;

/// How the kernel's thread is made that all others of a process are like.
pub const OF_A_THREAD: u64 = CLONE_VM
    | CLONE_FS
    | CLONE_FILES
    | CLONE_SIGHAND
    | CLONE_THREAD
    | CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID;

/// A thread of a process that was there before.
pub const BIRTH_THREAD: u32 = 0;
/// The first thread of a process with a copy of its parent's memory.
pub const BIRTH_FORK: u32 = 1;
/// The first thread of a process in its parent's memory.
const BIRTH_SHARING: u32 = 2;
/// A thread that was running before the recording began.
pub const BIRTH_ATTACHED: u32 = 3;
/// A thread of a copy ([`crate::gate::copy`]).
pub const BIRTH_COPIED: u32 = 4;

/// clone(2), fork(2), vfork(2).
pub fn clone<E: Engine>(t: &mut Block, c: &Call, frame: &Frame) -> i64 {
    let wish = Wish::of(c);
    let has = |flag: u64| wish.flags & flag != 0;
    // As in the kernel; more than one thread in a process needs all three. A pidfd is told where a thread id would be.
    let odd = (has(CLONE_SIGHAND) && !has(CLONE_VM))
        || (has(CLONE_THREAD) && !has(CLONE_SIGHAND))
        || (has(CLONE_PIDFD)
            && (has(CLONE_THREAD) || has(CLONE_PARENT_SETTID) || has(CLONE_DETACHED)));
    if odd {
        return E::computed(t, c, EINVAL);
    }
    // Handlers shared between processes would need a table of their own for us.
    if has(CLONE_SIGHAND) && !has(CLONE_THREAD) {
        crate::thread::message::note(notes::SHARED_HANDLERS);
        return E::computed(t, c, EINVAL);
    }
    if wish.makes_pidfd() {
        if let Some(error) = no_room_for_descriptor(&wish) {
            return E::computed(t, c, error);
        }
    }
    let mut start = *frame;
    start.rax = 0;
    start.rcx = frame.rip;
    start.r11 = frame.rflags;
    if c.nr == nr::CLONE && c.args[1] != 0 {
        start.rsp = c.args[1];
    }
    if wish.flags & CLONE_THREAD != 0 {
        E::thread_create(t, c, &wish, &start)
    } else {
        E::process_create(t, c, &wish, &start)
    }
}

/// A slot that no thread has.
pub fn free_slot() -> Option<u32> {
    let most = match crate::thread::in_force::orders_synchronisation() {
        true => slots_with(crate::thread::rings::head().ring_size),
        false => MAX_SLOTS,
    };
    (0..most as u32).find(|i| {
        let vacant = matches!(
            slot(*i).state.load(Acquire),
            slot_state::FREE | slot_state::EXITING
        );
        vacant && in_use_here(*i).is_none() && !is_told_late(*i)
    })
}

/// Had a thread of the [leader](crate::gate::leader) this slot last, while the leader's epoch is open? What that did comes into the recording when the epoch is over; what threads of other processes
/// do comes at once.
fn is_told_late(i: u32) -> bool {
    let s = session();
    s.epoch_open.load(Acquire) != 0
        && crate::thread::process::number() != leader::LEADER
        && i < s.slots_used.load(Relaxed)
        && slot(i).process.load(Relaxed) == leader::LEADER
}

/// Takes a free slot, where threads are made at the same time.
pub fn reserve_slot() -> Option<u32> {
    let _l = crate::thread::schedule::lock();
    let i = free_slot()?;
    // Should the process die before the thread is made, the slot is freed with it.
    slot(i)
        .process
        .store(crate::thread::process::number(), Relaxed);
    slot(i).state.store(slot_state::BLOCKED, Relaxed);
    Some(i)
}

/// Takes a free slot, where one thread runs at a time: of a leader's children, but not of the leader ([`crate::gate::leader`]), which makes threads meanwhile.
pub fn take_slot() -> Option<u32> {
    match session().flags & FLAG_EPOCHS {
        0 => free_slot(),
        _ => reserve_slot(),
    }
}

/// No thread could be made for it.
pub fn gives_back_slot(i: u32) {
    if session().flags & FLAG_EPOCHS != 0 {
        slot(i).state.store(slot_state::FREE, Release);
    }
}

/// Replay: waits until the last thread that had a slot is gone.
pub fn wait_for_slot<E: Engine>(i: u32) {
    let soon = || sys::Timespec::from_ns(sys::monotonic().ns() + 5_000_000);
    let looks = crate::thread::in_force::orders_synchronisation().then(Looks::begin);
    // The driver frees the slots of a process that has ended. Threads that run freely may be late.
    loop {
        let state = slot(i).state.load(Acquire);
        if E::is_vacant(i, state) {
            break;
        }
        if let Some(looks) = &looks {
            looks.until_gone(i);
        }
        crate::thread::request::wake_agent();
        if total::runs() {
            total::give_way();
        } else {
            sys::futex_wait(slot(i).state.as_ptr(), state, Some(&soon()));
            total::begin_asleep();
        }
    }
    while let Some(word) = in_use_here(i) {
        // The kernel wakes this word without the private flag when it clears it.
        sys::futex_wait(word.as_ptr(), word.load(Relaxed), Some(&soon()));
        total::begin_asleep();
    }
}

/// Fills a new thread's block.
pub fn prepare_block(i: u32) -> Option<&'static mut Block> {
    if !map_block(i) {
        return None;
    }
    crate::gate::ptrace::forget(i);
    slot(i).quiet_left.store(0, Relaxed);
    let block = new_block(i);
    // SAFETY: mapped above; nobody else has this slot.
    unsafe {
        let at = block_address(i) as *mut Block;
        core::ptr::write(at, block);
        Some(&mut *at)
    }
}

/// The block of a new thread of slot `i`, which is mapped.
pub fn new_block(i: u32) -> Block {
    let at = block_address(i);
    let big = {
        // SAFETY: mapped; zero or a former thread's.
        let old = unsafe { &*(at as *const Block) };
        old.big_scratch.get()
    };
    let mut block = Block {
        this: at,
        program_sp: 0,
        gate_sp: at + GATE_TOP,
        target: 0,
        guard_sp: 0,
        hooked: 0,
        pending_word: slot(i).signal_pending.as_ptr() as u64,
        operations: 0,
        tid: 0,
        _pad: 0,
        mark: i + 1,
        slot: i,
        birth: BIRTH_THREAD,
        number: 0,
        process: 0,
        kernel_tid: 0,
        alive: AtomicU32::new(0),
        mask: 0,
        affinity: None,
        saved_mask: None,
        alt_stack: AltStack::DISABLED,
        pending: Pending::EMPTY,
        clear_tid: 0,
        robust_list: 0,
        robust_down: false,
        steps: false,
        start: Frame::default(),
        publish: 0,
        child_descriptor: None,
        fs_base: 0,
        big_scratch: Cell::new(big),
        engine: Area::new(),
        traced: Area::new(),
        stub: Area::new(),
        looks: Area::new(),
        known: Area::new(),
        view: Area::new(),
        noted: Area::new(),
        reads: Area::new(),
        hook_ends: false,
        deferred: false,
        signalled: false,
        goes_back: false,
        shows: false,
        held: None,
        cancels: AtomicU32::new(0),
        logging: Default::default(),
        shown: Frame::default(),
        heap: 0,
        table: Cell::new(0),
        stands: AtomicU32::new(0),
        told: (0, 0),
        stands_again: false,
        steps_out: false,
        entered: None,
        stays_in: None,
        withdraws: false,
        _pinned: PhantomPinned,
    };
    block.traced.put(ptrace::Traced::default());
    block.noted.put(output::Noted::default());
    with_engine!(E => E::fills(&mut block));
    block
}

/// Makes the kernel's thread for slot `i`, in a process of its own (number `process`) unless that is the caller's. It goes on in
/// `rt_thread_begin` ([`crate::entry`]). `before` runs when only the kernel can still fail, with both blocks. Its kernel thread id or an error.
pub fn start_thread<E: Engine>(
    t: &mut Block,
    wish: &Wish,
    i: u32,
    process: u32,
    start: &Frame,
    before: impl FnOnce(&mut Block, &mut Block),
) -> i64 {
    const ENOMEM: i64 = -12;
    let Some(b) = prepare_block(i) else {
        return ENOMEM;
    };
    let is_process = process != t.slot_process();
    if let Err(e) = choose_memory(t, b, wish, process) {
        return e;
    }
    fill_block(t, b, wish, start, is_process);
    fill_slot(t, i, process);
    count_in(i, is_process);
    if is_process {
        E::prepares_process(t, b, wish);
        reprise_heap::api::inherit(t, b, wish.shares_memory(), wish.waits());
        crate::thread::namespace::pass_on(process);
    }
    slot(i).state.store(E::BORN, Release);
    // Not even the driver's signal may come before the child knows who it is.
    kernel::block_everything();
    let wanted = kernel_flags::<E>(wish.flags, is_process);
    before(t, b);
    let tid = make_in_kernel::<E>(t, b, wish, wanted, process);
    if sys::is_error(tid) {
        take_back(b, i, is_process);
    } else if b.birth == BIRTH_FORK {
        // It runs in its own copy of the block.
        b.alive.store(0, Relaxed);
    }
    if E::LIVE {
        kernel::sync_mask(t);
    } else {
        kernel::block_all();
    }
    tid
}

/// The child is one of the caller's threads, or the first thread of a process with memory of its own, or in its maker's.
fn choose_memory(t: &Block, b: &mut Block, wish: &Wish, process: u32) -> Result<(), i64> {
    const EAGAIN: i64 = -11;
    b.process = t.process;
    b.number = process;
    if process == t.slot_process() {
        return Ok(());
    }
    if !wish.shares_memory() {
        b.birth = BIRTH_FORK;
        return Ok(());
    }
    b.birth = BIRTH_SHARING;
    b.process = crate::thread::process::share(wish.waits());
    match b.process {
        0 => Err(EAGAIN),
        _ => Ok(()),
    }
}

/// What the child has from its maker, and what was asked for it.
fn fill_block(t: &mut Block, b: &mut Block, wish: &Wish, start: &Frame, is_process: bool) {
    let asked = |flag: u64, value: u64| if wish.flags & flag != 0 { value } else { 0 };
    crate::log::output::table::inherit(t, b, wish.flags, b.birth == BIRTH_FORK);
    b.start = *start;
    b.mask = t.mask;
    b.affinity = t.affinity;
    b.fs_base = match wish.flags & CLONE_SETTLS {
        0 => t.fs_base,
        _ => wish.tls,
    };
    b.clear_tid = asked(CLONE_CHILD_CLEARTID, wish.child_tid);
    b.publish = asked(CLONE_CHILD_SETTID, wish.child_tid);
    // A new thread has no alternate stack; a new process keeps its parent's, unless both would use it at once (clone(2)).
    if is_process && (!wish.shares_memory() || wish.waits()) {
        b.alt_stack = t.alt_stack;
    }
    b.alive.store(1, Relaxed);
}

fn fill_slot(t: &Block, i: u32, process: u32) {
    let (s, maker) = (slot(i), t.slot());
    if process == t.slot_process() {
        s.kernel_pid.store(maker.kernel_pid.load(Relaxed), Relaxed);
    }
    s.filter.store(maker.filter.load(Relaxed), Relaxed);
    s.tsc_faults.store(maker.tsc_faults.load(Relaxed), Relaxed);
    s.go.store(0, Relaxed);
    s.signal_pending.store(0, Relaxed);
    s.kernel_tid.store(0, Relaxed);
    s.process.store(process, Relaxed);
    if process != t.slot_process() {
        process::entry_of(process).is_made_for(i);
    }
}

/// The child counts among those that live.
fn count_in(i: u32, is_process: bool) {
    session().slots_used.fetch_max(i + 1, Relaxed);
    session().live_threads.fetch_add(1, Relaxed);
    if !is_process {
        process::entry().live_threads.fetch_add(1, Relaxed);
    }
}

/// The child could not be made.
fn take_back(b: &mut Block, i: u32, is_process: bool) {
    b.alive.store(0, Relaxed);
    slot(i).state.store(slot_state::FREE, Release);
    session().live_threads.fetch_sub(1, Relaxed);
    if !is_process {
        process::entry().live_threads.fetch_sub(1, Relaxed);
    } else if b.birth == BIRTH_SHARING {
        process::unshare(b.process);
    }
}

/// How the kernel is to make the child for which the program has given these flags.
fn kernel_flags<E: Engine>(flags: u64, is_process: bool) -> u64 {
    // In replay a process is the driver's child and shares its sisters' descriptors, which are the runtime's own; its parent
    // waits for the baton, not for the kernel.
    let kept = if E::LIVE || !is_process {
        flags & !(CLONE_CHILD_SETTID | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_PIDFD)
    } else {
        flags & CLONE_VM | CLONE_PARENT | CLONE_FILES
    };
    let wanted = kept | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_SETTLS;
    if is_process || !crate::thread::in_force::threads_are_processes() {
        return wanted;
    }
    // A process of its own to the kernel; its end is told to nobody, since it has no exit signal.
    wanted & !(CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_CHILD_CLEARTID)
}

/// Makes the child; its id or an error.
fn make_in_kernel<E: Engine>(
    t: &mut Block,
    b: &mut Block,
    wish: &Wish,
    wanted: u64,
    process: u32,
) -> i64 {
    let is_copy = b.birth == BIRTH_FORK;
    // A new memory is made without breakpoints: the debugger may not want its process.
    let _code = is_copy.then(crate::log::debugger::CodeAsRecorded::begin);
    t.child_descriptor = None;
    if let Some(tid) = is_copy.then(|| E::makes_process(b, wanted)).flatten() {
        return tid;
    }
    // Whoever waits for its child can't open it afterwards: it may have ended, and been waited for by others.
    if !(E::LIVE && wish.makes_pidfd() && wish.waits()) {
        return make_kernel_thread(b, wanted);
    }
    let (tid, fd) = make_process_with_descriptor(b, wanted);
    if !sys::is_error(tid) {
        t.child_descriptor = Some(fd);
        // In a namespace of its own the child has found another number.
        process::entry_of(process).told.store(tid as u32, Relaxed);
    }
    tid
}

/// Makes the kernel's thread that begins on this block, in `rt_thread_begin` ([`crate::entry`]); its id or an error.
pub fn make_kernel_thread(b: &Block, flags: u64) -> i64 {
    make_with(b, flags, &b.slot().kernel_tid)
}

/// As [`make_kernel_thread`], with a descriptor of the child. The kernel tells that where it would tell the child's id, which the child finds out itself.
fn make_process_with_descriptor(b: &Block, flags: u64) -> (i64, u32) {
    let fd = AtomicU32::new(0);
    let tid = make_with(b, flags & !CLONE_PARENT_SETTID | CLONE_PIDFD, &fd);
    (tid, fd.load(Relaxed))
}

/// clone(2), for a child that begins on this block. `told`: where the kernel tells the parent what it wants to know.
fn make_with(b: &Block, flags: u64, told: &AtomicU32) -> i64 {
    // The child finds its block on its gate stack.
    let top = b.gate_sp - 16;
    let (told, alive) = (told.as_ptr() as u64, b.alive.as_ptr() as u64);
    // SAFETY: the child runs on its own, new stack and block.
    unsafe {
        *(top as *mut u64) = b.this;
        rt_clone(flags, top, told, alive, b.fs_base)
    }
}

/// Tells the program the new thread's id where it wants to know it: the parent's part.
pub fn publish_tid(wish: &Wish, tid: u32) {
    for address in wish.told_by_parent() {
        guard::write(address, &tid);
    }
}

/// While the program runs: a process whose maker runs on in the same memory begins when that has told the program the process's id where it wants
/// to know it ([`publish_tid`]), and has said so ([`crate::thread::schedule::go`]). The kernel tells it before the process can do anything, or end.
pub fn wait_for_maker(t: &Block) {
    if !process::maker_runs_on() {
        return;
    }
    let maker = process::entry().maker.load(Relaxed);
    let lives = |p: &Process| {
        p.kernel_pid.load(Relaxed) == maker && p.state.load(Relaxed) == process_state::LIVE
    };
    let go = &t.slot().go;
    while go.swap(0, Acquire) == 0 && session().processes.iter().any(lives) {
        crate::thread::attended::sleep_on(go.as_ptr(), 0);
    }
}

/// Why the parent can't have a descriptor of its child: asked before the child is made.
fn no_room_for_descriptor(wish: &Wish) -> Option<i64> {
    const EFAULT: i64 = -14;
    if !with_engine!(E => E::LIVE) {
        return None;
    }
    let word = guard::read::<u32>(wish.parent_tid);
    if !word.is_some_and(|w| guard::write(wish.parent_tid, &w)) {
        return Some(EFAULT);
    }
    let probe = sys::eventfd2(0, 0);
    if sys::is_error(probe) {
        return Some(probe);
    }
    sys::close(probe as u64);
    None
}

/// The descriptor of the process that the calling thread has just made, if it wanted one.
pub fn open_pidfd(t: &mut Block, wish: &Wish, tid: u32) -> Option<u64> {
    if !wish.makes_pidfd() {
        return None;
    }
    if let Some(fd) = t.child_descriptor.take() {
        return Some(fd.into());
    }
    let fd = sys::pidfd_open(tid as u64, 0);
    (!sys::is_error(fd)).then_some(fd as u64)
}

/// Tells the program that descriptor.
pub fn publish_pidfd(wish: &Wish, fd: Option<u64>) {
    if let Some(fd) = fd {
        guard::write(wish.parent_tid, &(fd as u32));
    }
}

/// Tells the program the new thread's id: the child's part, when it has a memory of its own.
pub fn publish_own_tid(t: &mut Block, tid: u32) {
    if t.publish != 0 {
        guard::write(t.publish, &tid);
        t.publish = 0;
    }
}

/// Makes this kernel thread the one of `block`: `%gs`, signal stack, dispatch.
///
/// # Safety
/// The block is mapped and filled, nobody else runs on it, and the thread has no reference to it.
pub unsafe fn adopt(block: u64) -> &'static mut Block {
    const ARCH_SET_GS: u64 = 0x1001;
    sys::arch_prctl(ARCH_SET_GS, block);
    let stack = AltStack {
        sp: block + ALT_STACK,
        flags: 0,
        pad: 0,
        size: ALT_STACK_LEN,
    };
    sys::sigaltstack(&stack as *const AltStack as u64, 0);
    // SAFETY: these are the thread's first steps on the block, as the caller says.
    let t = unsafe { take_block() };
    t.kernel_tid = sys::gettid() as u32;
    crate::gate::arm_dispatch();
    t
}
