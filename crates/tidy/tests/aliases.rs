//! References that the compiler does not check are made in few places.

use reprise_tidy::aliases::{blocks_taken, lent_for_good, shared_by_word};
use reprise_tidy::image::linked;
use reprise_tidy::sources;
use std::collections::BTreeMap;
use std::path::Path;

/// All sources of what runs inside the program, by their paths from `crates` on.
fn inside() -> BTreeMap<String, String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = BTreeMap::new();
    let linked = linked(&crates).expect("the manifests");
    for name in ["abi", "code", "heap", "place"] {
        assert!(linked.contains(name), "{name} is not among {linked:?}");
    }
    for name in linked {
        for (file, source) in sources(&crates.join(&name).join("src")).expect("a crate's sources") {
            all.insert(format!("{name}/src/{file}"), source);
        }
    }
    assert!(all.len() > 300, "only {} files", all.len());
    all
}

#[test]
fn one_type_is_shared_by_word() {
    let all = inside();
    let found: Vec<_> = all
        .iter()
        .filter(|(f, s)| shared_by_word(f, s) != 0)
        .map(|(f, _)| f)
        .collect();
    assert!(
        found.is_empty(),
        "say whose leave is needed (runtime/src/machine/guarded.rs): {found:#?}"
    );
}

#[test]
fn a_second_such_type_is_found() {
    let file = "runtime/src/isolate/reuse.rs";
    let there = &inside()[file];
    let broken = format!("{there}\nstruct Shared(List);\nunsafe impl Sync for Shared {{}}\n");
    assert_eq!(shared_by_word(file, there), 0);
    assert_eq!(shared_by_word(file, &broken), 1);
}

#[test]
fn blocks_are_taken_at_doors_only() {
    let all = inside();
    let found: Vec<_> = all
        .iter()
        .filter(|(f, s)| blocks_taken(f, s) != 0)
        .map(|(f, _)| f)
        .collect();
    assert!(
        found.is_empty(),
        "have the block handed down, or ask for `current()`; what is a new door belongs into the list of them (crates/tidy/src/aliases.rs): {found:#?}"
    );
}

#[test]
fn a_block_that_is_taken_in_the_midst_is_found() {
    let all = inside();
    for (file, before, after) in [
        (
            "runtime/src/log/quiet.rs",
            "let t = current();",
            "let t = unsafe { crate::thread::take_block() };",
        ),
        (
            "runtime/src/entry/gate.rs",
            "gate::<E>(t, frame);",
            "gate::<E>(unsafe { take_block() }, frame);",
        ),
    ] {
        let there = &all[file];
        assert!(there.contains(before), "{file}");
        assert_eq!(blocks_taken(file, there), 0);
        assert_eq!(blocks_taken(file, &there.replacen(before, after, 1)), 1);
    }
}

#[test]
fn little_is_lent_for_good() {
    let all = inside();
    let found: Vec<_> = all
        .iter()
        .filter(|(f, s)| lent_for_good(f, s) != 0)
        .map(|(f, _)| f)
        .collect();
    assert!(
        found.is_empty(),
        "lend it for the time of a call, or say in `LENT` what it is (crates/tidy/src/aliases.rs): {found:#?}"
    );
}

#[test]
fn what_is_lent_for_good_anew_is_found() {
    let all = inside();
    let lends = "\nfn list() -> &'static mut List { unsafe { LIST.change() } }\n";
    for file in ["runtime/src/isolate/reuse.rs", "heap/src/own.rs"] {
        let there = &all[file];
        assert_eq!(lent_for_good(file, there), 0);
        assert_eq!(lent_for_good(file, &format!("{there}{lends}")), 1);
    }
}
