//! Puts events into words, for people and for programs: the lines of a dump. What is said of calls is here, where it is remembered which thread is
//! in which call; of all else in [`super::event`].

use super::call::{self, Call};
use super::event::{self, fields, Said};
use super::text;
use reprise_abi::event::{Event, Kind, Section, Tag};
use reprise_abi::event::{FLAG_RESTARTED, FLAG_STOLEN, FLAG_TRACKED, NO_SLOT};
use reprise_abi::inputs::{is_reference, Reference};
use reprise_abi::syscalls::nr;
use reprise_trace::Inputs;
use serde_json::{json, Map, Value};
use std::collections::HashMap;
use std::path::Path;

/// Wide enough for the numbers of most traces.
const NUMBER_WIDTH: usize = 7;
/// A call that a thread has entered and not left.
#[derive(Clone, Copy)]
struct Entered {
    nr: u32,
    args: [u64; 6],
    count: usize,
    /// Arguments that were printed then.
    shown: usize,
}

/// Puts events into words; remembers what later events need.
pub struct Narrator {
    /// Thread ids by slot.
    tids: HashMap<u16, i64>,
    /// Calls that threads are in, by slot.
    entered: HashMap<u16, Entered>,
    /// Most bytes of a buffer that are shown.
    limit: usize,
    /// What events refer to, where it is to be had.
    inputs: Option<Inputs>,
}

/// An event in words.
pub struct Line {
    number: u64,
    slot: u16,
    tid: Option<i64>,
    kind: Kind,
    /// What a person reads.
    text: String,
    /// What a program reads.
    fields: Map<String, Value>,
}

impl Line {
    /// What happened, without number and thread.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As `dump` prints it.
    pub fn plain(&self) -> String {
        let unknown = if self.slot == NO_SLOT { "-" } else { "?" };
        let tid = self.tid.map_or(unknown.into(), |t| t.to_string());
        let slot = match self.slot {
            NO_SLOT => "-".into(),
            slot => slot.to_string(),
        };
        let (number, text) = (self.number, &self.text);
        format!("{number:>NUMBER_WIDTH$} [{slot} {tid}] {text}")
    }

    /// As `dump --json` prints it.
    pub fn json(self) -> Map<String, Value> {
        let mut all = Map::new();
        all.insert("event".into(), self.number.into());
        all.insert("kind".into(), self.kind.name().into());
        all.insert("slot".into(), self.slot.into());
        all.insert("tid".into(), json!(self.tid));
        all.extend(self.fields);
        all.insert("text".into(), self.text.into());
        all
    }
}

impl Narrator {
    /// Before the first event of the program with this process id; of each buffer `limit` bytes are shown at most.
    pub fn new(pid: i32, limit: usize) -> Narrator {
        Narrator {
            tids: HashMap::from([(0, i64::from(pid))]),
            entered: HashMap::new(),
            limit,
            inputs: None,
        }
    }

    /// Of the trace in `dir`: what its events refer to is shown, too.
    pub fn of(dir: &Path, pid: i32, limit: usize) -> Narrator {
        Narrator {
            inputs: Some(Inputs::of(dir)),
            ..Narrator::new(pid, limit)
        }
    }

    /// The thread in this slot has this id: for who has not seen its beginning.
    pub fn knows(&mut self, slot: u16, tid: i64) {
        self.tids.insert(slot, tid);
    }

    /// Learns from an event that is not printed.
    pub fn follow(&mut self, event: &Event) {
        let h = &event.header;
        match event.kind {
            Kind::ThreadStart | Kind::ProcessStart => {
                self.tids.insert(h.slot, h.value);
            }
            Kind::Exec => {
                self.entered.remove(&h.slot);
                self.tids.insert(h.slot, event.arg(0) as i64);
            }
            Kind::Enter => {
                let (args, count) = arguments(event);
                let shown = Call::new(h.detail, args, count, self.limit).known_on_entry();
                let entered = Entered {
                    nr: h.detail,
                    args,
                    count,
                    shown,
                };
                self.entered.insert(h.slot, entered);
            }
            Kind::Exit | Kind::ThreadExit => {
                self.entered.remove(&h.slot);
            }
            _ => {}
        }
    }

    /// Puts an event into words.
    pub fn tell(&mut self, number: u64, event: &Event) -> Line {
        let slot = event.header.slot;
        // One more than is shown, so that it shows that there is more.
        let most = self.limit as u64 + 1;
        // What isn't there, or is damaged, is a replay's to complain of.
        let with_bytes = self
            .inputs
            .as_mut()
            .and_then(|i| i.expand(event, most).ok()?);
        let shown = with_bytes
            .as_ref()
            .and_then(|bytes| Event::parse(bytes).ok());
        let (text, mut fields) = self.say(shown.as_ref().unwrap_or(event));
        if let Some(shown) = &shown {
            let both = event.sections().zip(shown.sections());
            let sections: Vec<Value> = both.map(|(s, shown)| self.reference(&s, &shown)).collect();
            fields.insert("sections".into(), sections.into());
        }
        self.follow(event);
        Line {
            number,
            slot,
            tid: self.tids.get(&slot).copied(),
            kind: event.kind,
            text,
            fields,
        }
    }

    fn say(&self, event: &Event) -> Said {
        let h = &event.header;
        match event.kind {
            Kind::Syscall => self.whole_call(event),
            Kind::Enter => self.enter(event),
            Kind::Exit => self.exit(event),
            Kind::Yield => ("--- gives up the baton ---".into(), Map::new()),
            Kind::Resume => ("--- has the baton again ---".into(), Map::new()),
            Kind::ThreadStart => (format!("+++ thread {} starts +++", h.value), Map::new()),
            Kind::ThreadExit => {
                let last = if h.detail == 1 {
                    ", the last thread"
                } else {
                    ""
                };
                let text = format!("+++ thread ends with {}{last} +++", h.value);
                (
                    text,
                    fields([("status", h.value.into()), ("last", (h.detail == 1).into())]),
                )
            }
            Kind::Instruction => event::instruction(event),
            Kind::Signal => event::delivered(event),
            Kind::Fault => event::fault(event),
            Kind::Cut => event::cut(event),
            Kind::Hash => event::hash(event),
            Kind::Patch => event::patch(event),
            Kind::End => event::end(event),
            Kind::Start => event::start(event),
            Kind::ProcessStart => (
                format!(
                    "+++ process {} starts, child of {} +++",
                    h.value,
                    event.arg(0)
                ),
                fields([("pid", h.value.into()), ("parent", event.arg(0).into())]),
            ),
            Kind::ProcessEnd => event::process_end(event),
            Kind::Exec => event::exec(event),
            Kind::Shared => event::shared(event),
            Kind::Sync => event::sync(event),
            Kind::Gone => ("+++ gone +++".into(), fields([])),
            Kind::Told => event::told(event),
            Kind::Goroutine => crate::goroutines::told(event),
        }
    }

    fn whole_call(&self, event: &Event) -> Said {
        let h = &event.header;
        let (args, count) = arguments(event);
        let call = Call::new(h.detail, args, count, self.limit)
            .with_outcome(h.value, event.sections().collect());
        let all = call.arguments();
        let mut text = format!(
            "{}({}) = {}",
            call.name(),
            texts(&all),
            call.outcome(h.flags)
        );
        if matches!(u64::from(h.detail), nr::CLONE | nr::FORK) && h.value > 0 {
            text.push_str(&format!(" <slot {}>", h.flags >> 16));
        }
        text.push_str(&remarks(h.flags));
        let mut json = self.call_fields(event, h.detail, &all);
        json.insert("result".into(), h.value.into());
        (text, json)
    }

    fn enter(&self, event: &Event) -> Said {
        let h = &event.header;
        let (args, count) = arguments(event);
        let call = Call::new(h.detail, args, count, self.limit);
        let mut all = call.arguments();
        let json = self.call_fields(event, h.detail, &all);
        let complete = call.known_on_entry() == all.len();
        all.truncate(call.known_on_entry());
        let comma = if complete || all.is_empty() { "" } else { "," };
        let space = if all.is_empty() { "" } else { " " };
        let text = format!(
            "{}({}{comma}{space}<unfinished ...>",
            call.name(),
            texts(&all)
        );
        (text + &remarks(h.flags), json)
    }

    fn exit(&self, event: &Event) -> Said {
        let h = &event.header;
        // Without its beginning (a dump from the middle of a damaged trace), the result and what was written are still there.
        let entered = self.entered.get(&h.slot).filter(|e| e.nr == h.detail);
        let (args, count, shown) = entered.map_or(([0; 6], 0, 0), |e| (e.args, e.count, e.shown));
        let call = Call::new(h.detail, args, count, self.limit)
            .with_outcome(h.value, event.sections().collect());
        let all = call.arguments();
        let rest = texts(&all[shown.min(all.len())..]);
        let mut text = format!(
            "<... {} resumed>{rest}) = {}",
            call.name(),
            call.outcome(h.flags)
        );
        text.push_str(&remarks(h.flags));
        let mut json = self.call_fields(event, h.detail, &all);
        json.insert("result".into(), h.value.into());
        (text, json)
    }

    /// What a program wants to know of a call.
    fn call_fields(
        &self,
        event: &Event,
        nr: u32,
        args: &[(&'static str, u64, String)],
    ) -> Map<String, Value> {
        let h = &event.header;
        let args = args
            .iter()
            .map(|(name, value, text)| json!({ "name": name, "value": value, "text": text }));
        let mut json = fields([
            ("call", call::name(nr).into()),
            ("nr", nr.into()),
            ("args", Value::Array(args.collect())),
        ]);
        if (-4095..0).contains(&h.value) {
            let name = reprise_abi::names::errno_name(-h.value as i32);
            json.insert("errno".into(), json!(name));
        }
        for (flag, name) in [
            (FLAG_RESTARTED, "restarted"),
            (FLAG_TRACKED, "tracked"),
            (FLAG_STOLEN, "stolen"),
        ] {
            if h.flags & flag != 0 {
                json.insert(name.into(), true.into());
            }
        }
        if u64::from(nr) == nr::CLONE && h.value > 0 && event.kind == Kind::Syscall {
            json.insert("child_slot".into(), (h.flags >> 16).into());
        }
        if h.input_hash != 0 {
            json.insert("input_hash".into(), format!("{:016x}", h.input_hash).into());
        }
        let sections: Vec<Value> = event.sections().map(|s| self.reference(&s, &s)).collect();
        if !sections.is_empty() {
            json.insert("sections".into(), sections.into());
        }
        json
    }

    /// A section that is shown as `shown`, since it refers to a copy, or as itself.
    fn reference(&self, section: &Section, shown: &Section) -> Value {
        let mut json = self.section(shown);
        let reference = match section.tag {
            Tag::Mapped => reprise_abi::mapped::parse(section.bytes),
            tag if is_reference(tag) => Reference::parse(section.bytes),
            _ => None,
        };
        if let (Some(r), Some(json)) = (reference, json.as_object_mut()) {
            json.insert("tag".into(), tag_name(section.tag).into());
            json.insert("len".into(), r.len.into());
            json.insert("input".into(), r.file().into());
            json.insert("offset".into(), r.offset.into());
            if section.tag == Tag::Reference {
                json.insert("tag".into(), "reference".into());
                json.insert("hash".into(), format!("{:016x}", r.hash).into());
            }
            if r.is_inexact() {
                json.insert("inexact".into(), true.into());
            }
        }
        json
    }

    fn section(&self, section: &Section) -> Value {
        let shown = &section.bytes[..section.bytes.len().min(self.limit)];
        json!({
            "tag": tag_name(section.tag),
            "address": format!("{:#x}", section.address),
            "len": section.bytes.len(),
            "hex": text::hex(shown),
        })
    }
}

fn tag_name(tag: Tag) -> &'static str {
    match tag {
        Tag::Output => "output",
        Tag::Input => "input",
        Tag::Path => "path",
        Tag::File => "file",
        Tag::Siginfo => "siginfo",
        Tag::State => "state",
        Tag::Offset => "offset",
        Tag::Descriptor => "descriptor",
        Tag::Partly => "partly",
        Tag::Entries => "entries",
        Tag::Sent => "sent",
        Tag::Stream => "stream",
        Tag::Reference => "reference",
        Tag::Mapped => "mapped",
        Tag::SentReference => "sent reference",
    }
}

/// The arguments of a call; stamps that follow them are left out.
fn arguments(event: &Event) -> ([u64; 6], usize) {
    let known =
        reprise_abi::syscalls::lookup(event.header.detail.into()).map_or(6, |d| d.args.len());
    let count = usize::from(event.header.nargs).min(known);
    (std::array::from_fn(|i| event.arg(i)), count.min(6))
}

fn texts(args: &[(&'static str, u64, String)]) -> String {
    let texts: Vec<&str> = args.iter().map(|a| a.2.as_str()).collect();
    texts.join(", ")
}

fn remarks(flags: u32) -> String {
    let mut text = String::new();
    if flags & FLAG_TRACKED != 0 {
        text.push_str(" <outputs found by comparing memory>");
    }
    if flags & FLAG_STOLEN != 0 {
        text.push_str(" <the baton was taken from it>");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_abi::event::{EventHeader, HEADER_LEN};

    /// An event's bytes.
    fn event(
        kind: Kind,
        slot: u16,
        detail: u32,
        value: i64,
        flags: u32,
        args: &[u64],
        sections: &[(Tag, u64, &[u8])],
    ) -> Vec<u8> {
        let mut body: Vec<u8> = args.iter().flat_map(|a| a.to_le_bytes()).collect();
        for (tag, address, bytes) in sections {
            body.extend_from_slice(&address.to_le_bytes());
            body.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            body.extend_from_slice(&(*tag as u32).to_le_bytes());
            body.extend_from_slice(bytes);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        let header = EventHeader {
            len: (HEADER_LEN + body.len()) as u32,
            kind: kind as u8,
            nargs: args.len() as u8,
            slot,
            detail,
            flags,
            value,
            input_hash: 0,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend_from_slice(&body);
        bytes
    }

    fn told(events: &[Vec<u8>]) -> Vec<Line> {
        let mut narrator = Narrator::new(100, 32);
        let parsed = events.iter().enumerate();
        parsed
            .map(|(i, bytes)| narrator.tell(i as u64, &Event::parse(bytes).expect("a good event")))
            .collect()
    }

    #[test]
    fn a_call_that_others_interrupt_is_told_in_two_parts() {
        let lines = told(&[
            event(Kind::ThreadStart, 1, 0, 101, 0, &[], &[]),
            event(Kind::Enter, 1, nr::READ as u32, 0, 0, &[5, 0x1000, 64], &[]),
            event(Kind::Syscall, 0, nr::GETPID as u32, 100, 0, &[], &[]),
            event(
                Kind::Exit,
                1,
                nr::READ as u32,
                3,
                0,
                &[],
                &[(Tag::Output, 0x1000, b"abc")],
            ),
            event(Kind::Exit, 2, nr::READ as u32, 3, 0, &[], &[]),
        ]);
        let plain: Vec<String> = lines.iter().map(Line::plain).collect();
        assert_eq!(
            plain,
            [
                "      0 [1 101] +++ thread 101 starts +++",
                "      1 [1 101] read(5, <unfinished ...>",
                "      2 [0 100] getpid() = 100",
                "      3 [1 101] <... read resumed>\"abc\", 64) = 3",
                "      4 [2 ?] <... read resumed>) = 3",
            ]
        );
    }

    #[test]
    fn calls_whose_arguments_are_all_known_end_like_straces() {
        let lines = told(&[
            event(Kind::Enter, 0, nr::PAUSE as u32, 0, 0, &[], &[]),
            event(Kind::Exit, 0, nr::PAUSE as u32, -4, 0, &[], &[]),
            event(
                Kind::Enter,
                0,
                nr::FUTEX as u32,
                0,
                FLAG_STOLEN,
                &[0x10, 128, 2, 0, 0, 0],
                &[],
            ),
            event(Kind::Exit, 0, nr::FUTEX as u32, 0, 0, &[], &[]),
        ]);
        assert_eq!(lines[0].text, "pause(<unfinished ...>");
        assert_eq!(
            lines[1].text,
            "<... pause resumed>) = -1 EINTR (Interrupted system call)"
        );
        assert_eq!(
            lines[2].text,
            "futex(0x10, FUTEX_PRIVATE_FLAG|FUTEX_WAIT, 2, NULL <unfinished ...> <the baton was taken from it>"
        );
        assert_eq!(lines[3].text, "<... futex resumed>) = 0");
    }

    #[test]
    fn everything_that_is_no_call() {
        let mut info = [0; 128];
        info[0] = 14;
        let lines = told(&[
            event(Kind::Instruction, 0, 1, 0x99, 0, &[0], &[]),
            event(
                Kind::Signal,
                0,
                14,
                0x4000,
                0,
                &[],
                &[(Tag::Siginfo, 0, &info)],
            ),
            event(Kind::Fault, 0, 11, 0x4000, 0, &[0x10, 1, 7], &[]),
            event(Kind::Hash, 0, 0, 0x1234, 0, &[4096, 7, 0], &[]),
            event(Kind::Patch, 0, 1, 0, 0, &[0x5000, 0x6000], &[]),
            event(Kind::Cut, 0, 0, 0, 0, &[], &[(Tag::State, 0, b"junk")]),
            event(Kind::ThreadExit, 0, 1, 3, 0, &[], &[]),
            event(Kind::End, 0, 1, 3 << 8, 0, &[], &[]),
            event(Kind::End, 0, 1, 11, 0, &[], &[]),
            event(Kind::Start, 0, 0, 0, 0, &[1, 2], &[]),
        ]);
        let texts: Vec<&str> = lines.iter().map(|l| l.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "rdtsc = 0x99",
                "--- SIGALRM {si_signo=SIGALRM, si_code=SI_USER, si_pid=0, si_uid=0} at 0x4000 ---",
                "--- fault SIGSEGV {si_code=SEGV_MAPERR, si_addr=0x10} at 0x4000 ---",
                "state: memory 0000000000001234 of 4.0 KiB, registers 0000000000000007",
                "patch: syscall at 0x5000 jumps to 0x6000 (the mov before it)",
                "--- cut: bad state name: too short ---",
                "+++ thread ends with 3, the last thread +++",
                "+++ exited with 3 +++",
                "+++ killed by SIGSEGV +++",
                "start 0x1 0x2",
            ]
        );
    }

    #[test]
    fn json_has_the_same_and_more() {
        let lines = told(&[
            event(
                Kind::Syscall,
                0,
                nr::READ as u32,
                3,
                FLAG_TRACKED,
                &[5, 0x1000, 64],
                &[(Tag::Output, 0x1000, b"abc")],
            ),
            event(
                Kind::Syscall,
                0,
                nr::CLONE as u32,
                101,
                3 << 16,
                &[0x100, 0, 0, 0, 0],
                &[],
            ),
            event(Kind::Syscall, 0, nr::CLOSE as u32, -9, 0, &[5], &[]),
        ]);
        let json: Vec<Map<String, Value>> = lines.into_iter().map(Line::json).collect();
        assert_eq!(json[0]["event"], 0);
        assert_eq!(json[0]["kind"], "syscall");
        assert_eq!(json[0]["tid"], 100);
        assert_eq!(json[0]["call"], "read");
        assert_eq!(
            json[0]["args"][1],
            json!({ "name": "buf", "value": 0x1000, "text": "\"abc\"" })
        );
        assert_eq!(
            json[0]["sections"][0],
            json!({ "tag": "output", "address": "0x1000", "len": 3, "hex": "616263" })
        );
        assert_eq!(json[0]["tracked"], true);
        assert_eq!(json[1]["child_slot"], 3);
        assert_eq!(
            (&json[2]["errno"], &json[2]["result"]),
            (&json!("EBADF"), &json!(-9))
        );
    }

    #[test]
    fn no_event_makes_it_fail() {
        for kind in Kind::ALL {
            for detail in [0, 1, 9, 14, 999, u32::MAX] {
                for value in [0, -1, -4095, i64::MIN, i64::MAX] {
                    for args in [vec![], vec![u64::MAX; 8]] {
                        for tag in [Tag::Output, Tag::Siginfo, Tag::State, Tag::File] {
                            for bytes in [&[][..], &[0xff; 200]] {
                                let all = event(
                                    kind,
                                    0,
                                    detail,
                                    value,
                                    0xffff,
                                    &args,
                                    &[(tag, 0, bytes)],
                                );
                                let line = told(&[all]).pop().expect("one");
                                assert!(!line.plain().contains('\n'));
                                let _ = line.json();
                            }
                        }
                    }
                }
            }
        }
    }
}
