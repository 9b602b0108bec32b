//! Replay is replay: it works with the network off and with the program, its libraries and its files gone, and touches nothing
//! outside its trace.

use crate::common;

use common::{assert_same, built, installed, run, Guest, Workplace, REPRISE};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with its own copy of a guest, of the libraries it needs and of the loader; the guest's path.
fn with_own_libraries(place: &Workplace, name: &str) -> (PathBuf, PathBuf) {
    let dir = place.fresh_dir("copy");
    let program = dir.join(name);
    std::fs::copy(built(name), &program).expect("copy");
    let ldd = Command::new("ldd").arg(&program).output().expect("ldd");
    for word in String::from_utf8_lossy(&ldd.stdout)
        .split_whitespace()
        .filter(|w| w.starts_with('/'))
    {
        let from = Path::new(word);
        std::fs::copy(from, dir.join(from.file_name().expect("a name"))).expect("copy a library");
    }
    (dir, program)
}

#[test]
fn the_original_program_and_its_libraries_are_gone() {
    for (name, args) in [
        ("cut_sampling", &["20000000"][..]),
        ("cpp_threads", &[]),
        ("thread_create", &["6"]),
    ] {
        let place = Workplace::new();
        let (dir, program) = with_own_libraries(&place, name);
        let loader = dir.join("ld-linux-x86-64.so.2");
        let guest = Guest::program(loader)
            .args([
                "--library-path".into(),
                dir.clone().into_os_string(),
                program.into_os_string(),
            ])
            .args(args.iter().copied());
        let recording = place.record(&guest);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        std::fs::remove_dir_all(&dir).expect("remove");
        for _ in 0..2 {
            assert_same(&recording.run, &place.replay(&recording.dir));
        }
    }
}

#[test]
fn the_files_it_read_and_wrote_are_gone_and_are_not_written_again() {
    let place = Workplace::new();
    let cwd = place.fresh_dir("data");
    std::fs::write(cwd.join("script.py"), "import sys\nprint(open('input').read(), sys.path[0] is not None)\nopen('output', 'w').write('done')\n").expect("a script");
    std::fs::write(cwd.join("input"), "what was in the file").expect("an input");
    let dir = place.fresh("trace");
    let guest = Guest::program(common::system_program("python3")).args(["script.py"]);
    let recorded = run(
        place.record_command(&guest, &[], &dir).current_dir(&cwd),
        None,
    );
    assert!(
        recorded.status.success() && recorded.text().contains("what was in the file"),
        "{}",
        recorded.describe()
    );
    assert_eq!(
        std::fs::read_to_string(cwd.join("output")).expect("the output"),
        "done"
    );
    for name in ["script.py", "input", "output"] {
        std::fs::remove_file(cwd.join(name)).expect("remove");
    }
    let replay = run(
        place
            .reprise(["replay".as_ref(), dir.as_os_str()])
            .current_dir(&cwd),
        None,
    );
    assert_same(&recorded, &replay);
    assert_eq!(
        std::fs::read_dir(&cwd).expect("a directory").count(),
        0,
        "the replay wrote files"
    );
    std::fs::remove_dir(&cwd).expect("remove");
    assert_same(&recorded, &place.replay(&dir));
}

#[test]
fn a_mapped_file_that_changes_later_is_replayed_as_it_was() {
    let place = Workplace::new();
    let (dir, program) = with_own_libraries(&place, "memory_mapped");
    let recording = place.record(&Guest::program(&program));
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    // Written over in place: the same inode, other bytes.
    std::fs::write(&program, vec![0x90; 100_000]).expect("write");
    assert_same(&recording.run, &place.replay(&recording.dir));
    std::fs::remove_dir_all(dir).expect("remove");
}

#[test]
fn without_a_network() {
    let place = Workplace::new();
    let recording = place.record(&Guest::new("tcp_loopback"));
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    let mut command = Command::new("unshare");
    command.args(["-rn", REPRISE, "replay"]).arg(&recording.dir);
    place.settle(&mut command);
    let replay = run(&mut command, None);
    if replay.said().contains("unshare:") {
        return common::skip("this user cannot make a network namespace");
    }
    assert_same(&recording.run, &replay);
}

#[test]
fn the_standard_input_of_a_replay_is_not_touched() {
    let place = Workplace::new();
    let recording = place.record(&Guest::new("echo_input").stdin("recorded input"));
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    let replay = run(
        &mut place.reprise(["replay".as_ref(), recording.dir.as_os_str()]),
        Some(b"something else entirely"),
    );
    assert_same(&recording.run, &replay);
}

#[test]
fn the_output_of_a_replay_may_go_anywhere() {
    // A closed standard output: the replay must not take this for the program's fault.
    let place = Workplace::new();
    let recording = place.record(&Guest::new("hello").args(["5"]));
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$@\" >/dev/null 2>&1", "sh", REPRISE, "replay"])
        .arg(&recording.dir);
    place.settle(&mut command);
    assert_eq!(run(&mut command, None).status.code(), Some(5));
}

/// What the processes of a replay ask of the kernel, as strace tells it: nothing that leaves the machine or reads the recorded
/// program's world.
#[test]
fn the_replaying_process_asks_only_for_memory_and_threads() {
    if installed("strace").is_none() {
        panic!("strace is not installed: scripts/setup-tests.sh installs what the tests need");
    }
    let place = Workplace::new();
    let data = place.fresh_dir("data");
    std::fs::write(data.join("script.py"), "import socket, threading, os\ns = socket.create_server(('127.0.0.1', 0))\nt = threading.Thread(target=lambda: socket.create_connection(s.getsockname()).sendall(b'x'))\nt.start()\nc, _ = s.accept()\nt.join()\nprint(c.recv(1), os.stat('script.py').st_size)\n").expect("a script");
    let dir = place.fresh("trace");
    let guest = Guest::program(common::system_program("python3")).args(["script.py"]);
    let recorded = run(
        place.record_command(&guest, &[], &dir).current_dir(&data),
        None,
    );
    assert!(recorded.status.success(), "{}", recorded.describe());
    let log = place.fresh("strace");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-o"])
        .arg(&log)
        .args(["-e", "trace=all", REPRISE, "replay"])
        .arg(&dir);
    place.settle(&mut command);
    let replay = run(&mut command, None);
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    if replay.status != recorded.status
        && (text.contains("PTRACE_") || replay.said().contains("ptrace"))
    {
        // Starting a replay needs a moment of ptrace here, which strace occupies.
        return common::skip("strace is in the way of the replay's own tracing");
    }
    assert_same(&recorded, &replay);
    for line in text.lines() {
        for call in [
            "socket(",
            "connect(",
            "bind(",
            "accept(",
            "accept4(",
            "sendto(",
            "recvfrom(",
            "listen(",
        ] {
            // The name stands behind the process id that strace prints first.
            assert!(
                !line
                    .trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ')
                    .starts_with(call),
                "the replay used the network: {line}"
            );
        }
        // Its name may be read from the trace; the file itself must not be looked for.
        let looks = ["open", "stat", "access", "readlink", "exec"]
            .iter()
            .any(|call| line.contains(call));
        assert!(
            !looks || !(line.contains("script.py") || line.contains("/usr/lib/python3")),
            "the replay looked for the program's files: {line}"
        );
    }
}
