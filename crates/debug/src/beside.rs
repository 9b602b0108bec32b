//! Code that the runtime has put beside the program's, and the jumps that lead there. Neither is shown: code reads as in the file that it came from.

use crate::breakpoints::TRAP;
use crate::debuggee::Debuggee;
use reprise_launch::maps::{Line, Maps};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Most entries of the runtime's table.
const MOST: u64 = 2048;
/// `jmp rel32`.
const JMP: u8 = 0xe9;
/// Its bytes.
const JUMP: u64 = 5;
/// The runtime changes up to so many bytes for a jump: what is left of the last instruction is filled.
const CHANGED: u64 = 8;

impl Debuggee {
    /// Where the runtime has put code of its own, outside of its image.
    pub(crate) fn beside(&self) -> Vec<Range<u64>> {
        let Some(table) = self.live.landmarks_of_order().map(|o| o.beside) else {
            return Vec::new();
        };
        let mut used = [0; 8];
        if self.read(table, &mut used).is_err() {
            return Vec::new();
        }
        let used = u64::from_le_bytes(used).min(MOST);
        let mut bytes = vec![0; used as usize * 16];
        if self.read(table + 8, &mut bytes).is_err() {
            return Vec::new();
        }
        let word = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
        let ranges = bytes.chunks_exact(16).map(|entry| {
            let (at, len) = (word(&entry[..8]), word(&entry[8..]));
            at..at.saturating_add(len)
        });
        ranges.filter(|r| !r.is_empty()).collect()
    }

    /// Is this byte inside of a stretch that the runtime has rewritten, but not its first?
    pub(crate) fn is_inside_rewritten(&self, at: u64, events: u64) -> bool {
        match self.timeline.is_order {
            true => self.leads_beside(&(at.saturating_sub(JUMP - 1)..at)),
            false => self
                .timeline
                .code_at(events)
                .is_inside_rewritten(at, events),
        }
    }

    /// Does a jump to code of the runtime's own begin in this stretch?
    pub(crate) fn leads_beside(&self, stretch: &Range<u64>) -> bool {
        let beside = self.beside();
        if beside.is_empty() {
            return false;
        }
        let mut code = vec![0; (stretch.end - stretch.start + JUMP - 1) as usize];
        let n = self.read_some(stretch.start, &mut code).unwrap_or(0);
        !jumps(&code[..n], stretch.start, &beside).is_empty()
    }

    /// Makes code that was read at `at` what it is in the program's files.
    pub(crate) fn hide_jumps(&self, at: u64, bytes: &mut [u8]) {
        let beside = self.beside();
        let end = at + bytes.len() as u64;
        let Some((file, begin)) = (!beside.is_empty())
            .then(|| self.code_file(at, end))
            .flatten()
        else {
            return;
        };
        // What begins before it may reach into it.
        let first = at.saturating_sub(CHANGED - 1);
        let mut code = vec![0; (end - first + JUMP - 1) as usize];
        let n = self.read_some(first, &mut code).unwrap_or(0);
        let found = jumps(&code[..n], first, &beside);
        let mut original = vec![0; bytes.len()];
        if file.read_exact_at(&mut original, at - begin).is_err() {
            return;
        }
        for ((now, was), place) in bytes.iter_mut().zip(original).zip(at..) {
            let by_jump = found.iter().any(|j| (*j..*j + CHANGED).contains(&place));
            if by_jump || *now == TRAP {
                *now = was;
            }
        }
    }

    /// The file whose code is mapped here, all of it in one mapping that can't be written: and what is to be taken from an address for its
    /// place in the file.
    fn code_file(&self, at: u64, end: u64) -> Option<(File, u64)> {
        let maps = Maps::of(self.pid).ok()?;
        let is_code = |l: &Line| {
            let holds = l.range.start <= at && end <= l.range.end;
            holds && l.access == *b"r-xp" && l.has_path()
        };
        let found = maps.lines().find(is_code)?;
        let file = File::open(found.name).ok()?;
        Some((file, found.range.start.wrapping_sub(found.offset)))
    }
}

/// Where jumps to one of these ranges begin in code that lies at `at`.
fn jumps(code: &[u8], at: u64, to: &[Range<u64>]) -> Vec<u64> {
    let windows = code.windows(JUMP as usize).zip(at..);
    let leads = |(jump, from): (&[u8], u64)| {
        let distance = i32::from_le_bytes(jump[1..].try_into().ok()?);
        let target = (from + JUMP).wrapping_add(i64::from(distance) as u64);
        (jump[0] == JMP && to.iter().any(|r| r.contains(&target))).then_some(from)
    };
    windows.filter_map(leads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_jumps_to_the_runtimes_code_count() {
        // nop; jmp +0x100; jmp +0x10
        let code = [0x90, 0xe9, 0, 1, 0, 0, 0xe9, 0x10, 0, 0, 0];
        let to = |range: Range<u64>, n| jumps(&code[..n], 0x1000, std::slice::from_ref(&range));
        assert_eq!(to(0x1100..0x1200, code.len()), [0x1001]);
        assert_eq!(to(0x1000..0x1100, code.len()), [0x1006]);
        assert!(to(0x1100..0x1200, 5).is_empty());
    }
}
