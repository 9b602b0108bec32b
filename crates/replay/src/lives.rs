//! Which of the kernel's processes a process of the session has been, one after the other: at each exec it goes on as another one, and the old one
//! ends when the kernel gets to it. That may be after the new one has ended.

use libc::pid_t;
use std::collections::{HashMap, HashSet};

/// The processes that have more than one life.
#[derive(Default)]
pub(crate) struct Lives {
    /// Former lives that the kernel has not ended yet: whose.
    former: HashMap<pid_t, usize>,
    /// Processes whose last life has ended.
    over: HashSet<usize>,
}

/// What can be had again now that a life has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Free {
    /// Nothing: threads of the process are there still, and wait on the words of their slots.
    Nothing,
    /// The slots that it has left.
    Slots,
    /// The process's number as well.
    All,
}

impl Lives {
    /// Process `n`, which was `old`, has become another one.
    pub(crate) fn becomes(&mut self, old: pid_t, n: usize) {
        self.former.insert(old, n);
    }

    /// A process of the kernel's has ended: whose former life it was.
    pub(crate) fn former(&mut self, pid: pid_t) -> Option<usize> {
        self.former.remove(&pid)
    }

    /// Is there a former life that the kernel has not ended yet? It may still let others go on, after the new one has begun.
    pub(crate) fn any_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// The last life of process `n` has ended.
    pub(crate) fn ends(&mut self, n: usize) {
        self.over.insert(n);
    }

    /// What of process `n` can be had again. `leaving`: its threads leave their slots by now, in a life that has not ended.
    pub(crate) fn free(&mut self, n: usize, leaving: bool) -> Free {
        if self.former.values().any(|m| *m == n) {
            return Free::Nothing;
        }
        match (self.over.remove(&n), leaving) {
            (true, _) => Free::All,
            (false, true) => Free::Nothing,
            (false, false) => Free::Slots,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_life_may_end_last() {
        let mut lives = Lives::default();
        lives.becomes(100, 3);
        assert!(lives.any_former());
        // Another process's end has nothing to do with it.
        lives.ends(4);
        assert_eq!(lives.free(4, true), Free::All);
        // The new life ends before the kernel has ended the old one.
        lives.ends(3);
        assert_eq!(lives.free(3, true), Free::Nothing);
        assert_eq!(lives.former(100), Some(3));
        assert_eq!(lives.free(3, true), Free::All);
        assert_eq!(lives.former(100), None);
    }

    #[test]
    fn a_former_life_ends_while_the_new_one_leaves() {
        let mut lives = Lives::default();
        lives.becomes(100, 3);
        assert_eq!(lives.former(100), Some(3));
        // What the new life has left is not free before that has ended, too.
        assert_eq!(lives.free(3, true), Free::Nothing);
        lives.ends(3);
        assert_eq!(lives.free(3, true), Free::All);
        // In the usual order.
        lives.becomes(101, 3);
        assert_eq!(lives.former(101), Some(3));
        assert_eq!(lives.free(3, false), Free::Slots);
    }
}
