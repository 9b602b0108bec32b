//! What is around a recording: memory shared with others, other identities and roots, terminals, tools that trace.

use crate::common;

use common::{
    assert_same, built, run, system_program, Guest, Outcome, Recording, Running, Workplace, REPRISE,
};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Records a command of a real program, replays it twice.
fn recorded(place: &Workplace, program: &str, args: &[&str], outcome: Outcome) -> Recording {
    let guest = Guest::program(system_program(program)).args(args);
    let recording = place.record(&guest);
    assert!(
        outcome.fits(recording.run.status),
        "{}",
        recording.run.describe()
    );
    for _ in 0..2 {
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
    recording
}

fn says(place: &Workplace, program: &str, args: &[&str], text: &str) {
    let r = recorded(place, program, args, Outcome::Exit(0));
    assert_eq!(r.run.text(), text, "{}", r.run.describe());
}

fn is_root() -> bool {
    // SAFETY: asks for an id.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn memory_shared_with_a_process_that_is_not_recorded() {
    for kind in ["posix", "file", "sysv"] {
        let place = Workplace::new();
        let path = place.fresh(&format!("reprise-test-{}", std::process::id()));
        let path = path.to_str().expect("a path").to_string();
        std::fs::write(&path, "").expect("a file");
        let record = || {
            let guest = Guest::new("shares_with_others").args([kind, &path]);
            let recording = place.record(&guest);
            assert!(
                recording.run.status.success(),
                "{}",
                recording.run.describe()
            );
            assert_same(&recording.run, &place.replay(&recording.dir));
            let warnings = place.info(&recording.dir).0["warnings"].to_string();
            let warned = recording.run.notes.contains("is not recorded");
            assert_eq!(warnings.contains("is not recorded"), warned, "{warnings}");
            (recording.run.text(), warned)
        };
        let mut outside = Command::new(built("shares_with_others"));
        outside.args([kind, &path, "42"]).stdin(Stdio::piped());
        let mut outside = outside.stdout(Stdio::piped()).spawn().expect("started");
        let mut first = String::new();
        let mut out = BufReader::new(outside.stdout.take().expect("a pipe"));
        out.read_line(&mut first).expect("its first line");
        assert_eq!(first, "ready\n");
        let with = record();
        drop(outside.stdin.take());
        assert!(common::ended(&mut outside).success());
        assert_eq!(with, ("42 is there\n".into(), true), "{kind}");
        // Alone, there is nothing to warn of.
        assert!(!record().1, "{kind}");
        let _ = std::fs::remove_file(format!("/dev/shm{}", &path[path.rfind('/').unwrap_or(0)..]));
    }
}

#[test]
fn a_program_that_would_be_somebody_else() {
    if !is_root() {
        return common::skip("only root can do this");
    }
    // Recorded by its owner's better, it is who it should be.
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path();
    let access = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
    };
    access(dir, 0o777);
    for (from, to) in [
        (Path::new(REPRISE), "reprise"),
        (&system_program("id"), "id"),
    ] {
        std::fs::copy(from, dir.join(to)).expect("a copy");
    }
    std::os::unix::fs::chown(dir.join("id"), Some(2), None).expect("its owner");
    access(&dir.join("id"), 0o4755);
    for (who, wanted) in [("0", "2"), ("65534", "65534")] {
        for script in ["exec ./id -u", "./id -u; exit 0"] {
            let run = |words: &[&str]| {
                let mut command = Command::new(system_program("setpriv"));
                let as_who = [format!("--reuid={who}"), "--clear-groups".into()];
                command.args(as_who).arg(dir.join("reprise")).args(words);
                command.current_dir(dir);
                run(command.env("REPRISE_TRACE_DIR", dir.join(who)), None)
            };
            let trace = format!("trace-{who}-{}", script.len());
            let recorded = run(&["record", "-o", &trace, "--", "sh", "-c", script]);
            assert_eq!(
                recorded.text(),
                format!("{wanted}\n"),
                "{}",
                recorded.describe()
            );
            // Traced by somebody without privileges, it isn't, and that is said.
            let warned = recorded.notes.contains("set-user-ID");
            assert_eq!(warned, who != "0", "{}", recorded.describe());
            assert_same(&recorded, &run(&["replay", &trace]));
        }
    }
}

#[test]
fn other_users_and_roots() {
    if !is_root() {
        return common::skip("only root can do this");
    }
    let place = Workplace::new();
    let script = "id -u; (exit 3); echo $?";
    says(
        &place,
        "su",
        &["nobody", "-s", "/bin/sh", "-c", script],
        "65534\n3\n",
    );
    says(
        &place,
        "chroot",
        &["/", "/bin/sh", "-c", "echo $(echo inside)"],
        "inside\n",
    );
    let script = "echo $$; sh -c 'echo $PPID; exit 3'; echo $?; (kill -9 $$; exit 0); sleep 0.01 & wait; echo end";
    let args = ["-p", "-f", "--mount-proc", "sh", "-c", script];
    says(&place, "unshare", &args, "1\n1\n3\nend\n");
    let args = [
        "-r",
        "-m",
        "-n",
        "-u",
        "-i",
        "sh",
        "-c",
        "id -u; hostname elsewhere; hostname",
    ];
    says(&place, "unshare", &args, "0\nelsewhere\n");
}

#[test]
fn a_terminal_of_its_own() {
    let place = Workplace::new();
    let command = "tty -s && stty size; trap 'echo int' INT; kill -INT $$; set -m; (exit 4) & wait %1; echo $?";
    let r = recorded(
        &place,
        "script",
        &["-qec", command, "/dev/null"],
        Outcome::Exit(0),
    );
    let text = r.run.text();
    assert!(text.starts_with("0 0\r\nint\r\n"), "{}", r.run.describe());
    assert!(text.ends_with("\r\n4\r\n"), "{}", r.run.describe());
}

#[test]
fn daemons_and_locks() {
    let place = Workplace::new();
    let script = "setsid -f sh -c 'read line <fifo; echo daemon $line'; echo parent";
    let script = format!("mkfifo fifo; {script}; (echo told >fifo) & exit 0");
    says(&place, "sh", &["-c", &script], "parent\ndaemon told\n");
    let script = "flock lock sh -c 'touch held; while [ ! -e go ]; do sleep 0.01; done; echo first' &
        while [ ! -e held ]; do sleep 0.01; done; flock -n lock echo no; echo $?; touch go; flock lock echo second; wait";
    says(&place, "sh", &["-c", script], "1\nfirst\nsecond\n");
}

#[test]
fn tools_that_trace_are_refused_with_a_reason() {
    let place = Workplace::new();
    let hello = built("hello");
    let hello = hello.to_str().expect("a path");
    for (program, args) in [
        ("gdb", vec!["-nx", "-batch", "-ex", "run", hello]),
        ("strace", vec!["-f", "-o", "/dev/null", hello]),
    ] {
        // What is said of it comes at the beginning of a line only where they say nothing themselves.
        let quietly = ["-c", "exec \"$0\" \"$@\" 2>/dev/null"];
        let tool = system_program(program);
        let guest = Guest::program(system_program("sh"))
            .args(quietly)
            .args([tool])
            .args(args);
        let recording = place.record(&guest);
        assert!(
            !recording.run.text().contains("hello"),
            "{}",
            recording.run.describe()
        );
        assert!(
            recording.run.notes.contains("ptrace"),
            "{}",
            recording.run.describe()
        );
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
}

#[test]
fn a_background_child_outlives_the_terminal_of_its_parent() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let guest =
        Guest::program(system_program("sh")).args(["-c", "(read x; echo got $x) <&0 & exit 7"]);
    let mut command = place.record_command(&guest.stdin("line\n"), &[], &dir);
    let recorded = Running::start(&mut command, Some(b"line\n")).finish();
    assert_eq!(recorded.status.code(), Some(7), "{}", recorded.describe());
    assert_same(&recorded, &place.replay(&dir));
}

#[test]
fn clocks_of_a_time_namespace() {
    if !is_root() {
        return common::skip("only root can do this");
    }
    let place = Workplace::new();
    let script = "import time
for clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME): assert time.clock_gettime(clock) > 1e8
time.sleep(0.01)
print(time.monotonic(), open('/proc/uptime').read())";
    let args = [
        "-T",
        "--monotonic",
        "100000000",
        "--boottime",
        "100000000",
        "python3",
        "-c",
        script,
    ];
    recorded(&place, "unshare", &args, Outcome::Exit(0));
}

#[test]
fn fanotify() {
    if !is_root() {
        return common::skip("only root can do this");
    }
    let place = Workplace::new();
    let script = "import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.fanotify_init(0, 0)
print(fd, ctypes.get_errno())
os.mkdir('watched')
print(libc.fanotify_mark(fd, 1, ctypes.c_uint64(0x08000028), -100, b'watched'), ctypes.get_errno())
open('watched/file', 'w').write('x')
print(len(os.read(fd, 4096)) // 24)";
    recorded(&place, "python3", &["-c", script], Outcome::Exit(0));
}
