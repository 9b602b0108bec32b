//! System calls at which the debugger wants to stop (`catch syscall`): where a call has come back to the program, with its result and, in
//! their registers, its arguments.
//!
//! The trace says beforehand which calls there are. Behind each event the replay can be held, which is where the call of that event ends.
//! Where it begins has no such name, so nothing stops there.

use crate::control::Stop;
use crate::debuggee::Debuggee;
use crate::{os, DebugError};
use reprise_abi::event::{EventHeader, Kind};
use reprise_trace::Reader;
use std::collections::BTreeSet;

/// Which calls are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    /// Their numbers; `None`: all.
    numbers: Option<BTreeSet<u64>>,
    /// From which event on was looked, and what was found.
    found: Option<(u64, Option<Call>)>,
}

/// An event of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub event: u64,
    pub slot: usize,
    pub number: u64,
}

impl Calls {
    pub fn new(numbers: Option<BTreeSet<u64>>) -> Calls {
        Calls {
            numbers,
            found: None,
        }
    }

    fn wants(&self, h: &EventHeader) -> bool {
        let number = u64::from(h.detail);
        let is_wanted = self.numbers.as_ref().is_none_or(|n| n.contains(&number));
        is_wanted && matches!(Kind::from_u8(h.kind), Some(Kind::Syscall | Kind::Exit))
    }
}

impl Debuggee {
    /// The next call that is wanted, from this event on and before `end`.
    pub(crate) fn next_call(&mut self, from: u64, end: u64) -> Result<Option<Call>, DebugError> {
        let Some(calls) = &mut self.points.calls else {
            return Ok(None);
        };
        if let Some((since, call)) = calls.found {
            if since <= from && call.is_none_or(|c| c.event >= from) {
                return Ok(call.filter(|c| c.event < end));
            }
        }
        let mut reader = Reader::open(&self.dir)?;
        reader.seek(from)?;
        let mut found = None;
        while let Some(e) = reader.next()? {
            let Ok(h) = EventHeader::parse(e.bytes) else {
                break;
            };
            if calls.wants(&h) {
                found = Some(Call {
                    event: e.number,
                    slot: h.slot as usize,
                    number: u64::from(h.detail),
                });
                break;
            }
        }
        calls.found = Some((from, found));
        Ok(found.filter(|c| c.event < end))
    }

    /// As [`Debuggee::go_far`], and stops at calls that are wanted.
    ///
    /// # Errors
    /// As there.
    pub fn go_far(
        &mut self,
        events: u64,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        if self.points.calls.is_none() || self.timeline.is_order {
            return self.go_past_calls(events, wanted);
        }
        loop {
            let Some(call) = self.next_call(self.events(), events)? else {
                return self.go_past_calls(events, wanted);
            };
            let stop = self.go_past_calls(call.event + 1, wanted)?;
            if stop != Stop::Limit || self.events() != call.event + 1 {
                return Ok(stop);
            }
            // Others are another process's, or never come back.
            if self.slots().any(|slot| slot == call.slot) {
                self.current = call.slot;
                return Ok(Stop::Call(call.slot, call.number));
            }
        }
    }

    /// What the kernel told, or would tell, of the signal at which the thread of `slot` stands (`siginfo_t`).
    ///
    /// # Errors
    /// When the trace can't be read.
    pub(crate) fn signal_told(&self, slot: usize, signal: i32) -> Result<Vec<u8>, DebugError> {
        let tid = self.tid(slot);
        let at_signal = self.threads.get(&tid).is_some_and(|t| t.signal == signal);
        if at_signal && self.in_program(slot).is_some() {
            let info = crate::ptrace::signal_info(tid).map_err(os("read a signal"))?;
            // SAFETY: plain bytes.
            let bytes: [u8; SIGINFO] = unsafe { std::mem::transmute(info) };
            return Ok(bytes.to_vec());
        }
        self.signal_sent(slot, signal)
    }

    /// Of a signal that ended the process in a call of its own: as the call's event has it.
    fn signal_sent(&self, slot: usize, signal: i32) -> Result<Vec<u8>, DebugError> {
        use reprise_abi::syscalls::nr;
        const SI_USER: i32 = 0;
        const SI_TKILL: i32 = -6;
        let mut info = vec![0; SIGINFO];
        let mut put =
            |at: usize, value: i32| info[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(0, signal);
        let here = self.events();
        let mut reader = Reader::open(&self.dir)?;
        reader.seek(here.saturating_sub(1).max(self.timeline.first))?;
        for _ in 0..2 {
            let Some(e) = reader.next()? else { break };
            let e = e.parse()?;
            let (code, sent) = match (e.kind, u64::from(e.header.detail)) {
                (Kind::Syscall | Kind::Enter, nr::TGKILL) => (SI_TKILL, e.arg(2)),
                (Kind::Syscall | Kind::Enter, nr::TKILL) => (SI_TKILL, e.arg(1)),
                (Kind::Syscall | Kind::Enter, nr::KILL) => (SI_USER, e.arg(1)),
                _ => continue,
            };
            if e.header.slot as usize == slot && sent == signal as u64 {
                // si_code, and si_pid behind it.
                put(8, code);
                let by = self.process_id();
                put(16, by);
                break;
            }
        }
        Ok(info)
    }

    /// The process's id as itself knew it: that of its first thread, where that is known.
    fn process_id(&self) -> i32 {
        let first = self.slots().map(|slot| self.visible(slot)).min();
        first.unwrap_or(0) as i32
    }
}

/// Length of a `siginfo_t`.
const SIGINFO: usize = 128;
