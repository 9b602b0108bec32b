//! The walls of the runtime: there are no holes in them.

use reprise_tidy::{engines_asked_for, room_of, sources, Rooms};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(here(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn imports_run_one_way() {
    let rooms = Rooms::parse(&read("rooms.txt"));
    let all = sources(&here("../runtime/src")).expect("the runtime's sources");
    let found: Vec<String> = all
        .iter()
        .flat_map(|(file, source)| rooms.breaches(file, source))
        .map(|b| b.to_string())
        .collect();
    assert!(
        found.is_empty(),
        "imports that no room may have: {found:#?}"
    );
}

#[test]
fn every_folder_is_a_room_and_the_root_has_none_of_its_own() {
    let rooms = Rooms::parse(&read("rooms.txt"));
    let all = sources(&here("../runtime/src")).expect("the runtime's sources");
    let there: BTreeSet<String> = all.keys().map(|file| room_of(file)).collect();
    let outer = |room: &String| room.split("::").next().unwrap_or(room).to_string();
    let mut there: BTreeSet<String> = there.iter().map(outer).collect();
    for root in ["dispatch", "image", "lib"] {
        assert!(there.remove(root), "{root}.rs is gone");
    }
    let listed: BTreeSet<String> = rooms.names().iter().map(|n| n.to_string()).collect();
    assert_eq!(listed, there);
}

#[test]
fn nobody_asks_for_an_engine_but_its_room_and_the_root() {
    // Who dispatches, and who says what the one in force can.
    let may = |file: &str| {
        matches!(file, "dispatch.rs" | "thread/in_force.rs") || file.starts_with("engines/")
    };
    let mut found = Vec::new();
    for of in [
        "runtime", "agent", "launch", "replay", "debug", "trace", "reprise",
    ] {
        let all = sources(&here(&format!("../{of}/src"))).expect("a crate's sources");
        for (file, source) in all.iter().filter(|(f, _)| of != "runtime" || !may(f)) {
            let asked = engines_asked_for(source).into_iter();
            found.extend(asked.map(|engine| format!("{of}: {file}: {engine}")));
        }
    }
    assert!(found.is_empty(), "ask for what an engine can: {found:#?}");
}
