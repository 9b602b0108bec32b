//! What is left of threads that were killed: with their process, or by another thread's exec. Whatever they had done that others can have seen is
//! in the trace: events that are whole, operations of which only the number is logged, and that of a shard which they had locked.

use super::{sync_event, Look, Merge, Sink};
use reprise_abi::event::{Event, EventHeader, Kind, ProcessEnd, HEADER_LEN, NO_SLOT};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::{Entry, EntryKind, OrderHead, MAX_QUIET, WAITED_FOR};
use reprise_abi::session::{process_state, slot_state, Process};
use reprise_launch::{futex, SharedSession};
use reprise_trace::TraceError;
use std::sync::atomic::Ordering::*;

impl Merge {
    /// Process `n` is dead, with this wait status if that is known: what its threads have written last is taken before others get their
    /// slots, and the trace says that nothing more comes of them.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn reap(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        n: usize,
        status: Option<i32>,
    ) -> Result<(), TraceError> {
        let Some(head) = shared.rings() else {
            return Ok(());
        };
        let p = &shared.session().processes[n];
        let slots = slots_of(shared, n as u32);
        if super::is_told(shared) {
            return self.reap_of_det(shared, sink, head, n, status);
        }
        let open = open_shards(shared, &slots);
        publish_whole(shared, head, &slots);
        self.pass(shared, sink, Look::Everywhere, false)?;
        let left = |slot: &usize| shared.slot(*slot).state.load(SeqCst) == slot_state::LEFT;
        let told = p.state.load(SeqCst) == process_state::ENDING
            && (slots.iter().all(left) || slots.iter().any(|s| self.has_told(shared, *s)));
        let how = if told {
            ProcessEnd::Told
        } else {
            ProcessEnd::Found
        };
        let value = status.map_or(-1, i64::from);
        for (slot, open) in slots.into_iter().zip(open) {
            self.forget(shared, sink, slot, [how as i64, value], open)?;
        }
        for stream in &head.streams {
            let writer = (stream.0.load(SeqCst) & !WAITED_FOR) as usize;
            let of = |w: usize| shared.slot(w.min(MAX_SLOTS - 1)).process.load(SeqCst);
            if writer.checked_sub(1).is_some_and(|w| of(w) == n as u32) {
                stream.0.store(0, SeqCst);
                futex::wake(&stream.0, i32::MAX);
            }
        }
        if !told {
            let who = self.found_dead(p);
            push_words(
                sink,
                Kind::ProcessEnd,
                NO_SLOT,
                ProcessEnd::Found as u32,
                value,
                &who,
            )?;
        }
        Ok(())
    }

    /// As [`reap`](Self::reap), of a recording by `det`, in which there is one process: others are the world to it.
    fn reap_of_det(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        head: &OrderHead,
        n: usize,
        status: Option<i32>,
    ) -> Result<(), TraceError> {
        let s = shared.session();
        let p = &s.processes[n];
        if p.kernel_pid.load(SeqCst) != s.program_pid.load(SeqCst) {
            return Ok(());
        }
        let slots = slots_of(shared, n as u32);
        publish_whole(shared, head, &slots);
        self.pass(shared, sink, Look::Everywhere, false)?;
        if self.sources.values().any(|s| s.ended) {
            return Ok(());
        }
        let (how, value) = (ProcessEnd::Found as u32, status.map_or(-1, i64::from));
        for slot in slots {
            push_words(sink, Kind::Gone, slot as u16, how, value, &[0; 3])?;
        }
        let who = s.found_dead(p).map(u64::from);
        push_words(sink, Kind::ProcessEnd, NO_SLOT, how, value, &who)
    }

    /// The thread of a slot has become another program: the other threads of its process are gone.
    ///
    /// # Errors
    /// When the trace is full.
    pub fn others_gone(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        slot: usize,
    ) -> Result<(), TraceError> {
        if shared.rings().is_none() {
            return Ok(());
        }
        let slot = slot.min(MAX_SLOTS - 1);
        let mut others = slots_of(shared, shared.slot(slot).process.load(SeqCst));
        others.retain(|s| *s != slot);
        if others.is_empty() {
            return Ok(());
        }
        let open = open_shards(shared, &others);
        if let Some(head) = shared.order() {
            publish_whole(shared, head, &others);
        }
        self.pass(shared, sink, Look::Everywhere, false)?;
        for (other, open) in others.into_iter().zip(open) {
            self.forget(shared, sink, other, [0, -1], open)?;
        }
        Ok(())
    }

    /// The recording ends while threads run: writes how many quiet operations they have made since their last entries, as far as these are
    /// written, for others may wait for them. (Who writes an entry at this moment has made them before that, and is not of this trace any more.)
    pub(super) fn count_quiet(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
    ) -> Result<(), TraceError> {
        let Some(head) = shared.order() else {
            return Ok(());
        };
        for (slot, source) in &self.sources {
            let (ring, it) = (&head.rings[*slot], shared.slot(*slot));
            let is_all = || source.bytes.is_empty() && ring.head.load(SeqCst) == source.tail;
            let unused = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
            if !is_all() || unused.contains(&it.state.load(SeqCst)) {
                continue;
            }
            let left = it.quiet_left.load(SeqCst);
            if is_all() {
                push_quiet(sink, *slot, uncounted(left, 0, 0), &mut self.sync_event)?;
            }
        }
        Ok(())
    }

    /// Who was found dead, as [`Session::found_dead`](reprise_abi::session::Session::found_dead).
    fn found_dead(&self, p: &Process) -> [u64; 3] {
        let birth = self.births.get(&p.birth.load(SeqCst)).copied();
        let first = match birth {
            Some(_) => 0,
            None => p.made_for(),
        };
        [p.visible_pid.load(Relaxed), birth.unwrap_or(0), first].map(u64::from)
    }

    /// Has the thread of a slot written how its process ends?
    fn has_told(&self, shared: &SharedSession, slot: usize) -> bool {
        let ended = self.sources.get(&slot).is_some_and(|s| s.ended);
        ended && tells_its_end(shared, slot)
    }

    /// Nothing more comes of the thread of a slot: how its process ended, and the shard that was [opened](open_shard_of). Of an event that it
    /// didn't finish nothing stays.
    fn forget(
        &mut self,
        shared: &SharedSession,
        sink: &mut Sink,
        slot: usize,
        [how, status]: [i64; 2],
        [shard, number]: [u64; 2],
    ) -> Result<(), TraceError> {
        let Some(head) = shared.order() else {
            return Ok(());
        };
        let (ring, source) = (&head.rings[slot], self.sources.entry(slot).or_default());
        let counted = ring.counted_end.swap(0, SeqCst);
        let published = ring.head.load(SeqCst);
        let torn = ring.open_end.swap(0, SeqCst) & !7;
        if torn != 0 || !source.bytes.is_empty() {
            if !source.bytes.is_empty() {
                let torn_events = &shared.session().counters.torn_events;
                torn_events.fetch_add(1, Relaxed);
            }
            source.bytes.clear();
            self.held.remove(&slot);
            source.tail = source.tail.max(torn).next_multiple_of(8);
            for index in [&ring.position, &ring.head, &ring.tail] {
                index.store(source.tail, SeqCst);
            }
        }
        if self.has_told(shared, slot) {
            return Ok(());
        }
        // Operations that it made since it last wrote how many.
        let left = shared.slot(slot).quiet_left.swap(0, SeqCst);
        push_quiet(
            sink,
            slot,
            uncounted(left, counted, published),
            &mut self.sync_event,
        )?;
        let born = shared.slot(slot).born.load(SeqCst);
        let words = [born, shard, number];
        push_words(sink, Kind::Gone, slot as u16, how as u32, status, &words)
    }
}

/// Opens the shards that the dead threads of process `n` had locked, where nothing is recorded.
pub fn open_shards_of(shared: &SharedSession, n: usize) {
    if shared.order().is_some() {
        open_shards(shared, &slots_of(shared, n as u32));
    }
}

fn open_shards(shared: &SharedSession, slots: &[usize]) -> Vec<[u64; 2]> {
    let opened = |slot: &usize| shared.order().map(|head| open_shard_of(head, *slot));
    slots.iter().filter_map(opened).collect()
}

/// Opens the shard that a thread had locked when it died, as if it had made its operation: number plus 1 of the shard, 0 for none, and the
/// operation's number.
fn open_shard_of(head: &OrderHead, slot: usize) -> [u64; 2] {
    for (i, shard) in head.shards.iter().enumerate() {
        let Some((_, number)) = shard.holder().filter(|(who, _)| *who == slot as u32 + 1) else {
            continue;
        };
        shard.last.store(slot as u32 + 1, SeqCst);
        shard.sequence.store(2 * number, SeqCst);
        return [i as u64 + 1, number];
    }
    [0; 2]
}

/// Is it the thread that has a slot now which has come to write how its process ends, and not one that had the slot before?
fn tells_its_end(shared: &SharedSession, slot: usize) -> bool {
    let slot = shared.slot(slot);
    slot.told.load(SeqCst) == slot.born.load(SeqCst).wrapping_add(1)
}

/// How many quiet operations of a thread are in no entry: `left` of [`MAX_QUIET`] could still be made, the entry with their number was to end at
/// `counted` (0: none was being written), and what is `published` can be read.
fn uncounted(left: u32, counted: u64, published: u64) -> u32 {
    let is_logged = counted != 0 && published >= counted;
    match left {
        0 => 0,
        _ if is_logged => 0,
        left => MAX_QUIET.saturating_sub(left),
    }
}

/// Writes that the thread of a slot has made so many quiet operations.
fn push_quiet(
    sink: &mut Sink,
    slot: usize,
    quiet: u32,
    event: &mut Vec<u8>,
) -> Result<(), TraceError> {
    if quiet == 0 || sink.discard {
        return Ok(());
    }
    let e = Entry {
        kind: EntryKind::Quiet,
        quiet,
        object: 0,
        value: 0,
    };
    let bytes: Vec<u8> = e.to_words().iter().flat_map(|w| w.to_le_bytes()).collect();
    sink.writer.push(sync_event(slot, &bytes, event))
}

/// Whatever these threads, which were killed, had written as a whole when they could not say so any more can be read.
fn publish_whole(shared: &SharedSession, head: &OrderHead, slots: &[usize]) {
    for ring in slots.iter().map(|slot| &head.rings[*slot]) {
        let whole = ring.position.load(SeqCst);
        if whole.wrapping_sub(ring.head.load(SeqCst)) <= shared.ring_size() {
            ring.head.store(whole, SeqCst);
        }
    }
}

/// Slots of the threads of process `n` that have not ended by themselves.
fn slots_of(shared: &SharedSession, n: u32) -> Vec<usize> {
    let used = (shared.session().slots_used.load(SeqCst) as usize).min(MAX_SLOTS);
    let is = |i: &usize| {
        let slot = shared.slot(*i);
        let vacant = [slot_state::FREE, slot_state::EXITING];
        // In this order: who takes a free slot writes whose it is first.
        !vacant.contains(&slot.state.load(SeqCst)) && slot.process.load(SeqCst) == n
    };
    (0..used).filter(is).collect()
}

/// Writes an event of words.
fn push_words(
    sink: &mut Sink,
    kind: Kind,
    slot: u16,
    detail: u32,
    value: i64,
    words: &[u64],
) -> Result<(), TraceError> {
    if sink.discard {
        return Ok(());
    }
    let h = EventHeader {
        len: (HEADER_LEN + 8 * words.len()) as u32,
        kind: kind as u8,
        nargs: words.len() as u8,
        slot,
        detail,
        value,
        ..Default::default()
    };
    let mut bytes = h.to_bytes().to_vec();
    words
        .iter()
        .for_each(|w| bytes.extend_from_slice(&w.to_le_bytes()));
    if let Ok(e) = Event::parse(&bytes) {
        sink.census.follow(&e);
    }
    sink.writer.push(&bytes)
}

#[cfg(test)]
mod tests {
    use super::super::tests::empty_head;
    use super::*;
    use reprise_abi::order::HOLDER_SHIFT;

    #[test]
    fn a_shard_of_the_dead_is_opened() {
        let head = empty_head();
        let (one, other) = (&head.shards[7], &head.shards[8]);
        one.sequence.store(21 | 5 << HOLDER_SHIFT, SeqCst);
        other.sequence.store(21 | 6 << HOLDER_SHIFT, SeqCst);
        assert_eq!(open_shard_of(&head, 9), [0, 0]);
        assert_eq!(open_shard_of(&head, 4), [8, 11]);
        // The operation counts, and is the dead thread's.
        assert_eq!((one.sequence.load(SeqCst), one.last.load(SeqCst)), (22, 5));
        assert_eq!(other.holder(), Some((6, 11)));
        assert_eq!(open_shard_of(&head, 4), [0, 0]);
    }

    #[test]
    fn quiet_operations_of_the_dead_are_counted_once() {
        // None ever; none since the last entry; three.
        assert_eq!(uncounted(0, 0, 64), 0);
        assert_eq!(uncounted(MAX_QUIET, 0, 64), 0);
        assert_eq!(uncounted(MAX_QUIET - 3, 0, 64), 3);
        // Killed before the entry with their number could be read, and after it.
        assert_eq!(uncounted(MAX_QUIET - 3, 80, 64), 3);
        assert_eq!(uncounted(MAX_QUIET - 3, 80, 80), 0);
    }
}
