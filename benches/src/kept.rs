//! The figures that the document shows, each with the day on which it was measured: `benches/figures.json`.
//!
//! `docs/BENCHMARKS.md` is made from this file and from nothing else, and only `--bless` writes it.

use crate::figure::Row;
use crate::reprise::top;
use crate::{machine, report};
use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::PathBuf;

/// Where the figures lie, from the project's top.
const FIGURES: &str = "benches/figures.json";
/// Where the document lies.
pub const DOCUMENT: &str = "docs/BENCHMARKS.md";

/// All that was kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The machine, in the words of [`machine::describe`]: the same for all figures.
    pub machine: Vec<String>,
    /// What was measured, by the name that it is asked for by.
    pub measured: BTreeMap<String, Measured>,
}

/// What was measured under one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The day, as 2024-12-31 (UTC).
    pub day: String,
    /// Rounds.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Kept {
    /// What has been kept so far; nothing if there is no file.
    ///
    /// # Errors
    /// When the file isn't what this module writes.
    pub fn read() -> Result<Kept> {
        let path = top().join(FIGURES);
        if !path.exists() {
            return Ok(Kept::default());
        }
        let text = read_to_string(&path)?;
        serde_json::from_str(&text).with_context(|| format!("{FIGURES} is damaged"))
    }

    /// Takes in what was measured, in the place of what had the same names.
    ///
    /// # Errors
    /// When what is kept of other names is another machine's: figures of two machines don't belong into one table.
    pub fn take_in(&mut self, new: BTreeMap<String, Measured>) -> Result<()> {
        let here = machine::describe();
        let stays = self.measured.keys().any(|name| !new.contains_key(name));
        if stays && self.machine != here {
            bail!(
                "{FIGURES} has figures of another machine ({}): measure all of them here, or none",
                self.machine.join(", ")
            );
        }
        self.machine = here;
        self.measured.extend(new);
        Ok(())
    }

    /// Writes both files.
    ///
    /// # Errors
    /// Of the file system.
    pub fn write(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(top().join(FIGURES), text + "\n")?;
        std::fs::write(document_path(), report::document(self))?;
        Ok(())
    }

    /// The rows under this name.
    pub fn rows(&self, name: &str) -> &[Row] {
        self.measured.get(name).map_or(&[], |m| &m.rows)
    }
}

/// Where the document lies on this machine.
fn document_path() -> PathBuf {
    top().join(DOCUMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody writes the document but what makes it of figures that were measured.
    #[test]
    fn the_document_is_what_the_figures_say() {
        let kept = Kept::read().expect("figures");
        assert!(!kept.measured.is_empty());
        let text = read_to_string(document_path()).expect("the document");
        assert!(
            text == report::document(&kept),
            "{DOCUMENT} is not what is made of {FIGURES}: cargo bench -p reprise-bench -- --render"
        );
    }

    #[test]
    fn another_machines_figures_are_not_mixed_with_ours() {
        let of = |name: &str| {
            let measured = Measured {
                day: machine::today(),
                rounds: 1,
                rows: Vec::new(),
            };
            BTreeMap::from([(name.to_string(), measured)])
        };
        let mut kept = Kept {
            machine: vec!["another".into()],
            measured: of("dd"),
        };
        assert!(kept.take_in(of("sort")).is_err());
        kept.take_in(of("dd")).unwrap();
        assert_eq!(kept.machine, machine::describe());
        kept.take_in(of("sort")).unwrap();
        assert_eq!(kept.measured.len(), 2);
    }
}
