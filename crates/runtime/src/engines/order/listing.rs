//! The list of all operations of a replay ([`reprise_abi::listing`]): a replay of the recorded program writes it, one with a rebuilt program
//! follows it.
//!
//! An operation [`begin`]s when it is known which one it is: who follows the list then learns the address that its object had in the recording, or
//! has left the recorded path. It [`end`]s when it was made; until then it may begin again, after a handler.

use super::replay;
use crate::common::rebuilt;
use crate::memory::capture::Call;
use crate::thread::Block;
use core::sync::atomic::Ordering::*;
use reprise_abi::listing::{
    chunk_offset, Item, Listing, Place, Word, CALL, CHUNK_WORDS, LISTING_BASE, MAX_CHUNKS,
};
use reprise_abi::order::EntryKind;

pub use crate::thread::in_force::lists_operations as on;

/// A program begins.
pub fn program_begins() {
    if on() {
        // SAFETY: mapped by the plan of such a replay; only atomics.
        let list = unsafe { &*(LISTING_BASE as *const Listing) };
        list.known.store(1, Relaxed);
    }
}

fn place(t: &Block) -> &'static Place {
    // SAFETY: mapped by the plan of such a replay; only atomics.
    let list = unsafe { &*(LISTING_BASE as *const Listing) };
    &list.places[t.slot as usize]
}

fn word(chunk: u32, n: u32) -> &'static Word {
    let chunk = chunk.clamp(1, MAX_CHUNKS);
    let at = LISTING_BASE + chunk_offset(chunk) + 8 * (n as u64 % CHUNK_WORDS as u64);
    // SAFETY: a word of a chunk, as above.
    unsafe { &*(at as *const Word) }
}

/// A chunk that nobody has.
fn new_chunk() -> u32 {
    // SAFETY: as above.
    let list = unsafe { &*(LISTING_BASE as *const Listing) };
    let number = list.chunks.fetch_add(1, Relaxed) + 1;
    if number > MAX_CHUNKS {
        crate::thread::panic::give_up(
            "the recording has more operations than fit into a list of 1 GiB",
        );
    }
    number
}

fn append(t: &Block, item: Item) {
    let p = place(t);
    let (mut chunk, mut n) = (p.chunk.load(Relaxed), p.word.load(Relaxed));
    if chunk == 0 || n as usize == CHUNK_WORDS {
        let new = new_chunk();
        match chunk {
            0 => p.first.store(new, Relaxed),
            last => word(last, 0).store(new as u64, Relaxed),
        }
        (chunk, n) = (new, 1);
        p.chunk.store(chunk, Relaxed);
    }
    word(chunk, n).store(item.to_word(), Relaxed);
    p.word.store(n + 1, Relaxed);
}

/// A rebuilt program leaves the recorded path while the thread is at `pc`: where that is in its own code, for the report.
#[cold]
pub fn note_caller(t: &Block, pc: u64) {
    if rebuilt::on() {
        // SAFETY: as above.
        let list = unsafe { &*(LISTING_BASE as *const Listing) };
        list.caller.store(rebuilt::caller(t, pc), Relaxed);
    }
}

/// What comes next in the list of the thread.
fn next(t: &Block) -> Option<Item> {
    let p = place(t);
    let mut chunk = p.chunk.load(Relaxed);
    if chunk != 0 && p.word.load(Relaxed) as usize == CHUNK_WORDS {
        chunk = word(chunk, 0).load(Relaxed) as u32;
        p.chunk.store(chunk, Relaxed);
        p.word.store(1, Relaxed);
    }
    match chunk {
        0 => None,
        _ => Item::from_word(word(chunk, p.word.load(Relaxed)).load(Relaxed)),
    }
}

fn advance(t: &Block) {
    let p = place(t);
    p.word.store(p.word.load(Relaxed) + 1, Relaxed);
}

/// The thread is about to make this operation on the object at this address: the address that the object had in the recording.
#[inline(always)]
pub fn begin(t: &mut Block, kind: EntryKind, address: u64) -> u64 {
    if !on() {
        return address;
    }
    begin_listed(t, kind, address)
}

#[cold]
fn begin_listed(t: &mut Block, kind: EntryKind, address: u64) -> u64 {
    let what = kind as u8;
    t.order().item = Item { what, address }.to_word();
    t.order().named = address;
    if rebuilt::on() {
        let item = next(t);
        let fits = |i: &Item| i.what == what && rebuilt::same_object(i.address, address);
        let Some(item) = item.filter(fits) else {
            let recorded = item.unwrap_or(Item {
                what: EntryKind::Quiet as u8,
                address: 0,
            });
            replay::not_as_listed(t, kind, address, recorded);
        };
        t.order().named = item.address;
    }
    t.order().named
}

/// It was made.
#[inline(always)]
pub fn end(t: &mut Block) {
    if on() {
        end_listed(t);
    }
}

#[cold]
fn end_listed(t: &mut Block) {
    if rebuilt::on() {
        return advance(t);
    }
    if let Some(item) = Item::from_word(t.order().item) {
        append(t, item);
    }
}

/// An operation without an object.
#[inline(always)]
pub fn whole(t: &mut Block, kind: EntryKind) {
    begin(t, kind, 0);
    end(t);
}

/// Is the choice that comes next, for an object of this name, one for the object at this address?
pub fn is_choice_for(t: &Block, object: u64, name: u32) -> bool {
    if !rebuilt::on() {
        return super::name_of(object) == name;
    }
    let is_it = |i: Item| {
        i.what == EntryKind::Chosen as u8 && i.address == rebuilt::recorded_variable(object)
    };
    next(t).is_some_and(is_it)
}

/// Are the inputs of a call those of the recorded one, whose hash is `recorded`? Of what may hold addresses the list says what else is in it.
#[inline(always)]
pub fn same_inputs(t: &mut Block, c: &Call, recorded: u64, actual: u64) -> bool {
    if !on() {
        return recorded == actual;
    }
    same_listed(t, c, recorded, actual)
}

#[cold]
fn same_listed(t: &mut Block, c: &Call, recorded: u64, actual: u64) -> bool {
    if recorded == 0 || !rebuilt::holds_addresses(c) {
        return recorded == actual;
    }
    let item = Item {
        what: CALL,
        address: rebuilt::hash_of_inputs(t, c) >> 8,
    };
    if !rebuilt::on() {
        append(t, item);
        return recorded == actual;
    }
    let same = next(t) == Some(item);
    advance(t);
    same
}
