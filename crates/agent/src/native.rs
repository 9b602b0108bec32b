//! The files that keep their own cpuid: where the processor can't let it trap, it is replaced only in code that is proven to have it, and the
//! trace names the files in which there may be others.

use reprise_launch::maps::{Line, Maps};
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// Most files that are named.
const MAX_FILES: usize = 100;

/// Their names.
#[derive(Default)]
pub struct NativeCpuid(BTreeSet<String>);

impl NativeCpuid {
    /// A process has such a file mapped at this address; `None` is one that may not be looked at.
    pub fn found(&mut self, pid: Option<u32>, address: u64) {
        let maps = pid.and_then(|pid| Maps::of(pid).ok()).unwrap_or_default();
        let name = maps.at(address).filter(Line::has_path).map(|l| l.name);
        let name = name.map_or(
            "a file whose name is not known".into(),
            OsStr::to_string_lossy,
        );
        if self.0.len() < MAX_FILES {
            self.0.insert(name.into());
        }
    }

    /// All of them.
    pub fn into_names(self) -> Vec<String> {
        self.0.into_iter().collect()
    }
}
