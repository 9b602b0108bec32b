//! Standing: a thread is taken out of the runtime, down to what the program can see of it and where its log is, so that it can go on from that,
//! in this engine or in another one ([`crate::entry::reenter`]). Checkpoints, going back, forward recovery (DoublePlay 5.2.4) and a standby's takeover stand on it.
//!
//! A thread stands only where the program's registers say everything: at the end of a gate or of a hooked function, in the program's code, or in a
//! call whose beginning is logged and whose end isn't. What it had on the runtime's stacks is gone then. Hooked functions that wait are entered
//! anew, as after a signal's handler, with what they had come to in registers of the program's that no function has its arguments in.
//!
//! A call that [can't be made again](happens_once) when a signal has ended it isn't interrupted: who is in such a call isn't told, and stays in it while
//! the others stand; it looks at what is wanted when the kernel comes back ([`staying`]).
//!
//! All threads of a process stand together. That is cooperative: who asks for it ([`standing`]) sends the others a signal of the runtime's own, and waits
//! until each is at such a place; a thread that doesn't come there in time makes the request fail, and nothing has happened.

use crate::code::patch;
use crate::dispatch::with_engine;
use crate::engine::Engine;
use crate::gate::{copy, epochs, leader, tested_copies};
use crate::log::epoch::End;
use crate::log::quiet;
use crate::machine::asm::rt_exit_thread;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::{futex, transfer};
use crate::signal::frame::{restore_vectors, save_vectors, FpState, Ucontext};
use crate::signal::kernel;
use crate::thread::area::Area;
use crate::thread::blocks::{block_of, in_use_here};
use crate::thread::logging::Logging;
use crate::thread::signals::{AltStack, Pending};
use crate::thread::{block_address, in_force, process, session, standing};
use crate::thread::{Block, Entered, Frame};
use crate::thread::{ENGINE_WORDS, KNOWN_WORDS, VECTORS, WALK, WALK_LEN};
use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};
use core::sync::atomic::Ordering::*;
use reprise_abi::effect::Effect;
use reprise_abi::session::{slot_state, FLAG_EPOCHS, FLAG_TEST_COPIES};
use reprise_abi::spec::Blocking;
use reprise_abi::syscalls::{self, nr};

/// So long the others are waited for, in nanoseconds, ...
const PATIENCE: i64 = 200_000_000;
/// ... and so long until one is told once more.
const TELL_AGAIN: i64 = 1_000_000;

/// A thread that stands.
#[repr(C, align(64))]
pub struct Form {
    /// Its general registers.
    pub frame: Frame,
    /// The call that it is in.
    pub call: Option<Entered>,
    /// It is in the middle of the program's code.
    pub in_code: bool,
    /// It has stood there before, and done nothing since.
    pub again: bool,
    /// Thread pointer, as all down to `steps` what the program has told the kernel.
    pub fs_base: u64,
    /// Signals that it has blocked.
    pub mask: u64,
    /// Those of the call at the end of whose gate it is, as long as these are in force.
    pub under: Option<u64>,
    /// Its signal stack.
    pub alt_stack: AltStack,
    /// Where its id is cleared when it ends.
    pub clear_tid: u64,
    /// Its robust futexes.
    pub robust_list: u64,
    /// The processors that it wants to be on.
    pub affinity: Option<[u64; 16]>,
    /// It came into the runtime with the trap flag set.
    pub steps: bool,
    /// Signals that wait for a gate.
    pub pending: Pending,
    /// Which thread it is.
    pub identity: Identity,
    /// Where its log is.
    pub log: Place,
}

/// Which thread of the session it is, and what is its own there.
pub struct Identity {
    /// The id by which objects know it.
    pub tid: u32,
    /// Number of its process.
    pub number: u32,
    /// What belongs to its process.
    pub process: u64,
    /// The kernel's id of it.
    pub kernel_tid: u32,
    /// Somebody cancels it.
    pub cancels: u32,
    /// Its heap.
    pub heap: u64,
    /// Its table of descriptors.
    pub table: u64,
    /// Its futexes are put down for others to mark.
    pub robust_down: bool,
    /// What is kept of it for one that has attached to it.
    pub traced: Area<2>,
}

/// Where a thread's log is: what the next entry depends on.
pub struct Place {
    /// What the engine had kept of it.
    pub engine: Area<ENGINE_WORDS>,
    /// What it knows of atomic words.
    pub known: Area<KNOWN_WORDS>,
    /// What it has promised of a file that it reads.
    pub reads: Area<8>,
    /// What it keeps of its log.
    pub logging: Logging,
    /// Hooked functions called.
    pub operations: u64,
    /// Hooked functions called since something was last logged or counted, as far as the engine counts them.
    pub unlogged: u64,
    /// The hooked function in which it stands has left something in its log.
    pub has_logged: bool,
    /// The engine's role, which may be another one when the thread goes on.
    pub role: u32,
}

const _: () = assert!(size_of::<Form>() <= WALK_LEN as usize);

/// The form of the thread of slot `i`, in memory that only a thread on a walk uses otherwise.
fn form(i: u32) -> *mut Form {
    (block_address(i) + WALK) as *mut Form
}

/// Moves what a thread is into its form.
fn take_down(t: &mut Block, frame: &Frame, call: Option<Entered>) {
    let (unlogged, has_logged) = with_engine!(E => (E::unlogged_calls(t), E::has_logged(t)));
    // SAFETY: nobody reads these areas of the block any more: it is made anew.
    let (engine, known, reads, traced) = unsafe {
        (
            core::ptr::read(&t.engine),
            core::ptr::read(&t.known),
            core::ptr::read(&t.reads),
            core::ptr::read(&t.traced),
        )
    };
    let f = Form {
        frame: *frame,
        call,
        in_code: false,
        again: t.stands_again,
        fs_base: t.fs_base,
        // Who waits under another mask enters its call anew, and replaces its mask once more.
        mask: t.saved_mask.unwrap_or(t.mask),
        under: t.saved_mask.filter(|_| call.is_none()).map(|_| t.mask),
        alt_stack: t.alt_stack,
        clear_tid: t.clear_tid,
        robust_list: t.robust_list,
        affinity: t.affinity,
        steps: t.steps,
        pending: core::mem::replace(&mut t.pending, Pending::EMPTY),
        identity: Identity {
            tid: t.tid,
            number: t.number,
            process: t.process,
            kernel_tid: t.kernel_tid,
            cancels: t.cancels.load(Relaxed),
            heap: t.heap,
            table: t.table.get(),
            robust_down: t.robust_down,
            traced,
        },
        log: Place {
            engine,
            known,
            reads,
            logging: core::mem::take(&mut t.logging),
            operations: t.operations,
            unlogged,
            has_logged,
            role: in_force::ENGINE.load(Relaxed),
        },
    };
    // SAFETY: the thread's own memory, which it doesn't use for a walk now.
    unsafe { form(t.slot).write(f) };
}

/// The form of the thread that is about to go on; it is used up.
pub fn take_up(i: u32) -> Form {
    // SAFETY: written when the thread stood.
    unsafe { core::ptr::read(form(i)) }
}

/// Where the thread of slot `i` stands, for this request, or stays in its call; `None`: neither.
pub fn place_of(i: u32, request: u32) -> Option<End> {
    let b = block_of(i);
    let stays = is_staying(b.stands.load(Relaxed));
    if stays && !b.withdraws {
        return Some(End {
            frame: gate_frame(b),
            in_call: true,
            in_code: false,
            again: false,
            under_mask: false,
            quiet: quiet::unlogged(i, b.logging.counts.get()),
            unlogged: 0,
            has_logged: false,
        });
    }
    if !stays && b.stands.load(Relaxed) != request {
        return None;
    }
    // SAFETY: written when the thread stood, and not used up.
    let form = unsafe { &*form(i) };
    Some(End {
        frame: form.frame,
        in_call: form.call.is_some(),
        in_code: form.in_code,
        again: form.again,
        under_mask: form.under.is_some(),
        quiet: quiet::unlogged(i, form.log.logging.counts.get()),
        unlogged: form.log.unlogged,
        has_logged: form.log.has_logged,
    })
}

/// In a copy: the thread comes to rest at this place, for the program to see.
pub fn shows(t: &mut Block, frame: &Frame, call: Option<Entered>) {
    take_down(t, frame, call);
}

/// As [`shows`], of a place in the middle of the program's code.
pub fn shows_in_code(t: &mut Block, frame: &Frame) {
    take_down(t, frame, None);
    notes_in_code(t);
}

/// Notes of the thread, which has just been taken down, that it is in the middle of the program's code.
fn notes_in_code(t: &Block) {
    // SAFETY: its own form.
    unsafe { (*form(t.slot)).in_code = true };
}

/// The thread of slot `i` stands for this request, and is to stand where it stood when process `then` was made, a copy. It has made no call since. False: it can't be, and nothing is changed.
pub fn goes_back(i: u32, request: u32, then: u32) -> bool {
    let Some(old) = told_then(i, request, then) else {
        return false;
    };
    let b = block_of(i);
    match is_staying(b.stands.load(Relaxed)) {
        true if !b.withdraws => return has_registers(i, &old.frame),
        // It takes its call back, and stands from now on.
        true => b.stands.store(request, SeqCst),
        false => {}
    }
    // SAFETY: written when the thread stood, and not used up.
    let now = unsafe { &mut *form(i) };
    (now.frame, now.in_code) = (old.frame, old.in_code);
    if now.call.is_none() || old.call.is_none() {
        now.call = old.call;
    }
    now.fs_base = old.fs_base;
    (now.mask, now.under) = (old.mask, old.under);
    now.alt_stack = old.alt_stack;
    now.clear_tid = old.clear_tid;
    now.robust_list = old.robust_list;
    now.identity.heap = old.heap;
    true
}

/// Can it [go back](goes_back) there?
pub fn can_go_back(i: u32, request: u32, then: u32) -> bool {
    told_then(i, request, then).is_some()
}

/// What the thread's form has in that process, where the thread can be made that.
fn told_then(i: u32, request: u32, then: u32) -> Option<Told> {
    let stands = block_of(i).stands.load(Relaxed);
    let stays = is_staying(stands);
    if !stays && stands != request {
        return None;
    }
    let at = form(i) as u64;
    let told = |offset: usize, to: u64, len: usize| {
        transfer::get(then, to, at + offset as u64, len as u64).is_some()
    };
    let old = UnsafeCell::new(Told::default());
    let to = old.get();
    macro_rules! get {
        ($($field:ident),*) => {
            // SAFETY: only the addresses of its fields; the copy has made a form of the same type there, when its thread stood.
            $(unsafe { told(offset_of!(Form, $field), &raw mut (*to).$field as u64, size_of_val(&(*to).$field)) })&&*
        };
    }
    let known = get!(
        frame,
        call,
        in_code,
        fs_base,
        mask,
        under,
        alt_stack,
        clear_tid,
        robust_list
    );
    let heap = offset_of!(Form, identity) + offset_of!(Identity, heap);
    // SAFETY: as above.
    let heap_to = unsafe { &raw mut (*to).heap as u64 };
    let known = known && told(heap, heap_to, size_of::<u64>());
    let old = old.into_inner();
    let is_bound = stays && !block_of(i).withdraws;
    let can = !is_bound || old.call.is_some() && can_have_registers(i, &old.frame);
    (known && can).then_some(old)
}

/// What a form has of what a program can change of its thread, as [`Form`] says.
struct Told {
    frame: Frame,
    call: Option<Entered>,
    in_code: bool,
    fs_base: u64,
    mask: u64,
    under: Option<u64>,
    alt_stack: AltStack,
    clear_tid: u64,
    robust_list: u64,
    heap: u64,
}

impl Default for Told {
    fn default() -> Told {
        Told {
            frame: Frame::default(),
            call: None,
            in_code: false,
            fs_base: 0,
            mask: 0,
            under: None,
            alt_stack: AltStack::DISABLED,
            clear_tid: 0,
            robust_list: 0,
            heap: 0,
        }
    }
}

/// As [`is_free`], or could it [take its call back](staying_for_news)?
pub fn can_be_free(i: u32, request: u32) -> bool {
    let b = block_of(i);
    is_free(i, request) || is_staying(b.stands.load(Relaxed)) && b.withdraws
}

/// Does the thread of slot `i` stand for this request, and not in its call on the runtime's stack?
pub fn is_free(i: u32, request: u32) -> bool {
    block_of(i).stands.load(Relaxed) == request
}

/// The thread of slot `i`, which stands, goes on with these registers. False: it stays in another call.
pub fn has_registers(i: u32, frame: &Frame) -> bool {
    let can = can_have_registers(i, frame);
    if can {
        // SAFETY: a thread that stays in its call looks at its frame when all go on.
        unsafe { *standing_frame(i) = *frame };
    }
    can
}

/// Can it go on with them?
pub fn can_have_registers(i: u32, frame: &Frame) -> bool {
    // SAFETY: as above.
    let now = unsafe { &*standing_frame(i) };
    let call = |f: &Frame| (f.rip, f.rsp, f.rax as u32);
    let number = now.rax as u32 as u64;
    let count = syscalls::lookup(number).map_or(6, |call| call.args.len());
    let asks_alike = || syscalls::asks_alike(number, &now.args(), count, |n| frame.args()[n]);
    !is_staying(block_of(i).stands.load(Relaxed)) || call(now) == call(frame) && asks_alike()
}

/// Where the general registers of the thread of slot `i` are, which stands or stays in its call.
fn standing_frame(i: u32) -> *mut Frame {
    let b = block_of(i);
    match is_staying(b.stands.load(Relaxed)) {
        // SAFETY: only an address.
        false => unsafe { &raw mut (*form(i)).frame },
        true => gate_frame_of(b),
    }
}

/// Where the vector registers of a thread that stands are.
pub fn vectors(i: u32) -> u64 {
    block_address(i) + VECTORS
}

extern "C" {
    /// Leaves the runtime's stack as it is, and goes on from the form.
    pub fn rt_reenter(block: u64) -> !;
}

/// The end of a gate or of a hooked function: the thread stands, if that is wanted, and goes on as if nothing had been.
#[inline(always)]
pub fn point<E: Engine>(t: &mut Block, frame: &mut Frame) {
    if E::STANDS && (standing::wanted().is_some() || standing::may_be_asked_for()) {
        look::<E>(t, frame);
    }
    E::passes_point(t, frame);
}

/// The thread, which stood at the end of a gate or of a hooked function, goes on. A signal may have waited for it there, when it stood for another one's request: then it isn't to go on before that is
/// delivered.
pub fn goes_on_to_signals<E: Engine>(t: &mut Block, frame: &mut Frame) {
    if E::STANDS && leader::delivers_alone(t) {
        t.stands_again = true;
        point::<E>(t, frame);
        t.stands_again = false;
    }
}

/// As [`point`], at the end of the gate of a call that has a signal mask of its own, which is still in force: for a signal that is to be delivered under it while all others stand.
pub fn point_under_mask<E: Engine>(t: &mut Block, frame: &mut Frame) {
    while E::STANDS && t.signalled && can_stand::<E>(t) {
        look::<E>(t, frame);
    }
    E::passes_point_under_mask(t, frame);
}

#[cold]
fn look<E: Engine>(t: &mut Block, frame: &Frame) {
    if !can_stand::<E>(t) {
        return;
    }
    match standing::wanted() {
        Some(request) => stand(t, frame, None, request),
        None if leader::is_due(t) => leader::ask(t, frame),
        None if standing::is_due() => ask(t, frame),
        None => {}
    }
}

fn can_stand<E: Engine>(t: &Block) -> bool {
    E::can_stand(t) && process::only_one_in_memory()
}

/// In a call whose beginning is logged, which has come to nothing so far: the thread stands, if that is wanted. Nothing of the runtime's is held.
pub fn in_call<E: Engine>(t: &mut Block, call: Entered) {
    if !can_stand::<E>(t) {
        return;
    }
    match standing::wanted() {
        Some(request) => stand(t, &gate_frame(t), Some(call), request),
        None if leader::is_due(t) => leader::ask_from_call(t, call),
        None => {}
    }
}

/// The program's registers, of a thread that is in a gate.
pub fn gate_frame(t: &Block) -> Frame {
    // SAFETY: the gate's frame.
    unsafe { *gate_frame_of(t) }
}

/// Where they are: the first thing on the gate stack.
fn gate_frame_of(t: &Block) -> *mut Frame {
    (t.gate_sp - size_of::<Frame>() as u64) as *mut Frame
}

/// [`Block::stands`] of a thread that stays in its call, unless somebody [counts on that](held_for), ...
const STAYS: u32 = u32::MAX;
/// ... of one to which the signal is on its way, ...
const TOLD: u32 = u32::MAX - 1;
/// ... of one that was never made, since all have gone back, ...
const UNMADE: u32 = u32::MAX - 2;
/// ... and of one that is not to be told now: [`untold`].
const BUSY: u32 = u32::MAX - 3;

/// The two highest bits of a request and of a thread that stays in its call for it.
const HIGHEST: u32 = 3 << 30;

/// [`Block::stands`] of a thread that stays in its call until that request is over, also when the kernel comes back.
fn held_for(request: u32) -> u32 {
    request ^ HIGHEST
}

fn is_staying(stands: u32) -> bool {
    stands == STAYS || stands & HIGHEST == held_for(1 << 31)
}

/// Makes a call that nothing is to interrupt, and whose beginning is logged; what is wanted while it lasts is waited for behind it.
pub fn staying<R>(t: &mut Block, call: Entered, make: impl FnOnce(&mut Block) -> R) -> R {
    is_to_stay(t, call);
    // A signal that is on its way comes first.
    while !stays_from_now(t) {
        sys::sched_yield();
    }
    stays(t, make)
}

/// The thread is about to stay in this call: what others may want to know of it.
fn is_to_stay(t: &mut Block, call: Entered) {
    if copy::are_made() {
        save_vectors(FpState::Live, vectors(t.slot));
    }
    t.stays_in = Some(call);
}

/// From now on it isn't told to stand. False: it was told before, by a signal that is on its way.
fn stays_from_now(t: &Block) -> bool {
    t.stands.compare_exchange(0, STAYS, SeqCst, SeqCst).is_ok()
}

/// It stays while it makes the call, and as long as all stand.
fn stays<R>(t: &mut Block, make: impl FnOnce(&mut Block) -> R) -> R {
    let r = make(t);
    let mut was_held = false;
    while let Err(held) = t.stands.compare_exchange(STAYS, 0, SeqCst, SeqCst) {
        if !is_staying(held) {
            takes_call_back(t);
        }
        // It is taken for one that is still in its call.
        standing::await_release(held ^ HIGHEST);
        let _ = t.stands.compare_exchange(held, STAYS, SeqCst, SeqCst);
        was_held = true;
    }
    if was_held {
        restores_vectors(t);
    }
    r
}

/// As [`staying`], of a call that has come back, and of which nothing is left but what it has come to: the thread waits until it may say so. Where all go back meanwhile it takes its call back, and goes on
/// from where it was.
pub fn staying_for_news(t: &mut Block, call: Entered, waits: impl FnOnce(&mut Block)) {
    is_to_stay(t, call);
    loop {
        // Its form is whole before others may look at it, and what comes meanwhile waits in the kernel.
        kernel::block_all();
        take_down(t, &gate_frame(t), Some(call));
        t.withdraws = true;
        if stays_from_now(t) {
            break;
        }
        // The signal that is on its way comes first.
        takes_back_form(t);
        sys::sched_yield();
    }
    stays(t, waits);
    kernel::block_all();
    takes_back_form(t);
}

/// The thread, whose form isn't needed after all, has everything back that it had moved there.
fn takes_back_form(t: &mut Block) {
    t.withdraws = false;
    // SAFETY: its own form, which it has written, and which is used up by this.
    let form = unsafe { &mut *form(t.slot) };
    let mut arrived = core::mem::replace(
        &mut t.pending,
        core::mem::replace(&mut form.pending, Pending::EMPTY),
    );
    t.pending.takes_all(&mut arrived);
    t.logging = core::mem::take(&mut form.log.logging);
    kernel::sync_mask(t);
}

/// All have gone back, and the thread stands, which [waited in its call](staying_for_news): it goes on when all do.
fn takes_call_back(t: &mut Block) -> ! {
    kernel::block_all();
    // SAFETY: as above; nobody else changes what waits for the thread.
    unsafe { (*form(t.slot)).pending.takes_all(&mut t.pending) };
    if let Some(request) = standing::wanted() {
        standing::await_release(request);
    }
    goes_on(t)
}

/// Makes a call that nothing is to interrupt, under an engine that can't leave its thread in it: who wants that all stand meanwhile waits for it, or in vain.
pub fn untold<R>(t: &mut Block, make: impl FnOnce(&mut Block) -> R) -> R {
    // A signal that is on its way comes first.
    while t.stands.compare_exchange(0, BUSY, SeqCst, SeqCst).is_err() {
        sys::sched_yield();
    }
    let r = make(t);
    t.stands.store(0, SeqCst);
    r
}

/// The thread stays in its call. All may have gone back meanwhile, to where it was in this call with other vector registers.
pub fn restores_vectors(t: &Block) {
    if copy::are_made() {
        restore_vectors(vectors(t.slot));
    }
}

/// In a copy: the thread of slot `i` stands for this request, also where it stays in its call in the other process. False: it isn't one of those.
pub fn stands_in_copy(i: u32, request: u32) -> bool {
    // SAFETY: its thread is in the other process; this one has the block to itself.
    let b = unsafe { &mut *(block_address(i) as *mut Block) };
    if is_staying(b.stands.load(Relaxed)) {
        let (frame, call) = (gate_frame(b), b.stays_in.take());
        if !b.withdraws {
            take_down(b, &frame, call);
        }
        b.stands.store(request, Relaxed);
    }
    b.stands.load(Relaxed) == request
}

/// Is this call, once a signal has ended it, another one when it is made again? It may have done a part of what it is asked for; a wake-up may have
/// come meanwhile, and found nobody; a connection is on its way.
pub fn happens_once(c: &Call) -> bool {
    const MSG_WAITALL: u64 = 0x100;
    match c.effect {
        Effect::Moves(_) => true,
        // Where all stand now and then, for an epoch's end. Where a test asks for it at every other gate, whoever wants to be told that it has woken somebody may find nobody for ever.
        Effect::Futex => session().flags & FLAG_EPOCHS == 0 || !futex::waits_for_own(c),
        // It may have received some messages, and a part of its time is over.
        _ if [nr::CONNECT, nr::RECVMMSG].contains(&c.nr) => true,
        // It lies among the flags, where the one for not waiting does.
        Effect::Receives(_) => c.no_wait().is_some_and(|f| c.arg(f.at) & MSG_WAITALL != 0),
        _ => matches!(c.blocking, Blocking::Fd(_)) && c.input_len() > 1,
    }
}

/// A call begins, in which the thread may stand.
pub fn entered(c: &Call, hash: u64) -> Entered {
    Entered {
        wakes: match c.effect {
            Effect::Futex => futex::wakes(c),
            _ => 0,
        },
        ..Entered::now(hash)
    }
}

/// Has what a thread waits for in this call, in which it stood, come meanwhile? At a word of the program's somebody was woken since, which could have been its turn.
pub fn is_over(c: &Call, entered: &Entered) -> bool {
    c.effect == Effect::Futex && !happens_once(c) && futex::wakes(c) != entered.wakes
}

/// Was the thread told to stand by a signal that has not come?
pub fn is_told(t: &Block) -> bool {
    t.stands.load(Relaxed) == TOLD
}

/// The runtime's signal has come: the thread stands right here, when it is in the program's code and not `in_runtime`, or looks for a place.
pub fn told<E: Engine>(t: &mut Block, uc: &mut Ucontext, in_runtime: bool) {
    let _ = t.stands.compare_exchange(TOLD, 0, SeqCst, SeqCst);
    let Some(request) = standing::wanted() else {
        return;
    };
    // An epoch that is run again ends where the log says, if it can.
    let only_at_gates = epochs::are_made() && !computes(t, request);
    let in_stub = patch::is_any_stub(uc.mc.rip);
    if in_stub && !in_runtime && !only_at_gates && epochs::are_made() {
        // It may be there nearly always. Where that leads into the runtime it comes to the end of a hooked function.
        t.slot().signal_pending.store(1, Release);
        t.steps_out = true;
        uc.mc.rflags |= kernel::TRAP_FLAG;
        return;
    }
    if in_runtime || only_at_gates || in_stub || !can_stand::<E>(t) {
        t.slot().signal_pending.store(1, Release);
        kernel::divert(&mut uc.mc);
        return;
    }
    rests_in_code(t, uc);
    rests(t, request)
}

/// The agent's signal has come, since the open epoch is to end although nobody comes to a gate: the thread is to come to one, if it is in the runtime or in a stub; where it is in the program's code
/// for long it ends the epoch there.
pub fn asked<E: Engine>(t: &mut Block, uc: &mut Ucontext, in_runtime: bool) {
    /// Told so often in a row, it computes.
    const MOST: u32 = 3;
    t.slot().signal_pending.store(1, Release);
    if in_runtime {
        return kernel::divert(&mut uc.mc);
    }
    let before = if t.told.0 == 0 { t.told.1 } else { 0 };
    t.told = (0, before + 1);
    let computes = before >= MOST && !patch::is_any_stub(uc.mc.rip);
    if computes && can_stand::<E>(t) && standing::wanted().is_none() && leader::is_due(t) {
        leader::ask_in_code(t, uc, false);
    }
}

/// The thread has made one instruction, by the trap flag: true when that was on its way [out of a stub](told), where it stands.
pub fn stepped<E: Engine>(t: &mut Block, uc: &mut Ucontext, in_runtime: bool) -> bool {
    if !t.steps_out {
        return false;
    }
    if !in_runtime && patch::is_any_stub(uc.mc.rip) {
        return true;
    }
    t.steps_out = false;
    uc.mc.rflags &= !kernel::TRAP_FLAG;
    if let (false, true, Some(request)) = (in_runtime, can_stand::<E>(t), standing::wanted()) {
        rests_in_code(t, uc);
        rests(t, request)
    }
    true
}

/// The thread, interrupted in the program's code, is taken down.
fn rests_in_code(t: &mut Block, uc: &Ucontext) {
    save_vectors(FpState::Saved(uc.mc.fpstate), vectors(t.slot));
    take_down(t, &uc.mc.to_frame(), None);
    notes_in_code(t);
}

/// Does the thread of a [leader](leader), which is told to stand for this request in the program's code, come to no gate?
fn computes(t: &mut Block, request: u32) -> bool {
    /// So often it is told, once a [moment](TELL_AGAIN).
    const MOST: u32 = 10;
    let before = if t.told.0 == request { t.told.1 } else { 0 };
    t.told = (request, before + 1);
    before >= MOST && leader::is_on(t)
}

/// Stands any thread of this process in the middle of the program's code?
pub fn some_compute(number: u32, request: u32) -> bool {
    let computes = |i: u32| place_of(i, request).is_some_and(|end| end.in_code);
    (0..session().slots_used.load(Acquire))
        .filter(|i| in_use_here(*i).is_some() && block_of(*i).number == number)
        .any(computes)
}

/// The thread stands until all go on.
fn stand(t: &mut Block, frame: &Frame, call: Option<Entered>, request: u32) -> ! {
    stands_by(t, frame, call, request, |_| {})
}

/// As [`stand`], for an engine that runs one thread at a time: nothing may be left to do for the thread when it stands, so it `gives_on` the baton before.
pub fn stands_by(
    t: &mut Block,
    frame: &Frame,
    call: Option<Entered>,
    request: u32,
    gives_on: impl FnOnce(&mut Block),
) -> ! {
    // What comes from now on waits in the kernel.
    kernel::block_all();
    save_vectors(FpState::Live, vectors(t.slot));
    take_down(t, frame, call);
    gives_on(t);
    rests(t, request)
}

fn rests(t: &mut Block, request: u32) -> ! {
    t.stands.store(request, Release);
    standing::await_release(request);
    goes_on(t)
}

/// The calling thread, which stood, goes on.
pub fn goes_on(t: &Block) -> ! {
    if is_unmade(t) {
        t.slot().state.store(slot_state::EXITING, Release);
        // SAFETY: nothing of this thread is needed any more; the kernel clears the slot's thread id last.
        unsafe { rt_exit_thread() }
    }
    // SAFETY: the form says all that the thread needs.
    unsafe { rt_reenter(t.this) }
}

/// Was this thread never made, since all have gone back?
pub fn is_unmade(t: &Block) -> bool {
    t.stands.load(Relaxed) == UNMADE
}

/// The thread of slot `i` stands, and wasn't there when all stood at the place to which they go back: it ends when they go on, and leaves nothing.
pub fn unmakes(i: u32) {
    block_of(i).stands.store(UNMADE, Relaxed);
    process::entry().live_threads.fetch_sub(1, Relaxed);
    session().live_threads.fetch_sub(1, Relaxed);
}

/// The test: all threads stand, this one with them, and all go on.
fn ask(t: &mut Block, frame: &Frame) {
    let Some(request) = standing::ask() else {
        return;
    };
    stands_first(t, frame, None, request);
    let all = await_others(t, request);
    let s = session();
    if all && s.flags & FLAG_TEST_COPIES != 0 {
        tested_copies::test(t, request, standing::draw());
    }
    if all && epochs::are_made() {
        epochs::test(t, request);
    }
    match all {
        true => s.stood.fetch_add(1, Relaxed),
        false => s.stood_not.fetch_add(1, Relaxed),
    };
    standing::release();
    goes_on(t)
}

/// The calling thread, which has asked for it, stands: what it does from now on is for all.
pub fn stands_first(t: &mut Block, frame: &Frame, call: Option<Entered>, request: u32) {
    kernel::block_all();
    save_vectors(FpState::Live, vectors(t.slot));
    take_down(t, frame, call);
    t.stands.store(request, Relaxed);
}

/// As [`stands_first`], in the middle of the program's code.
pub fn stands_first_in_code(t: &mut Block, uc: &Ucontext, request: u32) {
    kernel::block_all();
    rests_in_code(t, uc);
    t.stands.store(request, Relaxed);
}

/// Waits until all others stand; false: not all of them came in time.
pub fn await_others(t: &Block, request: u32) -> bool {
    let begun = sys::monotonic().ns();
    let mut told = begun - TELL_AGAIN;
    loop {
        let now = sys::monotonic().ns();
        let tells = now - told >= TELL_AGAIN;
        let mut missing = 0;
        for i in (0..session().slots_used.load(Acquire)).filter(|i| *i != t.slot) {
            if in_use_here(i).is_none() {
                continue;
            }
            let other = block_of(i);
            let stands = other.stands.load(SeqCst);
            if other.number != t.number || stands == request {
                continue;
            }
            let held = held_for(request);
            let holds = || other.stands.compare_exchange(stands, held, SeqCst, SeqCst);
            if is_staying(stands) && (stands == held || holds().is_ok()) {
                continue;
            }
            missing += 1;
            let is_told = || other.stands.compare_exchange(0, TOLD, SeqCst, SeqCst);
            if tells && other.kernel_tid != 0 && is_told().is_ok() {
                standing::tell(other.kernel_tid);
            }
        }
        if missing == 0 {
            return true;
        }
        if now - begun > PATIENCE {
            return false;
        }
        if tells {
            told = now;
        }
        sys::sched_yield();
    }
}

/// Fills a new block from a form.
pub fn fill<E: Engine>(t: &mut Block, f: &mut Form) {
    t.fs_base = f.fs_base;
    t.mask = f.mask;
    if let Some(under) = f.under {
        (t.saved_mask, t.mask) = (Some(f.mask), under);
    }
    t.alt_stack = f.alt_stack;
    t.clear_tid = f.clear_tid;
    t.robust_list = f.robust_list;
    t.affinity = f.affinity;
    t.steps = f.steps;
    t.pending = core::mem::replace(&mut f.pending, Pending::EMPTY);
    t.alive.store(1, Relaxed);
    let who = &f.identity;
    t.tid = who.tid;
    t.number = who.number;
    t.process = who.process;
    t.kernel_tid = who.kernel_tid;
    t.cancels.store(who.cancels, Relaxed);
    t.heap = who.heap;
    t.table.set(who.table);
    t.robust_down = who.robust_down;
    t.operations = f.log.operations;
    t.logging = core::mem::take(&mut f.log.logging);
    // SAFETY: moved, not copied: the form is used up.
    unsafe {
        t.traced = core::ptr::read(&f.identity.traced);
        t.known = core::ptr::read(&f.log.known);
        t.reads = core::ptr::read(&f.log.reads);
    }
    t.entered = f.call;
    if f.log.role == in_force::ENGINE.load(Relaxed) {
        E::resumed(t, &f.log.engine);
    }
}
