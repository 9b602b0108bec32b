//! The image is built again when anything changes that it is built from.

use reprise_tidy::image::linked;
use std::path::Path;

#[test]
fn the_launcher_looks_at_all_that_the_image_is_built_from() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = std::fs::read_to_string(crates.join("launch/build.rs")).expect("the script");
    let (_, sources) = script.split_once("SOURCES").expect("its list");
    let (list, _) = sources.split_once("];").expect("the list's end");
    for name in linked(&crates).expect("the manifests") {
        let source = format!("\"crates/{name}\"");
        assert!(list.contains(&source), "{source} is not in {list}");
    }
}
