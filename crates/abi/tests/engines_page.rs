//! docs/ENGINES.md, written from the table of engines. After a change of the table, `REPRISE_BLESS=1 cargo test -p reprise-abi` writes the page anew;
//! without it the test fails when the page says something else than the table.

use reprise_abi::engine::{can, Engine, Rings, TraceOrder, ENGINES};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# Engines

<!-- Generated from crates/abi by `REPRISE_BLESS=1 cargo test -p reprise-abi`; changes made here are lost. -->

An engine decides in what order a program's threads go on, and what is logged of it (`record --engine NAME`; `run` uses `det`).
Nothing outside of an engine's own room asks for its name: it asks for what the engine can (`crates/abi/src/engine.rs`).

";

const ABILITIES: [(u32, &str); 15] = [
    (can::REPLAY, "recordings can be replayed"),
    (
        can::RUN_ONE_AT_A_TIME,
        "what is recorded is one thread at a time, in slices",
    ),
    (
        can::ORDER_SYNCHRONISATION,
        "threads run on all processors; what they synchronise by has an order",
    ),
    (
        can::SEPARATE_MEMORY,
        "threads have private views of memory, and are processes to the kernel",
    ),
    (can::REPEAT, "the same inputs make the same run, always"),
    (
        can::RUN_IN_EPOCHS,
        "threads run on all processors, in epochs that copies run again",
    ),
    (
        can::PIN,
        "a program of which one thread runs at a time stays on one processor",
    ),
    (can::BE_DEBUGGED, "can be debugged (`replay -d`)"),
    (
        can::BE_KEPT,
        "can keep the last stretch only (`record --keep`)",
    ),
    (can::ATTACH, "can begin with a running program (`attach`)"),
    (
        can::LEARN,
        "can learn functions that race (`replay --learn`)",
    ),
    (
        can::TOTAL_ORDER,
        "can be replayed in a total order (`replay --order total`)",
    ),
    (can::FIND_RACES, "races can be looked for (`races`)"),
    (
        can::FOLLOW_REBUILT,
        "can be replayed with a rebuilt program (`replay --with`)",
    ),
    (
        can::COUNT_OUTPUT,
        "every byte of output is known to be written before or after a process's end",
    ),
];

/// Those that users are told of.
fn shown() -> impl Iterator<Item = &'static Engine> {
    ENGINES.into_iter().filter(|e| !e.is_hidden)
}

/// A line of the table.
fn line(page: &mut String, what: &str, of: impl Fn(&Engine) -> String) {
    let cells: Vec<String> = shown().map(of).collect();
    let _ = writeln!(page, "| {what} | {} |", cells.join(" | "));
}

fn page() -> String {
    let mut page = String::from(HEAD);
    for e in shown() {
        let _ = writeln!(page, "- `{}`: {}.", e.name, e.about);
    }
    let names: Vec<String> = shown().map(|e| format!("`{}`", e.name)).collect();
    let _ = writeln!(
        page,
        "\n| | {} |\n|---|{}",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for (what, text) in ABILITIES {
        line(&mut page, text, |e| {
            if e.can(what) { "yes" } else { "-" }.into()
        });
    }
    line(&mut page, "order of the trace", |e| {
        match e.order {
            TraceOrder::Slices => "one sequence of slices",
            TraceOrder::Stamps => "stamps and operations on objects",
            TraceOrder::Told => "what each thread was told",
            TraceOrder::Goroutines => "operations of goroutines",
            TraceOrder::Nothing => "-",
        }
        .into()
    });
    line(&mut page, "event rings", |e| {
        match e.rings {
            Rings::One => "one",
            Rings::Each => "one a thread",
        }
        .into()
    });
    line(&mut page, "number in a session", |e| e.number.to_string());
    page
}

#[test]
fn the_page_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ENGINES.md");
    let page = page();
    if std::env::var_os("REPRISE_BLESS").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/ENGINES.md is not what the table says: REPRISE_BLESS=1 cargo test -p reprise-abi writes it anew"
    );
}

#[test]
fn every_ability_has_a_line() {
    let all = ENGINES.iter().fold(0, |all, e| all | e.can);
    let listed = ABILITIES.iter().fold(0, |all, (what, _)| all | what);
    assert_eq!(all, listed);
}
