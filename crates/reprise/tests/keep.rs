//! The flight recorder: `record --keep`, of which a trace has the last stretch only, and `snapshot`.

mod common;

use common::leftovers::{agent_of, descendants};
use common::{run, Guest, Outcome, Recording, Run, Running, Workplace, OWN_FAILURE};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ChildStdout;

const KIB: u64 = 1 << 10;
/// Of the recordings that are ended from outside.
const THREADS: usize = 3;

/// Bytes that a trace's events take on disk.
fn on_disk(dir: &Path) -> u64 {
    let events = dir.join("events.zst").metadata();
    events.map_or(0, |m| m.blocks() * 512)
}

/// Bytes of all events that there ever were, compressed.
fn recorded(dir: &Path) -> u64 {
    dir.join("events.zst").metadata().map_or(0, |m| m.len())
}

/// Asserts that the trace is of the end of this run, and replays as often as wanted; the lines that its replay says.
fn assert_end_of(place: &Workplace, whole: &Recording) -> usize {
    let (dir, said) = (&whole.dir, &whole.run.stdout);
    assert!(
        dir.join("beginning").exists(),
        "nothing was forgotten: {}",
        whole.run.describe()
    );
    let verified = place.verify(dir);
    assert!(
        verified.text().contains("the same"),
        "{}",
        verified.describe()
    );
    assert!(
        !verified.text().contains("DIFFERENT"),
        "{}",
        verified.describe()
    );
    let replay = place.replay(dir);
    assert_eq!(replay.status, whole.run.status, "{}", replay.describe());
    // Of who is killed from outside, the call under way may not be in the trace: each thread may have written a line more.
    let ended = [libc::SIGKILL, libc::SIGTERM].map(Outcome::Signal);
    let more = match ended.iter().any(|o| o.fits(whole.run.status)) {
        true => THREADS,
        false => 0,
    };
    let (said, text) = (String::from_utf8_lossy(said), replay.text());
    let at = said.rfind(&text).unwrap_or_else(|| {
        panic!(
            "not what was said: {}\n{}",
            replay.describe(),
            whole.run.describe()
        )
    });
    let rest = &said[at + text.len()..];
    assert!(
        at > 0 && rest.lines().count() <= more,
        "not the end of what was said: {}\n{}",
        replay.describe(),
        whole.run.describe()
    );
    replay.text().lines().count()
}

fn keeps(args: &[&str], keep: &str, outcome: Outcome) {
    let place = Workplace::new();
    let guest = Guest::new("kept_stretch").args(args.iter().copied());
    let whole = place.record_with(&guest, &["--keep", keep, "--checksum=200"]);
    assert!(outcome.fits(whole.run.status), "{}", whole.run.describe());
    let lines = assert_end_of(&place, &whole);
    assert!(lines > 0, "nothing was said in the end");
    let (kept, all) = (on_disk(&whole.dir), recorded(&whole.dir));
    assert!(
        kept <= 256 * KIB + 64 * KIB && all > 2 * kept,
        "{kept} of {all} bytes are kept"
    );
    place.keep();
}

#[test]
fn one_thread() {
    keeps(&["1", "1000"], "256K", Outcome::Exit(0));
}

#[test]
fn several_threads() {
    keeps(&["4", "500"], "256K", Outcome::Exit(0));
}

#[test]
fn the_stretch_before_a_crash() {
    keeps(
        &["3", "500", "crash"],
        "256K",
        Outcome::Signal(libc::SIGSEGV),
    );
}

/// Beginnings at many places in programs of all kinds: whoever waits for what, the first thread gone, files that are mapped shared.
#[test]
fn beginnings_anywhere() {
    let place = Workplace::new();
    let mut began = 0;
    for name in [
        "main_ends_first",
        "memory_mapped_by_threads",
        "memory_file_writes",
        "counter_lines",
        "mutex_kinds",
        "condition_variables",
        "signal_between_threads",
        "registers_across_calls",
        "cpp_threads",
        "rust_threads",
        "go_channels",
    ] {
        for guest in common::Source::read(name).guests() {
            for keep in ["1", "1500"] {
                let whole = place.record_with(&guest, &["--keep", keep, "--checksum=5"]);
                if whole.dir.join("beginning").exists() {
                    let verified = place.verify(&whole.dir);
                    assert!(verified.status.success(), "{name}: {}", verified.describe());
                    let replay = place.replay(&whole.dir);
                    assert_eq!(replay.status, whole.run.status, "{name}");
                    assert!(whole.run.stdout.ends_with(&replay.stdout), "{name}");
                    began += 1;
                }
            }
        }
    }
    assert!(began > 11, "only {began} traces were cut");
    place.keep();
}

/// What madvise(2) has said of forks long before holds for a child that is made at the end, and no checkpoint of the debugger's is spoiled by it.
#[test]
fn what_children_do_not_get() {
    let place = Workplace::new();
    let guest = Guest::new("kept_not_inherited").args(["3000"]);
    let whole = place.record_with(&guest, &["--keep", "256K", "--checksum=200"]);
    assert!(whole.run.status.success(), "{}", whole.run.describe());
    assert_end_of(&place, &whole);
    let replay = place.replay(&whole.dir);
    assert!(
        replay.text().contains("inherited a, wiped 0, there 0"),
        "{}",
        replay.describe()
    );
    let run = common::gdb::session(
        &place,
        &whole.dir,
        &["--at", "end"],
        &["reverse-stepi", "when"],
    );
    common::gdb::assert_said(&run, &["event "]);
    place.keep();
}

/// A recording that goes on until it is ended.
struct Endless {
    place: Workplace,
    dir: PathBuf,
    running: Running,
    lines: BufReader<ChildStdout>,
    said: String,
}

impl Endless {
    fn start(keep: &str) -> Endless {
        let place = Workplace::new();
        let dir = place.fresh("trace");
        let guest = Guest::new("kept_stretch").args([&THREADS.to_string(), "0"]);
        let flags = ["--keep", keep, "--checksum=500"];
        let mut command = place.record_command(&guest, &flags, &dir);
        let mut running = Running::start_reading(&mut command, None);
        let lines = BufReader::new(running.child.stdout.take().expect("a pipe"));
        Endless {
            place,
            dir,
            running,
            lines,
            said: String::new(),
        }
    }

    /// Reads on until the program has said so many lines, or ends.
    fn read_until(&mut self, mut enough: impl FnMut(&Endless) -> bool) {
        while !enough(self) {
            let n = self.lines.read_line(&mut self.said).expect("its output");
            assert!(n > 0, "it ended after {} lines", self.said.lines().count());
        }
    }

    /// The program: whose child is none of ours.
    fn program(&self) -> i32 {
        let guest = common::built("kept_stretch");
        let is_it = |p: &&i32| {
            let exe = std::fs::read_link(format!("/proc/{p}/exe"));
            exe.is_ok_and(|e| e == guest.canonicalize().expect("a guest"))
        };
        let launcher = self.running.pid();
        *descendants(launcher).iter().find(is_it).expect("a program")
    }

    /// Kills somebody, waits until all has ended, and gives back what the run was and what came of it.
    fn kill(mut self, who: i32, signal: i32) -> (Workplace, Recording) {
        // SAFETY: a process that this test started.
        assert_eq!(unsafe { libc::kill(who, signal) }, 0);
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut self.lines, &mut rest).expect("its output");
        let mut run: Run = self.running.finish();
        run.stdout = [self.said.as_bytes(), &rest].concat();
        let dir = self.dir;
        (self.place, Recording { run, dir })
    }
}

/// However long it runs, the trace stays as small as it is to be.
#[test]
fn a_long_run_stays_small() {
    const KEEP: u64 = 1024 * KIB;
    let mut endless = Endless::start("1M");
    let mut most = 0;
    endless.read_until(|e| {
        most = most.max(on_disk(&e.dir));
        recorded(&e.dir) > 20 * KEEP
    });
    // What is too much for a moment is at most once more as much, with what was reserved and what was in the ring.
    assert!(most <= 4 * KEEP, "{most} bytes on disk");
    let program = endless.program();
    let (place, whole) = endless.kill(program, libc::SIGKILL);
    assert!(
        Outcome::Signal(libc::SIGKILL).fits(whole.run.status),
        "{}",
        whole.run.describe()
    );
    assert_end_of(&place, &whole);
    place.keep();
}

/// What is saved while the program runs on is a part of the run, and the run goes on.
#[test]
fn snapshots_while_it_runs() {
    let mut endless = Endless::start("128K");
    for part in 1..=3 {
        endless.read_until(|e| {
            recorded(&e.dir) > part * 1024 * KIB && e.dir.join("beginning").exists()
        });
        let saved = endless.place.fresh("snapshot");
        let mut command = endless.place.reprise(["snapshot", "-o"]);
        command.arg(&saved).arg(endless.program().to_string());
        let done = run(&mut command, None);
        assert!(done.status.success(), "{}", done.describe());
        let replay = endless.place.replay(&saved);
        assert!(!replay.said().contains("diverg"), "{}", replay.describe());
        let text = replay.text();
        assert!(!text.is_empty(), "{}", replay.describe());
        // What it says at its end may not be read here yet.
        endless.read_until(|e| e.said.ends_with('\n') && e.said.contains(&text));
    }
    let program = endless.program();
    let (place, whole) = endless.kill(program, libc::SIGTERM);
    assert_end_of(&place, &whole);
    place.keep();
}

/// Whoever of the recorders is killed: what was kept until then can be replayed.
fn after_the_death_of(victim: fn(&Endless) -> i32) {
    let mut endless = Endless::start("128K");
    endless.read_until(|e| recorded(&e.dir) > 1024 * KIB && e.dir.join("beginning").exists());
    let (who, program) = (victim(&endless), endless.program());
    // SAFETY: a process that this test started.
    assert_eq!(unsafe { libc::kill(who, libc::SIGKILL) }, 0);
    let (place, whole) = endless.kill(program, libc::SIGKILL);
    let replay = place.replay(&whole.dir);
    assert!(!replay.said().contains("diverg"), "{}", replay.describe());
    let text = replay.text();
    let said = whole.run.text();
    assert!(
        !text.is_empty() && said.contains(&text),
        "{}\n{}",
        replay.describe(),
        whole.run.describe()
    );
    place.keep();
}

#[test]
fn the_agent_is_killed() {
    after_the_death_of(|e| agent_of(e.running.pid()));
}

#[test]
fn the_follower_is_killed() {
    after_the_death_of(|e| {
        let agent = agent_of(e.running.pid());
        let program = e.program();
        let children = format!("/proc/{0}/task/{0}/children", e.running.pid());
        let children = std::fs::read_to_string(children).expect("children");
        let mut pids = children.split_whitespace().filter_map(|p| p.parse().ok());
        let other = |p: &i32| ![agent, program].contains(p);
        pids.find(other).expect("a follower")
    });
}

#[test]
fn what_it_does_not_do_is_said() {
    let place = Workplace::new();
    let guest = Guest::new("hello");
    let order = place.record_with(&guest, &["--keep", "1M", "--engine", "order"]);
    order.run.assert_own_failure(OWN_FAILURE);
    assert!(order.run.notes.contains("--keep wants --engine serial"));
    let nobody = run(&mut place.reprise(["snapshot", "1"]), None);
    nobody.assert_own_failure(OWN_FAILURE);
    for wrong in ["soon", "0s", "-1"] {
        let refused = place.record_with(&guest, &[&format!("--keep={wrong}")]);
        assert!(!refused.run.status.success());
    }
    place.keep();
}

/// A program of several processes goes on; its recording ends, which is said.
#[test]
fn several_processes_are_refused() {
    const SCRIPT: &str = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); sh -c 'echo $0 $$' $i; done";
    let place = Workplace::new();
    let guest = Guest::program(common::system_program("sh"))
        .args(["-c", &format!("(sleep 1000 & {SCRIPT}; kill $!)")]);
    let dir = place.fresh("trace");
    let mut command = place.record_command(&guest, &["--keep", "4K"], &dir);
    let recorded = run(common::expect_uncaptured(&mut command), None);
    assert!(recorded.status.success(), "{}", recorded.describe());
    assert_eq!(recorded.text().lines().count(), 300);
    assert!(
        recorded.notes.contains("several processes"),
        "{}",
        recorded.describe()
    );
    place.keep();
}
