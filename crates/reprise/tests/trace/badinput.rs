//! Bad input: programs that can't be run, arguments that make no sense, places that can't be written.

use crate::common;

use common::{assert_same, built, run, Guest, Outcome, Run, Workplace, OWN_FAILURE, REPRISE};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

fn record(place: &Workplace, program: impl AsRef<OsStr>) -> Run {
    run(place.reprise(["record", "--"]).arg(program), None)
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

fn is_root() -> bool {
    // SAFETY: asks for an id.
    unsafe { libc::getuid() == 0 }
}

#[test]
fn missing_programs() {
    let place = Workplace::new();
    record(&place, "/no/such/program").assert_own_failure(NOT_FOUND);
    record(&place, "no-such-program-anywhere-on-the-path").assert_own_failure(NOT_FOUND);
    // A script whose interpreter is missing.
    let script = place.fresh("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("a script");
    mode(&script, 0o755);
    let out = record(&place, &script);
    assert!(
        matches!(out.status.code(), Some(NOT_EXECUTABLE | NOT_FOUND)),
        "{}",
        out.describe()
    );
    assert!(!out.said().is_empty());
}

#[test]
fn programs_that_cannot_be_executed() {
    let place = Workplace::new();
    let plain = place.fresh("plain");
    std::fs::write(&plain, "just text\n").expect("a file");
    mode(&plain, 0o644);
    record(&place, &plain).assert_own_failure(NOT_EXECUTABLE);
    record(&place, place.fresh_dir("dir")).assert_own_failure(NOT_EXECUTABLE);
    record(&place, "/dev/null").assert_own_failure(NOT_EXECUTABLE);
    // Executable, but neither ELF nor a script with a first line.
    mode(&plain, 0o755);
    record(&place, &plain).assert_own_failure(NOT_EXECUTABLE);
    std::fs::write(&plain, "").expect("a file");
    record(&place, &plain).assert_own_failure(NOT_EXECUTABLE);
}

/// A copy of `hello` with some bytes of its ELF header changed.
fn altered(place: &Workplace, changes: &[(usize, u8)]) -> PathBuf {
    let mut bytes = std::fs::read(built("hello")).expect("hello");
    for (at, value) in changes {
        bytes[*at] = *value;
    }
    let path = place.fresh("altered");
    std::fs::write(&path, bytes).expect("write");
    mode(&path, 0o755);
    path
}

#[test]
fn programs_of_other_machines() {
    let place = Workplace::new();
    // i386, 32 bits for this machine (x32), aarch64.
    for changes in [&[(4, 1), (18, 3)][..], &[(4, 1)], &[(18, 183)]] {
        let out = record(&place, altered(&place, changes));
        out.assert_own_failure(NOT_EXECUTABLE);
    }
    // Cut off in the middle of its headers, and of its contents.
    for left in [10, 70, 200, 5000] {
        let path = altered(&place, &[]);
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("open")
            .set_len(left)
            .expect("truncate");
        let out = record(&place, &path);
        out.assert_civil();
        assert!(!out.status.success(), "{}", out.describe());
    }
}

#[test]
fn senseless_arguments() {
    let place = Workplace::new();
    for args in [
        &[][..],
        &["frobnicate"],
        &["record"],
        &["record", "--"],
        &["record", "--engine", "perpetual", "--", "/bin/true"],
        &["record", "--max-size", "lots", "--", "/bin/true"],
        &["record", "--on-full=panic", "--", "/bin/true"],
        &["record", "--chaos=x", "--", "/bin/true"],
        &["record", "--until-failure", "-1", "--", "/bin/true"],
        &["verify", "-n", "many"],
        &["replay", "one", "two", "three"],
    ] {
        let out = run(&mut place.reprise(args), None);
        out.assert_civil();
        assert_eq!(out.status.code(), Some(OWN_FAILURE), "{}", out.describe());
        assert!(!out.said().is_empty(), "no message: {}", out.describe());
    }
    for args in [
        &["--help"][..],
        &["--version"],
        &["record", "--help"],
        &["replay", "--help"],
    ] {
        let out = run(&mut place.reprise(args), None);
        assert!(
            out.status.success() && !out.stdout.is_empty(),
            "{}",
            out.describe()
        );
    }
}

#[test]
fn arguments_of_the_program_are_left_alone() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let out = run(
        &mut place.record_command(
            &Guest::new("environment").args(["--help", "-o", "--", "x y"]),
            &[],
            &dir,
        ),
        None,
    );
    assert!(
        out.status.success() && out.text().contains("argument 4 has 3 bytes"),
        "{}",
        out.describe()
    );
}

#[test]
fn traces_that_cannot_be_written() {
    let place = Workplace::new();
    let into = |dir: &Path| {
        run(
            &mut place.record_command(&Guest::new("hello"), &[], dir),
            None,
        )
    };
    into(Path::new("/proc/trace")).assert_own_failure(OWN_FAILURE);
    into(Path::new("/dev/null/trace")).assert_own_failure(OWN_FAILURE);
    // A directory that has other things in it is not made a trace.
    let occupied = place.fresh_dir("occupied");
    std::fs::write(occupied.join("precious"), "data").expect("a file");
    into(&occupied).assert_own_failure(OWN_FAILURE);
    assert_eq!(
        std::fs::read_dir(&occupied).expect("a directory").count(),
        1,
        "something was written beside it"
    );
    // And a trace is not overwritten.
    let dir = place.fresh("trace");
    assert!(into(&dir).status.success());
    into(&dir).assert_own_failure(OWN_FAILURE);
    assert!(place.replay(&dir).status.success());
}

#[test]
fn few_descriptors() {
    let place = Workplace::new();
    for limit in [256, 32, 12] {
        let dir = place.fresh("trace");
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                &format!("ulimit -n {limit}; exec \"$@\""),
                "sh",
                REPRISE,
                "record",
                "-o",
            ])
            .arg(&dir)
            .arg("--")
            .arg(built("descriptors"));
        place.settle(&mut command);
        let out = run(&mut command, None);
        out.assert_civil();
        if out.status.code() == Some(OWN_FAILURE) {
            assert!(
                limit < 32 && !out.said().is_empty(),
                "{limit} descriptors should do: {}",
                out.describe()
            );
        }
    }
    // The program sees the limit, and nothing of the recorder among its descriptors.
    let dir = place.fresh("trace");
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "ulimit -n 64; exec \"$@\"",
            "sh",
            REPRISE,
            "record",
            "-o",
        ])
        .arg(&dir)
        .arg("--")
        .arg(built("closes_everything"));
    place.settle(&mut command);
    let out = run(&mut command, None);
    assert!(out.status.success(), "{}", out.describe());
    assert_same(&out, &place.replay(&dir));
}

#[test]
fn closed_standard_streams() {
    let place = Workplace::new();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let dir = place.fresh("trace");
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                &format!("exec \"$@\" {closed}"),
                "sh",
                REPRISE,
                "record",
                "-o",
            ])
            .arg(&dir)
            .arg("--")
            .arg(built("closes_everything"))
            .arg("silent");
        place.settle(&mut command);
        let out = run(&mut command, None);
        out.assert_civil();
        let replay = place.replay(&dir);
        replay.assert_civil();
        assert_eq!(
            out.status,
            replay.status,
            "with {closed}: {}\n{}",
            out.describe(),
            replay.describe()
        );
    }
}

#[test]
fn setuid_programs_gain_nothing() {
    if !is_root() {
        return common::skip("only root can make a setuid program");
    }
    let place = Workplace::new();
    open_to_all(&place);
    let setuid = place.fresh("setuid");
    std::fs::copy(built("identity"), &setuid).expect("copy");
    mode(&setuid, 0o4755);
    let out = run(&mut as_nobody(&place, &setuid, &[]), None);
    out.assert_civil();
    match out.status.code() {
        // Recorded without privileges: it must not have been root.
        Some(0) => assert!(out.text().contains("uid 65534 65534"), "{}", out.describe()),
        _ => assert!(
            !out.said().is_empty()
                && matches!(out.status.code(), Some(OWN_FAILURE | NOT_EXECUTABLE)),
            "{}",
            out.describe()
        ),
    }
}

/// Lets other users into the workplace.
fn open_to_all(place: &Workplace) {
    mode(place.path(), 0o777);
    mode(&place.traces(), 0o777);
}

/// `reprise record` of a program by the user `nobody`, with copies of everything that might lie where others can't read.
fn as_nobody(place: &Workplace, program: &Path, args: &[&str]) -> Command {
    let reprise = place.path().join("reprise");
    if !reprise.exists() {
        std::fs::copy(REPRISE, &reprise).expect("copy");
        mode(&reprise, 0o755);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&reprise)
        .args(["record", "-o"]);
    command
        .arg(place.path().join("nobodys-trace"))
        .arg("--")
        .arg(program)
        .args(args);
    place.settle(&mut command);
    let cwd = place.fresh_dir("open");
    mode(&cwd, 0o777);
    command.current_dir(cwd);
    command
}

#[test]
fn as_an_ordinary_user() {
    if !is_root() {
        return common::skip("this already runs as an ordinary user");
    }
    for name in [
        "thread_create",
        "racey",
        "cut_sampling",
        "signal_at_gate",
        "memory_mapped",
    ] {
        let place = Workplace::new();
        open_to_all(&place);
        let program = place.fresh("guest");
        std::fs::copy(built(name), &program).expect("copy");
        mode(&program, 0o755);
        let out = run(&mut as_nobody(&place, &program, &[]), None);
        assert!(out.status.success(), "{}", out.describe());
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(place.path().join("reprise"))
            .arg("replay")
            .arg(place.path().join("nobodys-trace"));
        place.settle(&mut command);
        let replay = run(&mut command, None);
        assert_same(&out, &replay);
    }
}

#[test]
fn a_program_that_forks_is_refused_or_recorded_but_never_garbled() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let guest = Guest::program(common::system_program("sh"))
        .args(["-c", "/bin/echo one; /bin/echo two"])
        .ends(Outcome::Any);
    let out = run(&mut place.record_command(&guest, &[], &dir), None);
    out.assert_civil();
    if out.status.success() {
        assert_eq!(out.text(), "one\ntwo\n", "{}", out.describe());
        assert_same(&out, &place.replay(&dir));
    } else {
        assert!(
            out.said().contains("fork") || out.said().contains("process"),
            "no clear message: {}",
            out.describe()
        );
    }
}

#[test]
fn doctor_and_demo() {
    let place = Workplace::new();
    let doctor = run(&mut place.reprise(["doctor"]), None);
    assert!(
        doctor.status.success() && doctor.text().lines().count() <= 60,
        "not one screen: {}",
        doctor.describe()
    );
    let json = run(&mut place.reprise(["doctor", "--json"]), None);
    assert!(
        json.status.success() && serde_json::from_slice::<serde_json::Value>(&json.stdout).is_ok(),
        "{}",
        json.describe()
    );
    let demo = run(&mut place.reprise(["demo"]), None);
    assert!(demo.status.success(), "{}", demo.describe());
}
