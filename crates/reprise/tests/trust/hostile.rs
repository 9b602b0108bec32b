//! Programs that attack their recorder (`tests/guests/hostile`): they share memory with it, and write there what is not true. Nobody else may be harmed, nothing
//! may hang, and what becomes of the recording is said.

use crate::common;

use common::gdb::session;
use common::outsider::Outsider;
use common::{allow_uncaptured, run, Guest, Recording, Running, Workplace};
use reprise_abi::layout::{IMAGE_BASE, SESSION_BASE};
use reprise_abi::session::{Process, RequestBox, Session, Slot};
use reprise_launch::runtime::{RuntimeImage, EMBEDDED};
use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

/// A recording of the attack.
fn attacked(place: &Workplace, attack: &str, flags: &[&str]) -> Recording {
    attacked_with(place, attack, flags, &mut Outsider::new())
}

/// A recording of the attack on this process.
fn attacked_with(
    place: &Workplace,
    attack: &str,
    flags: &[&str],
    outsider: &mut Outsider,
) -> Recording {
    let mut args = vec![attack.to_string(), outsider.id().to_string()];
    let words = [
        SESSION_BASE as usize,
        offset_of!(Session, request),
        Session::slot_address(0, 0),
        offset_of!(Slot, kernel_pid),
        offset_of!(Slot, kernel_tid),
        offset_of!(Session, processes),
        offset_of!(Process, kernel_pid),
    ];
    args.extend(words.map(|w| w.to_string()));
    assert_eq!(offset_of!(RequestBox, args), 16, "as the guest knows it");
    let guest = Guest::new("hostile/forges").args(args);
    let dir = place.fresh("trace");
    let mut command = place.record_command(&guest, flags, &dir);
    // Whom such a program names may be anybody.
    let run = Running::start(allow_uncaptured(&mut command), None).finish();
    let recording = Recording { dir, run };
    outsider.assert_untouched(&format!("{attack} {flags:?}: {}", recording.run.describe()));
    recording
}

const ENGINES: [&str; 2] = ["serial", "order"];

/// The attack asks the recorder for something, and says the answer; `look` sees what was recorded.
fn asks(attack: &str, answer: &str, look: impl Fn(&Recording)) {
    for engine in ENGINES {
        let place = Workplace::new();
        let r = attacked(&place, attack, &["--engine", engine]);
        assert!(r.run.text().contains(answer), "{}", r.run.describe());
        look(&r);
    }
}

/// Requests for what only a thread of the program may ask for itself: refused, and said.
#[test]
fn nobody_is_seized_for_a_forged_exec() {
    for engine in ENGINES {
        for attack in ["exec", "exec_own", "exec_nobody"] {
            let place = Workplace::new();
            let r = attacked(&place, attack, &["--engine", engine]);
            let said = r.run.describe();
            assert!(r.run.text().contains("asked to exec it: 1\n"), "{said}");
            assert!(
                said.contains("a thread that had not asked for it"),
                "{said}"
            );
        }
    }
}

#[test]
fn no_file_of_somebody_else_is_read() {
    asks("file", "asked for its file: 5\n", |_| {});
}

/// The agent reads what the program could read: as root it has dropped its privileges.
#[test]
fn no_file_is_read_that_the_program_could_not_read() {
    let told = format!("asked for a secret: {}, 0\n", libc::EACCES);
    asks("secret", &told, |r| {
        if let Ok(secret) = std::fs::read("/etc/shadow") {
            let name = reprise_trace::ContentHash::of(&secret).to_hex();
            let kept = r.dir.join("files").join(name).exists();
            assert!(!kept, "{}", r.run.describe());
        }
    });
}

/// The agent waits for nobody who could write to a pipe: it answers that it can't keep one (EIO).
#[test]
fn a_pipe_is_no_file_to_wait_for() {
    asks("pipe", "asked for a pipe: 5\n", |_| {});
}

/// The agent asks who has the baton for long to give it up, and the driver of a replay tells who looks for the place of a cut that time passes: with a signal
/// that would end anybody else.
#[test]
fn nobody_else_gets_the_signals_of_agent_and_driver() {
    let place = Workplace::new();
    let mut outsider = Outsider::new();
    let r = attacked_with(&place, "cut", &["--engine", "serial"], &mut outsider);
    assert!(
        r.run.text().contains("was another one\n"),
        "{}",
        r.run.describe()
    );
    // It has read ids out of the session, which are others in a replay: its trace is one, and no more is promised.
    let info = run(&mut place.reprise(["info"]), None);
    assert!(info.status.success(), "{}", info.describe());
    for words in [&["replay"][..], &["verify"], &["backtrace"]] {
        let limit = ["--time-limit", "20"];
        let said = run(place.reprise(words).args(limit).arg(&r.dir), None).describe();
        outsider.assert_untouched(&said);
    }
    let debugged = session(&place, &r.dir, &[], &["continue", "info threads"]);
    outsider.assert_untouched(&debugged.describe());
}

#[test]
fn nobody_else_is_ended_with_a_full_trace() {
    for engine in ENGINES {
        // The recorder has the session's memory mapped, as its own processes have.
        for attack in ["full", "full_recorder"] {
            let place = Workplace::new();
            let flags = ["--engine", engine, "--max-size", "1M", "--on-full=stop"];
            let r = attacked(&place, attack, &flags);
            let said = r.run.describe();
            assert!(!r.run.text().contains("not ended"), "{said}");
            assert!(r.run.status.code().is_some(), "{said}");
            assert!(said.contains("recorded in"), "{said}");
        }
    }
}

/// The launcher ends what is left of a program under `det`, whose threads are processes; its agent is none of them.
#[test]
fn no_recorder_is_ended_for_a_thread() {
    let place = Workplace::new();
    let r = attacked(&place, "thread_recorder", &["--engine", "det"]);
    let said = r.run.describe();
    assert!(r.run.text().contains("was who records it\n"), "{said}");
    assert!(said.contains("recorded in"), "{said}");
    let info = run(place.reprise(["info"]).arg(&r.dir), None).describe();
    assert!(info.contains("exited with 0"), "{info}");
}

/// The agent looks for children of the program that it does not know: those of its launcher, itself among them, are none.
#[test]
fn nobody_of_the_recorders_is_missing() {
    for engine in ENGINES {
        let place = Workplace::new();
        let r = attacked(&place, "parent", &["--engine", engine]);
        let said = r.run.describe();
        assert!(r.run.text().contains("was its parent\n"), "{said}");
        assert!(!said.contains("uncaptured:"), "{said}");
    }
}

/// The agent follows the exec of a thread that has asked for it, and nobody else goes on meanwhile: not for ever.
#[test]
fn an_exec_that_never_comes_holds_up_nobody() {
    let place = Workplace::new();
    let r = attacked(&place, "exec_never", &["--engine", "order"]);
    let said = r.run.describe();
    assert!(r.run.text().contains("asked to exec it: 0\n"), "{said}");
    assert!(
        said.contains("it asked for that, and makes no such call"),
        "{said}"
    );
}

/// What a program tries that goes around its recorder (`tests/guests/hostile/escapes.c`): natively it may, so it is recorded; a replay of the trace,
/// with the rights of whoever replays it, may not.
struct Escape {
    attack: &'static str,
    /// What it says when it worked.
    says: &'static [&'static str],
    /// What a replay refuses.
    refused: &'static [&'static str],
}

const ESCAPES: [Escape; 8] = [
    Escape {
        attack: "write",
        says: &["a file"],
        refused: &["openat of "],
    },
    Escape {
        attack: "read",
        says: &["a secret"],
        refused: &["openat of /etc/passwd"],
    },
    Escape {
        attack: "connect",
        says: &["a connection"],
        refused: &["socket"],
    },
    Escape {
        attack: "signal",
        says: &["a signal", "a signal to a thread"],
        refused: &["kill", "tgkill"],
    },
    Escape {
        attack: "parent",
        says: &["its parent's memory", "a signal to its parent"],
        refused: &["/mem", "/fd/0", "process_vm_readv", "kill"],
    },
    Escape {
        attack: "output",
        says: &["another descriptor of the output"],
        refused: &["mmap", "ftruncate", "lseek", "dup3"],
    },
    Escape {
        attack: "exec",
        says: &[],
        refused: &["execve"],
    },
    Escape {
        attack: "fork",
        says: &[],
        refused: &["a process that is not in the recording"],
    },
];

/// The world outside, which notices what reaches it.
struct World {
    place: Workplace,
    listener: TcpListener,
    /// Writes a line for each signal that it gets.
    outsider: Child,
    heard: BufReader<ChildStdout>,
}

impl World {
    fn new() -> World {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a setting");
        let script = "import signal
signals = {signal.SIGUSR1: 'signal', signal.SIGUSR2: 'asked'}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print('ready', flush=True)
while True:
    print(signals[signal.sigwait(signals)], flush=True)";
        let mut outsider = Command::new("python3");
        let outsider = outsider.args(["-c", script]).stdin(Stdio::null());
        let mut outsider = outsider.stdout(Stdio::piped()).spawn().expect("python3");
        let heard = outsider.stdout.take().expect("a pipe");
        let mut world = World {
            place: Workplace::new(),
            listener,
            outsider,
            heard: BufReader::new(heard),
        };
        assert_eq!(world.line(), "ready\n");
        world
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.heard.read_line(&mut line).expect("a line");
        line
    }

    fn file(&self) -> PathBuf {
        self.place.path().join("escaped")
    }

    fn target(&self, attack: &str) -> String {
        match attack {
            "read" => "/etc/passwd".into(),
            "connect" => self
                .listener
                .local_addr()
                .expect("its port")
                .port()
                .to_string(),
            "signal" => self.outsider.id().to_string(),
            // So many seconds would a process stay.
            "fork" => "2".into(),
            _ => self.file().display().to_string(),
        }
    }

    /// Has anything been reached since the last time?
    fn was_reached(&mut self) -> bool {
        let connected = self.listener.accept().is_ok();
        let written = std::fs::remove_file(self.file()).is_ok();
        // SAFETY: a process that this test started, and has not waited for.
        unsafe { libc::kill(self.outsider.id() as i32, libc::SIGUSR2) };
        let mut signalled = false;
        while self.line() != "asked\n" {
            signalled = true;
        }
        connected || written || signalled
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.outsider.kill();
        let _ = self.outsider.wait();
    }
}

/// Where the runtime's text lies in the program: first byte, and how many.
fn text() -> [String; 2] {
    let image = RuntimeImage::load(EMBEDDED).expect("the runtime");
    let text = image
        .segments
        .iter()
        .find(|s| s.prot & libc::PROT_EXEC != 0);
    let text = text.expect("its text");
    [IMAGE_BASE + text.offset, text.len].map(|n| n.to_string())
}

fn escape(world: &World, attack: &str, flags: &[&str]) -> Recording {
    let mut args = vec![attack.to_string()];
    args.extend(text());
    args.push(world.target(attack));
    let guest = Guest::new("hostile/escapes").args(args);
    world.place.record_with(&guest, flags)
}

/// Processes that replay this trace.
fn replaying(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().expect("a path");
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = all.filter_map(|p| std::fs::read_to_string(p.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(dir)).collect()
}

#[test]
fn a_replay_reaches_nothing() {
    for engine in ENGINES {
        for e in &ESCAPES {
            let mut world = World::new();
            let r = escape(&world, e.attack, &["--engine", engine]);
            let what = format!("{} {engine}: {}", e.attack, r.run.describe());
            for said in e.says {
                let said = format!("ESCAPED: {said}\n");
                assert!(r.run.text().contains(&said), "{what}");
            }
            // While it is recorded, it does what it could do anyway.
            if ["write", "connect", "signal", "exec"].contains(&e.attack) {
                let begun = Instant::now();
                while !world.was_reached() {
                    assert!(begun.elapsed() < common::hang_limit(), "{what}");
                }
            }
            let replay = world.place.replay(&r.dir);
            assert!(
                !replay.text().contains("ESCAPED"),
                "{what} {}",
                replay.describe()
            );
            let verified = world.place.verify(&r.dir);
            assert_eq!(verified.status.code(), Some(125), "{}", verified.describe());
            for refused in e.refused {
                let all = verified.text();
                let said = format!("{what} {}", verified.describe());
                let (_, list) = all.split_once("was refused: ").expect(&said);
                assert!(list.contains(refused), "{said}");
            }
            let debugged = session(&world.place, &r.dir, &[], &["continue"]);
            assert!(
                !debugged.text().contains("ESCAPED"),
                "{what} {}",
                debugged.describe()
            );
            assert!(!world.was_reached(), "{what}");
            assert_eq!(replaying(&r.dir), [""; 0], "{what}");
        }
    }
}

/// What a debugger's user calls in a copy of the replayed process is in the box as well, whether it goes by the runtime or around it.
#[test]
fn a_function_called_by_the_debugger_reaches_nothing() {
    for engine in ENGINES {
        let mut world = World::new();
        let r = escape(&world, "write", &["--engine", engine]);
        assert!(world.was_reached(), "{}", r.run.describe());
        let (file, outsider) = (world.file(), world.outsider.id());
        let open = format!("(long)\"{}\", 0101, 0600", file.display());
        // By their numbers: getpid, openat, kill, socket, execve.
        let commands = [
            "break raw_once".into(),
            "continue".into(),
            "print raw_once(39, 0, 0, 0, 0, 0) > 1".into(),
            format!("print ((int (*)(long, int, int))open)({open}) < 0"),
            format!("print raw_once(257, -100, {open}, 0)"),
            format!("print raw_once(62, {outsider}, 10, 0, 0, 0)"),
            "print raw_once(41, 2, 1, 0, 0, 0)".into(),
            "print raw_once(59, (long)\"/bin/true\", 0, 0, 0, 0)".into(),
        ];
        let commands = commands.each_ref().map(String::as_str);
        let debugged = session(&world.place, &r.dir, &[], &commands);
        let what = debugged.describe();
        let told = [
            "$1 = 1\n",
            "$2 = 1\n",
            "$3 = -1\n",
            "$4 = -1\n",
            "$5 = -1\n",
            "$6 = -1\n",
        ];
        let said = debugged.text();
        for value in told {
            assert!(said.contains(value), "{engine}: no {value:?} in {what}");
        }
        assert!(!world.was_reached(), "{what}");
        assert_eq!(replaying(&r.dir), [""; 0], "{what}");
    }
}

/// A terminal is an input that can be written to.
#[test]
fn a_replay_does_not_write_to_its_input() {
    let world = World::new();
    let r = escape(&world, "output", &[]);
    for (confined, written) in [("0", 0), ("1", 1)] {
        let path = world.file();
        let mut how = std::fs::File::options();
        how.read(true).write(true).create(true).truncate(true);
        let input = how.open(&path).expect("a file");
        let mut command = world.place.reprise(["replay"]);
        command.arg(&r.dir).env("REPRISE_UNCONFINED", confined);
        command
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let ended = common::ended(&mut command.spawn().expect("a replay"));
        let len = std::fs::metadata(&path).expect("the file").len();
        assert_eq!(len, written, "{confined}: {ended}");
    }
}

/// It is the box that keeps them in.
#[test]
fn without_the_box_a_replay_reaches_what_its_user_can() {
    let mut world = World::new();
    let r = escape(&world, "write", &[]);
    assert!(world.was_reached());
    let mut command = world.place.reprise(["replay"]);
    let replay = run(command.arg(&r.dir).env("REPRISE_UNCONFINED", "1"), None);
    assert!(world.was_reached(), "{}", replay.describe());
}

/// What an ordinary user replays can't do what he could.
#[test]
fn an_ordinary_users_replay_reaches_nothing() {
    // SAFETY: plain call.
    if unsafe { libc::geteuid() } != 0 {
        return common::skip("only root can become somebody else");
    }
    let mut world = World::new();
    let shared = world.place.fresh_dir("shared");
    let tool = shared.join("reprise");
    std::fs::copy(common::REPRISE, &tool).expect("a copy of the command");
    let r = escape(&world, "write", &[]);
    assert!(world.was_reached());
    let moved = shared.join("trace");
    std::fs::rename(&r.dir, &moved).expect("to move the trace");
    run(
        Command::new("chown")
            .args(["-R", "65534:65534"])
            .arg(&shared),
        None,
    );
    let modes = [world.place.path(), &shared];
    run(Command::new("chmod").arg("777").args(modes), None);
    let replay = |confined: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command
            .arg(&tool)
            .arg("replay")
            .arg(&moved)
            .current_dir(&shared);
        command
            .env("REPRISE_UNCONFINED", confined)
            .env("REPRISE_TRACE_DIR", &shared);
        run(&mut command, None)
    };
    let said = replay("0").describe();
    assert!(said.contains("was refused: openat of "), "{said}");
    assert!(!world.was_reached(), "{said}");
    // He could.
    let said = replay("1").describe();
    assert!(world.was_reached(), "{said}");
}
