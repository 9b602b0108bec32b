//! A replay that somebody else drives, look by look: a debugger. Its processes are traced (ptrace(2)) by the calling thread.
//!
//! Where it has come to is the number of events that have been used up. [`Live::feed_up_to`] holds the replay there: whoever needs the
//! next event waits for it at a gate, where the program's registers are known.

use crate::driver::{self, Options, Prepared};
use crate::output::Output;
use crate::tree::{Tree, Watch};
use crate::ReplayError;
use libc::pid_t;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::{Session, Slot};
use reprise_launch::replay::Child;
use reprise_launch::{Landmarks, SavedSession};
use reprise_trace::{Manifest, Reader};
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// Options of ptrace(2): what is made is traced, and nobody outlives the driver.
const TRACED: i32 = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_EXITKILL;

/// What the driver keeps of a moment of a replay. What the process itself is then, is for its debugger to keep.
pub struct Mark {
    session: SavedSession,
    /// Bytes that the program had written to its standard output and error.
    written: [u64; 2],
    /// Numbers of the shared files that there were copies of.
    files: Vec<u64>,
}

/// A replay under `serial` that runs only while [`Live::turn`] is called.
pub struct Live {
    tree: Tree,
    reader: Reader,
    manifest: Manifest,
    landmarks: Landmarks,
    limit: u64,
    output: Output,
    _watch: Watch,
}

impl Live {
    /// Starts a replay of the trace in `dir`; its first process runs already, but gets no event. `output` shows what the program writes.
    ///
    /// # Errors
    /// When the trace can't be read, can't be debugged, or the process can't be made.
    pub fn start(dir: &Path, only: Option<u32>, output: Output) -> Result<Live, ReplayError> {
        let options = Options {
            only,
            ..Options::default()
        };
        let Prepared {
            manifest,
            reader,
            image,
            shared,
        } = driver::prepare(dir, &options, None)?;
        if manifest.engine != "serial" {
            return Err(ReplayError::Unsupported(format!(
                "only recordings by the engine serial can be debugged, and this one is by {}",
                manifest.engine
            )));
        }
        let Some(landmarks) = image.landmarks else {
            return Err(ReplayError::Unsupported(
                "this trace was recorded by a reprise that had no debugger: record the program again to debug it".into(),
            ));
        };
        if reader.first() > 0 {
            return Err(ReplayError::Unsupported(
                "only the last stretch of this run was kept, and such a trace can't be debugged yet: reprise replay and reprise verify take it".into(),
            ));
        }
        shared.session().processes[0].debugged.store(1, SeqCst);
        let child = Child {
            cpu: driver::processor(manifest.start.cpu),
            output: Some(output.descriptors()),
            traced: Some(TRACED),
            ..Child::default()
        };
        let watch = Watch::new(shared.session());
        let mut tree = Tree::new(shared, image, dir, child);
        tree.feed_up_to(0);
        tree.begin(only)?;
        // What the process may become is not followed.
        tree.child.traced = None;
        Ok(Live {
            tree,
            reader,
            manifest,
            landmarks,
            limit: 0,
            output,
            _watch: watch,
        })
    }

    /// One look at everything: feeds events, answers requests, sees who stopped or ended; sleeps for a moment when there is nothing to do.
    /// False when no process is left.
    ///
    /// # Errors
    /// When the trace is damaged, or a process can't be made.
    pub fn turn(&mut self) -> Result<bool, ReplayError> {
        let lives = self.tree.turn(&mut self.reader)?;
        self.output.show();
        Ok(lives && !self.tree.is_over())
    }

    /// Shows all output; how much of each stream has been shown.
    pub fn shown(&mut self) -> [u64; 2] {
        self.output.show();
        self.output.shown()
    }

    /// The replay has come back from where it wrote something that was not recorded: nothing was shown of its own since then.
    pub fn forget_shown_since(&mut self, shown: [u64; 2]) {
        self.output.forget_since(shown);
    }

    /// Asks the kernel who has stopped or ended, and does nothing else.
    pub fn look(&mut self) {
        self.tree.reap();
    }

    /// Is there only the first process, as the program that it was from the beginning?
    pub fn is_one_at_rest(&self) -> bool {
        self.tree.is_one_at_rest()
    }

    /// A stop of a traced thread, or the end of one that is not its process's first: who, and waitpid's status.
    pub fn next_stop(&mut self) -> Option<(pid_t, i32)> {
        self.tree.stops.pop_front()
    }

    /// A traced thread that is not its process's first.
    pub fn add_thread(&mut self, tid: pid_t) {
        self.tree.threads.insert(tid);
    }

    /// From now on only the trace's first `events` events are to be fed.
    ///
    /// # Panics
    /// When more have been.
    pub fn feed_up_to(&mut self, events: u64) {
        assert!(events >= self.limit, "events can't be taken back");
        self.limit = events;
        self.tree.feed_up_to(events);
    }

    /// How many events are to be fed.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Has everything been used up that may be fed, and does somebody wait for more?
    pub fn is_at_limit(&self) -> bool {
        let ring = &self.session().ring;
        ring.events.load(SeqCst) >= self.limit && ring.consumer_asleep.load(SeqCst) != 0
    }

    /// How many events have been used up.
    pub fn events(&self) -> u64 {
        self.session().ring.events.load(SeqCst)
    }

    /// The session.
    pub fn session(&self) -> &Session {
        self.tree.shared.session()
    }

    /// Slot `i` of the session; one that was scribbled over is taken for the last.
    pub fn slot(&self, i: usize) -> &Slot {
        self.tree.shared.slot(i.min(MAX_SLOTS - 1))
    }

    /// Places in the recorded runtime.
    pub fn landmarks(&self) -> Landmarks {
        self.landmarks
    }

    /// The trace's head.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How the first process ended, when it has.
    pub fn status(&self) -> Option<i32> {
        self.tree.status()
    }

    /// What to say when the replay left the recorded path.
    pub fn divergence(&self) -> Option<crate::Divergence> {
        crate::report::read(self.session())
    }

    /// What the driver keeps of this moment, to go back to it; `None` while there is more than one process, or a request of one.
    ///
    /// # Errors
    /// When memory is short.
    pub fn mark(&self) -> Result<Option<Mark>, ReplayError> {
        if !self.tree.is_one_at_rest() || !self.tree.stops.is_empty() {
            return Ok(None);
        }
        Ok(Some(Mark {
            session: self.tree.shared.save()?,
            written: self.output.written(),
            files: self.tree.shared_files(),
        }))
    }

    /// Ends all processes but these, which only wait.
    pub fn clear_away(&mut self, but: &[pid_t]) {
        self.output.show();
        self.tree.clear_away(but);
    }

    /// Goes back to a moment, with threads that are copies of those that there were: each one's kernel id then, and now; the first is the
    /// process. Call it when all others are [cleared away](Self::clear_away).
    ///
    /// # Errors
    /// When the trace can't be read, or memory is short.
    pub fn go_back(&mut self, to: &Mark, copies: &[(pid_t, pid_t)]) -> Result<(), ReplayError> {
        let Some((_, pid)) = copies.first() else {
            return Ok(());
        };
        self.tree.shared.put_back(&to.session)?;
        self.output.cut(to.written);
        let used = self.session().slots_used.load(SeqCst) as usize;
        for i in 0..used.min(MAX_SLOTS) {
            let slot = self.slot(i);
            let old = slot.kernel_tid.load(SeqCst) as pid_t;
            if let Some((_, new)) = copies.iter().find(|(was, _)| *was == old) {
                slot.kernel_tid.store(*new as u32, SeqCst);
                slot.kernel_pid.store(*pid as u32, SeqCst);
            }
        }
        let first = &self.session().processes[0].kernel_pid;
        first.store(*pid as u32, SeqCst);
        let others = copies[1..].iter().map(|(_, new)| *new).collect();
        self.tree.goes_on_as(*pid, others, &to.files);
        let (events, position) = {
            let ring = &self.session().ring;
            (ring.events.load(SeqCst), ring.position.load(SeqCst))
        };
        self.reader.seek(events)?;
        self.tree.feed_from(events, position);
        self.limit = events;
        Ok(())
    }

    /// Ends all processes; what shows their output, for another replay that goes on showing it.
    pub fn end(mut self) -> Output {
        self.output.show();
        std::mem::take(&mut self.output)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.tree.end();
    }
}
