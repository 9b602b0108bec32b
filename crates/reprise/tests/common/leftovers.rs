//! What sessions may leave behind, and a place where it would be seen: a workplace with its own directory for temporary files and,
//! where the user may have them, its own System V objects, /dev/shm and sockets, so that nothing of other programs is there.

use super::{hang_limit, run, Workplace};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where recordings run that are to leave nothing behind.
pub struct Scene {
    /// For their traces and working directories.
    pub place: Workplace,
    temporary: PathBuf,
    own_objects: bool,
}

/// Runs `body` on a thread of its own, for which, and for whose children, the kernel's objects are a world of their own.
///
/// # Panics
/// When `body` does, or when something is left in the end.
pub fn in_own_world(body: impl FnOnce(&Scene) + Send) {
    std::thread::scope(|s| {
        let run = s.spawn(|| {
            let scene = Scene::new();
            scene.assert_clean("the beginning");
            body(&scene);
            scene.assert_clean("the end");
            scene.assert_no_traces();
        });
        if let Err(why) = run.join() {
            std::panic::resume_unwind(why);
        }
    });
}

/// What stays where traces are kept, and grows no further.
const KEPT: [&str; 3] = [".store", ".found-in-code", ".runtimes"];

impl Scene {
    fn new() -> Scene {
        let place = Workplace::new();
        let temporary = place.fresh_dir("temporary");
        let own_objects = own_objects();
        if !own_objects {
            super::skip(
                "this user may not have namespaces: shared memory and sockets are not looked at",
            );
        }
        Scene {
            place,
            temporary,
            own_objects,
        }
    }

    /// A command of `reprise` that runs here.
    pub fn settle<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("TMPDIR", &self.temporary)
    }

    /// Nothing is left of what ran here: no process, no shared memory, no socket, no file.
    ///
    /// # Panics
    /// When something is.
    pub fn assert_clean(&self, when: &str) {
        let begun = Instant::now();
        loop {
            // Who has closed its output may take a moment more to end.
            let left = processes_in(self.place.path());
            if left.is_empty() {
                break;
            }
            assert!(
                begun.elapsed() < hang_limit(),
                "{when}: processes are left:\n{}",
                left.iter().map(|p| describe(*p)).collect::<String>()
            );
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let files = entries(&self.temporary);
        assert!(files.is_empty(), "{when}: temporary files: {files:?}");
        if !self.own_objects {
            return;
        }
        for kind in ["shm", "sem", "msg"] {
            let list = std::fs::read_to_string(format!("/proc/sysvipc/{kind}")).expect("a list");
            assert_eq!(list.lines().count(), 1, "{when}: {list}");
        }
        let sockets = std::fs::read_to_string("/proc/thread-self/net/unix").expect("a list");
        assert_eq!(sockets.lines().count(), 1, "{when}: {sockets}");
        let memory = entries(Path::new("/dev/shm"));
        assert!(memory.is_empty(), "{when}: in /dev/shm: {memory:?}");
    }

    /// Removes a trace as a user would.
    ///
    /// # Panics
    /// When that fails, or something of it stays.
    pub fn remove(&self, dir: &Path) {
        let mut command = self.place.reprise(["rm".as_ref(), dir.as_os_str()]);
        let out = run(self.settle(&mut command), None);
        assert!(out.status.success(), "{}", out.describe());
        assert!(!dir.exists(), "{} is still there", dir.display());
    }

    /// With all traces removed, nothing is left where traces are kept, but the cache of what was found in code, and the list of runtimes.
    fn assert_no_traces(&self) {
        let kept = entries(&self.place.traces());
        let store = self.place.traces().join(".store");
        let contents = entries(&store);
        assert!(
            kept.iter().all(|name| KEPT.contains(&name.as_str()))
                && contents
                    .iter()
                    .all(|name| ["index", "inputs"].contains(&name.as_str())),
            "left of traces: {kept:?}, in the store: {contents:?}"
        );
        for part in ["index", "inputs"] {
            let left = entries(&store.join(part));
            assert!(left.is_empty(), "left in the store's {part}: {left:?}");
        }
    }
}

/// Names in a directory; none when there is no such directory.
fn entries(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Gives the calling thread, and who it starts, System V objects, sockets and a /dev/shm of their own.
fn own_objects() -> bool {
    // SAFETY: changes what this thread sees; nothing else of this process runs on it.
    unsafe {
        libc::unshare(libc::CLONE_NEWIPC | libc::CLONE_NEWNS | libc::CLONE_NEWNET) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/dev/shm".as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                std::ptr::null(),
            ) == 0
    }
}

/// Processes that are alive and work inside a directory: whatever their parents are by now.
pub fn processes_in(dir: &Path) -> Vec<i32> {
    let numbers = std::fs::read_dir("/proc").expect("/proc").flatten();
    numbers
        .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            // A zombie has no directory any more.
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
        })
        .collect()
}

/// Processes below this one in the tree, itself included.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    let mut next = 0;
    while next < all.len() {
        for task in std::fs::read_dir(format!("/proc/{}/task", all[next]))
            .into_iter()
            .flatten()
            .flatten()
        {
            let children =
                std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|p| p.parse::<i32>().ok()),
            );
        }
        next += 1;
    }
    all
}

/// What a process is and does, a line for each of its threads.
fn describe(pid: i32) -> String {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let command = read("cmdline").unwrap_or_default().replace('\0', " ");
    let mut text = format!("  {pid}: {command}\n");
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let tid = task.file_name().to_string_lossy().into_owned();
        let of = |name: &str| read(&format!("task/{tid}/{name}")).unwrap_or_default();
        text += &format!(
            "    thread {tid}: {} in {}, call {}",
            of("stat").rsplit_once(") ").map_or("?", |(_, s)| &s[..1]),
            of("wchan"),
            of("syscall")
        );
    }
    text
}

/// The process that writes the trace of a recording: what runs as `reprise` below this one.
///
/// # Panics
/// When there is none.
pub fn agent_of(recording: i32) -> i32 {
    let is_ours = |p: &&i32| {
        std::fs::read_link(format!("/proc/{p}/exe")).is_ok_and(|e| e == Path::new(super::REPRISE))
    };
    let all = descendants(recording);
    *all[1..].iter().find(is_ours).expect("an agent")
}
