//! The files that keep their own cpuid: where the processor can't let it trap, it is replaced only in code that is proven to have it, and the
//! trace names the files in which there may be others.

use std::collections::BTreeSet;

/// Most files that are named.
const MAX_FILES: usize = 100;

/// Their names.
#[derive(Default)]
pub struct NativeCpuid(BTreeSet<String>);

impl NativeCpuid {
    /// A process has such a file mapped at this address; `None` is one that may not be looked at.
    pub fn found(&mut self, pid: Option<u32>, address: u64) {
        let maps = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/maps")).ok());
        let maps = maps.unwrap_or_default();
        let name = maps.lines().find_map(|line| name_at(line, address));
        let name = name.unwrap_or("a file whose name is not known");
        if self.0.len() < MAX_FILES {
            self.0.insert(name.into());
        }
    }

    /// All of them.
    pub fn into_names(self) -> Vec<String> {
        self.0.into_iter().collect()
    }
}

/// The name in a line of /proc/PID/maps, if the mapping holds the address.
fn name_at(line: &str, address: u64) -> Option<&str> {
    let (range, _) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let bound = |hex| u64::from_str_radix(hex, 16).ok();
    let holds = (bound(start)?..bound(end)?).contains(&address);
    let name = &line[line.find('/')?..];
    holds.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_found_by_its_address() {
        let line = "7f0000001000-7f0000003000 r-xp 00001000 fe:00 12   /usr/lib/a b.so";
        assert_eq!(name_at(line, 0x7f00_0000_2fff), Some("/usr/lib/a b.so"));
        assert_eq!(name_at(line, 0x7f00_0000_3000), None);
        assert_eq!(name_at("1000-2000 rw-p 0 0:0 0", 0x1800), None);
    }
}
