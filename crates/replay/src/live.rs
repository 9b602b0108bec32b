//! A replay that somebody else drives, look by look: a debugger. Its processes are traced (ptrace(2)) by the calling thread.
//!
//! Where it has come to is the number of events that have been used up. [`Live::feed_up_to`] holds the replay there: whoever needs the
//! next event waits for it at a gate, where the program's registers are known.
//!
//! A recording of `order` is replayed in total order. Its numbers are those of [`reprise_abi::pace`]: events and entries of all threads, in the order in
//! which they are used up, which is not that of the trace.

use crate::checkpoints;
use crate::driver::{self, Options, Prepared};
use crate::feed::Distribution;
use crate::output::Output;
use crate::rings::Rings;
use crate::tree::{Tree, Watch};
use crate::ReplayError;
use libc::pid_t;
use reprise_abi::engine::{can, Engine, TraceOrder};
use reprise_abi::event::EventHeader;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::{OrderHead, MAX_VOID};
use reprise_abi::session::{Session, Slot};
use reprise_launch::inject::Gate;
use reprise_launch::replay::Child;
use reprise_launch::{futex, Landmarks, OfOrder, SavedSession, SharedSession};
use reprise_trace::{Manifest, Reader};
use std::path::Path;
use std::rc::Rc;
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
    /// Under `order`: how much each slot had used up.
    own: Vec<u64>,
}

impl Mark {
    /// Under `order`: how many events and entries the slot had used up.
    pub fn own(&self, slot: usize) -> u64 {
        self.own.get(slot).copied().unwrap_or(0)
    }
}

/// What there is more under `order`.
struct Order {
    rings: Rc<Rings>,
    distribution: Distribution,
    landmarks: OfOrder,
}

/// Which process is driven.
#[derive(Clone, Copy, Debug)]
pub struct Whose {
    /// In the order of the processes' births.
    pub birth: u32,
    /// With how many events it begins.
    pub begins: u64,
}

/// A replay that runs only while [`Live::turn`] is called.
pub struct Live {
    tree: Tree,
    order: Option<Order>,
    reader: Reader,
    manifest: Manifest,
    landmarks: Landmarks,
    /// Its number in the session's table.
    process: usize,
    /// The kernel's id of it, as this driver found or made it: that in the session is the program's to write.
    pid: pid_t,
    gate: Option<Gate>,
    limit: u64,
    output: Output,
    _watch: Watch,
}

/// Can this trace be debugged?
pub fn is_debuggable(dir: &Path) -> bool {
    let engine = Manifest::read(dir).map(|m| m.engine());
    engine.is_ok_and(|engine| matches!(refusal(dir, engine), Ok(None)))
}

/// Why a trace by this engine can't be debugged.
fn refusal(dir: &Path, engine: &Engine) -> Result<Option<&'static str>, ReplayError> {
    Ok(
        if engine.can(can::ORDER_SYNCHRONISATION) && driver::has_several_processes(dir)? {
            Some("of recordings by the engine order those can be debugged that have one process, which stays the program it is; this one has several")
        } else if !engine.can(can::BE_DEBUGGED) {
            Some("recordings by this engine can't be debugged")
        } else {
            None
        },
    )
}

impl Live {
    /// Starts a replay of the trace in `dir`; its first process runs already, but gets no event. `output` shows what the program writes.
    /// `from`: of the first process, it begins at the last checkpoint on disk at which no more events had happened.
    ///
    /// # Errors
    /// When the trace can't be read, can't be debugged, or the process can't be made.
    pub fn start(
        dir: &Path,
        mut whose: Whose,
        mut output: Output,
        rings: Rc<Rings>,
        from: Option<u64>,
    ) -> Result<Live, ReplayError> {
        let options = Options {
            only: (whose.birth > 0).then_some(whose.birth),
            total: true,
            ..Options::default()
        };
        let Prepared {
            manifest,
            mut reader,
            image,
            shared,
        } = driver::prepare(dir, &options, None)?;
        if let Some(why) = refusal(dir, manifest.engine())? {
            return Err(ReplayError::Unsupported(why.into()));
        }
        let Some(landmarks) = image.landmarks else {
            return Err(ReplayError::Unsupported(
                "this trace was recorded by a reprise that had no debugger: record the program again to debug it".into(),
            ));
        };
        let mut order = match (manifest.engine().order, landmarks.order) {
            (TraceOrder::Stamps, Some(landmarks)) => Some(Order {
                distribution: Distribution::new(true),
                rings,
                landmarks,
            }),
            (TraceOrder::Stamps, None) => return Err(ReplayError::Unsupported(
                "this trace was recorded by a reprise whose debugger knew only the engine serial: record the program again to debug it".into(),
            )),
            _ => None,
        };
        if let Some(o) = &order {
            know_voids(&shared, &o.rings);
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
        if let Some(event) = from.filter(|_| whose.birth == 0 && order.is_none()) {
            let beginning = checkpoints::nearest(dir, &reader, event)?;
            tree.begin_at(beginning);
            whose.begins = tree.begins().unwrap_or(whose.begins);
        }
        tree.feed_up_to(0);
        if order.is_some() {
            tree.shared.session().pace().limit.store(0, SeqCst);
        }
        let mut gate = None;
        let later = whose.begins > 0;
        if later {
            // It can be traced when it is there.
            tree.child.traced = None;
            tree.shared.session().processes[0].debugged.store(0, SeqCst);
        }
        let mut pid = tree.begin(options.only)?;
        let mut process = 0;
        if later {
            let paced = order.is_some().then_some(whose.begins);
            let mut distribution = order.as_mut().map(|o| &mut o.distribution);
            gate = tree.go_to_beginning(&mut reader, distribution.as_deref_mut(), paced)?;
            process = tree.go_to_birth(&mut reader, distribution, whose)?;
            pid = tree.trace(process, TRACED)?;
            output.begins_at(
                tree.shared
                    .session()
                    .output_bytes
                    .each_ref()
                    .map(|n| n.load(SeqCst)),
            );
        }
        tree.child.traced = None;
        tree.follows = order.is_none().then_some(TRACED);
        Ok(Live {
            tree,
            order,
            reader,
            manifest,
            landmarks,
            process,
            pid,
            gate,
            limit: whose.begins,
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
        if self.order.is_some() {
            self.give_leave();
        }
        let distribution = self.order.as_mut().map(|o| &mut o.distribution);
        let lives = self.tree.turn(&mut self.reader, distribution)?;
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

    /// A place for calls in the process's name, where one is known from the beginning.
    pub fn gate(&self) -> Option<Gate> {
        self.gate
    }

    /// The traced threads that are not their process's first.
    pub fn threads(&self) -> impl Iterator<Item = pid_t> + '_ {
        self.tree.threads.iter().copied()
    }

    /// Asks the kernel who has stopped or ended, and does nothing else.
    pub fn look(&mut self) {
        self.tree.reap();
    }

    /// Is there only the process that is driven?
    pub fn is_one_at_rest(&self) -> bool {
        self.tree.is_one_at_rest(self.process)
    }

    /// The kernel's number of the process.
    pub fn pid(&self) -> pid_t {
        self.pid
    }

    /// Is it the slot of one of its threads?
    pub fn is_of_it(&self, slot: &Slot) -> bool {
        slot.process.load(SeqCst) as usize == self.process
    }

    /// It has become another program: the process that it is now. Told once.
    pub fn became(&mut self) -> Option<pid_t> {
        let pid = self.tree.became.take()?;
        self.pid = pid;
        Some(pid)
    }

    /// Has the kernel not ended yet what it was before its last exec?
    pub fn has_former(&self) -> bool {
        self.tree.has_former()
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
        if self.order.is_none() {
            self.tree.feed_up_to(events);
        }
    }

    /// Under `order`: whoever waits for leave may have it now.
    fn give_leave(&self) {
        let pace = self.session().pace();
        if pace.limit.swap(self.limit, SeqCst) == self.limit {
            return;
        }
        if pace.held.swap(0, SeqCst) != 0 {
            futex::wake(pace.held, i32::MAX);
        }
    }

    /// Under `order`: stops the slot's thread where it has used up so many events and entries of its own, and wants more.
    pub fn stop_at(&mut self, slot: usize, own: u64) {
        let pace = self.session().pace();
        pace.own_limit.store(own, SeqCst);
        pace.slot.store(slot as u64 + 1, SeqCst);
    }

    /// Under `order`: has the thread stopped that was [to stop by itself](Self::stop_at)?
    pub fn has_stopped(&self) -> bool {
        if self.order.is_none() {
            return false;
        }
        let pace = self.session().pace();
        let slot = (pace.slot.load(SeqCst) as usize).checked_sub(1);
        let holds = slot.is_some() && slot == self.holder();
        holds
            && pace.held.load(SeqCst) != 0
            && self.own(slot.unwrap_or(0)) >= pace.own_limit.load(SeqCst)
    }

    /// It is to stop by itself no more; if it has, it stays where it is, at this number.
    pub fn stop_nowhere(&mut self) {
        if self.has_stopped() {
            self.limit = self.events();
            self.session().pace().limit.store(self.limit, SeqCst);
        }
        self.session().pace().slot.store(0, SeqCst);
    }

    /// Under `order`: how many events and entries the slot has used up.
    pub fn own(&self, slot: usize) -> u64 {
        let ring = self.head().and_then(|h| h.rings.get(slot));
        ring.map_or(0, |r| r.events.load(SeqCst))
    }

    fn head(&self) -> Option<&OrderHead> {
        self.tree.shared.order()
    }

    /// What of the trace goes where, under `order`.
    pub fn rings(&self) -> Option<&Rings> {
        self.order.as_ref().map(|o| &*o.rings)
    }

    /// Slot of the thread that runs, when anything does: who holds the baton, or has the turn.
    pub fn holder(&self) -> Option<usize> {
        let Some(head) = self.head() else {
            let baton = self.session().baton.load(SeqCst) as usize;
            return baton.checked_sub(1).filter(|i| *i < MAX_SLOTS);
        };
        let used = self.session().slots_used.load(SeqCst) as usize;
        (0..used.min(MAX_SLOTS)).find(|i| head.total.turn[*i].load(SeqCst) != 0)
    }

    /// Has all been done that was recorded, but for the end of the process?
    pub fn is_over(&self) -> bool {
        let (Some(o), Some(head)) = (&self.order, self.head()) else {
            return false;
        };
        let nobody_goes_on = o.distribution.is_closed()
            && head.total.unclaimed.load(SeqCst) != 0
            && head.total.count() == 0;
        let pace = self.session().pace();
        nobody_goes_on || self.tree.waits_in_vain() || pace.is_over() && pace.held.load(SeqCst) != 0
    }

    /// Gives the thread of `slot` the baton and these events, which no trace has: by them it comes out of what it waits in. What else waited in the ring is gone:
    /// along the trace the replay goes on only after it has [gone back](Self::go_back).
    pub fn give(&mut self, slot: usize, events: &[EventHeader]) {
        let s = self.session();
        let bytes: Vec<u8> = events.iter().flat_map(EventHeader::to_bytes).collect();
        let at = s.ring.position.load(SeqCst);
        let to = self.tree.shared.ring_bytes(at, bytes.len());
        // SAFETY: so many bytes of the double mapping, which nobody has published.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        s.ring.head.store(at + bytes.len() as u64, SeqCst);
        if s.baton.swap(slot as u32 + 1, SeqCst) != slot as u32 + 1 {
            let go = &self.slot(slot).go;
            go.store(1, SeqCst);
            futex::wake(go, i32::MAX);
        }
        s.ring.consumer_asleep.store(0, SeqCst);
        futex::wake(&s.ring.consumer_asleep, i32::MAX);
    }

    /// How many events are to be fed.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Has everything been used up that may be fed, and does somebody wait for more?
    pub fn is_at_limit(&self) -> bool {
        if self.order.is_some() {
            let pace = self.session().pace();
            let held = pace.held.load(SeqCst) != 0;
            return held && self.events() >= self.limit || self.has_stopped() || self.is_over();
        }
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

    /// More of them, under `order`.
    pub fn landmarks_of_order(&self) -> Option<OfOrder> {
        self.order.as_ref().map(|o| o.landmarks)
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
        if !self.is_one_at_rest() || !self.tree.stops.is_empty() {
            return Ok(None);
        }
        Ok(Some(Mark {
            session: self.tree.shared.save()?,
            written: self.output.written(),
            files: self.tree.shared_files(),
            own: match &self.order {
                Some(_) => {
                    let used = self.session().slots_used.load(SeqCst) as usize;
                    (0..used.min(MAX_SLOTS)).map(|i| self.own(i)).collect()
                }
                None => Vec::new(),
            },
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
        let entry = &self.session().processes[self.process];
        entry.kernel_pid.store(*pid as u32, SeqCst);
        self.pid = *pid;
        let others = copies[1..].iter().map(|(_, new)| *new).collect();
        self.tree.goes_on_as(self.process, *pid, others, &to.files);
        if let Some(o) = &mut self.order {
            self.tree.something_was_done();
            let pace = self.tree.shared.session().pace();
            self.limit = pace.done.load(SeqCst);
            pace.limit.store(self.limit, SeqCst);
            pace.slot.store(0, SeqCst);
            let distribution = &mut o.distribution;
            return distribution.seek(&o.rings, &self.tree.shared, &mut self.reader);
        }
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

/// Tells the replay of all stamps that nobody has. Without a summary they are known only from all that the trace has.
fn know_voids(shared: &SharedSession, rings: &Rings) {
    let Some(head) = shared.order().filter(|h| h.voids.load(SeqCst) == 0) else {
        return;
    };
    let missing = rings.stamps.missing(rings.stamps.end(), MAX_VOID);
    for (to, stamp) in head.void.iter().zip(&missing) {
        to.store(*stamp, SeqCst);
    }
    head.voids.store(missing.len() as u64, SeqCst);
    let first = (0..).find(|n| missing.binary_search(n).is_err());
    head.stamp.0.store(first.unwrap_or(0), SeqCst);
}

impl Drop for Live {
    fn drop(&mut self) {
        self.tree.end();
    }
}
