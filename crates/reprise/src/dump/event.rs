//! What is said of events that are no calls: instructions, signals, cuts, hashes, patches, the starts and ends of processes.

use super::siginfo;
use crate::{exit, human};
use reprise_abi::det::{question, WORLD_SLOT};
use reprise_abi::event::{
    patch_form, EndReason, Event, Instruction, ProcessEnd, Tag, AMONG_THREADS, COPIED,
};
use reprise_abi::names::signal_name;
use reprise_abi::order::{Entry, EntryKind, ENTRY_LEN};
use reprise_place::name::Name;
use serde_json::{json, Map, Value};

/// Names of the [forms of a patch](patch_form), from the first on.
const PATCH_FORMS: [&str; 11] = [
    "the mov before it",
    "Go's mov before it",
    "itself and the cmp after it",
    "int3 for cpuid",
    "ld.so's resolver",
    "locked instructions",
    "locked instructions of new code",
    "int3 for a clock's reading",
    "instructions that wait",
    "instructions of new code that wait",
    "a place where a thread waited",
];

/// What is said of an event: the text, and fields beyond those that every event has.
pub(super) type Said = (String, Map<String, Value>);

pub(super) fn fields<const N: usize>(list: [(&str, Value); N]) -> Map<String, Value> {
    list.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
}

fn address(value: u64) -> Value {
    format!("{value:#x}").into()
}

fn signal(number: u32) -> String {
    signal_name(number).map_or_else(|| format!("signal {number}"), str::to_string)
}

pub(super) fn process_end(event: &Event) -> Said {
    let h = &event.header;
    let how = match h.value {
        -1 => "ends, how is not known".into(),
        status => human::end(status as i32),
    };
    let found = if h.detail == ProcessEnd::Found as u32 {
        ", found dead"
    } else {
        ""
    };
    let text = format!("+++ process {}: {how}{found} +++", event.arg(0));
    (
        text,
        fields([
            ("pid", event.arg(0).into()),
            ("wait_status", h.value.into()),
            ("found", (h.detail == ProcessEnd::Found as u32).into()),
        ]),
    )
}

/// Operations of synchronisation, each with how many quiet ones came before it.
pub(super) fn sync(event: &Event) -> Said {
    /// Most operations that are shown of one event.
    const SHOWN: usize = 8;
    let mut said = Vec::new();
    let mut quiet = 0u64;
    for s in event.sections().filter(|s| s.tag == Tag::Entries) {
        for b in s.bytes.chunks_exact(ENTRY_LEN) {
            let word = |at: usize| b[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
            let Some(e) = Entry::from_words([word(0), word(8)]) else {
                continue;
            };
            quiet += u64::from(e.quiet);
            said.push(match e.kind {
                EntryKind::Quiet => continue,
                EntryKind::Passed => format!("object {:x} number {}", e.object, e.value),
                EntryKind::Ordered => format!("shard {} number {}", e.object, e.value),
                EntryKind::Failed => format!("failed: {}", e.value),
                EntryKind::Chosen => format!("chosen for {:x}, {}", e.object, e.value),
                EntryKind::Loaded => format!("loaded {:#x} from {:x}", e.value, e.object),
                EntryKind::Seen => format!("seen in shard {} after {}", e.object, e.value),
                EntryKind::Value => format!("value {:#x}", e.value),
            });
        }
    }
    let more = match said.len().saturating_sub(SHOWN) {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    let text = format!(
        "sync: {} ordered, {quiet} quiet: {}{more}",
        said.len(),
        said[..said.len().min(SHOWN)].join(", ")
    );
    (
        text,
        fields([("ordered", said.len().into()), ("quiet", quiet.into())]),
    )
}

pub(super) fn shared(event: &Event) -> Said {
    let pieces: Vec<(u64, usize)> = event
        .sections()
        .map(|s| (s.address, s.bytes.len()))
        .collect();
    let (at, len) = pieces.first().copied().unwrap_or_default();
    let what = match event.header.detail {
        0 => "shared memory after a death",
        COPIED => "copied memory",
        _ => "copied tables of the runtime",
    };
    (
        format!("--- {what}: {len} bytes at {at:#x} ---"),
        fields([("address", address(at)), ("bytes", len.into())]),
    )
}

/// The command line in an [`reprise_abi::event::Kind::Exec`] event.
pub fn command_of(event: &Event) -> Vec<String> {
    let bytes = event.sections().next().map_or(&[][..], |s| s.bytes);
    let words = bytes.strip_suffix(&[0]).unwrap_or(bytes).split(|b| *b == 0);
    words
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect()
}

pub(super) fn exec(event: &Event) -> Said {
    let words = command_of(event);
    let command = human::command_line(words.iter().map(String::as_str));
    let text = format!(
        "+++ process {} is now: {} +++",
        event.arg(0),
        human::tame(&command, 400)
    );
    (
        text,
        fields([
            ("pid", event.arg(0).into()),
            ("image", event.header.value.into()),
            ("argv", words.into()),
        ]),
    )
}

pub(super) fn instruction(event: &Event) -> Said {
    let (name, value) = (event.header.detail, event.header.value as u64);
    if name == Instruction::GaveWay as u32 {
        let place = event.arg(0);
        let json = fields([
            ("instruction", "gave way".into()),
            ("value", value.into()),
            ("place", address(place)),
        ]);
        return (
            format!("waits at {place:#x}, gives way after {value} looks"),
            json,
        );
    }
    if name == Instruction::HookEnded as u32 {
        let place = event.arg(0);
        let json = fields([
            ("instruction", "hook ended".into()),
            ("value", value.into()),
            ("place", address(place)),
        ]);
        return (
            format!("stops at the end of hooked function {value}, before {place:#x}"),
            json,
        );
    }
    if name == Instruction::HookAnswered as u32 {
        let answer = event.arg(0);
        let json = fields([
            ("instruction", "hook answered".into()),
            ("value", value.into()),
            ("answer", answer.into()),
        ]);
        return (
            format!("is told {answer} by question {value} of its hooked functions"),
            json,
        );
    }
    let name = match name {
        n if n == Instruction::Rdtsc as u32 => "rdtsc",
        n if n == Instruction::Rdtscp as u32 => "rdtscp",
        _ => "unknown instruction",
    };
    let ecx = event.arg(0);
    let more = if name == "rdtscp" {
        format!(", ecx={ecx:#x}")
    } else {
        String::new()
    };
    let json = fields([
        ("instruction", name.into()),
        ("value", value.into()),
        ("ecx", ecx.into()),
    ]);
    (format!("{name} = {value:#x}{more}"), json)
}

pub(super) fn delivered(event: &Event) -> Said {
    let h = &event.header;
    let info = event.sections().find(|s| s.tag == Tag::Siginfo);
    let info = info
        .and_then(|s| siginfo::describe(s.bytes))
        .unwrap_or_default();
    let (name, pc) = (signal(h.detail), h.value as u64);
    let text = format!("--- {name} {info} at {pc:#x} ---");
    (
        text,
        fields([
            ("signal", name.into()),
            ("pc", address(pc)),
            ("info", info.into()),
        ]),
    )
}

pub(super) fn fault(event: &Event) -> Said {
    let h = &event.header;
    let (name, pc, at, code) = (
        signal(h.detail),
        h.value as u64,
        event.arg(0),
        event.arg(1) as i32,
    );
    let code = siginfo::code_name(h.detail, code).map_or_else(|| code.to_string(), str::to_string);
    let text = format!("--- fault {name} {{si_code={code}, si_addr={at:#x}}} at {pc:#x} ---");
    let json = fields([
        ("signal", name.into()),
        ("pc", address(pc)),
        ("code", code.into()),
        ("address", address(at)),
    ]);
    (text, json)
}

pub(super) fn cut(event: &Event) -> Said {
    let state = event.sections().find(|s| s.tag == Tag::State);
    match state.map(|s| Name::parse(s.bytes)) {
        Some(Ok(name)) => {
            let json = fields([
                ("pc", address(name.regs.rip)),
                ("spin", name.spin.into()),
                ("rare", name.rare.into()),
                ("memory_hash", format!("{:016x}", name.memory_hash).into()),
                ("memory_bytes", name.memory_bytes.into()),
            ]);
            (format!("--- cut: {name} ---"), json)
        }
        Some(Err(bad)) => (
            format!("--- cut: {bad} ---"),
            fields([("bad", bad.0.into())]),
        ),
        None => ("--- cut: no name ---".into(), Map::new()),
    }
}

pub(super) fn hash(event: &Event) -> Said {
    let (value, bytes, registers) = (event.header.value as u64, event.arg(0), event.arg(1));
    let text = format!(
        "state: memory {value:016x} of {}, registers {registers:016x}",
        human::size(bytes)
    );
    let json = fields([
        ("hash", format!("{value:016x}").into()),
        ("bytes", bytes.into()),
        ("registers", format!("{registers:016x}").into()),
        ("regions", regions(event).into()),
    ]);
    (text, json)
}

/// The hashes of single regions, each with the region's end: the second state section.
fn regions(event: &Event) -> Vec<Value> {
    let list = event.sections().filter(|s| s.tag == Tag::State).nth(1);
    let pairs = list.map_or(&[][..], |s| s.bytes).chunks_exact(16);
    let word = |b: &[u8]| b.iter().rev().fold(0u64, |w, b| w << 8 | u64::from(*b));
    pairs
        .map(|p| json!({ "end": format!("{:#x}", word(&p[..8])), "hash": format!("{:016x}", word(&p[8..])) }))
        .collect()
}

pub(super) fn patch(event: &Event) -> Said {
    let (site, stub, form) = (
        event.arg(0),
        event.arg(1),
        event.header.detail & !AMONG_THREADS,
    );
    let known = (form as usize)
        .checked_sub(1)
        .and_then(|n| PATCH_FORMS.get(n));
    let what = known.copied().unwrap_or("something");
    let text = match (form, stub) {
        (patch_form::BEFORE..=patch_form::AFTER, _) => {
            format!("patch: syscall at {site:#x} jumps to {stub:#x} ({what})")
        }
        (
            patch_form::LOCKED
            | patch_form::LOCKED_WITH_CODE
            | patch_form::PAUSES
            | patch_form::PAUSES_WITH_CODE,
            _,
        ) => {
            format!("patch: {what} of the mapping at {site:#x} have stubs at {stub:#x}")
        }
        (_, 0) => format!("patch: {what} at {site:#x}"),
        _ => format!("patch: {what} at {site:#x} jumps to {stub:#x}"),
    };
    (
        text,
        fields([
            ("site", address(site)),
            ("stub", address(stub)),
            ("form", form.into()),
        ]),
    )
}

pub(super) fn end(event: &Event) -> Said {
    let h = &event.header;
    let (reason, text) = match h.detail {
        d if d == EndReason::Ended as u32 => {
            let how = human::end(h.value as i32);
            let text = format!("+++ {how} +++");
            ("ended", text)
        }
        d if d == EndReason::Stopped as u32 => (
            "stopped",
            "+++ recording stopped, the program went on +++".into(),
        ),
        _ => (
            "unknown",
            "+++ the recording was ended; how the program ended is not known +++".into(),
        ),
    };
    (
        text,
        fields([("reason", reason.into()), ("wait_status", h.value.into())]),
    )
}

pub(super) fn start(event: &Event) -> Said {
    let count = usize::from(event.header.nargs);
    let words: Vec<String> = (0..count).map(|i| format!("{:#x}", event.arg(i))).collect();
    let text = exit::one_line(&format!("start {}", words.join(" ")));
    (text, fields([("words", words.into())]))
}

/// What the world has decided (`det`).
pub fn told(event: &Event) -> Said {
    let h = &event.header;
    let (about, thread) = (question::name(h.detail), h.detail == question::THREAD);
    let answer = (h.nargs > 0).then(|| event.arg(0) as i64);
    let text = match answer {
        None => format!("told: {about}"),
        Some(a) if thread && a > 0 => format!("told: {about} {} <slot {}>", a as u32, a >> 32),
        Some(a) if h.slot as u32 == WORLD_SLOT => format!("told: slot {a} {about}"),
        Some(a) => format!("told: {about} {a}"),
    };
    let answer = answer.map_or(Value::Null, Value::from);
    let what = [
        ("what", about.into()),
        ("answer", answer),
        ("point", h.value.into()),
    ];
    (text, fields(what))
}
