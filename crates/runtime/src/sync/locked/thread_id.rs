//! The word by which libc knows that a thread is gone: `tid` in its descriptor, cleared when the thread ends (`CLONE_CHILD_CLEARTID`, clone(2)).
//!
//! libc looks at it by plain loads: when it tries to join, and when it looks for a stack that can be used again. What it does then depends
//! on who is faster, so these loads are ordered as if they were atomic, and the end of a thread clears the word in the same order. Where it
//! lies, libc tells debuggers (nptl_db: `_thread_db_pthread_tid`, `_thread_db_pthread_list`).

use super::shared::RSP;
use crate::machine::guard::{self, Program};
use reprise_code::decode::{Insn, Place};
use reprise_code::elf::Module;

/// How libc's code gets at the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId {
    /// From the descriptor.
    offset: u64,
    /// From the descriptor to the links of the lists that it is in.
    links: u64,
}

impl ThreadId {
    /// That of a descriptor with these offsets.
    #[cfg(test)]
    pub(super) fn new(offset: u64, links: u64) -> ThreadId {
        ThreadId { offset, links }
    }

    /// That of the libc which this module is, if it is one.
    pub fn of(module: &Module) -> Option<ThreadId> {
        let exports = module.exports(&Program)?;
        // Bits, elements, offset.
        let offset = |name: &[u8]| {
            let [_, _, offset] = guard::read::<[u32; 3]>(exports.find(&Program, name)?.address)?;
            Some(offset as u64)
        };
        Some(ThreadId {
            offset: offset(b"_thread_db_pthread_tid")?,
            links: offset(b"_thread_db_pthread_list")?,
        })
    }

    /// May a displacement lead to the word?
    pub fn is_named_by(&self, displacement: i32) -> bool {
        let d = displacement as i64 as u64;
        d == self.offset || d == self.links.wrapping_neg()
    }

    /// May this instruction's memory lead to the word?
    pub fn may_be_named_by(&self, i: &Insn) -> bool {
        let place = i.place().filter(counts_from_object);
        place.is_some_and(|p| self.is_named_by(p.offset as i32))
    }

    /// Does this instruction of a function get from the links to the descriptor?
    pub fn leaves_links(&self, i: &Insn) -> bool {
        let place = i.place().filter(counts_from_object);
        place.is_some_and(|p| p.offset == self.links.wrapping_neg())
    }

    /// Is this the word's place, in a function that gets from the links to the descriptor, or in another one?
    pub fn lies_at(&self, p: &Place, leaves_links: bool) -> bool {
        let from_links = self.offset.wrapping_sub(self.links);
        counts_from_object(p)
            && (p.offset == self.offset || (leaves_links && p.offset == from_links))
    }
}

fn counts_from_object(p: &Place) -> bool {
    p.index.is_none() && p.base.is_some_and(|r| r != RSP)
}
