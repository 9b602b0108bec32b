//! The gate at an instruction at which a thread that waits gives way.
//!
//! Its stub counts down a number in the thread's block, and comes here when that is used up. A recording sets the number to when it wants to look next
//! whether others are ready; a replay to when the recording gave way.

use crate::dispatch::with_engine;
use crate::engine::Engine;
use crate::machine::asm::push_registers;
use crate::sync::locked::{self, Save};
use crate::sync::spin::clock::Readings;
use crate::thread::{take_block, Block, Frame};
use core::arch::global_asm;
use core::mem::offset_of;

/// So many looks of a thread that waits while nobody is ready are made without asking.
const WHILE_NOBODY_IS_READY: i64 = 32;
/// The same for one that has given way in vain, at most.
const IN_VAIN: i64 = 64;

/// How often a thread has looked.
#[derive(Default)]
pub struct Looks {
    /// So many until the gate is asked (used by stubs).
    pub left: i64,
    /// What that was when it was set.
    given: i64,
    /// Looks before that, since the last event that tells their number, or the last cut.
    before: i64,
    /// Record: how many the thread may make before it gives way.
    patience: i64,
    /// Record: its registers when it gave way last.
    state: u64,
    /// Record: how it reads clocks.
    pub clock: Readings,
}

impl Block {
    /// How often the thread has looked.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub fn spin(&self) -> &mut Looks {
        // SAFETY: the area is this room's own; zeros are the default.
        unsafe { self.looks.get::<Looks>() }
    }
}

impl Looks {
    /// A new thread, or a program's beginning. In a replay the gate is asked when an event tells it.
    pub fn begin(&mut self, records: bool) {
        *self = Looks::default();
        if records {
            self.set(1);
        }
    }

    /// The gate is asked after so many more.
    fn set(&mut self, n: i64) {
        self.before += self.given.wrapping_sub(self.left);
        (self.left, self.given) = (n, n);
    }

    /// The gate is asked no more.
    pub fn never_ask(&mut self) {
        self.set(i64::MAX);
    }

    /// Record: nobody is ready; the gate is asked again after some more.
    pub fn nobody_is_ready(&mut self) {
        self.set(WHILE_NOBODY_IS_READY);
    }

    /// Record: the thread, in this state, gives way now: how often it has looked.
    ///
    /// Who looks again and again, in the same state, at what nobody changes, gives way a little later each time.
    pub fn gives_way(&mut self, state: u64) -> i64 {
        self.patience = match state == self.state {
            true => (self.patience * 2).clamp(1, IN_VAIN),
            false => 1,
        };
        self.state = state;
        self.set(self.patience);
        let looks = self.count();
        self.restart();
        looks
    }

    /// Looks since the last event that tells their number, or the last cut.
    pub fn count(&self) -> i64 {
        self.before + self.given.wrapping_sub(self.left)
    }

    /// They are counted anew: an event has told their number, or the thread is somewhere that its state alone names.
    pub fn restart(&mut self) {
        self.before = 0;
        self.given = self.left;
    }

    /// Record: the next one is asked about.
    pub fn look_at_once(&mut self) {
        self.set(1);
    }

    /// Replay: the thread's next event is that it gives way after so many.
    pub fn expect(&mut self, looks: i64) {
        // One look too many shows at the gate.
        let left = looks.saturating_sub(self.count()).max(1);
        self.set(left);
    }
}

global_asm!(
    r#"
    .hidden rt_spin_hook
    .globl rt_spin_hook
    .p2align 4
rt_spin_hook:
    mov gs:[8], rsp
    mov rsp, gs:[16]
    push qword ptr gs:[{resume}]
    push qword ptr gs:[8]
    pushfq
    cld
    push rax
    "#,
    push_registers!(),
    r#"
    mov rdi, rsp
    call rt_spin
    jmp rt_leave
"#,
    resume = const offset_of!(Block, stub) + offset_of!(Save, resume),
);

extern "C" {
    fn rt_spin_hook();
}

/// Where stubs ask.
pub fn gate() -> u64 {
    rt_spin_hook as *const () as u64
}

#[no_mangle]
extern "C" fn rt_spin(frame: &mut Frame) {
    // SAFETY: the thread comes from the program's code, by the stub of a loop that waits.
    let t = unsafe { take_block() };
    let resume = frame.rip;
    // For the program the thread is before the instruction.
    let place = locked::place_of(resume).unwrap_or(resume);
    frame.rip = place;
    if !with_engine!(E => E::at_look(t, frame, place)) {
        t.spin().never_ask();
    }
    if frame.rip == place {
        frame.rip = resume;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(l: &mut Looks, n: i64) -> i64 {
        (0..n).for_each(|_| l.left -= 1);
        l.left
    }

    #[test]
    fn a_replay_comes_to_the_gate_at_the_look_that_was_counted() {
        let (mut recorded, mut replayed) = (Looks::default(), Looks::default());
        recorded.begin(true);
        replayed.begin(false);
        // Asked at once, and again while nobody is ready; then the thread gives way.
        assert_eq!(look(&mut recorded, 1), 0);
        recorded.set(WHILE_NOBODY_IS_READY);
        assert_eq!(look(&mut recorded, WHILE_NOBODY_IS_READY), 0);
        recorded.set(1);
        let looks = recorded.count();
        assert_eq!(looks, 1 + WHILE_NOBODY_IS_READY);
        // The replay learns of it after some of them.
        look(&mut replayed, 5);
        replayed.expect(looks);
        assert_eq!(look(&mut replayed, looks - 5), 0);
        assert_eq!(replayed.count(), looks);
        recorded.restart();
        replayed.restart();
        assert_eq!((recorded.count(), replayed.count()), (0, 0));
        assert_eq!(look(&mut recorded, 1), 0);
        replayed.expect(1);
        assert_eq!(look(&mut replayed, 1), 0);
    }

    #[test]
    fn a_block_of_zeros_has_the_default() {
        // SAFETY: what is looked at here is just that.
        let l: Looks = unsafe { core::mem::zeroed() };
        assert!(!l.clock.is_new());
        assert_eq!((l.left, l.given, l.before), (0, 0, 0));
        assert_eq!((l.patience, l.state), (0, 0));
    }

    #[test]
    fn after_a_cut_looks_are_counted_anew() {
        let mut l = Looks::default();
        l.begin(true);
        look(&mut l, 1);
        l.set(WHILE_NOBODY_IS_READY);
        look(&mut l, 7);
        l.restart();
        assert_eq!(l.count(), 0);
        look(&mut l, 3);
        assert_eq!(l.count(), 3);
    }
}
