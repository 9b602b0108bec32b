//! Operations on objects: each waits until those have been made that came before it on its object, and lets those go on that wait for it.

use super::entries::is_signal_next;
use super::entries::{
    consume, due, faults_next, is_quiet, look, made, operation, signal_comes, tell_of_signal,
    unlike,
};
use super::signals::plant_if_next;
use super::Replay;
use crate::locked::learned;
use crate::order::{cut, name_of, name_of_run, shards, turns, Order, Runs};
use crate::races::objects::Kind as Object;
use crate::races::{self, Atomic};
use crate::ring;
use crate::thread::{Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::Kind;
use reprise_abi::order::EntryKind;

/// Waits until operation `n` on a shard may be made.
fn wait_for_shard(number: u32, n: u64) {
    let shard = shards::shard(number);
    turns::wait_for(turns::key_of_shard(number), n - 1, || {
        shard.sequence.load(SeqCst) / 2 == n - 1
    });
}

/// Before an instruction in a [stub](crate::locked) is made: waits for its turn. What the shard's sequence becomes after it.
///
/// If the place of a signal is to be looked for from the instruction on, [`end_operation`] is called in any case: the stub then finds that
/// somebody waits for the shard.
pub fn begin_operation(t: &mut Block, number: u32) -> u64 {
    let shard = shards::shard(number);
    if let Some(e) = due(t, number) {
        if e.kind != EntryKind::Ordered || e.object != number {
            unlike(t, EntryKind::Ordered, number, &e);
        }
        wait_for_shard(number, e.value);
    }
    made(t);
    if races::on() {
        races::shard(t, number);
    }
    if signal_comes(t) {
        t.order.waits_itself = true;
        shard.room.waiting.fetch_add(1, SeqCst);
    }
    shard.sequence.load(SeqCst) + 2
}

/// It was made, and the sequence is what `next` says: those who wait for that go on.
fn call_waiting(t: &mut Block, number: u32, next: u64) {
    if core::mem::take(&mut t.order.waits_itself) {
        shards::shard(number).room.waiting.fetch_sub(1, SeqCst);
    }
    turns::call_for(turns::key_of_shard(number), next / 2);
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
        plant_if_next(t);
    }
}

impl Order for Replay {
    const REPLAYS: bool = true;

    fn turn(t: &mut Block, object: &Runs) -> bool {
        let address = object as *const Runs as u64;
        if signal_comes(t) {
            cut::replay::must_be_found(t);
            // The handler runs first, as it did then; an operation that is put off for nothing would be so for ever.
            t.order.put_off += 1;
            if t.order.put_off > 2 {
                let h = ring::peek();
                operation(t, EntryKind::Passed as u32, &[address], h.as_ref());
            }
            t.slot().signal_pending.store(1, Relaxed);
            return false;
        }
        t.order.put_off = 0;
        if faults_next(t) {
            return true;
        }
        let name = name_of_run(address);
        let Some(e) = due(t, name) else {
            return true;
        };
        if e.kind != EntryKind::Passed || e.object != name {
            unlike(t, EntryKind::Passed, name, &e);
        }
        turns::wait_for(address, e.value - 1, || object.count() == e.value - 1);
        true
    }

    fn passed(t: &mut Block, object: &Runs) {
        let (n, _) = object.pass_among(t.slot);
        turns::call_for(object as *const Runs as u64, n);
        made(t);
    }

    /// Who waits for it is called when the lock is free again: it couldn't have the lock earlier.
    fn locked(t: &mut Block, object: &Runs) {
        object.pass_among(t.slot);
        made(t);
    }

    fn passed_among(t: &mut Block, object: &Runs) {
        Self::passed(t, object);
    }

    fn handler_first(t: &mut Block, entry: u64) -> bool {
        let now = !is_quiet(t)
            && is_signal_next(t)
                .is_some_and(|h| h.kind == Kind::Signal as u8 && h.value as u64 == entry);
        if now {
            t.slot().signal_pending.store(1, Relaxed);
        }
        now
    }

    fn leaves(t: &mut Block) {
        tell_of_signal(t);
    }

    fn failure(t: &mut Block) -> Option<u32> {
        if signal_comes(t) {
            return None;
        }
        let e = look(t)?;
        if is_quiet(t) || e.kind != EntryKind::Failed {
            return None;
        }
        consume(t);
        tell_of_signal(t);
        Some(e.value as u32)
    }

    fn failed(_t: &mut Block, _errno: u32) {}

    fn ordered<R>(t: &mut Block, address: u64, make: impl FnOnce() -> R) -> R {
        let number = shards::number_of(address);
        if faults_next(t) {
            return make();
        }
        if let Some(e) = due(t, number) {
            if e.kind != EntryKind::Ordered || e.object != number {
                unlike(t, EntryKind::Ordered, number, &e);
            }
            wait_for_shard(number, e.value);
        }
        let r = make();
        let before = shards::shard(number).sequence.fetch_add(2, SeqCst);
        turns::call_for(turns::key_of_shard(number), before / 2 + 1);
        made(t);
        r
    }

    fn seen(t: &mut Block, address: u64, size: usize, look: impl Fn() -> u64) -> u64 {
        // If there is nothing to be seen, the fault comes now as it did then.
        look();
        let number = shards::number_of(address);
        let Some(e) = due(t, number) else {
            made(t);
            return t
                .order
                .known
                .get(address, size)
                .unwrap_or_else(|| operation(t, EntryKind::Seen as u32, &[address], None));
        };
        if e.kind != EntryKind::Seen || e.object != number {
            operation(t, EntryKind::Seen as u32, &[address], None);
        }
        let shard = shards::shard(number);
        turns::wait_for(turns::key_of_shard(number), e.value, || {
            shard.sequence.load(SeqCst) / 2 >= e.value
        });
        consume(t);
        let v = Self::value(t, || 0);
        t.order.known.put(address, size, v);
        v
    }

    fn loaded(t: &mut Block, pc: u64, address: u64, size: usize) -> u64 {
        let Some(e) = due(t, address as u32) else {
            made(t);
            let Some(v) = t.order.known.get(address, size) else {
                operation(t, EntryKind::Loaded as u32, &[address], None)
            };
            learned::check_known(pc, address, size, v);
            return v;
        };
        if e.kind != EntryKind::Loaded || e.object != address as u32 {
            unlike(t, EntryKind::Loaded, address as u32, &e);
        }
        let before = t.order.known.get(address, size);
        learned::await_value(pc, address, size, before, e.value);
        made(t);
        t.order.known.put(address, size, e.value);
        e.value
    }

    fn value(t: &mut Block, _compute: impl FnOnce() -> u64) -> u64 {
        match due(t, 0) {
            Some(e) if e.kind == EntryKind::Value => {
                made(t);
                e.value
            }
            _ => operation(t, EntryKind::Value as u32, &[], None),
        }
    }

    fn choice(t: &mut Block, object: u64) -> Option<Option<u64>> {
        if signal_comes(t) {
            return Some(None);
        }
        let chosen = look(t)
            .filter(|e| !is_quiet(t) && e.kind == EntryKind::Chosen && e.object == name_of(object));
        if chosen.is_some() {
            made(t);
        }
        Some(chosen.map(|e| e.value))
    }

    fn chosen(_t: &mut Block, _object: u64, _n: u64) {}

    fn learns(t: &mut Block, kind: Object, name: u64) {
        if races::on() {
            races::learns(t, kind, name);
        }
    }

    fn lets_know(t: &mut Block, kind: Object, name: u64) {
        if races::on() {
            races::lets_know(t, kind, name);
        }
    }

    fn atomic(t: &mut Block, f: &Frame, a: &Atomic) {
        if races::on() {
            races::atomic(t, f, a);
        }
    }

    fn faulted(_t: &mut Block) {}
}
