//! A replay that follows a recording which goes on: the flight recorder. What it has come past can be forgotten, because it says how the
//! trace begins from there ([`crate::freeze`]).

use crate::driver::{self, Options, Prepared};
use crate::feed::Distribution;
use crate::freeze::{freeze, Begins};
use crate::rings::Rings;
use crate::tree::{Tree, Watch};
use crate::{report, ReplayError};
use reprise_abi::engine::{can, TraceOrder};
use reprise_abi::event::{EventHeader, Kind};
use reprise_launch::replay::Child;
use reprise_trace::{beginning, Known, Reader};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// So much time threads may compute, while nobody goes on, before more is given to all.
const SPINS: Duration = Duration::from_millis(50);
/// So long no thread is to have gone on: some look again once in a millisecond.
const STANDS: Duration = Duration::from_millis(3);
/// Between two questions whether it is still wanted.
const ASKS: Duration = Duration::from_millis(50);

/// How far it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// The trace begins at this byte of the stream now.
    There(u64),
    /// It is there, but the program has several processes then, or has become another one: this can't be a beginning.
    ToSeveral,
    /// Nowhere as yet: nobody waits for it any more.
    OnTheWay,
}

/// A replay that goes on as far as it is told.
pub struct Follower {
    tree: Tree,
    reader: Reader,
    dir: PathBuf,
    /// Events that it has been given, and where the frame of the next one begins in the stream.
    at: [u64; 2],
    /// The byte of the stream where the trace begins.
    begins_at: u64,
    /// What these told.
    known: Known,
    order: Option<Order>,
    _nowhere: File,
    _watch: Watch,
}

/// What there is more under `order`.
struct Order {
    distribution: Distribution,
    /// What of the events that the trace still has goes where.
    rings: Rings,
    /// How far each thread was at the last look, and since when.
    positions: (Vec<u64>, Instant),
    /// How long all of them had computed then.
    computed: Duration,
}

impl Order {
    /// Has each thread used up what it can? Then all sleep, and have done so for a while.
    fn stands(&mut self, tree: &Tree, reader: &Reader) -> bool {
        let used = tree.shared.session().slots_used.load(SeqCst) as usize;
        let rings = tree.shared.order().map_or(&[][..], |h| &h.rings);
        let used = rings.iter().take(used);
        let now: Vec<u64> = used.map(|r| r.position.load(SeqCst)).collect();
        if now != self.positions.0 {
            self.positions = (now, Instant::now());
            self.computed = tree.time();
        }
        self.positions.1.elapsed() > STANDS
            && self.distribution.is_at_limit(reader)
            && tree.sleeps()
    }
}

impl Follower {
    /// Begins to follow the recording in `dir`, from its first event on.
    ///
    /// # Errors
    /// When there can't be a replay of it.
    pub fn start(dir: &Path) -> Result<Follower, ReplayError> {
        let Prepared {
            manifest,
            reader,
            image,
            shared,
        } = driver::prepare(dir, &Options::default(), None)?;
        let nowhere = driver::nowhere()?;
        let pins = manifest.engine().can(can::PIN);
        let child = Child {
            cpu: match pins {
                false => None,
                true => driver::other_processor(manifest.start.cpu),
            },
            output: Some([nowhere.as_raw_fd(); 2]),
            ..Child::default()
        };
        let watch = Watch::new(shared.session());
        let mut tree = Tree::new(shared, image, dir, child);
        tree.feed_up_to(0);
        tree.begin(None)?;
        Ok(Follower {
            tree,
            reader,
            dir: dir.into(),
            at: [0; 2],
            begins_at: 0,
            known: Known::default(),
            order: (manifest.engine().order == TraceOrder::Stamps).then(|| Order {
                distribution: Distribution::new(false),
                rings: Rings::default(),
                positions: (Vec::new(), Instant::now()),
                computed: Duration::ZERO,
            }),
            _nowhere: nowhere,
            _watch: watch,
        })
    }

    /// Goes on to `event`, with which the frame at byte `at_byte` of the stream begins. From there on the trace is kept, or from an earlier frame if
    /// some thread can't be as far, and what was before that is forgotten. `is_wanted` is asked from time to time.
    ///
    /// # Errors
    /// When the replay leaves the recorded path, or the beginning can't be written.
    pub fn advance(
        &mut self,
        [event, at_byte]: [u64; 2],
        mut is_wanted: impl FnMut() -> bool,
    ) -> Result<Came, ReplayError> {
        // What was written since.
        self.reader = Reader::open(&self.dir)?;
        self.learn(event)?;
        self.reader.seek(self.at[0])?;
        let [event, at_byte] = [event, at_byte].max(self.at);
        match &mut self.order {
            Some(o) => o.distribution.feed_up_to(event),
            None => self.tree.feed_up_to(event),
        }
        self.at = [event, at_byte];
        if let Some(o) = &mut self.order {
            o.positions.1 = Instant::now();
            o.computed = self.tree.time();
        }
        let mut asked = Instant::now();
        loop {
            let distribution = self.order.as_mut().map(|o| &mut o.distribution);
            let lives = self.tree.turn(&mut self.reader, distribution)?;
            let s = self.tree.shared.session();
            if let Some(d) = report::read(s) {
                return Err(ReplayError::Unsupported(format!(
                    "the replay that follows the recording left its path: {d}"
                )));
            }
            if !lives {
                return Err(ReplayError::Unsupported(format!(
                    "the replay that follows the recording ended before event {event}"
                )));
            }
            let there = match &mut self.order {
                Some(o) => {
                    self.tree.let_go(&o.distribution);
                    o.stands(&self.tree, &self.reader)
                }
                None => {
                    s.ring.events.load(SeqCst) >= event && s.ring.consumer_asleep.load(SeqCst) != 0
                }
            };
            if let (false, Some(o)) = (there, &self.order) {
                // A thread may look again and again for what another one does only when it is given more.
                let computed = self.tree.time().saturating_sub(o.computed);
                if computed > SPINS && o.distribution.is_at_limit(&self.reader) {
                    return Ok(Came::There(self.begins_at));
                }
            }
            if !there {
                if asked.elapsed() > ASKS {
                    if !is_wanted() {
                        return Ok(Came::OnTheWay);
                    }
                    asked = Instant::now();
                }
                continue;
            }
            if !self.tree.is_one() {
                return Ok(Came::ToSeveral);
            }
            let pid = self.tree.only_root()?;
            let begins = self.begins([event, at_byte]);
            if begins.at_byte <= self.begins_at {
                return Ok(Came::There(self.begins_at));
            }
            let (event, at_byte) = (begins.event, begins.at_byte);
            let (shared, copies) = (&self.tree.shared, &self.tree.copies);
            let begin = || beginning::create(&self.dir);
            if let Some((image, moment)) = freeze(pid, shared, copies, &self.dir, begins, begin)? {
                beginning::finish(image, moment)?;
                beginning::forget_before(&self.dir, at_byte)?;
                if let Some(o) = &mut self.order {
                    o.rings.forget_before(event);
                }
                self.begins_at = at_byte;
                tracing::debug!(event, at_byte, "the trace begins further on");
                return Ok(Came::There(at_byte));
            }
        }
    }

    /// Where a trace begins whose threads are where they are now, at `event` or before it.
    fn begins(&self, [event, at_byte]: [u64; 2]) -> Begins<'_> {
        let mut begins = Begins {
            event,
            at_byte,
            rings: Vec::new(),
            known: &self.known,
        };
        if let Some(o) = &self.order {
            let wanted = Distribution::first_wanted(&o.rings, &self.tree.shared);
            let frames = self.reader.frames();
            let of_wanted = wanted.and_then(|n| frames.take_while(|(first, _)| *first <= n).last());
            let earlier = of_wanted.filter(|(first, _)| *first < event);
            (begins.event, begins.at_byte) = earlier.unwrap_or((event, at_byte));
            begins.rings = o.rings.starts(begins.event);
        }
        begins
    }

    /// Looks through the events that it is given next, up to this one.
    fn learn(&mut self, event: u64) -> Result<(), ReplayError> {
        self.reader.seek(self.at[0])?;
        while let Some(e) = self.reader.next()?.filter(|e| e.number < event) {
            let header = EventHeader::parse(e.bytes);
            if let Some(o) = &mut self.order {
                o.rings.note(e.number, &e.parse()?);
            }
            if header.is_ok_and(|h| Known::wants(Kind::from_u8(h.kind), h.value)) {
                self.known.note(e.number, &e.parse()?);
            }
        }
        Ok(())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.tree.end();
    }
}
