//! What the making of a thread or a process asks for.

use crate::memory::capture::Call;
use reprise_abi::syscalls::nr;

/// Flags of clone(2).
pub const CLONE_VM: u64 = 0x100;
/// As above.
pub const CLONE_FS: u64 = 0x200;
/// As above.
pub const CLONE_FILES: u64 = 0x400;
/// As above.
pub const CLONE_SIGHAND: u64 = 0x800;
/// As above.
pub const CLONE_PIDFD: u64 = 0x1000;
/// As above.
pub const CLONE_VFORK: u64 = 0x4000;
/// As above.
pub const CLONE_DETACHED: u64 = 0x40_0000;
/// As above.
pub const CLONE_PARENT: u64 = 0x8000;
/// As above.
pub const CLONE_THREAD: u64 = 0x1_0000;
/// As above.
pub const CLONE_SETTLS: u64 = 0x8_0000;
/// As above.
pub const CLONE_PARENT_SETTID: u64 = 0x10_0000;
/// As above.
pub const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
/// As above.
pub const CLONE_CHILD_SETTID: u64 = 0x100_0000;
/// As above.
pub const CLONE_SYSVSEM: u64 = 0x4_0000;

/// What a clone(2), fork(2) or vfork(2) asks for.
#[derive(Clone, Copy)]
pub struct Wish {
    /// The flags, with the exit signal in the lowest byte.
    pub flags: u64,
    /// Where the child's thread id is to be told to the parent.
    pub parent_tid: u64,
    /// Where it is to be told to the child, and cleared.
    pub child_tid: u64,
    /// Thread pointer of the child.
    pub tls: u64,
}

impl Wish {
    /// What a call asks for.
    pub fn of(c: &Call) -> Wish {
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

    /// Where the parent is to tell the program the new thread's id.
    pub fn told_by_parent(&self) -> impl Iterator<Item = u64> {
        let parent = (self.flags & CLONE_PARENT_SETTID != 0).then_some(self.parent_tid);
        let child = self.shares_memory() && self.flags & CLONE_CHILD_SETTID != 0;
        parent.into_iter().chain(child.then_some(self.child_tid))
    }
}
