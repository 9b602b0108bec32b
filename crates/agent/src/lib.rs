//! The agent: its own process beside the program, so that the program's death, of any kind, loses nothing that was in the ring.
//!
//! It drains the ring into the trace ([`drain`]), reads what is asked for ([`asked`]), keeps files that the program maps ([`requests`], [`kept`]) with the program's rights ([`rights`]), puts the runtime into what
//! processes become by exec ([`mod@exec`], [`image`]), knows who belongs to the session ([`members`]), notices their deaths ([`processes`]), words out of which nobody gets ([`damage`]) and threads that nobody wakes any more
//! ([`asleep`]), sees to it that no thread keeps
//! the baton too long ([`slices`]) and no epoch goes on too long ([`epochs`]), and none that is stopped keeps what others need ([`stopped`]), takes care that no process goes unseen ([`strays`]) and that others who
//! write to its memory are known ([`outsiders`]), waits for a replay that follows the recording ([`mod@hold`]), ends it when the user wants that ([`stop`]), and closes the trace when the last process is gone ([`Agent::run`], [`work`]).

pub mod asked;
pub mod asleep;
mod blocks;
pub mod counters;
pub mod damage;
pub mod drain;
mod epochs;
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
mod work;
pub mod writers;

use late::Late;
use members::Members;
pub use outsiders::Outsiders;
use processes::Processes;
use reprise_abi::engine::can;
use reprise_abi::event::{EndReason, EventHeader, Kind, ProcessEnd, HEADER_LEN, NO_SLOT};
use reprise_abi::layout::RING_SIZE;
use reprise_abi::session::{process_state, Process, Session};
use reprise_launch::{futex, proc_files, RuntimeImage, SharedSession};
use reprise_trace::{Census, Store, TraceError, Uncaptured, Writer};
use slices::Slices;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use stopped::StoppedOwners;
use strays::Strays;
use told::Told;
use work::Work;

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
    pub fn run(self) -> Result<(), TraceError> {
        Work::new(self).run()
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
        let orphan = parent_id() as i32 != self.launcher;
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
        let orphan = parent_id() as i32 != self.launcher;
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

/// The event of a process of which nobody said that it ended: [who](reprise_abi::session::Session::found_dead), and its status.
fn found_dead(who: [u32; 3], status: i64) -> Vec<u8> {
    let header = EventHeader {
        len: (HEADER_LEN + 8 * who.len()) as u32,
        kind: Kind::ProcessEnd as u8,
        nargs: who.len() as u8,
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
        match proc_files::name_of(own) {
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
    let members = Members::of_recorder(launcher);
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
        let orphan = parent_id() as i32 != launcher;
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
    use reprise_abi::event::Event;

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
        let bytes = found_dead([3, 4711, 0], -9);
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
