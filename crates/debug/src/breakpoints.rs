//! Breakpoints and watchpoints. A breakpoint is in the program's code only while the program runs: nobody who reads memory at a stop sees
//! it, and neither does the runtime when it reads or writes code (`debugger.rs` there).

use crate::compiled::Compiled;
use crate::debuggee::Debuggee;
use crate::{os, ptrace, DebugError};
use gdbstub::target::ext::breakpoints::WatchKind;
use reprise_abi::layout::PAGE;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The one-byte instruction that traps.
const INT3: u8 = 0xcc;
/// Most watchpoints at a time: debug registers of the processor.
pub const MAX_WATCHED: usize = 4;
/// The debug register that says which of the others was hit.
const STATUS: u64 = 6;
/// The debug register that arms the others.
const CONTROL: u64 = 7;

/// Memory that is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Its first byte, a multiple of `len`.
    pub at: u64,
    /// 1, 2, 4 or 8 bytes.
    pub len: u64,
    /// What is reported.
    pub kind: WatchKind,
}

/// What the debugger wants to stop at.
#[derive(Default)]
pub struct Breakpoints {
    /// Addresses, and how often each was asked for.
    wanted: BTreeMap<u64, u32>,
    /// Pages of them that can be run.
    code: BTreeSet<u64>,
    /// Addresses of our own, for one run.
    own: BTreeSet<u64>,
    /// Those that are in the code now, and the bytes under them.
    inserted: BTreeMap<u64, u8>,
    /// The one of our own that is compiled into the code.
    pub(crate) compiled: Option<Compiled>,
    /// Debug registers in use.
    watched: [Option<Watched>; MAX_WATCHED],
}

impl Breakpoints {
    /// As in a process that has none in its code yet.
    pub fn taken_out(self) -> Breakpoints {
        Breakpoints {
            inserted: BTreeMap::new(),
            compiled: None,
            own: BTreeSet::new(),
            ..self
        }
    }

    /// As in a process that is another program: the debugger wants none of them any more.
    pub fn forgotten(self) -> Breakpoints {
        Breakpoints {
            inserted: self.inserted,
            ..Breakpoints::default()
        }
    }

    /// Adds one.
    pub fn add(&mut self, at: u64) {
        *self.wanted.entry(at).or_default() += 1;
    }

    /// Takes one away; false when there is none.
    pub fn remove(&mut self, at: u64) -> bool {
        let Some(n) = self.wanted.get_mut(&at) else {
            return false;
        };
        *n -= 1;
        if *n == 0 {
            self.wanted.remove(&at);
        }
        true
    }

    /// Does the debugger want to stop here?
    pub fn is_wanted(&self, at: u64) -> bool {
        self.wanted.contains_key(&at)
    }

    /// Does somebody?
    pub fn is_any(&self, at: u64) -> bool {
        self.is_wanted(at) || self.own.contains(&at)
    }

    /// Are there others than the one at `at` in this stretch, or does the debugger want to stop at `at` itself?
    pub fn has_others_in(&self, at: u64, stretch: &Range<u64>) -> bool {
        let all = self.wanted.keys().chain(&self.own);
        self.is_wanted(at) || all.into_iter().any(|p| *p != at && stretch.contains(p))
    }

    /// Is one in the code here?
    pub fn is_inserted(&self, at: u64) -> bool {
        self.inserted.contains_key(&at)
    }

    /// Sets our own ones.
    pub fn set_own(&mut self, own: impl IntoIterator<Item = u64>) {
        self.own = own.into_iter().collect();
    }

    /// Is memory watched?
    pub fn is_watching(&self) -> bool {
        self.watched.iter().any(Option::is_some)
    }

    /// What debug register `i` watches.
    pub fn watched(&self, i: usize) -> Option<Watched> {
        self.watched.get(i).copied().flatten()
    }

    /// Watches memory; false when it can't be done with the registers that are left.
    pub fn watch(&mut self, w: Watched) -> bool {
        let Some(pieces) = pieces(w) else {
            return false;
        };
        let free = self.watched.iter().filter(|r| r.is_none()).count();
        if pieces.len() > free {
            return false;
        }
        let mut pieces = pieces.into_iter();
        for register in self.watched.iter_mut().filter(|r| r.is_none()) {
            *register = pieces.next();
        }
        true
    }

    /// Watches it no more.
    pub fn unwatch(&mut self, w: Watched) -> bool {
        let Some(pieces) = pieces(w) else {
            return false;
        };
        for piece in pieces {
            let register = self.watched.iter_mut().find(|r| **r == Some(piece));
            let Some(register) = register else {
                return false;
            };
            *register = None;
        }
        true
    }

    /// The control register's value.
    fn control(&self) -> u64 {
        let mut control = 0;
        for (i, w) in self.watched.iter().enumerate() {
            let Some(w) = w else { continue };
            let when = match w.kind {
                WatchKind::Write => 1,
                // Reads alone can't be watched.
                WatchKind::Read | WatchKind::ReadWrite => 3,
            };
            let len = match w.len {
                1 => 0,
                2 => 1,
                8 => 2,
                _ => 3,
            };
            control |= 1 << (2 * i) | (when | len << 2) << (16 + 4 * i);
        }
        control
    }
}

/// Memory in pieces that a debug register can watch; `None` when they are too many.
fn pieces(w: Watched) -> Option<Vec<Watched>> {
    let mut list = Vec::new();
    let (mut at, end) = (w.at, w.at.checked_add(w.len)?);
    while at < end {
        let len = [8, 4, 2, 1]
            .into_iter()
            .find(|n| at % n == 0 && at + n <= end)?;
        list.push(Watched { at, len, ..w });
        at += len;
        if list.len() > MAX_WATCHED {
            return None;
        }
    }
    Some(list)
}

impl Debuggee {
    /// Puts all breakpoints into the program's code.
    pub(crate) fn insert(&mut self) {
        let all: Vec<u64> = {
            let p = &self.points;
            p.wanted.keys().chain(&p.own).copied().collect()
        };
        let events = self.events();
        for at in all {
            if self.points.inserted.contains_key(&at)
                || self.is_inside_rewritten(at, events)
                || !self.is_code(at)
            {
                continue;
            }
            if self.insert_compiled(at) {
                continue;
            }
            let mut old = [0];
            // Code that isn't there yet is looked for again when the program goes on next.
            if self.memory.read_exact_at(&mut old, at).is_ok()
                && self.memory.write_all_at(&[INT3], at).is_ok()
            {
                self.points.inserted.insert(at, old[0]);
            }
        }
    }

    /// Can what is here be run? Elsewhere a breakpoint would change data: gdb has one on the stack as long as a function that it called
    /// has not returned.
    fn is_code(&mut self, at: u64) -> bool {
        let page = at & !(PAGE - 1);
        if self.points.code.contains(&page) {
            return true;
        }
        let is = self
            .code_mappings()
            .is_ok_and(|all| all.iter().any(|m| m.contains(&at)));
        if is {
            self.points.code.insert(page);
        }
        is
    }

    /// Takes them out again.
    pub(crate) fn take_out(&mut self) {
        self.take_out_compiled();
        for (at, old) in std::mem::take(&mut self.points.inserted) {
            let mut now = [0];
            // Something else may have been mapped there.
            if self.memory.read_exact_at(&mut now, at).is_ok() && now[0] == INT3 {
                let _ = self.memory.write_all_at(&[old], at);
            }
        }
    }

    /// Puts one byte into the runtime's code, or back; the byte that was there.
    pub(crate) fn exchange(&self, at: u64, byte: u8) -> Result<u8, DebugError> {
        let mut old = [0];
        self.memory
            .read_exact_at(&mut old, at)
            .and_then(|()| self.memory.write_all_at(&[byte], at))
            .map_err(os("set a breakpoint in the runtime"))?;
        Ok(old[0])
    }

    /// Makes the debug registers of all threads agree with what is watched.
    pub(crate) fn set_watchpoints(&mut self) -> Result<(), DebugError> {
        let tids: Vec<_> = self.threads.keys().copied().collect();
        for tid in tids {
            match self.while_stopped(tid, || self.arm(tid)) {
                // It has ended, and we are about to be told.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                done => done.map_err(os("watch memory"))?,
            }
        }
        Ok(())
    }

    /// The same for one thread that is stopped.
    pub(crate) fn arm(&self, tid: libc::pid_t) -> std::io::Result<()> {
        ptrace::set_debug_register(tid, CONTROL, 0)?;
        for (i, w) in self.points.watched.iter().enumerate() {
            if let Some(w) = w {
                ptrace::set_debug_register(tid, i as u64, w.at)?;
            }
        }
        ptrace::set_debug_register(tid, CONTROL, self.points.control())
    }

    /// The watchpoint that a stopped thread has hit, if it has.
    pub(crate) fn watch_hit(&self, tid: libc::pid_t) -> Option<Watched> {
        if !self.points.is_watching() {
            return None;
        }
        let status = ptrace::debug_register(tid, STATUS).ok()?;
        let hit = (0..MAX_WATCHED).find(|i| status & 1 << i != 0)?;
        ptrace::set_debug_register(tid, STATUS, 0).ok()?;
        self.points.watched(hit)
    }
}

/// The instruction that traps.
pub(crate) const TRAP: u8 = INT3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_cut_into_pieces_that_registers_can_watch() {
        let watched = |at, len| {
            let kind = WatchKind::Write;
            let list = pieces(Watched { at, len, kind });
            list.map(|l| l.iter().map(|p| (p.at, p.len)).collect::<Vec<_>>())
        };
        assert_eq!(watched(0x1000, 8), Some(vec![(0x1000, 8)]));
        assert_eq!(
            watched(0x1003, 6),
            Some(vec![(0x1003, 1), (0x1004, 4), (0x1008, 1)])
        );
        assert_eq!(watched(0x1000, 40), None);
        assert_eq!(watched(u64::MAX, 2), None);
    }

    #[test]
    fn registers_are_given_back() {
        let mut b = Breakpoints::default();
        let w = |at| Watched {
            at,
            len: 16,
            kind: WatchKind::Write,
        };
        assert!(b.watch(w(0x1000)) && b.watch(w(0x2000)) && !b.watch(w(0x3000)));
        assert!(b.unwatch(w(0x1000)) && b.watch(w(0x3000)) && !b.unwatch(w(0x1000)));
        assert_eq!(b.control() & 0xff, 0b0101_0101);
    }

    #[test]
    fn a_breakpoint_goes_with_the_last_who_wanted_it() {
        let mut b = Breakpoints::default();
        b.add(7);
        b.add(7);
        assert!(b.remove(7) && b.is_wanted(7));
        assert!(b.remove(7) && !b.is_wanted(7) && !b.remove(7));
    }
}
