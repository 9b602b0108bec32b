//! There is no second table of system calls.

use reprise_tidy::calls::{calls_named, takes_numbers_out, MOST_NAMED};
use reprise_tidy::sources;
use std::collections::BTreeMap;
use std::path::Path;

/// All sources of all crates, by their paths from `crates` on.
fn all() -> BTreeMap<String, String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(&crates).expect("the crates") {
        let dir = entry.expect("a crate").path();
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        if name == "tidy" {
            continue;
        }
        for (file, source) in sources(&dir.join("src")).expect("a crate's sources") {
            all.insert(format!("{name}/src/{file}"), source);
        }
    }
    all
}

#[test]
fn no_file_but_the_table_knows_many_calls() {
    let all = all();
    assert!(all.len() > 500, "only {} files", all.len());
    let counts = all.iter().map(|(file, s)| (file, calls_named(file, s)));
    let many: Vec<_> = counts.filter(|(_, n)| *n > MOST_NAMED).collect();
    assert!(
        many.is_empty(),
        "what these want to know of calls is a column of the table (crates/abi/src/syscalls): {many:#?}"
    );
}

#[test]
fn calls_are_named_by_their_module() {
    let all = all();
    let outside = all
        .iter()
        .filter(|(file, _)| !file.starts_with("abi/src/syscalls/"));
    let taken: Vec<_> = outside
        .filter(|(_, source)| takes_numbers_out(source))
        .map(|(file, _)| file)
        .collect();
    assert!(taken.is_empty(), "say nr::READ, not READ: {taken:#?}");
}

#[test]
fn a_list_that_is_put_into_a_file_is_found() {
    let file = "runtime/src/log/output/mapped.rs";
    let all = all();
    let there = all.get(file).unwrap_or_else(|| panic!("no {file}"));
    let list = "nr::READ | nr::READV | nr::PREAD64 | nr::PREADV | nr::PREADV2 | nr::WRITE";
    let broken = format!("fn reads(n: u64) -> bool {{ matches!(n, {list}) }}\n{there}");
    assert!(calls_named(file, there) <= MOST_NAMED);
    assert!(calls_named(file, &broken) > MOST_NAMED);
}
