//! Files that commands make.

use anyhow::Context;
use std::fs::File;
use std::path::Path;

/// Makes a file: it is written beside its place, and put there when it is whole. What a recorded program saw is in such files, so they are
/// the user's alone. What is no file (a device, a pipe) is written to as it is.
///
/// # Errors
/// Those of `write`, and when there can be no such file; then nothing is left.
pub fn make<T>(file: &Path, write: impl FnOnce(File) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let no_file = || format!("can't write {}", file.display());
    if file.exists() && !file.is_file() {
        return write(File::create(file).with_context(no_file)?).with_context(no_file);
    }
    let parent = match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let temporary = tempfile::NamedTempFile::new_in(parent).with_context(no_file)?;
    let made = write(temporary.reopen().with_context(no_file)?).with_context(no_file)?;
    temporary.persist(file).with_context(no_file)?;
    Ok(made)
}
