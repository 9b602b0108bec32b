//! What the tests of the flight recorder have in common, for recordings by `serial` and by `order`: `record --keep`, of which a trace has the last stretch
//! only, and `snapshot`.

use super::leftovers::{agent_of, descendants};
use super::{run, system_program, Guest, Outcome, Recording, Run, Running, Workplace};
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
fn assert_end_of(place: &Workplace, whole: &Recording, flags: &[&str]) -> usize {
    let dir = &whole.dir;
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
    let mut lines = 0;
    for replay in replays(place, dir, flags) {
        assert_says_the_end(&replay, &whole.run);
        lines = replay.text().lines().count();
    }
    lines
}

/// Asserts that a replay says what this run has said in the end.
fn assert_says_the_end(replay: &Run, whole: &Run) {
    assert_eq!(replay.status, whole.status, "{}", replay.describe());
    // Of who is killed from outside, the call under way may not be in the trace: each thread may have written a line more.
    let ended = [libc::SIGKILL, libc::SIGTERM].map(Outcome::Signal);
    let more = match ended.iter().any(|o| o.fits(whole.status)) {
        true => THREADS,
        false => 0,
    };
    let (said, text) = (whole.text(), replay.text());
    let at = said.rfind(&text).unwrap_or_else(|| {
        panic!(
            "not what was said: {}\n{}",
            replay.describe(),
            whole.describe()
        )
    });
    let rest = &said[at + text.len()..];
    assert!(
        at > 0 && rest.lines().count() <= more,
        "not the end of what was said: {}\n{}",
        replay.describe(),
        whole.describe()
    );
}

/// Replays of a trace: by `order`, in partial and in total order.
fn replays(place: &Workplace, dir: &Path, flags: &[&str]) -> Vec<Run> {
    let mut all = vec![place.replay(dir)];
    if !flags.is_empty() {
        all.push(place.replay_with(dir, &["--order", "total"]));
    }
    all
}

/// The guest; by `order` one that shares nothing without a lock.
pub fn guest(flags: &[&str], args: &[&str]) -> Guest {
    let ordered = if flags.is_empty() {
        &[][..]
    } else {
        &["ordered"]
    };
    Guest::new("kept_stretch").args(args.iter().chain(ordered).copied())
}

fn keeps(flags: &[&str], args: &[&str], keep: &str, outcome: Outcome) {
    let place = Workplace::new();
    let kept = ["--keep", keep, "--checksum=200"];
    let whole = place.record_with(&guest(flags, args), &[flags, &kept].concat());
    assert!(outcome.fits(whole.run.status), "{}", whole.run.describe());
    let lines = assert_end_of(&place, &whole, flags);
    assert!(lines > 0, "nothing was said in the end");
    let (kept, all) = (on_disk(&whole.dir), recorded(&whole.dir));
    // By `order` the trace has all that one thread has not used up, and what it waits for may be in another one's ring.
    let most = if flags.is_empty() { 320 } else { 640 };
    assert!(
        kept <= most * KIB && all > 2 * kept,
        "{kept} of {all} bytes are kept"
    );
    place.keep();
}

pub fn one_thread(flags: &[&str]) {
    keeps(flags, &["1", "1000"], "256K", Outcome::Exit(0));
}

pub fn several_threads(flags: &[&str]) {
    keeps(flags, &["4", "500"], "256K", Outcome::Exit(0));
}

/// Wherever the stretch begins, one thread reads, and all others sleep in a lock, or are about to.
pub fn who_waits_for_a_lock_goes_on(flags: &[&str]) {
    for rounds in ["300", "400", "500"] {
        keeps(flags, &["3", rounds, "held"], "256K", Outcome::Exit(0));
    }
}

pub fn the_stretch_before_a_crash(flags: &[&str]) {
    keeps(
        flags,
        &["3", "500", "crash"],
        "256K",
        Outcome::Signal(libc::SIGSEGV),
    );
}

/// Who sleeps from the beginning on has given back what others need: nobody is held up, and what is old is forgotten.
pub fn a_sleeper_holds_nobody_up(flags: &[&str]) {
    let place = Workplace::new();
    let guest = Guest::new("kept_sleeper").args(["2", "1500"]);
    let kept = ["--keep", "256K", "--checksum=200"];
    let whole = place.record_with(&guest, &[flags, &kept].concat());
    assert!(whole.run.status.success(), "{}", whole.run.describe());
    assert_end_of(&place, &whole, flags);
    let (kept, all) = (on_disk(&whole.dir), recorded(&whole.dir));
    assert!(all > 3 * kept, "{kept} of {all} bytes are kept");
    place.keep();
}

/// Beginnings at many places in programs of all kinds: whoever waits for what, the first thread gone, files that are mapped shared.
pub fn beginnings_anywhere(flags: &[&str]) {
    let place = Workplace::new();
    let mut began = 0;
    let names = [
        "main_ends_first",
        "memory_file_writes",
        "counter_lines",
        "mutex_kinds",
        "condition_variables",
        "signal_between_threads",
        "registers_across_calls",
        "cpp_threads",
    ];
    // They race by plain loads.
    let racing = ["memory_mapped_by_threads", "rust_threads", "go_channels"];
    let racing = if flags.is_empty() { &racing[..] } else { &[] };
    for name in names.iter().chain(racing) {
        for guest in super::Source::read(name).guests() {
            for keep in ["1", "1500"] {
                let kept = ["--keep", keep, "--checksum=5"];
                let whole = place.record_with(&guest, &[flags, &kept].concat());
                if whole.dir.join("beginning").exists() {
                    let verified = place.verify(&whole.dir);
                    assert!(verified.status.success(), "{name}: {}", verified.describe());
                    for replay in replays(&place, &whole.dir, flags) {
                        assert_eq!(replay.status, whole.run.status, "{name}");
                        assert!(whole.run.stdout.ends_with(&replay.stdout), "{name}");
                    }
                    began += 1;
                }
            }
        }
    }
    assert!(began > names.len(), "only {began} traces were cut");
    place.keep();
}

/// Guard pages that were made long before are there at the beginning of what is kept.
pub fn guard_pages_stay(flags: &[&str]) {
    let place = Workplace::new();
    let guest = Guest::new("guard_pages").args(["stays", "1000"]);
    let whole = place.record_with(&guest, &[flags, &["--keep", "4K"]].concat());
    assert!(whole.run.status.success(), "{}", whole.run.describe());
    assert_end_of(&place, &whole, flags);
    let replay = place.replay(&whole.dir);
    assert!(replay.text().contains("3 -1 -1 3"), "{}", replay.describe());
}

/// What madvise(2) has said of forks long before holds for a child that is made at the end, and no checkpoint of the debugger's is spoiled by it.
pub fn what_children_do_not_get(flags: &[&str]) {
    let place = Workplace::new();
    let guest = Guest::new("kept_not_inherited").args(["3000"]);
    let kept = ["--keep", "256K", "--checksum=200"];
    let whole = place.record_with(&guest, &[flags, &kept].concat());
    assert!(whole.run.status.success(), "{}", whole.run.describe());
    assert_end_of(&place, &whole, flags);
    let replay = place.replay(&whole.dir);
    assert!(
        replay.text().contains("inherited a, wiped 0, there 0"),
        "{}",
        replay.describe()
    );
    // By `order` only one process can be debugged.
    if flags.is_empty() {
        let run = super::gdb::session(
            &place,
            &whole.dir,
            &["--at", "end"],
            &["reverse-stepi", "when"],
        );
        super::gdb::assert_said(&run, &["event "]);
    }
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
    fn start(flags: &[&str], keep: &str) -> Endless {
        let place = Workplace::new();
        let dir = place.fresh("trace");
        let guest = guest(flags, &[&THREADS.to_string(), "0"]);
        let kept = ["--keep", keep, "--checksum=500"];
        let mut command = place.record_command(&guest, &[flags, &kept].concat(), &dir);
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
        let guest = super::built("kept_stretch");
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
pub fn a_long_run_stays_small(flags: &[&str]) {
    const KEEP: u64 = 1024 * KIB;
    let mut endless = Endless::start(flags, "1M");
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
    assert_end_of(&place, &whole, flags);
    place.keep();
}

/// At the end, too, there is as much as is wanted: the table behind many frames is no event.
pub fn as_much_as_is_wanted(flags: &[&str]) {
    let place = Workplace::new();
    let script = "i=0; while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); done";
    let guest = Guest::program(system_program("sh")).args(["-c", script]);
    let mut all = flags.to_vec();
    all.extend(["--keep", "4K"]);
    let whole = place.record_with(&guest, &all);
    let lines = assert_end_of(&place, &whole, flags);
    let reader = reprise_trace::Reader::open(&whole.dir).expect("events");
    let (_, first) = reader.frames().next().expect("a frame");
    let (kept, table) = (reader.end() - first, recorded(&whole.dir) - reader.end());
    assert!(
        table > 3 * KIB,
        "{table} bytes of the table: too few frames"
    );
    // A quarter goes at a time, and frames go whole.
    assert!(
        (2 * KIB..8 * KIB).contains(&kept),
        "{kept} bytes, {lines} lines"
    );
}

/// What is saved while the program runs on is a part of the run, and the run goes on.
pub fn what_was_read_long_ago_is_forgotten(flags: &[&str]) {
    let place = Workplace::new();
    let files = place.fresh_dir("files");
    let guest = Guest::new("reads_new_versions").args([files.as_os_str(), "300".as_ref()]);
    let mut all = flags.to_vec();
    // All that is written in the end is more, the copies that were forgotten among it.
    all.extend(["--keep", "3M", "--max-size", "64M"]);
    let whole = place.record_with(&guest, &all);
    assert!(
        !whole.run.said().contains("ends early"),
        "{}",
        whole.run.describe()
    );
    let lines = assert_end_of(&place, &whole, flags);
    assert!(lines < 250, "{lines} of 300 lines");
    let copies = reprise_trace::inputs::all(&whole.dir);
    assert!(
        copies.iter().all(|n| *n > 3),
        "the first are there: {copies:?}"
    );
    assert!(copies.len() > 1, "{copies:?}");
}

pub fn snapshots_while_it_runs(flags: &[&str]) {
    let mut endless = Endless::start(flags, "128K");
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
    assert_end_of(&place, &whole, flags);
    place.keep();
}

/// Whoever of the recorders is killed: what was kept until then can be replayed.
fn after_the_death_of(flags: &[&str], victim: fn(&Endless) -> i32) {
    let mut endless = Endless::start(flags, "128K");
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

pub fn the_agent_is_killed(flags: &[&str]) {
    after_the_death_of(flags, |e| agent_of(e.running.pid()));
}

pub fn the_follower_is_killed(flags: &[&str]) {
    after_the_death_of(flags, |e| {
        let agent = agent_of(e.running.pid());
        let program = e.program();
        let children = format!("/proc/{0}/task/{0}/children", e.running.pid());
        let children = std::fs::read_to_string(children).expect("children");
        let mut pids = children.split_whitespace().filter_map(|p| p.parse().ok());
        let other = |p: &i32| ![agent, program].contains(p);
        pids.find(other).expect("a follower")
    });
}
