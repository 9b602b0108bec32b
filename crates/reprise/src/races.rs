//! `reprise races`: which accesses to memory nothing orders, in the run that a trace holds.

use crate::cli::RacesArgs;
use crate::exit::OWN_FAILURE;
use crate::play::complaint;
use anyhow::Result;
use reprise_abi::races::MAX_RACES;
use reprise_console::{say, tell, tell_text};
use reprise_replay::races::{find, Access, Found, Race};
use reprise_trace::Catalog;

/// Exit status when a race was found, as ThreadSanitizer's.
const FOUND: i32 = 66;

/// Runs `races`; 0 when there is no race, [`FOUND`] when there is one, 125 when that can't be said.
///
/// # Errors
/// When the trace can't be read or replayed, or is of another engine.
pub fn run(args: &RacesArgs) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let found = find(&dir, if args.all { MAX_RACES } else { 1 })?;
    if found.modules == 0 && found.races.is_empty() {
        anyhow::bail!(
            "nothing in this trace was built to be looked at: build the program with `reprise cc --races` or `reprise c++ --races`, and record it anew with --engine order"
        );
    }
    // A race that was found is the likely cause of whatever came after it.
    let left = complaint(&dir, &found.outcome).filter(|_| found.races.is_empty() || args.all);
    if args.json {
        tell!("{}", json(&found, left.as_deref()))?;
    } else {
        tell_text(&text(&found, args.all))?;
        if let Some(why) = &left {
            say!("not all of the recording could be looked at: {why}");
        }
    }
    Ok(match (found.races.is_empty(), left) {
        (false, _) => FOUND,
        (true, None) => 0,
        (true, Some(_)) => OWN_FAILURE,
    })
}

fn text(found: &Found, all: bool) -> String {
    let mut s = String::new();
    for (n, r) in found.races.iter().enumerate() {
        if n > 0 {
            s.push('\n');
        }
        s += &race(r);
    }
    let n = found.races.len();
    s += &match n {
        0 => format!(
            "no race: {} accesses to memory are ordered\n",
            found.accesses
        ),
        _ if all => format!("\n{n} race{}{}\n", if n == 1 { "" } else { "s" }, more(n)),
        _ => String::new(),
    };
    s
}

fn more(n: usize) -> &'static str {
    match n == MAX_RACES {
        true => ", and perhaps more: these are as many as are looked for at once",
        false => "",
    }
}

fn race(r: &Race) -> String {
    let a = &r.later;
    let mut s = format!("data race on {} at {:#x}", bytes(a.size), a.address);
    if let Some(v) = &r.variable {
        s += &format!(" ({v})");
    }
    s.push('\n');
    s += &access(&r.later, [("writes", "reads"), ("gives back", "")], r);
    s += &access(
        &r.earlier,
        [("has written", "has read"), ("has given back", "")],
        r,
    );
    s
}

fn access(a: &Access, words: [(&str, &str); 2], r: &Race) -> String {
    let verb = match (a.frees, a.writes) {
        (true, _) => words[1].0,
        (_, true) => words[0].0,
        _ => words[0].1,
    };
    let mut s = format!("  {} {verb}", thread(a));
    if (a.address, a.size) != (r.later.address, r.later.size) && a.size != 0 {
        s += &format!(" {} at {:#x}", bytes(a.size), a.address);
    } else {
        s += &format!(" {}", bytes(r.later.size));
    }
    if a.atomic {
        s += ", by an atomic operation";
    }
    if let Some(e) = a.event {
        s += &format!(", after event {e}");
    }
    s.push('\n');
    for (i, line) in a.stack.iter().enumerate() {
        s += &format!("    #{i} {line}\n");
    }
    s
}

fn thread(a: &Access) -> String {
    match (a.thread, a.tid) {
        (0, _) => "the main thread".into(),
        (n, 0) => format!("thread {n}"),
        (n, tid) => format!("thread {n} (id {tid})"),
    }
}

fn bytes(n: u64) -> String {
    format!("{n} byte{}", if n == 1 { "" } else { "s" })
}

fn json(found: &Found, left: Option<&str>) -> serde_json::Value {
    let access = |a: &Access| {
        serde_json::json!({
            "thread": a.thread, "tid": a.tid, "address": format!("{:#x}", a.address), "size": a.size,
            "kind": if a.frees { "free" } else if a.writes { "write" } else { "read" },
            "atomic": a.atomic, "event": a.event, "stack": a.stack,
        })
    };
    let races: Vec<_> = found
        .races
        .iter()
        .map(|r| {
            serde_json::json!({
                "variable": r.variable, "later": access(&r.later), "earlier": access(&r.earlier),
            })
        })
        .collect();
    serde_json::json!({ "races": races, "accesses": found.accesses, "incomplete": left })
}
