//! Going back to an earlier moment of a replay that a debugger drives: its processes are ended, and a copy of the one that there was goes on.

use super::Tree;
use crate::feed::Distribution;
use crate::live::Whose;
use crate::rings::Rings;
use crate::{children, ReplayError};
use libc::pid_t;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::{
    process_state, request, slot_state, Process, FLAG_TOTAL, MAX_PROCESSES,
};
use reprise_launch::inject::Gate;
use reprise_launch::proc_files;
use reprise_launch::ptrace;
use reprise_trace::{Moment, Reader};
use rustix::process::Signal;
use std::collections::HashSet;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

/// Between two looks at processes that are being ended.
const SHORT: Duration = Duration::from_micros(100);

impl Tree {
    /// Is there only this process, with no request open and no answer on its way, and is it debugged?
    pub fn is_one_at_rest(&self, process: usize) -> bool {
        self.is_alone(process)
            && self.shared.session().processes[process]
                .debugged
                .load(SeqCst)
                != 0
    }

    /// Is there only the first process, as the program that it was from the beginning, with no request open?
    pub fn is_one(&self) -> bool {
        self.is_alone(0) && self.roots.len() == 1
    }

    /// The kernel's id of that process, as this driver made it, whatever the session says.
    ///
    /// # Errors
    /// When there were others.
    pub fn only_root(&self) -> Result<pid_t, ReplayError> {
        let mut roots = self.roots.iter();
        match (roots.next(), roots.next()) {
            (Some(pid), None) => Ok(*pid),
            _ => Err(ReplayError::Unsupported(
                "the replay's first process has become another".into(),
            )),
        }
    }

    fn is_alone(&self, process: usize) -> bool {
        let s = self.shared.session();
        let is_free = |n: usize| s.processes[n].state.load(SeqCst) == process_state::FREE;
        !self.failed
            && !self.has_former()
            && (0..MAX_PROCESSES).all(|n| n == process || is_free(n))
            && self.made.len() <= 1
            && s.processes[process].state.load(SeqCst) == process_state::LIVE
            && s.request.kind.load(SeqCst) == request::NONE
            // An answer is in this driver's words: its descriptors mean nothing to another one.
            && s.request.taken.load(SeqCst) == 0
    }

    /// Has the kernel not ended yet what some process was before its exec?
    pub fn has_former(&self) -> bool {
        self.lives.any_former()
    }

    /// Goes to where this process begins; its number.
    ///
    /// # Errors
    /// When the replay does not come there.
    pub fn go_to_birth(
        &mut self,
        reader: &mut Reader,
        mut distribution: Option<&mut Distribution>,
        whose: Whose,
    ) -> Result<usize, ReplayError> {
        let lost = |why: &str| {
            let begins = whose.begins;
            let text = format!(
                "the replay did not come to where this process begins, event {begins}: {why}"
            );
            ReplayError::Unsupported(text)
        };
        self.feed_up_to(whose.begins);
        loop {
            let ring = &self.shared.session().ring;
            let there = ring.events.load(SeqCst) >= whose.begins;
            if there && ring.consumer_asleep.load(SeqCst) != 0 {
                break;
            }
            if !self.turn(reader, distribution.as_deref_mut())? {
                return Err(lost(&self.how_it_ended()));
            }
        }
        let is_it = |p: &Process| {
            p.state.load(SeqCst) == process_state::LIVE && p.birth.load(SeqCst) == whose.birth
        };
        let processes = &self.shared.session().processes;
        let found = processes.iter().position(is_it);
        let found = found.ok_or_else(|| lost("there is no such process"))?;
        processes[found].debugged.store(1, SeqCst);
        Ok(found)
    }

    /// Of a replay of which no process is left: how its first one ended.
    fn how_it_ended(&self) -> String {
        let events = self.shared.session().ring.events.load(SeqCst);
        let how = match self.status {
            Some(status) if libc::WIFSIGNALED(status) => {
                format!("it was killed by signal {}", libc::WTERMSIG(status))
            }
            Some(status) => format!("it ended with status {}", libc::WEXITSTATUS(status)),
            None => "it is gone".into(),
        };
        format!("{how}, at event {events}")
    }

    /// Goes to where the trace begins, when only its last stretch was kept: then all events are fed from there on. A place for calls in the
    /// process's name, if it was made so. `distribution`: where it is a trace of `order`. `paced`: a debugger gives leave to go on
    /// there, of which this is the first number.
    ///
    /// # Errors
    /// When the trace is damaged, or the process can't be made.
    pub fn go_to_beginning(
        &mut self,
        reader: &mut Reader,
        mut distribution: Option<&mut Distribution>,
        paced: Option<u64>,
    ) -> Result<Option<Gate>, ReplayError> {
        let mut known = None;
        while let Some(mut beginning) = self.beginning.take() {
            if !self.turn(reader, None)? {
                return Err(ReplayError::Unsupported(
                    "the replay ended before its first instruction".into(),
                ));
            }
            let s = self.shared.session();
            let ring = match self.shared.order() {
                Some(head) => &head.rings[0],
                None => &s.ring,
            };
            let stopped = if ring.consumer_asleep.load(SeqCst) == 0 {
                None
            } else {
                // It is there only since the process is.
                let pid = self.only_root()?;
                beginning.thaw(pid, &mut self.shared, &self.dir)?
            };
            let Some(stopped) = stopped else {
                self.beginning = Some(beginning);
                continue;
            };
            known = Some(stopped.gate);
            self.copies = beginning.copies;
            self.lend_copies()?;
            if let (Some(_), Some(distribution)) = (self.shared.order(), distribution.as_mut()) {
                let first = self.goes_on_first(&beginning.moment, reader)?;
                self.take_turns(first, paced);
                distribution.begin(&beginning.moment, &self.shared, reader)?;
                continue;
            }
            let ring = &self.shared.session().ring;
            let (events, position) = (ring.events.load(SeqCst), ring.position.load(SeqCst));
            if events != beginning.moment.event {
                return Err(ReplayError::Unsupported(
                    "the trace begins at another event than its first one".into(),
                ));
            }
            reader.seek(events)?;
            self.feed_from(events, position);
            self.feed_up_to(u64::MAX);
        }
        Ok(known)
    }

    /// Under `order`, at the beginning of a trace of which only the last stretch was kept: the slot of whose thread the trace has the next event.
    fn goes_on_first(
        &self,
        moment: &Moment,
        reader: &mut Reader,
    ) -> Result<Option<usize>, ReplayError> {
        let mut rings = Rings::beginning(moment);
        let used_up = |slot: usize| {
            let rings = self.shared.order().map(|h| &h.rings);
            rings.map_or(0, |all| all[slot].events.load(SeqCst))
        };
        reader.seek(moment.event)?;
        while let Some(e) = reader.next()? {
            let (number, e) = (e.number, e.parse()?);
            rings.note(number, &e);
            let slot = e.header.slot as usize;
            if slot < MAX_SLOTS && rings.event_after(slot, used_up(slot)).is_some() {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// There, in total order, all threads that there are take part, and this slot's begins.
    fn take_turns(&self, first: Option<usize>, paced: Option<u64>) {
        let (Some(head), s) = (self.shared.order(), self.shared.session()) else {
            return;
        };
        let used = s.slots_used.load(SeqCst) as usize;
        let gone = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
        let is_there = |i: &usize| !gone.contains(&self.shared.slot(*i).state.load(SeqCst));
        if s.flags & FLAG_TOTAL != 0 {
            let there = || (0..used.min(MAX_SLOTS)).filter(is_there);
            there().for_each(|slot| head.total.join(slot));
            if let Some(first) = first.filter(is_there).or_else(|| there().next()) {
                head.total.begin(first);
            }
        }
        if let Some(number) = paced {
            let pace = s.pace();
            pace.done.store(number, SeqCst);
            pace.limit.store(number, SeqCst);
            s.processes[0].debugged.store(1, SeqCst);
        }
    }

    /// From now on the calling thread traces this process and all its threads, with these options of ptrace(2); the kernel's id of it.
    ///
    /// # Errors
    /// When the kernel refuses that, or the process is none of this replay's.
    pub fn trace(&mut self, process: usize, options: i32) -> Result<pid_t, ReplayError> {
        let io = |source| ReplayError::Io {
            what: "trace a replay".into(),
            source,
        };
        let entry = &self.shared.session().processes[process];
        let pid = children::replayed(&self.shared, entry.kernel_pid.load(SeqCst));
        let pid = pid.ok_or_else(|| io(std::io::Error::other("it names a foreign process")))?;
        let mut tids = HashSet::from([pid]);
        tids.extend(proc_files::threads_of::<pid_t>(pid).map_err(io)?);
        for tid in &tids {
            ptrace::seize(*tid, options).map_err(io)?;
        }
        self.threads = tids.into_iter().filter(|tid| *tid != pid).collect();
        self.traces = true;
        Ok(pid)
    }

    /// Numbers of the files that are mapped shared, of which there are copies.
    pub fn shared_files(&self) -> Vec<u64> {
        self.copies.keys().copied().collect()
    }

    /// Ends all children of this process but these.
    pub fn clear_away(&mut self, but: &[pid_t]) {
        self.failed = true;
        loop {
            let left: Vec<pid_t> = children::all()
                .into_iter()
                .filter(|pid| !but.contains(pid))
                .collect();
            if left.is_empty() {
                break;
            }
            for pid in left {
                children::signal(pid, Signal::KILL);
            }
            // Those that only wait have nothing to tell.
            while matches!(children::next_change(), Ok(Some(_))) {}
            std::thread::sleep(SHORT);
        }
        self.made.clear();
        self.threads.clear();
        self.stops.clear();
    }

    /// All are cleared away, and the session is what it was: from now on there is this process, with these other threads. `files`: the
    /// shared files that it has.
    pub fn goes_on_as(
        &mut self,
        process: usize,
        pid: pid_t,
        threads: HashSet<pid_t>,
        files: &[u64],
    ) {
        self.copies.retain(|number, _| files.contains(number));
        self.made = HashSet::from([pid]);
        if process == 0 {
            self.roots = HashSet::from([pid]);
            self.status = None;
        }
        self.threads = threads;
        self.lives = Default::default();
        self.ended = None;
        self.became = None;
        self.failed = false;
    }

    /// `events` events have been used up, the next one is to be at `position` of the ring; it will be the reader's next.
    pub fn feed_from(&mut self, events: u64, position: u64) {
        self.feed = super::Feed {
            head: position,
            limit: events,
            fed: events,
            next_event: position,
            ..super::Feed::default()
        };
        let ring = &self.shared.session().ring;
        ring.closed.store(0, SeqCst);
        ring.head.store(position, SeqCst);
        ring.tail.store(position, SeqCst);
    }
}
