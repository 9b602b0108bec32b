//! `reprise checkpoint`, and `record --checkpoints`: a trace gets checkpoints on disk ([`reprise_replay::checkpoints`]).

use crate::cli::CheckpointArgs;
use crate::human;
use anyhow::{Context, Result};
use reprise_console::tell;
use reprise_replay::checkpoints::{self, Every};
use reprise_trace::{Catalog, CHECKPOINTS_FILE};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Time of a replay between two checkpoints, where nobody says otherwise: from each of them any event behind it is a second away.
pub const USUAL: Every = Every::Time(Duration::from_secs(1));

/// Somebody has had enough (SIGINT, SIGTERM).
static ENOUGH: AtomicBool = AtomicBool::new(false);

extern "C" fn enough(_: i32) {
    ENOUGH.store(true, Relaxed);
}

/// `1s`, `500ms`, `5min`, or `N events` (or `Nev`).
///
/// # Errors
/// When it is none of these.
pub fn parse_every(text: &str) -> Result<Every, String> {
    let wanted = || {
        format!("a time like 30s, 500ms or 5min, or a number of events like 10000ev is wanted, not `{text}`")
    };
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| wanted())?;
    let every = match unit.trim() {
        "ms" => Every::Time(Duration::from_millis(number)),
        "s" => Every::Time(Duration::from_secs(number)),
        "min" => Every::Time(Duration::from_secs(number.saturating_mul(60))),
        "ev" | "event" | "events" => Every::Events(number),
        _ => return Err(wanted()),
    };
    match number {
        0 => Err("some time, or some events, are to be between two checkpoints".into()),
        _ => Ok(every),
    }
}

/// `reprise checkpoint`
///
/// # Errors
/// When the trace can't have checkpoints, or they can't be written.
pub fn run(args: &CheckpointArgs) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let handler = enough as extern "C" fn(i32);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores a word.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    let line = make(&dir, args.every)?;
    tell!("{line}")?;
    Ok(0)
}

/// Makes them; a line that says so.
///
/// # Errors
/// As [`checkpoints::make`].
pub fn make(dir: &Path, every: Every) -> Result<String> {
    let begun = Instant::now();
    let made = checkpoints::make(dir, every, || !ENOUGH.load(Relaxed))?;
    let file = dir.join(CHECKPOINTS_FILE);
    let bytes = file
        .metadata()
        .with_context(|| format!("read {}", file.display()))?
        .len();
    let (count, size) = (made.count, human::size(bytes));
    let seconds = begun.elapsed().as_secs_f64();
    let left_out = match made.left_out {
        0 => String::new(),
        _ => "; none where the program has several processes, or has become another program".into(),
    };
    Ok(format!(
        "{count} checkpoints in {} events, {size}, made in {seconds:.1} s{left_out}",
        made.events
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_of_events() {
        assert_eq!(parse_every("30s"), Ok(Every::Time(Duration::from_secs(30))));
        assert_eq!(
            parse_every("250ms"),
            Ok(Every::Time(Duration::from_millis(250)))
        );
        assert_eq!(parse_every("12 events"), Ok(Every::Events(12)));
        assert_eq!(parse_every("12ev"), Ok(Every::Events(12)));
        assert!(parse_every("0s").is_err() && parse_every("s").is_err());
        assert!(parse_every("12").is_err() && parse_every("soon").is_err());
    }
}
