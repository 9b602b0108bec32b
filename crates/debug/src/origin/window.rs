//! A stretch of one thread's steps, looked at one by one: the registers before each, and its instructions.
//!
//! No other thread runs in it, and no event happens: it goes from a gate, or from a checkpoint not far back, to the place that it was asked for.

use super::flow::{source_of, Location, Written};
use crate::debuggee::{Debuggee, General, RSP};
use crate::history::{never, Base, Name};
use crate::target::Session;
use crate::DebugError;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::collections::HashMap;

/// Bytes of the longest instruction.
const LONGEST: usize = 15;
/// Most instructions that one step makes, where the runtime has put some of them elsewhere.
const MOST_MOVED: usize = 8;
/// Most callers that are told.
const MOST_CALLERS: usize = 8;
const JMP: u8 = 0xe9;
const TRAP: u8 = 0xcc;

/// A thread before a step.
struct Before {
    registers: General,
    /// The word at the top of its stack.
    top: u64,
}

/// The steps, in their order.
pub(super) struct Window {
    pub base: Base,
    /// The place to which they lead.
    pub now: Name,
    /// Events that had happened at its beginning.
    pub begins: u64,
    /// Nobody but the thread has done anything since its beginning.
    pub is_alone: bool,
    steps: Vec<Before>,
    /// Where the thread was in the end, if it was in the program.
    end: Option<u64>,
    code: HashMap<u64, Vec<u8>>,
}

impl Session {
    /// The steps of the thread of `slot` that led here, as many as can be looked at; `None` where it had made none. The session is elsewhere then.
    pub(super) fn window(&mut self, slot: usize) -> Result<Option<Window>, DebugError> {
        let now = self.debuggee()?.name()?;
        let Some((base, count)) = self.way_by_ladder(slot, &now)? else {
            return Ok(None);
        };
        self.go_to_base(&base)?;
        let runs = now.is_of(slot);
        let d = self.debuggee()?;
        let begins = d.events();
        let mut w = Window {
            base,
            begins,
            is_alone: d.is_alone(slot, &now, runs, begins),
            steps: Vec::new(),
            end: now.pc().filter(|_| runs),
            code: HashMap::new(),
            now,
        };
        let end = d.timeline.end;
        d.unseen(|d| {
            for n in 1..=count {
                w.look(d, slot)?;
                // The last one would lead to where we were, or past a gate.
                if n < count {
                    d.step_far(slot, end, &mut never)?;
                    d.go_on_if_wanted()?;
                }
            }
            Ok(())
        })?;
        Ok(Some(w))
    }

    /// Goes to where so many steps of a window have been made.
    pub(super) fn go_into(
        &mut self,
        window: &Window,
        slot: usize,
        steps: usize,
    ) -> Result<(), DebugError> {
        self.go_to_base(&window.base)?;
        self.debuggee()?.make_steps(slot, steps as u64)
    }
}

impl Debuggee {
    /// Has nobody but the thread of `slot` done anything between a place at which so many events had happened and `now`?
    fn is_alone(&self, slot: usize, now: &Name, runs: bool, begins: u64) -> bool {
        if self.timeline.is_order || runs {
            return runs;
        }
        let own = |n: u64| {
            self.timeline
                .event(n)
                .is_some_and(|e| e.slot as usize == slot)
        };
        begins + 1 >= now.events && (begins..now.events).all(own)
    }
}

impl Window {
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    fn look(&mut self, d: &Debuggee, slot: usize) -> Result<(), DebugError> {
        let registers = d.registers(slot)?;
        let mut top = [0; 8];
        let _ = d.read(registers.r[RSP], &mut top);
        self.steps.push(Before {
            registers,
            top: u64::from_le_bytes(top),
        });
        self.code.entry(registers.rip).or_insert_with(|| {
            let mut code = vec![0; LONGEST + JUMPS];
            let n = d.read_some(registers.rip, &mut code).unwrap_or(0);
            code.truncate(n);
            // What the runtime has put there leads elsewhere. The files are only looked at where that can be.
            if code.contains(&JMP) || code.contains(&TRAP) {
                d.hide_jumps(registers.rip, &mut code);
            }
            code
        });
        Ok(())
    }

    /// Registers before a step.
    pub fn registers(&self, step: usize) -> &General {
        &self.steps[step].registers
    }

    /// Where the thread was behind a step, if that is known.
    fn behind(&self, step: usize) -> Option<u64> {
        match self.steps.get(step + 1) {
            Some(next) => Some(next.registers.rip),
            None => self.end,
        }
    }

    /// The instructions of a step: one, or some that follow each other and were made elsewhere as one.
    fn instructions(&self, step: usize) -> Vec<Instruction> {
        let at = self.steps[step].registers.rip;
        let code = self.code.get(&at).map_or(&[][..], |c| c);
        let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
        let mut all = Vec::new();
        let behind = self.behind(step).unwrap_or(0);
        while all.len() < MOST_MOVED && decoder.can_decode() {
            let i = decoder.decode();
            if i.is_invalid() {
                break;
            }
            let next = i.next_ip();
            let is_straight = i.flow_control() == FlowControl::Next;
            all.push(i);
            if !is_straight || behind <= next || behind - at > LONGEST as u64 {
                break;
            }
        }
        all
    }

    /// The instruction of a step.
    pub fn instruction(&self, step: usize) -> Option<Instruction> {
        self.instructions(step).first().copied()
    }

    /// What a step has written to a location.
    pub fn source_of(&self, step: usize, to: &Location) -> Option<Written> {
        let all = self.instructions(step);
        let registers = self.registers(step);
        all.iter().rev().find_map(|i| source_of(i, registers, to))
    }

    /// Was the value of a general register changed by a step whose instructions don't?
    pub fn has_changed(&self, step: usize, place: usize) -> bool {
        let after = self.steps.get(step + 1);
        after.is_some_and(|a| a.registers.r[place] != self.registers(step).r[place])
    }

    /// Did it come back from a function in one step?
    pub fn is_of_runtime(&self, step: usize) -> bool {
        let Some(i) = self.instruction(step) else {
            return true;
        };
        let behind = self.behind(step);
        i.flow_control() == FlowControl::Next
            && behind.is_some_and(|b| {
                b != i.ip() && self.instructions(step).last().map(Instruction::next_ip) != Some(b)
            })
    }

    /// Addresses of the calls that led to a step, the nearest first.
    pub fn callers(&self, step: usize) -> Vec<u64> {
        let (mut callers, mut inside) = (Vec::new(), 0);
        for n in (0..step).rev() {
            let Some(i) = self.instruction(n) else { break };
            match i.flow_control() {
                FlowControl::Return => inside += 1,
                FlowControl::Call | FlowControl::IndirectCall
                    if self.behind(n) != Some(i.next_ip()) =>
                {
                    match inside {
                        0 => callers.push(i.ip()),
                        _ => inside -= 1,
                    }
                    if callers.len() == MOST_CALLERS {
                        return callers;
                    }
                }
                _ => {}
            }
        }
        if callers.is_empty() && inside == 0 {
            // A function that needs no room on the stack has where it returns to on top of that.
            callers.push(self.steps[step].top.wrapping_sub(1));
        }
        callers
    }
}

/// Room for what the runtime has put behind an instruction.
const JUMPS: usize = 8;
