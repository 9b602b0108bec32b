//! A replay that follows a recording which goes on: the flight recorder. What it has come past can be forgotten, because it says how the
//! trace begins from there ([`crate::freeze`]).

use crate::driver::{self, Options, Prepared};
use crate::freeze::freeze;
use crate::tree::{Tree, Watch};
use crate::{report, ReplayError};
use libc::pid_t;
use reprise_abi::event::{EventHeader, Kind};
use reprise_launch::replay::Child;
use reprise_trace::{beginning, Known, Reader};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;

/// How far it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// The trace begins there now.
    There,
    /// It is there, but the program has several processes then, or has become another one: this can't be a beginning.
    ToSeveral,
}

/// A replay that goes on as far as it is told.
pub struct Follower {
    tree: Tree,
    reader: Reader,
    dir: PathBuf,
    /// Events that it has been given.
    at: u64,
    /// What these told.
    known: Known,
    _nowhere: File,
    _watch: Watch,
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
        let nowhere = File::options().write(true).open("/dev/null");
        let nowhere = nowhere.map_err(|source| ReplayError::Io {
            what: "open /dev/null".into(),
            source,
        })?;
        let child = Child {
            cpu: driver::other_processor(manifest.start.cpu),
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
            at: 0,
            known: Known::default(),
            _nowhere: nowhere,
            _watch: watch,
        })
    }

    /// Goes on to `event`, with which the frame at byte `at_byte` of the stream begins. From there on the trace is kept, and what was before
    /// that is forgotten.
    ///
    /// # Errors
    /// When the replay leaves the recorded path, or the beginning can't be written.
    pub fn advance(&mut self, [event, at_byte]: [u64; 2]) -> Result<Came, ReplayError> {
        // What was written since.
        self.reader = Reader::open(&self.dir)?;
        self.learn(event)?;
        self.reader.seek(self.at)?;
        self.tree.feed_up_to(event);
        self.at = event;
        loop {
            let lives = self.tree.turn(&mut self.reader, None)?;
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
            let there = s.ring.events.load(SeqCst) >= event;
            if !there || s.ring.consumer_asleep.load(SeqCst) == 0 {
                continue;
            }
            if !self.tree.is_one() {
                return Ok(Came::ToSeveral);
            }
            let pid = s.processes[0].kernel_pid.load(SeqCst) as pid_t;
            if freeze(
                pid,
                &self.tree.shared,
                &self.tree.copies,
                &self.dir,
                &self.known,
                [event, at_byte],
            )? {
                beginning::forget_before(&self.dir, at_byte)?;
                return Ok(Came::There);
            }
        }
    }
}

impl Follower {
    /// Looks through the events that it is given next, up to this one.
    fn learn(&mut self, event: u64) -> Result<(), ReplayError> {
        self.reader.seek(self.at)?;
        while let Some(e) = self.reader.next()?.filter(|e| e.number < event) {
            let header = EventHeader::parse(e.bytes);
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
