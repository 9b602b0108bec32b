//! A thread's part of an epoch's log, as the copy goes through it: what the leader's thread has logged, what comes next of it, and where it ends.

use super::log;
use crate::thread::Frame;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::event::{Event, Kind, FLAG_HELD, FLAG_RESTARTED};
use reprise_abi::order::{Entry, EntryKind, ENTRY_LEN};
use reprise_abi::syscalls;

/// Where a thread of the leader stood when the epoch ended.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct End {
    /// Its general registers.
    pub frame: Frame,
    /// It was in a call whose beginning is logged.
    pub in_call: bool,
    /// It was in the middle of the program's code: of that place the log has no name.
    pub in_code: bool,
    /// It has stood there before, and done nothing since.
    pub again: bool,
    /// It was at the end of the gate of a call that has a signal mask of its own, which was still in force.
    pub under_mask: bool,
    /// Quiet operations since the last entry.
    pub quiet: u32,
    /// Calls of hooked functions since then that left nothing in the log.
    pub unlogged: u64,
    /// The hooked function in which it stood, and which is called anew, has left something in the log.
    pub has_logged: bool,
}

/// A thread's part of the log.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Part {
    /// There is such a thread.
    pub used: bool,
    /// It begins in the epoch.
    pub(super) is_new: bool,
    /// The last thread that had the slot has ended in the epoch.
    pub(super) is_over: bool,
    /// It has come to its end.
    pub done: bool,
    /// It waits where the leader's thread has waited to the end.
    pub waits: bool,
    /// The next entry's quiet operations are counted.
    pub(super) looked: bool,
    /// Quiet operations to be made before the next entry.
    pub(super) quiet: u32,
    /// Quiet operations that the leader's thread had made before the epoch, and not logged.
    pub(super) before: u32,
    /// Hooked functions called since something of the thread was last logged that left nothing there, ...
    pub unlogged: u64,
    /// ... and where the log was.
    pub unlogged_at: u64,
    /// The function that it is in has left something in the log of the epoch before.
    pub(super) has_logged: bool,
    /// In the function in which it is it waits for others, who wake it before the epoch ends.
    pub is_woken: bool,
    /// Its general registers where it has come to its end, ...
    pub(super) came: Frame,
    /// ... and which of them are others than the leader's, as [`Frame::differs_from`] says.
    pub(super) other_registers: u64,
    /// In what the last place differs from the end, at which its part of the log was used up.
    pub(super) missed: u64,
    /// How often in a row a hooked function has ended only to be called anew.
    pub(super) anew: u32,
    /// How often it was looked whether it has come to its end, since its part of the log is used up.
    pub(super) looks: u32,
    /// What it does ends a hooked function, not a gate.
    pub hook_ends: bool,
    /// It has left the log, and goes on without it, ...
    pub(super) left: bool,
    /// ... for about so many operations and events as it had left of it.
    pub(super) goes_on_for: u64,
    /// The word of a futex at which it sleeps since then; 0: it doesn't.
    pub sleeps_at: u64,
    /// Its [next event that counts](Part::next_kept), as found from a place in the log on.
    kept: Option<Kept>,
    /// A stamp of the call that it has made, which has not had its turn yet, plus 1; 0: none.
    pub owes: u64,
    /// Where the ring of the leader's thread was when the epoch began, ...
    pub(super) begun: u64,
    /// ... and where it stood: instruction and stack pointer.
    pub(super) begins: [u64; 2],
    /// Where the thread is in the log, ...
    pub(super) at: u64,
    /// ... and where its part ends: addresses.
    pub(super) end: u64,
    /// Where it is to come to.
    pub ends: End,
}

/// An event of a thread's part that counts also when threads have left the log.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Kept {
    /// Where it was looked for.
    from: u64,
    /// Where it is; 0: there is none.
    at: u64,
    /// When it was, among all of them.
    stamp: u64,
}

/// Operations and events that all threads of the copy have used up.
static OPERATIONS: AtomicU64 = AtomicU64::new(0);

/// Changes whenever a thread of the copy goes on in its log.
pub fn operations() -> u64 {
    OPERATIONS.load(Relaxed)
}

fn another_operation() {
    OPERATIONS.store(operations() + 1, Relaxed);
}

/// What a thread has logged next.
pub enum Next {
    /// An operation of synchronisation.
    Entry(Entry),
    /// Something else.
    Event(Event<'static>),
    /// Nothing more in this epoch.
    End,
}

fn word(at: u64) -> u64 {
    // SAFETY: within the log, as its callers have looked at.
    unsafe { *(at as *const u64) }
}

impl Part {
    /// What comes next. Hashes of the leader's state, which it takes now and then, are passed over.
    pub fn peek(&mut self) -> Next {
        loop {
            if self.at + ENTRY_LEN as u64 > self.end {
                return Next::End;
            }
            if let Some(e) = Entry::from_words([word(self.at), word(self.at + 8)]) {
                return Next::Entry(e);
            }
            let len = (self.end - self.at) as usize;
            // SAFETY: what is left of the part.
            let left = unsafe { core::slice::from_raw_parts(self.at as *const u8, len) };
            match Event::parse(left) {
                Err(_) => return Next::End,
                Ok(e) if e.kind == Kind::Hash => self.consume(&e),
                Ok(e) => return Next::Event(e),
            }
        }
    }

    /// Has the thread left the log?
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// The thread, which has left the log, comes to the end of a gate or of a hooked function: has it gone on for as long as the leader's thread did?
    pub fn has_gone_on(&mut self) -> bool {
        self.goes_on_for = self.goes_on_for.saturating_sub(1);
        self.goes_on_for == 0 || log().is_long.load(Relaxed) != 0
    }

    /// Operations and events that it has left of its part.
    pub(super) fn count_rest(&self) -> u64 {
        let (mut at, mut n) = (self.at, u64::from(self.ends.quiet) + self.ends.unlogged);
        while let Some((len, _)) = self.at_place(at) {
            let entry = Entry::from_words([word(at), word(at + 8)]);
            n += 1 + entry.map_or(0, |e| u64::from(e.quiet));
            at += len;
        }
        n
    }

    /// The stamp of the thread's next event that counts also when threads have left the log: of a call of which something stays, of a thread's begin or end.
    pub fn next_kept(&mut self) -> Option<u64> {
        let known = self
            .kept
            .filter(|k| k.from <= self.at && (k.at == 0 || self.at <= k.at));
        let kept = known.unwrap_or_else(|| self.find_kept());
        self.kept = Some(kept);
        (kept.at != 0).then_some(kept.stamp)
    }

    /// What isn't kept is passed over. False: there is nothing more.
    pub fn goes_to_kept(&mut self) -> bool {
        self.next_kept();
        let Some(kept) = self.kept.filter(|k| k.at != 0) else {
            return false;
        };
        self.at = kept.at;
        true
    }

    /// The call that the thread asks for, as it has asked for it somewhere before the next event that counts: `is_it`. It is used up, and what comes before it.
    pub fn goes_to_call(&mut self, is_it: impl Fn(&Event) -> bool) -> Option<Event<'static>> {
        self.next_kept();
        let limit = self.kept.filter(|k| k.at != 0).map_or(self.end, |k| k.at);
        let mut at = self.at;
        while at < limit {
            let (len, event) = self.at_place(at)?;
            at += len;
            if let Some(e) = event.filter(&is_it) {
                self.at = at;
                return Some(e);
            }
        }
        None
    }

    /// The events that are left of the part.
    pub(super) fn rest(&self) -> impl Iterator<Item = Event<'static>> + use<'_> {
        let mut at = self.at;
        let next = move || {
            let (len, event) = self.at_place(at)?;
            at += len;
            Some(event)
        };
        core::iter::from_fn(next).flatten()
    }

    fn find_kept(&self) -> Kept {
        let (from, mut at) = (self.at, self.at);
        while let Some((len, event)) = self.at_place(at) {
            if let Some(stamp) = event.and_then(|e| self.stamp_of_kept(&e, at + len)) {
                return Kept { from, at, stamp };
            }
            at += len;
        }
        Kept {
            from,
            ..Kept::default()
        }
    }

    /// What is at this place of the part: its length, and the event, if it is one.
    fn at_place(&self, at: u64) -> Option<(u64, Option<Event<'static>>)> {
        if at + ENTRY_LEN as u64 > self.end {
            return None;
        }
        if Entry::from_words([word(at), word(at + 8)]).is_some() {
            return Some((ENTRY_LEN as u64, None));
        }
        // SAFETY: what is left of the part.
        let left =
            unsafe { core::slice::from_raw_parts(at as *const u8, (self.end - at) as usize) };
        let e = Event::parse(left).ok()?;
        Some((e.header.len.into(), Some(e)))
    }

    /// The stamp of this event, if it counts; behind it is `next`.
    fn stamp_of_kept(&self, e: &Event, next: u64) -> Option<u64> {
        let number = u64::from(e.header.detail);
        let args = || syscalls::lookup(number).map_or(6, |call| call.args.len());
        let is_made = |e: &Event| e.header.flags & (FLAG_RESTARTED | FLAG_HELD) == 0;
        match e.kind {
            Kind::ThreadStart => Some(e.arg(0)),
            Kind::ThreadExit => Some(e.arg(1)),
            Kind::Exit if syscalls::lasts(number) && is_made(e) => Some(e.arg(0)),
            Kind::Syscall if syscalls::lasts(number) && is_made(e) => Some(e.arg(args())),
            // One that hasn't come to an end is where the thread ends.
            Kind::Enter if syscalls::lasts(number) => {
                let (mut at, mut end) = (next, None);
                while let (None, Some((len, event))) = (end, self.at_place(at)) {
                    (at, end) = (at + len, event);
                }
                let counts = end.is_none_or(|e| e.kind == Kind::Exit && is_made(&e));
                counts.then(|| e.arg(args()))
            }
            _ => None,
        }
    }

    /// The event that came next is used up.
    pub fn consume(&mut self, e: &Event) {
        another_operation();
        self.at += u64::from(e.header.len);
    }

    /// What comes next, when the quiet operations before it are counted.
    fn look(&mut self) -> Next {
        let next = self.peek();
        let quiet = match &next {
            Next::Entry(e) => e.quiet,
            Next::End => self.ends.quiet,
            // What is quiet before an event has an entry.
            Next::Event(_) => return next,
        };
        if !core::mem::replace(&mut self.looked, true) {
            self.quiet = quiet.saturating_sub(core::mem::take(&mut self.before));
        }
        next
    }

    /// What the thread's next operation is in the log.
    pub fn due(&mut self) -> Due {
        loop {
            let entry = match self.look() {
                Next::Entry(e) => Some(e),
                Next::End => None,
                Next::Event(_) => return Due::Event,
            };
            if self.quiet != 0 {
                return Due::Quiet;
            }
            match entry {
                None => return Due::End,
                Some(e) if e.kind == EntryKind::Quiet => self.skip_entry(),
                Some(e) => return Due::Entry(e),
            }
        }
    }

    /// The event that comes next, behind all that is quiet before it.
    pub fn due_event(&mut self) -> Option<Event<'static>> {
        match (self.due(), self.peek()) {
            (Due::Event, Next::Event(e)) => Some(e),
            _ => None,
        }
    }

    /// That operation was made.
    pub fn made(&mut self) {
        another_operation();
        match self.quiet {
            0 => self.skip_entry(),
            n => self.quiet = n - 1,
        }
    }

    fn skip_entry(&mut self) {
        self.at += ENTRY_LEN as u64;
        self.looked = false;
    }

    /// Where the thread is in its log: it changes with each operation and each event.
    pub(super) fn place(&mut self) -> u64 {
        self.look();
        self.at << 24 | u64::from(self.quiet) & 0xff_ffff
    }

    /// A hooked function begins.
    pub fn enters(&mut self) {
        let now = self.place();
        if self.unlogged_at != now {
            (self.unlogged_at, self.unlogged) = (now, 0);
        }
    }

    /// It ends; `returns`: it isn't called anew.
    pub fn leaves(&mut self, returns: bool) {
        let now = self.place();
        self.anew = if returns || self.unlogged_at != now {
            0
        } else {
            self.anew + 1
        };
        let has_logged = returns && core::mem::take(&mut self.has_logged);
        if self.unlogged_at != now || has_logged {
            (self.unlogged_at, self.unlogged) = (now, 0);
        } else if returns {
            self.unlogged = self.unlogged.wrapping_add(1);
        }
    }

    /// Has the thread come to where the leader's has computed to the end of the epoch?
    pub fn computes_to_end(&mut self) -> bool {
        self.ends.in_code && !self.done && self.is_at_end()
    }

    /// Is the thread where its part ends, as far as the log says?
    pub fn is_at_end(&mut self) -> bool {
        self.due() == Due::End
    }

    /// The thread is at the end of a gate or of a hooked function, with these registers. Is that where the leader's thread stood when the epoch ended? How far it has come in its
    /// log and in its hooked functions says so; what else is in its registers may be another thing, if threads race.
    pub fn ends_at(&mut self, frame: &Frame) -> bool {
        if !self.is_at_end() || self.ends.in_call {
            return false;
        }
        let (ends, calls) = (self.ends.unlogged, self.unlogged_calls());
        if ends == calls && self.stands_with(frame) {
            return true;
        }
        let others = self.ends.frame.differs_from(frame);
        self.missed = others | (ends & 0xff) << 24 | (calls & 0xff) << 32;
        false
    }

    /// As [`Part::ends_at`], of a thread in a call whose beginning is the last thing in its log.
    pub fn ends_in_call(&mut self, frame: &Frame) -> bool {
        self.ends.in_call && self.stands_with(frame)
    }

    /// Notes the registers with which the thread stands, if the leader's thread stood at the same place.
    fn stands_with(&mut self, frame: &Frame) -> bool {
        let ends = &self.ends.frame;
        if (ends.rip, ends.rsp) != (frame.rip, frame.rsp) {
            return false;
        }
        (self.came, self.other_registers) = (*frame, ends.differs_from(frame));
        true
    }

    /// The thread isn't at its end, and has nothing left in the log: has it gone on so long that it must have come by?
    pub fn is_looked_for_too_long(&mut self) -> bool {
        const MOST: u32 = 1 << 20;
        const MOST_ANEW: u32 = 1000;
        self.looks += 1;
        self.looks > MOST
            || self.looks > 1000 && self.ends.unlogged < self.unlogged_calls()
            || self.anew > MOST_ANEW
    }

    /// Hooked functions that it has called since, and that left nothing in the log.
    pub fn unlogged_calls(&mut self) -> u64 {
        match self.place() {
            now if self.unlogged_at == now => self.unlogged,
            _ => 0,
        }
    }
}

/// What a thread's next operation is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// One that is only counted.
    Quiet,
    /// This one, which comes after one of another thread.
    Entry(Entry),
    /// None: the thread has come to its end.
    End,
    /// None: an event comes first.
    Event,
}
