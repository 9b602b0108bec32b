//! Sessions of gdb with traces of which only the last stretch was kept (`record --keep`): the debugger opens them where they begin, and all ways
//! back end there.

use super::gdb::{assert_said, said, session, states};
use super::kept::guest as stretch;
use super::{run, Guest, Outcome, Recording, Workplace, OWN_FAILURE};

/// So many events at the end of a trace, or less, are behind the last place at which the program can be seen.
const AFTER_THE_LAST_PLACE: u64 = 16;
const BACK_AT_THE_BEGINNING: &str = "No more reverse-execution history";

/// A long run that crashes in the end, the number of the event with which its kept stretch begins, and the number of all.
fn kept(place: &Workplace, flags: &[&str], threads: u32) -> (Recording, u64, u64) {
    let threads = threads.to_string();
    let guest = stretch(flags, &[&threads, "513", "crash"]).ends(Outcome::Signal(libc::SIGSEGV));
    // By `order` threads may be far apart where it begins: there is to be a signal behind that.
    let keep = if flags.is_empty() { "256K" } else { "768K" };
    let trace = place.record_with(&guest, &[flags, &["--keep", keep]].concat());
    let info = place.info(&trace.dir);
    let first = info.0["kept_from"].as_u64();
    let all = info.0["events"].as_u64().expect("events");
    let described = trace.run.describe();
    let first = first.filter(|n| *n > 0 && *n < all);
    (trace, first.expect(&described), all)
}

pub fn the_kept_beginning_is_where_a_session_starts_and_where_all_ways_back_end(flags: &[&str]) {
    let place = Workplace::new();
    let (trace, first, all) = kept(&place, flags, 3);
    let commands = [
        "when",
        "info sharedlibrary",
        "break on_signal",
        "continue",
        "backtrace",
        "reverse-stepi",
        "stepi",
        "reverse-continue",
        "when",
        "continue",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    let here = format!("event {} of {all}", begins(&place, &trace, flags, first));
    assert_said(
        &run,
        &[
            &here,
            // Mapped long before, which the trace says no more with an event.
            "libc.so.6",
            "Breakpoint 1, on_signal (signal=10)",
            "<signal handler called>",
            "body (which=",
            BACK_AT_THE_BEGINNING,
            &here,
            "Breakpoint 1, on_signal (signal=10)",
        ],
    );
}

pub fn who_wrote_last_is_found_from_the_crash_back(flags: &[&str]) {
    let place = Workplace::new();
    let (trace, first, _) = kept(&place, flags, 3);
    let text = trace.run.said();
    assert!(
        text.contains("debug it there with: reprise replay -d --at crash"),
        "{text}"
    );
    let commands = [
        "backtrace 1",
        "print $last = signals",
        "watch signals",
        "reverse-continue",
        "print signals == $last - 1",
        "backtrace 1",
        "delete",
        "reverse-continue",
        "when",
    ];
    let run = session(&place, &trace.dir, &["--at", "crash"], &commands);
    assert_said(
        &run,
        &[
            "in main (argc=",
            // gdb names a thread before these words only if it knows of two: the others may have ended before the last signal.
            "Hardware watchpoint 1: signals\n\nOld value = ",
            "$2 = 1\n",
            "on_signal (signal=10)",
            BACK_AT_THE_BEGINNING,
            &format!("event {} of", begins(&place, &trace, flags, first)),
        ],
    );
}

/// The number of the first thread's next event where the stretch begins, of which `first` is the first event. By `order` that thread may be further on
/// than others.
fn begins(place: &Workplace, trace: &Recording, flags: &[&str], first: u64) -> u64 {
    let run = session(place, &trace.dir, &[], &["when"]);
    let text = said(&run);
    let number = text
        .lines()
        .find_map(|l| l.strip_prefix("event ")?.split(' ').next()?.parse().ok());
    let number: u64 = number.unwrap_or_else(|| panic!("no event: {text}"));
    assert!(
        number == first || number > first && !flags.is_empty(),
        "{text}"
    );
    number
}

/// Beginnings at many places, of programs of all kinds: the state is the same whichever way it was come to.
pub fn a_place_is_the_same_forward_and_back(flags: &[&str]) {
    let place = Workplace::new();
    let mut begun = 0;
    let all = [
        "main_ends_first",
        "counter_lines",
        "mutex_kinds",
        "signal_between_threads",
        "memory_file_writes",
    ];
    // Go, and what is linked statically, is refused by `order`.
    let more = match flags.is_empty() {
        true => ["cpp_threads", "go_channels"],
        false => ["signals_while_waiting", "condition_variables"],
    };
    for name in all.into_iter().chain(more) {
        for guest in super::Source::read(name).guests() {
            let trace = place.record_with(&guest, &[flags, &["--keep", "1500"]].concat());
            let info = place.info(&trace.dir);
            let Some(first) = info.0["kept_from"].as_u64() else {
                continue;
            };
            let all = info.0["events"].as_u64().expect("events");
            let first = begins(&place, &trace, flags, first);
            if all - first < AFTER_THE_LAST_PLACE {
                continue;
            }
            // By `order` a thread may be past an event where the stretch begins.
            let inner = [2, 3, 4].map(|n| all - (all - first) / n);
            let is_there = |n: &u64| {
                let run = session(&place, &trace.dir, &[], &[&format!("run-to {n}")]);
                !said(&run).contains("was past event")
            };
            let Some(middle) = inner.into_iter().find(is_there) else {
                continue;
            };
            let way = [middle, first, middle, first];
            let there = states(&place, &trace.dir, "start", &way, 1);
            assert_eq!(there[..2], there[2..], "{name}");
            let there = states(&place, &trace.dir, "end", &way, 1);
            assert_eq!(there[..2], there[2..], "{name}");
            begun += 1;
        }
    }
    // By `order` it depends on when all threads of a short run sleep at the same time how many are cut: one of 28 times it was 4 of them.
    let least = if flags.is_empty() { 5 } else { 2 };
    assert!(begun >= least, "only {begun} traces were cut");
}

pub fn what_was_forgotten_is_said(flags: &[&str]) {
    let place = Workplace::new();
    let (trace, first, all) = kept(&place, flags, 1);
    let here = begins(&place, &trace, flags, first);
    let sentence = format!("only the last stretch of this run was kept, from event {first} on");
    let run_at = session(&place, &trace.dir, &["--at", "3"], &[]);
    assert_eq!(run_at.status.code(), Some(OWN_FAILURE), "{}", said(&run_at));
    assert!(said(&run_at).contains(&sentence), "{}", said(&run_at));
    let run_to = session(&place, &trace.dir, &[], &["run-to 3", "when", "events 3"]);
    assert_said(
        &run_to,
        &[
            &sentence,
            &format!("event {here} of {all}"),
            "-> here",
            &here.to_string(),
        ],
    );
    let info = run(place.reprise(["info"]).arg(&trace.dir), None);
    let row = info.text();
    let row = row.lines().find(|l| l.starts_with("kept "));
    assert!(
        row.is_some_and(|l| l.contains("the last stretch, from event ")),
        "{}",
        info.describe()
    );
    // What has all its events is not kept in this sense.
    let whole = place.record(&Guest::new("hello"));
    assert!(place.info(&whole.dir).0["kept_from"].is_null());
}

pub fn scripts_work_on_a_kept_stretch(flags: &[&str]) {
    let place = Workplace::new();
    let (trace, _, _) = kept(&place, flags, 2);
    let out = run(place.reprise(["backtrace"]).arg(&trace.dir), None);
    let text = out.text();
    assert!(
        out.status.success() && text.contains(" main at ") && text.contains("kept_stretch.c:"),
        "{}",
        out.describe()
    );
    let mut command = place.reprise(["replay", "--print", "on_signal", "signals"]);
    let printed = run(command.arg(&trace.dir), None);
    assert!(printed.status.success(), "{}", printed.describe());
    assert!(
        printed.text().contains("on_signal: signals = "),
        "{}",
        printed.describe()
    );
    let file = place.path().join("core");
    let mut command = place.reprise(["core", "crash"]);
    let made = run(command.arg(&trace.dir).arg("-o").arg(&file), None);
    assert!(
        made.status.success() && file.exists(),
        "{}",
        made.describe()
    );
}

pub fn a_condition_is_looked_for_up_to_the_beginning_and_back(flags: &[&str]) {
    let place = Workplace::new();
    let (trace, first, _) = kept(&place, flags, 1);
    let commands = [
        // The last one, and one that was forgotten.
        "break on_signal if signals == 7",
        "break on_signal if signals == 1",
        "reverse-continue",
        "print signals",
        "reverse-continue",
        "when",
        "continue",
        "print signals",
        "monitor conditions",
    ];
    let run = session(&place, &trace.dir, &["--at", "crash"], &commands);
    assert_said(
        &run,
        &[
            "on_signal (signal=10)",
            "$1 = 7\n",
            BACK_AT_THE_BEGINNING,
            &format!("event {} of", begins(&place, &trace, flags, first)),
            "on_signal (signal=10)",
            "$2 = 7\n",
            "1 conditions are compiled into the code; 0 visits",
        ],
    );
}
