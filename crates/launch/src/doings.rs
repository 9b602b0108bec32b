//! Does a thread that ought to go on get a processor? Whoever waits for one from outside counts no look at which it could not have gone on: on a busy
//! machine, or where a processor of a virtual one stands still, it may wait for long.

use crate::proc_files::Stat;
use std::collections::HashMap;

/// What a thread does, and how long it has computed until then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doing {
    /// Runs or could (`R`), sleeps (`S`, `D`), is stopped (`T`, `t`), has ended (`Z`, `X`): proc_pid_stat(5).
    pub state: char,
    /// In ticks of the clock (sysconf(3), _SC_CLK_TCK): in the program, and in the kernel.
    computed: (u64, u64),
}

impl Doing {
    /// What this thread does now; `None`: it has ended.
    #[must_use]
    pub fn of(pid: u32, tid: u32) -> Option<Doing> {
        let stat = Stat::of_thread(pid, tid).ok()?;
        Some(Doing {
            state: stat.state()?,
            computed: stat.computed()?,
        })
    }

    /// It reads or writes, or somebody has stopped it.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        matches!(self.state, 'D' | 'T' | 't')
    }

    fn ticks(&self) -> u64 {
        self.computed.0 + self.computed.1
    }
}

/// What threads did at this look and at the one before.
#[derive(Default, Debug)]
pub struct Doings {
    now: HashMap<u32, Doing>,
    before: HashMap<u32, Doing>,
}

impl Doings {
    /// Looks once more, at these: process and thread.
    pub fn look(&mut self, threads: impl IntoIterator<Item = (u32, u32)>) {
        let threads = threads.into_iter();
        let all = threads.filter_map(|(pid, tid)| Some((tid, Doing::of(pid, tid)?)));
        self.before = std::mem::replace(&mut self.now, all.collect());
    }

    /// What one of them, or another one, has been seen doing since.
    pub fn note(&mut self, tid: u32, doing: Doing) {
        self.now.insert(tid, doing);
    }

    /// Does any of them wait for a processor, and has got none since the last look?
    #[must_use]
    pub fn some_wait(&self) -> bool {
        let has_run = |tid: &u32, now: &Doing| {
            let before = self.before.get(tid);
            before.is_some_and(|before| now.ticks() > before.ticks())
        };
        let mut all = self.now.iter();
        all.any(|(tid, now)| now.state == 'R' && !has_run(tid, now))
    }

    /// Has this one run code of its own since the last look, and not only of the kernel's?
    #[must_use]
    pub fn has_run_itself(&self, tid: u32) -> bool {
        let both = self.now.get(&tid).zip(self.before.get(&tid));
        both.is_some_and(|(now, before)| now.computed.0 > before.computed.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doings(before: &[(u32, Doing)], now: &[(u32, Doing)]) -> Doings {
        let [before, now] = [before, now].map(|all| all.iter().copied().collect());
        Doings { now, before }
    }

    fn doing(state: char, own: u64, kernel: u64) -> Doing {
        Doing {
            state,
            computed: (own, kernel),
        }
    }

    #[test]
    fn who_could_run_and_has_not_waits() {
        let stood = doings(&[(7, doing('R', 5, 1))], &[(7, doing('R', 5, 1))]);
        assert!(stood.some_wait() && !stood.has_run_itself(7));
        // What nobody had looked at before may have waited since.
        assert!(doings(&[], &[(7, doing('R', 5, 1))]).some_wait());
        let in_kernel = doings(&[(7, doing('R', 5, 1))], &[(7, doing('R', 5, 2))]);
        assert!(!in_kernel.some_wait() && !in_kernel.has_run_itself(7));
        let itself = doings(&[(7, doing('S', 5, 1))], &[(7, doing('R', 6, 1))]);
        assert!(!itself.some_wait() && itself.has_run_itself(7));
        assert!(!doings(&[], &[(7, doing('S', 5, 1))]).some_wait());
        // One that waits is enough.
        let mut two = doings(&[(7, doing('R', 5, 1))], &[(7, doing('R', 6, 1))]);
        two.note(8, doing('R', 0, 0));
        assert!(two.some_wait());
    }

    #[test]
    fn a_thread_that_computes_is_seen_to() {
        let me = (
            std::process::id(),
            rustix::thread::gettid().as_raw_pid() as u32,
        );
        let mut doings = Doings::default();
        doings.look([me]);
        doings.look([me]);
        while !doings.has_run_itself(me.1) {
            // To ask takes the kernel's time, and this the program's.
            std::hint::black_box(
                (0..10_000_000u64).fold(0, |sum, n| sum ^ std::hint::black_box(n)),
            );
            doings.note(me.1, Doing::of(me.0, me.1).expect("this thread"));
        }
        assert!(!doings.some_wait());
        assert_eq!(Doing::of(me.0, u32::MAX), None);
    }
}
