//! A new thread's first locked instruction (DThreads 4.3, creation): glibc lets it take back a word of its own struct pthread, by which set*id(2) calls know threads
//! that have not begun. Nobody else has a part in that but such a call; would it need a turn, the thread would wait for the phase of its maker before
//! it does anything.
//!
//! So until its first turn the thread may exchange words of its own without one. Whoever waits for such a word is woken in that turn.

use super::token;
use super::wait;
use crate::sync::locked;
use crate::thread::{Block, Frame};

/// Bytes of struct pthread in which its words are.
const STRUCT_PTHREAD: u64 = 0x900;
/// Bytes of a word.
const WORD: u32 = 4;

/// What a new thread keeps, in its block.
#[derive(Default)]
pub struct Newborn {
    /// It has had no turn.
    waits: bool,
    /// The word that it has exchanged; 0: none.
    word: u64,
}

/// First thing of a new thread.
pub fn begins(t: &mut Block) {
    t.det().newborn = Newborn {
        waits: true,
        word: 0,
    };
}

/// Before a locked instruction of the thread in a stub, with these registers: can it do without a turn?
pub fn needs_no_turn(t: &mut Block, f: &Frame) -> bool {
    if !t.det().newborn.waits || t.det().newborn.word != 0 || t.det().keeps != 0 {
        return false;
    }
    let Some((i, _)) = locked::next_of_libc(t.saved().resume) else {
        return false;
    };
    let regs = crate::machine::frame::regs_of(f, t.saved().rax, t.fs_base);
    let operands = i.operands(&regs);
    let [word, ..] = operands.list() else {
        return false;
    };
    let own = t.fs_base..t.fs_base + STRUCT_PTHREAD;
    let is_own = i.exchanges() && word.size == WORD && own.contains(&word.addr);
    if is_own {
        t.det().newborn.word = word.addr;
    }
    is_own
}

/// In the thread's turn, when what it has written is everybody's: who waits for its word looks again.
pub fn has_turn(t: &mut Block) {
    let born = core::mem::take(&mut t.det().newborn);
    if born.word != 0 && token::live() > 1 {
        wait::wake(born.word, u32::MAX);
    }
}
