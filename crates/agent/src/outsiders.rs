//! Processes that are not recorded and write to memory that the recorded ones map: what they write there is not in the trace, and
//! the user is told so. System V segments count their attachments themselves; mapped files are looked for here.

use reprise_abi::session::{process_state, Session};
use reprise_launch::maps::{Line, Maps};
use reprise_launch::proc_files::{self, Status};
use reprise_launch::SharedSession;
use rustix::fs::{major, minor};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A look may cost this part of the time between two of them.
const COST: u32 = 100;
/// Most files that are looked for.
const MAX_FILES: usize = 4096;

/// A file as /proc/PID/maps names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Mapped {
    device: (u32, u32),
    inode: u64,
    name: PathBuf,
}

/// The files that were mapped shared, and what was found out of them.
pub struct Outsiders {
    files: Vec<Mapped>,
    known: HashSet<Mapped>,
    /// Children that the first process had before it was recorded.
    children: HashSet<u32>,
    /// That process, which the session's table does not have at once; 0 for none.
    first: u32,
    /// Sentences for the user.
    pub warnings: Vec<String>,
    next: Instant,
}

impl Outsiders {
    /// Nothing is shared yet.
    pub fn new() -> Outsiders {
        Outsiders {
            files: Vec::new(),
            known: HashSet::new(),
            children: HashSet::new(),
            first: 0,
            warnings: Vec::new(),
            next: Instant::now(),
        }
    }

    /// The first process was running before, and had these children. It still stands where it was stopped: whoever has its memory now is
    /// found, however short he lives once it goes on, and however many others there are to look at.
    pub fn was_running(&mut self, pid: u32, children: &HashSet<i64>, shared: &SharedSession) {
        self.children = children.iter().map(|c| *c as u32).collect();
        self.first = pid;
        let maps = maps_of(pid);
        let lines = maps.lines().filter(|l| !l.is_named(SharedSession::NAME));
        for file in lines.filter_map(|l| shared_writable(&l)) {
            self.add(file);
        }
        self.look(shared);
    }

    /// A recorded process maps a file so that others see what it writes there.
    pub fn shares(&mut self, device: u64, inode: u64, name: &Path) {
        let file = Mapped {
            device: (major(device), minor(device)),
            inode,
            name: name.into(),
        };
        self.add(file);
    }

    fn add(&mut self, file: Mapped) {
        if self.known.len() < MAX_FILES && self.known.insert(file.clone()) {
            self.files.push(file);
        }
    }

    /// Looks, when it is time: at once after the first file, seldom enough after that.
    pub fn look_again(&mut self, shared: &SharedSession) {
        if !self.files.is_empty() && Instant::now() >= self.next {
            self.look(shared);
        }
    }

    /// Looks once.
    pub fn look(&mut self, shared: &SharedSession) {
        if self.files.is_empty() {
            return;
        }
        let begun = Instant::now();
        let mut ours = recorded(shared.session());
        ours.insert(self.first);
        for pid in proc_files::processes().filter(|pid| !ours.contains(pid)) {
            let maps = maps_of(pid);
            let written: Vec<Mapped> = maps.lines().filter_map(|l| shared_writable(&l)).collect();
            let hit = |f: &Mapped| written.iter().any(|w| is_same(f, w));
            let is_new = !self.children.contains(&pid) && is_child_of(pid, &ours);
            if !self.files.iter().any(hit) || is_new {
                continue;
            }
            let name = proc_files::name_of(pid).unwrap_or_default();
            for file in self.files.iter().filter(|f| hit(f)) {
                self.warnings.push(format!(
                    "process {pid} ({}), which is not recorded, has {} mapped for writing, too: what it writes there is not recorded",
                    name.trim(),
                    file.name.display()
                ));
            }
            // One warning for each file is enough.
            self.files.retain(|f| !hit(f));
        }
        self.next = Instant::now() + LOOK_EVERY.max(begun.elapsed() * COST);
    }
}

impl Default for Outsiders {
    fn default() -> Self {
        Outsiders::new()
    }
}

/// Processes of the session, as the agent sees them.
fn recorded(s: &Session) -> HashSet<u32> {
    let all = s.processes.iter();
    let taken = all.filter(|p| p.state.load(Acquire) != process_state::FREE);
    let mut ours: HashSet<u32> = taken.map(|p| p.kernel_pid.load(Acquire)).collect();
    ours.insert(std::process::id());
    ours
}

/// One that was made a moment ago has its parent's mappings, and is not in the session's table yet.
fn is_child_of(pid: u32, ours: &HashSet<u32>) -> bool {
    let parent = Status::of_process(pid).ok().and_then(|s| s.number("PPid"));
    // It may have ended meanwhile.
    parent.is_none_or(|p: u32| ours.contains(&p))
}

/// The file of a mapping that others may see written.
fn shared_writable(line: &Line) -> Option<Mapped> {
    line.is_written_for_others().then(|| Mapped {
        device: line.device,
        inode: line.inode,
        name: line.name.into(),
    })
}

/// What a process has mapped; nothing of one that can't be looked at.
fn maps_of(pid: u32) -> Maps {
    Maps::of(pid).unwrap_or_default()
}

/// The same file? Some file systems show another device in maps than in stat(2): there the name decides.
fn is_same(a: &Mapped, b: &Mapped) -> bool {
    a.inode == b.inode && (a.device == b.device || a.name == b.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = "7f0000000000-7f0000001000 rw-s 00000000 00:1a 1234                       /dev/shm/a b (deleted)";
        let of = |line: &str| shared_writable(&Line::parse(line.as_bytes()).expect("a line"));
        let file = of(line).expect("a shared file");
        assert_eq!((file.device, file.inode), ((0, 0x1a), 1234));
        assert_eq!(file.name, Path::new("/dev/shm/a b (deleted)"));
        assert_eq!(of(&line.replace("rw-s", "r--s")), None);
        assert_eq!(of(&line.replace("rw-s", "rw-p")), None);
        let elsewhere = of(&line.replace("00:1a", "00:2b")).expect("a shared file");
        assert!(is_same(&file, &elsewhere));
        let other = of(&line.replace("1234", "1235")).expect("a shared file");
        assert!(!is_same(&file, &other));
    }
}
