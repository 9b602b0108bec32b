//! `where`: who wrote to a location, and how often: the writes that `values` tells one by one, by place.

use super::found::{all, Found};
use super::stream::{Ended, Place, Stream};
use super::values::{is_in, SCRIPT};
use super::{ask, Wanted};
use crate::cli::WhereArgs;
use anyhow::Result;
use reprise_console::{say, tell, tell_text};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

/// A place from which was written.
struct Writer {
    place: Place,
    writes: u64,
    /// Events that came next, after the first write and the last one.
    first: u64,
    last: u64,
    threads: BTreeSet<u32>,
    /// What it wrote last.
    value: String,
}

impl Writer {
    fn add(&mut self, one: &Found<'_>) {
        self.writes += 1;
        self.last = one.event;
        self.threads.insert(one.thread);
        self.value.clear();
        self.value.push_str(&one.value);
    }

    fn object(&self) -> Value {
        let mut one = Map::new();
        one.insert("writes".into(), self.writes.into());
        one.insert("first".into(), self.first.into());
        one.insert("last".into(), self.last.into());
        let threads: Vec<u32> = self.threads.iter().copied().collect();
        one.insert("threads".into(), threads.into());
        one.insert("value".into(), self.value.as_str().into());
        one.insert("place".into(), self.place.object());
        one.into()
    }
}

/// Runs `where`.
///
/// # Errors
/// When the trace can't be debugged, or gdb doesn't understand what is asked.
pub fn run(args: &WhereArgs) -> Result<i32> {
    let mut writers = Vec::new();
    let status = ask(&args.part, SCRIPT, wanted(args), |stream| {
        let (found, ended) = writers_in(stream, args)?;
        writers = found;
        Ok(ended)
    })?;
    match args.json {
        true => writers.iter().try_for_each(|w| tell!("{}", w.object()))?,
        false => tell_text(&table(&writers))?,
    }
    if writers.is_empty() && status == 0 {
        say!("nobody wrote to {} in what was looked at", args.location);
    }
    Ok(status)
}

/// What the script is asked.
pub fn wanted(args: &WhereArgs) -> Wanted<'_> {
    Wanted {
        expression: Some(&args.location),
        place: args.at.as_deref().or(args.function.as_deref()),
        writes: true,
        ..Wanted::default()
    }
}

/// Hands each writer to `put`, as a line of JSON.
///
/// # Errors
/// What gdb says of the question, and what `put` says.
pub fn lines(
    stream: &mut Stream,
    args: &WhereArgs,
    put: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Ended> {
    let (writers, ended) = writers_in(stream, args)?;
    for writer in writers {
        put(writer.object().to_string().as_bytes())?;
    }
    Ok(ended)
}

/// All writers; those that wrote most come first.
fn writers_in(stream: &mut Stream, args: &WhereArgs) -> Result<(Vec<Writer>, Ended)> {
    let mut writers: Vec<Writer> = Vec::new();
    let mut by_line: HashMap<(Option<String>, Option<String>, u64), usize> = HashMap::new();
    let take = |one: &Found<'_>| {
        let Some(place) = one.place.filter(|_| is_in(&args.part, one)) else {
            return Ok(());
        };
        // Where a line is known, all of its instructions are one writer.
        let at = place.line.map_or(place.pc, u64::from);
        let key = (place.function.clone(), place.file.clone(), at);
        let n = *by_line.entry(key).or_insert_with(|| {
            writers.push(Writer {
                place: place.clone(),
                writes: 0,
                first: one.event,
                last: one.event,
                threads: BTreeSet::new(),
                value: String::new(),
            });
            writers.len() - 1
        });
        writers[n].add(one);
        Ok(())
    };
    let ended = all(stream, take, || Ok(()))?;
    writers.sort_by_key(|w| std::cmp::Reverse(w.writes));
    Ok((writers, ended))
}

fn table(writers: &[Writer]) -> String {
    let mut s = String::new();
    if !writers.is_empty() {
        s += "    writes  first event  last event  threads  writer, and what it wrote last\n";
    }
    for w in writers {
        let threads = w.threads.len();
        let _ = writeln!(
            s,
            "{:>10}  {:>11}  {:>10}  {threads:>7}  {}: {}",
            w.writes,
            w.first,
            w.last,
            w.place.text(),
            w.value
        );
    }
    s
}
