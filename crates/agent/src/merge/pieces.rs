//! What was taken from a thread's ring, cut into whole entries and events, and what of these the trace's events are made of. Nothing of it is believed.

use reprise_abi::event::{Event, EventHeader, ParseError, HEADER_LEN};
use reprise_abi::order::{head_of_entries, Entry, ENTRY_LEN};
use reprise_trace::stamps::stamps_of;
use std::ops::Range;

/// Most entries that become one event.
const BATCH: usize = 64 * 1024;
/// Whole entries or an event in what was taken from a slot's ring.
pub struct Piece {
    /// Its last stamp, or that of the one before.
    pub key: u64,
    pub slot: usize,
    pub at: Range<usize>,
    /// It is entries.
    pub entries: bool,
}

/// Cuts what was taken from a slot's ring into whole events and entries, as far as all stamps are below `drawn`. `last`: the last stamp of
/// what lay before.
///
/// # Errors
/// When it makes no sense: why.
pub fn cut_up(
    slot: usize,
    bytes: &[u8],
    last: u64,
    drawn: u64,
    pieces: &mut Vec<Piece>,
) -> Result<(), &'static str> {
    let (mut at, mut key) = (0, last);
    loop {
        let entries = count_entries(&bytes[at..]);
        let len = if entries > 0 {
            entries * ENTRY_LEN
        } else {
            match Event::parse(&bytes[at..]) {
                Ok(e) if e.header.slot as usize == slot => {
                    key = key.max(stamps_of(&e).max().unwrap_or(0));
                    e.bytes().len()
                }
                Ok(_) => return Err("an event in another thread's ring"),
                Err(ParseError::Short(_)) => return Ok(()),
                Err(ParseError::Bad(why)) => return Err(why),
            }
        };
        if key >= drawn {
            return Ok(());
        }
        pieces.push(Piece {
            key,
            slot,
            at: at..at + len,
            entries: entries > 0,
        });
        at += len;
    }
}

/// How many entries lie at the start of these bytes.
fn count_entries(bytes: &[u8]) -> usize {
    bytes
        .chunks_exact(ENTRY_LEN)
        .take(BATCH)
        .take_while(|b| entry(b).is_some())
        .count()
}

fn entry(bytes: &[u8]) -> Option<Entry> {
    let word = |at: usize| {
        bytes[at..at + 8]
            .try_into()
            .map(u64::from_le_bytes)
            .unwrap_or(0)
    };
    Entry::from_words([word(0), word(8)])
}

/// Makes of `bytes` the event that holds these entries.
pub fn sync_event<'a>(slot: usize, entries: &[u8], bytes: &'a mut Vec<u8>) -> &'a [u8] {
    bytes.clear();
    bytes.extend_from_slice(&head_of_entries(slot as u16, entries.len() / ENTRY_LEN));
    bytes.extend_from_slice(entries);
    bytes
}

/// The same event with another detail.
pub fn with_detail(event: &Event, detail: u32) -> Vec<u8> {
    let h = EventHeader {
        detail,
        ..event.header
    };
    let mut bytes = event.bytes().to_vec();
    bytes[..HEADER_LEN].copy_from_slice(&h.to_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where entries lie that were cut.
    fn cut(
        slot: usize,
        bytes: &[u8],
        drawn: u64,
    ) -> Result<Vec<(u64, Range<usize>)>, &'static str> {
        let mut pieces = Vec::new();
        cut_up(slot, bytes, 7, drawn, &mut pieces)?;
        Ok(pieces.into_iter().map(|p| (p.key, p.at)).collect())
    }

    #[test]
    fn what_is_not_whole_or_not_due_stays() {
        let entry = Entry::wait(0, false)
            .to_words()
            .map(u64::to_le_bytes)
            .concat();
        let two = [&entry[..], &entry].concat();
        assert_eq!(cut(3, &two, u64::MAX), Ok(vec![(7, 0..2 * ENTRY_LEN)]));
        assert_eq!(cut(3, &two, 7), Ok(vec![]));
        let part = &two[..ENTRY_LEN + 8];
        assert_eq!(cut(3, part, u64::MAX), Ok(vec![(7, 0..ENTRY_LEN)]));
    }
}
