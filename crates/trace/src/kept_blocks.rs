//! In the store, beside whole copies of files that were read: the hashes of their blocks ([`reprise_abi::inputs::BLOCK`]), taken when the copy was made; and those
//! of ranges that programs have read.
//!
//! They are believed as long as the machine runs on: after a crash of the system, what was written to the copy last may be lost.

use crate::store::TEMPORARY_PREFIX;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// How the name of such a file ends; before it stands the name of the copy.
pub(crate) const SUFFIX: &str = ".blocks";
/// The same where ranges are in it: each by its offset, its length and its hash.
pub(crate) const RANGES: &str = ".ranges";

/// This run of the system (random(4)), padded.
fn boot() -> io::Result<[u8; 40]> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let mut bytes = [0; 40];
    let len = id.trim().len().min(bytes.len());
    bytes[..len].copy_from_slice(&id.trim().as_bytes()[..len]);
    Ok(bytes)
}

/// The name of the copy that a file of either kind belongs to.
pub(crate) fn copy_of(name: &str) -> Option<&str> {
    [SUFFIX, RANGES].iter().find_map(|s| name.strip_suffix(s))
}

/// The words at `path`, if they are of this run of the system.
pub(crate) fn read(path: &Path) -> Option<Vec<u64>> {
    let bytes = std::fs::read(path).ok()?;
    let (head, sums) = bytes.split_first_chunk::<40>()?;
    if boot().ok()? != *head || sums.len() % 8 != 0 {
        return None;
    }
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
    Some(sums.chunks_exact(8).map(word).collect())
}

/// Writes `path`, which appears whole.
///
/// # Errors
/// As write(2).
pub(crate) fn write(path: &Path, sums: &[u64]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{TEMPORARY_PREFIX}{}.{n}{SUFFIX}", std::process::id());
    let temporary = path.with_file_name(name);
    let mut bytes = boot()?.to_vec();
    bytes.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
    let written = File::create_new(&temporary).and_then(|mut file| file.write_all(&bytes));
    let done = written.and_then(|()| std::fs::rename(&temporary, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_of_this_run_are_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.blocks");
        write(&path, &[1, 2, u64::MAX]).unwrap();
        assert_eq!(read(&path), Some(vec![1, 2, u64::MAX]));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(read(&path), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
