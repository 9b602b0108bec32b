//! Where a value comes from (`origin`): through copies, registers, threads, pipes and processes, to the file it was read from, a constant, or what
//! computed it.

use crate::common;

use common::{run, Guest, Outcome, Recording, Run, Workplace, OWN_FAILURE};
use serde_json::Value;
use std::path::Path;

guests! { traced, traced_cpp }

const ORDER: &[&str] = &["--engine", "order"];
/// Where the producer begins to read in its file, where in that it begins to copy, and which character is asked for.
const OFFSET: u64 = 100 + 10 + 21;

fn origin(place: &Workplace, dir: &Path, arguments: &[&str]) -> Run {
    let mut command = place.reprise(["origin"]);
    command.env("LC_ALL", "C").env("DEBUGINFOD_URLS", "");
    let run = run(command.args(arguments).arg(dir), None);
    run.assert_civil();
    run
}

/// The steps of a trail, each an object.
fn steps(place: &Workplace, trace: &Recording, arguments: &[&str]) -> Vec<Value> {
    let run = origin(place, &trace.dir, &[arguments, &["--json"]].concat());
    assert!(run.status.success(), "{}", run.describe());
    let parse = |l: &str| serde_json::from_str(l).expect("JSON");
    run.text().lines().map(parse).collect()
}

/// The number of the guest's line that ends so.
fn line_with(source: &str, text: &str) -> u64 {
    let all = std::fs::read_to_string(common::top().join("tests/guests").join(source));
    let all = all.expect("a guest's source");
    let line = all.lines().position(|l| l.ends_with(text)).expect("a line");
    line as u64 + 1
}

/// Lines of the guest by which the value was copied, the last one first.
fn copied(steps: &[Value]) -> Vec<u64> {
    let copies = steps.iter().filter(|s| s["step"] == "copy");
    let line = |s: &Value| {
        let of = if s["caller"].is_null() {
            "place"
        } else {
            "caller"
        };
        s[of]["line"].as_u64()
    };
    let mut lines: Vec<u64> = copies.filter_map(line).collect();
    lines.dedup();
    lines
}

/// The crash of a guest that reads a file in which every character tells its place.
fn crashed(place: &Workplace, guest: &str) -> Recording {
    let file = place.path().join("in.txt");
    let text: Vec<u8> = (0..600u32).map(|n| 33 + (n % 90) as u8).collect();
    std::fs::write(&file, text).expect("a file");
    let guest = Guest::new(guest).args(["crash".as_ref(), file.as_os_str()]);
    place.record(&guest.ends(Outcome::Signal(libc::SIGABRT)))
}

#[test]
fn a_character_of_a_crash_is_followed_to_the_file_it_was_read_from() {
    for guest in ["traced", "traced-fast"] {
        let place = Workplace::new();
        let trace = crashed(&place, guest);
        let all = steps(&place, &trace, &["message[21]", "--at", "crash"]);
        // The character itself says where it was.
        let character = 33 + (OFFSET % 90) as u8;
        let value = all[0]["value"].as_str().expect("a value");
        assert_eq!(value, format!("{character} '{}'", character as char));
        let lines = copied(&all);
        for text in [
            "here the message is made",
            "here it is copied character by character",
            "here the structure is copied",
            "here the producer copies",
        ] {
            let line = line_with("traced.c", text);
            let near = |l: &u64| l.abs_diff(line) <= u64::from(guest == "traced-fast");
            assert!(lines.iter().any(near), "{guest}, {text}: {all:#?}");
        }
        let sent = all.iter().find(|s| s["step"] == "sent").expect("a sender");
        assert_eq!(
            (&sent["through"], &sent["position"]),
            (&"a pipe".into(), &25.into())
        );
        assert_ne!(sent["process"], all[0]["process"]);
        let last = all.last().expect("an end");
        assert_eq!(last["end"], "file", "{all:#?}");
        assert_eq!(last["offset"], OFFSET);
        assert_eq!(last["bytes"], format!("{character:02x}"));
        assert!(last["file"]
            .as_str()
            .is_some_and(|f| f.ends_with("/in.txt")));
        // For people.
        let said = origin(&place, &trace.dir, &["message[21]"]).text();
        let end = format!("in.txt, offset {OFFSET}: {character} ({character:#x})");
        assert!(
            said.lines().last().is_some_and(|l| l.contains(&end)),
            "{said}"
        );
    }
}

#[test]
fn trails_end_at_constants_computations_and_births() {
    let place = Workplace::new();
    let trace = crashed(&place, "traced");
    let of = |e: &str| steps(&place, &trace, &[e]);
    let operands = |all: &[Value]| -> Vec<u64> {
        let found = all.iter().filter(|s| s["step"] == "operand");
        let value = |s: &Value| {
            let bytes = s["bytes"].as_str()?;
            let low = u64::from_str_radix(bytes.get(..2)?, 16);
            low.ok()
        };
        let mut all: Vec<u64> = found.filter_map(value).collect();
        all.sort_unstable();
        all
    };
    let end = |all: &[Value]| {
        let found = all.iter().find(|s| s["step"] == "end");
        found.expect("an end").clone()
    };
    // Arithmetic, with all operands.
    let total = of("total");
    assert_eq!(end(&total)["end"], "computed");
    assert_eq!(
        end(&total)["place"]["line"],
        line_with("traced.c", "here it is added")
    );
    assert_eq!(operands(&total), [2, 40]);
    let first = of("there.first");
    assert_eq!(
        end(&first)["place"]["line"],
        line_with("traced.c", "here it is multiplied")
    );
    assert_eq!(operands(&first), [42, 84]);
    // Behind it, with a depth.
    let deeper = steps(&place, &trace, &["total", "--depth", "1"]);
    let constants: Vec<_> = deeper.iter().filter(|s| s["end"] == "constant").collect();
    assert_eq!(constants.len(), 2, "{deeper:#?}");
    assert!(constants.iter().all(|s| s["level"] == 1));
    // A literal of the program.
    let name = of("name[2]");
    assert_eq!(
        copied(&name),
        [line_with("traced.c", "here a constant is copied")]
    );
    assert_eq!(end(&name)["end"], "born");
    // From several buffers, in several pieces.
    let sent = of("sent[4]");
    assert_eq!(
        (&end(&sent)["end"], &end(&sent)["bytes"]),
        (&"constant".into(), &"65".into())
    );
    // Another thread.
    let joined = of("joined[1]");
    assert_eq!(
        copied(&joined),
        [line_with("traced.c", "here another thread writes")]
    );
    assert_ne!(joined[1]["thread"], joined[0]["thread"]);
    // Nobody.
    let stale = of("stale[3]");
    assert_eq!((stale.len(), &end(&stale)["end"]), (2, &"born".into()));
}

#[test]
fn optimised_cpp_with_threads_is_followed() {
    for flags in [&[][..], ORDER] {
        let place = Workplace::new();
        let guest = Guest::new("traced_cpp").args(["crash"]);
        let guest = guest.ends(Outcome::Signal(libc::SIGABRT));
        let trace = place.record_with(&guest, flags);
        let sum = steps(&place, &trace, &["sum"]);
        let end = sum.iter().find(|s| s["step"] == "end").expect("an end");
        assert_eq!(end["end"], "computed", "{sum:#?}");
        assert_eq!(
            end["place"]["line"],
            line_with("traced_cpp.cpp", "here it is computed")
        );
        let added = sum
            .iter()
            .any(|s| s["step"] == "operand" && s["number"] == 5);
        assert!(added, "{sum:#?}");
        // A character of the customer's name, which came through the pipe.
        let shown = steps(&place, &trace, &["shown[12]"]);
        let input = shown
            .iter()
            .find(|s| s["step"] == "input")
            .expect("an input");
        assert_eq!(input["bytes"], "75", "{shown:#?}");
        let sent = shown
            .iter()
            .find(|s| s["step"] == "sent")
            .expect("a sender");
        assert_eq!(sent["position"], 3);
    }
}

#[test]
fn what_cannot_be_answered_is_said_in_one_sentence() {
    let place = Workplace::new();
    let trace = crashed(&place, "traced");
    for (arguments, words) in [
        (&["nonsense"][..], "No symbol \"nonsense\""),
        (&["total +"], "syntax error"),
        (&["message"], "name a part of it, as message[0]"),
        (&["main"], "is a function"),
        (&["0x10"], "Cannot access memory"),
        (&["total", "--at", "100000000"], "no event 100000000"),
        (&["total", "--pid", "1"], "the trace has no process 1"),
    ] {
        let run = origin(&place, &trace.dir, arguments);
        assert!(
            run.said().contains(words),
            "{arguments:?}: {}",
            run.describe()
        );
        run.assert_own_failure(OWN_FAILURE);
    }
    let whole = place.record(&Guest::new("traced"));
    let run = origin(&place, &whole.dir, &["total", "--at", "crash"]);
    assert!(run.said().contains("did not crash"), "{}", run.describe());
}
