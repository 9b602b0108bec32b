//! What divergences taught: code whose plain loads the `order` engine records as values, in every later recording (Castor 3.8).
//!
//! It is named by the build id of its module and its place in it, so that it is known again wherever the same build lies, and forgotten with
//! the next one. First it is a function, with all its loads. Once a replay of a recording of that kind has come to its end, it
//! is known which of them raced, and only those are recorded from then on. The list is a file beside the traces.

use crate::error::{Context, Result};
use reprise_abi::learned::Code;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Name of the file in the traces' directory.
const FILE: &str = "learned.json";

/// A function, or one of its loads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LearnedCode {
    /// The first 8 bytes of its module's build id, little-endian.
    pub module: u64,
    /// The function's beginning, from the module's lowest address.
    pub function: u64,
    /// Where the load is; 0 for all of the function's.
    pub load: u64,
    /// What to call it.
    pub name: String,
}

impl LearnedCode {
    /// With a name for people.
    pub fn new(c: Code, name: String) -> LearnedCode {
        LearnedCode {
            module: c.module,
            function: c.function,
            load: c.load,
            name,
        }
    }

    /// As the session has it.
    pub fn code(&self) -> Code {
        Code {
            module: self.module,
            function: self.function,
            load: self.load,
        }
    }

    fn is(&self, other: &LearnedCode) -> bool {
        self.is_beside(other) && self.load == other.load
    }

    /// Are both of the same function?
    fn is_beside(&self, other: &LearnedCode) -> bool {
        (self.module, self.function) == (other.module, other.function)
    }
}

/// All that were learned, in the order in which they were.
///
/// # Errors
/// When the file is there and can't be read, or is none.
pub fn read(root: &Path) -> Result<Vec<LearnedCode>> {
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
pub fn add(root: &Path, found: &[LearnedCode]) -> Result<Vec<LearnedCode>> {
    let mut all = read(root)?;
    let is_new = |f: &&LearnedCode| !all.iter().any(|g| g.is(f));
    let new: Vec<_> = found.iter().filter(is_new).cloned().collect();
    if !new.is_empty() {
        all.extend_from_slice(&new);
        write(root, &all)?;
    }
    Ok(new)
}

/// A replay of a recording with the functions of `recorded` showed which loads race: those take the functions' places, and are given back
/// with those that were known before. `None`: nothing raced, or there were no functions; nothing changes.
///
/// # Errors
/// As [`add`].
pub fn narrow(
    root: &Path,
    recorded: &[LearnedCode],
    raced: &[LearnedCode],
) -> Result<Option<Vec<LearnedCode>>> {
    let mut all = read(root)?;
    let wide = |f: &LearnedCode| f.load == 0 && recorded.iter().any(|g| g.is(f));
    let functions: Vec<_> = all.iter().filter(|f| wide(f)).cloned().collect();
    if functions.is_empty() || raced.is_empty() {
        return Ok(None);
    }
    all.retain(|f| !wide(f));
    for load in raced {
        if !all.iter().any(|f| f.is(load)) {
            all.push(load.clone());
        }
    }
    write(root, &all)?;
    let left = |f: &LearnedCode| functions.iter().any(|g| g.is_beside(f));
    Ok(Some(all.into_iter().filter(left).collect()))
}

fn write(root: &Path, all: &[LearnedCode]) -> Result<()> {
    let path = root.join(FILE);
    let beside = root.join(format!("{FILE}.{}", std::process::id()));
    serde_json::to_vec_pretty(all)
        .map_err(std::io::Error::from)
        .and_then(|text| std::fs::write(&beside, text))
        .and_then(|()| std::fs::rename(&beside, &path))
        .context("write", &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(function: u64, load: u64) -> LearnedCode {
        LearnedCode {
            module: 7,
            function,
            load,
            name: format!("{function}+{load}"),
        }
    }

    #[test]
    fn what_is_known_is_not_learned_again() {
        let dir = tempfile::tempdir().unwrap();
        let f = |n| code(n, 0);
        assert_eq!(read(dir.path()).unwrap(), []);
        assert_eq!(add(dir.path(), &[f(1), f(2)]).unwrap(), [f(1), f(2)]);
        assert_eq!(add(dir.path(), &[f(2), f(3)]).unwrap(), [f(3)]);
        assert_eq!(read(dir.path()).unwrap(), [f(1), f(2), f(3)]);
        std::fs::write(dir.path().join(FILE), "no list").unwrap();
        assert!(read(dir.path()).is_err());
    }

    #[test]
    fn functions_become_the_loads_that_raced() {
        let dir = tempfile::tempdir().unwrap();
        add(dir.path(), &[code(10, 0), code(20, 0), code(30, 31)]).unwrap();
        // The recording knew of function 10 only.
        let left = narrow(dir.path(), &[code(10, 0)], &[code(10, 12)]).unwrap();
        assert_eq!(left, Some(vec![code(10, 12)]));
        let all = read(dir.path()).unwrap();
        assert_eq!(all, [code(20, 0), code(30, 31), code(10, 12)]);
        assert_eq!(narrow(dir.path(), &[code(10, 12)], &[]).unwrap(), None);
    }
}
