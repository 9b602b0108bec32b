//! What divergences taught: functions whose plain loads the `order` engine records as values, in every later recording (Castor 3.8).
//!
//! They are named by the build id of their module and their place in it, so that they are known again wherever the same build lies, and
//! forgotten with the next one. The list is a file beside the traces.

use crate::error::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Name of the file in the traces' directory.
const FILE: &str = "learned.json";

/// A function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LearnedFunction {
    /// The first 8 bytes of its module's build id, little-endian.
    pub module: u64,
    /// Its beginning, from the module's lowest address.
    pub offset: u64,
    /// What to call it.
    pub name: String,
}

impl LearnedFunction {
    fn is(&self, other: &LearnedFunction) -> bool {
        (self.module, self.offset) == (other.module, other.offset)
    }
}

/// All that were learned, in the order in which they were.
///
/// # Errors
/// When the file is there and can't be read, or is none.
pub fn read(root: &Path) -> Result<Vec<LearnedFunction>> {
    let path = root.join(FILE);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).context("read", &path),
    };
    serde_json::from_slice(&text)
        .map_err(std::io::Error::from)
        .context("read", &path)
}

/// Adds those of `found` that are new, and gives them back.
///
/// # Errors
/// As [`read`]; when the file can't be written.
pub fn add(root: &Path, found: &[LearnedFunction]) -> Result<Vec<LearnedFunction>> {
    let mut all = read(root)?;
    let is_new = |f: &&LearnedFunction| !all.iter().any(|g| g.is(f));
    let new: Vec<_> = found.iter().filter(is_new).cloned().collect();
    if !new.is_empty() {
        all.extend_from_slice(&new);
        let path = root.join(FILE);
        let beside = root.join(format!("{FILE}.{}", std::process::id()));
        serde_json::to_vec_pretty(&all)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&beside, text))
            .and_then(|()| std::fs::rename(&beside, &path))
            .context("write", &path)?;
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_learned_again() {
        let dir = tempfile::tempdir().unwrap();
        let f = |offset| LearnedFunction {
            module: 7,
            offset,
            name: format!("f{offset}"),
        };
        assert_eq!(read(dir.path()).unwrap(), []);
        assert_eq!(add(dir.path(), &[f(1), f(2)]).unwrap(), [f(1), f(2)]);
        assert_eq!(add(dir.path(), &[f(2), f(3)]).unwrap(), [f(3)]);
        assert_eq!(read(dir.path()).unwrap(), [f(1), f(2), f(3)]);
        std::fs::write(dir.path().join(FILE), "no list").unwrap();
        assert!(read(dir.path()).is_err());
    }
}
