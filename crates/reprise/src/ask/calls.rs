//! `calls`: each call of a function: when, by whom, with which arguments, and what came back.

use super::stream::{Ended, Next, Place, Stream};
use super::{ask, Wanted};
use crate::cli::CallsArgs;
use anyhow::Result;
use reprise_console::{say, Output};
use reprise_debug::collect::Row;
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufWriter, Write};

/// What gdb is told to run.
pub const SCRIPT: &str = include_str!("calls.py");
/// How much is written at a time.
const BUFFER: usize = 1 << 16;

/// What the script tells.
#[derive(Deserialize)]
struct Told {
    /// A call, by its number.
    call: Option<u64>,
    event: Option<u64>,
    thread: Option<u32>,
    function: Option<String>,
    from: Option<Place>,
    arguments: Option<Vec<(String, String)>>,
    /// Its end is told later.
    #[serde(default)]
    waits: bool,
    /// The end of the call of this number.
    returned: Option<u64>,
    value: Option<String>,
    /// It was left otherwise: by an exception or a long jump.
    #[serde(default)]
    left: bool,
    /// The first instruction of the function.
    entry: Option<u64>,
    /// A place to which calls return.
    caller: Option<Place>,
}

/// A call.
#[derive(Default)]
struct Call {
    /// Where it is not told by compiled code.
    number: Option<u64>,
    event: u64,
    thread: u32,
    function: String,
    from: Option<Place>,
    /// Where it returns to, as long as that place is not known.
    returns_to: Option<u64>,
    arguments: Option<Vec<(String, String)>>,
    waits: bool,
    returned: Option<Returned>,
}

/// The end of a call.
struct Returned {
    event: u64,
    /// `None`: gdb can't say, since it does not know the type.
    value: Option<String>,
    left: bool,
}

/// What is known so far. Calls are told in the order of their beginnings.
#[derive(Default)]
struct Calls {
    waiting: VecDeque<Call>,
    callers: HashMap<u64, Place>,
    entries: HashMap<u64, String>,
}

impl Calls {
    fn row(&mut self, row: Row) {
        self.waiting.push_back(Call {
            event: row.event,
            thread: row.thread,
            function: self.entries.get(&row.pc).cloned().unwrap_or_default(),
            returns_to: Some(row.value),
            ..Call::default()
        });
    }

    fn told(&mut self, told: Told) {
        let event = told.event.unwrap_or(0);
        if let Some(place) = told.caller {
            self.callers.insert(place.pc, place);
        } else if let Some(entry) = told.entry {
            self.entries
                .insert(entry, told.function.unwrap_or_default());
        } else if let Some(number) = told.returned {
            let of = |c: &&mut Call| c.number == Some(number);
            if let Some(call) = self.waiting.iter_mut().find(of) {
                call.waits = false;
                call.returned = Some(Returned {
                    event,
                    value: told.value,
                    left: told.left,
                });
            }
        } else if told.call.is_some() {
            self.waiting.push_back(Call {
                number: told.call,
                event,
                thread: told.thread.unwrap_or(0),
                function: told.function.unwrap_or_else(|| "??".into()),
                from: told.from,
                returns_to: None,
                arguments: told.arguments,
                waits: told.waits,
                returned: None,
            });
        }
    }

    /// The next call of which all is known; in the end, of which as much is known as there is.
    fn next(&mut self, is_end: bool) -> Option<Call> {
        let first = self.waiting.front_mut()?;
        if first.from.is_none() {
            let known = first.returns_to.and_then(|at| self.callers.get(&at));
            first.from = known.cloned();
        }
        let misses = first.returns_to.is_some() && first.from.is_none();
        match is_end || !first.waits && !misses {
            true => self.waiting.pop_front(),
            false => None,
        }
    }
}

/// Runs `calls`.
///
/// # Errors
/// When the trace can't be debugged, or gdb doesn't know the function.
pub fn run(args: &CallsArgs) -> Result<i32> {
    let mut found = 0u64;
    let status = ask(&args.part, SCRIPT, wanted(args), |stream| {
        let mut out = BufWriter::with_capacity(BUFFER, Output);
        let out = RefCell::new(&mut out);
        let put = |call: Call| {
            found += 1;
            let out = &mut *out.borrow_mut();
            match args.json {
                true => writeln!(out, "{}", object(call))?,
                false => writeln!(out, "{}", text(&call))?,
            }
            Ok(())
        };
        all(stream, args, put, || Ok(out.borrow_mut().flush()?))
    })?;
    if found == 0 && status == 0 {
        say!("{} was never called in what was looked at", args.function);
    }
    Ok(status)
}

/// What the script is asked.
pub fn wanted(args: &CallsArgs) -> Wanted<'_> {
    Wanted {
        place: Some(&args.function),
        arguments: args.args,
        returns: args.returns,
        ..Wanted::default()
    }
}

/// Hands each call to `put`, as a line of JSON.
///
/// # Errors
/// What gdb says of the question, and what `put` says.
pub fn lines(
    stream: &mut Stream,
    args: &CallsArgs,
    put: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Ended> {
    let put = |call: Call| put(object(call).to_string().as_bytes());
    all(stream, args, put, || Ok(()))
}

/// Hands all calls to `put`, and asks for a `rest` when nothing more has come for the moment.
fn all(
    stream: &mut Stream,
    args: &CallsArgs,
    mut put: impl FnMut(Call) -> Result<()>,
    mut rest: impl FnMut() -> Result<()>,
) -> Result<Ended> {
    let mut calls = Calls::default();
    let mut put = |calls: &mut Calls, is_end: bool| -> Result<()> {
        while let Some(call) = calls.next(is_end) {
            if args.part.holds(call.thread, call.event) {
                put(call)?;
            }
        }
        Ok(())
    };
    loop {
        match stream.next()? {
            Next::Row(row) => calls.row(row),
            Next::Told(told) => calls.told(told),
            Next::Rest => rest()?,
            Next::Ended(ended) => {
                put(&mut calls, true)?;
                rest()?;
                return Ok(ended);
            }
        }
        put(&mut calls, false)?;
    }
}

fn text(call: &Call) -> String {
    let mut s = format!("event {}  thread {}  ", call.event, call.thread);
    s += &call.function;
    if let Some(arguments) = &call.arguments {
        let all: Vec<String> = arguments
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let _ = write!(s, "({})", all.join(", "));
    }
    if let Some(place) = &call.from {
        let _ = write!(s, " from {}", place.text());
    }
    match &call.returned {
        Some(r) if r.left => s += ", left without a return",
        Some(Returned {
            value: Some(value), ..
        }) => {
            let _ = write!(s, " -> {value}");
        }
        Some(_) => s += " -> ?",
        None if call.waits => s += ", has not returned",
        None => {}
    }
    s
}

fn object(call: Call) -> Value {
    let mut one = Map::new();
    one.insert("event".into(), call.event.into());
    one.insert("thread".into(), call.thread.into());
    one.insert("function".into(), call.function.into());
    if let Some(from) = &call.from {
        one.insert("caller".into(), from.object());
    }
    if let Some(arguments) = call.arguments {
        let all = arguments.into_iter();
        let all = all.map(|(name, value)| json!({"name": name, "value": value}));
        one.insert("arguments".into(), all.collect());
    }
    if let Some(r) = call.returned {
        let mut end = Map::from_iter([("event".into(), r.event.into())]);
        if let Some(value) = r.value {
            end.insert("value".into(), value.into());
        }
        if r.left {
            end.insert("left".into(), true.into());
        }
        one.insert("returned".into(), end.into());
    }
    one.into()
}
