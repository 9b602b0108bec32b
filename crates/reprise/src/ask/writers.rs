//! `where`: who wrote to a location, and how often: the writes that `values` tells one by one, by place.

use super::found::{all, Found};
use super::stream::Place;
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
    let wanted = Wanted {
        expression: Some(&args.location),
        place: args.at.as_deref().or(args.function.as_deref()),
        writes: true,
        ..Wanted::default()
    };
    let mut writers: Vec<Writer> = Vec::new();
    let mut by_line: HashMap<(Option<String>, Option<String>, u64), usize> = HashMap::new();
    let status = ask(&args.part, SCRIPT, wanted, |stream| {
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
        all(stream, take, || Ok(()))
    })?;
    // Those that wrote most come first.
    writers.sort_by_key(|w| std::cmp::Reverse(w.writes));
    match args.json {
        true => writers.iter().try_for_each(|w| tell!("{}", w.object()))?,
        false => tell_text(&table(&writers))?,
    }
    if writers.is_empty() && status == 0 {
        say!("nobody wrote to {} in what was looked at", args.location);
    }
    Ok(status)
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
