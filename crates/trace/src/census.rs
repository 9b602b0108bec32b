//! Who is missing from a trace: pids that the kernel told the recorded processes of, and that are not in it.
//!
//! The kernel tells a process of its children when it makes them (clone(2) and its kin), when it waits for them (wait4(2),
//! waitid(2)) and when they change (SIGCHLD). Whoever is told of must have come to life in the trace, or must have been found
//! dead there. All that is judged by the events alone, so that every trace can be asked, also one that was cut off. Others may
//! add what they know from elsewhere: [`Census::miss`].
//!
//! Two numbers can name one process: inside a new pid namespace it is another one than that which its parent was told. Both
//! count as known.

use reprise_abi::effect::Effect;
use reprise_abi::event::{Event, Kind, ProcessEnd, Section, Tag, SLOT_SHIFT};
use reprise_abi::prctl;
use reprise_abi::syscalls::{self, nr};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Most missing processes that are kept by name.
pub const MAX_UNCAPTURED: usize = 1000;

const CLONE_THREAD: u64 = 0x1_0000;
const WNOHANG_ONLY: u64 = !(1 | 0xe000_0000);
const WNOWAIT: u64 = 0x0100_0000;
const SIGCHLD: u32 = 17;

/// A process that the trace does not have, or not to its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Uncaptured {
    /// Its id, as the recorded processes were told it.
    pub pid: i64,
    /// What it was called, where that is known.
    pub name: Option<String>,
    /// How it is known of.
    pub why: String,
}

/// Reads events, and knows who is missing.
#[derive(Debug, Default)]
pub struct Census {
    /// Ids that came to life in the trace, and how many such processes have not been waited for.
    known: HashMap<i64, i64>,
    /// Children that were made and have not come to life, by the slot of their first thread: their id, 0 before it is told.
    due: HashMap<u16, i64>,
    /// Calls that threads are in and that tell of children, by slot.
    inside: HashMap<u16, Inside>,
    /// Ids of threads that processes have made.
    threads: HashSet<i64>,
    /// The program has asked for the end of its recording.
    stops: bool,
    /// Processes that a signal has ended: id and wait status.
    killed: Vec<(i64, i32)>,
    missing: BTreeMap<i64, Uncaptured>,
}

/// A call that tells of a child.
#[derive(Clone, Copy, Debug)]
struct Inside {
    args: [u64; 4],
    /// Slot of the new process, when the call makes one.
    child: Option<u16>,
    /// Its own number, when it began before its parent was told; 0 if it died before it could.
    began: Option<i64>,
}

impl Census {
    /// Before the first event of a trace whose first process has this id.
    pub fn new(pid: i32) -> Census {
        Census {
            known: HashMap::from([(pid.into(), 1)]),
            ..Census::default()
        }
    }

    /// As [`Census::new`], of a process that was running before and had these children.
    pub fn with_children(pid: i32, children: &[i64]) -> Census {
        let mut census = Census::new(pid);
        // They are nobody's business: it may wait for each of them once.
        census.known.extend(children.iter().map(|c| (*c, 1)));
        census
    }

    /// All who have come to life in the trace, or were there before.
    pub fn all_known(&self) -> HashSet<i64> {
        self.known.keys().copied().collect()
    }

    /// Has the program asked for the end of its recording (`reprise_stop` of include/reprise.h)?
    pub fn stops(&self) -> bool {
        self.stops
    }

    /// The first processes that a signal has ended, by their ids, with their wait statuses: [`MAX_UNCAPTURED`] at most.
    pub fn killed(&self) -> &[(i64, i32)] {
        &self.killed
    }

    /// Learns from the next event.
    pub fn follow(&mut self, event: &Event) {
        let h = &event.header;
        let status = h.value as i32;
        if event.kind == Kind::ProcessEnd
            && libc::WIFSIGNALED(status)
            && self.killed.len() < MAX_UNCAPTURED
        {
            self.killed.push((event.arg(0) as i64, status));
        }
        match event.kind {
            Kind::Syscall | Kind::Enter | Kind::Exit => match syscalls::effect(h.detail.into()) {
                effect if effect.makes_thread() => self.call(event),
                Effect::AwaitsChild => self.call(event),
                Effect::Options => self.stops |= event.arg(0) as u32 as u64 == prctl::REPRISE_STOPS,
                _ => {}
            },
            Kind::ProcessStart => {
                self.begins(h.value);
                match self.due.remove(&h.slot) {
                    Some(0) => self.began(h.slot, h.value),
                    Some(told) if told != h.value => self.begins(told),
                    _ => {}
                }
            }
            // It may have died before its first step: then the slot that it was to have is named.
            Kind::ProcessEnd if h.detail == ProcessEnd::Found as u32 => {
                let slot = event.arg(2).checked_sub(1).map(|slot| slot as u16);
                if let Some((slot, told)) = slot.and_then(|s| self.due.remove_entry(&s)) {
                    self.never_begins(slot, told);
                }
            }
            Kind::Signal if h.detail == SIGCHLD => {
                let info = event.sections().find(|s| s.tag == Tag::Siginfo);
                if let Some(pid) = info.and_then(|s| child_of(s.bytes)) {
                    if !self.known.contains_key(&pid) {
                        self.miss(pid, None, "a SIGCHLD told of it");
                    }
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, event: &Event) {
        let h = &event.header;
        let effect = syscalls::effect(h.detail.into());
        let thread = effect == Effect::Clones && event.arg(0) & CLONE_THREAD != 0;
        let makes = effect != Effect::AwaitsChild && !thread;
        let now = Inside {
            args: [0, 1, 2, 3].map(|i| event.arg(i)),
            child: makes.then_some((h.flags >> SLOT_SHIFT) as u16),
            began: None,
        };
        if thread && event.kind == Kind::Syscall {
            self.threads.insert(h.value);
            return;
        }
        let of = match event.kind {
            Kind::Enter => {
                self.inside.insert(h.slot, now);
                if let Some(child) = now.child {
                    self.is_due(child, 0);
                }
                return;
            }
            Kind::Exit => match self.inside.remove(&h.slot) {
                Some(entered) => entered,
                None => return,
            },
            _ => now,
        };
        match of.child {
            Some(child) => self.made(child, h.value, &of),
            None if effect == Effect::AwaitsChild => self.waited(event, &of),
            None => {}
        }
    }

    /// A parent was told of its child in slot `child`, or that it has none.
    fn made(&mut self, child: u16, result: i64, of: &Inside) {
        match of.began {
            _ if result <= 0 => {
                if self.due.get(&child) == Some(&0) {
                    self.due.remove(&child);
                }
            }
            Some(own) if own != result => self.begins(result),
            Some(_) => {}
            None => self.is_due(child, result),
        }
    }

    /// A child is to begin in this slot, of which its parent was told by this number (0: not yet).
    fn is_due(&mut self, slot: u16, told: i64) {
        // Whoever was to have it before, and has not begun, is dead, and the trace says so later.
        match self.due.insert(slot, told) {
            Some(before) if before != 0 => self.begins(before),
            _ => {}
        }
    }

    /// Whose parent is inside of the call that makes it has begun, as `own`; or never will, 0.
    fn began(&mut self, slot: u16, own: i64) {
        let of = |i: &&mut Inside| i.child == Some(slot) && i.began.is_none();
        if let Some(parent) = self.inside.values_mut().find(of) {
            parent.began = Some(own);
        }
    }

    /// Who was to have this slot is dead. It counts as one that was there: its parent, who was told of it by the number `told` (0: not yet), may wait for it.
    fn never_begins(&mut self, slot: u16, told: i64) {
        match told {
            0 => self.began(slot, 0),
            told => self.begins(told),
        }
    }

    fn begins(&mut self, pid: i64) {
        *self.known.entry(pid).or_insert(0) += 1;
        self.missing.remove(&pid);
    }

    /// A wait came back.
    fn waited(&mut self, event: &Event, of: &Inside) {
        let at = |address: u64| {
            let outputs = event.sections().filter(|s| s.tag == Tag::Output);
            outputs.filter(move |s| address != 0 && s.address == address)
        };
        let (pid, over) = match u64::from(event.header.detail) {
            nr::WAIT4 => {
                let status = at(of.args[1]).find_map(|s| word(&s, 0));
                let over = match status {
                    Some(status) => libc::WIFEXITED(status) || libc::WIFSIGNALED(status),
                    None => of.args[2] & WNOHANG_ONLY == 0,
                };
                (Some(event.header.value).filter(|pid| *pid > 0), over)
            }
            _ if event.header.value < 0 => (None, false),
            _ => match at(of.args[2]).next() {
                Some(info) => {
                    let code = word(&info, 8).unwrap_or(0);
                    let over = (1..=3).contains(&code) && of.args[3] & WNOWAIT == 0;
                    (child_of(info.bytes), over)
                }
                None => (None, false),
            },
        };
        // A process that traces others waits for their threads, too.
        let Some(pid) = pid.filter(|p| self.known.contains_key(p) || !self.threads.contains(p))
        else {
            return;
        };
        match self.known.get_mut(&pid) {
            Some(left) if *left > 0 || !over => *left -= i64::from(over),
            _ => self.miss(pid, None, "a wait told of it"),
        }
    }

    /// Has a process with this id come to life?
    pub fn knows(&self, pid: i64) -> bool {
        self.known.contains_key(&pid)
    }

    /// Somebody is missing, by another source than the events.
    pub fn miss(&mut self, pid: i64, name: Option<String>, why: &str) {
        if self.missing.len() >= MAX_UNCAPTURED && !self.missing.contains_key(&pid) {
            return;
        }
        let new = Uncaptured {
            pid,
            name,
            why: why.into(),
        };
        let entry = self.missing.entry(pid).or_insert_with(|| new.clone());
        entry.name = entry.name.take().or(new.name);
    }

    /// All who are missing after the last event.
    pub fn missing(mut self) -> Vec<Uncaptured> {
        let unborn: Vec<i64> = self.due.values().copied().filter(|pid| *pid > 0).collect();
        for pid in unborn {
            self.miss(
                pid,
                None,
                "it was made, and its first step is not in the trace",
            );
        }
        self.missing.into_values().collect()
    }
}

/// The ids and names in one line, for a warning.
pub fn names(missing: &[Uncaptured]) -> String {
    let one = |u: &Uncaptured| match &u.name {
        Some(name) => format!("{} ({name})", u.pid),
        None => u.pid.to_string(),
    };
    missing.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn word(section: &Section, at: usize) -> Option<i32> {
    let bytes = section.bytes.get(at..at + 4)?;
    Some(i32::from_le_bytes(bytes.try_into().ok()?))
}

/// The child of which the kernel tells in a `siginfo_t`; none in one that a process sent.
fn child_of(info: &[u8]) -> Option<i64> {
    let word = |at: usize| {
        let bytes = info.get(at..at + 4)?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    };
    // si_signo, si_errno, si_code; si_pid behind the padding. The codes of children are 1 to 6.
    let child = word(0)? == SIGCHLD as i32 && (1..=6).contains(&word(8)?);
    word(16).filter(|pid| child && *pid > 0).map(i64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_abi::event::{section_len, EventHeader, SectionHeader, HEADER_LEN, NO_SLOT};

    struct Made {
        h: EventHeader,
        args: Vec<u64>,
        sections: Vec<(Tag, u64, Vec<u8>)>,
    }

    fn event(kind: Kind, slot: u16, detail: u64, value: i64) -> Made {
        Made {
            h: EventHeader {
                kind: kind as u8,
                slot,
                detail: detail as u32,
                value,
                ..Default::default()
            },
            args: Vec::new(),
            sections: Vec::new(),
        }
    }

    impl Made {
        fn args(mut self, args: &[u64]) -> Made {
            self.args = args.to_vec();
            self
        }
        fn child(mut self, slot: u32) -> Made {
            self.h.flags = slot << SLOT_SHIFT;
            self
        }
        fn section(mut self, tag: Tag, address: u64, words: &[i32]) -> Made {
            let bytes = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.sections.push((tag, address, bytes));
            self
        }
        fn tell(mut self, census: &mut Census) {
            let sections: usize = self.sections.iter().map(|s| section_len(s.2.len())).sum();
            self.h.nargs = self.args.len() as u8;
            self.h.len = (HEADER_LEN + 8 * self.args.len() + sections) as u32;
            let mut bytes = self.h.to_bytes().to_vec();
            self.args
                .iter()
                .for_each(|a| bytes.extend_from_slice(&a.to_le_bytes()));
            for (tag, address, content) in &self.sections {
                let h = SectionHeader {
                    address: *address,
                    len: content.len() as u32,
                    tag: *tag as u32,
                };
                bytes.extend_from_slice(&h.address.to_le_bytes());
                bytes.extend_from_slice(&h.len.to_le_bytes());
                bytes.extend_from_slice(&h.tag.to_le_bytes());
                bytes.extend_from_slice(content);
                bytes.resize(bytes.len().next_multiple_of(8), 0);
            }
            census.follow(&Event::parse(&bytes).expect("an event"));
        }
    }

    fn missing(census: Census) -> Vec<i64> {
        census.missing().iter().map(|u| u.pid).collect()
    }

    fn fork(census: &mut Census, slot: u16, pid: i64) {
        let e = event(Kind::Syscall, 0, nr::FORK, pid);
        e.child(slot.into()).tell(census);
    }

    fn start(census: &mut Census, slot: u16, pid: i64) {
        event(Kind::ProcessStart, slot, 0, pid)
            .args(&[100])
            .tell(census);
    }

    fn wait(census: &mut Census, pid: i64, status: i32) {
        let e = event(Kind::Syscall, 0, nr::WAIT4, pid).args(&[u64::MAX, 0x5000, 0, 0]);
        e.section(Tag::Output, 0x5000, &[status]).tell(census);
    }

    #[test]
    fn a_thread_that_is_traced_and_waited_for_is_not_missing() {
        let mut c = Census::new(100);
        let clone = event(Kind::Syscall, 0, nr::CLONE, 101);
        clone.args(&[CLONE_THREAD, 0, 0, 0]).tell(&mut c);
        let stopped = event(Kind::Syscall, 0, nr::WAIT4, 101);
        stopped.args(&[101, 0x5000, 0, 0]).tell(&mut c);
        assert_eq!(missing(c), Vec::<i64>::new());
    }

    #[test]
    fn whoever_was_made_began_and_was_waited_for_is_not_missing() {
        let mut c = Census::new(100);
        fork(&mut c, 1, 101);
        start(&mut c, 1, 101);
        wait(&mut c, 101, 0x137f); // stopped
        wait(&mut c, 101, 0);
        // The number comes back, in another slot.
        fork(&mut c, 2, 101);
        start(&mut c, 2, 101);
        wait(&mut c, 101, 9);
        assert_eq!(missing(c), Vec::<i64>::new());
    }

    #[test]
    fn a_vfork_child_begins_before_its_parent_is_told() {
        let mut c = Census::new(100);
        let enter = event(Kind::Enter, 0, nr::VFORK, 0);
        enter.child(1).tell(&mut c);
        start(&mut c, 1, 101);
        event(Kind::Exit, 0, nr::VFORK, 101).tell(&mut c);
        wait(&mut c, 101, 0);
        // One that dies before its first step is found dead.
        event(Kind::Enter, 0, nr::VFORK, 0).child(1).tell(&mut c);
        event(Kind::Exit, 0, nr::VFORK, 102).tell(&mut c);
        let found = event(Kind::ProcessEnd, NO_SLOT, ProcessEnd::Found as u64, 9);
        found.args(&[102, 0, 2]).tell(&mut c);
        wait(&mut c, 102, 9);
        event(Kind::Enter, 0, nr::VFORK, 0).child(1).tell(&mut c);
        let found = event(Kind::ProcessEnd, NO_SLOT, ProcessEnd::Found as u64, 9);
        found.args(&[103, 0, 2]).tell(&mut c);
        event(Kind::Exit, 0, nr::VFORK, 103).tell(&mut c);
        wait(&mut c, 103, 9);
        // One that could not be made.
        event(Kind::Enter, 0, nr::VFORK, 0).child(1).tell(&mut c);
        event(Kind::Exit, 0, nr::VFORK, -11).tell(&mut c);
        assert_eq!(missing(c), Vec::<i64>::new());
    }

    #[test]
    fn a_process_in_a_pid_namespace_has_two_numbers() {
        let mut c = Census::new(100);
        fork(&mut c, 1, 101);
        start(&mut c, 1, 1);
        wait(&mut c, 101, 0);
        let enter = event(Kind::Enter, 0, nr::CLONE, 0).args(&[0x4000, 0, 0, 0, 0]);
        enter.child(2).tell(&mut c);
        start(&mut c, 2, 1);
        event(Kind::Exit, 0, nr::CLONE, 102).tell(&mut c);
        wait(&mut c, 102, 0);
        assert_eq!(missing(c), Vec::<i64>::new());
    }

    /// In a pid namespace of its own it calls itself otherwise than its parent, who waits for it.
    #[test]
    fn who_died_in_its_first_step_is_not_missing() {
        let mut c = Census::new(100);
        let dead = |c: &mut Census, slot: u64| {
            let found = event(Kind::ProcessEnd, NO_SLOT, ProcessEnd::Found as u64, 9);
            found.args(&[1, 0, slot + 1]).tell(c);
        };
        fork(&mut c, 1, 101);
        dead(&mut c, 1);
        wait(&mut c, 101, 9);
        // Its parent hears of it later.
        event(Kind::Enter, 0, nr::CLONE, 0).child(1).tell(&mut c);
        dead(&mut c, 1);
        event(Kind::Exit, 0, nr::CLONE, 102).tell(&mut c);
        wait(&mut c, 102, 9);
        // Its slot is another's before the trace says that it is dead.
        fork(&mut c, 1, 103);
        fork(&mut c, 1, 104);
        wait(&mut c, 103, 9);
        start(&mut c, 1, 104);
        dead(&mut c, 1);
        assert_eq!(missing(c), Vec::<i64>::new());
    }

    #[test]
    fn who_never_began_is_missing() {
        let mut c = Census::new(100);
        fork(&mut c, 1, 101);
        fork(&mut c, 2, 102);
        start(&mut c, 2, 102);
        assert_eq!(missing(c), [101]);
    }

    #[test]
    fn who_was_only_waited_for_is_missing() {
        let mut c = Census::new(100);
        fork(&mut c, 1, 101);
        start(&mut c, 1, 101);
        wait(&mut c, 101, 0);
        wait(&mut c, 101, 0);
        wait(&mut c, 102, 0);
        let info = [17, 0, 1, 0, 103, 0, 0];
        let waitid = |c: &mut Census, options| {
            let e = event(Kind::Enter, 0, nr::WAITID, 0).args(&[0, 0, 0x6000, options]);
            e.tell(c);
            let e = event(Kind::Exit, 0, nr::WAITID, 0);
            e.section(Tag::Output, 0x6000, &info).tell(c);
        };
        waitid(&mut c, 4);
        assert_eq!(missing(c), [101, 102, 103]);
    }

    #[test]
    fn a_look_does_not_wait() {
        let mut c = Census::new(100);
        fork(&mut c, 1, 101);
        start(&mut c, 1, 101);
        for options in [4 | WNOWAIT, 4] {
            let e = event(Kind::Syscall, 0, nr::WAITID, 0).args(&[0, 0, 0x6000, options]);
            let info = [17, 0, 1, 0, 101, 0, 0];
            e.section(Tag::Output, 0x6000, &info).tell(&mut c);
        }
        assert_eq!(missing(c), Vec::<i64>::new());
    }

    #[test]
    fn signals_of_children_count_and_those_of_others_do_not() {
        let mut c = Census::new(100);
        for (code, pid) in [(1, 101), (0, 102), (-6, 103)] {
            let e = event(Kind::Signal, 0, 17, 0);
            let info = [17, 0, code, 0, pid, 0, 0];
            e.section(Tag::Siginfo, 0, &info).tell(&mut c);
        }
        assert_eq!(missing(c), [101]);
    }

    #[test]
    fn threads_are_no_processes() {
        let mut c = Census::new(100);
        let e = event(Kind::Syscall, 0, nr::CLONE, 101).args(&[CLONE_THREAD | 0x900, 0, 0, 0, 0]);
        e.child(1).tell(&mut c);
        assert_eq!(missing(c), Vec::<i64>::new());
    }

    #[test]
    fn others_may_tell_of_the_missing() {
        let mut c = Census::new(100);
        c.miss(7, Some("cat".into()), "it is a child of a recorded process");
        c.miss(8, None, "it is a child of a recorded process");
        fork(&mut c, 1, 8);
        start(&mut c, 1, 8);
        let all = c.missing();
        assert_eq!(names(&all), "7 (cat)");
    }
}
