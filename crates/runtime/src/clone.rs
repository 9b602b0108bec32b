//! Threads: their making and their first steps. What they leave behind when they end is in [`crate::robust`].

use crate::asm::{rt_clone, rt_leave_with};
use crate::capture::Call;
use crate::engine::{with_engine, Engine};
use crate::guard;
use crate::order::total;
use crate::order::turns::Looks;
use crate::process;
use crate::signal::kernel;
use crate::signal::state::{AltStack, Pending};
use crate::sys;
use crate::thread::*;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::layout::{BLOCK_STRIDE, MAX_SLOTS, PAGE};
use reprise_abi::notes;
use reprise_abi::order::slots_with;
use reprise_abi::session::{process_state, slot_state, Process};
use reprise_abi::syscalls::nr;

const CLONE_VM: u64 = 0x100;
const CLONE_FS: u64 = 0x200;
const CLONE_FILES: u64 = 0x400;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_DETACHED: u64 = 0x40_0000;
const CLONE_PARENT: u64 = 0x8000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
const CLONE_SYSVSEM: u64 = 0x4_0000;
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
const BIRTH_THREAD: u32 = 0;
/// The first thread of a process with a copy of its parent's memory.
const BIRTH_FORK: u32 = 1;
/// The first thread of a process in its parent's memory.
const BIRTH_SHARING: u32 = 2;
/// A thread that was running before the recording began.
pub const BIRTH_ATTACHED: u32 = 3;

/// What a clone(2), fork(2) or vfork(2) asks for.
#[derive(Clone, Copy)]
pub struct Wish {
    /// The flags, with the exit signal in the lowest byte.
    pub flags: u64,
    /// Where the child's thread id is to be told to the parent.
    parent_tid: u64,
    /// Where it is to be told to the child, and cleared.
    child_tid: u64,
    /// Thread pointer of the child.
    tls: u64,
}

impl Wish {
    fn of(c: &Call) -> Wish {
        const SIGCHLD: u64 = 17;
        let flags = match c.nr {
            nr::FORK => SIGCHLD,
            nr::VFORK => SIGCHLD | CLONE_VM | CLONE_VFORK,
            _ => c.args[0],
        };
        let args = if c.nr == nr::CLONE { c.args } else { [0; 6] };
        Wish {
            flags,
            parent_tid: args[2],
            child_tid: args[3],
            tls: args[4],
        }
    }

    /// Does the parent sleep until the child execs or ends?
    pub fn waits(&self) -> bool {
        self.flags & CLONE_VFORK != 0
    }

    /// Does the parent get a descriptor of the child?
    pub fn makes_pidfd(&self) -> bool {
        self.flags & CLONE_PIDFD != 0
    }

    /// The word that is cleared when the child ends, where its parent can see that; 0: none.
    pub fn word_that_others_see(&self) -> u64 {
        let seen = self.shares_memory() && self.flags & CLONE_CHILD_CLEARTID != 0;
        if seen {
            self.child_tid
        } else {
            0
        }
    }

    /// Does the child run in the parent's memory?
    pub fn shares_memory(&self) -> bool {
        self.flags & CLONE_VM != 0
    }
}

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
        crate::message::note(notes::SHARED_HANDLERS);
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
    let most = match crate::order::runs() {
        true => slots_with(crate::order::head().ring_size),
        false => MAX_SLOTS,
    };
    (0..most as u32).find(|i| {
        let vacant = matches!(
            slot(*i).state.load(Acquire),
            slot_state::FREE | slot_state::EXITING
        );
        vacant && in_use_here(*i).is_none()
    })
}

/// Takes a free slot, where threads are made at the same time.
pub fn reserve_slot() -> Option<u32> {
    let _l = crate::serial::baton::lock();
    let i = free_slot()?;
    // Should the process die before the thread is made, the slot is freed with it.
    slot(i).process.store(crate::process::number(), Relaxed);
    slot(i).state.store(slot_state::BLOCKED, Relaxed);
    Some(i)
}

/// The word that is cleared when the thread with this thread pointer ends, while the thread is there.
pub fn word_of_thread(pointer: u64) -> Option<&'static AtomicU32> {
    let block = block_of_thread(pointer).filter(|b| b.clear_tid != 0)?;
    // SAFETY: in the thread's own control block, which whoever joins it must not have freed.
    Some(unsafe { &*(block.clear_tid as *const AtomicU32) })
}

/// The block of the thread of this process with this thread pointer, as long as it is there. A child of vfork(2), which is in the same memory,
/// has its parent's thread pointer.
pub fn block_of_thread(pointer: u64) -> Option<&'static Block> {
    let process = current().number;
    (0..session().slots_used.load(Relaxed))
        .filter(|i| in_use_here(*i).is_some())
        // SAFETY: the block is mapped, as the thread on it says.
        .map(|i| unsafe { &*(block_address(i) as *const Block) })
        .find(|b| b.fs_base == pointer && b.number == process)
}

/// The block of slot `i`, on which a thread runs in this memory.
pub fn block_of(i: u32) -> &'static Block {
    // SAFETY: the block is mapped, as the thread on it says.
    unsafe { &*(block_address(i) as *const Block) }
}

/// The word that says so, when a thread still runs on the block of slot `i` in this memory.
pub fn in_use_here(i: u32) -> Option<&'static AtomicU32> {
    if MAPPED[i as usize / 64].load(Relaxed) & 1 << (i % 64) == 0 {
        return None;
    }
    // SAFETY: the block is mapped, as the bit says.
    let block = unsafe { &*(block_address(i) as *const Block) };
    (block.alive.load(Acquire) != 0).then_some(&block.alive)
}

/// Replay: waits until the last thread that had a slot is gone.
pub fn wait_for_slot(i: u32) {
    let soon = || sys::Timespec::from_ns(sys::monotonic().ns() + 5_000_000);
    let looks = crate::order::runs().then(Looks::begin);
    // The driver frees the slots of a process that has ended. Threads that run freely may be late.
    loop {
        let state = slot(i).state.load(Acquire);
        let free = match crate::order::runs() {
            true => crate::order::replay::is_vacant(i),
            false => state != slot_state::LEFT,
        };
        if free {
            break;
        }
        if let Some(looks) = &looks {
            looks.until_gone(i);
        }
        crate::ring::wake_agent();
        if total::runs() {
            total::give_way(current());
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

static MAPPED: [AtomicU64; MAX_SLOTS / 64] = [const { AtomicU64::new(0) }; MAX_SLOTS / 64];

/// The first thread's block was mapped by whoever brought the runtime in: its stack is in use.
pub fn start_first_block(i: u32) {
    MAPPED[i as usize / 64].fetch_or(1 << (i % 64), Relaxed);
}

/// Somebody has mapped the blocks of all slots.
pub fn all_blocks_are_mapped() {
    MAPPED.iter().for_each(|w| w.store(u64::MAX, Relaxed));
}

/// Maps what a slot's thread needs, once; blocks are kept for later threads of the slot.
fn map_block(i: u32) -> bool {
    let (word, bit) = (&MAPPED[i as usize / 64], 1u64 << (i % 64));
    if word.load(Relaxed) & bit != 0 {
        return true;
    }
    let b = block_address(i);
    // Unmapped pages stay between the pieces.
    let ok = sys::map_own(b, ALT_STACK)
        && sys::map_own(b + ALT_STACK, ALT_STACK_LEN)
        && sys::map_own(b + GATE_STACK, GATE_TOP - GATE_STACK)
        && sys::map_own(b + STAND_IN, BLOCK_STRIDE - STAND_IN - PAGE);
    if ok {
        word.fetch_or(bit, Relaxed);
    }
    ok
}

/// Fills a new thread's block.
pub fn prepare_block(i: u32) -> Option<&'static mut Block> {
    if !map_block(i) {
        return None;
    }
    crate::ptrace::forget(i);
    slot(i).quiet_left.store(0, Relaxed);
    let at = block_address(i);
    let big = {
        // SAFETY: mapped above; zero or a former thread's.
        let old = unsafe { &*(at as *const Block) };
        old.big_scratch
    };
    let block = Block {
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
        big_scratch: big,
        cut: Default::default(),
        traced: Default::default(),
        order: Default::default(),
        locked: Default::default(),
        spin: Default::default(),
        shown: Frame::default(),
        heap: 0,
        det: Default::default(),
        table: 0,
        noted: Default::default(),
    };
    // SAFETY: nobody else has this slot.
    unsafe {
        core::ptr::write(at as *mut Block, block);
        Some(&mut *(at as *mut Block))
    }
}

/// Makes the kernel's thread for slot `i`, in a process of its own (number `process`) unless that is the caller's. It goes on in
/// [`rt_thread_begin`]. `before` runs when only the kernel can still fail. Its kernel thread id or an error.
pub fn start_thread<E: Engine>(
    t: &mut Block,
    wish: &Wish,
    i: u32,
    process: u32,
    start: &Frame,
    before: impl FnOnce(),
) -> i64 {
    let Some(b) = prepare_block(i) else {
        return -12;
    };
    let flags = wish.flags;
    let (mine, s, session) = (t.slot_process(), slot(i), session());
    if process == mine {
        s.kernel_pid
            .store(t.slot().kernel_pid.load(Relaxed), Relaxed);
    }
    b.process = t.process;
    b.number = process;
    if process != mine && wish.shares_memory() {
        b.birth = BIRTH_SHARING;
        b.process = crate::process::share(wish.waits());
        if b.process == 0 {
            return -11;
        }
    } else if process != mine {
        b.birth = BIRTH_FORK;
    }
    crate::output::table::inherit(t, b, flags, b.birth == BIRTH_FORK);
    b.start = *start;
    b.mask = t.mask;
    b.affinity = t.affinity;
    b.fs_base = if flags & CLONE_SETTLS != 0 {
        wish.tls
    } else {
        t.fs_base
    };
    b.clear_tid = if flags & CLONE_CHILD_CLEARTID != 0 {
        wish.child_tid
    } else {
        0
    };
    // A new thread has no alternate stack; a new process keeps its parent's, unless both would use it at once (clone(2)).
    if process != mine && (!wish.shares_memory() || wish.waits()) {
        b.alt_stack = t.alt_stack;
    }
    b.publish = if flags & CLONE_CHILD_SETTID != 0 {
        wish.child_tid
    } else {
        0
    };
    b.alive.store(1, Relaxed);
    s.filter.store(t.slot().filter.load(Relaxed), Relaxed);
    s.tsc_faults
        .store(t.slot().tsc_faults.load(Relaxed), Relaxed);
    s.go.store(0, Relaxed);
    s.signal_pending.store(0, Relaxed);
    s.kernel_tid.store(0, Relaxed);
    s.process.store(process, Relaxed);
    session.slots_used.fetch_max(i + 1, Relaxed);
    session.live_threads.fetch_add(1, Relaxed);
    if process == mine {
        crate::process::entry().live_threads.fetch_add(1, Relaxed);
    }
    if process != mine {
        b.det.apart = wish.shares_memory() && crate::isolate::split::is_done();
        b.order.copied = !wish.shares_memory() && crate::order::copies::is_needed();
        crate::heap::api::inherit(t, b, wish.shares_memory(), wish.waits());
        crate::namespace::pass_on(process);
    }
    s.state.store(E::BORN, Release);
    // Not even the driver's signal may come before the child knows who it is.
    kernel::block_everything();
    // In replay a process is the driver's child and shares its sisters' descriptors, which are the runtime's own; its parent
    // waits for the baton, not for the kernel.
    let kept = if E::LIVE || process == mine {
        flags & !(CLONE_CHILD_SETTID | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_PIDFD)
    } else {
        flags & CLONE_VM | CLONE_PARENT | CLONE_FILES
    };
    let mut wanted = kept | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_SETTLS;
    if process == mine && crate::isolate::split::is_done() {
        // A process of its own to the kernel; its end is told to nobody, since it has no exit signal.
        wanted &= !(CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_CHILD_CLEARTID);
    }
    before();
    // A new memory is made without breakpoints: the debugger may not want its process.
    let code = (b.birth == BIRTH_FORK).then(crate::debugger::CodeAsRecorded::begin);
    t.child_descriptor = None;
    let tid = match b.birth == BIRTH_FORK && crate::isolate::split::in_force() {
        true => crate::det::errand::make_process(b, wanted),
        // Whoever waits for its child can't open it afterwards: it may have ended, and been waited for by others.
        false if E::LIVE && wish.makes_pidfd() && wish.waits() => {
            let (tid, fd) = make_process_with_descriptor(b, wanted);
            if !sys::is_error(tid) {
                t.child_descriptor = Some(fd);
                // In a namespace of its own the child has found another number.
                process::entry_of(process).told.store(tid as u32, Relaxed);
            }
            tid
        }
        false => make_kernel_thread(b, wanted),
    };
    drop(code);
    if sys::is_error(tid) {
        b.alive.store(0, Relaxed);
        s.state.store(slot_state::FREE, Release);
        session.live_threads.fetch_sub(1, Relaxed);
        if process == mine {
            crate::process::entry().live_threads.fetch_sub(1, Relaxed);
        } else if b.birth == BIRTH_SHARING {
            crate::process::unshare(b.process);
        }
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

/// Makes the kernel's thread that begins on this block, in [`rt_thread_begin`]; its id or an error.
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

impl Wish {
    /// Where the parent is to tell the program the new thread's id.
    pub fn told_by_parent(&self) -> impl Iterator<Item = u64> {
        let parent = (self.flags & CLONE_PARENT_SETTID != 0).then_some(self.parent_tid);
        let child = self.shares_memory() && self.flags & CLONE_CHILD_SETTID != 0;
        parent.into_iter().chain(child.then_some(self.child_tid))
    }
}

/// Tells the program the new thread's id where it wants to know it: the parent's part.
pub fn publish_tid(wish: &Wish, tid: u32) {
    for address in wish.told_by_parent() {
        guard::write(address, &tid);
    }
}

/// While the program runs: a process whose maker runs on in the same memory begins when that has told the program the process's id where it wants
/// to know it ([`publish_tid`]), and has said so ([`crate::serial::baton::go`]). The kernel tells it before the process can do anything, or end.
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
        crate::attended::sleep_on(go.as_ptr(), 0);
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
    let probe = sys::call(nr::EVENTFD2, &[0, 0]);
    if sys::is_error(probe) {
        return Some(probe);
    }
    sys::call(nr::CLOSE, &[probe as u64]);
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
    let fd = sys::call(nr::PIDFD_OPEN, &[tid as u64, 0]);
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

/// The other threads of a memory that was copied are not here.
fn forget_others(t: &Block) {
    for i in (0..session().slots_used.load(Relaxed)).filter(|i| *i != t.slot) {
        if let Some(word) = in_use_here(i) {
            word.store(0, Relaxed);
        }
    }
}

/// The first steps of every thread but a program's first, on its gate stack.
#[no_mangle]
pub extern "C" fn rt_thread_begin(block: u64) -> ! {
    adopt(block);
    let t = current();
    let told = &t.slot().kernel_tid;
    if told.load(Relaxed) == 0 {
        // Its parent was told of a descriptor instead ([`make_process_with_descriptor`]).
        told.store(t.kernel_tid, Relaxed);
    }
    let birth = t.birth;
    t.birth = BIRTH_THREAD;
    crate::debugger::show_frame(t, &t.start);
    if birth == BIRTH_FORK {
        if crate::isolate::split::is_done() {
            crate::isolate::apart::leave(t);
        }
        crate::process::after_fork(t, t.slot_process());
        forget_others(t);
        crate::track::after_fork();
        crate::order::after_fork();
        crate::sync::after_fork(t);
    }
    if birth == BIRTH_ATTACHED {
        crate::instruction::arm();
        crate::attach::restore_vectors(t.slot);
    }
    with_engine!(E => {
        if matches!(birth, BIRTH_THREAD | BIRTH_ATTACHED) {
            crate::namespace::learn(t, false);
            E::thread_start(t);
        } else {
            if E::LIVE {
                // Should it die before its first step, this is how its parent knows it.
                let told = t.slot().kernel_tid.load(Relaxed);
                crate::process::entry().visible_pid.store(told, Relaxed);
            }
            crate::namespace::learn(t, true);
            E::process_start(t);
        }
        let mut frame = t.start;
        crate::debugger::show_frame(t, &frame);
        E::signal_point(t, &mut frame);
        // The site of its clone(2) may have been rewritten.
        frame.rip = crate::patch::resume_address(frame.rip);
        // SAFETY: the gate stack below the frame is free.
        unsafe { rt_leave_with(&frame) }
    })
}

/// Makes this kernel thread the one of `block`: `%gs`, signal stack, dispatch.
pub fn adopt(block: u64) {
    const ARCH_SET_GS: u64 = 0x1001;
    sys::call(nr::ARCH_PRCTL, &[ARCH_SET_GS, block]);
    let stack = AltStack {
        sp: block + ALT_STACK,
        flags: 0,
        pad: 0,
        size: ALT_STACK_LEN,
    };
    sys::call(nr::SIGALTSTACK, &[&stack as *const AltStack as u64, 0]);
    let t = current();
    t.kernel_tid = sys::call(nr::GETTID, &[]) as u32;
    crate::start::arm_dispatch();
}
