//! Where the processor can't let cpuid trap, it is replaced in code that is proven to have it, and nowhere else: other bytes that look like it
//! stay, and `info` names the files they are in.

use crate::common;

use common::{assert_same, run, system_program, Guest, Recording, Workplace};
use serde_json::Value;

/// As on a processor that can't let cpuid trap, whatever this one can.
const SWITCH: &[&str] = &["--no-cpuid-trapping"];

fn recorded(place: &Workplace, guest: &Guest) -> Recording {
    let recording = place.record_with(guest, SWITCH);
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    for _ in 0..2 {
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
    recording
}

/// The files of which the trace says that their cpuid is native.
fn native(place: &Workplace, recording: &Recording) -> Vec<String> {
    let dir = recording.dir.to_str().expect("a name");
    let json = run(&mut place.reprise(["info", "--json", dir]), None).text();
    let info: Value = serde_json::from_str(&json).expect("JSON");
    let files = info["native_cpuid"].as_array().expect("a list");
    let names = files
        .iter()
        .map(|f| f.as_str().expect("a name").to_string());
    names.collect()
}

fn replaced(place: &Workplace, recording: &Recording) -> usize {
    let dir = recording.dir.to_str().expect("a name");
    let dump = run(&mut place.reprise(["dump", "--kind", "patch", dir]), None).text();
    dump.matches("int3 for cpuid").count()
}

#[test]
fn cpuid_bytes() {
    let place = Workplace::new();
    let guest = Guest::new("cpuid_bytes").args(["cpuid_bytes.heap", "cpuid_bytes.raw"]);
    let recording = recorded(&place, &guest);
    // Its own, and those of ld.so.
    assert!(replaced(&place, &recording) > 1);
    let native = native(&place, &recording);
    for name in ["cpuid_bytes.raw", "/cpuid_bytes"] {
        let named = native.iter().any(|n| n.ends_with(name));
        assert!(named, "{name} is not in {native:?}");
    }
}

/// Statically linked: no header says where the entries for unwinding are.
#[test]
fn programs_without_a_linker() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("instructions-static"));
    let text = recording.run.text();
    assert!(text.contains("rdrand 0x0, rdseed 0x0"), "{text}");
    assert!(replaced(&place, &recording) > 1);
}

/// Modules without a table of functions: what is reached from the entry.
#[test]
fn programs_without_a_table_of_functions() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("go_channels"));
    assert!(replaced(&place, &recording) > 1);
}

/// Its heap is a file that can be run and written.
#[test]
fn sbcl() {
    let place = Workplace::new();
    let guest = Guest::program(system_program("sbcl")).args([
        "--no-userinit",
        "--non-interactive",
        "--eval",
        "(progn (print (reduce #'* (loop for i from 1 to 30 collect i))) (print (sb-thread:join-thread (sb-thread:make-thread (lambda () (get-universal-time))))))",
    ]);
    let recording = recorded(&place, &guest);
    assert!(recording
        .run
        .text()
        .contains("265252859812191058636308480000000"));
}

/// It translates a program's code, of which it must see what the files have.
#[test]
fn valgrind() {
    let place = Workplace::new();
    let guest = Guest::program(system_program("valgrind"))
        .args(["-q".into(), system_program("true").into_os_string()]);
    let recording = recorded(&place, &guest);
    let native = native(&place, &recording);
    let named = native.iter().any(|n| n.contains("ld-linux"));
    assert!(named, "{native:?}");
}
