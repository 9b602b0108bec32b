//! What a process has mapped, as proc_pid_maps(5) and proc_pid_smaps(5) tell of it. The names of files are bytes: they need not be text.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

/// All mappings of a process, in order of their addresses.
#[derive(Default)]
pub struct Maps(Vec<u8>);

/// One mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// Its addresses.
    pub range: Range<u64>,
    /// `r`, `w`, `x`, each `-` where that is not allowed, and `s` or `p`.
    pub access: [u8; 4],
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0: it is of no file.
    pub inode: u64,
    /// The file, or what the kernel calls the mapping; empty where it has no name.
    pub name: &'a OsStr,
}

impl Maps {
    /// Of a process, by its id; its first thread must not have ended.
    ///
    /// # Errors
    /// When the kernel doesn't show them.
    pub fn of(pid: impl std::fmt::Display) -> io::Result<Maps> {
        std::fs::read(format!("/proc/{pid}/maps")).map(Maps)
    }

    /// From a text of the same form.
    pub fn from_text(text: impl Into<Vec<u8>>) -> Maps {
        Maps(text.into())
    }

    /// Each of them.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.0.split(|b| *b == b'\n').filter_map(Line::parse)
    }

    /// The one that holds this address.
    pub fn at(&self, address: u64) -> Option<Line<'_>> {
        self.lines().find(|l| l.range.contains(&address))
    }
}

impl<'a> Line<'a> {
    /// From a line of the text; `None`: it is of another form.
    pub fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let mut words = line.splitn(6, |b| *b == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (start, end) = word()?.split_once('-')?;
        let access = word()?.as_bytes().try_into().ok()?;
        let offset = hex(word()?)?;
        let (major, minor) = word()?.split_once(':')?;
        let inode = word()?.parse().ok()?;
        let name = words.next().unwrap_or_default();
        Some(Line {
            range: hex(start)?..hex(end)?,
            access,
            offset,
            device: (
                u32::from_str_radix(major, 16).ok()?,
                u32::from_str_radix(minor, 16).ok()?,
            ),
            inode,
            name: OsStr::from_bytes(name.trim_ascii_start()),
        })
    }

    /// PROT_ bits (mmap(2)).
    pub fn prot(&self) -> u32 {
        let bits = [(b'r', 1), (b'w', 2), (b'x', 4)];
        let allowed = bits.iter().zip(self.access).filter(|((c, _), is)| c == is);
        allowed.map(|((_, bit), _)| bit).sum()
    }

    /// Do others see what is written there?
    pub fn is_shared(&self) -> bool {
        self.access[3] == b's'
    }

    /// Is this a part of its name?
    pub fn is_named(&self, part: &str) -> bool {
        let name = self.name.as_bytes();
        name.windows(part.len()).any(|some| some == part.as_bytes())
    }

    /// May it be written, and do others see what is?
    pub fn is_written_for_others(&self) -> bool {
        self.is_shared() && self.access[1] == b'w'
    }

    /// Is it of a file, or of something else that has a path?
    pub fn has_path(&self) -> bool {
        self.name.as_bytes().first() == Some(&b'/')
    }
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let text = b"7f0000001000-7f0000003000 r-xp 00001000 fe:1a 12   /lib/a b\xff.so\n1000-2000 rw-s 00000000 00:01 0 \nnonsense\n";
        let maps = Maps::from_text(text.as_slice());
        let all: Vec<Line> = maps.lines().collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].range, 0x7f00_0000_1000..0x7f00_0000_3000);
        assert_eq!((all[0].prot(), all[0].is_shared()), (5, false));
        assert_eq!((all[0].offset, all[0].device), (0x1000, (0xfe, 0x1a)));
        assert_eq!(all[0].name.as_bytes(), b"/lib/a b\xff.so");
        assert_eq!((all[1].prot(), all[1].is_shared()), (3, true));
        assert!(all[1].name.is_empty() && !all[1].has_path());
        assert_eq!(maps.at(0x7f00_0000_2fff).map(|l| l.inode), Some(12));
        assert_eq!(maps.at(0x7f00_0000_3000), None);
    }

    #[test]
    fn a_process_has_its_own_code_mapped() {
        let maps = Maps::of("self").expect("maps");
        let code = maps.at(a_process_has_its_own_code_mapped as fn() as usize as u64);
        assert!(code.is_some_and(|l| l.prot() == 5 && l.has_path()));
    }
}
