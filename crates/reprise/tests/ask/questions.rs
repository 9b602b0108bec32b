//! Questions to a recording: every value of an expression (`values`), every call of a function (`calls`), all writers of a location (`where`), the
//! first difference of two recordings (`diff`).

use crate::common;

use common::{run, Guest, Outcome, Recording, Run, Workplace, OWN_FAILURE};
use std::path::Path;

guests! { asked, asked_cpp }

const ORDER: &[&str] = &["--engine", "order"];
/// How often the guest's threads call `deposit`.
const DEPOSITS: usize = 8;

/// Asks a recording.
fn ask(place: &Workplace, dir: &Path, arguments: &[&str]) -> Run {
    let mut command = place.reprise(&arguments[..2]);
    command.env("LC_ALL", "C").env("DEBUGINFOD_URLS", "");
    let run = run(command.arg(dir).args(&arguments[2..]), None);
    run.assert_civil();
    run
}

/// The lines that answer a question.
fn lines(place: &Workplace, trace: &Recording, arguments: &[&str]) -> Vec<String> {
    let run = ask(place, &trace.dir, arguments);
    assert!(run.status.success(), "{}", run.describe());
    run.text().lines().map(String::from).collect()
}

/// What is behind the last `: EXPR = ` of each line.
fn values(lines: &[String], expression: &str) -> Vec<String> {
    let sign = format!(": {expression} = ");
    let value = |l: &String| l.split_once(&sign).map(|(_, v)| v.to_string());
    lines.iter().map(|l| value(l).expect("a value")).collect()
}

/// The lines as JSON.
fn objects(lines: &[String]) -> Vec<serde_json::Value> {
    let parse = |l: &String| serde_json::from_str(l).expect("JSON");
    lines.iter().map(parse).collect()
}

/// The number of the guest's line that begins or ends so.
fn line_with(source: &str, text: &str) -> usize {
    let all = std::fs::read_to_string(common::top().join("tests/guests").join(source));
    let all = all.expect("a guest's source");
    all.lines().position(|l| l.contains(text)).expect("a line") + 1
}

#[test]
fn each_value_at_a_line_is_told() {
    values_at_a_line(&[]);
}

#[test]
fn each_value_at_a_line_is_told_of_a_recording_by_order() {
    values_at_a_line(ORDER);
}

fn values_at_a_line(flags: &[&str]) {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("asked"), flags);
    let at = format!("asked.c:{}", line_with("asked.c", "here it grows"));
    let of = |e: &str| values(&lines(&place, &trace, &["values", e, "--at", &at]), e);
    // Numbers by compiled code, all others by gdb; in any case as gdb prints them.
    let amounts = of("amount");
    assert_eq!(amounts.len(), DEPOSITS);
    for (expression, one, two) in [
        ("amount", "1", "2"),
        ("amount * 1000 - 3000", "-2000", "-1000"),
        ("color", "RED", "GREEN"),
        ("letter", "98 'b'", "99 'c'"),
        ("byte", "0 '\\000'", "1 '\\001'"),
        ("half", "0.5", "1"),
        (
            "amount == 1 ? 5L : 1 / (amount - 2)",
            "5",
            "<Division by zero>",
        ),
    ] {
        let wanted = |a: &String| if a == "1" { one } else { two };
        let wanted: Vec<&str> = amounts.iter().map(wanted).collect();
        assert_eq!(of(expression), wanted, "{expression}");
    }
    assert!(of("name").iter().any(|v| v.ends_with(" \"one\"")));
    // What a pointer leads to, which is nowhere at times, and of which gdb says why.
    let read = of("node->value");
    let count = |value: &str| read.iter().filter(|v| *v == value).count();
    assert_eq!((count("10"), count("20")), (2, 2), "{read:?}");
    assert_eq!(count("<Cannot access memory at address 0x0>"), 4);
    let last = of("total");
    assert_eq!(
        last.last().map(String::as_str),
        Some("10").filter(|_| amounts[7] == "2").or(Some("11"))
    );
}

#[test]
fn values_come_with_event_thread_and_place() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("asked"));
    let all = lines(
        &place,
        &trace,
        &["values", "amount", "--function", "deposit", "--json"],
    );
    let all = objects(&all);
    assert_eq!(all.len(), DEPOSITS);
    let of = |v: &serde_json::Value| (v["event"].as_u64(), v["thread"].as_u64());
    let events: Vec<_> = all.iter().map(|v| of(v).0).collect();
    assert!(events.is_sorted() && events[0].is_some());
    for one in &all {
        assert_eq!(one["function"], "deposit");
        assert_eq!(one["file"], "asked.c");
        // The thread's next event tells the thread, and is the thread's in the trace as well.
        let event = one["event"].as_u64().expect("an event").to_string();
        let dump = place.reprise(["dump", "--json", "--from", &event, "--to", &event]);
        let mut dump = dump;
        let dump = run(dump.arg(&trace.dir), None);
        let event: serde_json::Value = serde_json::from_str(dump.text().trim()).expect("JSON");
        assert_eq!(event["tid"], one["thread"], "{event} {one}");
    }
    // A part of the run, and of the threads.
    let thread = all[0]["thread"].to_string();
    let one = [
        "values",
        "amount",
        "--function",
        "deposit",
        "--thread",
        &thread,
    ];
    let one = lines(&place, &trace, &one);
    assert_eq!(values(&one, "amount"), ["1"; DEPOSITS / 2]);
    let [from, to] = [2, 5].map(|i| all[i]["event"].to_string());
    let part = [
        "values",
        "amount",
        "--function",
        "deposit",
        "--from",
        &from,
        "--to",
        &to,
        "--json",
    ];
    let part = objects(&lines(&place, &trace, &part));
    assert_eq!(part, all[2..=5]);
}

#[test]
fn each_write_is_told() {
    writes(&[]);
}

#[test]
fn each_write_is_told_of_a_recording_by_order() {
    writes(ORDER);
}

fn writes(flags: &[&str]) {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("asked"), flags);
    let all = lines(&place, &trace, &["values", "total"]);
    assert_eq!(all.len(), 1 + DEPOSITS, "{all:?}");
    assert!(all[0].ends_with("before: total = 0"), "{all:?}");
    let at = format!(
        "deposit at asked.c:{}: total = ",
        line_with("asked.c", "here it grows")
    );
    assert!(all[1..].iter().all(|l| l.contains(&at)), "{all:?}");
    assert!(all[DEPOSITS].ends_with("total = 12"), "{all:?}");
    // A struct is written in two pieces, and shown whole.
    let copies = values(&lines(&place, &trace, &["values", "last"]), "last");
    assert!(copies.len() > DEPOSITS && copies.iter().any(|v| v == "{value = 20, next = 0x0}"));
    // What the kernel writes counts, and what changes nothing.
    let letters = lines(&place, &trace, &["values", "letters[0]", "--watch"]);
    let shown = values(&letters, "letters[0]");
    assert_eq!(shown, ["0 '\\000'", "97 'a'", "122 'z'", "122 'z'"]);
    assert!(letters[1].contains("read"), "{letters:?}");
    // What a name means at a place.
    let local = ["values", "amount", "--watch", "--function", "deposit"];
    let local = lines(&place, &trace, &local);
    assert!(local[0].contains("before: amount = "), "{local:?}");
    assert!(local[1..].iter().any(|l| l.contains("deposit at asked.c:")));
}

#[test]
fn what_a_crash_shows_is_followed_from_the_beginning() {
    let place = Workplace::new();
    let guest = Guest::new("asked").args(["crash"]);
    let trace = place.record(&guest.ends(Outcome::Signal(libc::SIGSEGV)));
    // A name of the crash's frame, and of one above.
    for expression in ["node", "argc"] {
        let all = lines(&place, &trace, &["values", expression]);
        assert!(all.len() > 1, "{all:?}");
    }
}

#[test]
fn values_of_the_standard_library_are_shown_as_gdb_prints_them() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("asked_cpp"));
    let at = format!(
        "asked_cpp.cpp:{}",
        line_with("asked_cpp.cpp", "here the entries")
    );
    let of = |e: &str, at: &str| values(&lines(&place, &trace, &["values", e, "--at", at]), e);
    let entries = of("entries", &at);
    assert_eq!(entries[0], "std::vector of length 1, capacity 1 = {1}");
    assert_eq!(
        entries[2],
        "std::vector of length 3, capacity 4 = {1, 2, 3}"
    );
    assert_eq!(of("name", &at)[..2], ["\"odd\"", "\"even\""]);
    let sums = of("sums", &at);
    assert_eq!(
        sums[2],
        "std::map with 2 elements = {[\"even\"] = 2, [\"odd\"] = 1}"
    );
    assert_eq!(of("entries.size()", &at), ["1", "2", "3", "4"]);
    // One line, compiled twice.
    let at = format!(
        "asked_cpp.cpp:{}",
        line_with("asked_cpp.cpp", "here it is doubled")
    );
    assert_eq!(of("result", &at), ["0", "0", "2", "2", "4", "4"]);
    assert_eq!(of("sizeof(value)", &at), ["4", "8", "4", "8", "4", "8"]);
}

#[test]
fn what_can_not_be_answered_is_said_in_a_line() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("asked"));
    let ends = format!("asked.c:{}", line_with("asked.c", "return NULL;"));
    for (arguments, says) in [
        (
            &["values", "amount +", "--function", "deposit"][..],
            "syntax error",
        ),
        (
            &["values", "nothing", "--function", "deposit"],
            "No symbol \"nothing\"",
        ),
        (&["values", "nothing"], "No symbol \"nothing\""),
        (
            &["values", "total", "--function", "nowhere"],
            "no function nowhere",
        ),
        (
            &["values", "total", "--at", "asked.c:9999"],
            "no line asked.c:9999",
        ),
        (
            &["values", "last.next->value"],
            "Cannot access memory at address 0x0",
        ),
        (&["values", "lock"], "40 bytes"),
        (&["values", "total", "--pid", "1"], "no process 1"),
        (
            &["values", "total", "--from", "99999999"],
            "no event 99999999",
        ),
        (
            &["values", "amount", "--at", &ends, "--function", "main"],
            "cannot be used with",
        ),
    ] {
        let run = ask(&place, &trace.dir, arguments);
        run.assert_own_failure(OWN_FAILURE);
        let said = run.said();
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
    // A line that has no code is one that has some; what is never come to, or written, is no failure.
    let comment = line_with("asked.c", "// A line that another thread passes");
    let at = format!("asked.c:{comment}");
    let moved = ask(&place, &trace.dir, &["values", "me", "--at", &at]);
    let next = format!("the next line that has some is {}", comment + 1);
    assert!(
        moved.status.success() && moved.said().contains(&next),
        "{}",
        moved.describe()
    );
    assert_eq!(moved.text().lines().count(), DEPOSITS);
    for question in [
        &["values", "node", "--function", "crash"][..],
        &["values", "*(int *) 0x1000"],
    ] {
        let none = ask(&place, &trace.dir, question);
        assert!(
            none.status.success() && !none.said().is_empty(),
            "{}",
            none.describe()
        );
    }
    // Of an engine whose recordings can't be debugged.
    let det = place.record_with(&Guest::new("asked"), &["--engine", "det"]);
    let run = ask(&place, &det.dir, &["values", "total"]);
    run.assert_own_failure(OWN_FAILURE);
    assert!(run.said().contains("not debugged"), "{}", run.said());
}

#[test]
fn a_process_that_becomes_another_program_is_asked_in_both() {
    common::built("debugged");
    let place = Workplace::new();
    let trace = place.record(&Guest::new("debugged_exec").args(["self"]));
    let before = ["values", "prepared", "--function", "prepare"];
    let before = values(&lines(&place, &trace, &before), "prepared");
    assert_eq!(before, ["0", "1", "3"]);
    let after = lines(
        &place,
        &trace,
        &["values", "amount", "--function", "deposit"],
    );
    assert_eq!(after.len(), 10, "{after:?}");
    assert_eq!(lines(&place, &trace, &["calls", "prepare"]).len(), 3);
    assert_eq!(lines(&place, &trace, &["calls", "main"]).len(), 2);
}

#[test]
fn a_kept_stretch_is_asked_from_where_it_begins() {
    let place = Workplace::new();
    let guest = common::kept::guest(&[], &["1", "513", "crash"]);
    let guest = guest.ends(Outcome::Signal(libc::SIGSEGV));
    let trace = place.record_with(&guest, &["--keep", "256K"]);
    let first = place.info(&trace.dir).0["kept_from"].as_u64();
    let first = first.expect("a kept stretch");
    let visits = ["values", "signals", "--function", "on_signal", "--json"];
    let visits = objects(&lines(&place, &trace, &visits));
    let writes = objects(&lines(&place, &trace, &["values", "signals", "--json"]));
    assert!(!visits.is_empty() && writes.len() > visits.len());
    for one in visits.iter().chain(&writes) {
        assert!(one["event"].as_u64().is_some_and(|e| e >= first), "{one}");
    }
    // Each write makes one more of what was there before.
    let numbers: Vec<i64> = writes
        .iter()
        .filter_map(|w| w["value"].as_str()?.parse().ok())
        .collect();
    assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "{numbers:?}");
}

#[test]
fn each_call_is_told() {
    calls(&[]);
}

#[test]
fn each_call_is_told_of_a_recording_by_order() {
    calls(ORDER);
}

fn calls(flags: &[&str]) {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("asked"), flags);
    // Without arguments by compiled code, with them by gdb: the same calls.
    let short = objects(&lines(&place, &trace, &["calls", "deposit", "--json"]));
    let long = ["calls", "deposit", "--args", "--returns", "--json"];
    let long = objects(&lines(&place, &trace, &long));
    assert_eq!((short.len(), long.len()), (DEPOSITS, DEPOSITS));
    let call = line_with("asked.c", "deposit(me, ");
    for (one, other) in short.iter().zip(&long) {
        for part in ["event", "thread", "function", "caller"] {
            assert_eq!(one[part], other[part], "{part}");
        }
        assert_eq!(one["caller"]["function"], "saver");
        assert_eq!(one["caller"]["line"], call);
        assert_eq!(other["arguments"][0]["name"], "amount");
        assert_eq!(other["returned"]["value"], "void");
    }
    // Calls in calls are told in the order of their beginnings.
    let inner = lines(
        &place,
        &trace,
        &["calls", "factorial", "--args", "--returns"],
    );
    let inner: Vec<&str> = inner.iter().filter_map(|l| l.split("  ").nth(2)).collect();
    assert!(
        inner[0].starts_with("factorial(n=5) from main at asked.c:"),
        "{inner:?}"
    );
    assert!(inner[4].starts_with("factorial(n=1) from factorial at asked.c:"));
    for (line, value) in inner.iter().zip(["120", "24", "6", "2", "1"]) {
        assert!(line.ends_with(&format!(" -> {value}")), "{line}");
    }
    let none = ask(&place, &trace.dir, &["calls", "crash"]);
    assert!(
        none.status.success() && none.said().contains("never called"),
        "{}",
        none.describe()
    );
    let unknown = ask(&place, &trace.dir, &["calls", "nowhere"]);
    unknown.assert_own_failure(OWN_FAILURE);
    assert!(
        unknown.said().contains("no function nowhere"),
        "{}",
        unknown.said()
    );
}

#[test]
fn a_call_that_crashes_has_not_returned() {
    let place = Workplace::new();
    let guest = Guest::new("asked").args(["crash"]);
    let trace = place.record(&guest.ends(Outcome::Signal(libc::SIGSEGV)));
    let all = lines(&place, &trace, &["calls", "crash", "--args", "--returns"]);
    assert_eq!(all.len(), 1);
    assert!(all[0].contains("crash(node=0x0) from main at"), "{all:?}");
    assert!(all[0].ends_with(", has not returned"), "{all:?}");
}

#[test]
fn calls_of_methods_and_templates_are_told() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("asked_cpp"));
    let all = lines(
        &place,
        &trace,
        &["calls", "Ledger::add", "--args", "--returns"],
    );
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(
        all[0].contains("name=\"odd\", amount=1) from main at"),
        "{all:?}"
    );
    assert!(all[3].ends_with(" -> 4"), "{all:?}");
    let twice = lines(&place, &trace, &["calls", "twice"]);
    let count = |name: &str| twice.iter().filter(|l| l.contains(name)).count();
    assert_eq!(
        (count("twice<int>"), count("twice<long>")),
        (3, 3),
        "{twice:?}"
    );
}

#[test]
fn all_writers_of_a_location_are_told_with_counts() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("asked"));
    let all = objects(&lines(&place, &trace, &["where", "letters[0]", "--json"]));
    let of = |w: &serde_json::Value| (w["writes"].as_u64(), w["value"].to_string());
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(of(&all[0]), (Some(1), "\"97 'a'\"".into()));
    let total = objects(&lines(&place, &trace, &["where", "total", "--json"]));
    assert_eq!(total.len(), 1, "{total:?}");
    assert_eq!(total[0]["writes"], DEPOSITS);
    assert_eq!(total[0]["threads"].as_array().map(Vec::len), Some(2));
    assert_eq!(total[0]["place"]["function"], "deposit");
    // By its address, as a table.
    let values = lines(&place, &trace, &["values", "&total", "--function", "fill"]);
    let address = values[0].rsplit(' ').nth(1).expect("an address");
    let table = lines(&place, &trace, &["where", address]);
    assert!(
        table.len() == 2 && table[1].contains("deposit at asked.c:"),
        "{table:?}"
    );
}

#[test]
fn the_first_difference_of_two_recordings_is_told() {
    let place = Workplace::new();
    let differ = |a: &Recording, b: &Recording| {
        let mut command = place.reprise(["diff", "--json"]);
        let run = run(command.arg(&a.dir).arg(&b.dir), None);
        run.assert_civil();
        let found: serde_json::Value = serde_json::from_str(run.text().trim()).expect("JSON");
        (run.status.code(), found)
    };
    let echo = |text: &str| place.record(&Guest::new("echo_input").stdin(text.as_bytes().to_vec()));
    let [one, same, other] = ["a line\n", "a line\n", "a lime\n"].map(echo);
    let (status, found) = differ(&one, &same);
    assert_eq!(
        (status, &found["first"]),
        (Some(0), &serde_json::Value::Null),
        "{found}"
    );
    // The same call of the same thread, with other bytes.
    let (status, found) = differ(&one, &other);
    let first = &found["first"];
    assert_eq!(
        (status, &first["what"]),
        (Some(1), &"came".into()),
        "{found}"
    );
    assert_eq!(first["thread"], "main");
    assert!(first["a"]["text"].to_string().contains("a line"), "{first}");
    assert!(first["b"]["text"].to_string().contains("a lime"), "{first}");
    // Threads are known by who made them, whatever their ids.
    let [a, b] = [(); 2].map(|()| place.record(&Guest::new("asked")));
    let (_, found) = differ(&a, &b);
    assert_eq!(found["first"], serde_json::Value::Null, "{found}");
    let crash = Guest::new("asked").args(["crash"]);
    let crashed = place.record(&crash.ends(Outcome::Signal(libc::SIGSEGV)));
    let (status, found) = differ(&a, &crashed);
    assert_eq!(
        (status, &found["first"]["what"]),
        (Some(1), &"done".into()),
        "{found}"
    );
    // What can't be compared.
    let mut command = place.reprise(["diff"]);
    let programs = run(command.arg(&a.dir).arg(&one.dir), None);
    programs.assert_own_failure(OWN_FAILURE);
    assert!(
        programs.said().contains("two programs"),
        "{}",
        programs.said()
    );
}
