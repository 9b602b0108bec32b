//! A program that has written over the words by which its threads take turns: nobody would ever go on. The agent sees it by words that no recording has,
//! and that stay; such a recording ends there, and its program with it. What those words are: [`looks`].

mod looks;

use crate::members::Members;
use crate::slices::doing;
use looks::{Look, LOOKS};
use reprise_abi::layout::MAX_SLOTS;
use reprise_launch::doings::{Doing, Doings};
use reprise_launch::{proc_files, SharedSession};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Something that no healthy recording shows for long.
#[derive(Clone, Copy)]
struct Wrong {
    what: &'static str,
    /// Words that stay the same as long as nobody has done anything: a lock's and the count of turns, or of what else is done.
    words: [u64; 2],
    /// How often it must be seen, the last time like this.
    enough: u32,
    /// The slot of a thread that would only have to go on.
    keeper: Option<u32>,
}

impl Wrong {
    /// Is it the same that doesn't go away?
    fn is_still(&self, before: &Wrong) -> bool {
        (self.what, self.words) == (before.what, before.words)
    }
}

/// What one of the looks saw, and how often.
#[derive(Clone, Copy)]
struct Seen {
    wrong: Wrong,
    times: u32,
}

/// What was seen.
pub struct Damage {
    /// [What never changes](fixed_words), as it was.
    fixed: [u64; 3],
    looked: Option<Instant>,
    /// By each look. None hides what another one sees: what is never certain by itself may stay for ever.
    seen: [Option<Seen>; LOOKS.len()],
    look: Look,
    doings: Doings,
}

impl Damage {
    /// Nothing seen yet; the program has not begun.
    pub fn new(shared: &SharedSession) -> Damage {
        Damage {
            fixed: fixed_words(shared),
            looked: None,
            seen: [None; LOOKS.len()],
            look: Look::default(),
            doings: Doings::default(),
        }
    }

    /// What is damaged, when that is certain.
    pub fn look(&mut self, shared: &SharedSession, members: &Members) -> Option<&'static str> {
        if fixed_words(shared) != self.fixed {
            // By it threads find their rings, and what they are to do: nobody knows what they have done since.
            return Some("a word that never changes");
        }
        if self.looked.is_some_and(|t| t.elapsed() < LOOK_EVERY) {
            return None;
        }
        self.looked = Some(Instant::now());
        self.look.begin(shared);
        let now = LOOKS.map(|see| see(&mut self.look, shared, members));
        self.count(shared, now)
    }

    /// Counts what was seen now, and says what is certain by it.
    fn count(
        &mut self,
        shared: &SharedSession,
        now: [Option<Wrong>; LOOKS.len()],
    ) -> Option<&'static str> {
        let mut seen = self.seen.iter().zip(now);
        let is_again = |(seen, now): (&Option<Seen>, Option<Wrong>)| {
            let again = now
                .zip(*seen)
                .filter(|(now, seen)| now.is_still(&seen.wrong));
            again.is_some()
        };
        // (Whom to ask is much to find out where a machine has many processes; mostly nothing is seen twice.)
        match seen.any(is_again) {
            true => self.doings.look(threads(shared)),
            false => self.doings = Doings::default(),
        }
        for (seen, now) in self.seen.iter_mut().zip(now) {
            *seen = now.map(|wrong| {
                let again = seen.filter(|seen| wrong.is_still(&seen.wrong));
                let times = again.map_or(1, |seen| {
                    seen.times + u32::from(counts(&mut self.doings, shared, wrong))
                });
                Seen { wrong, times }
            });
        }
        for Seen { wrong, times } in self.seen.iter().flatten() {
            if *times >= wrong.enough {
                tracing::warn!(what = wrong.what, "words that make no sense");
                return Some(wrong.what);
            }
            let doing = keeper(shared, *wrong).map(|(_, doing)| doing);
            tracing::debug!(what = wrong.what, words = ?wrong.words, times, ?doing, "doubtful words");
        }
        None
    }
}

/// Could those who would have to go on have done so since the last look?
fn counts(doings: &mut Doings, shared: &SharedSession, wrong: Wrong) -> bool {
    let keeper = keeper(shared, wrong);
    if let Some((tid, doing)) = keeper {
        doings.note(tid, doing);
    }
    let is_held_up = keeper.is_some_and(|(_, doing)| doing.is_held_up());
    !is_held_up && !doings.some_wait()
}

/// The thread that would only have to go on, and what it does.
fn keeper(shared: &SharedSession, wrong: Wrong) -> Option<(u32, Doing)> {
    let slot = shared.slot(wrong.keeper? as usize % MAX_SLOTS);
    Some((slot.kernel_tid.load(SeqCst), doing(slot)?))
}

/// Words that are written before the program begins, and never again: which session this is, how it runs, and how large its rings are.
fn fixed_words(shared: &SharedSession) -> [u64; 3] {
    let s = shared.session();
    let pair = |one: &u32, two: &u32| u64::from(read(one)) << 32 | u64::from(read(two));
    let ring_size = shared.order().map_or(0, |head| read(&head.ring_size));
    [read(&s.magic), pair(&s.mode, &s.engine), ring_size]
}

/// A word that the program may be writing now.
fn read<T: Copy>(word: &T) -> T {
    // SAFETY: a reference to a plain number.
    unsafe { std::ptr::read_volatile(word) }
}

/// All threads of the session, by the kernel's word: the process and the thread.
fn threads(shared: &SharedSession) -> impl Iterator<Item = (u32, u32)> {
    let of = |pid: u32| {
        let tids = proc_files::threads_of(pid).into_iter().flatten();
        tids.map(move |tid| (pid, tid))
    };
    Members::who_map(shared).into_iter().flat_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::state_of;
    use std::process::{Child, Command};

    /// A child that ends with its test.
    struct Beside(Child);

    impl Beside {
        fn run(program: &str, args: &[&str]) -> Beside {
            let child = Command::new(program).args(args).spawn();
            Beside(child.expect("a child"))
        }
    }

    impl Drop for Beside {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A look at the only thread of a child that has the box of requests.
    fn of(Beside(child): &Beside) -> (SharedSession, Wrong) {
        let shared = SharedSession::create().expect("a session");
        let slot = shared.slot(0);
        slot.kernel_pid.store(child.id(), SeqCst);
        slot.kernel_tid.store(child.id(), SeqCst);
        shared.session().request.taken.store(1, SeqCst);
        let wrong = looks::kept_without_asking(&shared);
        (shared, wrong.expect("a box that is not given back"))
    }

    #[test]
    fn who_waits_for_a_processor_is_not_counted() {
        let child = Beside::run("sh", &["-c", "while :; do :; done"]);
        let (shared, wrong) = of(&child);
        let mut doings = Doings::default();
        let mut counts = || {
            doings.look(threads(&shared));
            counts(&mut doings, &shared, wrong)
        };
        let until = Instant::now() + Duration::from_secs(60);
        // It gets a processor some time, ...
        while !counts() {
            assert!(Instant::now() < until, "it never computed");
            std::thread::sleep(Duration::from_millis(10));
        }
        // ... and from one moment to the next it does not, unless this test itself waits in between.
        while counts() {
            assert!(Instant::now() < until, "it always computes");
        }
        let stopped =
            reprise_launch::process::send(child.0.id() as i32, rustix::process::Signal::STOP);
        stopped.expect("a child of ours");
        while state_of(shared.slot(0)) != Some('T') {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!counts());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!counts());
    }

    #[test]
    fn who_sleeps_is_counted_and_each_request_is_another_one() {
        let child = Beside::run("sleep", &["1000"]);
        let (shared, wrong) = of(&child);
        let mut doings = Doings::default();
        while state_of(shared.slot(0)) != Some('S') {
            std::thread::sleep(Duration::from_millis(10));
        }
        doings.look(threads(&shared));
        assert!(counts(&mut doings, &shared, wrong));
        let again = || looks::kept_without_asking(&shared).expect("still not given back");
        assert!(again().is_still(&wrong));
        crate::requests::done(&shared);
        assert!(!again().is_still(&wrong));
    }

    #[test]
    fn what_is_never_certain_hides_nothing() {
        let shared = SharedSession::create().expect("a session");
        let mut damage = Damage::new(&shared);
        let wrong = |what, enough| Wrong {
            what,
            words: [0, 0],
            enough,
            keeper: None,
        };
        let mut now = [None; LOOKS.len()];
        now[0] = Some(wrong("for ever", u32::MAX));
        now[1] = Some(wrong("at last", 3));
        let mut count = |now| damage.count(&shared, now);
        assert_eq!([count(now), count(now)], [None, None]);
        // Something else, and as often as is enough.
        now[1] = Some(wrong("another", 3));
        assert_eq!([count(now), count(now)], [None, None]);
        assert_eq!(count(now), Some("another"));
        now[1] = None;
        assert_eq!(count(now), None);
    }
}
