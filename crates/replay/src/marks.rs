//! At which event each piece of a program's output was written: a replay that stops behind every call that may write.

use crate::driver::{self, Options, Prepared};
use crate::output::Output;
use crate::tree::{Tree, Watch};
use crate::{report, ReplayError};
use reprise_abi::effect::Effect;
use reprise_abi::event::{EventHeader, Kind};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::syscalls;
use reprise_launch::replay::Child;
use reprise_trace::Reader;
use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// A piece of a stream begins here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The byte of the stream.
    pub at: u64,
    /// The process that wrote it, as the program knew it.
    pub pid: u32,
    /// The event by which it did.
    pub event: u64,
}

/// As rr writes it (`--mark-stdio`).
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[rr {} {}]", self.pid, self.event)
    }
}

/// Of the standard output and of the standard error, in the order of the streams.
pub type Marks = [Vec<Mark>; 2];

/// A replay that is stopped again and again.
struct Player {
    tree: Tree,
    reader: Reader,
}

impl Drop for Player {
    fn drop(&mut self) {
        self.tree.end();
    }
}

/// Replays the trace in `dir` unseen: where what was written when.
///
/// # Errors
/// When it can't be replayed, or its events are not in one order.
pub fn of(dir: &Path) -> Result<Marks, ReplayError> {
    let mut output = Output::unseen().fresh().map_err(no_memory)?;
    play(dir, &mut output).map(|_| output.marks())
}

/// A piece of what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// 1 or 2: standard output or standard error.
    pub stream: u8,
    /// By whom, and when.
    pub mark: Mark,
    /// Its bytes.
    pub text: Vec<u8>,
}

/// Most bytes of output that are kept for who looks at them.
const MOST: u64 = 4 << 20;

/// Replays the trace in `dir` unseen: what was written, in the order of events; of very much of it the beginning.
///
/// # Errors
/// As [`of`].
pub fn pieces(dir: &Path) -> Result<Vec<Piece>, ReplayError> {
    let mut output = Output::unseen().fresh().map_err(no_memory)?;
    play(dir, &mut output)?;
    let mut all = Vec::new();
    for stream in [1, 2] {
        all.extend(output.pieces(stream, MOST));
    }
    all.sort_by_key(|p| p.mark.event);
    Ok(all)
}

/// Replays the trace in `dir`, and shows its output with a mark before each piece; the wait status of its first process, when that is known.
///
/// # Errors
/// As [`of`].
pub fn show(dir: &Path) -> Result<Option<i32>, ReplayError> {
    let mut output = Output::default().fresh().map_err(no_memory)?;
    let status = play(dir, &mut output)?;
    output.show();
    Ok(status)
}

fn no_memory(source: std::io::Error) -> ReplayError {
    ReplayError::Io {
        what: "make memory for the output".into(),
        source,
    }
}

fn play(dir: &Path, output: &mut Output) -> Result<Option<i32>, ReplayError> {
    let Prepared {
        manifest,
        reader,
        image,
        shared,
    } = driver::prepare(dir, &Options::default(), None)?;
    if shared.order().is_some() {
        return Err(ReplayError::Unsupported(format!(
            "what was written when is known of recordings by the engine serial, not by {}",
            manifest.engine
        )));
    }
    let child = Child {
        cpu: driver::processor(manifest.start.cpu),
        output: Some(output.descriptors()),
        ..Child::default()
    };
    let _watch = Watch::new(shared.session());
    let mut player = Player {
        tree: Tree::new(shared, image, dir, child),
        reader,
    };
    let mut ahead = Reader::open(dir)?;
    player.tree.feed_up_to(0);
    player.tree.begin(None)?;
    player
        .tree
        .go_to_beginning(&mut player.reader, None, None)?;
    while let Some(e) = ahead.next()? {
        let Ok(h) = EventHeader::parse(e.bytes) else {
            break;
        };
        if may_write(&h) && !player.go_to(e.number + 1)? {
            break;
        }
        if may_write(&h) {
            output.mark(player.process_of(h.slot), e.number);
            output.show();
        }
    }
    player.tree.feed_up_to(u64::MAX);
    while player.turn()? {}
    Ok(player.tree.status())
}

/// Is it the end of a call that may have written to a descriptor?
fn may_write(h: &EventHeader) -> bool {
    let ends = [Kind::Syscall as u8, Kind::Exit as u8].contains(&h.kind);
    ends && h.value > 0
        && matches!(
            syscalls::effect(h.detail.into()),
            Effect::Writes(..) | Effect::Sends(_) | Effect::Puts(_) | Effect::Moves(_)
        )
}

impl Player {
    /// One look; false when nothing is left that runs.
    fn turn(&mut self) -> Result<bool, ReplayError> {
        let lives = self.tree.turn(&mut self.reader, None)?;
        match report::read(self.tree.shared.session()) {
            Some(d) => Err(ReplayError::Unsupported(format!(
                "the replay diverged from the recording\n{d}"
            ))),
            None => Ok(lives && !self.tree.is_over()),
        }
    }

    /// Lets it use up so many events; false when it ended before.
    fn go_to(&mut self, events: u64) -> Result<bool, ReplayError> {
        self.tree.feed_up_to(events);
        loop {
            let ring = &self.tree.shared.session().ring;
            if ring.events.load(SeqCst) >= events && ring.consumer_asleep.load(SeqCst) != 0 {
                return Ok(true);
            }
            if !self.turn()? {
                return Ok(false);
            }
        }
    }

    /// The process of a thread, as the program knew it.
    fn process_of(&self, slot: u16) -> u32 {
        let shared = &self.tree.shared;
        let slot = shared.slot(usize::from(slot).min(MAX_SLOTS - 1));
        let number = slot.process.load(SeqCst) as usize;
        let process = shared.session().processes.get(number);
        process.map_or(0, |p| p.visible_pid.load(SeqCst))
    }
}
