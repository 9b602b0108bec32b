//! `record --keep`: the flight recorder. Beside the recording a replay follows it ([`Follower`]), in a process of its own. When there is more
//! than is to be kept, the replay goes on to an event further on, its state becomes the trace's beginning, and what was before that is
//! forgotten. So the trace can be replayed at any time, whoever is killed.

use anyhow::Result;
use reprise_abi::event::Kind;
use reprise_abi::session::hold;
use reprise_console::say;
use reprise_launch::process;
use reprise_launch::{futex, SharedSession};
use reprise_replay::follow::Came;
use reprise_replay::{Follower, ReplayError};
use reprise_trace::stream::FRAME_RAW;
use reprise_trace::{Reader, Summary, WriterOptions, EVENTS_FILE};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Between two looks at the trace.
const LOOK: Duration = Duration::from_millis(50);
/// So long, after the end of the recording, the replay may take to come to where the trace is to begin.
const AFTER_THE_END: Duration = Duration::from_secs(10);

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// So many bytes of events.
    Size(u64),
    /// So much time.
    Time(Duration),
}

impl Keep {
    /// `60s`, `5min`, `2h`, or a size as `parse_size` takes it.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(
        text: &str,
        parse_size: impl FnOnce(&str) -> Result<u64, String>,
    ) -> Result<Keep, String> {
        let units = [("min", 60), ("s", 1), ("h", 3600)];
        let time = units.iter().find_map(|(unit, seconds)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(*seconds)
        });
        match time {
            Some(0) => Err("some time is to be kept".into()),
            Some(seconds) => Ok(Keep::Time(Duration::from_secs(seconds))),
            None => parse_size(text).map(Keep::Size).map_err(|_| {
                format!(
                    "a time like 60s or 5min, or a size like 500M or 2GiB is wanted, not `{text}`"
                )
            }),
        }
    }

    /// How many bytes of events there may be while it begins at this byte: more are not written before some are forgotten.
    pub fn most(self, begins: u64) -> u64 {
        match self {
            Keep::Size(size) => begins + size.saturating_mul(2).min(u64::MAX / 4),
            Keep::Time(_) => hold::NO,
        }
    }

    /// How many there may be, that some are written however many there are.
    fn more_than(self, len: u64) -> u64 {
        match self {
            Keep::Size(size) => len.saturating_add((size / 4).max(1)).min(u64::MAX / 4),
            Keep::Time(_) => hold::NO,
        }
    }

    /// Bytes of a thread's ring, under `order`, where so many are usual. What one thread has in its own may be what the others need to go on
    /// in the replay that follows, so it is little against what is kept.
    pub fn ring(self, usual: u64) -> u64 {
        /// At least.
        const LEAST: u64 = 64 << 10;
        match self {
            Keep::Size(size) => (size / 8).max(LEAST).next_power_of_two().min(usual),
            Keep::Time(_) => usual,
        }
    }

    /// The trace is cut between frames, which are to be small then, and little is to be reserved on disk.
    pub fn limit(self, options: &mut WriterOptions) {
        /// Raw bytes of a frame, at least.
        const LEAST: u64 = 1 << 10;
        if let Keep::Size(size) = self {
            options.frame_raw = (size / 16).clamp(LEAST, FRAME_RAW as u64) as usize;
            options.most_reserved = options.most_reserved.min(size / 4);
        }
    }
}

/// Keeps a trace short while it is recorded.
struct Recorder<'a> {
    keep: Keep,
    dir: PathBuf,
    shared: &'a SharedSession,
    launcher: i32,
    follower: Option<Follower>,
    /// Where the trace begins, in its stream.
    begins: u64,
    /// How long the stream was, at times before.
    lengths: VecDeque<(Instant, u64)>,
}

/// Follows the recording in `dir` until it is over. Errors are told, and end the recording.
pub fn follow(keep: Keep, dir: &Path, shared: &SharedSession, launcher: i32) -> i32 {
    let mut recorder = Recorder {
        keep,
        dir: dir.into(),
        shared,
        launcher,
        follower: None,
        begins: 0,
        lengths: VecDeque::new(),
    };
    let done = recorder.run();
    drop(recorder);
    match done {
        Ok(()) => {
            say(shared, hold::NO);
            0
        }
        Err(e) => {
            say!("the last stretch can't be kept any more: {e}");
            say(shared, hold::FAILED);
            125
        }
    }
}

/// Tells the agent.
fn say(shared: &SharedSession, what: u64) {
    let s = shared.session();
    s.hold.store(what, SeqCst);
    if s.agent_asleep.swap(0, SeqCst) != 0 {
        futex::wake(&s.agent_asleep, 1);
    }
}

impl Recorder<'_> {
    fn run(&mut self) -> Result<(), ReplayError> {
        loop {
            let over = self.is_over();
            self.look();
            if self.is_due() && !self.trim()? && !over && self.is_far_too_much() {
                return Err(ReplayError::Unsupported("several processes, or one that became another program, are not kept in stretches yet: record the program itself".into()));
            }
            if over {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Is nothing more recorded?
    fn is_over(&self) -> bool {
        let written = matches!(Summary::read(&self.dir), Ok(Some(_)));
        self.is_alone() || written || self.shared.session().recording_lost.load(SeqCst) != 0
    }

    /// Are launcher and agent gone?
    fn is_alone(&self) -> bool {
        let agent = self.shared.session().agent_pid.load(SeqCst) as i32;
        std::os::unix::process::parent_id() as i32 != self.launcher && !process::is_there(agent)
    }

    /// Bytes of the stream, of which the first ones may be forgotten; at the end with the table behind it.
    fn len(&self) -> u64 {
        let events = self.dir.join(EVENTS_FILE);
        events.metadata().map_or(0, |m| m.len())
    }

    fn look(&mut self) {
        self.lengths.push_back((Instant::now(), self.len()));
        if let Keep::Time(time) = self.keep {
            // One that is older is needed, to know what was before.
            while self.lengths.get(1).is_some_and(|(t, _)| t.elapsed() > time) {
                self.lengths.pop_front();
            }
        } else {
            self.lengths.drain(..self.lengths.len() - 1);
        }
    }

    /// The byte from which on events are wanted, of so many.
    fn wanted_from(&self, end: u64) -> u64 {
        match self.keep {
            // Some more goes at a time: each beginning costs as much as the program has memory.
            Keep::Size(size) => end.saturating_sub(size / 4 * 3),
            Keep::Time(time) => match self.lengths.front() {
                Some((t, len)) if t.elapsed() > time => *len,
                _ => 0,
            },
        }
    }

    fn is_due(&self) -> bool {
        match self.keep {
            Keep::Size(size) => self.len() - self.begins > size,
            Keep::Time(_) => {
                let (kept, old) = (self.len() - self.begins, self.wanted_from(self.len()));
                old > self.begins && old - self.begins > kept / 4
            }
        }
    }

    /// Is there so much that the program waits?
    fn is_far_too_much(&self) -> bool {
        match self.keep {
            Keep::Size(_) => self.len() >= self.keep.most(self.begins),
            Keep::Time(_) => true,
        }
    }

    /// The trace begins at this byte now. If it has begun there before, something is missing in it before it can begin later: then some more is
    /// written than is wanted.
    fn begins_at(&mut self, begins: u64) {
        let most = self.keep.most(begins);
        let more = match begins > self.begins {
            true => 0,
            false => self.keep.more_than(self.len()),
        };
        self.begins = begins;
        say(self.shared, most.max(more));
    }

    /// Lets the trace begin later; false when it can't.
    fn trim(&mut self) -> Result<bool, ReplayError> {
        let mut reader = Reader::open(&self.dir)?;
        // (What is behind the last frame is no event.)
        let from = self.wanted_from(reader.end());
        // The first frame that is wanted, or the last that holds something that is; but there is always one.
        let mut frames: Vec<(u64, u64)> = reader.frames().collect();
        frames.pop();
        let end = end_of_program(&mut reader, &frames)?;
        frames.retain(|(event, _)| *event <= end);
        let next = match self.keep {
            Keep::Size(_) => frames.iter().find(|(_, at)| *at >= from).or(frames.last()),
            Keep::Time(_) => frames.iter().rev().find(|(_, at)| *at <= from),
        };
        let Some((event, at)) = next.copied().filter(|(_, at)| *at > self.begins) else {
            self.begins_at(self.begins);
            return Ok(true);
        };
        let mut follower = match self.follower.take() {
            Some(f) => f,
            None => Follower::start(&self.dir)?,
        };
        let mut ended: Option<Instant> = None;
        let came = follower.advance([event, at], || {
            if !self.is_over() {
                return true;
            }
            let ended = ended.get_or_insert_with(Instant::now);
            !self.is_alone() && ended.elapsed() < AFTER_THE_END
        })?;
        self.follower = Some(follower);
        Ok(match came {
            Came::There(begins) => {
                self.begins_at(begins);
                true
            }
            // Only at the end: the trace has more than is wanted then.
            Came::OnTheWay => true,
            Came::ToSeveral => false,
        })
    }
}

/// The event by which the program says how it ends, if it does so in one of the last frames. From then on it has no state that could be kept.
fn end_of_program(reader: &mut Reader, frames: &[(u64, u64)]) -> Result<u64, ReplayError> {
    /// Of these at the stream's end: nothing but the end of the stream comes behind that event.
    const LAST: usize = 3;
    if let Some((event, _)) = frames.get(frames.len().saturating_sub(LAST)) {
        reader.seek(*event)?;
        while let Some(event) = reader.next()? {
            if matches!(event.parse()?.kind, Kind::ProcessEnd | Kind::End) {
                return Ok(event.number);
            }
        }
    }
    Ok(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        let parse = |text: &str| Keep::parse(text, |t| t.parse().map_err(|_| String::new()));
        assert_eq!(parse("60s"), Ok(Keep::Time(Duration::from_secs(60))));
        assert_eq!(parse("5min"), Ok(Keep::Time(Duration::from_secs(300))));
        assert_eq!(parse("4096"), Ok(Keep::Size(4096)));
        assert!(parse("0s").is_err() && parse("s").is_err() && parse("soon").is_err());
    }
}
