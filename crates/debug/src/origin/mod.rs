//! Where a value comes from: the last write to its location, what that instruction read, and so on backward, through memory and registers.
//!
//! Two ways of looking back take turns. What wrote to memory long ago is found by watchpoints, from checkpoint to checkpoint
//! (`ladder`); what an instruction did and where it had the value from, by looking at each step of a short stretch
//! (`window`), with what is known of each instruction (`flow`). A value that is only moved is followed; the trail ends where it was
//! computed, where it is in the code, where the kernel has written it, or where it was from the beginning.
//!
//! What is found goes to the script that has asked, a line each; places are addresses there, which gdb names.

pub mod flow;
mod ladder;
mod window;

use crate::breakpoints::Watched;
use crate::debuggee::Debuggee;
use crate::history::Base;
use crate::target::Session;
use crate::DebugError;
use flow::{general, index, Location, Operand, Source};
use gdbstub::target::ext::breakpoints::WatchKind;
use iced_x86::Register;
use ladder::Hit;
pub(crate) use ladder::Ladder;
use reprise_abi::event::{Event, Kind, Tag};
use reprise_abi::inputs::Reference;
use reprise_abi::syscalls::nr;
use reprise_trace::Reader;
use std::fmt::Write;
use window::Window;

/// Most lines that are told.
const MOST_LINES: usize = 2_000;
/// Most stretches that are looked at one by one.
const MOST_WINDOWS: u64 = 20_000;
/// Most bytes that are followed at a time: what debug registers can watch.
const MOST_BYTES: u32 = 32;
/// Events of a thread among which that is looked for which wrote to memory.
const MOST_EVENTS: usize = 16;
/// Most computations behind each other that are followed.
const MOST_DEPTH: u32 = 100;

/// What was found.
#[derive(Default)]
struct Trail {
    lines: Vec<String>,
    windows: u64,
}

impl Trail {
    fn tell(&mut self, level: u32, line: &str) {
        self.lines.push(format!("{level} {line}"));
    }

    fn is_full(&self) -> bool {
        self.lines.len() >= MOST_LINES || self.windows >= MOST_WINDOWS
    }
}

/// What came of a gate that a thread came through.
enum Gate {
    /// It brought the value, or made it: the trail ends.
    End(String),
    /// It left it.
    Left,
}

impl Session {
    /// A command of the script's: `THREAD DEPTH LOCATION`; what to answer, a line each.
    pub(crate) fn origin(&mut self, words: &[&str]) -> Result<String, DebugError> {
        let [thread, depth, location] = words else {
            return Ok("failed no such question".into());
        };
        let (Ok(thread), Ok(depth), Some(location)) = (
            thread.parse::<u32>(),
            depth.parse::<u32>(),
            parse_location(location),
        ) else {
            return Ok("failed no such question".into());
        };
        let d = self.debuggee()?;
        let Some(slot) = d.slots().find(|s| d.visible(*s) == thread) else {
            return Ok("failed there is no such thread here".into());
        };
        let mut trail = Trail::default();
        self.debuggee()?.moving.begin(true);
        let points = std::mem::take(&mut self.debuggee()?.points);
        if depth > 0 {
            // Who follows several values comes back to where the ways part.
            self.begin_at_first()?;
            self.stays = true;
        }
        let followed = self.follow(slot, location, 0, depth.min(MOST_DEPTH), &mut trail);
        self.stays = false;
        let d = self.debuggee()?;
        d.points = points;
        d.set_watchpoints()?;
        d.moving.end();
        self.ladder = Ladder::default();
        match followed {
            Ok(()) => {}
            Err(DebugError::GivenUp) => trail.tell(0, "end kind=interrupted"),
            Err(DebugError::Refused(why)) => trail.tell(0, &format!("end kind=unknown why={why}")),
            Err(e) => return Err(e),
        }
        Ok(trail.lines.join("\n"))
    }

    /// Follows what is in a location here, where the thread of `slot` has the registers.
    fn follow(
        &mut self,
        mut slot: usize,
        mut location: Location,
        level: u32,
        depth: u32,
        trail: &mut Trail,
    ) -> Result<(), DebugError> {
        // A watchpoint has led to right behind the write.
        let mut is_write = false;
        loop {
            if trail.is_full() {
                trail.tell(level, "end kind=unknown why=the trail is too long");
                return Ok(());
            }
            trail.windows += 1;
            let Some(w) = self.window(slot)? else {
                match location {
                    Location::Memory { .. } if !is_write => {
                        return self.tell_birth(&location, level, trail);
                    }
                    _ => trail.tell(
                        level,
                        "end kind=unknown why=it was there when the thread began",
                    ),
                }
                return Ok(());
            };
            let is_memory = |l: &Location| matches!(l, Location::Memory { .. });
            let mut step = match !is_memory(&location) || w.is_alone || is_write {
                true => w.len(),
                false => 0,
            };
            // How far it has to be gone back to look for the write to memory.
            let mut stands = (step == 0).then_some(w.len());
            while step > 0 {
                step -= 1;
                let Some(found) = w.source_of(step, &location) else {
                    if let Some(place) = self.made_by_runtime(&w, step, &location) {
                        let line = self.place(&w, step, slot)?;
                        trail.tell(level, &format!("end kind=runtime {line} register={place}"));
                        return Ok(());
                    }
                    continue;
                };
                is_write = false;
                let place = self.place(&w, step, slot)?;
                let (first, count) = found.part;
                if count < location.len() {
                    trail.tell(level, &format!("part first={first} count={count}"));
                }
                let to = location.part(first, count);
                match found.source {
                    Source::Copy(from) => {
                        trail.tell(
                            level,
                            &format!("copy {place} to={} from={}", word(&to), word(&from)),
                        );
                        location = from;
                        if is_memory(&location) && !w.is_alone {
                            stands = Some(step);
                            break;
                        }
                    }
                    Source::Constant(bytes) => {
                        trail.tell(
                            level,
                            &format!(
                                "end kind=constant {place} to={} bytes={}",
                                word(&to),
                                hex(&bytes)
                            ),
                        );
                        return Ok(());
                    }
                    Source::Computed(operands) => {
                        trail.tell(
                            level,
                            &format!("end kind=computed {place} to={}", word(&to)),
                        );
                        return self
                            .follow_operands(&w, step, slot, &operands, level, depth, trail);
                    }
                }
            }
            if stands.is_none() {
                if let Base::Gate(_) = w.base {
                    self.go_to_base(&w.base)?;
                    match self.gate(slot, w.begins, &location, is_write)? {
                        Gate::End(line) => {
                            trail.tell(level, &line);
                            return Ok(());
                        }
                        Gate::Left => {}
                    }
                }
            }
            if is_write {
                let line = self.place(&w, w.len() - 1, slot)?;
                trail.tell(
                    level,
                    &format!("end kind=unknown {line} why=it was written there by code that can't be followed"),
                );
                return Ok(());
            }
            if let Some(step) = stands.filter(|s| *s < w.len()) {
                self.go_into(&w, slot, step)?;
            } else if stands.is_some() {
                // Others may have written meanwhile.
                self.rewind(w.now.events)?.on_the_way(&w.now, |_, _| ())?;
            } else {
                self.go_to_base(&w.base)?;
            }
            if let Location::Memory { at, len } = location {
                match self.last_write(at, len)? {
                    Some(Hit::Write(by)) => (slot, is_write) = (by, true),
                    Some(Hit::Event(number, by)) => {
                        let line = self.written_by_event(number, by, at, len)?;
                        trail.tell(level, &line);
                        return Ok(());
                    }
                    None => return self.tell_birth(&location, level, trail),
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn follow_operands(
        &mut self,
        w: &Window,
        step: usize,
        slot: usize,
        operands: &[Operand],
        level: u32,
        depth: u32,
        trail: &mut Trail,
    ) -> Result<(), DebugError> {
        self.go_into(w, slot, step)?;
        let mut all = Vec::new();
        for one in operands {
            let (text, is_place) = match one {
                Operand::Number(n) => (format!("number={n:x}"), None),
                Operand::At(l) => {
                    let value = self.debuggee()?.bytes_of(slot, l);
                    let value = value.map_or(String::new(), |v| format!(" bytes={}", hex(&v)));
                    (format!("at={}{value}", word(l)), Some(*l))
                }
            };
            all.push((text, is_place));
        }
        let mut is_here = true;
        for (text, is_place) in all {
            trail.tell(level, &format!("operand {text}"));
            let Some(l) = is_place.filter(|l| level < depth && l.len() <= MOST_BYTES) else {
                continue;
            };
            if !std::mem::take(&mut is_here) {
                self.go_into(w, slot, step)?;
            }
            self.follow(slot, l, level + 1, depth, trail)?;
        }
        Ok(())
    }

    /// A register that a function of the runtime's has set in one step, if the location is in that.
    fn made_by_runtime(&self, w: &Window, step: usize, location: &Location) -> Option<String> {
        let Location::Register { whole, .. } = location else {
            return None;
        };
        let place = index(*whole)?;
        (w.is_of_runtime(step) && w.has_changed(step, place)).then(|| name(*whole))
    }

    /// The place of a step, and who has called there, in words.
    fn place(&mut self, w: &Window, step: usize, slot: usize) -> Result<String, DebugError> {
        let d = self.debuggee()?;
        let callers: Vec<String> = w.callers(step).iter().map(|at| format!("{at:x}")).collect();
        let event = match d.timeline.is_order {
            true => d.next_event(),
            false => w.begins,
        };
        Ok(format!(
            "pc={:x} event={event} thread={} callers={}",
            w.registers(step).rip,
            d.visible(slot),
            callers.join(",")
        ))
    }

    /// What the gate did at which the thread of `slot` stands, behind so many events.
    fn gate(
        &mut self,
        slot: usize,
        events: u64,
        location: &Location,
        is_write: bool,
    ) -> Result<Gate, DebugError> {
        let d = self.debuggee()?;
        let thread = d.visible(slot);
        let next = match d.live.rings() {
            Some(rings) => rings
                .event_after(slot, d.live.own(slot))
                .unwrap_or(d.timeline.len()),
            None => events,
        };
        let own = |n: &u64| {
            d.timeline
                .event(*n)
                .is_some_and(|e| e.slot as usize == slot)
        };
        let last: Vec<u64> = (d.timeline.first..next)
            .rev()
            .filter(own)
            .take(MOST_EVENTS)
            .collect();
        let mut reader = Reader::open(&d.dir)?;
        match *location {
            Location::Memory { at, len } => {
                let all = match is_write || last.first() == next.checked_sub(1).as_ref() {
                    true => &last[..],
                    false => &[],
                };
                for number in all.iter().take(if is_write { MOST_EVENTS } else { 1 }) {
                    reader.seek(*number)?;
                    let Some(e) = reader.next()? else { break };
                    let e = e.parse()?;
                    if let Some((first, count)) = written_by(&e, at, len) {
                        let at = at + u64::from(first);
                        return Ok(Gate::End(format!(
                            "end kind=input event={number} thread={thread} to=m:{at:x}:{count}"
                        )));
                    }
                }
                Ok(Gate::Left)
            }
            Location::Register { whole, .. } => {
                let Some(number) = last.first() else {
                    return Ok(Gate::Left);
                };
                reader.seek(*number)?;
                let Some(e) = reader.next()? else {
                    return Ok(Gate::Left);
                };
                let e = e.parse()?;
                let is_return = u64::from(e.header.detail) == nr::RT_SIGRETURN;
                let general = index(whole).is_some();
                let scratch = [Register::RCX, Register::R11].contains(&whole);
                Ok(match e.kind {
                    Kind::Syscall | Kind::Exit if is_return => Gate::End(format!(
                        "end kind=unknown event={number} thread={thread} why=it was there when a signal's handler returned"
                    )),
                    Kind::Syscall | Kind::Exit | Kind::Enter if whole == Register::RAX => {
                        Gate::End(format!("end kind=result event={number} thread={thread}"))
                    }
                    Kind::Syscall | Kind::Exit if scratch => Gate::End(format!(
                        "end kind=unknown event={number} thread={thread} why=a system call leaves nothing in this register"
                    )),
                    Kind::Instruction if [Register::RAX, Register::RDX, Register::RCX].contains(&whole) => {
                        Gate::End(format!("end kind=result event={number} thread={thread}"))
                    }
                    Kind::Signal if general && whole != Register::RSP => Gate::End(format!(
                        "end kind=unknown event={number} thread={thread} why=it was there when a signal's handler began"
                    )),
                    Kind::ThreadStart | Kind::ProcessStart => Gate::End(format!(
                        "end kind=unknown event={number} thread={thread} why=it was there when the thread began"
                    )),
                    _ => Gate::Left,
                })
            }
        }
    }

    /// What the kernel wrote to this memory by an event, in words.
    fn written_by_event(
        &mut self,
        number: u64,
        slot: usize,
        at: u64,
        len: u32,
    ) -> Result<String, DebugError> {
        let d = self.debuggee()?;
        let thread = d.visible(slot);
        let mut reader = Reader::open(&d.dir)?;
        reader.seek(number)?;
        let part = match reader.next()? {
            Some(e) => written_by(&e.parse()?, at, len),
            None => None,
        };
        let (first, count) = part.unwrap_or((0, len));
        let at = at + u64::from(first);
        Ok(format!(
            "end kind=input event={number} thread={thread} to=m:{at:x}:{count}"
        ))
    }

    /// Back to right behind the last write to this memory, by a thread, or by the kernel for one.
    fn last_write(&mut self, at: u64, len: u32) -> Result<Option<Hit>, DebugError> {
        let watched = Watched {
            at,
            len: len.into(),
            kind: WatchKind::Write,
        };
        let d = self.debuggee()?;
        if !d.points.watch(watched) {
            return Err(DebugError::Refused(format!(
                "{len} bytes at {at:#x} are more than the processor can watch"
            )));
        }
        d.set_watchpoints()?;
        let found = self.last_watched(at, len);
        let d = self.debuggee()?;
        d.points.unwatch(watched);
        d.set_watchpoints()?;
        found
    }

    /// Nobody has written it: as the program found it.
    fn tell_birth(
        &mut self,
        location: &Location,
        level: u32,
        trail: &mut Trail,
    ) -> Result<(), DebugError> {
        let d = self.debuggee()?;
        let begins = d.begins();
        let slot = d.current;
        let bytes = d.bytes_of(slot, location);
        let bytes = bytes.map_or(String::new(), |b| format!(" bytes={}", hex(&b)));
        trail.tell(
            level,
            &format!("end kind=born event={begins} to={}{bytes}", word(location)),
        );
        Ok(())
    }
}

impl Debuggee {
    /// What is in a location.
    fn bytes_of(&self, slot: usize, location: &Location) -> Option<Vec<u8>> {
        match *location {
            Location::Memory { at, len } => {
                let mut bytes = vec![0; len as usize];
                self.read(at, &mut bytes).ok()?;
                Some(bytes)
            }
            Location::Register { whole, from, len } => {
                let g = self.registers(slot).ok()?;
                let word = g.r[index(whole)?].to_le_bytes();
                Some(word.get(from as usize..(from + len) as usize)?.to_vec())
            }
        }
    }
}

/// Which bytes of this memory the kernel has written by this event.
fn written_by(e: &Event<'_>, at: u64, len: u32) -> Option<(u32, u32)> {
    let mine = Location::Memory { at, len };
    e.sections().find_map(|s| {
        let len = match s.tag {
            Tag::Output => s.bytes.len() as u64,
            Tag::Reference => Reference::parse(s.bytes)?.len,
            _ => return None,
        };
        mine.covered(&Location::Memory {
            at: s.address,
            len: u32::try_from(len).ok()?,
        })
    })
}

/// `m:ADDRESS:LEN`, or `r:NUMBER:FIRST:LEN` with gdb's number of a general register.
fn parse_location(text: &str) -> Option<Location> {
    let words: Vec<&str> = text.split(':').collect();
    let location = match words[..] {
        ["m", at, len] => Location::Memory {
            at: u64::from_str_radix(at, 16).ok()?,
            len: len.parse().ok()?,
        },
        ["r", number, from, len] => Location::Register {
            whole: general(number.parse().ok()?)?,
            from: from.parse().ok()?,
            len: len.parse().ok()?,
        },
        _ => return None,
    };
    (1..=MOST_BYTES)
        .contains(&location.len())
        .then_some(location)
}

/// A location in a word.
fn word(location: &Location) -> String {
    match location {
        Location::Memory { at, len } => format!("m:{at:x}:{len}"),
        Location::Register { whole, from, len } => format!("r:{}:{from}:{len}", name(*whole)),
    }
}

fn name(whole: Register) -> String {
    format!("{whole:?}").to_lowercase().replace("zmm", "xmm")
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for b in bytes {
        let _ = write!(text, "{b:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_as_they_are_written() {
        let memory = parse_location("m:7ffe10:4").expect("memory");
        assert_eq!(word(&memory), "m:7ffe10:4");
        let register = parse_location("r:3:0:8").expect("rdx");
        assert_eq!(word(&register), "r:rdx:0:8");
        for wrong in ["", "m", "m:1:0", "m:1:33", "r:16:0:8", "x:1:2", "m:zz:1"] {
            assert_eq!(parse_location(wrong), None, "{wrong}");
        }
    }
}
