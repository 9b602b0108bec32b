//! The agent: its own process beside the program, so that the program's death, of any kind, loses nothing that was in the ring.
//!
//! It drains the ring into the trace ([`drain`]), reads what is asked for ([`asked`]), keeps files that the program maps ([`requests`], [`kept`]) with the program's rights ([`rights`]), puts the runtime into what
//! processes become by exec ([`mod@exec`], [`image`]), knows who belongs to the session ([`members`]), notices their deaths ([`processes`]), words out of which nobody gets ([`damage`]) and threads that nobody wakes any more
//! ([`asleep`]), sees to it that no thread keeps
//! the baton too long ([`slices`]), and none that is stopped keeps what others need ([`stopped`]), takes care that no process goes unseen ([`strays`]) and that others who
//! write to its memory are known ([`outsiders`]), waits for a replay that follows the recording ([`mod@hold`]), ends it when the user wants that ([`stop`]), and closes the trace when the last process is gone ([`Agent::run`]).

pub mod asked;
pub mod asleep;
mod blocks;
pub mod counters;
pub mod damage;
pub mod drain;
pub mod exec;
pub mod hold;
pub mod image;
pub mod inputs;
pub mod kept;
mod known_ranges;
pub mod late;
pub mod members;
pub mod merge;
pub mod namespaces;
pub mod native;
pub mod outsiders;
pub mod place;
pub mod pressure;
pub mod processes;
pub mod requests;
pub mod rights;
pub mod slices;
pub mod spare;
pub mod stop;
pub mod stopped;
pub mod strays;
pub mod streams;
pub mod told;
pub mod writers;

use asked::Asked;
use asleep::Asleep;
use damage::Damage;
use drain::Drain;
use hold::Hold;
use inputs::Inputs;
use kept::Keeper;
use late::Late;
use members::Members;
use merge::{Merge, Sink};
use native::NativeCpuid;
pub use outsiders::Outsiders;
use place::Place;
use processes::Processes;
use reprise_abi::engine::can;
use reprise_abi::event::{EndReason, Event, EventHeader, Kind, ProcessEnd, HEADER_LEN, NO_SLOT};
use reprise_abi::layout::RING_SIZE;
use reprise_abi::session::{process_state, Process, Session};
use reprise_console::say;
use reprise_launch::record::Stopped;
use reprise_launch::{futex, RuntimeImage, SharedSession};
use reprise_trace::{Census, Images, Store, Summary, TraceError, Uncaptured, Writer};
use slices::Slices;
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use stopped::StoppedOwners;
use strays::Strays;
use told::Told;

/// A frame is closed when its first event is this old, so that a crash of everything costs no more.
const FRAME_AGE: Duration = Duration::from_millis(200);
/// After less than so many bytes the agent sleeps: to come for every few events takes a processor from a program that needs all of them. Who
/// fills a quarter of a ring meanwhile wakes it.
const WORTHWHILE: usize = 256 << 10;
/// Sleep while threads wait for the baton.
const SHORT_SLEEP: Duration = Duration::from_millis(2);
/// Sleep when nothing depends on the agent; the runtime wakes it when the ring fills.
const LONG_SLEEP: Duration = Duration::from_millis(20);

/// What to do when the disk or the trace's limit is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFull {
    /// End the program.
    Stop,
    /// Let it go on without a recording.
    Continue,
}

/// What an agent works with.
pub struct Agent {
    /// The session.
    pub shared: SharedSession,
    /// The trace's stream.
    pub writer: Writer,
    /// The content store.
    pub store: Store,
    /// The trace.
    pub dir: PathBuf,
    /// What to do when the trace is full.
    pub on_full: OnFull,
    /// Under `order`, nothing is taken before it has to be (Castor 3.6, crash recording).
    pub lazy: bool,
    /// Of the recording only the last stretch is kept.
    pub keeps_stretch: bool,
    /// What is put into programs.
    pub image: RuntimeImage,
    /// The launcher's process id.
    pub launcher: i32,
    /// Who is in the trace before its first event.
    pub census: Census,
    /// Who else writes to memory that the program has shared before the start.
    pub outsiders: Outsiders,
    /// Warnings known before the start.
    pub warnings: Vec<String>,
    /// Processes that are not in the trace to their end.
    pub uncaptured: Vec<Uncaptured>,
}

impl Agent {
    /// Works until the program is gone, then closes the trace. One that is [stopped](stop) before is closed at once; the program is attended to
    /// until it is gone.
    ///
    /// # Errors
    /// When the trace can't be written at all.
    pub fn run(mut self) -> Result<(), TraceError> {
        let begun = Instant::now();
        tracing::info!(launcher = self.launcher, dir = ?self.dir, lazy = self.lazy, "begins");
        let mut handed = Vec::new();
        let known = self.census.all_known();
        let inputs = Inputs::new(self.store.clone(), self.dir.clone(), !self.keeps_stretch);
        let mut drain = Drain::new(std::mem::take(&mut self.census), inputs);
        let mut merge = Merge::new();
        let mut outsiders = std::mem::take(&mut self.outsiders);
        let mut strays = Strays::new(known);
        let mut told = Told::default();
        let mut slices = Slices::new();
        let mut late = Late::default();
        let mut damage = Damage::default();
        let mut asleep = Asleep::new(&self.shared);
        processes::tell_of_life(&self.shared.session().agent_life);
        let mut processes = Processes::new(self.launcher);
        let members = Members::default();
        let mut owners = StoppedOwners::new();
        let mut keeper = Keeper::new(self.store.clone(), self.dir.clone());
        let mut images = Images::new(&self.dir);
        let mut native = NativeCpuid::default();
        let mut place = Place::of(&self.dir);
        let mut full: Option<String> = None;
        let mut frame_begun = Instant::now();
        let (status, reason) = loop {
            // Asked before draining: what was done before that is in the rings by then.
            let stops = (stop::is_wanted() || drain.census.stops()) && full.is_none();
            // Asked before draining: what the program wrote before its end is in the ring by then.
            owners.look(&self.shared, &members);
            let damaged = drain.is_lost() || merge.damage().is_some();
            if damaged {
                // The word that says so may have been written over since.
                self.leave();
            }
            let lost = full.is_some() || damaged;
            let mut buried = Ok(());
            let mut sink = Sink {
                writer: &mut self.writer,
                census: &mut drain.census,
                inputs: &mut drain.inputs,
                discard: lost,
            };
            processes.look_again(&self.shared, &members, &mut |shared, n, status| {
                let done = merge.reap(shared, &mut sink, n, status);
                buried = std::mem::replace(&mut buried, Ok(())).and(done);
            });
            let end = self.ended(&mut processes, &members, lost);
            // Without a replay that follows, the program's words about one count for nothing.
            let hold = match self.keeps_stretch {
                true => hold::look(self.shared.session(), self.writer.stats().bytes_compressed),
                false => Hold::No,
            };
            if hold == Hold::Failed && full.is_none() {
                full = Some("its last stretch can't be kept any more".into());
                self.give_up();
            }
            let waits = hold == Hold::Wait && end.is_none() && !stops;
            let drained = if self.shared.order().is_some() {
                let mut sink = Sink {
                    writer: &mut self.writer,
                    census: &mut drain.census,
                    inputs: &mut drain.inputs,
                    discard: lost,
                };
                let taken = match end {
                    _ if waits => Ok(0),
                    Some(_) => merge.all(&self.shared, &mut sink),
                    None if stops => merge.by_now(&self.shared, &mut sink),
                    None if self.lazy
                        && !sink.inputs.is_waited_for()
                        && !merge::presses(&self.shared) =>
                    {
                        Ok(0)
                    }
                    None => merge.some(&self.shared, &mut sink),
                };
                buried.and(taken)
            } else if let Some(Asked::ForgetEvent { next }) = Asked::open(&self.shared) {
                let r = drain.forget_event(&self.shared, &mut self.writer, lost, next);
                requests::done(&self.shared);
                r
            } else if waits {
                Ok(0)
            } else if end.is_some() {
                drain.all(&self.shared, &mut self.writer, lost)
            } else if stops {
                drain.by_now(&self.shared, &mut self.writer)
            } else {
                drain.some(&self.shared, &mut self.writer, lost)
            };
            let moved = match drained {
                Ok(n) => n,
                Err(e) if full.is_none() => {
                    full = Some(e.to_string());
                    self.give_up();
                    0
                }
                Err(_) => 0,
            };
            if moved > 0 {
                tracing::trace!(moved, gathered = self.writer.gathered(), stops, "drained");
            }
            drain.inputs.answer(&self.shared, &members);
            let mut unkept = requests::answer(
                &self.shared,
                &members,
                &mut keeper,
                &mut handed,
                &mut outsiders,
                &mut native,
                &mut self.warnings,
            );
            let (writer, census, inputs) = (&mut self.writer, &mut drain.census, &mut drain.inputs);
            let mut keep = |stopped: &Stopped, shared: &mut SharedSession, n: u64, slot: usize| {
                let mut sink = Sink {
                    writer: &mut *writer,
                    census: &mut *census,
                    inputs: &mut *inputs,
                    discard: lost,
                };
                merge
                    .others_gone(shared, &mut sink, slot)
                    .map_err(|e| e.to_string())?;
                let kept = image::append(stopped, shared, &mut keeper, &mut images, n);
                if let Err(why) = &kept {
                    unkept.get_or_insert_with(|| {
                        format!("the program that a process became could not be kept: {why}")
                    });
                }
                kept
            };
            let ended = exec::serve(
                &mut self.shared,
                &members,
                &self.image,
                &mut keep,
                &mut self.warnings,
            );
            self.uncaptured.extend(ended);
            if full.is_none() && place.is_lost() {
                unkept = Some(place.loss());
            }
            if let Some(why) = unkept.filter(|_| full.is_none()) {
                full = Some(why);
                self.give_up();
            }
            namespaces::answer(&self.shared);
            strays.look(&self.shared);
            told.look(self.shared.session());
            outsiders.look_again(&self.shared);
            drain.inputs.look(&self.shared, moved > 0);
            if self.keeps_stretch {
                drain.inputs.forget(&self.shared);
            }
            let idle = moved == 0 && !waits && !stops;
            let stuck = asleep.look(&self.shared, &members, idle);
            if let Some(why) = damage.look(&self.shared, &members).or(stuck) {
                // Also when it goes on unrecorded: it takes turns still.
                if full.is_none() {
                    full = Some(format!("the program damaged the session's memory ({why})"));
                    self.give_up();
                }
                processes.end_whoever_maps(&self.shared, &members);
            }
            if full.is_some() {
                match self.on_full {
                    OnFull::Stop => processes.end_all(&self.shared, &members),
                    OnFull::Continue => {
                        go_on_unseen(&self.shared, &mut processes, &mut drain.census)
                    }
                }
            }
            match self.shared.order() {
                None => slices.look(&self.shared, &members),
                Some(_) => late.look(&self.shared, &members),
            }
            if let Some((status, reason)) = end {
                break (Some(status), reason);
            }
            if stops && full.is_none() {
                self.leave();
                let first = self.shared.session().wait_status.load(Acquire);
                let first = (first != 0).then(|| (first - 1) as i32);
                break (first, EndReason::Stopped);
            }
            if self.writer.gathered() == 0 {
                frame_begun = Instant::now();
            } else if frame_begun.elapsed() > FRAME_AGE {
                tracing::trace!(gathered = self.writer.gathered(), "frame closed");
                if let Err(e) = self.writer.flush_frame() {
                    full.get_or_insert(e.to_string());
                    self.give_up();
                }
                frame_begun = Instant::now();
            }
            if moved < WORTHWHILE {
                self.sleep(late.waits() || drain.inputs.is_waited_for());
            }
        };
        if let Some(why) = &full {
            self.warnings
                .push(format!("the recording ends early: {why}"));
        }
        let damage = drain.damage().or(merge.damage());
        if let Some(why) = damage {
            self.warnings.push(format!(
                "the recording ends early: the program damaged the session's memory ({why})"
            ));
        }
        let stopped = reason == EndReason::Stopped;
        let reason = if full.is_some() {
            EndReason::Stopped
        } else {
            reason
        };
        if full.is_none() && damage.is_none() && !stopped {
            for (who, status) in processes::lost(&self.shared) {
                let bytes = found_dead(who, status);
                self.writer.push(&bytes)?;
                if let Ok(event) = Event::parse(&bytes) {
                    drain.census.follow(&event);
                }
            }
            if reason == EndReason::Ended {
                self.writer.push(&end(reason, status))?;
            }
        }
        let stats = self.writer.finish()?;
        tracing::info!(
            ?status,
            ?reason,
            ended_early = full.as_deref(),
            events = stats.events,
            bytes = stats.bytes_raw,
            written = stats.bytes_compressed,
            "ends"
        );
        let session = self.shared.session();
        let mut summary = Summary::of_stream(&stats);
        summary.duration_ns = begun.elapsed().as_nanos() as u64;
        summary.wait_status = status.filter(|_| reason != EndReason::Unknown);
        summary.stopped = stopped;
        summary.end_reason = match reason {
            EndReason::Ended => "the program ended".into(),
            EndReason::Stopped => full.unwrap_or_else(|| match status {
                None => "it was stopped before the program ended".into(),
                Some(_) => left_behind(session),
            }),
            EndReason::Unknown => "the launcher was gone before the program ended".into(),
        };
        summary.counters = counters::read(session);
        summary.counters.extend(counters::output_bytes(session));
        summary.void_stamps = merge.void_stamps(&self.shared);
        told.look(session);
        let notes = reprise_abi::notes::sentences(session.notes.load(Relaxed));
        self.warnings.extend(notes.map(String::from));
        outsiders.look(&self.shared);
        self.warnings.append(&mut outsiders.warnings);
        summary.inputs = drain.inputs.finish();
        self.warnings.append(&mut drain.inputs.warnings);
        summary.warnings = self.warnings;
        summary.native_cpuid = native.into_names();
        for pid in processes.orphaned {
            let why = "its parent was killed while it made it";
            drain.census.miss(pid, None, why);
        }
        summary.killed = drain.census.killed().to_vec();
        summary.uncaptured = match stopped {
            // Who was being made at that moment is in the trace only in part.
            true => self.uncaptured,
            false => missing(drain.census, strays, self.uncaptured),
        };
        // Without one the trace counts as cut off, with all its events.
        match summary.write(&self.dir) {
            Ok(()) => {}
            // The launcher says so.
            Err(_) if place.is_gone() => {}
            Err(e) => say!("the trace has no summary: {e}"),
        }
        if stopped {
            // What it has to say is of a program that nobody records, and nobody may wait for it.
            streams::leave(&[2]);
            attend(self.shared, &self.image, self.launcher);
        }
        Ok(())
    }

    /// The program's wait status, when it and all that came of it are gone. `lost`: nothing that stands in the session is believed.
    fn ended(
        &self,
        processes: &mut Processes,
        members: &Members,
        lost: bool,
    ) -> Option<(i32, EndReason)> {
        let s = self.shared.session();
        let may_be = lost || processes.any(&self.shared, members);
        let is_over = may_be && self.none_is_left(processes, members);
        if may_be && !is_over {
            return None;
        }
        match s.wait_status.load(Acquire) {
            0 => {}
            // One whom the table does not name any more, because the program has written there, would wait for a recorder that is gone.
            _ if !may_be && self.others_map() && !self.none_is_left(processes, members) => {
                return None;
            }
            n => return Some(((n - 1) as i32, EndReason::Ended)),
        }
        // SAFETY: plain calls.
        let orphan = unsafe { libc::getppid() } != self.launcher;
        if orphan && (is_over || !alive(s) || processes.none_for_long(&self.shared, members)) {
            return Some((0, EndReason::Unknown));
        }
        None
    }

    /// Has another process that began later than this one the session's memory mapped?
    fn others_map(&self) -> bool {
        !Members::who_map_above(&self.shared, std::process::id()).is_empty()
    }

    /// The first process has ended, and there is nobody else, whatever the session says. To be asked for as long as it names some.
    fn none_is_left(&self, processes: &mut Processes, members: &Members) -> bool {
        let s = self.shared.session();
        // SAFETY: plain call.
        let orphan = unsafe { libc::getppid() } != self.launcher;
        let first_ended = s.wait_status.load(Acquire) != 0 || orphan;
        first_ended && processes.none_for_long(&self.shared, members)
    }

    /// The trace is full: the program goes on unrecorded, or ends.
    fn give_up(&self) {
        tracing::warn!(on_full = ?self.on_full, "nothing more is recorded");
        if self.on_full == OnFull::Stop {
            self.shared.session().stop_program.store(1, SeqCst);
        }
        self.leave();
    }

    /// The program goes on unrecorded.
    fn leave(&self) {
        let s = self.shared.session();
        s.recording_lost.store(1, SeqCst);
        wake(&s.ring.producer_asleep);
    }

    fn sleep(&self, soon: bool) {
        let s = self.shared.session();
        let busy = s.live_threads.load(Relaxed) > 1 && !self.lazy;
        // The program has ended, and what came of it has not yet.
        let lingers = s.wait_status.load(SeqCst) != 0;
        let busy = busy || lingers || soon;
        let time = if busy { SHORT_SLEEP } else { LONG_SLEEP };
        doze(&self.shared, time);
    }
}

/// The event of a process of which nobody said that it ended: its id and its birth, and its status.
fn found_dead(who: [u32; 2], status: i64) -> Vec<u8> {
    let header = EventHeader {
        len: HEADER_LEN as u32 + 16,
        kind: Kind::ProcessEnd as u8,
        nargs: 2,
        slot: NO_SLOT,
        detail: ProcessEnd::Found as u32,
        value: status,
        ..Default::default()
    };
    let mut bytes = header.to_bytes().to_vec();
    for word in who {
        bytes.extend_from_slice(&u64::from(word).to_le_bytes());
    }
    bytes
}

/// The last event of a trace.
fn end(reason: EndReason, status: Option<i32>) -> [u8; HEADER_LEN] {
    let header = EventHeader {
        len: HEADER_LEN as u32,
        kind: Kind::End as u8,
        detail: reason as u32,
        value: status.unwrap_or(0).into(),
        ..Default::default()
    };
    header.to_bytes()
}

/// Processes that are named when a recording ends before them.
const MOST_NAMED: usize = 8;

/// Says which processes go on when the recording ends after the first one.
fn left_behind(s: &Session) -> String {
    let all = s.processes.iter();
    let live = all.filter(|p| p.state.load(Acquire) == process_state::LIVE);
    let named = |p: &Process| {
        let (pid, own) = (p.visible_pid.load(Relaxed), p.kernel_pid.load(Relaxed));
        match reprise_launch::proc_files::text(format!("/proc/{own}/comm")) {
            Ok(name) => format!("{pid} ({})", name.trim_end()),
            Err(_) => pid.to_string(),
        }
    };
    let mut names: Vec<String> = live.map(named).collect();
    let more = names.len().saturating_sub(MOST_NAMED);
    names.truncate(MOST_NAMED);
    let more = match more {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!(
        "the first process ended, and what it left goes on unrecorded: {}{more}",
        names.join(", ")
    )
}

/// Nothing is recorded any more: processes that begin now are not in the trace.
fn go_on_unseen(shared: &SharedSession, processes: &mut Processes, census: &mut Census) {
    let all = shared.session().processes.iter();
    let live = all.filter(|p| p.state.load(Acquire) == process_state::LIVE);
    let ended = processes.unrecorded.drain(..);
    for pid in ended.chain(live.map(|p| p.visible_pid.load(Relaxed).into())) {
        if pid != 0 && !census.knows(pid) {
            census.miss(pid, None, "it began after the end of the recording");
        }
    }
}

/// All who are missing from the trace: by its events, by what the agent saw, by what it could not keep up with.
fn missing(mut census: Census, strays: Strays, ended: Vec<Uncaptured>) -> Vec<Uncaptured> {
    for stray in strays.found.into_values() {
        if let Some(pid) = stray.numbers.first() {
            if !stray.numbers.iter().any(|n| census.knows(*n)) {
                census.miss(
                    *pid,
                    Some(stray.name),
                    "it was a child of a recorded process",
                );
            }
        }
    }
    let mut all = census.missing();
    all.extend(ended);
    all.sort_by_key(|u| u.pid);
    all
}

/// Serves a session of which nothing is recorded: because of `--engine none`, or because its agent died. Execs, deaths and slices need
/// somebody outside there, too. Returns when the last process has ended.
pub fn attend(mut shared: SharedSession, image: &RuntimeImage, launcher: i32) -> Vec<String> {
    let mut warnings = Vec::new();
    processes::tell_of_life(&shared.session().agent_life);
    let mut processes = Processes::new(launcher);
    let members = Members::default();
    let mut owners = StoppedOwners::new();
    let mut slices = Slices::new();
    let mut late = Late::default();
    let mut told = Told::default();
    loop {
        owners.look(&shared, &members);
        processes.look(&shared, &members, &mut |shared, n, _| {
            merge::open_shards_of(shared, n)
        });
        requests::refuse(&shared);
        exec::serve(
            &mut shared,
            &members,
            image,
            &mut |_, _, _, _| Ok(()),
            &mut warnings,
        );
        match shared.order() {
            Some(_) => late.look(&shared, &members),
            None if shared.session().engine().can(can::RUN_ONE_AT_A_TIME) => {
                slices.look(&shared, &members)
            }
            None => {}
        }
        namespaces::answer(&shared);
        let s = shared.session();
        // Nobody reads what is logged.
        s.ring.tail.store(s.ring.head.load(Acquire), Release);
        wake(&s.ring.producer_asleep);
        // SAFETY: plain call.
        let orphan = unsafe { libc::getppid() } != launcher;
        let over = s.wait_status.load(Acquire) != 0 || orphan && !alive(s);
        told.look(s);
        let none_named = over && !processes.any(&shared, &members);
        if none_named || (over || orphan) && processes.none_for_long(&shared, &members) {
            return warnings;
        }
        doze(&shared, SHORT_SLEEP);
    }
}

/// Sleeps until somebody wakes the agent, or for this long.
fn doze(shared: &SharedSession, time: Duration) {
    let s = shared.session();
    s.agent_asleep.store(1, SeqCst);
    // Whoever had more than that before the agent was asleep could not wake it.
    let there = s
        .ring
        .head
        .load(SeqCst)
        .wrapping_sub(s.ring.tail.load(Relaxed));
    // (More than fits is what the program wrote there, and nothing to come for.)
    let is_due = (RING_SIZE / 4 + 1..=RING_SIZE).contains(&there);
    if !is_due && s.request.kind.load(SeqCst) == 0 {
        futex::wait(&s.agent_asleep, 1, time);
    }
    s.agent_asleep.store(0, SeqCst);
}

/// Is the program still there (zombies don't count)? One that the launcher had not begun when it was killed is not.
fn alive(s: &Session) -> bool {
    let pid = s.program_pid.load(Relaxed);
    pid != 0 && !processes::is_gone(pid)
}

/// Wakes whoever sleeps on a word that is 1 while somebody does.
pub(crate) fn wake(word: &std::sync::atomic::AtomicU32) {
    if word.swap(0, SeqCst) != 0 {
        futex::wake(word, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The launcher may be killed before it has begun the program: nobody says anything of that one any more.
    #[test]
    fn a_program_that_was_not_begun_is_not_alive() {
        let shared = SharedSession::create().unwrap();
        let s = shared.session();
        assert!(!alive(s));
        s.program_pid.store(std::process::id(), Relaxed);
        assert!(alive(s));
    }

    #[test]
    fn events_of_the_agents_own_are_whole() {
        let bytes = found_dead([3, 4711], -9);
        let event = Event::parse(&bytes).expect("an event");
        assert_eq!(event.bytes(), bytes);
        assert_eq!(event.header.kind, Kind::ProcessEnd as u8);
        assert_eq!(event.header.slot, NO_SLOT);
        assert_eq!(event.header.detail, ProcessEnd::Found as u32);
        assert_eq!(event.header.value, -9);
        assert_eq!([event.arg(0), event.arg(1)], [3, 4711]);

        for (status, value) in [(Some(0x300), 0x300), (None, 0)] {
            let bytes = end(EndReason::Ended, status);
            let event = Event::parse(&bytes).expect("an event");
            assert_eq!(event.bytes(), bytes);
            assert_eq!(event.header.kind, Kind::End as u8);
            assert_eq!(event.header.detail, EndReason::Ended as u32);
            assert_eq!(event.header.value, value);
        }
    }
}
