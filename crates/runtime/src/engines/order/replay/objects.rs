//! Operations on objects: each waits until those have been made that came before it on its object, and lets those go on that wait for it.

use super::entries::is_signal_next;
use super::entries::{
    arrive, comes_in_code, consume, depart, due, faults_next, is_quiet, look, made, operation,
    settle, signal_comes, tell_of_signal, unlike,
};
use super::life::{is_done, stay_if_done};
use super::signals::look_ahead;
use super::Replay;
use crate::engine::order::{Order, Runs};
use crate::engine::waits::{in_kernel, wake, Deadline, Wait, EVERYBODY};
use crate::engines::order::{cut, listing, name_of, name_of_run, turns, unlogged};
use crate::log::awaited;
use crate::log::awaited::{begin_wait, Looks};
use crate::log::debugger;
use crate::log::ring;
use crate::log::total;
use crate::races::objects::Kind as Object;
use crate::races::{self, Atomic};
use crate::sync::libc::side::object_of;
use crate::sync::locked;
use crate::sync::locked::enter;
use crate::sync::locked::learned;
use crate::thread::rings::head;
use crate::thread::shards;
use crate::thread::{Block, Frame};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::*;
use reprise_abi::event::Kind;
use reprise_abi::order::EntryKind;
use reprise_abi::waits::What;

/// Waits until operation `n` on a shard may be made.
/// After so many ns one who sleeps until another thread lets it go on looks whether it still waits in vain; the next time after twice as many, up to ...
const PATIENCE: i64 = 20_000_000;
/// ... so many.
const LONGEST_PATIENCE: i64 = 1_000_000_000;

fn wait_for_shard(t: &mut Block, number: u32, n: u64) {
    let shard = shards::shard(number);
    turns::wait_for(t, awaited::key_of_shard(number), n - 1, || {
        shard.sequence.load(SeqCst) / 2 == n - 1
    });
}

/// Before an instruction in a [stub](crate::sync::locked) is made: waits for its turn. The shard, and what its sequence becomes after it.
///
/// If the place of a signal is to be looked for from the instruction on, or nothing follows it as yet, [`end_operation`] is called in any case:
/// the stub then finds that somebody waits for the shard.
///
/// Where operations are listed, the word's `address` is told, and decides which shard it is.
pub fn begin_operation(t: &mut Block, number: u32, address: Option<u64>) -> (u32, u64) {
    let entry = due(t, number);
    let number = match address {
        Some(a) => shards::number_of(listing::begin(t, EntryKind::Ordered, a)),
        None => number,
    };
    let shard = shards::shard(number);
    if let Some(e) = entry {
        if e.kind != EntryKind::Ordered || e.object != number {
            unlike(t, EntryKind::Ordered, number, &e);
        }
        wait_for_shard(t, number, e.value);
    }
    // The driver may end a process that has done all. Whoever has the shard open still would keep the others from going on.
    let may_be_last = t.order().asked <= 1 && t.quiet_left().load(Relaxed) == 0;
    if may_be_last {
        t.slot().busy.store(1, SeqCst);
    }
    listing::end(t);
    made(t);
    let is_last = may_be_last && ring::is_used_up();
    if may_be_last && !is_last {
        t.slot().busy.store(0, SeqCst);
    }
    if crate::thread::in_force::looks_for_races() {
        races::shard(t, number, locked::is_in_libc(t.saved().resume));
    }
    if is_last || comes_in_code(t) {
        t.order().waits_itself = true;
        shard.room.waiting.fetch_add(1, SeqCst);
    }
    (number, shard.sequence.load(SeqCst) + 2)
}

/// Waits for the turn of an operation on the object at this address, whose shard is then the thread's. Its number.
fn wait_for_ordered(t: &mut Block, address: u64) -> u32 {
    let entry = due(t, shards::number_of(address));
    let number = shards::number_of(listing::begin(t, EntryKind::Ordered, address));
    if let Some(e) = entry {
        if e.kind != EntryKind::Ordered || e.object != number {
            unlike(t, EntryKind::Ordered, number, &e);
        }
        wait_for_shard(t, number, e.value);
    }
    number
}

/// The shard is open for the next operation.
fn open_shard(number: u32) {
    let before = shards::shard(number).sequence.fetch_add(2, SeqCst);
    awaited::call_for(awaited::key_of_shard(number), before / 2 + 1);
}

/// As [`Order::ordered`], of a call, whose event comes behind the operation: that is out of the way when the call is made.
pub(super) fn ordered_call<R>(
    t: &mut Block,
    address: u64,
    make: impl FnOnce(&mut Block) -> R,
) -> R {
    let number = wait_for_ordered(t, address);
    listing::end(t);
    made(t);
    let r = make(t);
    open_shard(number);
    r
}

/// The address by which an object is known that is in this run.
fn address_of(run: &Runs) -> u64 {
    let run = run as *const Runs as u64;
    object_of(run).unwrap_or(run)
}

/// It was made, and the sequence is what `next` says: those who wait for that go on.
fn call_waiting(t: &mut Block, number: u32, next: u64) {
    if core::mem::take(&mut t.order().waits_itself) {
        shards::shard(number).room.waiting.fetch_sub(1, SeqCst);
    }
    awaited::call_for(awaited::key_of_shard(number), next / 2);
    t.slot().busy.store(0, SeqCst);
}

/// It faulted, and counts as made.
pub fn faulted_operation(t: &mut Block, number: u32, next: u64) {
    call_waiting(t, number, next);
}

/// After it. No gate follows at which it would be seen that a signal comes to the code behind the instruction.
pub fn end_operation(t: &mut Block, number: u32, next: u64) {
    call_waiting(t, number, next);
    after_operation(t);
}

/// After an operation in a stub, when nobody waits for it any more.
pub fn after_operation(t: &mut Block) {
    if !is_quiet(t) {
        look_ahead(t);
    }
    stay_if_done(t);
}

impl Order for Replay {
    const REPLAYS: bool = true;

    fn begins_instruction(t: &mut Block, shard: u64, f: &Frame) -> Option<(u64, u64)> {
        enter::note_place(t);
        enter::show(t, f, false);
        let (number, address) = match listing::on() {
            true => (shards::number_of(shard), Some(shard)),
            false => (shards::number_at(shard), None),
        };
        let (number, next) = begin_operation(t, number, address);
        Some((shards::place(number), next))
    }

    fn made_instruction(t: &mut Block, shard: u64, f: &Frame) {
        enter::show(t, f, true);
        end_operation(t, shards::number_at(shard), t.saved().next);
    }

    fn begins_load(t: &mut Block, f: &Frame) {
        enter::show(t, f, false);
    }

    fn made_load(t: &mut Block) {
        after_operation(t);
    }

    fn faulted_in_stub(t: &mut Block, number: Option<u32>) {
        if let Some(number) = number {
            faulted_operation(t, number, t.saved().next);
        }
    }

    /// Who waits for no certain time says so: if all wait, that is the end.
    fn wait(
        t: &mut Block,
        word: &AtomicU32,
        value: u32,
        deadline: Option<&Deadline>,
        shared: bool,
    ) -> Wait {
        let tells = deadline.is_none_or(|d| d.looks);
        // Whoever wakes one of another process, or one that looks for more than the word, tells nobody.
        let is_told = !shared && deadline.is_none();
        let looks = (tells && !is_told).then(Looks::begin);
        if let Some(looks) = &looks {
            if word.load(SeqCst) != value {
                return Wait::Changed;
            }
            looks.at(word, value);
        }
        let soon = (looks.is_some() && deadline.is_none()).then(|| Deadline::soon(Self::now()));
        let waits =
            (tells && is_told).then(|| begin_wait(What::Word(word.as_ptr() as u64).key(), 0));
        let until = deadline.or(soon.as_ref());
        let mut patience = PATIENCE;
        loop {
            let seen = waits.as_ref().map(|w| w.generation());
            if let (Some(w), Some(generation)) = (&waits, seen) {
                if word.load(SeqCst) != value {
                    return Wait::Changed;
                }
                w.sleeps(generation);
            }
            if total::runs() {
                total::give_way();
                return Wait::Woken;
            }
            // It sleeps on the word, so nobody wakes it who calls others of its room; and until it has looked it counts as one who may go on.
            let again = waits
                .as_ref()
                .map(|_| Deadline::after(Self::now(), patience));
            // It needs no processor meanwhile: main waits so for those who compute.
            let sleeping = &head().sleeping;
            sleeping.fetch_add(1, Relaxed);
            let how = in_kernel(
                t,
                word,
                value,
                until.or(again.as_ref()),
                shared,
                total::begin_asleep,
                |_| false,
            );
            sleeping.fetch_sub(1, Relaxed);
            match how {
                Wait::TimedOut if waits.is_some() => {
                    patience = (2 * patience).min(LONGEST_PATIENCE);
                }
                Wait::TimedOut if soon.is_some() => return Wait::Woken,
                how => return how,
            }
        }
    }

    fn wake(_t: &mut Block, address: *const u32, n: u32, shared: bool) {
        awaited::tell_woken(address as u64);
        // Of those who have said that they wait, none may be left for whom that is not so any more.
        wake(address, if shared { n } else { EVERYBODY }, shared);
    }

    #[inline(always)]
    fn pause(_t: &mut Block) {
        match total::runs() {
            true => total::give_way(),
            false => core::hint::spin_loop(),
        }
    }

    #[inline(always)]
    fn does_not_count(t: &mut Block) {
        unlogged::does_not_count(t);
    }

    fn shows() -> bool {
        debugger::traces()
    }

    fn turn(t: &mut Block, object: &Runs) -> bool {
        let address = object as *const Runs as u64;
        arrive(t);
        if signal_comes(t) {
            cut::replay::must_be_found(t);
            // The handler runs first, as it did then; an operation that is put off for nothing would be so for ever.
            t.order().put_off += 1;
            if t.order().put_off > 2 {
                let h = ring::peek();
                operation(t, EntryKind::Passed as u32, &[address], h.as_ref());
            }
            t.slot().signal_pending.store(1, Relaxed);
            return false;
        }
        t.order().put_off = 0;
        if faults_next(t) {
            return true;
        }
        let entry = due(t, name_of_run(address));
        let name = name_of(listing::begin(t, EntryKind::Passed, address_of(object)));
        let Some(e) = entry else {
            return true;
        };
        if e.kind != EntryKind::Passed || e.object != name {
            unlike(t, EntryKind::Passed, name, &e);
        }
        turns::wait_for(t, address, e.value - 1, || object.count() == e.value - 1);
        true
    }

    fn passed(t: &mut Block, object: &Runs) {
        listing::begin(t, EntryKind::Passed, address_of(object));
        let (n, _) = object.pass_among(t.slot);
        awaited::call_for(object as *const Runs as u64, n);
        listing::end(t);
        made(t);
    }

    /// Who waits for it is called when the lock is free again: it couldn't have the lock earlier.
    fn locked(t: &mut Block, object: &Runs) {
        listing::begin(t, EntryKind::Passed, address_of(object));
        object.pass_among(t.slot);
        listing::end(t);
        made(t);
    }

    fn passed_among(t: &mut Block, object: &Runs) {
        Self::passed(t, object);
    }

    fn handler_first(t: &mut Block, entry: u64) -> bool {
        arrive(t);
        let now = !is_quiet(t)
            && is_signal_next(t)
                .is_some_and(|h| h.kind == Kind::Signal as u8 && h.value as u64 == entry);
        if now {
            t.slot().signal_pending.store(1, Relaxed);
        }
        now
    }

    fn enters(t: &mut Block) {
        if !t.order().looked {
            settle(t);
        }
        unlogged::enters(t);
    }

    fn leaves(t: &mut Block, returns: bool) {
        depart(t);
        tell_of_signal(t);
        unlogged::leaves(t, returns);
        if is_done(t) {
            // The long way out leads by where it stays.
            t.slot().signal_pending.store(1, Relaxed);
        }
    }

    fn failure(t: &mut Block) -> Option<u32> {
        arrive(t);
        if signal_comes(t) {
            return None;
        }
        let e = look(t)?;
        if is_quiet(t) || e.kind != EntryKind::Failed {
            return None;
        }
        listing::whole(t, EntryKind::Failed);
        consume(t);
        tell_of_signal(t);
        Some(e.value as u32)
    }

    fn failed(_t: &mut Block, _errno: u32) {}

    fn ordered<R>(t: &mut Block, address: u64, make: impl FnOnce() -> R) -> R {
        if faults_next(t) {
            return make();
        }
        let number = wait_for_ordered(t, address);
        let r = make();
        open_shard(number);
        listing::end(t);
        made(t);
        r
    }

    fn seen(t: &mut Block, address: u64, size: usize, look: impl Fn() -> u64) -> u64 {
        // If there is nothing to be seen, the fault comes now as it did then.
        look();
        let entry = due(t, shards::number_of(address));
        let address = listing::begin(t, EntryKind::Seen, address);
        listing::end(t);
        let number = shards::number_of(address);
        let Some(e) = entry else {
            made(t);
            return t
                .known()
                .get(address, size)
                .unwrap_or_else(|| operation(t, EntryKind::Seen as u32, &[address], None));
        };
        if e.kind != EntryKind::Seen || e.object != number {
            operation(t, EntryKind::Seen as u32, &[address], None);
        }
        let shard = shards::shard(number);
        turns::wait_for(t, awaited::key_of_shard(number), e.value, || {
            shard.sequence.load(SeqCst) / 2 >= e.value
        });
        consume(t);
        let v = Self::value(t, || 0);
        t.known().put(address, size, v);
        v
    }

    fn known_as(t: &Block, address: u64) -> u64 {
        match listing::on() {
            true => t.order().named,
            false => address,
        }
    }

    fn loaded(t: &mut Block, pc: u64, address: u64, size: usize) -> u64 {
        let entry = due(t, address as u32);
        let name = listing::begin(t, EntryKind::Loaded, address);
        listing::end(t);
        let Some(e) = entry else {
            made(t);
            let Some(v) = t.known().get(name, size) else {
                operation(t, EntryKind::Loaded as u32, &[address], None)
            };
            learned::check_known(pc, address, size, v);
            return v;
        };
        if e.kind != EntryKind::Loaded || e.object != name as u32 {
            unlike(t, EntryKind::Loaded, name as u32, &e);
        }
        let before = t.known().get(name, size);
        learned::await_value(pc, address, size, before, e.value);
        made(t);
        t.known().put(name, size, e.value);
        e.value
    }

    fn value(t: &mut Block, _compute: impl FnOnce() -> u64) -> u64 {
        match due(t, 0) {
            Some(e) if e.kind == EntryKind::Value => {
                listing::whole(t, EntryKind::Value);
                made(t);
                e.value
            }
            _ => operation(t, EntryKind::Value as u32, &[], None),
        }
    }

    fn choice(t: &mut Block, object: u64) -> Option<Option<u64>> {
        arrive(t);
        if signal_comes(t) {
            return Some(None);
        }
        let chosen = look(t).filter(|e| {
            !is_quiet(t)
                && e.kind == EntryKind::Chosen
                && listing::is_choice_for(t, object, e.object)
        });
        if chosen.is_some() {
            listing::begin(t, EntryKind::Chosen, object);
            listing::end(t);
            made(t);
        }
        Some(chosen.map(|e| e.value))
    }

    fn chosen(_t: &mut Block, _object: u64, _n: u64) {}

    fn learns(t: &mut Block, kind: Object, name: u64) {
        if crate::thread::in_force::looks_for_races() {
            races::learns(t, kind, name);
        }
    }

    fn lets_know(t: &mut Block, kind: Object, name: u64) {
        if crate::thread::in_force::looks_for_races() {
            races::lets_know(t, kind, name);
        }
    }

    fn atomic(t: &mut Block, f: &Frame, a: &Atomic) {
        if crate::thread::in_force::looks_for_races() {
            races::atomic(t, f, a);
        }
    }

    fn faulted(_t: &mut Block) {}
}
