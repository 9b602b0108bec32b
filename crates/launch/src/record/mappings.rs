//! The mappings of a process when the runtime comes into it (proc_pid_maps(5)).

use crate::error::{LaunchError, Result};
use crate::maps::{self, Maps};
use libc::pid_t;
use reprise_abi::session::region_flags;
use std::path::PathBuf;

/// A mapping of the program at its exec.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// PROT_ bits.
    pub prot: u32,
    /// See [`region_flags`].
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// The file's path, or a name like `[stack]`, or empty.
    pub name: PathBuf,
    /// Inode, 0 without a file.
    pub inode: u64,
}

/// A process's mappings, in order.
pub(crate) fn mappings_of(pid: pid_t) -> Result<Vec<Mapping>> {
    let maps = Maps::of(pid).map_err(|source| LaunchError::Os {
        what: "read the program's maps".into(),
        source,
    })?;
    Ok(maps.lines().map(mapping).collect())
}

fn mapping(line: maps::Line) -> Mapping {
    let flags = [
        (line.is_shared(), region_flags::SHARED),
        (line.inode != 0, region_flags::FILE),
        (line.name == "[stack]", region_flags::STACK),
    ];
    let flags = flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag);
    Mapping {
        start: line.range.start,
        end: line.range.end,
        prot: line.prot(),
        flags: flags.sum(),
        offset: line.offset,
        name: PathBuf::from(line.name),
        inode: line.inode,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_say_what_they_are() {
        let of = |line: &'static [u8]| mapping(maps::Line::parse(line).expect("parses"));
        let m =
            of(b"7f0000001000-7f0000002000 rw-s 00003000 08:01 42         /tmp/a file (deleted)");
        assert_eq!(
            (m.start, m.end, m.prot),
            (0x7f00_0000_1000, 0x7f00_0000_2000, 3)
        );
        assert_eq!((m.offset, m.inode), (0x3000, 42));
        assert_eq!(m.flags, region_flags::SHARED | region_flags::FILE);
        assert_eq!(m.name, PathBuf::from("/tmp/a file (deleted)"));
        let stack =
            of(b"7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]");
        assert_eq!(stack.flags, region_flags::STACK);
    }
}
