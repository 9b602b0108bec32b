//! The driver's side of a process tree: feeds the events, makes the processes that execs ask for, reaps all of them.
//!
//! All replayed processes are children of the driver (see `serial/processes.rs` in the runtime), so that each death is seen here.

mod ends;
pub use ends::TRACE_ENDED;
mod moments;
mod stuck;
mod total;

use crate::children;
use crate::feed::Distribution;
use crate::lives::Lives;
use crate::rebuilt::{Exchange, Rebuilt};
use crate::supervisor::{self, Supervisor};
use crate::thaw::Beginning;
use crate::{plan, ReplayError};
use libc::pid_t;
use reprise_abi::engine::can;
use reprise_abi::event::EventHeader;
use reprise_abi::layout::{MAX_SLOTS, RESERVATION, RESERVATION_END, RING_SIZE};
use reprise_abi::session::{
    process_state, request, slot_state, InitialRegion, Session, Slot, MAX_INITIAL_REGIONS,
    MAX_PROCESSES,
};
use reprise_launch::confine::Whose;
use reprise_launch::replay::{self as launch, Child, Confined};
use reprise_launch::{futex, RuntimeImage, SharedSession};
use reprise_trace::{ImageReader, ImageSet, Reader, Start, Summary};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::io::Errno;
use rustix::process::{waitid, Signal, WaitId, WaitIdOptions};
use std::collections::{btree_map::Entry, BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};
pub use stuck::{Halt, DEADLOCK};

use stuck::{Signals, Waiting};
use total::Alone;

/// The longest sleep, in nanoseconds: threads that compute are told that often that time passes.
const SLEEP: Duration = Duration::from_millis(20);
/// The longest sleep while threads empty their own rings, or come to a debugger's limit.
const SHORT_SLEEP: Duration = Duration::from_millis(2);
/// Between two signals that tell a thread so.
const PING: Duration = Duration::from_millis(15);
/// In [`Session::starting`]: the process has been made that reads the head.
const BEGUN: u32 = 1 << 31;
/// The runtime's own signal.
const SIGCUT: i32 = 16;

/// A replay that runs.
pub(crate) struct Tree {
    /// The session.
    pub shared: SharedSession,
    /// The recorded runtime.
    pub image: RuntimeImage,
    /// The trace.
    pub dir: PathBuf,
    images: ImageSet,
    /// What processes become. Hand-offs between threads are cheap only on one processor.
    pub child: Child,
    /// Some are traced (ptrace(2)).
    traces: bool,
    /// Of these: threads that are not their process's first one, ...
    pub threads: HashSet<pid_t>,
    /// ... and what waitpid(2) told of all that are traced, but the ends of processes.
    pub stops: VecDeque<(pid_t, i32)>,
    feed: Feed,
    pinged: Instant,
    /// Kernel's ids that the first process has had.
    roots: HashSet<pid_t>,
    /// Processes that went on as another kernel's process.
    lives: Lives,
    /// Writable copies of files that were mapped shared, by number.
    pub copies: BTreeMap<u64, File>,
    /// Processes that the driver itself has made, and that have not ended.
    made: HashSet<pid_t>,
    status: Option<i32>,
    failed: bool,
    /// The one process that is wanted, by its birth, ...
    only: Option<u32>,
    /// ... and how it ended, after which nothing is replayed.
    ended: Option<i32>,
    /// Total order.
    alone: Alone,
    waiting: Waiting,
    /// The longest time that the replay may take.
    pub limit: Option<Duration>,
    /// Why it was ended, if it did not end by itself.
    pub halted: Option<Halt>,
    /// What is replayed in the place of the recorded program.
    pub rebuilt: Option<Rebuilt>,
    /// A process that is debugged is traced with these options as what it becomes, too; ...
    pub follows: Option<i32>,
    /// ... and this is what it became, until somebody asks.
    pub became: Option<pid_t>,
    /// Where the trace begins, until the replay is there.
    beginning: Option<Beginning>,
    /// Of the box that all processes are in; none where the user wants that.
    supervisor: Option<Supervisor>,
}

/// The word on which the driver sleeps, for the handler of SIGCHLD.
static SLEEPS_ON: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn child_changed(_: i32) {
    wake_driver();
}

/// The driver does not go to sleep. For handlers of signals, which end its sleep.
fn wake_driver() {
    let word = SLEEPS_ON.load(Relaxed);
    if !word.is_null() {
        // SAFETY: a word of a session that lives while the handler is installed.
        unsafe { (*word).store(0, SeqCst) };
    }
}

/// Installs the handler of SIGCHLD for as long as it lives.
pub(crate) struct Watch(libc::sighandler_t);

impl Watch {
    pub(crate) fn new(s: &Session) -> Watch {
        SLEEPS_ON.store(std::ptr::from_ref(&s.agent_asleep).cast_mut(), SeqCst);
        let handler = child_changed as extern "C" fn(i32);
        // SAFETY: the handler only stores a word.
        Watch(unsafe { libc::signal(libc::SIGCHLD, handler as libc::sighandler_t) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: what was there before.
        unsafe { libc::signal(libc::SIGCHLD, self.0) };
        SLEEPS_ON.store(std::ptr::null_mut(), SeqCst);
    }
}

impl Tree {
    /// A replay of the trace in `dir`, before its first process.
    pub fn new(shared: SharedSession, image: RuntimeImage, dir: &Path, child: Child) -> Tree {
        Tree {
            shared,
            image,
            dir: dir.to_path_buf(),
            images: ImageSet::new(dir),
            child,
            traces: child.traced.is_some(),
            threads: HashSet::new(),
            stops: VecDeque::new(),
            feed: Feed::default(),
            pinged: Instant::now(),
            roots: HashSet::new(),
            lives: Lives::default(),
            copies: BTreeMap::new(),
            made: HashSet::new(),
            status: None,
            failed: false,
            only: None,
            ended: None,
            alone: Alone::default(),
            waiting: Waiting::default(),
            limit: None,
            halted: None,
            rebuilt: None,
            follows: None,
            became: None,
            beginning: None,
            supervisor: None,
        }
    }

    /// Replays all; the wait status of the first process. With `only`, the birth of a process, it ends when that one ends, with its
    /// status.
    ///
    /// # Errors
    /// When the trace can't be read or a process can't be made.
    pub fn run(&mut self, reader: &mut Reader, only: Option<u32>) -> Result<i32, ReplayError> {
        let _watch = Watch::new(self.shared.session());
        self.begin(only)?;
        let summary = Summary::read(&self.dir).unwrap_or(None);
        let mut distribution = Distribution::new(summary.is_some());
        let result = self.go_to_beginning(reader, Some(&mut distribution), None);
        let result = result.and_then(|_| self.play(reader, distribution));
        if result.is_err() {
            self.end();
        }
        self.end_threads();
        result?;
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let known = self.shared.session().root_status.load(Relaxed);
        Ok(match (self.status, known) {
            (Some(status), 0) => status,
            (_, known) => known.wrapping_sub(1) as i32,
        })
    }

    /// `det`: threads are processes; none outlives the first one.
    fn end_threads(&self) {
        for root in &self.roots {
            reprise_launch::threads::end_all(&self.shared, *root as u32, &[]);
        }
    }

    /// It is to begin there.
    pub fn begin_at(&mut self, beginning: Option<Beginning>) {
        self.beginning = beginning;
    }

    /// Behind how many events it begins, if not with the first one.
    pub fn begins(&self) -> Option<u64> {
        self.beginning.as_ref().map(|b| b.moment.event)
    }

    /// Makes the first process. It gets no event when the trace begins later.
    pub fn begin(&mut self, only: Option<u32>) -> Result<pid_t, ReplayError> {
        self.only = only;
        let threads = self.shared.session().engine().can(can::SEPARATE_MEMORY);
        let whose = match threads {
            true => Whose::Threads,
            false => Whose::Processes,
        };
        self.supervisor = Supervisor::start(&self.dir, whose)?;
        if self.beginning.is_none() {
            self.beginning = Beginning::open(&self.dir)?;
        }
        if self.beginning.is_some() {
            self.feed.limit = 0;
            // The threads that there are then are made by it.
            let s = self.shared.session_mut();
            s.attached = s.attached.min(1);
        }
        let first = self.images.image(0)?;
        if self.shared.order().is_some() {
            self.shared.slot(0).state.store(slot_state::RUNNING, SeqCst);
        }
        let root = self.become_image(first, None, 0)?;
        self.roots.insert(root);
        Ok(root)
    }

    /// Ends all processes.
    pub fn end(&mut self) {
        self.failed = true;
        self.kill_all();
        while self.reap() {
            self.sleep();
            self.kill_all();
            // Made behind the recording's back, and seen by nobody yet.
            for pid in supervisor::strays().chain(children::traced()) {
                children::signal(pid, Signal::KILL);
            }
        }
        self.end_threads();
    }

    /// One look at everything, of a replay that a debugger drives: it sleeps when there is nothing to do. False when no process is left.
    /// `distribution`: of one under `order`. There nobody is ended who has done all: it stays where it is.
    pub fn turn(
        &mut self,
        reader: &mut Reader,
        distribution: Option<&mut Distribution>,
    ) -> Result<bool, ReplayError> {
        if !self.reap() {
            return Ok(false);
        }
        if self.failed {
            // A process may have been made meanwhile.
            self.kill_all();
        }
        self.serve()?;
        let moved = match distribution {
            Some(distribution) => {
                let moved = distribution.pump(&self.shared, reader)?;
                match moved || !self.stops.is_empty() {
                    true => self.something_was_done(),
                    false => self.fail_if_stuck(distribution)?,
                }
                moved
            }
            None => self.feed.pump(&self.shared, reader).inspect_err(|_| {
                self.feed.close(self.shared.session());
            })?,
        };
        self.rest(moved);
        Ok(true)
    }

    /// Feeds only so many of the trace's events.
    pub fn feed_up_to(&mut self, events: u64) {
        self.feed.limit = events;
    }

    /// Has no process been left that runs? Copies that only wait are none.
    pub fn is_over(&self) -> bool {
        self.made.is_empty() && self.status.is_some() && self.stops.is_empty() && self.alone(None)
    }

    /// How the first process ended, when it has.
    pub fn status(&self) -> Option<i32> {
        self.status
    }

    /// Has the one process that was wanted been seen to its end?
    pub fn reached(&self) -> bool {
        self.ended.is_some()
    }

    fn play(
        &mut self,
        reader: &mut Reader,
        mut distribution: Distribution,
    ) -> Result<(), ReplayError> {
        let mut damage = Ok(());
        let _signals = Signals::new();
        let begun = Instant::now();
        while self.reap() {
            self.end_if_wanted(begun);
            if self.failed {
                // A process may have been made meanwhile.
                self.kill_all();
            }
            self.serve()?;
            let pumped = match self.shared.order() {
                Some(_) => distribution.pump(&self.shared, reader),
                None => self.feed.pump(&self.shared, reader),
            };
            let moved = pumped.unwrap_or_else(|e| {
                // What is good of the trace is replayed before the error is told.
                damage = Err(e);
                match self.shared.order() {
                    Some(head) => distribution.close(head),
                    None => self.feed.close(self.shared.session()),
                }
                true
            });
            if self.shared.order().is_some() {
                self.let_go(&distribution);
                self.relieve();
                match moved {
                    true => self.something_was_done(),
                    false => self.end_if_stuck(&distribution),
                }
            }
            self.rest(moved);
            if !moved {
                self.end_strays();
            }
        }
        damage
    }

    /// When nothing could be fed: tells who computes that time passes, and sleeps.
    fn rest(&mut self, moved: bool) {
        if moved || !self.stops.is_empty() {
            return;
        }
        self.nothing_to_do();
        if self.pinged.elapsed() > PING {
            self.pinged = Instant::now();
            self.ping();
        }
        self.sleep();
    }

    fn sleep(&self) {
        let (s, feed) = (self.shared.session(), &self.feed);
        s.agent_asleep.store(1, SeqCst);
        if self.shared.order().is_some() {
            let is_wanted = || s.pace().held.load(SeqCst) != 0 || self.someone_died();
            if !(self.traces && is_wanted()) {
                futex::wait(&s.agent_asleep, 1, SHORT_SLEEP);
            }
            return s.agent_asleep.store(0, SeqCst);
        }
        // What a debugger's limit holds back needs no room: to be woken for it at each event would cost both as much as the event. Who comes
        // to the limit wakes us himself, unless his runtime is an older one.
        let holds_back = !feed.done && !feed.has_more();
        if !feed.done && !holds_back {
            s.ring.producer_asleep.store(1, SeqCst);
        }
        // Of a debugger: who wants more than may be fed now says so once, perhaps before we were asleep.
        let at_limit = self.traces
            && s.ring.events.load(SeqCst) >= feed.limit
            && s.ring.consumer_asleep.load(SeqCst) != 0;
        if !feed.can_move(s)
            && !at_limit
            && s.request.kind.load(SeqCst) == request::NONE
            && !self.someone_died()
        {
            let longest = if holds_back { SHORT_SLEEP } else { SLEEP };
            futex::wait(&s.agent_asleep, 1, longest);
        }
        s.agent_asleep.store(0, SeqCst);
        s.ring.producer_asleep.store(0, SeqCst);
    }

    /// Is there a child to be reaped?
    fn someone_died(&self) -> bool {
        let stops = match self.traces {
            true => WaitIdOptions::STOPPED | children::ALL,
            false => WaitIdOptions::empty(),
        };
        // It stays waitable.
        let only_look = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let changed = waitid(WaitId::All, WaitIdOptions::EXITED | only_look | stops);
        matches!(changed, Ok(Some(_)))
    }

    /// Reaps who has ended; false when nobody is left.
    pub(crate) fn reap(&mut self) -> bool {
        loop {
            match children::next_change() {
                Ok(None) => return true,
                Ok(Some((pid, status)))
                    if libc::WIFSTOPPED(status) || self.threads.remove(&pid) =>
                {
                    self.stops.push_back((pid, status));
                }
                Ok(Some((pid, status))) => self.ended(pid, status),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn ended(&mut self, pid: pid_t, status: i32) {
        self.made.remove(&pid);
        if let Some(former) = self.lives.former(pid) {
            self.free_slots(former.slots.into_iter());
            return self.free(former.process);
        }
        let s = self.shared.session();
        let found = (0..MAX_PROCESSES).find(|n| {
            let p = &s.processes[*n];
            p.state.load(Acquire) != process_state::FREE && p.kernel_pid.load(Acquire) == pid as u32
        });
        let expected =
            found.is_some_and(|n| s.processes[n].state.load(Acquire) == process_state::ENDING);
        tracing::debug!(pid, status, process = found, expected, "process ended");
        if self.roots.contains(&pid) && self.status.is_none() {
            self.status = Some(status);
        }
        if self.ended.is_none() && expected && self.is_wanted(pid, found) {
            // Nobody is interested in the others.
            self.ended = Some(status);
            self.failed = true;
            self.kill_all();
        }
        if !expected && !self.failed && !self.alone(found) {
            // It could not go on as recorded: nor can the others.
            self.failed = true;
            self.status = Some(status);
            self.kill_all();
        }
        if let Some(n) = found {
            self.give_head(n);
            self.lives.ends(n);
            self.free(n);
        }
    }

    /// Process `n` has ended: the next exec may use the session's head, if this one had not read it yet.
    fn give_head(&self, n: usize) {
        let word = &self.shared.session().starting;
        let begun = word.load(Acquire);
        let slot = (begun & !BEGUN) as usize;
        let is_of = |slot: usize| self.shared.slot(slot).process.load(Relaxed) as usize == n;
        if begun & BEGUN != 0 && (1..=MAX_SLOTS).contains(&slot) && is_of(slot - 1) {
            let _ = word.compare_exchange(begun, 0, AcqRel, Relaxed);
            wake(word);
        }
    }

    /// One of the kernel's processes that process `n` was has ended: if it was the last, all that it had can be had again.
    fn free(&mut self, n: usize) {
        if self.lives.is_over(n) {
            self.free_slots(self.left_by(n));
            let state = &self.shared.session().processes[n].state;
            state.store(process_state::FREE, Release);
        }
    }

    /// Is it the one process that is to be seen to its end?
    fn is_wanted(&self, pid: pid_t, n: Option<usize>) -> bool {
        match (self.only, n) {
            (Some(0), _) => self.roots.contains(&pid),
            (Some(birth), Some(n)) => {
                self.shared.session().processes[n].birth.load(Relaxed) == birth
            }
            _ => false,
        }
    }

    /// Is no process left but perhaps this one?
    fn alone(&self, n: Option<usize>) -> bool {
        let s = self.shared.session();
        (0..MAX_PROCESSES)
            .filter(|i| Some(*i) != n)
            .all(|i| s.processes[i].state.load(Acquire) != process_state::LIVE)
    }

    /// The slots that threads of process `n` have left, and that nobody had since.
    fn left_by(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_SLOTS).filter(move |i| {
            let slot = self.shared.slot(*i);
            slot.state.load(Acquire) == slot_state::LEFT && slot.process.load(Relaxed) as usize == n
        })
    }

    /// The threads that have left these slots are gone: others can have them.
    fn free_slots(&self, left: impl Iterator<Item = usize>) {
        for i in left {
            let slot = self.shared.slot(i);
            // Before anybody can have the slot.
            self.leave_order(i);
            slot.state.store(slot_state::FREE, Release);
            wake(&slot.state);
        }
    }

    fn kill_all(&self) {
        for pid in self.made.iter().copied().chain(self.named()) {
            children::signal(pid, Signal::KILL);
        }
    }

    /// The replayed processes of the session's table.
    fn named(&self) -> impl Iterator<Item = pid_t> + '_ {
        let all = self.shared.session().processes.iter();
        all.filter(|p| p.state.load(Relaxed) != process_state::FREE)
            .filter_map(|p| children::replayed(&self.shared, p.kernel_pid.load(Relaxed)))
    }

    /// All processes.
    fn pids(&self) -> impl Iterator<Item = pid_t> + '_ {
        let of_table = self.shared.session().processes.iter().filter_map(|p| {
            let pid = p.kernel_pid.load(Relaxed) as pid_t;
            (p.state.load(Relaxed) != process_state::FREE).then_some(pid)
        });
        let of_table = of_table.filter(|pid| children::is_ours(*pid));
        of_table.chain(self.made.iter().copied())
    }

    /// Tells a thread that computes that time passes. It knows how long it may look for the place of a cut, and sees when no
    /// event is left.
    fn ping(&self) {
        let s = self.shared.session();
        if self.shared.order().is_some() {
            return self.ping_seekers();
        }
        let holder = s.baton.load(Relaxed) as usize;
        let Some(i) = holder.checked_sub(1).filter(|i| *i < MAX_SLOTS) else {
            return;
        };
        let slot = self.shared.slot(i);
        if slot.cut_waiting.load(Relaxed) != 0 || s.ring.closed.load(Relaxed) != 0 {
            tell_time(&self.shared, slot);
        }
    }

    /// Answers the open request, if there is one.
    fn serve(&mut self) -> Result<(), ReplayError> {
        let q = &self.shared.session().request;
        let kind = q.kind.load(Acquire);
        let args = [0, 1, 2].map(|i| q.args[i].load(Relaxed));
        if kind == request::NONE {
            return Ok(());
        }
        tracing::debug!(kind, ?args, "request");
        let mut answer = 0;
        match kind {
            request::BECOME => self.exec(args[0], args[1])?,
            request::SHARE_FILE => answer = self.share(args[0], args[1])?,
            _ => {}
        }
        let q = &self.shared.session().request;
        q.answer[0].store(answer, Relaxed);
        q.status.store(0, Relaxed);
        q.kind.store(request::NONE, Release);
        wake(&q.kind);
        Ok(())
    }

    /// The process of a slot goes on as image `n`.
    fn exec(&mut self, slot: u64, n: u64) -> Result<(), ReplayError> {
        let slot = slot as usize;
        let number = match self.shared.session().slots_used.load(Relaxed) as usize {
            used if slot < used.min(MAX_SLOTS) => {
                self.shared.slot(slot).process.load(Relaxed) as usize
            }
            _ => MAX_PROCESSES,
        };
        if number >= MAX_PROCESSES || n > reprise_trace::MAX_IMAGES {
            return Err(ReplayError::Unsupported(
                "the trace has an impossible exec".into(),
            ));
        }
        let image = self.images.image(n)?;
        let Some(start) = image.start().cloned() else {
            return Err(ReplayError::Unsupported(format!(
                "image {n} of the trace does not say how it starts"
            )));
        };
        let old = self.shared.session().processes[number]
            .kernel_pid
            .load(Relaxed) as pid_t;
        let several = self.shared.order().is_some();
        if several {
            // The new process gives the head back when it has read it, since others may exec at the same time.
            let head = &self.shared.session().starting;
            head.store((slot as u32 + 1) | BEGUN, Release);
        }
        let debugged = &self.shared.session().processes[number].debugged;
        let follows = self.follows.filter(|_| debugged.load(Acquire) != 0);
        if follows.is_none() {
            debugged.store(0, Release);
        }
        self.child.traced = follows;
        let pid = self.become_image(image, Some(&start), slot)?;
        self.child.traced = None;
        self.became = follows.map_or(self.became, |_| Some(pid));
        let s = self.shared.session();
        s.processes[number].kernel_pid.store(pid as u32, Release);
        let left: Vec<usize> = self.left_by(number).collect();
        self.lives.becomes(old, number, left.into_iter());
        // From here on the old one's end says when its slots are free.
        if !several {
            s.starting.store(0, Release);
        }
        if self.roots.contains(&old) {
            self.roots.insert(pid);
        }
        Ok(())
    }

    /// Makes the process that an image describes, with its first thread in `slot`.
    fn become_image(
        &mut self,
        mut image: ImageReader,
        start: Option<&Start>,
        slot: usize,
    ) -> Result<pid_t, ReplayError> {
        let s = self.shared.session_mut();
        if let Some(start) = start {
            set_start(s, start);
        }
        // What is known of the threads of a process that was running before is no memory of the program's.
        let regions = image.image().regions.iter();
        let regions = regions.filter(|r| !(RESERVATION..RESERVATION_END).contains(&r.start));
        let mut len = 0;
        for r in regions {
            let Some(to) = s.initial_regions.get_mut(len) else {
                return Err(ReplayError::Unsupported(
                    "the trace's image has too many regions".into(),
                ));
            };
            to.start = r.start;
            to.end = r.end();
            to.prot = r.prot;
            to.flags = r.flags;
            len += 1;
        }
        s.initial_regions_len = len as u32;
        let bytes = plan::read_bytes(&mut image)?;
        let exchange = match &self.rebuilt {
            Some(program) => {
                let (sp, brk) = (s.initial_sp, s.brk_start);
                let new = program.take_place(&self.dir, image.image(), &bytes, sp, brk)?;
                exchange_regions(s, &new)?;
                s.entry = new.entry.unwrap_or(s.entry);
                Some(new)
            }
            None => None,
        };
        let prepared = plan::prepare(&self.dir, image.image(), bytes, exchange)?;
        let child = Child { slot, ..self.child };
        let confined = self
            .supervisor
            .as_ref()
            .map(Supervisor::admit)
            .transpose()?;
        let confined = confined.map(|(confinement, socket)| Confined {
            confinement,
            socket,
            keep: self
                .beginning
                .as_ref()
                .map_or(Vec::new(), Beginning::descriptors),
        });
        let pid = launch::start(&self.shared, &self.image, &prepared.plan, child, confined)?;
        self.made.insert(pid);
        let confined = self.supervisor.is_some();
        tracing::debug!(pid, slot, regions = len, confined, "process begins");
        Ok(pid)
    }

    /// Memory for the writable copy of a file, the same one for all who map it; the driver's descriptor.
    fn share(&mut self, number: u64, len: u64) -> Result<u64, ReplayError> {
        let s = self.shared.session();
        let Some(word) = s.shared_files.get(number as usize).filter(|_| number != 0) else {
            return Err(ReplayError::Unsupported(
                "the trace has an impossible number of a file".into(),
            ));
        };
        let copy = match self.copies.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(memory_file(len).map_err(|source| ReplayError::Io {
                    what: "make room for the copy of a mapped file".into(),
                    source,
                })?)
            }
        };
        let fd = copy.as_raw_fd();
        self.lend_copies()?;
        word.store(fd as u32 + 1, Release);
        s.copies_made.fetch_add(1, Release);
        Ok(fd as u64)
    }

    /// All processes may open the copies of shared files.
    fn lend_copies(&self) -> Result<(), ReplayError> {
        let Some(supervisor) = &self.supervisor else {
            return Ok(());
        };
        let lent = self.copies.values().try_for_each(|f| supervisor.lend(f));
        lent.map_err(|source| ReplayError::Io {
            what: "give away the copy of a mapped file".into(),
            source,
        })
    }

    /// Everybody has ended who was recorded: whoever is left was made behind the recording's back.
    fn end_strays(&self) {
        let s = self.shared.session();
        let threads_are_processes = s.engine().can(can::SEPARATE_MEMORY);
        let Some(supervisor) = self.supervisor.as_ref().filter(|_| !threads_are_processes) else {
            return;
        };
        if !self.is_over() || self.has_former() {
            return;
        }
        for pid in supervisor::strays().filter(|pid| self.pids().all(|known| known != *pid)) {
            supervisor.note("a process that is not in the recording".into());
            children::signal(pid, Signal::KILL);
        }
    }

    /// What replayed processes wanted to do that no replay does.
    pub fn take_refused(&self) -> Vec<String> {
        let supervisor = self.supervisor.as_ref();
        supervisor.map_or(Vec::new(), Supervisor::take_refused)
    }
}

/// The runtime's own signal to a slot's thread, if it is one of a replayed process.
fn tell_time(shared: &SharedSession, slot: &Slot) {
    let (id, tid) = (slot.kernel_pid.load(Relaxed), slot.kernel_tid.load(Relaxed));
    if let Some(pid) = children::replayed(shared, id) {
        // SAFETY: a signal to a child of ours, if it has such a thread.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, SIGCUT) };
    }
}

/// A file in memory, of `len` zeros.
pub(crate) fn memory_file(len: u64) -> std::io::Result<File> {
    let file = File::from(memfd_create(c"shared", MemfdFlags::CLOEXEC)?);
    file.set_len(len)?;
    Ok(file)
}

/// The program's regions are those of a rebuilt one.
fn exchange_regions(s: &mut Session, new: &Exchange) -> Result<(), ReplayError> {
    let old = &s.initial_regions[..s.initial_regions_len as usize];
    let left = old.iter().filter(|r| !new.was.contains(&r.start));
    let mut all: Vec<InitialRegion> = left.copied().collect();
    all.extend(new.regions.iter().map(|r| InitialRegion {
        start: r.0,
        end: r.1,
        prot: r.2,
        flags: r.3,
        ..InitialRegion::default()
    }));
    all.sort_unstable_by_key(|r| r.start);
    if all.len() > MAX_INITIAL_REGIONS {
        return Err(ReplayError::Unsupported(
            "the rebuilt program has too many segments".into(),
        ));
    }
    s.initial_regions[..all.len()].copy_from_slice(&all);
    s.initial_regions_len = all.len() as u32;
    Ok(())
}

/// Fills the session's head with the state in which a program starts.
pub(crate) fn set_start(s: &mut Session, start: &Start) {
    s.entry = start.entry;
    s.initial_sp = start.initial_sp;
    s.brk_start = start.brk_start;
    (s.brk_now, s.attached) = (start.brk_now, start.attached);
    s.stack_limit = start.stack_limit;
    s.initial_mask.store(start.initial_mask, Relaxed);
    s.initial_ignored.store(start.initial_ignored, Relaxed);
}

fn wake(word: &AtomicU32) {
    futex::wake(word, i32::MAX);
}

/// Pumps frames into the ring.
struct Feed {
    frame: Vec<u8>,
    at: usize,
    head: u64,
    done: bool,
    /// Events that are to be fed, ...
    limit: u64,
    /// ... those that have been; counted only where there is a limit.
    fed: u64,
    /// Position in the ring at which the next event begins.
    next_event: u64,
}

impl Default for Feed {
    fn default() -> Feed {
        Feed {
            frame: Vec::new(),
            at: 0,
            head: 0,
            done: false,
            limit: u64::MAX,
            fed: 0,
            next_event: 0,
        }
    }
}

impl Feed {
    /// How many bytes of the frame may go into the ring: whole events up to the limit.
    fn allowed(&mut self) -> usize {
        let end = self.head + (self.frame.len() - self.at) as u64;
        while self.next_event < end && self.fed < self.limit {
            let at = self.at + (self.next_event - self.head) as usize;
            let Ok(h) = EventHeader::parse(&self.frame[at..]) else {
                // The reader has checked the frame; the runtime will say what it thinks of it.
                return self.frame.len() - self.at;
            };
            self.next_event += h.len as u64;
            self.fed += 1;
        }
        (self.next_event.min(end) - self.head) as usize
    }

    /// Is there something to be moved, and room for it?
    fn can_move(&self, s: &Session) -> bool {
        !self.done && !self.frame.is_empty() && self.has_more() && self.room(s) > 0
    }

    /// Is there more that may be fed?
    fn has_more(&self) -> bool {
        self.next_event > self.head || self.fed < self.limit
    }

    fn room(&self, s: &Session) -> u64 {
        RING_SIZE.saturating_sub(self.head.saturating_sub(s.ring.tail.load(Acquire)))
    }

    /// Nothing more will come.
    fn close(&mut self, s: &Session) {
        self.done = true;
        s.ring.closed.store(1, SeqCst);
        s.ring.consumer_asleep.store(0, SeqCst);
        wake(&s.ring.consumer_asleep);
    }

    /// Moves what there is room for; false when nothing could be moved.
    fn pump(&mut self, shared: &SharedSession, reader: &mut Reader) -> Result<bool, ReplayError> {
        /// Bytes moved at a time.
        const CHUNK: usize = 1 << 20;
        let ring = &shared.session().ring;
        if self.done {
            return Ok(false);
        }
        let room = self.room(shared.session());
        if room == 0 {
            return Ok(false);
        }
        if self.fed == self.limit && self.next_event == self.head {
            return Ok(false);
        }
        if self.at == self.frame.len() {
            self.frame.clear();
            self.at = 0;
            if reader.read_raw(&mut self.frame)?.is_none() {
                self.close(shared.session());
                return Ok(true);
            }
        }
        let n = self.allowed().min(room as usize).min(CHUNK);
        let to = shared.ring_bytes(self.head, n);
        // SAFETY: `n` bytes of the double mapping that the consumer has given back.
        unsafe { std::ptr::copy_nonoverlapping(self.frame.as_ptr().add(self.at), to, n) };
        self.at += n;
        self.head += n as u64;
        tracing::trace!(bytes = n, head = self.head, "fed");
        ring.head.store(self.head, SeqCst);
        if ring.consumer_asleep.swap(0, SeqCst) != 0 {
            wake(&ring.consumer_asleep);
        }
        Ok(true)
    }
}
