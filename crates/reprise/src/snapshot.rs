//! `snapshot`: a copy of a trace that is being recorded, while the program runs on.

use crate::cli::SnapshotArgs;
use crate::recordings::Recording;
use anyhow::{Context, Result};
use reprise_console::tell;
use reprise_trace::inputs;
use reprise_trace::{
    Catalog, BEGINNING_FILE, EVENTS_FILE, FILES_DIR, IMAGES_FILE, IMAGE_FILE, MANIFEST_FILE,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Copies that are begun anew because what they were to contain was forgotten meanwhile.
const MOST_TRIES: usize = 100;

/// Runs `snapshot`.
///
/// # Errors
/// When the process is not being recorded, or the copy can't be made.
pub fn run(args: &SnapshotArgs) -> Result<i32> {
    let recording = Recording::of(args.pid)
        .with_context(|| format!("process {} is not being recorded", args.pid))?;
    let from = recording.dir;
    let catalog = Catalog::from_env()?;
    let to = match &args.output {
        Some(dir) => Catalog::create_at(dir)?,
        None => catalog.create("snapshot".as_ref())?,
    };
    let copied = copy(&from, &to);
    if copied.is_err() {
        let _ = std::fs::remove_dir_all(&to);
    }
    copied.with_context(|| format!("copy the trace in {}", from.display()))?;
    if args.output.is_none() {
        catalog.set_latest(&to)?;
    }
    tell!("{}", to.display())?;
    Ok(0)
}

/// Which file it is, now.
fn identity(path: &Path) -> io::Result<Option<u64>> {
    match path.metadata() {
        Ok(m) => Ok(Some(m.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let begins = from.join(BEGINNING_FILE);
    for _ in 0..MOST_TRIES {
        let before = identity(&begins)?;
        let _ = std::fs::remove_file(to.join(BEGINNING_FILE));
        if before.is_some() {
            let copied = std::fs::copy(&begins, to.join(BEGINNING_FILE));
            if copied.is_err() {
                continue;
            }
        }
        let at = reprise_trace::beginning::open(to)?.map_or(0, |(_, moment)| moment.at_byte);
        copy_events(from, to, at)?;
        if identity(&begins)? == before {
            copy_rest(from, to)?;
            // Else something may have been forgotten meanwhile that the copy needs.
            if identity(&begins)? == before {
                return Ok(());
            }
            std::fs::remove_dir_all(to.join(FILES_DIR))?;
        }
    }
    anyhow::bail!("it forgets faster than it can be copied")
}

/// The stream from a byte on, at the same place.
fn copy_events(from: &Path, to: &Path, mut at: u64) -> Result<()> {
    let source = reprise_trace::opened::open(from, EVENTS_FILE)?;
    let target = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(to.join(EVENTS_FILE))?;
    let mut bytes = vec![0; 1 << 20];
    loop {
        let n = source.read_at(&mut bytes, at)?;
        if n == 0 {
            return Ok(());
        }
        target.write_all_at(&bytes[..n], at)?;
        at += n as u64;
    }
}

/// What does not change, the manifest last.
fn copy_rest(from: &Path, to: &Path) -> Result<()> {
    let files = to.join(FILES_DIR);
    std::fs::create_dir_all(&files)?;
    for entry in std::fs::read_dir(from.join(FILES_DIR))? {
        let entry = entry?;
        let target = files.join(entry.file_name());
        let name = entry.file_name();
        if name
            .to_str()
            .is_some_and(|name| inputs::number(name).is_some())
        {
            // The recording goes on with it, and forgets of it.
            inputs::duplicate(&entry.path(), &target)?;
            continue;
        }
        if std::fs::hard_link(entry.path(), &target).is_err() {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    for name in [IMAGE_FILE, IMAGES_FILE, MANIFEST_FILE] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name))?;
        }
    }
    Ok(())
}
