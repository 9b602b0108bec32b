//! `attach`: processes that are running already are recorded from some moment on, and go on as if nothing had happened.

use crate::common;

use common::attached::{closed, Subject};
use common::gdb::{assert_said, session};
use common::{built, run, Guest, Running, OWN_FAILURE};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

guests! { already_running, records_itself, shares_with_its_child }

#[test]
fn threads_go_on_wherever_they_were() {
    for before in 0..4 {
        let mut subject = Subject::everywhere(before + 2);
        for n in 0..before {
            subject.tell(b".");
            subject.read_to(&format!("stage {}", n + 1));
        }
        let from = subject.said.len();
        let dir = subject.attach(&["--checksum=20"]);
        subject.tell(b"...");
        assert_eq!(subject.finish(), Some(7), "{}", subject.said);
        let replay = subject.assert_replays(&dir, from);
        assert_eq!(replay.status.code(), Some(7));
        let info = subject.place.info(&dir);
        assert!(info.kind("thread-start") >= 9, "{}", info.0);
        assert_eq!(info.0["uncaptured"].as_array().map(Vec::len), Some(0));
    }
}

#[test]
fn a_debugger_shows_where_they_were_and_goes_back_there() {
    let mut subject = Subject::everywhere(1);
    let dir = subject.attach(&[]);
    subject.tell(b"..");
    assert_eq!(subject.finish(), Some(7));
    closed(&dir);
    let commands = [
        "info threads",
        "break say",
        "continue",
        "up",
        "print shared[0]",
        "watch sum",
        "continue",
        "delete",
        "reverse-continue",
        "when",
        "thread 1",
        "backtrace",
    ];
    let run = session(&subject.place, &dir, &[], &commands);
    assert_said(
        &run,
        &[
            "libc_read",
            "futex_abstimed_wait",
            "epoll_wait",
            "in handler (",
            "hit Breakpoint 1, say (",
            "$1 = 23",
            "Hardware watchpoint 2: sum",
            "No more reverse-execution history",
            "event 0 of",
            "in main (",
        ][..],
    );
}

/// Nobody can read those, whatever their protection is.
#[test]
fn guard_pages_are_known() {
    let mut command = Command::new(built("guard_pages"));
    command.arg("stays");
    let mut subject = Subject::start(command);
    subject.read_to("there: write");
    let from = subject.said.len();
    let dir = subject.attach(&[]);
    subject.tell(b"...");
    assert_eq!(subject.finish(), Some(0), "{}", subject.said);
    subject.assert_replays(&dir, from);
    assert_eq!(subject.said.matches("3 -1 -1 3").count(), 4);
}

/// By whom the recording is ended: the program goes on.
fn ends_early(end: impl FnOnce(&Subject, &Running)) {
    let mut subject = Subject::computing(1_000_000);
    let (dir, recording) = subject.attach_and_stay();
    subject.catch_up();
    for _ in 0..10 {
        subject.read_to("1: ");
    }
    end(&subject, &recording);
    let recorded = recording.finish();
    assert!(recorded.status.success(), "{}", recorded.describe());
    for _ in 0..10 {
        subject.read_to("0: ");
    }
    let replay = subject.place.replay(&dir);
    assert!(replay.status.success(), "{}", replay.describe());
    assert!(replay.said().contains("the recording was stopped at event"));
    assert!(replay.text().lines().count() > 5, "{}", replay.describe());
    assert!(subject.said.contains(&replay.text()), "{}", subject.said);
    // Whose recording has ended can't be recorded again.
    let mut again = subject.place.reprise(["attach"]);
    let again = run(again.arg(subject.pid().to_string()), None);
    again.assert_own_failure(OWN_FAILURE);
    assert!(
        again.said().contains("once in the life"),
        "{}",
        again.describe()
    );
}

#[test]
fn the_user_ends_it() {
    ends_early(|_, recording| {
        // SAFETY: a process that this test started.
        assert_eq!(unsafe { libc::kill(recording.pid(), libc::SIGINT) }, 0);
    });
}

#[test]
fn stop_ends_it() {
    ends_early(|subject, _| {
        let mut stop = subject.place.reprise(["stop"]);
        let stopped = run(stop.arg(subject.pid().to_string()), None);
        assert!(stopped.status.success(), "{}", stopped.describe());
    });
}

#[test]
fn a_process_that_is_killed_ends_its_trace() {
    let mut subject = Subject::everywhere(1);
    let (dir, recording) = subject.attach_and_stay();
    let from = subject.said.len();
    subject.tell(b".");
    subject.read_to("stage 1");
    subject.child.kill().expect("killed");
    subject.finish();
    let recorded = recording.finish();
    assert_eq!(
        recorded.status.code(),
        Some(128 + libc::SIGKILL),
        "{}",
        recorded.describe()
    );
    closed(&dir);
    let replay = subject.place.replay(&dir);
    assert_eq!(
        replay.status.code(),
        Some(128 + libc::SIGKILL),
        "{}",
        replay.describe()
    );
    // Who is killed in a call may have said what no event tells of.
    assert!(subject.said[from..].starts_with(&replay.text()));
    let verified = subject.place.verify(&dir);
    assert!(verified.status.success(), "{}", verified.describe());
}

#[test]
fn only_the_last_stretch_is_kept() {
    let mut subject = Subject::computing(40_000);
    let dir = subject.attach(&["--keep", "4K"]);
    assert_eq!(subject.finish(), Some(0));
    closed(&dir);
    assert!(dir.join("beginning").exists());
    let replay = subject.place.replay(&dir);
    assert!(replay.status.success(), "{}", replay.describe());
    assert!(!replay.stdout.is_empty(), "{}", replay.describe());
    let said = &subject.said[subject.said.len().saturating_sub(1000)..];
    assert!(
        subject.said.ends_with(&replay.text()),
        "{}\nthe end of what was said: {said}",
        replay.describe()
    );
}

#[test]
fn a_program_has_a_part_of_its_run_recorded() {
    for round in 0..5 {
        let mut command = Command::new(built("records_itself"));
        command.arg("60").env("REPRISE", common::REPRISE);
        let mut subject = Subject::start(command);
        assert_eq!(subject.finish(), Some(0), "{}", subject.said);
        let dir = subject.place.traces().join("records_itself-0");
        closed(&dir);
        let replay = subject.place.replay(&dir);
        assert!(replay.status.success(), "{}", replay.describe());
        let said = replay.text();
        assert!(said.starts_with("recorded 0: "), "{round}: {said}");
        assert!(
            said.contains("recorded 59: ") && !said.contains("end"),
            "{said}"
        );
        assert!(subject.said.contains(&said), "{round}");
        let mut stretches = subject.place.reprise(["stretches"]);
        let stretches = run(stretches.arg(&dir), None).text();
        assert!(stretches.contains("middle"), "{stretches}");
    }
}

#[test]
fn what_can_not_be_attached_to_is_said() {
    let mut subject = Subject::computing(1_000_000);
    let refused = |pid: String, why: &str| {
        let mut command = subject.place.reprise(["attach"]);
        let attached = run(command.arg(&pid), None);
        attached.assert_own_failure(OWN_FAILURE);
        assert!(attached.said().contains(why), "{}", attached.describe());
    };
    refused("4194304".into(), "no such process");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", subject.pid())).expect("its threads");
    let thread = tasks
        .flatten()
        .filter_map(|t| t.file_name().into_string().ok())
        .find(|t| *t != subject.pid().to_string());
    refused(thread.expect("another thread"), "a thread, not a process");
    // SAFETY: a process that this test started.
    unsafe { libc::kill(subject.pid(), libc::SIGSTOP) };
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", subject.pid()));
    while !state().expect("it is there").contains(") T ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    refused(subject.pid().to_string(), "it is stopped");
    // SAFETY: as above.
    unsafe { libc::kill(subject.pid(), libc::SIGCONT) };
    subject.read_to("1: ");
    assert!(!subject.place.traces().join("runs_on-0").exists());
}

/// A program in another language, for a second or two.
fn of_others(program: &str, args: &[&str], source: Option<(&str, &str)>) {
    let Some(program) = common::installed(program) else {
        return;
    };
    let mut command = Command::new(program);
    command.args(args);
    let files = tempfile::tempdir().expect("a directory");
    if let Some((name, text)) = source {
        std::fs::write(files.path().join(name), text).expect("its source");
        command.arg(files.path().join(name));
    }
    let mut subject = Subject::start(command);
    subject.read_to("go");
    let from = subject.said.len();
    let dir = subject.attach(&[]);
    assert_eq!(subject.finish(), Some(0), "{}", subject.said);
    closed(&dir);
    let replay = subject.place.replay(&dir);
    assert!(replay.status.success(), "{}", replay.describe());
    let said = replay.text();
    assert!(
        subject.said[from..].ends_with(&said),
        "{}",
        replay.describe()
    );
    assert!(said.contains("end "), "{}", replay.describe());
}

/// What others write to memory that they share with it is not in the trace, and the user is told so.
#[test]
fn others_who_write_to_its_memory_are_named() {
    let mut command = Command::new(built("shares_with_its_child"));
    command.arg("20");
    let mut subject = Subject::start(command);
    subject.read_to("ready");
    let dir = subject.attach(&[]);
    subject.tell(b".");
    assert_eq!(subject.finish(), Some(0), "{}", subject.said);
    closed(&dir);
    let info = subject.place.info(&dir);
    let warnings = info.0["warnings"].to_string();
    assert!(
        warnings.contains("which is not recorded, has /dev/zero"),
        "{warnings}"
    );
    // It has waited for its child, which is no part of the recording, and was never meant to be.
    assert_eq!(info.0["uncaptured"].as_array().map(Vec::len), Some(0));
}

/// Whoever is told that it is being recorded can end that at once, as it says: a signal ends the recording, and not only the command. So does
/// one from the keyboard, which is for the whole group, and another one when it takes too long.
#[test]
fn it_can_be_ended_as_soon_as_it_is_told() {
    for n in 0..20 {
        let mut subject = Subject::everywhere(1);
        let from = subject.said.len();
        let dir = subject.place.fresh("trace");
        let mut command = subject.place.reprise(["attach", "-o"]);
        command.arg(&dir).arg(subject.pid().to_string());
        command.process_group(0).stderr(Stdio::piped());
        let mut attach = command.spawn().expect("reprise");
        let mut told = String::new();
        let mut messages = BufReader::new(attach.stderr.take().expect("a pipe"));
        messages.read_line(&mut told).expect("a message");
        assert!(told.contains("recording process"), "{told}");
        let signal = [libc::SIGINT, libc::SIGTERM][n % 2];
        let to = attach.id() as i32 * [1, 1, -1][n % 3];
        for _ in 0..1 + n % 4 / 3 {
            // SAFETY: a process that this test started, and has not waited for.
            assert_eq!(unsafe { libc::kill(to, signal) }, 0);
        }
        assert_eq!(common::ended(&mut attach).code(), Some(0));
        closed(&dir);
        subject.tell(b"..");
        assert_eq!(subject.finish(), Some(7), "{}", &subject.said[from..]);
    }
}

/// Dead processes that nobody reaps, as a container without an init gathers them in some hours.
const DEAD: &str = "340";

/// However many there are to look at. In such a container the test above has found nobody.
#[test]
fn others_are_named_where_nobody_reaps_the_dead() {
    let me = std::env::current_exe().expect("this test");
    let mut command = Command::new("unshare");
    // SAFETY: asks for an id.
    if unsafe { libc::geteuid() } != 0 {
        command.arg("--map-root-user");
    }
    command.args(["--pid", "--fork", "--mount-proc"]);
    command.arg(built("reaps_nobody")).arg(DEAD).arg(me);
    command.args([
        "--exact",
        "attach::others_who_write_to_its_memory_are_named",
    ]);
    let out = run(&mut command, None);
    if out.said().contains("unshare:") {
        return common::skip("this user can't make a namespace of processes");
    }
    assert!(out.status.success(), "{}", out.describe());
    assert!(out.text().contains("1 passed"), "{}", out.describe());
}

const PYTHON: &str = "
import threading, time, random, queue, select, os
q = queue.Queue(); total = 0; over = False
def produce():
    while not over: q.put(random.random()); time.sleep(0.002)
def consume():
    global total
    while not over:
        try: total += q.get(timeout=0.01)
        except queue.Empty: pass
def polls():
    e = select.epoll(); r, w = os.pipe(); e.register(r)
    while not over: e.poll(0.01)
ts = [threading.Thread(target=f) for f in (produce, consume, consume, polls)]
for t in ts: t.start()
print('go', flush=True)
for i in range(40):
    time.sleep(0.02); print(i, total, sum(random.random() for _ in range(5000)), flush=True)
over = True
for t in ts: t.join()
print('end', total, time.time())
";

#[test]
fn python_threads() {
    of_others("python3", &["-u"], Some(("threads.py", PYTHON)));
}

const NODE: &str = "
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (isMainThread) {
  const w = new Worker(__filename); let n = 0;
  w.on('message', m => { if (n++ == 0) console.log('go'); });
  const t = setInterval(() => console.log(Math.random(), n), 50);
  setTimeout(() => { clearInterval(t); w.terminate().then(() => console.log('end', n, Date.now())); }, 1500);
} else {
  let x = []; setInterval(() => { x.push(new Array(1000).fill(Math.random())); parentPort.postMessage(x.length); }, 4);
}
";

#[test]
fn node_workers() {
    of_others("node", &[], Some(("workers.js", NODE)));
}

#[test]
fn a_guest_of_go() {
    let mut command = Command::new(built("go_garbage"));
    command.args(Guest::new("go_garbage").args);
    let subject = Subject::start(command);
    // It may have ended already, which is told.
    let mut attach = subject.place.reprise(["attach", "-b"]);
    let attached = run(attach.arg(subject.pid().to_string()), None);
    assert!(
        attached.status.success() || attached.said().contains("ended"),
        "{}",
        attached.describe()
    );
}
