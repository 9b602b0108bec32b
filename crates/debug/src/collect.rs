//! Values that a replay puts down as it runs, for whoever asks what an expression was at each visit of a line, or at each write to its memory.
//!
//! A visit is no stop. The value of an expression is found by code that is compiled into the program ([`crate::compiled`]) and goes into a buffer
//! beside it, as a row: the value, the place, the thread, and how many events had happened. The buffer is emptied when it is full and whenever
//! the program stops, so rows come in their order. Where a place can't be compiled, the program stops there, and the row is made here, as in a program that will become another one; where
//! an expression has no value, whoever asks is told to look himself. A write is a stop of the processor's, and its row is made here, too.
//!
//! Rows go to a pipe as [`Frame`]s, into which a script of gdb's puts what only gdb knows: names of places and values that are no plain numbers.
//! The script runs only while the replay rests and all rows have been written, so frames are in their order.

use crate::breakpoints::Watched;
use crate::control::Stop;
use crate::debuggee::{Debuggee, General};
use crate::expression::Expression;
use crate::machine_code::{Code, IF_ZERO, VALUE};
use crate::server::Place;
use crate::target::{Goal, Session};
use crate::{os, DebugError};
use gdbstub::target::ext::breakpoints::WatchKind;
use reprise_abi::layout::{BLOCKS_BASE, BLOCK_STRIDE, MAX_SLOTS, SESSION_BASE, SHADOW_BASE};
use reprise_abi::order::{OrderHead, ORDER_BASE};
use reprise_abi::ring::RingControl;
use reprise_abi::session::{Session as Shared, Slot, SESSION_LEN};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

/// Where the buffer is: only replays that look for races have something there, and those are not debugged.
const BUFFER: u64 = SHADOW_BASE;
/// Its head, a page: where the next row goes, and where the last one ends.
const HEAD: u64 = reprise_abi::layout::PAGE;
/// Bytes of a row: value, place, slot and thread, count.
const ROW: u64 = 32;
/// Most rows in the buffer.
const ROWS: u64 = 1 << 16;
/// Where the rows end.
const FULL: u64 = BUFFER + HEAD + ROWS * ROW;
/// Bytes that wait for the pipe.
const WAITING: usize = 1 << 16;
/// Most bytes of what a script tells at a time.
const MOST_TOLD: u32 = 64 << 20;
/// Most addresses that the script names at a time.
const MOST_NAMED: usize = 500;
/// Most bytes of a value that is a number.
pub const MOST_PLAIN: u64 = 8;

/// A value at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The instruction that was next.
    pub pc: u64,
    /// The value, as a word.
    pub value: u64,
    /// Number of the event that came next.
    pub event: u64,
    /// The thread, as the program knew it.
    pub thread: u32,
}

/// What comes through the pipe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A value.
    Row(Row),
    /// What the script tells, in JSON.
    Told(Vec<u8>),
    /// Nothing more comes.
    End,
}

const OF_ROW: u8 = b'R';
const OF_SCRIPT: u8 = b'J';
const OF_END: u8 = b'E';

impl Frame {
    /// Reads the next one.
    ///
    /// # Errors
    /// When the pipe breaks, or something else comes through it.
    pub fn read(from: &mut impl Read) -> io::Result<Frame> {
        let mut kind = [0];
        from.read_exact(&mut kind)?;
        let mut word = || -> io::Result<u64> {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        };
        match kind[0] {
            OF_ROW => Ok(Frame::Row(Row {
                pc: word()?,
                value: word()?,
                event: word()?,
                thread: word()? as u32,
            })),
            OF_SCRIPT => {
                let mut len = [0; 4];
                from.read_exact(&mut len)?;
                let len = u32::from_le_bytes(len);
                if len > MOST_TOLD {
                    return Err(io::Error::other(format!("a script tells {len} bytes")));
                }
                let mut told = vec![0; len as usize];
                from.read_exact(&mut told)?;
                Ok(Frame::Told(told))
            }
            OF_END => Ok(Frame::End),
            other => Err(io::Error::other(format!("a frame of kind {other}"))),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// When nobody reads.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Frame::Row(row) => {
                let words = [row.pc, row.value, row.event, row.thread.into()];
                let mut bytes = [OF_ROW; 33];
                for (place, word) in bytes[1..].chunks_exact_mut(8).zip(words) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
                to.write_all(&bytes)
            }
            Frame::Told(told) => {
                let len = u32::try_from(told.len()).map_err(io::Error::other)?;
                to.write_all(&[OF_SCRIPT])?;
                to.write_all(&len.to_le_bytes())?;
                to.write_all(told)
            }
            Frame::End => to.write_all(&[OF_END]),
        }
    }
}

/// What is collected, and for whom.
#[derive(Default)]
pub(crate) struct Collecting {
    out: Option<BufWriter<File>>,
    /// Memory whose writes are collected, and whether its value is a number.
    writes: Option<(Watched, bool)>,
    /// Places of writes that the script has been told of.
    known: BTreeSet<u64>,
    /// Places whose values are addresses of code, which the script is to name, ...
    addresses: BTreeSet<u64>,
    /// ... those that were met, ...
    met: BTreeSet<u64>,
    /// ... and of these the ones that it has not been told of.
    untold: Vec<u64>,
    /// The replay goes no farther than to where so many events have happened.
    until: Option<u64>,
}

impl Collecting {
    /// It goes on in another program, whose places are others.
    pub(crate) fn forget_program(&mut self) {
        self.writes = None;
        self.known.clear();
        self.addresses.clear();
        self.met.clear();
    }

    /// Where a motion forward ends that would go up to `end`.
    pub(crate) fn end(&self, end: u64) -> u64 {
        self.until.map_or(end, |until| until.min(end))
    }

    fn put(&mut self, row: &Row) -> Result<(), DebugError> {
        if self.addresses.contains(&row.pc) && self.met.insert(row.value) {
            self.untold.push(row.value);
        }
        match &mut self.out {
            Some(out) => Frame::Row(*row)
                .write(out)
                .map_err(os("pass on what was found")),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), DebugError> {
        match &mut self.out {
            Some(out) => out.flush().map_err(os("pass on what was found")),
            None => Ok(()),
        }
    }
}

/// Puts code that adds a row to the buffer, of the value in the word [`VALUE`]; the jump that is taken when the buffer is full, whose distance is
/// missing. rax, rcx, rdx and flags are free to use.
pub(crate) fn put_row(c: &mut Code, pc: u64, is_order: bool) -> usize {
    const RCX: u8 = 1;
    const RDX: u8 = 2;
    // mov rax, [rdx]; cmp rax, [rdx + 8]
    c.constant(RDX, BUFFER);
    c.put(&[0x48, 0x8b, 0x02, 0x48, 0x3b, 0x42, 0x08]);
    let full = c.branch(IF_ZERO);
    c.load(RCX, VALUE);
    c.put(&[0x48, 0x89, 0x08]);
    c.constant(RCX, pc);
    c.put(&[0x48, 0x89, 0x48, 0x08]);
    // mov rcx, gs:[0]; sub rcx, rdx; shr rcx, ...; mov [rax + 16], ecx: the slot
    c.constant(RDX, BLOCKS_BASE);
    c.put(&[0x65, 0x48, 0x8b, 0x0c, 0x25, 0, 0, 0, 0, 0x48, 0x29, 0xd1]);
    c.put(&[0x48, 0xc1, 0xe9, BLOCK_STRIDE.trailing_zeros() as u8]);
    c.put(&[0x89, 0x48, 0x10]);
    if is_order {
        // imul rcx, rcx, ...; mov rcx, [rdx + rcx]
        c.put(&[0x48, 0x69, 0xc9]);
        c.put(&(size_of::<RingControl>() as u32).to_le_bytes());
        let own = offset_of!(OrderHead, rings) + offset_of!(RingControl, events);
        c.constant(RDX, ORDER_BASE + own as u64);
        c.put(&[0x48, 0x8b, 0x0c, 0x0a]);
    } else {
        let all = offset_of!(Shared, ring) + offset_of!(RingControl, events);
        c.constant(RDX, SESSION_BASE + all as u64);
        c.put(&[0x48, 0x8b, 0x0a]);
    }
    // mov [rax + 24], rcx; mov ecx, [rax + 16]; imul rcx, rcx, ...; mov ecx, [rdx + rcx]; mov [rax + 20], ecx: the thread
    c.put(&[0x48, 0x89, 0x48, 0x18, 0x8b, 0x48, 0x10, 0x48, 0x69, 0xc9]);
    c.put(&(size_of::<Slot>() as u32).to_le_bytes());
    let thread = SESSION_LEN + offset_of!(Slot, visible_tid);
    c.constant(RDX, SESSION_BASE + thread as u64);
    c.put(&[0x8b, 0x0c, 0x0a, 0x89, 0x48, 0x14]);
    // add rax, ROW; mov [rdx], rax
    c.put(&[0x48, 0x83, 0xc0, ROW as u8]);
    c.constant(RDX, BUFFER);
    c.put(&[0x48, 0x89, 0x02]);
    full
}

impl Debuggee {
    /// Is anything collected?
    pub(crate) fn is_collecting(&self) -> bool {
        !self.points.collected.is_empty() || self.collecting.writes.is_some()
    }

    /// Is the thread at a stop that gdb has not asked for, but a script that collects?
    pub(crate) fn stops_for_itself(&self, slot: usize) -> bool {
        let at = self.in_program(slot).map(|r| r.rip);
        self.is_collecting() && !at.is_some_and(|at| self.points.is_wanted(at))
    }

    /// Puts the buffer into the process, if it is not there; false where that can't be. Nobody runs.
    pub(crate) fn give_buffer(&mut self) -> io::Result<bool> {
        // What is in it would be lost with a program that becomes another one; nobody can be stopped right before that.
        if self.timeline.next_program(self.events()).is_some() {
            return Ok(false);
        }
        if self.points.has_buffer {
            return Ok(true);
        }
        let map = self.in_its_name(|tid, gate| {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let len = FULL - BUFFER;
            let args = [BUFFER, len, prot as u64, flags as u64, u64::MAX, 0];
            gate.call(tid, libc::SYS_mmap, &args)?.ok()
        })?;
        if map != Some(BUFFER) {
            return Ok(false);
        }
        self.empty_buffer()?;
        self.memory
            .write_all_at(&FULL.to_le_bytes(), BUFFER + size_of::<u64>() as u64)?;
        self.points.has_buffer = true;
        Ok(true)
    }

    fn empty_buffer(&self) -> io::Result<()> {
        let first = BUFFER + HEAD;
        self.memory.write_all_at(&first.to_le_bytes(), BUFFER)
    }

    /// Takes the rows out of the buffer.
    pub(crate) fn drain(&mut self) -> Result<(), DebugError> {
        if !self.points.has_buffer {
            return Ok(());
        }
        let mut next = [0; 8];
        if self.read(BUFFER, &mut next).is_err() {
            // It is gone with the process.
            self.points.has_buffer = false;
            return Ok(());
        }
        // The program can scribble over it.
        let len = u64::from_le_bytes(next).wrapping_sub(BUFFER + HEAD);
        let len = len.min(ROWS * ROW) / ROW * ROW;
        if len == 0 {
            return Ok(());
        }
        let mut bytes = vec![0; len as usize];
        self.read(BUFFER + HEAD, &mut bytes)
            .and_then(|()| self.empty_buffer())
            .map_err(os("read what was collected"))?;
        for row in bytes.chunks_exact(ROW as usize) {
            let [value, pc, who, count] = [0, 8, 16, 24].map(|at| {
                let mut word = [0; 8];
                word.copy_from_slice(&row[at..at + 8]);
                u64::from_le_bytes(word)
            });
            let slot = (who as u32 as usize).min(MAX_SLOTS - 1);
            let event = match self.live.rings() {
                Some(rings) => {
                    let next = rings.event_after(slot, count);
                    next.unwrap_or(self.timeline.len())
                }
                None => count,
            };
            let thread = (who >> 32) as u32;
            self.collecting.put(&Row {
                pc,
                value,
                event,
                thread,
            })?;
        }
        Ok(())
    }

    fn put_down(&mut self, slot: usize, pc: u64, value: u64) -> Result<(), DebugError> {
        let (event, thread) = (self.next_event(), self.visible(slot));
        self.collecting.put(&Row {
            pc,
            value,
            event,
            thread,
        })
    }

    /// A thread stands at a breakpoint. Where a value is collected it is put down, and there is no stop; false as well where a condition does not
    /// hold. True: whoever asks has to look himself.
    pub(crate) fn is_to_stop(&mut self, slot: usize) -> Result<bool, DebugError> {
        let Some(r) = self.in_program(slot) else {
            return Ok(self.is_hit(slot));
        };
        let Some(e) = self.points.collected.get(&r.rip).cloned() else {
            let is_hit = self.is_hit(slot);
            self.points.false_stops += u64::from(!is_hit);
            return Ok(is_hit);
        };
        let read = |at: u64, into: &mut [u8]| self.read(at, into).is_ok();
        match e.value(&General::of(&r), read) {
            Some(value) => {
                self.put_down(slot, r.rip, value)?;
                Ok(!self.collecting.untold.is_empty())
            }
            None => Ok(true),
        }
    }

    /// Memory was written that is watched. True: the debugger has to see it, since nobody has told it of the place, or the value is no number.
    pub(crate) fn is_write_to_tell(&mut self, slot: usize) -> Result<bool, DebugError> {
        let pc = self.registers(slot)?.rip;
        if self.put_known_write(slot, pc)? {
            return Ok(false);
        }
        if let Some(value) = self.plain_value() {
            self.put_down(slot, pc, value)?;
            self.collecting.known.insert(pc);
        }
        Ok(true)
    }

    /// Puts down a write from a place that is known; false where it is none.
    pub(crate) fn put_known_write(&mut self, slot: usize, pc: u64) -> Result<bool, DebugError> {
        if !self.collecting.known.contains(&pc) {
            return Ok(false);
        }
        match self.plain_value() {
            Some(value) => self.put_down(slot, pc, value).map(|()| true),
            None => Ok(false),
        }
    }

    /// The value of what is watched, if that is a number.
    fn plain_value(&self) -> Option<u64> {
        let (watched, _) = self.collecting.writes.filter(|(_, is_plain)| *is_plain)?;
        let mut value = [0; MOST_PLAIN as usize];
        let there = value.get_mut(..watched.len as usize)?;
        self.read(watched.at, there).ok()?;
        Some(u64::from_le_bytes(value))
    }
}

impl Session {
    /// All that was collected is on its way.
    pub(crate) fn pass_on_collected(&mut self) -> Result<(), DebugError> {
        self.debuggee()?.collecting.flush()
    }

    /// A command of the script's; what to answer.
    pub(crate) fn collect(&mut self, words: &[&str]) -> Result<String, DebugError> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let last = self.last;
        let begins = self.debuggee()?.timeline.begins();
        let goal = match words {
            ["first"] => Some(Goal::Event(begins)),
            ["last"] => Some(Goal::Place(Place::End)),
            ["crash"] => Some(Goal::Place(Place::Crash)),
            ["panic"] => Some(Goal::Place(Place::Panic)),
            ["behind", event] => event.parse().ok().map(|n| Goal::Place(Place::Behind(n))),
            _ => None,
        };
        if goal.is_some() {
            self.goal = goal;
            return Ok("yes".into());
        }
        let d = self.debuggee()?;
        let done = match words {
            ["to", path] => {
                let file = File::options().write(true).open(Path::new(path));
                let file = file.map_err(os("open a pipe for what is found"))?;
                d.collecting.out = Some(BufWriter::with_capacity(WAITING, file));
                true
            }
            ["nothing"] => {
                d.forget_collected()?;
                true
            }
            ["until", event] => {
                d.collecting.until = event.parse().ok();
                d.collecting.until.is_some()
            }
            ["untold"] => {
                let all = &mut d.collecting.untold;
                let some = all.split_off(all.len().saturating_sub(MOST_NAMED));
                let words: Vec<String> = some.iter().map(|at| format!("{at:x}")).collect();
                return Ok(words.join(" "));
            }
            [how @ ("at" | "addresses"), pc, bytes] => match number(pc).zip(expression(bytes)) {
                Some((pc, e)) => {
                    d.points.collect(pc, Rc::new(e));
                    if *how == "addresses" {
                        d.collecting.addresses.insert(pc);
                    }
                    true
                }
                None => false,
            },
            ["writes", at, len, how @ ("plain" | "told")] => match number(at).zip(number(len)) {
                Some((at, len)) => d.collect_writes(at, len, *how == "plain")?,
                None => false,
            },
            ["why"] => return Ok(format!("{} {}", why(last), d.next_event())),
            _ => false,
        };
        Ok(if done { "yes" } else { "no" }.into())
    }
}

impl Debuggee {
    /// Nothing is collected from now on, as in a session that never did.
    fn forget_collected(&mut self) -> Result<(), DebugError> {
        if let Some((watched, _)) = self.collecting.writes {
            self.points.unwatch(watched);
            self.set_watchpoints()?;
        }
        self.points.forget_collected();
        self.collecting = Collecting::default();
        Ok(())
    }

    /// False where so much can't be watched.
    fn collect_writes(&mut self, at: u64, len: u64, is_plain: bool) -> Result<bool, DebugError> {
        let kind = WatchKind::Write;
        let watched = Watched { at, len, kind };
        if is_plain && len > MOST_PLAIN || !self.points.watch(watched) {
            return Ok(false);
        }
        self.collecting.writes = Some((watched, is_plain));
        self.set_watchpoints()?;
        Ok(true)
    }
}

/// An expression in hexadecimal.
fn expression(digits: &str) -> Option<Expression> {
    let pairs = digits.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    Expression::new(bytes?)
}

/// Why the last motion ended, in a word.
fn why(stop: Option<Stop>) -> &'static str {
    match stop {
        None | Some(Stop::Limit | Stop::Ended(_)) => "end",
        Some(Stop::Watch(..)) => "write",
        Some(Stop::Interrupted) => "interrupted",
        Some(Stop::Signal(..)) => "signal",
        Some(Stop::Exec) => "exec",
        Some(Stop::Breakpoint(_) | Stop::Stepped(_) | Stop::Call(..)) => "stop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let row = Row {
            pc: 1 << 40,
            value: u64::MAX,
            event: 7,
            thread: 12,
        };
        let all = [
            Frame::Row(row),
            Frame::Told(b"{}".to_vec()),
            Frame::Told(Vec::new()),
            Frame::End,
        ];
        let mut bytes = Vec::new();
        for frame in &all {
            frame.write(&mut bytes).expect("memory");
        }
        let mut from = bytes.as_slice();
        for frame in &all {
            assert_eq!(Frame::read(&mut from).ok().as_ref(), Some(frame));
        }
        assert!(Frame::read(&mut from).is_err());
        assert!(Frame::read(&mut &b"x"[..]).is_err());
        assert!(Frame::read(&mut &b"J\xff\xff\xff\xff"[..]).is_err());
    }
}
