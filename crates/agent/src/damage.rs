//! A program that has written over the words by which its threads take turns: nobody would ever go on. The agent sees it by words that no recording has,
//! and that stay; such a recording ends there, and its program with it.

use crate::members::Members;
use crate::requests::answered;
use crate::slices::{doing, doing_of, state_of};
use crate::stopped::Thing;
use libc::pid_t;
use reprise_abi::engine::can;
use reprise_abi::layout::{MAX_SLOTS, RESERVATION, RESERVATION_END, SESSION_BASE};
use reprise_abi::schedule::{owner_of, Lists, OWNER_DIED, WAITERS};
use reprise_abi::session::{request, slot_state, Session, Slot, BATON_FREE};
use reprise_abi::syscalls::nr;
use reprise_launch::{proc_files, SharedSession};
use std::collections::{BTreeSet, HashMap};
use std::mem::offset_of;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// So many looks in a row must see the same: a second in which nothing else happened.
const ENOUGH: u32 = 5;
/// As many where it is a thread that there is, and that may only be slow ([`Wrong::keeper`]).
const MANY: u32 = 15;
/// As many where others may hold it up.
const MOST: u32 = 25;
/// Something that is never certain by itself, however often it is seen.
const NEVER: u32 = u32::MAX;
/// So many slots behind those that are in use are looked at.
const BEHIND: usize = 64;
/// So many threads that are in no list are looked at.
const MOST_LOOKED_AT: usize = 64;
/// All words of a slot's state.
const STATES: [u32; 8] = [
    slot_state::FREE,
    slot_state::RUNNING,
    slot_state::READY,
    slot_state::IN_CALL,
    slot_state::BLOCKED,
    slot_state::FUTEX,
    slot_state::EXITING,
    slot_state::LEFT,
];

/// Something that no healthy recording shows for long.
#[derive(Clone, Copy)]
struct Wrong {
    what: &'static str,
    /// The lock's word and the count of turns: the same as long as nobody has done anything.
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

/// What was seen, and how often.
pub struct Damage {
    /// [What never changes](fixed_words), as it was.
    fixed: [u64; 3],
    looked: Option<Instant>,
    seen: Option<Wrong>,
    times: u32,
    /// How long each thread had computed at the last look that saw something.
    computed: HashMap<u32, u64>,
    /// The count of turns at the last look.
    turns: u64,
    /// So many slots were in use at some time.
    used: usize,
    /// A shard for which somebody waits long, who has it (a slot plus 1), and the number of the operation that is made on it.
    shard: Option<(u32, (u32, u64))>,
}

impl Damage {
    /// Nothing seen yet; the program has not begun.
    pub fn new(shared: &SharedSession) -> Damage {
        Damage {
            fixed: fixed_words(shared),
            looked: None,
            seen: None,
            times: 0,
            computed: HashMap::new(),
            turns: 0,
            used: 0,
            shard: None,
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
        let s = shared.session();
        let lock = s.schedule_lock.load(SeqCst);
        let turns = s.baton_generation.load(SeqCst);
        let now = wrong(shared, members, lock).map(|(what, enough)| Wrong {
            what,
            words: [lock.into(), turns],
            enough,
            keeper: None,
        });
        let now = now.or_else(|| kept_by_nobody(shared, members));
        let still = self.turns == turns && lock == 0;
        self.turns = turns;
        let used = s.slots_used.load(SeqCst) as usize;
        self.used = self.used.max(used.min(MAX_SLOTS));
        let now = now.or_else(|| {
            still
                .then(|| never_told(shared, self.used, turns))
                .flatten()
        });
        let now = now.or_else(|| still.then(|| kept_asleep(shared, turns)).flatten());
        let now = now.or_else(|| kept_without_asking(shared));
        let now = now.or_else(|| kept_in_call(shared));
        let now = now.or_else(|| self.kept_shard(shared, members));
        match now.filter(|now| self.seen.is_some_and(|seen| now.is_still(&seen))) {
            // (Whom to ask is much to find out where a machine has many processes; mostly nothing is seen twice.)
            Some(still) => self.times += u32::from(self.counts(shared, still)),
            None => (self.times, self.computed) = (1, HashMap::new()),
        }
        self.seen = now;
        let certain = now.filter(|wrong| self.times >= wrong.enough);
        match (now, certain) {
            (_, Some(wrong)) => tracing::warn!(what = wrong.what, "words that make no sense"),
            (Some(wrong), None) => {
                let doing = wrong
                    .keeper
                    .and_then(|i| doing(shared.slot(i as usize % MAX_SLOTS)));
                tracing::debug!(what = wrong.what, words = ?wrong.words, times = self.times, ?doing, "doubtful words");
            }
            (None, None) => {}
        }
        certain.map(|wrong| wrong.what)
    }

    /// Could those who would have to go on have done so since the last look? Whoever is about to may wait for a processor: on a busy machine, or where that
    /// of a virtual one stands still.
    fn counts(&mut self, shared: &SharedSession, wrong: Wrong) -> bool {
        let of_all = threads(shared).filter_map(|(pid, tid)| Some((tid, doing_of(pid, tid)?)));
        let mut all: HashMap<u32, (char, u64)> = of_all.collect();
        let keeper = wrong.keeper.map(|i| shared.slot(i as usize % MAX_SLOTS));
        let keeper = keeper.and_then(|slot| Some((slot.kernel_tid.load(SeqCst), doing(slot)?)));
        all.extend(keeper);
        let computed = all.iter().map(|(tid, (_, ticks))| (*tid, *ticks)).collect();
        let before = std::mem::replace(&mut self.computed, computed);
        let has_run = |tid: &u32, ticks: u64| before.get(tid).is_some_and(|before| ticks > *before);
        let waits = |(tid, doing): (&u32, &(char, u64))| doing.0 == 'R' && !has_run(tid, doing.1);
        // It reads or writes, or somebody has stopped it.
        let is_held_up = keeper.is_some_and(|(_, (state, _))| matches!(state, 'D' | 'T' | 't'));
        !is_held_up && !all.iter().any(waits)
    }

    /// Of a shard for which somebody waits long, under `order`: has whoever has it not given it back since? Each operation on it changes its word, and takes a few
    /// instructions. Several may be waited for, and each of those who wait says so again and again: as long as the operation is the same, it is the same shard that
    /// is looked at.
    fn kept_shard(&mut self, shared: &SharedSession, members: &Members) -> Option<Wrong> {
        let head = shared.order()?;
        let held = |number: u32| Some((number, head.shards.get(number as usize)?.holder()?));
        let wanted = || held(head.shard_wanted.load(SeqCst).checked_sub(1)?);
        let still = self.shard.filter(|shard| held(shard.0) == Some(*shard));
        self.shard = still.or_else(wanted);
        let (number, (who, operation)) = self.shard?;
        let slot = Thing::Shard.slot(shared.session(), who);
        let dead = slot.map_or(Some(ENOUGH), |slot| dead_after(shared, members, slot));
        let (what, enough, keeper) = match dead {
            Some(enough) => ("a lock that nobody has", enough, None),
            None => ("a lock that is not given back", MOST, Some(who - 1)),
        };
        Some(Wrong {
            what,
            words: [number.into(), operation],
            enough,
            keeper,
        })
    }
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

/// What no healthy recording shows for long, and how often it must be seen.
fn wrong(shared: &SharedSession, members: &Members, lock: u32) -> Option<(&'static str, u32)> {
    if lock & OWNER_DIED != 0 {
        // Whoever wants it next frees it.
        return None;
    }
    if lock == WAITERS {
        // Who gives it back leaves nothing there.
        return Some(("a lock that nobody has", ENOUGH));
    }
    let lock = lock & !WAITERS;
    if lock != 0 {
        let holder = owner_of(lock).map(|(_, slot)| shared.slot(slot as usize % MAX_SLOTS));
        // While somebody has it, the other words may be anything.
        let enough = holder.map_or(Some(ENOUGH), |slot| dead_after(shared, members, slot))?;
        return Some(("a lock that nobody has", enough));
    }
    let lost = baton_is_lost(shared, members);
    let lost = lost.or_else(|| has_too_many(shared).then_some("an impossible number of threads"));
    lost.map(|what| (what, ENOUGH))
}

/// Has a slot a thread, and is none of those that are said to be in use? Nobody looks for it there.
fn has_too_many(shared: &SharedSession) -> bool {
    let used = shared.session().slots_used.load(SeqCst) as usize;
    let behind = (used..used.saturating_add(BEHIND).min(MAX_SLOTS)).map(|i| shared.slot(i));
    let is_taken = |slot: &Slot| slot.state.load(SeqCst) != slot_state::FREE;
    let mut taken = behind.filter(|slot| is_taken(slot));
    taken.any(|slot| slot.kernel_tid.load(SeqCst) != 0)
}

/// What is impossible of the words by which threads take turns, while nobody has their lock.
fn baton_is_lost(shared: &SharedSession, members: &Members) -> Option<&'static str> {
    let s = shared.session();
    let used = s.slots_used.load(SeqCst) as usize;
    if used > MAX_SLOTS {
        return Some("an impossible number of threads");
    }
    if shared.order().is_some() {
        // Nobody takes turns there.
        return None;
    }
    let slots = || (0..used).map(|i| shared.slot(i));
    if slots().any(|slot| !STATES.contains(&slot.state.load(SeqCst))) {
        return Some("an impossible state of a thread");
    }
    match s.baton.load(SeqCst) {
        BATON_FREE => {
            let says_so = slots().filter(|slot| slot.state.load(SeqCst) == slot_state::READY);
            let listed = Lists(s).ready().map(|i| s.slot(i as usize % MAX_SLOTS));
            let waits = says_so.chain(listed).any(sleeps);
            waits.then_some("a thread whose turn never comes")
        }
        n if n as usize > used => Some("an impossible thread's turn"),
        n => {
            let slot = shared.slot(n as usize - 1);
            let state = slot.state.load(SeqCst);
            if state == slot_state::FREE || !lives(shared, members, slot) {
                return Some("the turn of a thread that there is not");
            }
            // Who does not know that it has it gives it to nobody.
            let waits = [slot_state::READY, slot_state::BLOCKED, slot_state::FUTEX];
            let knows = !waits.contains(&state) || slot.is_unclaimed(s);
            (!knows).then_some("the turn of a thread that waits")
        }
    }
}

/// Does one thread at a time have something, and is there no thread that has it?
fn kept_by_nobody(shared: &SharedSession, members: &Members) -> Option<Wrong> {
    /// The scheduler's lock, the baton and shards are looked at by themselves.
    const THINGS: [Thing; 4] = [Thing::Requests, Thing::Head, Thing::Output, Thing::Errors];
    THINGS.into_iter().zip(0..).find_map(|(thing, number)| {
        let owner = Some(thing.owner(shared)).filter(|owner| *owner != 0)?;
        let enough = match thing.slot(shared.session(), owner) {
            // Who waits for what it has does not know that it has it.
            Some(slot) if waits_for(shared, slot, thing) => ENOUGH,
            Some(slot) => dead_after(shared, members, slot)?,
            None => ENOUGH,
        };
        Some(Wrong {
            what: "a lock that nobody has",
            words: [number, owner.into()],
            enough,
            keeper: None,
        })
    })
}

/// Does the slot's thread sleep until it can have this?
fn waits_for(shared: &SharedSession, slot: &Slot, thing: Thing) -> bool {
    let Some(word) = thing.word(shared) else {
        return false;
    };
    let head = std::ptr::from_ref(shared.session()) as usize;
    let at = (std::ptr::from_ref(word) as usize).checked_sub(head);
    let at = at.filter(|at| *at < size_of::<Session>());
    at.is_some_and(|at| sleeps_on(slot) == Some(SESSION_BASE + at as u64))
}

/// Does a thread sleep until it is told that its turn has come, whom nobody will tell? It is in none of the lists out of which those are taken that are told.
/// `used`: so many slots there may be.
fn never_told(shared: &SharedSession, used: usize, turns: u64) -> Option<Wrong> {
    let s = shared.session();
    if shared.order().is_some() || !s.engine().can(can::RUN_ONE_AT_A_TIME) {
        return None;
    }
    let lists = Lists(s);
    let ready: BTreeSet<u32> = match s.ready_count.load(SeqCst) {
        0 => BTreeSet::new(),
        _ => lists.ready().collect(),
    };
    let is_gone = |i: &usize| {
        let gone = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
        gone.contains(&shared.slot(*i).state.load(SeqCst))
    };
    let is_left_out = |i: &usize| {
        let is_known = ready.contains(&(*i as u32)) || lists.is_queued(*i as u32);
        !is_known && !shared.slot(*i).is_unclaimed(s)
    };
    // Threads in calls of the program's are in no list, either; and that a slot is nobody's may not be true. Of those that sleep so one is as good as the other.
    let others = (0..used).filter(|i| !is_gone(i));
    let all = others.chain((0..used).filter(is_gone)).filter(is_left_out);
    let place = |i: usize| Session::slot_address(SESSION_BASE as usize, i);
    let mut asleep = all.take(MOST_LOOKED_AT).filter(|i| {
        let go = place(*i) + offset_of!(Slot, go);
        sleeps_on(shared.slot(*i)) == Some(go as u64)
    });
    let i = asleep.next()?;
    // One that has just been made waits for the end of the call that made it.
    let enough = match shared.slot(i).state.load(SeqCst) {
        slot_state::BLOCKED => MANY,
        _ => ENOUGH,
    };
    Some(Wrong {
        what: "a thread whose turn never comes",
        words: [i as u64, turns],
        enough,
        keeper: None,
    })
}

/// Does the thread that has the turn sleep in a call, while others wait for it and it is asked again and again to give it up?
fn kept_asleep(shared: &SharedSession, turns: u64) -> Option<Wrong> {
    let s = shared.session();
    if !s.engine().can(can::RUN_ONE_AT_A_TIME) {
        // Whatever stands there: it must not hide what is seen besides.
        return None;
    }
    let holder = s.baton.load(SeqCst);
    let i = holder
        .checked_sub(1)
        .filter(|i| (*i as usize) < MAX_SLOTS)?;
    let slot = shared.slot(i as usize);
    // Of a call that may take long the turn is taken from outside ([`crate::slices`]); and the agent may take long itself. Who doesn't know yet that it has
    // the turn is woken again and again.
    let stays = slot.state.load(SeqCst) == slot_state::RUNNING
        && s.request.kind.load(SeqCst) == request::NONE
        && Lists(s).ready().next().is_some();
    let enough = match state_of(slot).filter(|_| stays)? {
        'S' => MANY,
        // Because it is asked: then it sleeps on. One that computes doesn't.
        'R' => NEVER,
        _ => return None,
    };
    Some(Wrong {
        what: "the turn of a thread that sleeps",
        words: [i.into(), turns],
        enough,
        keeper: None,
    })
}

/// Does a thread keep the box of requests and ask for nothing? Whoever has it asks at once, and gives it back as soon as there is an answer.
fn kept_without_asking(shared: &SharedSession) -> Option<Wrong> {
    let q = &shared.session().request;
    let (taken, kind) = (q.taken.load(SeqCst), q.kind.load(SeqCst));
    (taken != 0 && kind == request::NONE).then_some(Wrong {
        what: "a lock that is not given back",
        // Where many requests are made, a look between one and the next is nothing.
        words: [taken.into(), answered()],
        enough: MANY,
        keeper: taken.checked_sub(1),
    })
}

/// Does a thread keep the session's head, and sleep in a call of the program's? Whoever has it becomes another program at once, or gives it back.
fn kept_in_call(shared: &SharedSession) -> Option<Wrong> {
    let owner = Some(Thing::Head.owner(shared)).filter(|owner| *owner != 0)?;
    let slot = Thing::Head.slot(shared.session(), owner)?;
    let sleeps = state_of(slot) == Some('S')
        && call_of(slot).is_some_and(|(call, words)| {
            let becomes_another = [nr::EXECVE, nr::EXECVEAT].contains(&call);
            let is_ours = words
                .first()
                .is_some_and(|word| (RESERVATION..RESERVATION_END).contains(word));
            !becomes_another && !is_ours
        });
    sleeps.then_some(Wrong {
        what: "a lock that is not given back",
        words: [Thing::Head as u64, owner.into()],
        enough: MANY,
        keeper: owner.checked_sub(1),
    })
}

/// Is the slot's thread one that there is?
fn lives(shared: &SharedSession, members: &Members, slot: &Slot) -> bool {
    let ids = [&slot.kernel_pid, &slot.kernel_tid].map(|id| id.load(SeqCst));
    members.may_have_thread(shared, ids[0], ids[1])
}

/// How often the slot's thread must be seen as dead; `None`: it lives. Who was made in a namespace of processes of its own
/// has asked the agent for its number before a slot names it: as long as there is a thread that no slot names, it may be this one.
fn dead_after(shared: &SharedSession, members: &Members, slot: &Slot) -> Option<u32> {
    if lives(shared, members, slot) {
        return None;
    }
    let is_taken = slot.state.load(SeqCst) != slot_state::FREE;
    Some(match is_taken && has_unnamed_thread(shared) {
        true => MOST,
        false => ENOUGH,
    })
}

/// Is there a thread of the session that no slot names?
fn has_unnamed_thread(shared: &SharedSession) -> bool {
    let used = shared.session().slots_used.load(SeqCst) as usize;
    let named = (0..used.min(MAX_SLOTS)).map(|i| shared.slot(i).kernel_tid.load(SeqCst));
    let named: BTreeSet<u32> = named.collect();
    threads(shared).any(|(_, tid)| !named.contains(&tid))
}

/// All threads of the session, by the kernel's word: the process and the thread.
fn threads(shared: &SharedSession) -> impl Iterator<Item = (u32, u32)> {
    let of = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        let names = tasks.into_iter().flatten().flatten();
        let tids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        tids.map(move |tid| (pid, tid))
    };
    Members::who_map(shared).into_iter().flat_map(of)
}

/// Does the slot's thread sleep until a word of the session changes?
fn sleeps(slot: &Slot) -> bool {
    sleeps_on(slot).is_some()
}

/// The word of the session on which the slot's thread sleeps.
fn sleeps_on(slot: &Slot) -> Option<u64> {
    let (call, words) = call_of(slot)?;
    let end = Session::slot_address(SESSION_BASE as usize, MAX_SLOTS - 1) as u64;
    let word = words.first().copied();
    word.filter(|w| call == nr::FUTEX && (SESSION_BASE..end).contains(w))
}

/// The call in which the slot's thread is, and its words.
fn call_of(slot: &Slot) -> Option<(u64, Vec<u64>)> {
    let ids = [&slot.kernel_pid, &slot.kernel_tid].map(|id| id.load(SeqCst) as pid_t);
    let line = proc_files::text(format!("/proc/{}/task/{}/syscall", ids[0], ids[1])).ok()?;
    crate::asleep::call_of(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A look at the only thread of a child that has the box of requests.
    fn of(child: &Child) -> (SharedSession, Wrong) {
        let shared = SharedSession::create().expect("a session");
        let slot = shared.slot(0);
        slot.kernel_pid.store(child.id(), SeqCst);
        slot.kernel_tid.store(child.id(), SeqCst);
        shared.session().request.taken.store(1, SeqCst);
        let wrong = kept_without_asking(&shared);
        (shared, wrong.expect("a box that is not given back"))
    }

    fn ended(mut child: Child) {
        child.kill().expect("to end");
        child.wait().expect("its end");
    }

    #[test]
    fn who_waits_for_a_processor_is_not_counted() {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let child = command.spawn().expect("a shell");
        let (shared, wrong) = of(&child);
        let mut damage = Damage::new(&shared);
        let until = Instant::now() + Duration::from_secs(60);
        // It gets a processor some time, ...
        while !damage.counts(&shared, wrong) {
            assert!(Instant::now() < until, "it never computed");
            std::thread::sleep(Duration::from_millis(10));
        }
        // ... and from one moment to the next it does not.
        assert!((0..3).any(|_| !damage.counts(&shared, wrong)));
        // SAFETY: a child of ours.
        unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) };
        while state_of(shared.slot(0)) != Some('T') {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!damage.counts(&shared, wrong));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!damage.counts(&shared, wrong));
        ended(child);
    }

    #[test]
    fn who_sleeps_is_counted_and_each_request_is_another_one() {
        let mut command = Command::new("sleep");
        let child = command.arg("1000").spawn().expect("a sleeper");
        let (shared, wrong) = of(&child);
        let mut damage = Damage::new(&shared);
        while state_of(shared.slot(0)) != Some('S') {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(damage.counts(&shared, wrong));
        assert!(kept_without_asking(&shared).is_some_and(|again| again.is_still(&wrong)));
        crate::requests::done(&shared);
        assert!(kept_without_asking(&shared).is_some_and(|other| !other.is_still(&wrong)));
        ended(child);
    }
}
