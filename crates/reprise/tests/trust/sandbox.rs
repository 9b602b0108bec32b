//! Programs that lock themselves in: seccomp filters, namespaces, other ids, chroot, prctl; and what a recording refuses.

use crate::common;

use common::{
    assert_same, built, check_times, knob, run, system_program, Guest, Workplace, REPRISE,
};
use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

guests! { seccomp_filter, seccomp_kill, seccomp_threads, sandbox_namespaces, sandbox_identity, prctl_options, refusals, seccomp_exec, sandbox_pids }

#[test]
fn without_rewriting_of_sites() {
    for name in ["seccomp_filter", "seccomp_threads"] {
        check_times(&Guest::new(name), &["--no-patch"], 1, 1);
    }
}

/// Processes that others have in namespaces of their own, as containers do: their numbers there are those of the program's, too, in its namespaces.
struct Container(Child);

impl Container {
    fn start() -> Container {
        let mut command = Command::new("unshare");
        // SAFETY: a plain call.
        if unsafe { libc::geteuid() } != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--pid", "--fork", "--kill-child", "sh", "-c"]);
        command.arg("for i in 1 2 3 4 5 6 7 8 9; do sleep infinity & done; echo ready; wait");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut container = Container(child);
        let mut line = String::new();
        let out = container.0.stdout.take().expect("its output");
        let read = BufReader::new(out).read_line(&mut line);
        read.expect("a line");
        assert_eq!(line, "ready\n");
        container
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Who is killed before it knows itself is looked for by its number, and found dead whoever else has that number.
#[test]
fn numbers_that_others_have_as_well() {
    let _container = Container::start();
    for engine in ["serial", "order"] {
        check_times(&Guest::new("sandbox_pids"), &["--engine", engine], 4, 1);
    }
}

#[test]
fn under_chaos() {
    for seed in 1..4 {
        check_times(
            &Guest::new("seccomp_threads"),
            &[&format!("--chaos={seed}")],
            1,
            1,
        );
    }
}

#[test]
fn what_is_refused_is_told_with_its_reason() {
    let place = Workplace::new();
    let recording = place.record(&Guest::new("refusals"));
    let info = place.info(&recording.dir);
    let warnings = info.0["warnings"].to_string();
    for word in [
        "ptrace",
        "listener",
        "4089",
        "Dispatch",
        "PR_SET_MM",
        "PR_SET_MDWE",
        "process_vm_writev",
    ] {
        assert!(
            recording.run.notes.contains(word),
            "{word} is not named: {}",
            recording.run.describe()
        );
        assert!(
            warnings.contains(word),
            "info does not name {word}: {warnings}"
        );
    }
}

/// A line for each kind, while the program still runs: it ends when all were read.
#[test]
fn what_is_refused_is_told_at_once() {
    const KINDS: [&str; 11] = [
        "ptrace",
        "io_setup",
        "io_uring",
        "vmsplice",
        "AF_PACKET",
        "modify_ldt",
        "perf_event_open",
        "userfaultfd",
        "ARCH_SET_GS",
        "CLONE_SIGHAND",
        "int 0x80",
    ];
    let place = Workplace::new();
    for engine in ["serial", "none"] {
        let dir = place.fresh("trace");
        let flags = [format!("--engine={engine}")];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut command = place.record_command(&Guest::new("told_at_once"), &flags, &dir);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (told, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let reads = thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = told.send(line);
            }
        });
        let mut missing = KINDS.to_vec();
        while !missing.is_empty() {
            let line = lines.recv_timeout(common::hang_limit());
            let line = line.unwrap_or_else(|_| panic!("{engine}: not told of: {missing:?}"));
            missing.retain(|kind| !line.contains(kind));
        }
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(b"\n").expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{engine}: {output:?}");
        assert!(output.stdout.ends_with(b"the end\n"), "{output:?}");
        reads.join().expect("all was read");
        // In the end none is told of again.
        let again: Vec<String> = lines.try_iter().filter(|l| l.contains("it got")).collect();
        assert!(again.is_empty(), "{again:?}");
        if engine == "serial" {
            let warnings = place.info(&dir).0["warnings"].to_string();
            let all = KINDS.iter().all(|kind| warnings.contains(kind));
            assert!(all, "{warnings}");
        }
    }
}

/// The instruction asks nobody; the next gate or fault finds that the runtime has lost its place.
#[test]
fn who_takes_gs_is_ended_with_words() {
    let place = Workplace::new();
    for args in [["memory"], ["nowhere"]] {
        let guest = Guest::new("changes_gs").args(args);
        let native = guest.native(&place);
        assert!(native.status.success(), "{}", native.describe());
        for engine in ["serial", "none"] {
            let dir = place.fresh("trace");
            let engine = format!("--engine={engine}");
            let r = run(&mut place.record_command(&guest, &[&engine], &dir), None);
            assert_eq!(r.status.code(), Some(125), "{args:?}: {}", r.describe());
            assert!(r.said().contains("wrgsbase"), "{args:?}: {}", r.describe());
        }
    }
}

#[test]
fn a_program_into_which_the_agent_may_not_look_hands_its_files_over() {
    // Not dumpable, and recorded by a user without privileges: /proc/PID/fd is closed to the agent.
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        return check_times(&Guest::new("sandbox_identity"), &[], 1, 2).truncate(0);
    }
    let place = tempfile::tempdir().expect("a directory");
    let (reprise, guest) = (place.path().join("reprise"), place.path().join("guest"));
    std::fs::copy(REPRISE, &reprise).expect("copy reprise");
    std::fs::copy(built("sandbox_identity"), &guest).expect("copy the guest");
    let path = CString::new(place.path().as_os_str().as_bytes()).expect("a path");
    // SAFETY: a path of ours.
    assert_eq!(unsafe { libc::chown(path.as_ptr(), 65534, 65534) }, 0);
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(system_program("setpriv"));
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&reprise)
            .args(words)
            .current_dir(place.path())
            .env("REPRISE_TRACE_DIR", place.path().join("traces"));
        run(&mut command, None)
    };
    let recorded = as_nobody(&["record", "-o", "trace", "--", "./guest"]);
    assert!(recorded.status.success(), "{}", recorded.describe());
    assert!(
        !recorded.notes.contains("could not be kept"),
        "{}",
        recorded.describe()
    );
    for _ in 0..2 {
        assert_same(&recorded, &as_nobody(&["replay", "trace"]));
    }
}

/// A browser with its sandbox, as an ordinary user: namespaces of users and of processes inside one another, of which none knows the numbers
/// of the others.
#[test]
fn a_browser_in_its_own_sandbox() {
    // SAFETY: a plain call.
    let root = unsafe { libc::geteuid() } == 0;
    let place = tempfile::tempdir().expect("a directory");
    let reprise = place.path().join("reprise");
    std::fs::copy(REPRISE, &reprise).expect("copy reprise");
    let page = "<html><body><script>document.write(6 * 7)</script></body></html>";
    std::fs::write(place.path().join("page.html"), page).expect("a page");
    let own = |path: &std::path::Path| {
        let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
        // SAFETY: a path of ours.
        assert!(!root || unsafe { libc::chown(path.as_ptr(), 65534, 65534) } == 0);
    };
    own(place.path());
    let as_nobody = |words: &[&str], home: &std::path::Path| {
        let mut command = match root {
            true => {
                let mut as_another = Command::new(system_program("setpriv"));
                as_another.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
                as_another.arg(&reprise);
                as_another
            }
            false => Command::new(&reprise),
        };
        command
            .args(words)
            .current_dir(place.path())
            .env("HOME", home)
            .env("REPRISE_TRACE_DIR", place.path().join("traces"));
        run(&mut command, None)
    };
    let browser = system_program("chromium-headless-shell");
    let browser = browser.to_str().expect("a path");
    for i in 0..knob("REPRISE_TEST_BROWSERS", 2) {
        let (trace, home) = (format!("trace{i}"), place.path().join(format!("home{i}")));
        std::fs::create_dir(&home).expect("a directory");
        own(&home);
        let data = format!("--user-data-dir={}", home.display());
        let url = format!("file://{}/page.html", place.path().display());
        let command = [browser, "--disable-gpu", "--dump-dom", &data, &url];
        let words = [&["record", "-o", &trace, "--"][..], &command].concat();
        let recorded = as_nobody(&words, &home);
        assert!(recorded.status.success(), "{}", recorded.describe());
        assert!(
            recorded.text().contains("42"),
            "recording {i}: {}",
            recorded.describe()
        );
        assert_same(&recorded, &as_nobody(&["replay", &trace], &home));
        std::fs::remove_dir_all(place.path().join(&trace)).expect("the trace");
    }
}
