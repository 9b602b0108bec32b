//! Words that no healthy recording shows for long: what is looked at, and how often it must be seen to be certain. Each look is for itself.

use super::{threads, Wrong};
use crate::members::Members;
use crate::requests::answered;
use crate::slices::state_of;
use crate::stopped::Thing;
use libc::pid_t;
use reprise_abi::engine::can;
use reprise_abi::layout::{MAX_SLOTS, RESERVATION, RESERVATION_END, SESSION_BASE};
use reprise_abi::schedule::{owner_of, Lists, OWNER_DIED, WAITERS};
use reprise_abi::session::{request, slot_state, Session, Slot, BATON_FREE};
use reprise_abi::syscalls::nr;
use reprise_launch::proc_files::Whereabouts;
use reprise_launch::SharedSession;
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::sync::atomic::Ordering::*;

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

/// What all look at.
#[derive(Default)]
pub struct Look {
    /// The lock by which threads take turns.
    lock: u32,
    /// How many turns there were.
    turns: u64,
    /// Nobody has the lock, and there was no turn since the last look.
    still: bool,
    /// So many slots were in use at some time.
    used: usize,
    /// A shard for which somebody waits long, who has it (a slot plus 1), and the number of the operation that is made on it.
    shard: Option<(u32, (u32, u64))>,
}

impl Look {
    /// A new look.
    pub fn begin(&mut self, shared: &SharedSession) {
        let s = shared.session();
        self.lock = s.schedule_lock.load(SeqCst);
        let turns = s.baton_generation.load(SeqCst);
        self.still = self.turns == turns && self.lock == 0;
        self.turns = turns;
        let used = s.slots_used.load(SeqCst) as usize;
        self.used = self.used.max(used.min(MAX_SLOTS));
    }
}

/// One thing that is looked at.
type See = fn(&mut Look, &SharedSession, &Members) -> Option<Wrong>;

/// All of them. The scheduler's lock, the baton and shards have looks of their own beside the other things that one thread at a time has.
pub const LOOKS: [See; 10] = [
    |look, shared, members| turns(look, shared, members),
    |_, shared, members| kept_by_nobody(Thing::Requests, shared, members),
    |_, shared, members| kept_by_nobody(Thing::Head, shared, members),
    |_, shared, members| kept_by_nobody(Thing::Output, shared, members),
    |_, shared, members| kept_by_nobody(Thing::Errors, shared, members),
    |look, shared, _| never_told(look, shared),
    |look, shared, _| kept_asleep(look, shared),
    |_, shared, _| kept_without_asking(shared),
    |_, shared, _| kept_in_call(shared),
    kept_shard,
];

/// Do the words by which threads take turns say what can't be?
fn turns(look: &Look, shared: &SharedSession, members: &Members) -> Option<Wrong> {
    let (what, enough) = wrong(shared, members, look.lock)?;
    Some(Wrong {
        what,
        words: [look.lock.into(), look.turns],
        enough,
        keeper: None,
    })
}

/// What is wrong with them, and how often it must be seen.
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

/// Does one thread at a time have this, and is there no thread that has it?
fn kept_by_nobody(thing: Thing, shared: &SharedSession, members: &Members) -> Option<Wrong> {
    let owner = Some(thing.owner(shared)).filter(|owner| *owner != 0)?;
    let enough = match thing.slot(shared.session(), owner) {
        // Who waits for what it has does not know that it has it.
        Some(slot) if waits_for(shared, slot, thing) => ENOUGH,
        Some(slot) => dead_after(shared, members, slot)?,
        None => ENOUGH,
    };
    Some(Wrong {
        what: "a lock that nobody has",
        words: [thing as u64, owner.into()],
        enough,
        keeper: None,
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
fn never_told(look: &Look, shared: &SharedSession) -> Option<Wrong> {
    let s = shared.session();
    if !look.still || shared.order().is_some() || !s.engine().can(can::RUN_ONE_AT_A_TIME) {
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
    let others = (0..look.used).filter(|i| !is_gone(i));
    let all = others
        .chain((0..look.used).filter(is_gone))
        .filter(is_left_out);
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
        words: [i as u64, look.turns],
        enough,
        keeper: None,
    })
}

/// Does the thread that has the turn sleep in a call, while others wait for it and it is asked again and again to give it up?
fn kept_asleep(look: &Look, shared: &SharedSession) -> Option<Wrong> {
    let s = shared.session();
    if !look.still || shared.order().is_some() || !s.engine().can(can::RUN_ONE_AT_A_TIME) {
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
        words: [i.into(), look.turns],
        enough,
        keeper: None,
    })
}

/// Does a thread keep the box of requests and ask for nothing? Whoever has it asks at once, and gives it back as soon as there is an answer.
pub fn kept_without_asking(shared: &SharedSession) -> Option<Wrong> {
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
    match Whereabouts::of_thread(ids[0], ids[1]).ok()?? {
        Whereabouts::InCall { number, words } => Some((number, words)),
        _ => None,
    }
}

/// Of a shard for which somebody waits long, under `order`: has whoever has it not given it back since? Each operation on it changes its word, and takes a few
/// instructions. Several may be waited for, and each of those who wait says so again and again: as long as the operation is the same, it is the same shard that
/// is looked at.
fn kept_shard(look: &mut Look, shared: &SharedSession, members: &Members) -> Option<Wrong> {
    let head = shared.order()?;
    let held = |number: u32| Some((number, head.shards.get(number as usize)?.holder()?));
    let wanted = || held(head.shard_wanted.load(SeqCst).checked_sub(1)?);
    let still = look.shard.filter(|shard| held(shard.0) == Some(*shard));
    look.shard = still.or_else(wanted);
    let (number, (who, operation)) = look.shard?;
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
