//! The processes of the session, seen from outside: who is dead, whatever the cause, gets out of the way of the others.

use crate::members::{self, is_dead, open, Members};
use crate::namespaces;
use crate::spare;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::schedule::{owner_of, Kernel, Lists, Locked, WAITERS};
use reprise_abi::session::{process_state, slot_state, Process, Session, MAX_PROCESSES};
use reprise_launch::proc_files::Stat;
use reprise_launch::{futex, process, SharedSession};
use std::os::fd::OwnedFd;
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// The processes that were seen alive.
pub struct Processes {
    /// By number: the kernel's id, and a descriptor that tells of its death.
    known: Vec<Option<(u32, OwnedFd)>>,
    /// Those that the table named once, names no more, and that lived when they were looked at last: the program can write to the table.
    unnamed: Vec<(u32, OwnedFd)>,
    looked: Option<Instant>,
    /// When it was asked last who has the session's memory mapped, and how often in a row it was nobody.
    missed: Option<(Instant, u32)>,
    launcher: i32,
    /// Those that ended when nothing was recorded any more, by the ids that the program knew.
    pub unrecorded: Vec<i64>,
    /// Those whose parents were killed while they made them.
    pub orphaned: Vec<i64>,
}

/// What is to be done of a dead process, by its number and its wait status, before its slots are given to others.
pub type Last<'a> = dyn FnMut(&SharedSession, usize, Option<i32>) + 'a;

/// Between two questions to the kernel who has the session's memory mapped.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// So often nobody must have been found.
const ENOUGH: u32 = 2;
/// Between two looks while there is other work.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Processes {
    /// None seen yet. The calling process's parent is the launcher.
    pub fn new(launcher: i32) -> Processes {
        spare::keep();
        Processes {
            known: Vec::new(),
            unnamed: Vec::new(),
            looked: None,
            missed: None,
            launcher,
            unrecorded: Vec::new(),
            orphaned: Vec::new(),
        }
    }

    /// Looks, unless that was a moment ago and nothing hurries.
    pub fn look_again(&mut self, shared: &SharedSession, members: &Members, last: &mut Last) {
        let hurry = shared.session().wait_status.load(Relaxed) != 0;
        if hurry || self.looked.is_none_or(|t| t.elapsed() > LOOK_EVERY) {
            self.look(shared, members, last);
            self.looked = Some(Instant::now());
        }
    }

    /// Looks once: buries the dead.
    pub fn look(&mut self, shared: &SharedSession, members: &Members, last: &mut Last) {
        let s = shared.session();
        let orphaned = parent_id() as i32 != self.launcher;
        // Asked once: meanwhile there may be more of them.
        let used = used(s);
        self.known.resize_with(used.max(self.known.len()), || None);
        self.free_lock_of_the_dead(s);
        if Lists(s).lock_is_left() {
            // Of an agent before this one, perhaps, that was giving the baton on.
            with_lock(s, drop);
        }
        for (n, p) in s.processes[..used].iter().enumerate() {
            let state = p.state.load(Acquire);
            let mut pid = p.kernel_pid.load(Acquire);
            if pid == 0 && state == process_state::LIVE {
                pid = unborn(shared, n);
                if pid == 0 && gave_up(s, n) {
                    continue;
                }
            }
            let is_named = pid != 0 && matches!(state, process_state::LIVE | process_state::ENDING);
            let seen = self.known[n].as_ref();
            let seen = is_named && seen.is_some_and(|(known, _)| *known == pid);
            if !seen {
                let before = self.known[n].take().filter(|(_, fd)| !is_dead(fd));
                self.unnamed.extend(before);
                self.unnamed.truncate(MAX_PROCESSES);
            }
            if !is_named {
                continue;
            }
            if !seen {
                self.known[n] = open(pid).map(|fd| (pid, fd));
            }
            let fd = self.known[n].as_ref();
            let gone = fd.map_or_else(|| is_gone(pid), |(_, fd)| is_dead(fd));
            // Looked at while what it has mapped can be seen. Whom the program only says that it is is no process of it.
            if !gone && (seen || !members.is_foreign(shared, pid)) {
                continue;
            }
            free_lock(s, n, None);
            let first = pid == s.program_pid.load(Relaxed);
            // Whoever has said how it ends is believed.
            let told = state == process_state::ENDING && !first;
            let mut status = if told { None } else { wait_status(pid) };
            if first {
                // The launcher, its parent, may have reaped it already, and says so in a moment.
                status = match s.wait_status.load(Acquire) {
                    0 if status.is_none() && !orphaned => continue,
                    0 => status,
                    told => Some((told - 1) as i32),
                };
            }
            self.known[n] = None;
            if s.recording_lost.load(Relaxed) != 0 {
                self.unrecorded.push(p.visible_pid.load(Relaxed).into());
            }
            if state == process_state::ENDING && p.announced.load(Relaxed) == 0 {
                self.orphaned.extend(made_by_nobody(p));
            }
            tracing::debug!(n, pid, state, ?status, "found dead");
            last(shared, n, status);
            reap(s, n, status);
            if shared.rings().is_some() && p.state.load(Acquire) == process_state::LOST {
                // Its end is in the trace already.
                p.kernel_pid.store(0, Relaxed);
                p.state.store(process_state::FREE, Release);
                s.lost.fetch_sub(1, Relaxed);
            }
        }
    }

    /// Who died with the scheduler's lock has it no more: all others are buried with it.
    fn free_lock_of_the_dead(&self, s: &Session) {
        let Some((p, _)) = owner_of(s.schedule_lock.load(Acquire)) else {
            return;
        };
        let pid = s.processes[p as usize % MAX_PROCESSES]
            .kernel_pid
            .load(Acquire);
        let known = self.known.get(p as usize).and_then(Option::as_ref);
        if known.is_some_and(|(n, fd)| *n == pid && is_dead(fd)) {
            free_lock(s, p as usize, None);
        }
    }

    /// Is any process left, as far as the table and those tell that it named once?
    pub fn any(&mut self, shared: &SharedSession, members: &Members) -> bool {
        let s = shared.session();
        self.unnamed.retain(|(_, fd)| !is_dead(fd));
        let mut unnamed = self.unnamed.iter();
        unnamed.any(|(pid, _)| members.has(shared, *pid))
            || s.processes[..used(s)].iter().any(|p| {
                matches!(
                    p.state.load(Acquire),
                    process_state::LIVE | process_state::ENDING
                )
            })
    }

    /// Has nobody had the session's memory mapped for some seconds, whatever the table says into which the program could write? Asks the kernel now and then.
    pub fn none_for_long(&mut self, shared: &SharedSession, members: &Members) -> bool {
        let last = self.missed.map(|(t, _)| t);
        if last.is_some_and(|t| t.elapsed() < ASK_EVERY) {
            return false;
        }
        let may_be = |p: &Process| {
            let pid = p.kernel_pid.load(Acquire);
            let named = p.state.load(Acquire) != process_state::FREE && pid != 0;
            named && members.may_map(shared, pid)
        };
        let s = shared.session();
        let alive = s.processes[..used(s)].iter().any(may_be);
        let before = self.missed.map_or(0, |(_, times)| times);
        let times = match alive || last.is_none() || !Members::who_map(shared).is_empty() {
            true => 0,
            false => before + 1,
        };
        self.missed = Some((Instant::now(), times));
        times >= ENOUGH
    }

    /// Ends whoever has the session's memory mapped, whatever the table says.
    pub fn end_whoever_maps(&self, shared: &SharedSession, members: &Members) {
        for pid in Members::who_map(shared) {
            members.kill(shared, pid);
        }
    }

    /// Ends them all: the recording is over, and they were to end with it.
    pub fn end_all(&self, shared: &SharedSession, members: &Members) {
        for p in &shared.session().processes {
            let pid = p.kernel_pid.load(Relaxed);
            if p.state.load(Relaxed) != process_state::LIVE || pid == 0 {
                continue;
            }
            members.kill(shared, pid);
        }
    }
}

/// How many entries of the session's table processes ever had.
fn used(s: &Session) -> usize {
    (s.processes_used.load(Acquire) as usize).min(MAX_PROCESSES)
}

/// Is a process not there any more, or only as a zombie?
pub(crate) fn is_gone(pid: u32) -> bool {
    match spare::read(&format!("/proc/{pid}/stat")) {
        Ok(stat) => Stat::new(stat).has_ended(),
        // What can't be looked at isn't alive for that.
        Err(_) => process::is_nobody(pid as i32),
    }
}

/// The id of a process that ends because nobody has told of its making; none of the first one, which nobody made.
fn made_by_nobody(p: &Process) -> Option<i64> {
    let made = p.maker.load(Relaxed) != 0 && p.birth.load(Relaxed) == 0;
    made.then(|| p.visible_pid.load(Relaxed).into())
}

/// A process that was to be made, by one that was killed before it could: its place is free again.
fn gave_up(s: &Session, n: usize) -> bool {
    let p = &s.processes[n];
    let maker = p.maker.load(Acquire);
    if maker == 0 || !is_gone(maker) || p.kernel_pid.load(Acquire) != 0 || child_of(s, n).is_some()
    {
        return false;
    }
    let forgotten = with_lock(s, |l| {
        let threads = l.forget(n as u32, None, slot_state::FREE);
        s.live_threads.fetch_sub(threads, Relaxed);
        p.state.store(process_state::FREE, Release);
    });
    forgotten.is_some()
}

/// What the kernel told the maker of process `n` of it, once it has made one.
fn child_of(s: &Session, n: usize) -> Option<u32> {
    let slots = 0..s.slots_used.load(Relaxed).min(MAX_SLOTS as u32);
    let first = slots.map(|i| s.slot(i as usize)).find(|slot| {
        let state = slot.state.load(Acquire);
        // A slot keeps the process that had it before.
        let taken = matches!(
            state,
            slot_state::BLOCKED | slot_state::READY | slot_state::RUNNING
        );
        taken && slot.process.load(Acquire) as usize == n
    });
    let told = first.map(|slot| slot.kernel_tid.load(Acquire));
    told.filter(|told| *told != 0)
}

/// An id that no process has (the kernel's limit is lower).
const NOBODY: u32 = 0x3fff_ffff;

/// The id of a process that has been made and does not know itself yet: it may be killed before it does. 0: it isn't there, either.
fn unborn(shared: &SharedSession, n: usize) -> u32 {
    let s = shared.session();
    let told = child_of(s, n).unwrap_or(0);
    let p = &s.processes[n];
    if told == 0 {
        return 0;
    }
    // What can't be found any more was reaped.
    let found = namespaces::candidates(shared, n, told);
    let real = found.first().map_or(NOBODY, |f| f.pid);
    // Where makers have died, several may have been told of by one number in several namespaces: none of them may be alive then.
    let gone = found.iter().all(|f| is_gone(f.pid));
    let made = p.kernel_pid.load(Acquire) == 0 && child_of(s, n) == Some(told);
    if !(made && gone && p.kernel_pid.load(Acquire) == 0) {
        return 0;
    }
    p.visible_pid.store(told, Release);
    // By this number its maker waits for it, also when nobody has it any more.
    p.told.store(told, Release);
    p.kernel_pid.store(real, Release);
    real
}

/// Wait status of a process that is dead and not reaped yet (proc_pid_stat(5), field 52).
fn wait_status(pid: u32) -> Option<i32> {
    members::field(&format!("/proc/{pid}/stat"), 52).map(|status| status as i32)
}

/// The calling thread's id.
fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// What the kernel reads when this process dies (set_robust_list(2)): the list's head, whose third word is the lock that the agent has or is taking,
/// and the list's only link, from which the word that tells of its life is as far away as the head's second word says.
static ROBUST: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
/// Words of the head.
const HEAD: usize = 3;

/// Tells the kernel that `life` is to be marked when this thread, the process's only one, dies; and so, for the agent, is the scheduler's lock if
/// it dies with it.
pub fn tell_of_life(life: &AtomicU32) {
    let [list, link] = [0, HEAD].map(|i| std::ptr::from_ref(&ROBUST[i]) as usize);
    ROBUST[0].store(link, Relaxed);
    ROBUST[1].store((life.as_ptr() as usize).wrapping_sub(link), Relaxed);
    ROBUST[HEAD].store(list, Relaxed);
    // SAFETY: words that live as long as the process.
    unsafe {
        life.store(own_thread(), SeqCst);
        libc::syscall(
            libc::SYS_set_robust_list,
            list,
            HEAD * size_of::<AtomicUsize>(),
        );
    }
}

/// Says which lock is being taken, or had; `None`: none.
fn holds(lock: Option<&AtomicU32>) {
    let link = lock.map_or(0, |l| {
        (l.as_ptr() as usize).wrapping_sub(ROBUST[1].load(Relaxed))
    });
    ROBUST[2].store(link, SeqCst);
}

/// The kernel's futexes. Who sleeps looks again after a moment.
#[derive(Clone, Copy)]
pub(crate) struct Futexes;

impl Kernel for Futexes {
    fn sleep(self, word: &AtomicU32, value: u32) {
        futex::wait(word, value, Duration::from_millis(1));
    }

    fn wake(self, word: &AtomicU32) {
        futex::wake(word, 1);
    }
}

/// Does something with the scheduler's lock; `None` when it can't be had for long.
pub(crate) fn with_lock<'a, R>(
    s: &'a Session,
    f: impl FnOnce(Locked<'a, Futexes>) -> R,
) -> Option<R> {
    const LOOKS: u32 = 200;
    /// What the lock was when it could not be had: who asks again meanwhile need not wait as long.
    static KEPT: AtomicU32 = AtomicU32::new(0);
    let l = &s.schedule_lock;
    let kept = KEPT.load(Relaxed);
    let is_kept = kept != 0 && l.load(Relaxed) | WAITERS == kept;
    let looks = if is_kept { 2 } else { LOOKS };
    holds(Some(l));
    let done = Lists(s).lock_within(own_thread(), Futexes, looks).map(f);
    holds(None);
    if done.is_none() {
        KEPT.store(l.load(Relaxed) | WAITERS, Relaxed);
    }
    done
}

/// Process `n` is dead, or all its threads but that of slot `except` are: the scheduler's lock is not theirs any more.
fn free_lock(s: &Session, n: usize, except: Option<u32>) {
    if Lists(s).free_lock(n as u32, except) {
        futex::wake(&s.schedule_lock, 1);
    }
}

/// The process of slot `slot` has become another program: its other threads are gone, and what they and it had in shared memory is left
/// to others.
pub(crate) fn became_another(s: &Session, slot: u32) {
    let n = s.slot(slot as usize).process.load(Relaxed);
    free_lock(s, n as usize, Some(slot));
    with_lock(s, |l| l.fall_due(n));
}

fn reap(s: &Session, n: usize, status: Option<i32>) {
    if with_lock(s, |l| l.bury(n as u32, status)).is_none() {
        return;
    }
    // What it was using alone is free.
    for word in [&s.starting, &s.request.taken] {
        if word.load(Relaxed) == 0 {
            futex::wake(word, i32::MAX);
        }
    }
}

/// The processes that were found dead and that nobody was left to log: [who](Session::found_dead), and wait status, -1 when not known.
pub fn lost(shared: &SharedSession) -> Vec<([u32; 3], i64)> {
    let lost = |p: &&reprise_abi::session::Process| p.state.load(Acquire) == process_state::LOST;
    shared
        .session()
        .processes
        .iter()
        .filter(lost)
        .map(|p| {
            let status = i64::from(p.status.load(Relaxed)) - 1;
            (shared.session().found_dead(p), status)
        })
        .collect()
}
