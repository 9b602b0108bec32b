//! What of a trace of `order` goes to which ring, and where it lies there: so that a replay can be fed from any place on, and so that the how-manieth
//! of a thread an event is can be said.

use reprise_abi::event::{Event, Kind, Tag, NO_SLOT};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::ENTRY_LEN;
use reprise_trace::{Moment, RingStart, Stamps};
use std::collections::BTreeMap;

/// An event of the trace, of a slot.
#[derive(Clone, Copy)]
struct Piece {
    /// Its number in the trace.
    number: u64,
    /// How many events and entries of the slot come before it.
    items: u64,
    /// Where it begins in the slot's ring.
    at: u64,
}

/// The end of a slot's thread that could not say so itself ([`Kind::Gone`]).
struct Gone {
    number: u64,
    at: u64,
    born: u64,
}

/// All that a slot gets.
#[derive(Default)]
struct Share {
    pieces: Vec<Piece>,
    gone: Vec<Gone>,
    items: u64,
    bytes: u64,
}

/// A trace, sorted by slots.
#[derive(Default)]
pub struct Rings {
    shares: BTreeMap<usize, Share>,
    /// Stamps of which the trace has an event.
    pub(crate) stamps: Stamps,
}

/// What of an event goes to its slot's ring; `None`: nothing.
pub(crate) fn to_ring<'a>(e: &Event<'a>) -> Option<(usize, &'a [u8])> {
    let slot = e.header.slot as usize;
    let nowhere = matches!(e.kind, Kind::End | Kind::Gone);
    if nowhere || e.header.slot == NO_SLOT || slot >= MAX_SLOTS {
        return None;
    }
    let entries = e.sections().find(|s| s.tag == Tag::Entries);
    Some(match (e.kind, entries) {
        (Kind::Sync, Some(s)) => (slot, s.bytes),
        _ => (slot, e.bytes()),
    })
}

impl Rings {
    /// Before the first event of a trace that begins at this moment.
    pub fn beginning(moment: &Moment) -> Rings {
        let mut rings = Rings::default();
        for r in &moment.rings {
            let share = rings.shares.entry(r.slot as usize).or_default();
            (share.bytes, share.items) = (r.at, r.items);
        }
        rings.stamps.add_below(moment.stamp);
        rings
    }

    /// The beginning of a trace whose first event has this number.
    pub(crate) fn starts(&self, number: u64) -> Vec<RingStart> {
        let start = |(slot, share): (&usize, &Share)| RingStart {
            slot: *slot as u16,
            at: share.position(number),
            items: share
                .pieces
                .get(share.first(number))
                .map_or(share.items, |p| p.items),
        };
        self.shares.iter().map(start).collect()
    }

    /// Nothing is asked of events before this one any more.
    pub(crate) fn forget_before(&mut self, number: u64) {
        for share in self.shares.values_mut() {
            share.pieces.drain(..share.first(number));
            share.gone.retain(|g| g.number >= number);
        }
    }

    /// Event `number` of the trace. They come in their order.
    pub fn note(&mut self, number: u64, e: &Event<'_>) {
        let slot = e.header.slot as usize;
        if e.kind == Kind::Gone && slot < MAX_SLOTS {
            let share = self.shares.entry(slot).or_default();
            let (at, born) = (share.bytes, e.arg(0));
            share.gone.push(Gone { number, at, born });
        }
        let Some((slot, bytes)) = to_ring(e) else {
            return;
        };
        self.stamps.note(e);
        let share = self.shares.entry(slot).or_default();
        share.pieces.push(Piece {
            number,
            items: share.items,
            at: share.bytes,
        });
        share.bytes += bytes.len() as u64;
        share.items += match e.kind {
            Kind::Sync => (bytes.len() / ENTRY_LEN) as u64,
            _ => 1,
        };
    }

    /// Slots that get something.
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.shares.keys().copied()
    }

    /// How many events and entries of the slot come before the event with this number; `None`: it is none of the slot's.
    pub fn items_before(&self, slot: usize, number: u64) -> Option<u64> {
        let pieces = &self.shares.get(&slot)?.pieces;
        let i = pieces.binary_search_by_key(&number, |p| p.number).ok()?;
        Some(pieces[i].items)
    }

    /// Number of the event that comes when the slot's threads have used up so many events and entries; `None`: there is none.
    pub fn event_after(&self, slot: usize, items: u64) -> Option<u64> {
        let share = self.shares.get(&slot).filter(|s| items < s.items)?;
        let i = share.pieces.partition_point(|p| p.items <= items);
        Some(share.pieces[i.checked_sub(1)?].number)
    }

    /// Number of the first event of the trace that is wanted where each slot's ring is to hold what comes from `tail` on. `is_past`: has the slot
    /// been given to another thread than that with this birth?
    pub(crate) fn first_wanted(
        &self,
        tail: impl Fn(usize) -> u64,
        is_past: impl Fn(usize, u64) -> bool,
    ) -> Option<u64> {
        let of_slot = |(slot, share): (&usize, &Share)| {
            let tail = tail(*slot);
            let i = share.pieces.partition_point(|p| p.at <= tail);
            let piece = (tail < share.bytes).then(|| share.pieces.get(i.wrapping_sub(1)));
            let gone = share
                .gone
                .iter()
                .find(|g| g.at >= tail && !is_past(*slot, g.born));
            let numbers = [piece.flatten().map(|p| p.number), gone.map(|g| g.number)];
            numbers.into_iter().flatten().min()
        };
        self.shares.iter().filter_map(of_slot).min()
    }

    /// Where in a slot's ring that begins which comes from event `number` on.
    pub(crate) fn position(&self, slot: usize, number: u64) -> u64 {
        self.shares.get(&slot).map_or(0, |s| s.position(number))
    }
}

impl Share {
    /// Which of the pieces that there are is the first from event `number` on.
    fn first(&self, number: u64) -> usize {
        self.pieces.partition_point(|p| p.number < number)
    }

    /// Where in the ring that begins which comes from event `number` on.
    fn position(&self, number: u64) -> u64 {
        let piece = self.pieces.get(self.first(number));
        piece.map_or(self.bytes, |p| p.at)
    }
}
