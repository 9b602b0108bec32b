//! What a replay tells the page: where all threads of a process were at an event, and what the program wrote at which. Recordings by `serial` have it, of
//! which a place is named by the number of an event.

use crate::backtrace;
use crate::human;
use anyhow::{bail, Result};
use reprise_abi::engine::TraceOrder;
use reprise_debug::Place;
use reprise_replay::{is_debuggable, marks};
use reprise_trace::Manifest;
use serde_json::{json, Value};
use std::path::Path;
use std::time::Duration;

/// The longest time that a replay may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The words that begin a session where so many events have happened, which goes behind them; null where there can be none.
pub fn session(dir: &Path) -> Value {
    match can_replay(dir) {
        true => {
            let dir = dir.display().to_string();
            let words = ["reprise", "replay", "-d", &dir, "--at"];
            human::command_line(words).into()
        }
        false => Value::Null,
    }
}

fn can_replay(dir: &Path) -> bool {
    let order = Manifest::read(dir).map(|m| m.engine().order);
    order.is_ok_and(|o| o == TraceOrder::Slices) && is_debuggable(dir)
}

/// Where the threads of a process are, in the order of births, when an event of it has just happened, that of the thread `tid` first; `None`: there is nothing
/// to be replayed.
///
/// # Errors
/// When the replay or gdb fails.
pub fn stacks(dir: &Path, birth: usize, tid: i64, event: u64) -> Result<Option<Value>> {
    if !can_replay(dir) {
        return Ok(None);
    }
    match backtrace::of_all(dir, birth as u32, Place::Event(event + 1), Some(LIMIT))? {
        Ok(mut all) => {
            all.threads.sort_by_key(|t| i64::from(t.thread) != tid);
            Ok(Some(json!({"thread": tid, "threads": all.threads})))
        }
        Err(_) => bail!("the replay did not come to event {event}"),
    }
}

/// What the program wrote, piece by piece: the stream, the event, the process, the text.
///
/// # Errors
/// When it can't be replayed.
pub fn output(dir: &Path) -> Result<Value> {
    let pieces = marks::pieces(dir)?;
    let told = pieces.iter().map(|p| {
        let text = String::from_utf8_lossy(&p.text);
        json!([p.stream, p.mark.event, p.mark.pid, text])
    });
    Ok(told.collect())
}
