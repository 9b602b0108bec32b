//! Java's threads, as the JDK's own tool reads them from a core file of a replay.

use crate::common;

use common::{built, installed, run, skip, Guest, Outcome, Workplace};
use std::process::Command;

#[test]
fn the_jdk_reads_stacks_and_locks_of_a_core_file() {
    // The tool of the same JDK.
    let java = installed("java").and_then(|java| java.canonicalize().ok());
    let jhsdb = java.as_ref().map(|java| java.with_file_name("jhsdb"));
    let (Some(java), Some(jhsdb)) = (java, jhsdb.filter(|j| j.is_file())) else {
        return skip("there is no JDK");
    };
    built("java/AskedJava.class");
    let place = Workplace::new();
    let classes = common::sources().join("bin/java");
    let guest = Guest::program(&java).args([
        "-Xmx256m".into(),
        "-cp".into(),
        classes.into_os_string(),
        "AskedJava".into(),
    ]);
    let trace = place.record(&guest.ends(Outcome::Exit(3)));
    let core = place.path().join("core");
    let mut command = place.reprise(["core", "end", "-o"]);
    let made = run(command.arg(&core).arg(&trace.dir), None);
    assert!(made.status.success(), "{}", made.describe());
    // Reservations have no contents.
    let size = core.metadata().expect("a file").len();
    assert!(size < 1 << 30, "{size}");
    let mut command = Command::new(jhsdb);
    place.settle(&mut command);
    command
        .args(["jstack", "--locks", "--exe"])
        .arg(&java)
        .arg("--core")
        .arg(&core);
    let told = run(&mut command, None);
    let text = told.text();
    let thread = |name: &str| {
        let begins = text.find(&format!("\"{name}\" "));
        let rest = &text[begins.unwrap_or_else(|| panic!("{name}: {}", told.describe()))..];
        rest.split("\n\n\n").next().unwrap_or(rest).to_string()
    };
    for (name, says) in [
        ("main", ["AskedJava.main", "- locked <0x"]),
        ("waiter", ["AskedJava.waits", "WAITING (parking)"]),
        ("locker", ["AskedJava.locks", "- waiting to lock <0x"]),
    ] {
        let one = thread(name);
        assert!(says.iter().all(|s| one.contains(s)), "{one}");
    }
}
