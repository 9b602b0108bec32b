//! Traces whose events or checkpoints were changed.

use super::Workplace;
use reprise_trace::{Checkpoints, CheckpointsWriter, Content, Moment, Region};
use reprise_trace::{Reader, Writer, EVENTS_FILE};
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// What was written of a region: each stretch of it.
pub type Written = Vec<(u64, Vec<u8>)>;

/// A checkpoint, taken apart.
pub struct Apart {
    /// Its regions, each with the stretches of it that were written.
    pub regions: Vec<(Region, Written)>,
    /// The rest.
    pub moment: Moment,
}

/// The trace's last checkpoint, taken apart.
pub fn last_checkpoint(dir: &Path) -> Apart {
    let reader = Reader::open(dir).expect("the trace");
    let all = Checkpoints::open(dir, &reader).expect("its checkpoints");
    let all = all.expect("it has some");
    let last = *all.list().last().expect("it has some");
    let (mut image, moment) = all.image(last).expect("a checkpoint");
    let mut regions = Vec::new();
    for i in 0..image.image().regions.len() {
        let mut region = image.image().regions[i].clone();
        if let Content::Bytes { runs } | Content::File { runs, .. } = &mut region.content {
            runs.clear();
        }
        let mut written = Vec::new();
        let each = |at, bytes: &[u8]| {
            written.push((at, bytes.to_vec()));
            Ok(())
        };
        image.read_region(i, each).expect("its contents");
        regions.push((region, written));
    }
    Apart { regions, moment }
}

/// Makes this the only checkpoint of the trace, with right lengths, places and hashes, as only an attacker would write it; false when not even he can.
pub fn write_checkpoint(dir: &Path, apart: Apart) -> bool {
    let reader = Reader::open(dir).expect("the trace");
    let write = || {
        let writer = CheckpointsWriter::create(dir, &reader)?;
        let mut checkpoint = writer.begin()?;
        for (region, written) in apart.regions {
            checkpoint.as_mut().region(region)?;
            for (at, bytes) in written {
                checkpoint.as_mut().bytes(at, &bytes)?;
            }
        }
        let writer = checkpoint.finish(apart.moment, Duration::from_secs(1))?;
        writer.finish()
    };
    write().is_ok()
}
