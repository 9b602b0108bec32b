//! Breakpoints and watchpoints. A breakpoint is in the program's code only while the program runs: nobody who reads memory at a stop sees
//! it, and neither does the runtime when it reads or writes code (`debugger.rs` there).

use crate::calls::Calls;
use crate::compiled::{Compiled, Tests};
use crate::debuggee::{Debuggee, General};
use crate::expression::Expression;
use crate::{os, ptrace, DebugError};
use gdbstub::target::ext::breakpoints::WatchKind;
use reprise_abi::layout::PAGE;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

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

/// Of a breakpoint: it is one while any of these is true, or always if there is none.
pub type Conditions = Vec<Rc<Expression>>;

/// How the debugger asks for a breakpoint. It may ask in both ways at one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// As one in the code.
    Software,
    /// As one of the processor's.
    Hardware,
}

/// What we look for ourselves at an address.
#[derive(Clone, Copy, Default)]
struct Own {
    /// These registers.
    registers: Option<General>,
    /// The visit of this number, from now on.
    visit: Option<u64>,
}

/// What the debugger wants to stop at.
#[derive(Default)]
pub struct Breakpoints {
    /// Addresses, and with which conditions in each way.
    wanted: BTreeMap<u64, [Option<Conditions>; 2]>,
    /// Pages of them that can be run.
    code: BTreeSet<u64>,
    /// Addresses of our own, and what is looked for there.
    own: BTreeMap<u64, Own>,
    /// Addresses at which the value of an expression is put down ([`crate::collect`]).
    pub(crate) collected: BTreeMap<u64, Rc<Expression>>,
    /// The buffer for these values is in the process.
    pub(crate) has_buffer: bool,
    /// Those that are in the code now, and the bytes under them.
    inserted: BTreeMap<u64, u8>,
    /// Those that are compiled into stubs in the process.
    pub(crate) compiled: Vec<Compiled>,
    /// Those that can't be.
    refused: BTreeSet<u64>,
    /// What is compiled is no more what is wanted.
    changed: bool,
    /// Stops at conditions that did not hold.
    pub(crate) false_stops: u64,
    /// Debug registers in use.
    watched: [Option<Watched>; MAX_WATCHED],
    /// Calls at which it wants to stop.
    pub(crate) calls: Option<Calls>,
}

impl Breakpoints {
    /// As in a process that has none in its code yet.
    pub fn taken_out(self) -> Breakpoints {
        Breakpoints {
            inserted: BTreeMap::new(),
            compiled: Vec::new(),
            refused: BTreeSet::new(),
            own: BTreeMap::new(),
            has_buffer: false,
            ..self
        }
    }

    /// As in a process that is another program: the debugger wants none of them any more.
    pub fn forgotten(self) -> Breakpoints {
        Breakpoints {
            inserted: self.inserted,
            compiled: self.compiled,
            changed: true,
            // These are the process's, whatever program it is.
            calls: self.calls,
            ..Breakpoints::default()
        }
    }

    /// Adds one, or gives it other conditions.
    pub fn add(&mut self, at: u64, way: Way, conditions: Conditions) {
        let ways = self.wanted.entry(at).or_default();
        let new = Some(conditions);
        self.changed |= ways[way as usize] != new;
        ways[way as usize] = new;
    }

    /// Takes one away; false when there is none.
    pub fn remove(&mut self, at: u64, way: Way) -> bool {
        let Some(ways) = self.wanted.get_mut(&at) else {
            return false;
        };
        let was = ways[way as usize].take().is_some();
        if ways.iter().all(Option::is_none) {
            self.wanted.remove(&at);
        }
        self.changed |= was;
        was
    }

    /// Does the debugger want to stop here, perhaps under a condition?
    pub fn is_wanted(&self, at: u64) -> bool {
        self.wanted.contains_key(&at)
    }

    /// The conditions of a breakpoint that has some.
    pub fn conditions(&self, at: u64) -> Option<Conditions> {
        let mut all = Vec::new();
        for conditions in self.wanted.get(&at)?.iter().flatten() {
            if conditions.is_empty() {
                return None;
            }
            all.extend(conditions.iter().cloned());
        }
        Some(all)
    }

    /// Do we look for a place of our own here?
    pub fn is_own(&self, at: u64) -> bool {
        self.own.contains_key(&at)
    }

    /// Does somebody want to stop here?
    pub fn is_any(&self, at: u64) -> bool {
        self.is_wanted(at) || self.is_own(at) || self.collected.contains_key(&at)
    }

    fn all(&self) -> impl Iterator<Item = u64> + '_ {
        let mine = self.own.keys().chain(self.collected.keys());
        self.wanted.keys().chain(mine).copied()
    }

    /// Are there others than the one at `at` in this stretch?
    pub fn has_others_in(&self, at: u64, stretch: &Range<u64>) -> bool {
        self.all().any(|p| p != at && stretch.contains(&p))
    }

    /// Has what is wanted changed since something was compiled? It is forgotten what could not be.
    pub(crate) fn has_changed(&mut self) -> bool {
        let changed = std::mem::take(&mut self.changed);
        if changed {
            self.refused.clear();
        }
        changed
    }

    /// Where there should be stubs, and what is tested in each.
    pub(crate) fn to_test(&self) -> BTreeMap<u64, Tests> {
        // The processor would tell of what a condition reads.
        let reads = |w: &Watched| w.kind != WatchKind::Write;
        let reads_are_seen = self.watched.iter().flatten().any(reads);
        let tests = |at: u64| {
            let own = self.own.get(&at).copied().unwrap_or_default();
            let collected = self.collected.get(&at).cloned();
            let conditions = match self.is_wanted(at) && collected.is_none() {
                true if reads_are_seen => return None,
                true => self.conditions(at)?,
                false => Vec::new(),
            };
            let tests = Tests {
                registers: own.registers,
                visit: own.visit,
                conditions,
                collected,
            };
            Some((at, tests))
        };
        self.all().filter_map(tests).collect()
    }

    /// Is this one compiled, or can't it be?
    pub(crate) fn is_settled(&self, at: u64) -> bool {
        self.refused.contains(&at) || self.compiled.iter().any(|c| c.at == at)
    }

    /// This one can't be compiled.
    pub(crate) fn note_refused(&mut self, at: u64) {
        self.refused.insert(at);
    }

    /// Is one in the code here?
    pub fn is_inserted(&self, at: u64) -> bool {
        self.inserted.contains_key(&at)
    }

    /// Puts the value of an expression down at each visit of the instruction at `at`.
    pub(crate) fn collect(&mut self, at: u64, e: Rc<Expression>) {
        let same = self.collected.get(&at) == Some(&e);
        self.collected.insert(at, e);
        self.changed |= !same;
    }

    /// Puts no values down any more.
    pub(crate) fn forget_collected(&mut self) {
        self.changed |= !self.collected.is_empty();
        self.collected.clear();
    }

    /// Looks for the place, or the places, with these registers.
    pub fn look_for(&mut self, registers: General) {
        self.own.entry(registers.rip).or_default().registers = Some(registers);
        self.changed = true;
    }

    /// Counts visits of the instruction at `at`, and looks for the one of this number.
    pub fn count_visits(&mut self, at: u64, number: u64) {
        self.own.entry(at).or_default().visit = Some(number);
        self.changed = true;
    }

    /// Looks for nothing more.
    pub fn forget_own(&mut self) {
        self.own.clear();
        self.changed = true;
    }

    /// Do we look for a place of our own?
    pub fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// Is memory watched?
    pub fn is_watching(&self) -> bool {
        self.watched.iter().any(Option::is_some)
    }

    /// What debug register `i` watches.
    pub fn watched(&self, i: usize) -> Option<Watched> {
        self.watched.get(i).copied().flatten()
    }

    /// All that is watched.
    pub(crate) fn all_watched(&self) -> impl Iterator<Item = Watched> + '_ {
        self.watched.iter().flatten().copied()
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
        self.changed |= w.kind != WatchKind::Write;
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
        self.changed |= w.kind != WatchKind::Write;
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
        let all: BTreeSet<u64> = self.points.all().collect();
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

    /// The watchpoint that a stopped thread has hit, as the processor tells it.
    pub(crate) fn told_hit(&self, tid: libc::pid_t) -> Option<Watched> {
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
        let (soft, hard) = (Way::Software, Way::Hardware);
        // To ask twice is to ask once.
        b.add(7, soft, Vec::new());
        b.add(7, soft, Vec::new());
        b.add(7, hard, Vec::new());
        assert!(b.remove(7, soft) && b.is_wanted(7));
        assert!(b.remove(7, hard) && !b.is_wanted(7) && !b.remove(7, soft));
    }

    #[test]
    fn a_breakpoint_has_conditions_as_long_as_nobody_wants_it_without() {
        let mut b = Breakpoints::default();
        let never: Vec<_> = Expression::new(vec![0x22, 0, 0x27])
            .map(Rc::new)
            .into_iter()
            .collect();
        b.add(7, Way::Software, never.clone());
        assert!(b.has_changed() && b.conditions(7).is_some_and(|all| all.len() == 1));
        assert_eq!(b.to_test().len(), 1);
        b.add(7, Way::Software, never.clone());
        assert!(!b.has_changed());
        b.add(7, Way::Hardware, Vec::new());
        assert!(b.has_changed() && b.conditions(7).is_none() && b.to_test().is_empty());
        assert!(b.remove(7, Way::Hardware) && b.conditions(7).is_some());
        // What an expression reads is not to be told of.
        let (at, len, kind) = (0x1000, 8, WatchKind::ReadWrite);
        assert!(b.watch(Watched { at, len, kind }) && b.to_test().is_empty());
    }
}
