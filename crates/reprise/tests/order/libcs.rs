//! Which C libraries `--engine order` can do with: those whose functions it finds by their names, whatever their version; all else is refused before
//! anything runs.

use crate::common;

use common::{assert_same, installed, run, system_program, Guest, Workplace};
use std::path::{Path, PathBuf};
use std::process::Command;

const ORDER: [&str; 2] = ["--engine", "order"];
/// Its own note of what it was built from.
const BUILD_ID: &str = ".note.gnu.build-id";
const VERSION: &[u8] = b"GNU C Library (";

fn exact(place: &Workplace, guest: &Guest) -> u64 {
    let recording = place.record_with(guest, &ORDER);
    let recorded = &recording.run;
    assert!(recorded.status.success(), "{}", recorded.describe());
    for order in ["partial", "total"] {
        let replay = place.replay_with(&recording.dir, &["--order", order]);
        assert_same(recorded, &replay);
    }
    place.info(&recording.dir).counter("hooked")
}

/// A copy of a file, changed by a command that gets its name at the end.
fn changed(place: &Workplace, file: &Path, command: &[&str]) -> PathBuf {
    let dir = place.fresh_dir("changed");
    let copy = dir.join(file.file_name().expect("a name"));
    std::fs::copy(file, &copy).expect("a copy");
    let mut command_line = Command::new(command[0]);
    command_line.args(&command[1..]).arg(&copy);
    let done = run(&mut command_line, None);
    assert!(done.status.success(), "{}", done.describe());
    copy
}

fn contended(program: PathBuf) -> Guest {
    Guest::program(program).args(["4", "500"])
}

fn mutex_contention(kind: &str) -> PathBuf {
    common::built(&format!("mutex_contention{kind}"))
}

/// Whose threads meet where nobody sees it: told before anything runs, and recorded all the same when the user insists.
#[test]
fn programs_that_it_does_not_fit_are_refused() {
    let place = Workplace::new();
    let stripped = changed(&place, &mutex_contention("-static"), &["strip"]);
    let musl = place.path().join("musl");
    let source = place.path().join("musl.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nint main(void) { puts(\"musl\"); }\n",
    )
    .expect("a source");
    let compiler = installed("musl-gcc").expect("musl-gcc (scripts/setup-tests.sh installs it)");
    let built = run(
        Command::new(compiler).arg(&source).arg("-o").arg(&musl),
        None,
    );
    assert!(built.status.success(), "{}", built.describe());
    for (unfit, why) in [
        (Guest::new("mutex_contention-static"), "statically"),
        (Guest::program(stripped), "statically"),
        (Guest::program(&musl), "not glibc"),
        (Guest::new("go_channels"), "Go"),
        (Guest::program("/usr/bin/java"), "Java"),
        (Guest::program(system_program("node")), "Node.js"),
    ] {
        let recording = place.record_with(&unfit, &ORDER);
        recording.run.assert_own_failure(125);
        let said = recording.run.said();
        assert!(
            said.contains(why) && said.contains("--engine serial") && said.contains("--force"),
            "{said}"
        );
        assert!(!recording.dir.exists(), "an empty trace is left");
    }
    // One thread: with more, whatever happens without a call could come out otherwise in the replay.
    let insisted = Guest::new("hello-static");
    for guest in [insisted, Guest::program(&musl)] {
        let forced = place.record_with(&guest, &["--engine", "order", "--force"]);
        assert!(forced.run.status.success(), "{}", forced.run.describe());
        assert_same(&forced.run, &place.replay(&forced.dir));
    }
}

/// Others start such programs, too: then each is told once, and recorded.
#[test]
fn programs_that_others_start_are_told() {
    let place = Workplace::new();
    let each_of = [common::built("hello-static"), common::built("go_channels")];
    let [plain, go] = each_of.map(|path| path.display().to_string());
    let script =
        format!("{plain}; {plain}; {go} > /dev/null; node -e 'console.log(1)' > /dev/null; true");
    let shell = Guest::program(system_program("sh")).args(["-c", &script]);
    let recording = place.record_with(&shell, &ORDER);
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    let said = recording.run.said();
    for why in ["statically", "written in Go", "Node.js"] {
        assert_eq!(said.matches(why).count(), 1, "{said}");
    }
    assert!(said.contains("--engine serial"), "{said}");
    let fit = place.record_with(
        &Guest::program("/bin/sh").args(["-c", "ls /; true"]),
        &ORDER,
    );
    assert!(
        !fit.run.said().contains("may diverge"),
        "{}",
        fit.run.said()
    );
}

/// An emulator maps the libc of the program that it emulates: that is no library of its own, and none of its functions are replaced.
#[test]
fn an_emulated_program_keeps_its_libc() {
    let place = Workplace::new();
    let guest = Guest::program(system_program("qemu-x86_64")).args([common::built("hello")]);
    exact(&place, &guest);
}

/// A dynamic program keeps the names that it asks libc for.
#[test]
fn stripped_programs() {
    let place = Workplace::new();
    let stripped = changed(&place, &mutex_contention(""), &["strip", "--strip-all"]);
    let hooked = exact(&place, &contended(stripped));
    assert_eq!(hooked, exact(&place, &contended(mutex_contention(""))));
}

/// A libc that nobody has seen before: no build id, and a version of its own.
#[test]
fn a_libc_of_an_unknown_version() {
    let place = Workplace::new();
    let own = place.record_with(&contended(mutex_contention("")), &ORDER);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let libc = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.ends_with("/libc.so.6"))
        .expect("a libc");
    let copy = changed(
        &place,
        Path::new(libc),
        &["objcopy", "--remove-section", BUILD_ID],
    );
    let mut bytes = std::fs::read(&copy).expect("a library");
    let at = bytes
        .windows(VERSION.len())
        .position(|w| w == VERSION)
        .expect("what it says of itself");
    bytes[at..at + 5].copy_from_slice(b"Other");
    std::fs::write(&copy, bytes).expect("a library");
    let dir = copy.parent().expect("a directory");
    let hooked = exact(
        &place,
        &contended(mutex_contention("")).env("LD_LIBRARY_PATH", dir),
    );
    assert_eq!(hooked, place.info(&own.dir).counter("hooked"));
}
