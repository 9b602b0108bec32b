//! Where a thread of a replay has been lately: what lay on its stack at its last calls and operations (Castor 3.8).
//!
//! A race shows in the first event that is another one than recorded, and often the function whose load raced has returned by then, and others
//! have used its stack. What it did before, it did in that function.

use crate::machine::guard;
use crate::thread::Block;

/// Words that are kept.
const WORDS: usize = 128;
/// Words of stack at a call: its callers are among them.
const OF_CALL: usize = 16;

/// The words, in a ring.
#[derive(Clone, Copy)]
pub struct Trail {
    words: [u64; WORDS],
    next: u32,
}

impl Default for Trail {
    fn default() -> Trail {
        Trail {
            words: [0; WORDS],
            next: 0,
        }
    }
}

impl Trail {
    fn add(&mut self, word: u64) {
        self.words[self.next as usize % WORDS] = word;
        self.next = self.next.wrapping_add(1);
    }

    /// What was seen on stacks, the latest first.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        (1..=WORDS as u32).map(|back| self.words[self.next.wrapping_sub(back) as usize % WORDS])
    }
}

/// The thread makes a call.
pub fn at_call(t: &mut Block) {
    if let Some(words) = guard::read::<[u64; OF_CALL]>(t.program_sp) {
        // Nearest callers are to count as the latest.
        words.iter().rev().for_each(|w| t.order().trail.add(*w));
    }
}

/// The thread makes an operation on an object.
pub fn at_operation(t: &mut Block) {
    let caller = match t.hooked {
        0 => None,
        _ => guard::read(t.program_sp),
    };
    if let Some(word) = caller {
        t.order().trail.add(word);
    }
}
