//! Checkpoints on disk ([`reprise_trace::checkpoints`]): made by a replay that stops again and again and is written down ([`crate::freeze`]), used by
//! replays that begin there ([`crate::thaw`]).
//!
//! They are a cache. One that is damaged is told of, and an earlier one is taken, or the trace's beginning.

use crate::driver::{self, Options, Prepared};
use crate::freeze::{freeze, Begins};
use crate::thaw::Beginning;
use crate::tree::{Tree, Watch};
use crate::{report, ReplayError};
use reprise_abi::engine::TraceOrder;
use reprise_abi::event::{EventHeader, Kind};
use reprise_console::say;
use reprise_launch::replay::Child;
use reprise_trace::{Checkpoint, Checkpoints, CheckpointsWriter, Known, Manifest, Reader};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Most events between two looks at the clock, ...
const PORTION: u64 = 4096;
/// ... and most ends of slices, each of which may be a slice's time after the last.
const CUTS: u64 = 2;
/// Making them may take this part of the time, where so much time is to be between them.
const SHARE: u32 = 8;

/// When there is to be a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Every {
    /// After so much time of the replay.
    Time(Duration),
    /// After so many events.
    Events(u64),
}

/// What was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Made {
    /// Checkpoints.
    pub count: usize,
    /// Events of the trace.
    pub events: u64,
    /// Where there was none to be made, since there were several processes, or one that had become another program.
    pub left_out: u64,
}

/// Why a trace can't have checkpoints.
fn refusal(manifest: &Manifest) -> Option<String> {
    match manifest.engine().order {
        TraceOrder::Slices => None,
        _ => Some(format!(
            "recordings by the engine serial can have checkpoints on disk, not yet those by {}",
            manifest.engine
        )),
    }
}

/// Makes the checkpoints of the trace in `dir`, in the place of those that it has. `wanted` is asked now and then whether to go on; what there is then is
/// kept. One is always made at the last event before the program's end.
///
/// # Errors
/// When the trace can't have any, its replay leaves the recorded path, or they can't be written.
pub fn make(
    dir: &Path,
    every: Every,
    mut wanted: impl FnMut() -> bool,
) -> Result<Made, ReplayError> {
    if let Some(why) = refusal(&Manifest::read(dir)?) {
        return Err(ReplayError::Unsupported(why));
    }
    let Prepared {
        manifest,
        reader,
        image,
        shared,
    } = driver::prepare(dir, &Options::default(), None)?;
    let nowhere = driver::nowhere()?;
    let child = Child {
        cpu: driver::processor(manifest.start.cpu),
        output: Some([nowhere.as_raw_fd(); 2]),
        ..Child::default()
    };
    let _watch = Watch::new(shared.session());
    let mut ahead = Ahead::of(dir, Reader::open(dir)?)?;
    let mut maker = Maker {
        tree: Tree::new(shared, image, dir, child),
        reader,
        ran: Duration::ZERO,
    };
    let mut writer = CheckpointsWriter::create(dir, &maker.reader)?;
    maker.tree.feed_up_to(0);
    maker.tree.begin(None)?;
    let begun = Instant::now();
    let reader = &mut maker.reader;
    maker.tree.go_to_beginning(reader, None, None)?;
    maker.ran = begun.elapsed();
    let mut last = Last {
        event: ahead.next,
        ran: maker.ran,
        took: Duration::ZERO,
    };
    let mut made = Made {
        events: maker.reader.len(),
        ..Made::default()
    };
    while ahead.next < ahead.end && wanted() {
        let until = match every {
            Every::Events(n) => last.event.saturating_add(n.max(1)),
            Every::Time(_) => u64::MAX,
        };
        let stop = ahead.portion(until)?;
        maker.go_to(stop)?;
        let is_end = stop == ahead.end;
        if !is_end && !last.is_due(every, stop, maker.ran) {
            continue;
        }
        let now = Instant::now();
        if !maker.tree.is_one() {
            made.left_out += 1;
            (last.event, last.ran) = (stop, maker.ran);
            continue;
        }
        let begins = Begins {
            event: stop,
            at_byte: 0,
            rings: Vec::new(),
            known: &ahead.known,
        };
        writer = maker.write(dir, writer, begins)?;
        made.count = writer.count();
        last = Last {
            event: stop,
            ran: maker.ran,
            took: now.elapsed(),
        };
        tracing::debug!(event = stop, took = ?last.took, "checkpoint on disk");
    }
    writer.finish()?;
    Ok(made)
}

/// The last one that was made.
struct Last {
    event: u64,
    /// How long the replay had run, ...
    ran: Duration,
    /// ... and how long it took to write it.
    took: Duration,
}

impl Last {
    fn is_due(&self, every: Every, event: u64, ran: Duration) -> bool {
        match every {
            Every::Events(n) => event >= self.event.saturating_add(n.max(1)),
            Every::Time(time) => ran.saturating_sub(self.ran) >= time.max(self.took * SHARE),
        }
    }
}

/// The trace ahead of the replay.
struct Ahead {
    reader: Reader,
    /// The next event that is looked at.
    next: u64,
    /// The event by which the process says that it ends, or the last one of its own before that.
    end: u64,
    /// What those before it told.
    known: Known,
}

impl Ahead {
    fn of(dir: &Path, mut reader: Reader) -> Result<Ahead, ReplayError> {
        /// Of these at the stream's end is the end of the process looked for.
        const LAST: usize = 8;
        let frames: Vec<u64> = reader.frames().map(|(event, _)| event).collect();
        let mut end = reader.first();
        if let Some(from) = frames.get(frames.len().saturating_sub(LAST)) {
            reader.seek(*from)?;
            while let Ok(Some(e)) = reader.next() {
                let kind = EventHeader::parse(e.bytes).map(|h| h.kind);
                let kind = kind.ok().and_then(Kind::from_u8);
                if matches!(
                    kind,
                    Some(Kind::Syscall | Kind::Fault | Kind::Exit | Kind::Cut)
                ) {
                    end = e.number;
                }
            }
        }
        let (mut known, first) = (Known::default(), reader.first());
        if first > 0 {
            if let Some((_, moment)) = reprise_trace::beginning::open(dir)? {
                known = moment.known;
            }
        }
        reader.seek(first)?;
        Ok(Ahead {
            next: first,
            reader,
            end,
            known,
        })
    }

    /// Looks through the events that the replay is given next; up to where.
    fn portion(&mut self, until: u64) -> Result<u64, ReplayError> {
        let (stop, mut cuts) = (until.min(self.next + PORTION).min(self.end), 0);
        while self.next < stop && cuts < CUTS {
            let Some(e) = self.reader.next()? else { break };
            self.next = e.number + 1;
            let Ok(h) = EventHeader::parse(e.bytes) else {
                continue;
            };
            let kind = Kind::from_u8(h.kind);
            cuts += u64::from(kind == Some(Kind::Cut));
            if Known::wants(kind, h.value) {
                self.known.note(e.number, &e.parse()?);
            }
        }
        Ok(self.next)
    }
}

/// The replay that is written down.
struct Maker {
    tree: Tree,
    reader: Reader,
    /// How long it has run.
    ran: Duration,
}

impl Maker {
    fn turn(&mut self) -> Result<(), ReplayError> {
        let lives = self.tree.turn(&mut self.reader, None)?;
        if let Some(d) = report::read(self.tree.shared.session()) {
            return Err(ReplayError::Unsupported(format!(
                "the replay diverged from the recording\n{d}"
            )));
        }
        match lives {
            true => Ok(()),
            false => Err(ReplayError::Unsupported(
                "the replay ended before the recording did".into(),
            )),
        }
    }

    /// Lets it use up all events before that one.
    fn go_to(&mut self, event: u64) -> Result<(), ReplayError> {
        let begun = Instant::now();
        self.tree.feed_up_to(event);
        loop {
            self.turn()?;
            let ring = &self.tree.shared.session().ring;
            if ring.events.load(SeqCst) >= event && ring.consumer_asleep.load(SeqCst) != 0 {
                break;
            }
        }
        self.ran += begun.elapsed();
        Ok(())
    }

    /// Writes it down.
    fn write(
        &mut self,
        dir: &Path,
        writer: CheckpointsWriter,
        begins: Begins,
    ) -> Result<CheckpointsWriter, ReplayError> {
        let mut writer = Some(writer);
        loop {
            let (shared, copies) = (&self.tree.shared, &self.tree.copies);
            let pid = self.tree.only_root()?;
            let ran = self.ran;
            let begin = || match writer.take() {
                Some(writer) => writer.begin(),
                None => CheckpointsWriter::create(dir, &self.reader)?.begin(),
            };
            let begins = Begins {
                rings: Vec::new(),
                ..begins
            };
            if let Some((begun, moment)) = freeze(pid, shared, copies, dir, begins, begin)? {
                return Ok(begun.finish(moment, ran)?);
            }
            // Somebody is still on the way to where he waits.
            self.turn()?;
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.tree.end();
    }
}

/// The checkpoints of the trace in `dir`, for who wants to know where they are; none where they can't be used, which is told.
pub fn list(dir: &Path, reader: &Reader) -> Vec<Checkpoint> {
    match Checkpoints::open(dir, reader) {
        Ok(Some(all)) => all.list().to_vec(),
        Ok(None) => Vec::new(),
        Err(e) => {
            say!("without checkpoints, which takes longer: {e}");
            Vec::new()
        }
    }
}

/// Where a replay begins that is to come to `event`: the last checkpoint before it that is whole; `None` where it is the trace's beginning.
pub(crate) fn nearest(
    dir: &Path,
    reader: &Reader,
    event: u64,
) -> Result<Option<Beginning>, ReplayError> {
    let all = match Checkpoints::open(dir, reader) {
        Ok(Some(all)) => all,
        Ok(None) => return Ok(None),
        Err(e) => {
            say!("without checkpoints, which takes longer: {e}");
            return Ok(None);
        }
    };
    let mut told = false;
    let n = all.list().partition_point(|c| c.event <= event);
    for c in all.list()[..n].iter().rev() {
        let whole = all.image(*c).map_err(ReplayError::from);
        let whole = whole.and_then(|(mut image, moment)| {
            image.check_blocks()?;
            Beginning::of(dir, image, moment)
        });
        match whole {
            Ok(beginning) => return Ok(Some(beginning)),
            Err(e) if !told => {
                told = true;
                say!("without a checkpoint, which takes longer: {e}");
            }
            Err(_) => {}
        }
    }
    Ok(None)
}
