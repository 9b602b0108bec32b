//! Which of the kernel's processes a process of the session has been, one after the other: at each exec it goes on as another one, and the old one
//! ends when the kernel gets to it. That may be after the new one has ended.

use libc::pid_t;
use std::collections::{HashMap, HashSet};

/// The processes that have more than one life.
#[derive(Default)]
pub(crate) struct Lives {
    /// Former lives that the kernel has not ended yet.
    former: HashMap<pid_t, Former>,
    /// Processes whose last life has ended.
    over: HashSet<usize>,
}

/// A life before an exec.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Former {
    pub process: usize,
    /// The slots that its threads have left for good: until the kernel has ended them, they wait on the words of these.
    pub slots: Vec<usize>,
}

impl Lives {
    /// Process `n`, which was `old`, has become another one; `left`: the slots that its threads had left by then.
    pub(crate) fn becomes(&mut self, old: pid_t, n: usize, left: impl Iterator<Item = usize>) {
        let earlier: HashSet<usize> = self.of(n).flat_map(|f| f.slots.iter().copied()).collect();
        let slots = left.filter(|i| !earlier.contains(i)).collect();
        self.former.insert(old, Former { process: n, slots });
    }

    /// A process of the kernel's has ended: the former life that it was, whose slots can be had again.
    pub(crate) fn former(&mut self, pid: pid_t) -> Option<Former> {
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

    /// Has the kernel ended all lives of process `n`? Then all that it had can be had again, its number as well.
    pub(crate) fn is_over(&mut self, n: usize) -> bool {
        self.of(n).next().is_none() && self.over.remove(&n)
    }

    fn of(&self, n: usize) -> impl Iterator<Item = &Former> {
        self.former.values().filter(move |f| f.process == n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots_of(former: Option<Former>) -> Vec<usize> {
        former.map_or(vec![], |f| f.slots)
    }

    #[test]
    fn a_former_life_may_end_last() {
        let mut lives = Lives::default();
        lives.becomes(100, 3, [7, 8].into_iter());
        assert!(lives.any_former());
        // Another process's end has nothing to do with it.
        lives.ends(4);
        assert!(lives.is_over(4) && !lives.is_over(3));
        // The new life ends before the kernel has ended the old one.
        lives.ends(3);
        assert!(!lives.is_over(3));
        assert_eq!(slots_of(lives.former(100)), [7, 8]);
        assert!(lives.is_over(3) && !lives.is_over(3));
        assert_eq!(lives.former(100), None);
    }

    #[test]
    fn each_life_frees_the_slots_that_it_has_left_itself() {
        let mut lives = Lives::default();
        lives.becomes(100, 3, [7, 8].into_iter());
        // The new life leaves slots, too, before the old one is gone.
        lives.becomes(101, 3, [7, 8, 9].into_iter());
        assert_eq!(slots_of(lives.former(101)), [9]);
        lives.ends(3);
        assert!(!lives.is_over(3));
        assert_eq!(slots_of(lives.former(100)), [7, 8]);
        assert!(lives.is_over(3));
    }
}
