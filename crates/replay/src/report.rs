//! Divergence reports: recorded and actual side by side (Castor 3.8).

use reprise_abi::event::{Event, EventHeader, Kind};
use reprise_abi::names::errno_name;
use reprise_abi::order::{Entry, EntryKind};
use reprise_abi::session::{divergence_kind, Session, BY_ADDRESS, REPORT_EVENT};
use reprise_abi::syscalls;
use std::fmt;
use std::sync::atomic::Ordering::*;

/// How a replay left the recorded path.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// `event`, `argument`, `deadlock` or `state`.
    pub kind: &'static str,
    /// Number of the recorded event; under `order` as [`read`] gives it, how many events and entries the thread had used up.
    pub event: u64,
    /// Slot of the thread.
    pub slot: u32,
    /// Where the thread was.
    pub pc: u64,
    /// What the recording says.
    pub recorded: String,
    /// What the program did.
    pub actual: String,
    /// Source line, where symbols tell.
    pub place: Option<String>,
    /// Of a rebuilt program: where its own code called what the thread was in.
    pub caller: Option<String>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(
            f,
            "{} divergence at event {}, thread {}, pc {:#x}",
            self.kind, self.event, self.slot, self.pc
        )?;
        if let Some(p) = &self.place {
            writeln!(f, "  at        {p}")?;
        }
        if let Some(p) = &self.caller {
            writeln!(f, "  called at {p}")?;
        }
        writeln!(f, "  recorded  {}", self.recorded)?;
        write!(f, "  actual    {}", self.actual)
    }
}

/// In the order of a gate's frame.
const REGISTERS: [&str; 18] = [
    "r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8", "rdi", "rsi", "rbp", "rbx", "rdx", "rcx",
    "rax", "rflags", "rsp", "rip",
];

fn call(nr: u32, args: &[u64], hash: u64) -> String {
    let desc = syscalls::lookup(nr as u64);
    let name = desc.map_or_else(|| format!("syscall_{nr}"), |d| d.name.to_string());
    let args: Vec<String> = args
        .iter()
        .take(desc.map_or(6, |d| d.args.len()))
        .map(|a| format!("{a:#x}"))
        .collect();
    let mut s = format!("{name}({})", args.join(", "));
    if hash != 0 {
        s += &format!(", input hash {hash:016x}");
    }
    s
}

pub(crate) fn describe(
    kind: Option<Kind>,
    slot: Option<u32>,
    detail: u32,
    value: u64,
    args: &[u64],
    hash: u64,
) -> String {
    let text = match kind {
        Some(Kind::Syscall | Kind::Enter) => call(detail, args, hash),
        Some(Kind::Exit) => format!("return from {}", call(detail, &[], 0)),
        Some(Kind::Hash) => {
            let mut s = format!(
                "state hash {value:016x} over {} bytes",
                args.first().copied().unwrap_or(0)
            );
            if let Some(r) = args.get(1) {
                s += &format!(", registers {r:016x}");
            }
            if let [_, _, _, what, which, recorded, actual, ..] = args {
                s += &match what {
                    1 => format!(
                        "; {} is {actual:#x}, was {recorded:#x}",
                        REGISTERS.get(*which as usize).unwrap_or(&"?")
                    ),
                    2 => format!("; the first difference is in the memory that ends at {which:#x}"),
                    _ => String::new(),
                };
            }
            s
        }
        Some(Kind::Fault) => {
            format!(
                "fault: signal {detail} at {value:#x}, address {:#x}",
                args.first().copied().unwrap_or(0)
            )
        }
        Some(Kind::Signal) => format!("signal {detail} delivered at {value:#x}"),
        Some(Kind::Cut) => cut(value, args),
        Some(Kind::Sync) => operation(detail, args),
        Some(k) => format!("{} {detail}", k.name()),
        None => "nothing".into(),
    };
    let result = match kind {
        Some(Kind::Syscall | Kind::Exit) if (-4095..0).contains(&(value as i64)) => {
            let e = -(value as i64) as i32;
            format!(
                " = -{}",
                errno_name(e).map_or_else(|| e.to_string(), str::to_string)
            )
        }
        Some(Kind::Syscall | Kind::Exit) if value != 0 => format!(" = {:#x}", value),
        _ => String::new(),
    };
    match slot {
        Some(s) => format!("{text}{result} (thread {s})"),
        None => format!("{text}{result}"),
    }
}

/// What an entry of the log says; `None`: nothing but how many operations there were.
pub(crate) fn operation_of(e: &Entry) -> Option<String> {
    let kind = operation(e.kind as u32, &[e.object as u64]);
    (e.kind != EntryKind::Quiet).then(|| match e.kind {
        EntryKind::Passed | EntryKind::Ordered => format!("{kind}, number {}", e.value),
        _ => format!("{kind}, {:#x}", e.value),
    })
}

/// An operation of synchronisation, on which object.
fn operation(kind: u32, args: &[u64]) -> String {
    let object = args.first().copied().unwrap_or(0);
    match kind & BY_ADDRESS {
        0 => by_name(kind as u64, object),
        _ => by_address((kind & !BY_ADDRESS) as u64, object),
    }
}

/// What was due where an operation of synchronisation came that is described by these: a kind plus 1, of which object, and its number.
fn due_operation(kind: u32, args: &[u64]) -> Option<String> {
    let [_, due, object, number, ..] = *args else {
        return None;
    };
    if kind & BY_ADDRESS != 0 {
        return Some(by_address(due.wrapping_sub(1), object));
    }
    let due = due.checked_sub(1)?;
    Some(format!("{}, number {number}", by_name(due, object)))
}

fn by_name(kind: u64, object: u64) -> String {
    const KINDS: [&str; 8] = [
        "nothing",
        "an operation on object",
        "an operation on shard",
        "a failure of",
        "a value of",
        "a choice for",
        "a look at",
        "a load from",
    ];
    let what = KINDS.get(kind as usize).copied().unwrap_or("?");
    format!("{what} {object:#x}")
}

/// As [`by_name`], of a replay that goes by a list of all operations: what, on which word.
fn by_address(kind: u64, address: u64) -> String {
    const KINDS: [&str; 8] = [
        "no operation",
        "an operation on the object at",
        "a change of the word at",
        "a failure",
        "a value",
        "the initialisation of",
        "a look at the word at",
        "a load from",
    ];
    let what = KINDS.get(kind as usize).copied();
    match address {
        0 => what.unwrap_or("inputs of a call").to_string(),
        a => format!("{} {a:#x}", what.unwrap_or("inputs of a call, hash")),
    }
}

/// A slice that ends in mid-code; the arguments of an actual one say why its place was not found: what, which, recorded, actual.
fn cut(pc: u64, args: &[u64]) -> String {
    let [what, which, recorded, actual, ..] = args else {
        return format!("the slice ends at {pc:#x}");
    };
    let what = match what {
        0 => return format!("no visit of {pc:#x} had the recorded registers"),
        1 => "the code there".into(),
        2 => "pc".into(),
        3 => format!("general register {which}"),
        4 => "flags".into(),
        5 => "fs base".into(),
        6 => "gs base".into(),
        7 => format!("xmm{which}"),
        8 => "the vector registers".into(),
        9 => format!("the stack word at {which:#x}"),
        10 => "the stack".into(),
        11 => format!("the page at {which:#x}"),
        13 => format!("st({which})"),
        _ => "memory".into(),
    };
    format!("no visit of {pc:#x} was in the recorded state; the one most alike differs in {what}: {actual:#x}, was {recorded:#x}")
}

/// What the runtime left in the session, if it diverged.
pub fn read(s: &Session) -> Option<Divergence> {
    let d = &s.divergence;
    let kind = match d.kind.load(Acquire) {
        divergence_kind::EVENT => "event",
        divergence_kind::ARGUMENT => "argument",
        divergence_kind::DEADLOCK => "deadlock",
        divergence_kind::STATE => "state",
        _ => return None,
    };
    let len = (d.expected_len.load(Relaxed) as usize).min(REPORT_EVENT);
    let bytes: Vec<u8> = d
        .expected
        .iter()
        .flat_map(|w| w.load(Relaxed).to_le_bytes())
        .take(len)
        .collect();
    let args: Vec<u64> = d.actual_args.iter().map(|a| a.load(Relaxed)).collect();
    let recorded = match EventHeader::parse(&bytes) {
        Ok(mut h) => {
            // Only the beginning was kept: enough for the arguments.
            let nargs = (h.nargs as usize).min(len.saturating_sub(32) / 8);
            h.len = 32 + 8 * nargs as u32;
            h.nargs = nargs as u8;
            let mut short = h.to_bytes().to_vec();
            short.extend_from_slice(&bytes[32..32 + 8 * nargs]);
            let args: Vec<u64> =
                Event::parse(&short).map_or(vec![], |e| (0..nargs).map(|i| e.arg(i)).collect());
            describe(
                Kind::from_u8(h.kind),
                Some(h.slot as u32),
                h.detail,
                h.value as u64,
                &args,
                h.input_hash,
            )
        }
        Err(_) => match Kind::from_u8(d.actual_kind.load(Relaxed) as u8) {
            Some(Kind::Sync) => due_operation(d.actual_detail.load(Relaxed), &args),
            _ => None,
        }
        .unwrap_or_else(|| "nothing".into()),
    };
    let actual = if kind == "deadlock" {
        "that thread is not there to go on".into()
    } else {
        describe(
            Kind::from_u8(d.actual_kind.load(Relaxed) as u8),
            Some(d.slot.load(Relaxed)),
            d.actual_detail.load(Relaxed),
            d.actual_value.load(Relaxed),
            &args,
            d.actual_input_hash.load(Relaxed),
        )
    };
    Some(Divergence {
        kind,
        event: d.event.load(Relaxed),
        slot: d.slot.load(Relaxed),
        pc: d.pc.load(Relaxed),
        recorded,
        actual,
        place: None,
        caller: None,
    })
}
