//! Processes that run before they are recorded, for the tests of `attach`.

use super::{built, ended, hang_limit, run, Run, Running, Workplace};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that nobody records yet.
pub struct Subject {
    /// Where it runs.
    pub place: Workplace,
    /// The process.
    pub child: Child,
    to: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    /// What it has said.
    pub said: String,
}

impl Subject {
    /// Starts it.
    pub fn start(mut command: Command) -> Subject {
        let place = Workplace::new();
        place.settle(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Where only ancestors may trace (Yama), anybody may trace this one.
        // SAFETY: a plain call in the child.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
                Ok(())
            });
        }
        let mut child = command.spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Subject {
            place,
            to: child.stdin.take(),
            child,
            lines,
            said: String::new(),
        }
    }

    /// The guest with threads at all kinds of places, which are there.
    pub fn everywhere(stages: u32) -> Subject {
        let mut command = Command::new(built("already_running"));
        command.arg(stages.to_string());
        let mut subject = Subject::start(command);
        subject.read_to("ready");
        subject
    }

    /// The guest whose threads read this file, until its input ends; they do.
    pub fn reading(file: &Path, threads: u32) -> Subject {
        let mut command = Command::new(built("threads_read"));
        command.arg(file).args(["0", &threads.to_string()]);
        let mut subject = Subject::start(command);
        subject.read_to("round 2: ");
        subject
    }

    /// The guest whose threads compute for so many rounds, and say so; they do.
    pub fn computing(rounds: u32) -> Subject {
        let mut command = Command::new(built("runs_on"));
        command.args(["3", &rounds.to_string()]);
        let mut subject = Subject::start(command);
        subject.read_to("2: ");
        subject
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Reads on until a line begins with this.
    pub fn read_to(&mut self, wanted: &str) {
        loop {
            let before = self.said.len();
            let n = self.lines.read_line(&mut self.said).expect("its output");
            assert!(n > 0, "it ended after {:?}", self.said);
            if self.said[before..].starts_with(wanted) {
                return;
            }
        }
    }

    /// Reads what it has said so far.
    pub fn catch_up(&mut self) {
        let mut waiting = 0;
        let from = self.lines.get_ref().as_raw_fd();
        // SAFETY: writes one int, which is ours.
        assert_eq!(
            unsafe { libc::ioctl(from, libc::FIONREAD, &mut waiting) },
            0
        );
        let end = self.said.len() + self.lines.buffer().len() + waiting as usize;
        while self.said.len() < end {
            self.read_to("");
        }
    }

    /// Writes to its input.
    pub fn tell(&mut self, what: &[u8]) {
        let to = self.to.as_mut().expect("its input");
        to.write_all(what).expect("written");
    }

    /// Begins to record it; the trace.
    pub fn attach(&self, flags: &[&str]) -> PathBuf {
        let dir = self.place.fresh("trace");
        let mut command = self.place.reprise(["attach", "--background", "-o"]);
        command.arg(&dir).args(flags).arg(self.pid().to_string());
        let attached = run(&mut command, None);
        assert!(attached.status.success(), "{}", attached.describe());
        dir
    }

    /// Begins to record it by a process that stays; the trace, which is there.
    pub fn attach_and_stay(&self) -> (PathBuf, Running) {
        let dir = self.place.fresh("trace");
        let mut command = self.place.reprise(["attach", "-o"]);
        command.arg(&dir).arg(self.pid().to_string());
        let recording = Running::start(&mut command, None);
        while !dir.join("manifest.json").exists() || !dir.join("events.zst").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        (dir, recording)
    }

    /// Reads to its end; its exit status.
    pub fn finish(&mut self) -> Option<i32> {
        self.to = None;
        self.lines
            .read_to_string(&mut self.said)
            .expect("its output");
        ended(&mut self.child).code()
    }

    /// What it said since `from` is what a replay of the trace says.
    pub fn assert_replays(&self, dir: &Path, from: usize) -> Run {
        closed(dir);
        let replay = self.place.replay(dir);
        let since = &self.said[from..];
        assert_eq!(replay.text(), since, "{}", replay.describe());
        let verified = self.place.verify(dir);
        assert!(verified.status.success(), "{}", verified.describe());
        replay
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a trace is whole.
pub fn closed(dir: &Path) {
    let begun = Instant::now();
    while !dir.join("summary.json").exists() {
        assert!(begun.elapsed() < hang_limit(), "it stays open");
        std::thread::sleep(Duration::from_millis(5));
    }
}
