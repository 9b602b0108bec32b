//! Traces whose events were changed.

use super::Workplace;
use reprise_trace::{Reader, Writer, EVENTS_FILE};
use std::path::{Path, PathBuf};

fn copy_all_but_events(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_all_but_events(&entry.path(), &target);
        } else if entry.file_name() != EVENTS_FILE {
            std::fs::copy(entry.path(), &target).expect("copy");
        }
    }
}

/// A copy of a trace in which `edit` changed the events; an event for which it returns false is left out.
pub fn tampered(
    place: &Workplace,
    dir: &Path,
    mut edit: impl FnMut(u64, &mut Vec<u8>) -> bool,
) -> PathBuf {
    let copy = place.fresh("tampered");
    copy_all_but_events(dir, &copy);
    let summary = std::fs::read(copy.join("summary.json")).ok();
    let mut reader = Reader::open(dir).expect("the trace");
    let mut writer = Writer::create(&copy).expect("a new stream");
    while let Some(event) = reader.next().expect("an event") {
        let (number, mut bytes) = (event.number, event.bytes.to_vec());
        if edit(number, &mut bytes) {
            writer.push(&bytes).expect("push");
        }
    }
    writer.finish().expect("finish");
    if let Some(bytes) = summary {
        std::fs::write(copy.join("summary.json"), bytes).expect("the summary");
    }
    copy
}
