//! What the image that runs inside the program is built from.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// The runtime's crate, and those of this project that it is built from: what its manifest names, and theirs in turn. `crates`: the folder of all.
///
/// # Errors
/// A manifest that can't be read.
pub fn linked(crates: &Path) -> io::Result<BTreeSet<String>> {
    let (mut all, mut left) = (BTreeSet::new(), vec![String::from("runtime")]);
    while let Some(name) = left.pop() {
        let manifest = std::fs::read_to_string(crates.join(&name).join("Cargo.toml"))?;
        left.extend(needed(&manifest));
        all.insert(name);
    }
    Ok(all)
}

/// The crates of this project that a manifest names, for more than tests.
fn needed(manifest: &str) -> impl Iterator<Item = String> + '_ {
    let (_, dependencies) = manifest.split_once("[dependencies]").unwrap_or_default();
    let own = dependencies.split("\n[").next().unwrap_or_default();
    let ours = own.lines().filter_map(|l| l.strip_prefix("reprise-"));
    ours.filter_map(|l| Some(l.split_once('.')?.0.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_tests_are_none() {
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nreprise-abi.workspace = true\niced-x86.workspace = true\n\n\
            [dev-dependencies]\nreprise-trace.workspace = true\n";
        assert_eq!(needed(manifest).collect::<Vec<_>>(), ["abi"]);
    }
}
