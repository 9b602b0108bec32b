//! A way out for threads that wait by looking at plain memory (DThreads has none: such programs hang).
//!
//! Nothing that a thread sees changes during a phase. One that waits for another by plain loads will look for ever, and all others wait for it. But it can
//! be told apart from one that computes: after some instructions it is again in a state in which it was before, all registers and all memory. From
//! that **cycle** it never comes out by itself, whenever one looks: so that it is in one follows from the program alone, and so does which states
//! belong to it. The thread is taken to the least of these states; there it has a turn, as if it had called sched_yield(2), and sees what others
//! have done.
//!
//! Threads that wait look after those that run, at growing distances, by some signals; a thread that gets one where its registers are what they were at an earlier
//! one makes single steps. Where nobody waits, since all look at plain memory, one of them has a timer. A loop that counts while it waits is never twice in the same state. No place in it follows from the program alone,
//! so the program ends with a message when others have waited for `--patience` seconds; after 10 s it is said that they wait.

use super::token::{self, child, member, state};
use super::{log, turns};
use crate::engine::Engine;
use crate::isolate::members::number_of;
use crate::isolate::{call, commit, ending, split};
use crate::machine::asm::push_registers;
use crate::machine::sys;
use crate::machine::{guard, hash};
use crate::signal::frame::{self, FpState, SigContext, Ucontext};
use crate::signal::kernel;
use crate::signal::step::is_step;
use crate::sync::in_runtime;
use crate::thread::in_force::{DET, ENGINE};
use crate::thread::panic::{decimal, hex};
use crate::thread::signals::{Siginfo, ACTIONS, IGNORE, SIGCUT};
use crate::thread::{current, session, take_block, Block, Frame};
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering::*};

/// The first look is so many ns after somebody began to wait, ...
pub const FIRST_LOOK_NS: i64 = 1_000_000;
/// ... or, if nobody waits, after the phase began. The next ones come at twice the distance, up to ...
pub const FIRST_LOOK_AT_ALL_NS: i64 = 10_000_000;
/// ... this.
const FARTHEST_NS: i64 = 1_000_000_000;
/// So long threads that could go on wait for one that waits for a child.
const FOR_CHILD_NS: i64 = 2_000_000_000;
/// Steps of one look at first: no longer cycle is found.
const STEPS: u32 = 512;
/// The longer the phase has lasted, the longer the cycles that are looked for, ...
const STEPS_MAX: u32 = 1 << 16;
/// ... so that steps take no more than this part of the time, of which one takes about so many ns.
const STEP_NS: i64 = 25_000;
/// A thread that computes goes on.
const SHARE: i64 = 16;
/// When a phase has lasted for so long, cycles are looked for that are too long for a thread to be seen in the same state twice.
const UNSEEN_AFTER_NS: i64 = 1_000_000_000;
/// That is asked for, beside a number of steps.
const UNSEEN: u32 = 1 << 31;
/// When others have waited for so long for a thread that runs, it is told of.
const TOLD_AFTER_NS: i64 = 10_000_000_000;
/// A step costs as much as some 10,000 instructions. So a thread makes them only where it was in the same state twice when it was looked after. A look asks
/// so many times where it is, ...
const SAMPLES_A_LOOK: u32 = 4;
/// ... at this distance.
const SAMPLES_APART_NS: i64 = 20_000;
/// So many states are remembered.
const SAMPLES: usize = 128;
/// Until a signal that waits is delivered in the program's code.
const SOON_NS: i64 = 50_000;
/// The trap flag.
const TF: u64 = 0x100;
/// What a step may leave in the flags that is no state of the program's: TF and RF.
const FLAGS: u64 = !0x1_0100;

/// What a thread is doing that was looked after.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing.
    #[default]
    Off,
    /// Steps, until the registers are what they were at first.
    Registers,
    /// The same once more, until all memory is what it was, too.
    Memory,
    /// Steps to the least state of the cycle.
    Seek,
}

/// A thread's registers, in an order in which they can be compared.
type State = [u64; 18];

/// What the thread keeps of a look, in its block.
#[derive(Default)]
pub struct Look {
    stage: Stage,
    first: State,
    /// Of the vector registers, and of the thread's copies of pages.
    hashes: (u64, u64),
    least: State,
    /// In how many states of the cycle the registers are these.
    times: u32,
    /// Steps made, ...
    made: u32,
    /// ... and the most that may be.
    limit: u32,
    /// When the steps began; and before when none begin again, in ns of the kernel's clock.
    began: i64,
    rests_until: i64,
    /// The program's rcx, where the way to [`rt_spun`] needs it.
    rcx: u64,
    seen: Seen,
}

/// In which states the thread was when it was looked after in this phase.
#[derive(Clone, Copy)]
struct Seen {
    round: u32,
    count: usize,
    states: [u32; SAMPLES],
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            round: 0,
            count: 0,
            states: [0; SAMPLES],
        }
    }
}

impl Seen {
    /// Was it seen in this one before? Of many states the last ones are remembered.
    fn again(&mut self, round: u32, state: &State) -> bool {
        if self.round != round {
            (self.round, self.count) = (round, 0);
        }
        // SAFETY: words of ours.
        let hash = unsafe { hash::bytes(0, state.as_ptr() as u64, size_of::<State>()) } as u32;
        let known = self.states[..self.count.min(SAMPLES)].contains(&hash);
        if !known {
            self.states[self.count % SAMPLES] = hash;
            self.count += 1;
        }
        known
    }
}

fn state_of(c: &SigContext) -> State {
    let f = c.rflags & FLAGS;
    [
        c.rip, c.rsp, c.rax, c.rbx, c.rcx, c.rdx, c.rsi, c.rdi, c.rbp, c.r8, c.r9, c.r10, c.r11,
        c.r12, c.r13, c.r14, c.r15, f,
    ]
}

/// The vector registers as the kernel has saved them. What isn't in use is left as it was in the kernel's frame: then a cycle may be missed this time.
fn vectors(c: &SigContext) -> u64 {
    const LEGACY: usize = 416;
    const HEADER: u64 = 512;
    if c.fpstate == 0 {
        return 0;
    }
    let size = (session().xsave_size as usize).max(HEADER as usize);
    // SAFETY: the kernel's frame, on our signal stack.
    unsafe {
        let legacy = hash::bytes(0, c.fpstate, LEGACY);
        hash::bytes(legacy, c.fpstate + HEADER, size - HEADER as usize)
    }
}

/// The thread's copies: all that it has written and nobody has seen.
fn memory(t: &mut Block) -> u64 {
    commit::note(t);
    let mut sum = 0;
    commit::each_listed(t, |address, len| {
        // SAFETY: guarded; a page that can't be read counts by its address.
        let content = guard::guarded(|| unsafe { hash::bytes(address, address, len) });
        sum = hash_of_two(sum, content.unwrap_or(address));
    });
    sum
}

fn hash_of_two(a: u64, b: u64) -> u64 {
    let words = [a, b];
    // SAFETY: two words of ours.
    unsafe { hash::bytes(0, words.as_ptr() as u64, 16) }
}

/// The phase has been going on for `passed` ns: looks after those who run; how many ns until the next look. `wanted`: somebody waits for its end.
pub fn look_after_runners(passed: i64, wanted: bool) -> i64 {
    let patience = session().det_patience_ns as i64;
    if wanted && passed >= for_child() {
        token::pass_over_child_waiter();
    }
    if wanted && patience != 0 && passed >= patience {
        report();
    }
    if wanted && passed >= told_after() {
        tell_of_waiting();
    }
    let steps = steps_after(passed);
    for n in 0..SAMPLES_A_LOOK {
        if n != 0 {
            let end = sys::monotonic().ns() + SAMPLES_APART_NS;
            while sys::monotonic().ns() < end {
                core::hint::spin_loop();
            }
        }
        ask_runners(steps);
    }
    passed.clamp(FIRST_LOOK_NS, FARTHEST_NS)
}

/// How many steps a look may take when the phase has been going on for `passed` ns.
fn steps_after(passed: i64) -> u32 {
    let steps = (passed / SHARE / STEP_NS).clamp(STEPS.into(), STEPS_MAX.into()) as u32;
    match passed >= UNSEEN_AFTER_NS {
        true => steps | UNSEEN,
        false => steps,
    }
}

/// Asks those who run where they are, and to make so many steps if they may be in a cycle.
fn ask_runners(steps: u32) {
    let me = current().slot_number();
    let computes = |s: &u32| *s != me && member(*s).child.load(SeqCst) == child::NONE;
    for s in token::running().filter(computes) {
        member(s).asked.store(steps, SeqCst);
        call::call(s);
    }
}

/// How long threads that could go on wait for one that waits for a child, in ns.
pub fn for_child() -> i64 {
    match session().det_patience_ns as i64 {
        0 => FOR_CHILD_NS,
        patience => FOR_CHILD_NS.min(patience / 2),
    }
}

/// A phase begins for the calling thread. If there will be nobody who waits and looks, one of those that run has a timer.
pub fn phase_begins(t: &mut Block) {
    if token::is_first_in_ring(t.slot) && token::nobody_looks() {
        t.det().tick.round = token::round();
        t.det().tick.began = sys::monotonic().ns();
        arm(t, FIRST_LOOK_AT_ALL_NS);
    }
}

/// The timer of a thread for which nobody looks.
#[derive(Default)]
pub struct Tick {
    /// Its id for the kernel, plus 1; 0: there is none yet.
    id: u32,
    round: u32,
    /// When the phase began.
    began: i64,
}

/// By this value the timer's signals are known.
const TICK: u64 = 0x7265_7072_6974;

fn arm(t: &mut Block, ns: i64) {
    const MONOTONIC: u64 = 1;
    if t.det().tick.id == 0 {
        // struct sigevent: value, signal and SIGEV_SIGNAL.
        let event = [TICK, SIGCUT as u64, 0, 0, 0, 0, 0, 0];
        let mut id = 0u32;
        let (event, to) = (event.as_ptr() as u64, &mut id as *mut u32 as u64);
        if sys::timer_create(MONOTONIC, event, to) != 0 {
            return;
        }
        t.det().tick.id = id + 1;
    }
    let time = [0, 0, ns / 1_000_000_000, ns % 1_000_000_000];
    let id = t.det().tick.id as u64 - 1;
    sys::timer_settime(id, 0, time.as_ptr() as u64, 0);
}

/// After a turn that no gate ends, as that of a locked instruction: a signal that came in it is to be delivered soon.
pub fn see_to_signals(t: &mut Block) {
    if t.slot().signal_pending.load(Relaxed) != 0 && split::in_force() {
        arm(t, SOON_NS);
    }
}

/// The timer's signal, in the program's code: the signal that waits is delivered.
fn deliver_waiting(t: &mut Block, uc: &mut Ucontext) {
    if log::follows(t) {
        // It waits for a gate.
        return;
    }
    let Some(info) = t.pending.take(t.mask) else {
        return;
    };
    let action = ACTIONS.get(info.signal());
    let mut frame = uc.mc.to_frame();
    let fp = FpState::Saved(uc.mc.fpstate);
    if action.handler > IGNORE && frame::deliver(t, &mut frame, fp, &info, &action, [0; 3]) {
        kernel::enter_from_kernel(t, uc, &frame);
    } else {
        uc.mask = kernel::kernel_mask(t, t.mask);
    }
    let more = t.pending.first(t.mask).is_some();
    t.slot().signal_pending.store(more as u32, Release);
}

/// The timer's signal: how many steps the thread is asked to make, 0: it is not asked where it is.
fn ticks(t: &mut Block) -> u32 {
    let runs = member(t.slot).state.load(SeqCst) == state::RUNS;
    if !runs || t.det().tick.round != token::round() {
        return 0;
    }
    let passed = sys::monotonic().ns() - t.det().tick.began;
    let next = look_after_runners(passed, false);
    arm(t, next);
    steps_after(passed)
}

/// Says who can't be waited for, and ends the program.
fn report() -> ! {
    sys::complain(&["reprise: threads wait for one that runs on and on without synchronising (--patience says how long they may):\n"]);
    name_runners();
    ending::end(ending::FAILED << 8)
}

/// How long threads wait for one that runs before that is said, in ns.
fn told_after() -> i64 {
    match session().det_patience_ns as i64 {
        0 => TOLD_AFTER_NS,
        patience => TOLD_AFTER_NS.min(patience / 2),
    }
}

/// Says once that threads have been waiting for a long time: a program that would end with [`report`] is silent until then.
fn tell_of_waiting() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if TOLD.swap(true, SeqCst) {
        return;
    }
    sys::complain(&["reprise: threads have been waiting for a long time for one that computes, or that counts while it looks at memory (--patience says when the run ends for that):\n"]);
    name_runners();
}

fn name_runners() {
    for s in token::running() {
        let (m, mut n, mut at) = (member(s), [0; 10], [0; 18]);
        sys::complain(&[
            "reprise:   thread ",
            decimal(number_of(s), &mut n),
            " was last seen at ",
            hex(m.seen_at.load(Relaxed), &mut at),
            "\n",
        ]);
    }
}

/// A signal, before anything else is done about it. True: it was this module's own.
pub fn takes(t: &mut Block, signal: u32, info: &Siginfo, uc: &mut Ucontext) -> bool {
    if ENGINE.load(Relaxed) != DET || !split::in_force() {
        return false;
    }
    if t.det().look.stage != Stage::Off {
        if is_step(info, &uc.mc) {
            step(t, uc);
            return true;
        }
        if call::is_one(info) {
            // It is being looked at already.
            member(t.slot).asked.store(0, SeqCst);
            if ending::is_told() {
                ending::end_as_told();
            }
            call::answer(t, uc);
            return true;
        }
        leave(t, uc);
    }
    const SI_TIMER: i32 = -2;
    if signal != SIGCUT {
        return false;
    }
    if ending::is_told() {
        ending::end_as_told();
    }
    let timed = info.code() == SI_TIMER && info.words[3] == TICK;
    if timed && t.pending.first(t.mask).is_some() {
        let runs = member(t.slot).state.load(SeqCst) == state::RUNS;
        if t.hooked == 0 && !in_runtime(uc.mc.rip) {
            deliver_waiting(t, uc);
            // The timer may have another duty.
            if runs && t.det().tick.round == token::round() {
                arm(t, FIRST_LOOK_AT_ALL_NS);
            }
            return true;
        } else if runs {
            // On the way back to the program, as long as it is no gate.
            arm(t, SOON_NS);
        }
    }
    let asked = call::is_one(info);
    if asked {
        call::answer(t, uc);
    }
    let steps = match (timed, asked) {
        (true, _) => ticks(t),
        (_, true) => member(t.slot).asked.swap(0, SeqCst),
        _ => return false,
    };
    if steps == 0 || !may_step(t, &uc.mc) {
        call::note_interruption(t);
    } else if t.det().look.seen.again(token::round(), &state_of(&uc.mc)) || steps & UNSEEN != 0 {
        begin(t, uc, steps & !UNSEEN);
    }
    true
}

/// Is the thread in the program's code, in a phase?
fn may_step(t: &Block, c: &SigContext) -> bool {
    member(t.slot).seen_at.store(c.rip, Relaxed);
    let runs = member(t.slot).state.load(SeqCst) == state::RUNS || t.det().keeps != 0;
    runs && !t.det().in_turn && t.hooked == 0 && !in_runtime(c.rip) && !reads_flags(c.rip)
}

/// pushf and popf show or lose the trap flag.
fn reads_flags(pc: u64) -> bool {
    matches!(guard::read::<u8>(pc), Some(0x9c | 0x9d | 0xcc) | None)
}

fn begin(t: &mut Block, uc: &mut Ucontext, steps: u32) {
    let now = sys::monotonic().ns();
    if uc.mc.rflags & TF != 0 || now < t.det().look.rests_until {
        return;
    }
    let first = state_of(&uc.mc);
    t.det().look = Look {
        stage: Stage::Registers,
        first,
        least: first,
        times: 1,
        limit: steps,
        began: now,
        rests_until: 0,
        seen: t.det().look.seen,
        ..Look::default()
    };
    t.view().interrupted = false;
    uc.mc.rflags |= TF;
}

/// No more steps.
fn leave(t: &mut Block, uc: &mut Ucontext) {
    t.det().look.stage = Stage::Off;
    let now = sys::monotonic().ns();
    t.det().look.rests_until = now + SHARE * (now - t.det().look.began);
    uc.mc.rflags &= !TF;
}

/// One step was made.
fn step(t: &mut Block, uc: &mut Ucontext) {
    let now = state_of(&uc.mc);
    t.det().look.made += 1;
    if in_runtime(now[0]) || reads_flags(now[0]) || t.det().look.made > t.det().look.limit {
        return leave(t, uc);
    }
    let again = now == t.det().look.first;
    match t.det().look.stage {
        Stage::Registers if again => {
            let hashes = (vectors(&uc.mc), memory(t));
            let l = &mut t.det().look;
            (l.stage, l.hashes, l.least, l.times) = (Stage::Memory, hashes, l.first, 1);
            (l.limit, l.made) = (2 * l.made, 0);
        }
        Stage::Memory if again => {
            if t.det().look.times != 1 || (vectors(&uc.mc), memory(t)) != t.det().look.hashes {
                return leave(t, uc);
            }
            t.det().look.stage = Stage::Seek;
            t.det().look.made = 0;
            arrived(t, uc, &now);
        }
        Stage::Memory if now < t.det().look.least => {
            (t.det().look.least, t.det().look.times) = (now, 1);
        }
        Stage::Memory if now == t.det().look.least => t.det().look.times += 1,
        Stage::Seek => arrived(t, uc, &now),
        _ => {}
    }
}

/// At the least state of the cycle the thread leaves its phase.
fn arrived(t: &mut Block, uc: &mut Ucontext, now: &State) {
    if *now != t.det().look.least {
        return;
    }
    leave(t, uc);
    divert(t, uc, Way::Spun);
}

/// Why a thread leaves its phase in the midst of the program's code.
pub enum Way {
    /// It was in a cycle.
    Spun,
    /// It has touched what is another thread's own ([`super::ownership_fault`]).
    Touched,
}

/// From the program's code, where that was interrupted, into the runtime.
pub fn divert(t: &mut Block, uc: &mut Ucontext, way: Way) {
    t.det().look.rcx = uc.mc.rcx;
    uc.mc.rcx = uc.mc.rip;
    uc.mc.rip = match way {
        Way::Spun => rt_spun as *const () as u64,
        Way::Touched => rt_touched as *const () as u64,
    };
}

global_asm!(
    r#"
    // As rt_hook: rcx says where the program goes on; everything else is the program's.
    .macro LEAVES_PHASE name, function
    .hidden \name
    .globl \name
    .p2align 6
\name:
    mov gs:[8], rsp
    mov rsp, gs:[16]
    push rcx
    push qword ptr gs:[8]
    pushfq
    cld
    push rax
    "#,
    push_registers!(),
    r#"
    mov rdi, rsp
    call \function
    jmp rt_leave
    .endm

    LEAVES_PHASE rt_spun, {spun}
    LEAVES_PHASE rt_touched, {touched}
"#,
    spun = sym turn,
    touched = sym super::ownership_fault::turn,
);

extern "C" {
    fn rt_spun();
    fn rt_touched();
}

/// The turn of a thread that was in a cycle.
extern "C" fn turn(frame: &mut Frame) {
    // SAFETY: the thread comes from the program's code, from which its handler has diverted it.
    let t = unsafe { take_block() };
    session().counters.det_spins.fetch_add(1, Relaxed);
    turns::begin_anew(t);
    turns::end(t);
    goes_on(t, frame);
}

/// The program's code goes on where it was left.
pub fn goes_on(t: &mut Block, frame: &mut Frame) {
    frame.rcx = t.det().look.rcx;
    super::Det::signal_point(t, frame);
    frame.rip = crate::code::patch::resume_address(frame.rip);
}
