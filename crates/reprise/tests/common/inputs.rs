//! What the tests of inputs by reference share: files to be read, and what recordings refer to.

use super::{Info, Numbers, Workplace};
use reprise_abi::inputs::{Reference, UNKNOWN_HASH};
use reprise_trace::inputs::{references, Inputs};
use reprise_trace::Reader;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than a tick of a file system's clock, after which a file counts as settled.
pub const TICK: Duration = Duration::from_millis(30);

/// Bytes that don't repeat.
pub fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    (0..len).map(|_| numbers.below(256) as u8).collect()
}

/// A file that can be referred to.
pub fn settled(place: &Workplace, name: &str, bytes: &[u8]) -> PathBuf {
    let path = place.path().join(name);
    std::fs::write(&path, bytes).expect("a file");
    std::thread::sleep(TICK);
    path
}

/// How many bytes were referred to.
pub fn referred(info: &Info) -> u64 {
    let inputs = info.0["inputs"].as_array().expect("inputs");
    inputs
        .iter()
        .filter_map(|i| i["bytes_referred"].as_u64())
        .sum()
}

/// What a file of a trace takes on disk.
pub fn on_disk(dir: &Path, name: &str) -> u64 {
    let meta = dir.join(name).metadata();
    meta.map_or(0, |meta| meta.blocks() * 512)
}

/// Every reference of a trace, with the number of its event.
fn each_reference(dir: &Path, mut seen: impl FnMut(u64, &Reference)) {
    let mut reader = Reader::open(dir).expect("events");
    while let Some(event) = reader.next().expect("an event") {
        let number = event.number;
        references(&event.parse().expect("an event")).for_each(|r| seen(number, &r));
    }
}

/// How many bytes the events of a trace refer to, all of which are in its copies as they were read.
///
/// # Panics
/// When they aren't.
pub fn assert_kept(dir: &Path) -> u64 {
    let (mut inputs, mut bytes) = (Inputs::of(dir), 0);
    each_reference(dir, |number, r| {
        assert!(
            !r.is_inexact() && r.hash != UNKNOWN_HASH,
            "event {number}: {r:?}"
        );
        if let Err(why) = inputs.read(r, u64::MAX) {
            panic!("event {number}: {r:?}: {why}");
        }
        bytes += r.len;
    });
    bytes
}

/// The first event of a trace that says that what was read is not to be had any more.
pub fn first_inexact(dir: &Path) -> Option<u64> {
    let mut first = None;
    each_reference(dir, |number, r| {
        if r.is_inexact() {
            first.get_or_insert(number);
        }
    });
    first
}
