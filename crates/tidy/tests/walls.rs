//! The walls of the runtime, as they are. `exceptions.txt` has the holes that there were when they were first looked for: it only becomes shorter. With
//! `REPRISE_TIDY_WRITE=1` those that are gone are taken out of it.

use reprise_tidy::{room_of, sources, Rooms};
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
    let found = all
        .iter()
        .flat_map(|(file, source)| rooms.breaches(file, source));
    let found: BTreeSet<String> = found.map(|b| b.to_string()).collect();
    let list = read("exceptions.txt");
    let known: BTreeSet<String> = list.lines().map(String::from).collect();
    let new: Vec<&String> = found.difference(&known).collect();
    assert!(
        new.is_empty(),
        "imports that no room may have ({}): {new:#?}",
        new.len()
    );
    let gone: Vec<&String> = known.difference(&found).collect();
    if std::env::var_os("REPRISE_TIDY_WRITE").is_some_and(|v| v == "1") {
        let left: String = found.iter().map(|b| format!("{b}\n")).collect();
        std::fs::write(here("exceptions.txt"), left).expect("the list can be written");
    } else {
        assert!(
            gone.is_empty(),
            "these holes are closed: take them out of exceptions.txt (REPRISE_TIDY_WRITE=1 does it): {gone:#?}"
        );
    }
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
