//! `diff`: the first difference of two recordings of one program. Threads are brought together by who made them, and what each did is compared in its
//! order; of all threads, that difference is told which came first.

use super::threads::{Deed, Thread, Threads};
use crate::cli::DiffArgs;
use crate::dump::Narrator;
use anyhow::{bail, Context, Result};
use reprise_abi::engine::TraceOrder;
use reprise_console::{say, tell, tell_text};
use reprise_trace::{Catalog, Manifest, Reader};
use serde_json::{json, Map, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Exit status when there is a difference, as of diff(1).
const DIFFER: i32 = 1;

/// What is different.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// The thread did something else.
    Done,
    /// It did the same, and something else came of it.
    Came,
    /// It did more in one of them, or is only there.
    More,
}

impl What {
    fn words(self) -> &'static str {
        match self {
            What::Done => "the thread did something else",
            What::Came => "the thread did the same, and something else came of it",
            What::More => "the thread went on in only one of them",
        }
    }

    fn name(self) -> &'static str {
        match self {
            What::Done => "done",
            What::Came => "came",
            What::More => "more",
        }
    }
}

/// A difference.
struct Difference {
    thread: String,
    what: What,
    /// The events in either recording, where there is one.
    events: [Option<u64>; 2],
}

/// Runs `diff`; 0 where there is no difference, [`DIFFER`] where there is one.
///
/// # Errors
/// When one of the traces can't be read.
pub fn run(args: &DiffArgs) -> Result<i32> {
    let catalog = Catalog::from_env()?;
    let dirs = [&args.a, &args.b].map(|t| catalog.resolve(Some(t)));
    let [a, b] = dirs;
    let dirs = [a?, b?];
    let heads = [Manifest::read(&dirs[0])?, Manifest::read(&dirs[1])?];
    check(&heads)?;
    let read = |dir: &PathBuf| Threads::of(dir).with_context(|| format!("read {}", dir.display()));
    let both = [read(&dirs[0])?, read(&dirs[1])?];
    let mut all = differences(&both);
    all.sort_by_key(|d| d.events[0].or(d.events[1]));
    // Under `order` a trace says nothing of turns.
    let has_turns = heads.iter().all(|h| h.engine().order != TraceOrder::Stamps);
    let turn = has_turns.then(|| first_turn(&both)).flatten();
    match args.json {
        true => tell!("{}", object(&all, turn.as_ref(), &dirs, &heads)?)?,
        false => tell_text(&text(&all, turn.as_ref(), &dirs, &heads)?)?,
    }
    Ok(match all.is_empty() && turn.is_none() {
        true => 0,
        false => DIFFER,
    })
}

/// Of one program?
///
/// # Errors
/// When they are of two, or by two engines.
pub fn check(heads: &[Manifest; 2]) -> Result<()> {
    let [a, b] = heads;
    let names = heads.each_ref().map(|h| h.exe.to_string());
    if names[0] != names[1] {
        bail!(
            "these are recordings of two programs: {} and {}",
            names[0],
            names[1]
        );
    }
    if a.engine != b.engine {
        bail!(
            "one was recorded with the engine {}, the other with {}: their events can't be compared",
            a.engine,
            b.engine
        );
    }
    if a.argv != b.argv {
        say!("the program was given other arguments");
    }
    Ok(())
}

/// The first difference of each thread.
fn differences(both: &[Threads; 2]) -> Vec<Difference> {
    let [a, b] = both;
    let by_name: HashMap<&str, &Thread> = b.list.iter().map(|t| (t.name.as_str(), t)).collect();
    let mut all = Vec::new();
    for t in &a.list {
        let other = by_name.get(t.name.as_str());
        let deeds = other.map_or(&[][..], |o| &o.deeds);
        all.extend(difference(&t.name, &t.deeds, deeds));
    }
    let known: Vec<&str> = a.list.iter().map(|t| t.name.as_str()).collect();
    for t in b.list.iter().filter(|t| !known.contains(&t.name.as_str())) {
        all.extend(difference(&t.name, &[], &t.deeds));
    }
    all
}

fn difference(name: &str, a: &[Deed], b: &[Deed]) -> Option<Difference> {
    let found = |what, events| {
        Some(Difference {
            thread: name.into(),
            what,
            events,
        })
    };
    for (x, y) in a.iter().zip(b) {
        if x.done != y.done {
            return found(What::Done, [Some(x.event), Some(y.event)]);
        }
        if x.came != y.came {
            return found(What::Came, [Some(x.end), Some(y.end)]);
        }
    }
    let at = a.len().min(b.len());
    let next = [a.get(at), b.get(at)].map(|d| d.map(|d| d.event));
    match next {
        [None, None] => None,
        next => found(What::More, next),
    }
}

/// Where the threads first took turns in another order: the events, and the threads' names.
fn first_turn(both: &[Threads; 2]) -> Option<[(u64, String); 2]> {
    let [a, b] = both;
    let name = |of: &Threads, i: usize| of.list[i].name.clone();
    let mut pairs = a.turns.iter().zip(&b.turns);
    let (x, y) = pairs.find(|(x, y)| a.list[x.1].name != b.list[y.1].name)?;
    Some([(x.0, name(a, x.1)), (y.0, name(b, y.1))])
}

/// An event in words: as `dump` prints it, and as it prints it in JSON.
fn event(dir: &Path, head: &Manifest, number: u64) -> Result<(String, Map<String, Value>)> {
    /// Bytes of each buffer that are shown.
    const SHOWN: usize = 64;
    let mut narrator = Narrator::of(dir, head.pid, SHOWN);
    let mut reader = Reader::open(dir)?;
    while let Some(e) = reader.next()? {
        if e.number == number {
            let line = narrator.tell(number, &e.parse()?);
            return Ok((line.plain(), line.json()));
        }
        narrator.follow(&e.parse()?);
    }
    bail!("the trace ends before event {number}")
}

fn text(
    all: &[Difference],
    turn: Option<&[(u64, String); 2]>,
    dirs: &[PathBuf; 2],
    heads: &[Manifest; 2],
) -> Result<String> {
    let mut s = String::new();
    match all.first() {
        None => s += "all threads did the same, and the same came of it\n",
        Some(d) => {
            s += &format!("thread {}: {}\n", d.thread, d.what.words());
            for (i, name) in ["A", "B"].into_iter().enumerate() {
                match d.events[i] {
                    Some(n) => s += &format!("{name}  {}\n", event(&dirs[i], &heads[i], n)?.0),
                    None => s += &format!("{name}  nothing more\n"),
                }
            }
            let others: Vec<&str> = all[1..].iter().map(|d| d.thread.as_str()).collect();
            if !others.is_empty() {
                s += &format!("later differences: threads {}\n", others.join(", "));
            }
        }
    }
    if let Some([(a, x), (b, y)]) = turn {
        s += &format!(
            "the threads took turns in another order from event {a} of A ({x}) and event {b} of B ({y}) on\n"
        );
    }
    Ok(s)
}

fn object(
    all: &[Difference],
    turn: Option<&[(u64, String); 2]>,
    dirs: &[PathBuf; 2],
    heads: &[Manifest; 2],
) -> Result<Value> {
    let mut one = Map::new();
    let first = match all.first() {
        None => Value::Null,
        Some(d) => {
            let mut events = [Value::Null, Value::Null];
            for (i, value) in events.iter_mut().enumerate() {
                if let Some(n) = d.events[i] {
                    *value = event(&dirs[i], &heads[i], n)?.1.into();
                }
            }
            let [a, b] = events;
            json!({"thread": d.thread, "what": d.what.name(), "a": a, "b": b})
        }
    };
    one.insert("first".into(), first);
    let turn = match turn {
        None => Value::Null,
        Some([(a, x), (b, y)]) => {
            json!({"a": {"event": a, "thread": x}, "b": {"event": b, "thread": y}})
        }
    };
    one.insert("turns".into(), turn);
    Ok(one.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deeds(all: &[(u64, u64)]) -> Vec<Deed> {
        let deed = |(event, (done, came)): (u64, &(u64, u64))| Deed {
            event,
            end: event,
            done: *done,
            came: *came,
        };
        (10..).zip(all).map(deed).collect()
    }

    #[test]
    fn the_first_difference_of_a_thread_is_found() {
        let a = deeds(&[(1, 1), (2, 2), (3, 3)]);
        let of = |b: &[(u64, u64)]| difference("main", &a, &deeds(b)).map(|d| (d.what, d.events));
        assert_eq!(of(&[(1, 1), (2, 2), (3, 3)]), None);
        assert_eq!(
            of(&[(1, 1), (2, 9), (9, 3)]),
            Some((What::Came, [Some(11), Some(11)]))
        );
        assert_eq!(
            of(&[(1, 1), (9, 2), (3, 9)]),
            Some((What::Done, [Some(11), Some(11)]))
        );
        assert_eq!(of(&[(1, 1), (2, 2)]), Some((What::More, [Some(12), None])));
        assert_eq!(of(&[]), Some((What::More, [Some(10), None])));
    }
}
