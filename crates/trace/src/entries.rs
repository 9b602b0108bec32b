//! Entries of synchronisation in a frame: told apart from all else, and as differences from what is likely.
//!
//! A recording of `order` consists largely of events that hold nothing but entries ([`Entry`]) of 16 bytes, of which hardly one is a surprise: a thread
//! goes through the same objects in the same order, and their numbers grow by little. A general compressor sees 16 different bytes each
//! time. So before it comes to that, a frame is taken apart into columns:
//!
//! | column | content |
//! |---|---|
//! | rest | all other events as they are, and for each event of entries a *token*: how many, and of which slot |
//! | heads | a byte for each entry: its kind, and how its object is told |
//! | quiet | its quiet operations, as a variable-length number |
//! | objects | 4 bytes for each object that was not foreseen: neither the slot's last one, nor the one that followed that the last time |
//! | numbers | for an operation that has a number: by how much it is more than the slot's last one on this object |
//! | words | 8 bytes for each other value |
//!
//! What was foreseen is remembered in tables of a fixed size, which begin empty in each frame: frames are read in any order.

use reprise_abi::event::{EventHeader, Kind, HEADER_LEN};
use reprise_abi::order::{head_of_entries, Entry, EntryKind, ENTRIES_HEAD_LEN, ENTRY_LEN};

/// Bytes before the columns: the length of each but the last.
const HEAD_LEN: usize = 4 * (COLUMNS - 1);
const COLUMNS: usize = 6;
/// Most entries of an event that are packed.
const MAX_ENTRIES: usize = 1 << 20;
/// Bytes of a token: an odd word, which no event's length is, with the number of entries, and the slot.
const TOKEN_LEN: usize = 6;
/// Rows of the table.
const ROWS: usize = 4096;

/// How an object is told, in a head: in full, ...
const IN_FULL: u8 = 0;
/// ... as the slot's last, ...
const SAME: u8 = 1;
/// ... as the one that followed that the last time, ...
const FOLLOWS: u8 = 2;
/// ... or there is none.
const NONE: u8 = 3;
/// Bits of the kind, below it.
const KIND_BITS: u8 = 3;

/// Replaces the content of `out` by `raw`, a frame's events, in columns. False: there is nothing to gain, or they are no events.
pub(crate) fn pack(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let mut foreseen = Foreseen::new();
    let mut packed = false;
    let mut rest = raw;
    while !rest.is_empty() {
        let Some((event, after)) = split_event(rest) else {
            return false;
        };
        match entries_of(event) {
            Some((slot, entries)) => {
                packed = true;
                let count = (entries.len() / ENTRY_LEN) as u32;
                columns[0].extend_from_slice(&(count << 1 | 1).to_le_bytes());
                columns[0].extend_from_slice(&slot.to_le_bytes());
                for e in entries.chunks_exact(ENTRY_LEN).filter_map(entry) {
                    put(&mut columns, &mut foreseen, slot, e);
                }
            }
            None => columns[0].extend_from_slice(event),
        }
        rest = after;
    }
    out.clear();
    for column in &columns[..COLUMNS - 1] {
        out.extend_from_slice(&(column.len() as u32).to_le_bytes());
    }
    columns.iter().for_each(|c| out.extend_from_slice(c));
    packed
}

/// Appends the events of which [`pack`] has made `packed` to `out`, which must come to `raw_len` bytes.
pub(crate) fn unpack(packed: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<(), &'static str> {
    const SHORT: &str = "columns that end too early";
    let mut columns = split_columns(packed).ok_or(SHORT)?;
    let mut foreseen = Foreseen::new();
    let room = |out: &Vec<u8>, more: usize| match out.len() + more > raw_len {
        true => Err("more events than the frame has"),
        false => Ok(()),
    };
    while !columns[0].is_empty() {
        if columns[0][0] & 1 == 0 {
            let (event, after) = split_event(columns[0]).ok_or(SHORT)?;
            room(out, event.len())?;
            out.extend_from_slice(event);
            columns[0] = after;
            continue;
        }
        let token: [u8; TOKEN_LEN] = take(&mut columns[0]).ok_or(SHORT)?;
        let [a, b, c, d, e, f] = token;
        let count = (u32::from_le_bytes([a, b, c, d]) >> 1) as usize;
        let slot = u16::from_le_bytes([e, f]);
        if count > MAX_ENTRIES {
            return Err("more entries than an event can have");
        }
        room(out, ENTRIES_HEAD_LEN + count * ENTRY_LEN)?;
        out.extend_from_slice(&head_of_entries(slot, count));
        for _ in 0..count {
            let e = get(&mut columns, &mut foreseen, slot).ok_or(SHORT)?;
            e.to_words()
                .iter()
                .for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
        }
    }
    match out.len() == raw_len && columns.iter().all(|c| c.is_empty()) {
        true => Ok(()),
        false => Err("columns of another length"),
    }
}

/// The first event of some.
fn split_event(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    if len < HEADER_LEN || len % 8 != 0 {
        return None;
    }
    bytes.split_at_checked(len)
}

fn split_columns(packed: &[u8]) -> Option<[&[u8]; COLUMNS]> {
    let (head, mut rest) = packed.split_at_checked(HEAD_LEN)?;
    let mut columns = [&[][..]; COLUMNS];
    let mut lengths = head.chunks_exact(4);
    for column in &mut columns[..COLUMNS - 1] {
        let len = u32::from_le_bytes(*lengths.next()?.first_chunk()?) as usize;
        (*column, rest) = rest.split_at_checked(len)?;
    }
    columns[COLUMNS - 1] = rest;
    Some(columns)
}

/// The slot and the entries of an event that is nothing but entries, and can be told by a token.
fn entries_of(event: &[u8]) -> Option<(u16, &[u8])> {
    let h = EventHeader::parse(event).ok()?;
    if h.kind != Kind::Sync as u8 {
        return None;
    }
    let (head, entries) = event.split_at_checked(ENTRIES_HEAD_LEN)?;
    let count = entries.len() / ENTRY_LEN;
    let whole = entries.len() % ENTRY_LEN == 0 && count <= MAX_ENTRIES;
    let whole = whole && head == head_of_entries(h.slot, count);
    let known = |bytes: &[u8]| {
        entry(bytes).is_some_and(|e| {
            let [a, b] = e.to_words().map(u64::to_le_bytes);
            bytes[..8] == a && bytes[8..] == b
        })
    };
    (whole && entries.chunks_exact(ENTRY_LEN).all(known)).then_some((h.slot, entries))
}

fn entry(bytes: &[u8]) -> Option<Entry> {
    let (first, value) = bytes.split_first_chunk()?;
    Entry::from_words([
        u64::from_le_bytes(*first),
        u64::from_le_bytes(*value.first_chunk()?),
    ])
}

/// What is known of an object of a slot.
#[derive(Clone, Copy, Default)]
struct Row {
    slot: u16,
    object: u32,
    /// Number of the slot's last operation on it.
    number: u64,
    /// The object that followed it.
    next: u32,
}

/// What is likely to come.
struct Foreseen {
    rows: Vec<Row>,
    /// The last object of each slot.
    last: Vec<u32>,
}

impl Foreseen {
    fn new() -> Foreseen {
        Foreseen {
            rows: vec![Row::default(); ROWS],
            last: vec![0; ROWS],
        }
    }

    /// The row of an object, which another one may have lost.
    fn row(&mut self, slot: u16, object: u32) -> &mut Row {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let key = (u64::from(slot) << 32 | u64::from(object)).wrapping_mul(GOLDEN);
        let row = &mut self.rows[(key >> 52) as usize % ROWS];
        if (row.slot, row.object) != (slot, object) {
            *row = Row {
                slot,
                object,
                ..Row::default()
            };
        }
        row
    }

    /// The slot's last object, and the one that is likely to follow.
    fn likely(&mut self, slot: u16) -> (u32, u32) {
        let last = self.last[slot as usize % ROWS];
        (last, self.row(slot, last).next)
    }

    /// This one followed `last`.
    fn followed(&mut self, slot: u16, last: u32, object: u32) {
        self.row(slot, last).next = object;
        self.last[slot as usize % ROWS] = object;
    }
}

/// Has an entry of this kind a number of an operation for its value?
fn is_numbered(kind: EntryKind) -> bool {
    match kind {
        EntryKind::Quiet
        | EntryKind::Passed
        | EntryKind::Ordered
        | EntryKind::Chosen
        | EntryKind::Seen => true,
        EntryKind::Failed | EntryKind::Value | EntryKind::Loaded => false,
    }
}

fn put(columns: &mut [Vec<u8>; COLUMNS], foreseen: &mut Foreseen, slot: u16, e: Entry) {
    let [_, heads, quiet, objects, numbers, words] = columns;
    let told = if e.object == 0 {
        NONE
    } else {
        let (last, next) = foreseen.likely(slot);
        foreseen.followed(slot, last, e.object);
        match e.object {
            o if o == last => SAME,
            o if o == next => FOLLOWS,
            o => {
                objects.extend_from_slice(&o.to_le_bytes());
                IN_FULL
            }
        }
    };
    heads.push(e.kind as u8 | told << KIND_BITS);
    put_number(quiet, u64::from(e.quiet));
    if is_numbered(e.kind) {
        let row = foreseen.row(slot, e.object);
        let more = e.value.wrapping_sub(row.number) as i64;
        row.number = e.value;
        put_number(numbers, (more << 1 ^ more >> 63) as u64);
    } else {
        words.extend_from_slice(&e.value.to_le_bytes());
    }
}

fn get(columns: &mut [&[u8]; COLUMNS], foreseen: &mut Foreseen, slot: u16) -> Option<Entry> {
    let [_, heads, quiet, objects, numbers, words] = columns;
    let [head] = take(heads)?;
    let (kind, told) = (head & ((1 << KIND_BITS) - 1), head >> KIND_BITS);
    let kind = EntryKind::ALL[kind as usize];
    let object = if told == NONE {
        0
    } else {
        let (last, next) = foreseen.likely(slot);
        let object = match told {
            IN_FULL => u32::from_le_bytes(take(objects)?),
            SAME => last,
            FOLLOWS => next,
            _ => return None,
        };
        foreseen.followed(slot, last, object);
        object
    };
    let quiet = u32::try_from(get_number(quiet)?).ok()?;
    let value = if is_numbered(kind) {
        let more = get_number(numbers)?;
        let row = foreseen.row(slot, object);
        row.number = row
            .number
            .wrapping_add((more >> 1) ^ (more & 1).wrapping_neg());
        row.number
    } else {
        u64::from_le_bytes(take(words)?)
    };
    Some(Entry {
        kind,
        quiet,
        object,
        value,
    })
}

fn take<const N: usize>(column: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = column.split_first_chunk()?;
    *column = rest;
    Some(*bytes)
}

/// A number in groups of 7 bits, the lowest first; the highest bit of a byte says that more follow (LEB128).
fn put_number(column: &mut Vec<u8>, mut n: u64) {
    while n > 0x7f {
        column.push(n as u8 | 0x80);
        n >>= 7;
    }
    column.push(n as u8);
}

fn get_number(column: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let [b] = take(column)?;
        n |= u64::from(b & 0x7f) << shift;
        if b & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(slot: u16, entries: &[Entry]) -> Vec<u8> {
        let mut bytes = head_of_entries(slot, entries.len()).to_vec();
        for w in entries.iter().flat_map(|e| e.to_words()) {
            bytes.extend_from_slice(&w.to_le_bytes());
        }
        bytes
    }

    fn plain(value: i64) -> Vec<u8> {
        EventHeader {
            len: HEADER_LEN as u32,
            kind: Kind::Hash as u8,
            value,
            ..Default::default()
        }
        .to_bytes()
        .to_vec()
    }

    fn there_and_back(raw: &[u8]) -> Vec<u8> {
        let (mut packed, mut again) = (vec![], vec![]);
        assert!(pack(raw, &mut packed));
        unpack(&packed, raw.len(), &mut again).expect("what was packed");
        assert_eq!(again, raw);
        packed
    }

    #[test]
    fn what_is_foreseen_takes_three_bytes() {
        let entries: Vec<Entry> = (0..1000)
            .map(|i| Entry {
                kind: EntryKind::Passed,
                quiet: 1,
                object: 0x5000 + i % 3,
                value: u64::from(i / 3 * 2),
            })
            .collect();
        let packed = there_and_back(&event(7, &entries));
        assert!(packed.len() < 3 * 1000 + 100, "{} bytes", packed.len());
    }

    #[test]
    fn events_without_entries_stay_as_they_are() {
        assert!(!pack(&plain(5), &mut vec![]));
        assert!(!pack(b"no event", &mut vec![]));
    }

    #[test]
    fn an_event_that_is_not_just_entries_is_kept_whole() {
        let e = Entry {
            kind: EntryKind::Value,
            quiet: 0,
            object: 0,
            value: u64::MAX,
        };
        let mut strange = event(1, &[e, e]);
        // Of no kind that there is.
        strange[ENTRIES_HEAD_LEN] = 0xf1;
        let mut odd = event(1, &[e]);
        // A flag that no event of entries has.
        odd[12] = 1;
        let raw = [strange, event(2, &[e]), odd, plain(-1)].concat();
        there_and_back(&raw);
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let object = prop_oneof![0u32..4, any::<u32>()];
        let value = prop_oneof![0u64..1000, any::<u64>()];
        (0..EntryKind::ALL.len(), 0u32..1 << 24, object, value).prop_map(
            move |(k, quiet, object, value)| Entry {
                kind: EntryKind::ALL[k],
                quiet,
                object,
                value,
            },
        )
    }

    proptest! {
        #[test]
        fn any_entries_come_back(events in prop::collection::vec((any::<u16>(), prop::collection::vec(any_entry(), 1..40), any::<i64>()), 1..20)) {
            let raw: Vec<u8> = events.iter().flat_map(|(slot, entries, value)| [event(*slot, entries), plain(*value)].concat()).collect();
            there_and_back(&raw);
        }

        #[test]
        fn damaged_columns_harm_nobody(entries in prop::collection::vec(any_entry(), 1..40), at: prop::sample::Index, byte: u8, raw_len in 0usize..10_000) {
            let mut packed = vec![];
            pack(&event(3, &entries), &mut packed);
            let at = at.index(packed.len());
            packed[at] = byte;
            let mut out = vec![];
            let _ = unpack(&packed, raw_len, &mut out);
            prop_assert!(out.len() <= raw_len);
            let _ = unpack(&packed[..at], raw_len, &mut vec![]);
        }
    }
}
