//! `reprise run`: what a thread prints has an order, the same in every run, and changes nothing in the order of anything else.

use crate::common;

use common::det::{counters, once_with, outputs_with, under_load};
use common::{assert_same, run, Guest, Workplace};
use reprise_abi::det::OPTIMISATIONS;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// Ways in which `det_printed` prints.
const WAYS: [&str; 8] = [
    "printf", "stderr", "puts", "write", "file", "writev", "memory", "all",
];

fn printed(threads: &str, how: &str) -> Guest {
    Guest::new("det_printed").args([threads, how])
}

/// With the delays of this seed; 0: without.
fn delays(seed: usize) -> Vec<String> {
    match seed {
        0 => Vec::new(),
        _ => vec![format!("--delays={seed}")],
    }
}

/// The one output of some runs with different delays.
fn the_output(guest: &Guest, runs: usize, flags: &[&str]) -> Vec<u8> {
    let all = outputs_with(guest, runs, |n| {
        let mut own = delays(n);
        own.extend(flags.iter().map(ToString::to_string));
        own
    });
    assert_eq!(all.len(), 1, "{} {flags:?}: {all:?}", guest.label());
    all.into_iter().next().expect("it is one")
}

/// In which order all was had, and what races have made of memory.
fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().last().expect("a line").to_string();
    assert!(line.starts_with("order "), "{text}");
    line
}

fn assert_whole(output: &[u8]) {
    let text = String::from_utf8_lossy(output);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let known = match words[..] {
            ["thread", _, "round", _, "line", _, "printf" | "write"]
            | ["order", _, "memory", _]
            | ["two", "parts"]
            | [_, "lines", "in", "the", "file,", _]
            | ["a", "line", "of", "puts(3)", "by", "somebody"] => true,
            [number] => number.parse::<i32>().is_ok(),
            _ => false,
        };
        assert!(known, "{line:?} in\n{text}");
    }
}

#[test]
fn prints_change_neither_the_order_nor_what_races_do() {
    for threads in ["2", "4"] {
        let plain = last_line(&the_output(&printed(threads, ""), 3, &[]));
        for how in WAYS {
            let output = the_output(&printed(threads, how), 2, &[]);
            // write(2) comes between what is in a buffer, and half a line may be.
            if how != "all" {
                assert_whole(&output);
            }
            assert_eq!(last_line(&output), plain, "{threads} {how}");
        }
    }
}

/// And on a machine that is busy with something else.
#[test]
fn nor_do_they_where_others_compute() {
    under_load(|| {
        let plain = last_line(&the_output(&printed("4", ""), 3, &[]));
        for how in ["printf", "stderr", "all"] {
            let output = the_output(&printed("4", how), 4, &[]);
            assert_eq!(last_line(&output), plain, "{how}");
        }
    });
}

/// Whichever of the optimisations is left out, but the one that this is.
#[test]
fn nor_do_they_without_any_optimisation() {
    for o in OPTIMISATIONS {
        // What races do is by chance where memory is common.
        let line = |output: &[u8]| match o.name {
            "isolation" => {
                let line = last_line(output);
                line.split(" memory").next().expect("a part").to_string()
            }
            _ => last_line(output),
        };
        let flags = ["--without", o.name];
        let once = |how: &str, seed: usize| {
            let place = Workplace::new();
            let delays = delays(seed);
            let all: Vec<&str> = flags
                .into_iter()
                .chain(delays.iter().map(String::as_str))
                .collect();
            let r = once_with(&place, &printed("4", how), &all, seed);
            assert!(r.status.success(), "{}: {}", o.name, r.describe());
            line(&r.stdout)
        };
        let plain = once("", 0);
        for how in ["printf", "all"] {
            let same = once(how, 3) == plain;
            assert_eq!(same, o.name != "io-turns", "{} {how}", o.name);
        }
    }
}

/// In a program in whose source the prints are, and not just in the way of its arguments.
#[test]
fn nor_do_they_where_they_are_in_the_code() {
    let plain = last_line(&the_output(&Guest::new("det_near_prints"), 3, &[]));
    let output = the_output(&Guest::new("det_near_prints-printing"), 3, &[]);
    assert!(output.split(|b| *b == b'\n').count() > 100);
    assert_eq!(last_line(&output), plain);
}

#[test]
fn prints_end_no_phase() {
    let place = Workplace::new();
    let rounds = |how: &str, flags: &[&str]| {
        let flags: Vec<&str> = ["--stats"].iter().chain(flags).copied().collect();
        let r = once_with(&place, &printed("4", how), &flags, 0);
        assert!(r.status.success(), "{}", r.describe());
        let all = counters(&r);
        (all["rounds"], all["io"])
    };
    let (plain, none) = rounds("", &[]);
    assert_eq!(none, 0);
    let (printing, some) = rounds("write", &[]);
    assert_eq!(printing, plain);
    assert!(some > 200, "{some}");
    let (without, none) = rounds("write", &["--without", "io-turns"]);
    assert_eq!(none, 0);
    assert!(without > 2 * plain, "{without} {plain}");
}

/// `cout` and `cerr` of C++ go through the streams of C.
#[test]
fn streams_of_cpp_change_nothing_either() {
    let plain = last_line(&the_output(&Guest::new("cpp_det_cout"), 3, &[]));
    let printing = Guest::new("cpp_det_cout").args(["prints"]);
    assert_eq!(last_line(&the_output(&printing, 5, &[])), plain);
}

#[test]
fn threads_share_streams() {
    for what in [
        "lines", "locked", "guarded", "forks", "file", "buffer", "for_ever", "wide", "pipe",
        "unlocked",
    ] {
        let guest = Guest::new("det_streams").args([what]);
        for flags in [
            &[][..],
            &["--without", "alone"],
            &["--without", "kept-turns"],
        ] {
            let output = the_output(&guest, 2, flags);
            let text = String::from_utf8_lossy(&output);
            let lines: Vec<&str> = text.lines().collect();
            let prints = lines.iter().filter(|l| l.starts_with("thread ")).count();
            match what {
                "lines" => {
                    let lines = lines.iter().filter_map(|l| l.split_once(" has line "));
                    let numbers: BTreeSet<&str> = lines.map(|(_, n)| n).collect();
                    assert_eq!((prints, numbers.len()), (240, 240), "{text}");
                }
                "locked" => {
                    // Between the two halves of a line is nothing of others.
                    let whole = |l: &&&str| {
                        let rest = l.trim_start_matches("thread ");
                        rest.len() == 1 || rest[1..].starts_with(" and a number ")
                    };
                    let whole = lines
                        .iter()
                        .filter(|l| l.starts_with("thread "))
                        .filter(whole);
                    assert_eq!(whole.count(), 80, "{text}");
                }
                "forks" => assert_eq!(lines.len(), 81, "{text}"),
                "buffer" => assert_eq!(lines.len(), 161, "{text}"),
                "for_ever" => assert_eq!(prints, 40, "{text}"),
                "wide" => assert_eq!(prints, 200, "{text}"),
                _ => {}
            }
        }
    }
}

#[test]
fn what_is_in_a_buffer_at_the_end_is_written() {
    let place = Workplace::new();
    let guest = Guest::new("det_streams").args(["unflushed"]);
    let all: BTreeSet<_> = (0..6)
        .map(|n| {
            let delays = delays(n);
            let flags: Vec<&str> = delays.iter().map(String::as_str).collect();
            let r = once_with(&place, &guest, &flags, n);
            assert_eq!(r.status.code(), Some(7), "{}", r.describe());
            r.text()
        })
        .collect();
    assert_eq!(all.len(), 1, "{all:?}");
    let text = all.first().expect("one");
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.ends_with("and this is left by 9, who ends the program\n"));
}

/// The report of conflicts says nothing of the streams' memory, and what races is told as ever.
#[test]
fn streams_are_no_conflicts() {
    let place = Workplace::new();
    let report = |how: &str| {
        let r = once_with(&place, &printed("4", how), &["--det-report"], 0);
        assert!(r.status.success(), "{}", r.describe());
        let said = r.said();
        let lines = said
            .lines()
            .filter(|l| l.starts_with("reprise: conflicting"));
        let racing: BTreeSet<String> = lines.map(str::to_string).collect();
        (racing, last_line(&r.stdout), said)
    };
    let (plain, order, _) = report("");
    assert!(!plain.is_empty());
    let (printing, same_order, said) = report("printf");
    assert_eq!(order, same_order);
    assert_eq!(plain, printing, "{said}");
}

#[test]
fn prints_are_recorded_and_come_out_again() {
    let place = Workplace::new();
    let guests = [printed("4", "all"), printed("2", "printf")]
        .into_iter()
        .chain(["lines", "locked", "file"].map(|what| Guest::new("det_streams").args([what])));
    for guest in guests {
        let r = place.record_with(&guest, &["--engine", "det"]);
        assert_eq!(r.run.status.code(), Some(0), "{}", r.run.describe());
        assert_same(&r.run, &place.replay(&r.dir));
    }
}

/// With what `--pure` makes of time, too.
#[test]
fn pure_runs_print_without_a_change() {
    let plain = last_line(&the_output(&printed("4", ""), 2, &["--pure"]));
    let output = the_output(&printed("4", "all"), 3, &["--pure"]);
    assert_eq!(last_line(&output), plain);
}

/// Who reads the program's output, by and by, has no part in the order.
#[test]
fn a_slow_reader_changes_nothing() {
    let place = Workplace::new();
    let plain = last_line(&the_output(&printed("4", ""), 1, &[]));
    let script = "\"$0\" run -- \"$1\" 4 printf | { sleep 1; cat; }; \"$0\" run -- \"$1\" 4 write | while read -r l; do echo \"$l\"; done";
    let mut command = std::process::Command::new(common::system_program("sh"));
    let guest = printed("4", "");
    command.args([OsString::from("-c"), script.into()]);
    command.args([OsString::from(common::REPRISE), guest.program.into()]);
    place.settle(&mut command);
    let r = run(&mut command, None);
    let orders: Vec<String> = r
        .text()
        .lines()
        .filter(|l| l.starts_with("order "))
        .map(str::to_string)
        .collect();
    assert_eq!(orders, [plain.clone(), plain], "{}", r.describe());
}
