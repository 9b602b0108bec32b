//! `reprise races`: replays a trace of a program that `reprise cc --races` built, and tells which accesses to memory nothing orders (Castor 6).
//!
//! What finds them is the runtime (its `races` module). A first replay finds pairs of accesses, by their numbers; a second one, which is the same to
//! the instruction, stops at these numbers, so that the stack of each can be seen.

use crate::driver::{replay_hunting, Options, Outcome};
use crate::mappings::Mappings;
use crate::stacks::{words, Registers, Unwinder};
use crate::ReplayError;
use reprise_abi::races::{self as abi, how, MAX_RACES};
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// One access to memory.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Its number among all accesses of the replay.
    pub number: u64,
    /// Address of its first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// It changes the memory.
    pub writes: bool,
    /// It is atomic.
    pub atomic: bool,
    /// It gives the memory back.
    pub frees: bool,
    /// The thread, counted by their beginnings; the first is 0.
    pub thread: u32,
    /// The thread's id in the recording, 0 if it is not known.
    pub tid: u32,
    /// Number of the thread's last event before it, as `reprise dump` counts them.
    pub event: Option<u64>,
    /// Functions and lines, the innermost first.
    pub stack: Vec<String>,
    pc: u64,
    slot: u32,
    events: u64,
}

/// Two accesses that nothing orders.
#[derive(Clone, Debug)]
pub struct Race {
    /// The one that came first in the replay.
    pub earlier: Access,
    /// The one that came second.
    pub later: Access,
    /// Which variable it is about, where symbols tell.
    pub variable: Option<String>,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// The races, in the order in which they were found.
    pub races: Vec<Race>,
    /// Modules of the program that were built for this.
    pub modules: u32,
    /// Accesses that were looked at.
    pub accesses: u64,
    /// How the first replay ended.
    pub outcome: Outcome,
}

/// What a replay looks for.
#[derive(Default)]
pub(crate) struct Hunt {
    /// How many races.
    wanted: u32,
    /// Numbers of accesses whose stacks are wanted.
    stops: Vec<u64>,
    races: Vec<(Access, Access)>,
    stopped: Vec<(Access, Registers, Vec<u64>)>,
    modules: u32,
    accesses: u64,
}

fn access(a: &abi::Access) -> Access {
    let is = |bit| a.how.load(Relaxed) & bit != 0;
    Access {
        number: a.number.load(Relaxed),
        address: a.address.load(Relaxed),
        size: a.size.load(Relaxed),
        writes: is(how::WRITES),
        atomic: is(how::ATOMIC),
        frees: is(how::FREES),
        thread: a.thread.load(Relaxed),
        tid: a.tid.load(Relaxed),
        event: None,
        stack: Vec::new(),
        pc: a.pc.load(Relaxed),
        slot: a.slot.load(Relaxed),
        events: a.events.load(Relaxed),
    }
}

impl Hunt {
    /// Tells the runtime what to look for.
    pub fn prepare(&self, area: &abi::Races) {
        area.wanted.store(self.wanted, Relaxed);
        for (to, number) in area.stops.iter().zip(&self.stops) {
            to.number.store(*number, Relaxed);
        }
        let len = self.stops.len().min(area.stops.len());
        area.stops_len.store(len as u32, Relaxed);
    }

    /// Takes over what it found.
    pub fn read(&mut self, area: &abi::Races) {
        self.modules = area.modules.load(Relaxed);
        self.accesses = area.accesses.load(Relaxed);
        let found = (area.found.load(Acquire) as usize).min(MAX_RACES);
        for r in &area.list[..found] {
            self.races.push((access(&r.earlier), access(&r.later)));
        }
        for s in &area.stops[..self.stops.len().min(area.stops.len())] {
            if s.taken.load(Acquire) == 0 {
                continue;
            }
            let stack = words(&s.stack, &s.stack_len);
            let registers = Registers::of(&s.registers);
            self.stopped.push((access(&s.access), registers, stack));
        }
    }
}

/// Looks for up to `wanted` races in the trace in `dir`.
///
/// # Errors
/// When the trace can't be read or replayed, or is of an engine that doesn't record what orders threads.
pub fn find(dir: &Path, wanted: usize) -> Result<Found, ReplayError> {
    let options = Options {
        quiet: true,
        ..Options::default()
    };
    let mut first = Hunt {
        wanted: wanted.clamp(1, MAX_RACES) as u32,
        ..Hunt::default()
    };
    let outcome = replay_hunting(dir, &options, Some(&mut first))?;
    let mut stops: Vec<u64> = first
        .races
        .iter()
        .flat_map(|(a, b)| [a.number, b.number])
        .collect();
    stops.sort_unstable();
    stops.dedup();
    let mut second = Hunt {
        stops,
        ..Hunt::default()
    };
    if !first.races.is_empty() {
        replay_hunting(dir, &options, Some(&mut second))?;
    }
    let mut races = Vec::new();
    for (earlier, later) in first.races {
        let (e, l) = (second.complete(earlier), second.complete(later));
        races.push(named(dir, e, l)?);
    }
    Ok(Found {
        races,
        modules: first.modules,
        accesses: first.accesses,
        outcome,
    })
}

/// An access with the state of its thread, where that is known.
type Complete = (Access, Option<(Registers, Vec<u64>)>);

impl Hunt {
    fn complete(&self, known: Access) -> Complete {
        let same = |s: &&(Access, Registers, Vec<u64>)| {
            (s.0.number, s.0.pc, s.0.thread) == (known.number, known.pc, known.thread)
        };
        match self.stopped.iter().find(same) {
            Some((a, registers, stack)) => (a.clone(), Some((*registers, stack.clone()))),
            None => (known, None),
        }
    }
}

/// With names for everything.
fn named(dir: &Path, earlier: Complete, later: Complete) -> Result<Race, ReplayError> {
    let wanted = [&earlier, &later].map(|(a, _)| (a.slot, a.events));
    let (mappings, numbers) = Mappings::read(dir, &wanted)?;
    let finish = |(mut a, state): Complete, event: Option<u64>| {
        a.event = event;
        a.stack = match state {
            Some((registers, stack)) => Unwinder::new(&mappings).stack(registers, &stack),
            None => mappings.lines(a.pc.wrapping_sub(1)),
        };
        a
    };
    let variable = mappings.variable(later.0.address);
    Ok(Race {
        earlier: finish(earlier, numbers[0]),
        later: finish(later, numbers[1]),
        variable,
    })
}
