//! Which runtimes are known. A trace brings along the runtime that it was recorded with, and that is what a replay runs: somebody else's trace may bring
//! anything. Known are the runtime of this binary, those of releases (`runtimes.txt`), and those that this user has recorded with, of which a list lies
//! beside the traces. Runtimes are told apart by BLAKE3, against which nobody can make another one of the same name.

use crate::runtime::EMBEDDED;
use std::io::{ErrorKind, Result, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The name of the list, beside the traces.
pub const FILE: &str = ".runtimes";

/// That of the runtime of this binary.
const OWN: &str = include_str!(concat!(env!("OUT_DIR"), "/runtime.blake3"));
/// Those of releases: a fingerprint in each line, and whose it is.
const RELEASED: &str = include_str!("../runtimes.txt");
/// The list is not read further: nobody records with so many.
const MOST: u64 = 1 << 20;

static ALL: AtomicBool = AtomicBool::new(false);

/// From now on every runtime counts as known.
pub fn trust_all() {
    ALL.store(true, Relaxed);
}

/// The fingerprint of a runtime that is not known; `list`: the user's own.
///
/// # Errors
/// The fingerprint.
pub fn check(runtime: &[u8], list: Option<&Path>) -> std::result::Result<(), String> {
    if runtime == EMBEDDED || ALL.load(Relaxed) {
        return Ok(());
    }
    let fingerprint = blake3::hash(runtime).to_hex();
    let own = list
        .map(|l| read(l).unwrap_or_default())
        .unwrap_or_default();
    match [RELEASED, &own].iter().any(|l| names(l, &fingerprint)) {
        true => Ok(()),
        false => Err(fingerprint.to_string()),
    }
}

/// The user records with the runtime of this binary: it stays known when there is another one.
///
/// # Errors
/// When the list can't be written.
pub fn remember(list: &Path) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let known = match read(list) {
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        other => other?,
    };
    if names(&known, OWN) {
        return Ok(());
    }
    let mut options = std::fs::OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).open(list);
    file?.write_all(format!("{OWN} {}\n", env!("CARGO_PKG_VERSION")).as_bytes())
}

fn read(list: &Path) -> Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(list)?
        .take(MOST)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Is the fingerprint in the list?
fn names(list: &str, fingerprint: &str) -> bool {
    let mut lines = list.lines().filter_map(|l| l.split_whitespace().next());
    lines.any(|known| known == fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_kept() {
        let dir = std::env::temp_dir().join(format!("reprise-known-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory");
        let list = dir.join(FILE);
        assert_eq!(OWN, blake3::hash(EMBEDDED).to_hex().as_str());
        let other = &EMBEDDED[1..];
        let fingerprint = blake3::hash(other).to_hex().to_string();
        assert_eq!(check(EMBEDDED, None), Ok(()));
        assert_eq!(check(other, Some(&list)), Err(fingerprint.clone()));
        remember(&list).expect("written");
        remember(&list).expect("read");
        assert_eq!(read(&list).expect("the list").lines().count(), 1);
        assert_eq!(check(other, Some(&list)), Err(fingerprint.clone()));
        std::fs::write(&list, format!("{fingerprint} of another day\n")).expect("written");
        assert_eq!(check(other, Some(&list)), Ok(()));
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
