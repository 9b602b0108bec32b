//! Recordings that go on: who records a process, and where to.

use reprise_launch::maps::Maps;
use reprise_launch::proc_files::{self, Stat};
use reprise_launch::SharedSession;
use reprise_trace::EVENTS_FILE;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A recording that goes on.
#[derive(Debug)]
pub struct Recording {
    /// Process id of its agent.
    pub agent: i32,
    /// The trace.
    pub dir: PathBuf,
}

impl Recording {
    /// The one that a process belongs to, or that it is the launcher of: whoever records it has the same session in memory.
    pub fn of(pid: i32) -> Option<Recording> {
        let session = session_of(pid)?;
        let pids = proc_files::processes::<i32>();
        // Most are looked at no further.
        let ours = pids.filter(|p| is_reprise(*p) && session_of(*p).as_ref() == Some(&session));
        ours.into_iter().find_map(writes)
    }

    /// Does any of its own processes still work on the trace? Beside the agent, that is a flight recorder's replay, which forgets what is old.
    pub fn is_open(&self) -> bool {
        let own = parent(self.agent)
            .map(|p| proc_files::children_of_thread::<i32>(p, p))
            .unwrap_or_default();
        own.into_iter()
            .flat_map(traces)
            .any(|(_, dir)| dir == self.dir)
    }
}

/// The processes that are recorded by this launcher: all that have its session in their memory, those of Reprise left out.
pub fn programs_of(launcher: i32) -> Vec<i32> {
    let Some(session) = session_of(launcher) else {
        return Vec::new();
    };
    let pids = proc_files::processes::<i32>();
    let is_one = |p: &i32| !is_reprise(*p) && session_of(*p).as_ref() == Some(&session);
    pids.filter(is_one).collect()
}

/// The trace that a process writes, as its agent.
fn writes(pid: i32) -> Option<Recording> {
    let (_, dir) = traces(pid).find(|(fd, _)| is_written(pid, fd))?;
    let agent = pid;
    Some(Recording { agent, dir })
}

/// The traces that a process has open, by its descriptors.
fn traces(pid: i32) -> impl Iterator<Item = (OsString, PathBuf)> {
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd"));
    fds.into_iter().flatten().flatten().filter_map(|fd| {
        let events = std::fs::read_link(fd.path()).ok()?;
        let dir = events.parent()?.to_path_buf();
        (events.file_name() == Some(EVENTS_FILE.as_ref())).then(|| (fd.file_name(), dir))
    })
}

/// Is this descriptor of a process open for writing (proc_pid_fdinfo(5))? A flight recorder's replay reads the trace.
fn is_written(pid: i32, fd: &OsStr) -> bool {
    let path = Path::new("/proc")
        .join(pid.to_string())
        .join("fdinfo")
        .join(fd);
    let info = std::fs::read_to_string(path).unwrap_or_default();
    let flags = info.lines().find_map(|l| l.strip_prefix("flags:"));
    let flags = flags.and_then(|f| i32::from_str_radix(f.trim(), 8).ok());
    flags.is_some_and(|f| f & libc::O_ACCMODE != libc::O_RDONLY)
}

/// The session that a process has in its memory: device and inode of the file.
fn session_of(pid: i32) -> Option<((u32, u32), u64)> {
    let maps = Maps::of(pid).ok()?;
    let mut lines = maps.lines();
    let session = lines.find(|l| l.is_named(SharedSession::NAME))?;
    Some((session.device, session.inode))
}

/// Does it run this program, or another build of it, by its name?
fn is_reprise(pid: i32) -> bool {
    let exe = |who: &str| std::fs::metadata(format!("/proc/{who}/exe"));
    let name_of = |pid: i32| proc_files::name_of(pid).ok();
    let id = |m: std::fs::Metadata| (m.dev(), m.ino());
    let (Ok(mine), Ok(its)) = (exe("self"), exe(&pid.to_string())) else {
        return false;
    };
    id(mine) == id(its) || name_of(pid) == name_of(std::process::id() as i32)
}

fn parent(pid: i32) -> Option<i32> {
    let parent = Stat::of_process(pid).ok()?.field(4)?;
    parent.try_into().ok()
}
