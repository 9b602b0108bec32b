//! `bisect`: of a recording that fails, the hand-off between two threads that decides. The recording is mixed with a schedule of long slices, from one of its hand-offs
//! on ([`reprise_debug::mixture`]): before the hand-off that decides such a run passes, behind it fails, and the place between is found by halves.

use super::diff;
use crate::backtrace::{self, Thread};
use crate::cli::BisectArgs;
use crate::human;
use anyhow::{bail, Result};
use reprise_abi::event::Kind;
use reprise_abi::syscalls;
use reprise_console::{say, tell, tell_text};
use reprise_debug::mixture::{HandOff, Mixtures, Who};
use reprise_debug::{End, Place};
use reprise_trace::{Catalog, Manifest, Summary};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// Exit status when no hand-off decides.
const NONE_DECIDES: i32 = 1;
/// So many hand-offs on each side are tried in the place of one at which the program ends in a third way.
const NEIGHBOURS: usize = 4;

/// What is to be said of a mixture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Passes,
    Fails,
    /// Neither.
    Other,
}

/// What the search has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// Left out, this hand-off lets the run pass; the next one, left out, does not.
    Decides(usize),
    /// It lies between these two; those between end in a third way.
    Between(usize, usize),
    /// Where the first one is left out the run fails, too.
    FailsFromTheFirst,
    /// No mixture passes.
    NonePasses,
    /// One thread has run alone, or all to their ends.
    NoHandOffs,
}

/// Mixtures of a recording, and what they are to end like.
struct Search {
    mixtures: Mixtures,
    /// Wait statuses of the recording that fails, and of the one that passes.
    fails: i32,
    passes: i32,
    made: u32,
    beyond: BTreeSet<u64>,
}

/// Runs `bisect`.
///
/// # Errors
/// When these are no recordings of one program that ended in two ways, or the first can't be replayed.
pub fn run(args: &BisectArgs) -> Result<i32> {
    let catalog = Catalog::from_env()?;
    let dir = catalog.resolve(Some(&args.failing))?;
    let other = catalog.resolve(Some(&args.passing))?;
    diff::check(&[Manifest::read(&dir)?, Manifest::read(&other)?])?;
    let [fails, passes] = [status(&dir)?, status(&other)?];
    if fails == passes {
        bail!("both recordings ended alike: {}", human::end(fails));
    }
    let mut search = Search {
        mixtures: Mixtures::of(&dir)?,
        fails,
        passes,
        made: 0,
        beyond: BTreeSet::new(),
    };
    let all = search.mixtures.hand_offs();
    let found = by_halves(all.len(), |i| search.verdict(&all[i], Who::Before))?;
    let Found::Decides(n) = found else {
        return search.tell_none(found, &all, args.json);
    };
    let at = all[n];
    let taken = search.end(&at, Who::After)?;
    let left_out = search.end(&at, Who::Before)?;
    // What decides may be how far the other one comes until it loses its turn.
    let next = all
        .get(n + 1)
        .filter(|_| search.judge(&taken) != Verdict::Fails);
    let behind = match next {
        Some(next) => Some((next.event, search.end(next, Who::Before)?)),
        None => None,
    };
    let threads = search.mixtures.threads(&at)?;
    let made = search.made;
    // Its processes are ended before gdb's replay begins.
    drop(search);
    let stacks = stacks(&dir, &at, threads)?;
    let told = Told {
        at,
        number: n + 1,
        of: all.len(),
        threads,
        taken,
        left_out,
        behind,
        made,
        stacks,
        dir: &dir,
    };
    match args.json {
        true => tell!("{}", told.object())?,
        false => tell_text(&told.text())?,
    }
    Ok(0)
}

/// How a recorded program ended.
fn status(dir: &Path) -> Result<i32> {
    let summary = Summary::read(dir)?;
    match summary.and_then(|s| s.wait_status) {
        Some(status) => Ok(status),
        None => bail!("how {} ended is not known", dir.display()),
    }
}

impl Search {
    fn end(&mut self, at: &HandOff, who: Who) -> Result<End> {
        self.made += 1;
        let end = self.mixtures.run(at, who)?;
        self.beyond.extend(&end.beyond);
        Ok(end)
    }

    fn verdict(&mut self, at: &HandOff, who: Who) -> Result<Verdict> {
        let end = self.end(at, who)?;
        Ok(self.judge(&end))
    }

    fn judge(&self, end: &End) -> Verdict {
        // Who was ended from outside may have stood still.
        let stood = self.fails & 0x7f == libc::SIGKILL;
        match end.status {
            Some(status) if status == self.fails => Verdict::Fails,
            Some(status) if status == self.passes => Verdict::Passes,
            None if stood => Verdict::Fails,
            _ => Verdict::Other,
        }
    }

    /// Says why there is no hand-off that decides.
    fn tell_none(&self, found: Found, all: &[HandOff], as_json: bool) -> Result<i32> {
        let (what, text) = match found {
            Found::Decides(_) => unreachable!("that is told elsewhere"),
            Found::Between(a, b) => (
                "between",
                format!(
                    "a hand-off between the events {} and {} decides; where those between are left out the program ends in a third way",
                    all[a].event, all[b].event
                ),
            ),
            Found::FailsFromTheFirst => (
                "always",
                "the program fails with long slices, too: no hand-off decides".into(),
            ),
            Found::NoHandOffs => ("alone", "no thread ever goes on instead of another".into()),
            Found::NonePasses => (
                "never",
                "no mixture passes: where the program runs for itself it ends in a third way".into(),
            ),
        };
        let calls: Vec<String> = self.beyond.iter().map(|n| name(*n)).collect();
        match as_json {
            true => tell!(
                "{}",
                json!({"event": null, "why": what, "mixtures": self.made, "calls": calls})
            )?,
            false => tell!("{text} ({} mixtures)", self.made)?,
        }
        if !calls.is_empty() {
            say!(
                "it made calls that only a recording answers: {}",
                calls.join(", ")
            );
        }
        Ok(NONE_DECIDES)
    }
}

/// The name of a system call.
fn name(number: u64) -> String {
    syscalls::lookup(number).map_or_else(|| format!("call {number}"), |s| s.name.into())
}

/// Among so many hand-offs, the last that lets the run pass when it is left out, before one that does not.
fn by_halves(len: usize, mut try_it: impl FnMut(usize) -> Result<Verdict>) -> Result<Found> {
    if len == 0 {
        return Ok(Found::NoHandOffs);
    }
    let mut first = 0;
    // The nearer to the beginning, the more there is to go another way.
    let mut passes = loop {
        if first >= len {
            return Ok(Found::NonePasses);
        }
        match try_it(first)? {
            Verdict::Passes => break first,
            Verdict::Fails if first == 0 => return Ok(Found::FailsFromTheFirst),
            Verdict::Fails => return Ok(Found::NonePasses),
            Verdict::Other => first = 2 * first + 1,
        }
    };
    // Behind the last hand-off the run is the one that was recorded.
    let mut fails = len;
    while fails - passes > 1 {
        let middle = passes + (fails - passes) / 2;
        let near = (0..=NEIGHBOURS).flat_map(|n| [middle.checked_sub(n), middle.checked_add(n)]);
        let mut told = None;
        let mut tried = BTreeSet::new();
        for i in near.flatten().filter(|i| passes < *i && *i < fails) {
            if !tried.insert(i) {
                continue;
            }
            let verdict = try_it(i)?;
            if verdict != Verdict::Other {
                told = Some((i, verdict));
                break;
            }
        }
        match told {
            Some((i, Verdict::Passes)) => passes = i,
            Some((i, _)) => fails = i,
            None => return Ok(Found::Between(passes, fails.min(len - 1))),
        }
    }
    Ok(Found::Decides(passes))
}

/// Where the two threads stand at a hand-off.
fn stacks(dir: &Path, at: &HandOff, threads: [u32; 2]) -> Result<[Option<Thread>; 2]> {
    let place = Place::Event(at.event + 1);
    let Ok(all) = backtrace::of_all(dir, 0, place, None)? else {
        return Ok([None, None]);
    };
    let mut there = all.threads;
    let mut take = |id: u32| {
        let i = there.iter().position(|t| t.thread == id)?;
        Some(there.swap_remove(i))
    };
    Ok(threads.map(&mut take))
}

/// All that is told.
struct Told<'a> {
    at: HandOff,
    number: usize,
    of: usize,
    threads: [u32; 2],
    taken: End,
    left_out: End,
    /// The event of the next hand-off, and how it ends where only that one is left out.
    behind: Option<(u64, End)>,
    made: u32,
    stacks: [Option<Thread>; 2],
    dir: &'a Path,
}

/// How a mixture ended.
fn words(end: &End) -> String {
    end.status
        .map_or_else(|| "it does not end".into(), human::end)
}

impl Told<'_> {
    fn kind(&self) -> &'static str {
        match self.at.kind {
            Kind::Cut => "in the middle of code",
            Kind::Enter => "in a call that waits",
            _ => "at the end of a call",
        }
    }

    fn text(&self) -> String {
        let [from, to] = self.threads;
        let mut out = String::new();
        let _ = writeln!(
            out,
            "hand-off {} of {} decides: after event {} thread {from} loses its turn to thread {to}, {}",
            self.number,
            self.of,
            self.at.event,
            self.kind()
        );
        let _ = writeln!(
            out,
            "  where thread {from} goes on instead: {}",
            words(&self.left_out)
        );
        let _ = writeln!(out, "  where thread {to} goes on: {}", words(&self.taken));
        if let Some((event, end)) = &self.behind {
            let _ = writeln!(
                out,
                "  where it goes on up to event {event}, as recorded, and keeps its turn there: {}",
                words(end)
            );
        }
        for (thread, role) in self.stacks.iter().zip(["loses its turn", "gets it"]) {
            if let Some(thread) = thread {
                let _ = writeln!(out, "thread {}, which {role}", thread.thread);
                out += &backtrace::stack(thread);
            }
        }
        let _ = writeln!(
            out,
            "{} mixtures were run; reprise replay -d {} --at {} goes there",
            self.made,
            self.dir.display(),
            self.at.event + 1
        );
        out
    }

    fn object(&self) -> Value {
        let [from, to] = self.threads;
        let frames = self
            .stacks
            .each_ref()
            .map(|t| t.as_ref().map(|t| &t.frames));
        json!({
            "event": self.at.event,
            "kind": self.at.kind.name(),
            "hand_off": self.number,
            "of": self.of,
            "from": {"thread": from, "frames": frames[0]},
            "to": {"thread": to, "frames": frames[1]},
            "left_out": self.left_out.status,
            "taken": self.taken.status,
            "behind": self.behind.as_ref().map(|(event, end)| json!({"event": event, "status": end.status})),
            "mixtures": self.made,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::*;

    fn found(all: &[Verdict]) -> Found {
        by_halves(all.len(), |i| Ok(all[i])).expect("no mixture is made")
    }

    #[test]
    fn the_last_that_passes_before_one_that_fails_is_found() {
        for n in 1..40 {
            for last in 0..n {
                let all: Vec<Verdict> = (0..n)
                    .map(|i| if i <= last { Passes } else { Fails })
                    .collect();
                assert_eq!(found(&all), Found::Decides(last), "{n}");
            }
        }
    }

    #[test]
    fn those_that_end_in_a_third_way_are_passed_by() {
        // Before all threads are there it can't be said.
        assert_eq!(
            found(&[Other, Other, Other, Passes, Passes, Fails]),
            Found::Decides(4)
        );
        assert_eq!(found(&[Passes, Other, Passes, Fails]), Found::Decides(2));
        assert_eq!(found(&[Passes, Other, Other, Fails]), Found::Between(0, 3));
        assert_eq!(found(&[Fails; 3]), Found::FailsFromTheFirst);
        assert_eq!(found(&[Other; 9]), Found::NonePasses);
        assert_eq!(found(&[]), Found::NoHandOffs);
    }
}
