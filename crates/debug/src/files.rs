//! Files as gdb reads them: those that the program mapped, out of the trace, and a few of /proc. So symbols are those of the recording,
//! whatever the machine has under these names today.

use crate::debuggee::Debuggee;
use crate::programs::Program;
use crate::timeline::Timeline;
use reprise_abi::layout::{PAGE, RESERVATION, RESERVATION_END};
use reprise_launch::maps::Maps;
use reprise_trace::{inputs, opened, ContentHash, FILES_DIR};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{Error, Read, Result, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

/// Most files that gdb can have open.
pub const MAX_OPEN: usize = 1024;

/// A file that gdb has open.
pub enum Open {
    /// One of the trace's.
    Kept(File),
    /// One that was made for it.
    Made(Vec<u8>),
}

/// What gdb has open.
#[derive(Default)]
pub struct OpenFiles {
    open: BTreeMap<u32, Open>,
    next: u32,
}

fn refused(errno: i32) -> Error {
    Error::from_raw_os_error(errno)
}

impl OpenFiles {
    /// A descriptor for a file.
    ///
    /// # Errors
    /// When there are too many.
    pub fn add(&mut self, file: Open) -> Result<u32> {
        if self.open.len() >= MAX_OPEN {
            return Err(refused(libc::EMFILE));
        }
        self.next += 1;
        self.open.insert(self.next, file);
        Ok(self.next)
    }

    /// Closes one.
    ///
    /// # Errors
    /// When it isn't open.
    pub fn close(&mut self, fd: u32) -> Result<()> {
        let was = self.open.remove(&fd);
        was.map(|_| ()).ok_or_else(|| refused(libc::EBADF))
    }

    /// Length of one.
    ///
    /// # Errors
    /// When it isn't open.
    pub fn len(&self, fd: u32) -> Result<u64> {
        match self.open.get(&fd).ok_or_else(|| refused(libc::EBADF))? {
            Open::Kept(f) => Ok(f.metadata()?.len()),
            Open::Made(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Reads from one.
    ///
    /// # Errors
    /// When it isn't open, or can't be read.
    pub fn read(&mut self, fd: u32, offset: u64, into: &mut [u8]) -> Result<usize> {
        match self.open.get_mut(&fd).ok_or_else(|| refused(libc::EBADF))? {
            Open::Kept(f) => {
                f.seek(SeekFrom::Start(offset))?;
                f.read(into)
            }
            Open::Made(bytes) => {
                let rest = bytes.get(offset as usize..).unwrap_or(&[]);
                let n = rest.len().min(into.len());
                into[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            }
        }
    }
}

/// A mapping as the program has it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mapping {
    range: Range<u64>,
    access: String,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    name: String,
}

impl Mapping {
    /// Nothing is in it. It may have a name: the kernel calls that "[stack]" which lies where the stack of the process was that became the program.
    fn is_reservation(&self) -> bool {
        self.access.starts_with("---") && self.inode == 0
    }

    /// Is the other one the next part of the same code, behind this one? (Of data the kernel makes several mappings by itself.)
    fn goes_on_in(&self, next: &Mapping) -> bool {
        let is_behind = self.range.end == next.range.start
            && self.offset + (self.range.end - self.range.start) == next.offset;
        let same = |m: &Mapping| (m.device, m.inode, m.access.clone(), m.name.clone());
        let is_code = self.inode != 0 && self.access.contains('x');
        is_behind && is_code && same(self) == same(next)
    }
}

/// As the kernel lists them.
fn listed(all: &[Mapping], is_wanted: impl Fn(&Mapping) -> bool) -> String {
    let mut out = String::new();
    for one in all.iter().filter(|m| is_wanted(m)) {
        let Range { start, end } = one.range;
        let (major, minor) = one.device;
        let _ = writeln!(
            out,
            "{start:x}-{end:x} {} {:08x} {major:02x}:{minor:02x} {} {}",
            one.access, one.offset, one.inode, one.name
        );
    }
    out
}

impl Debuggee {
    /// Opens what the program knew under this name.
    ///
    /// # Errors
    /// When the trace has no such file.
    pub fn open_file(&self, name: &[u8]) -> Result<Open> {
        if let Some(hash) = self.kept(name) {
            let name = Path::new(FILES_DIR).join(hash.to_string());
            return opened::open(&self.dir, name).map(Open::Kept);
        }
        let name = std::str::from_utf8(name).unwrap_or("");
        let mut parts = name.strip_prefix("/proc/").unwrap_or("").split('/');
        let (process, what) = (parts.next(), parts.next_back());
        match (process, what) {
            (Some(_), Some("maps")) => Ok(Open::Made(self.mappings()?.into_bytes())),
            // What gdb writes core files by.
            (Some(_), Some("smaps")) => Ok(Open::Made(self.mappings_with_contents()?.into_bytes())),
            (Some(_), Some("cmdline")) => Ok(Open::Made(
                self.program().map_or_else(Vec::new, |p| p.command.clone()),
            )),
            (Some(_), Some("comm")) => {
                let mut name = self.executable();
                let from = name.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
                name.drain(..from);
                name.push(b'\n');
                Ok(Open::Made(name))
            }
            _ => Err(refused(libc::ENOENT)),
        }
    }

    /// What the trace keeps of the file that the program knew under this name, or by way of symbolic links, which are not in the trace,
    /// under another one with the same last part.
    pub(crate) fn kept(&self, name: &[u8]) -> Option<ContentHash> {
        let last = |path: &[u8]| path.rsplit(|b| *b == b'/').next().unwrap_or(path).to_vec();
        let files = &self.timeline.known.files;
        let cwd = &self.live.manifest().cwd.0;
        let plain = normal(name, cwd);
        // The program may have opened it by way of `..`, or from where it was.
        let same_place = || {
            let mut all = files.iter();
            let found = all.find(|(known, _)| plain.is_some() && normal(known, cwd) == plain)?;
            Some(found.1)
        };
        let same = || {
            let wanted = last(name);
            let mut alike = files.iter().filter(|(known, _)| last(known) == wanted);
            let (_, hash) = alike.next()?;
            alike.all(|(_, other)| other == hash).then_some(hash)
        };
        let found = files.get(name).or_else(same_place).or_else(same);
        found.copied()
    }

    /// The program's file.
    pub fn executable(&self) -> Vec<u8> {
        self.program().map_or_else(Vec::new, |p| p.file.clone())
    }

    /// The program that runs here.
    fn program(&self) -> Option<&Program> {
        let timeline = &self.timeline;
        timeline.programs.get(timeline.program_at(self.events()))
    }

    /// The program's mappings, as /proc/PID/maps would list them, with the recorded names.
    pub(crate) fn mappings(&self) -> Result<String> {
        Ok(listed(&self.shown_mappings()?, |_| true))
    }

    /// Those of which a core file has the contents. A reservation has none: programs such as Java's make some of many gigabytes.
    fn mappings_with_contents(&self) -> Result<String> {
        Ok(listed(&self.shown_mappings()?, |m| !m.is_reservation()))
    }

    /// In the replay the kernel has several mappings where code was rewritten; the program has one.
    fn shown_mappings(&self) -> Result<Vec<Mapping>> {
        let maps = Maps::of(self.pid)?;
        let mut all: Vec<Mapping> = Vec::new();
        let beside = self.beside();
        for line in maps.lines() {
            let Range { start, end } = line.range;
            let is_ours = self.timeline.code_at(self.events()).is_stub(start)
                || beside.iter().any(|b| b.contains(&start));
            if start < RESERVATION_END && end > RESERVATION || is_ours {
                continue;
            }
            let one = Mapping {
                range: line.range,
                access: String::from_utf8_lossy(&line.access).into_owned(),
                offset: line.offset,
                device: line.device,
                inode: line.inode,
                name: self.recorded_name(&line.name.to_string_lossy()),
            };
            match all.last_mut().filter(|last| last.goes_on_in(&one)) {
                Some(last) => last.range.end = end,
                None => all.push(one),
            }
        }
        Ok(all)
    }

    /// The name under which the program mapped a file of the trace.
    fn recorded_name(&self, name: &str) -> String {
        let base = name.rsplit('/').next().unwrap_or(name);
        let known = &self.timeline.known;
        let whole = known.files.iter().filter(|(_, h)| h.to_string() == base);
        let parts = known
            .parts
            .iter()
            .filter(|(_, number)| inputs::name(**number) == base);
        let mut names = whole.map(|(n, _)| n).chain(parts.map(|(n, _)| n));
        let found = names
            .next()
            .map(|n| String::from_utf8_lossy(n).into_owned());
        found.unwrap_or_else(|| match name.contains("reprise") {
            true => String::new(),
            false => name.into(),
        })
    }

    /// The auxiliary vector, as the program found it above its stack.
    ///
    /// # Errors
    /// When its stack can't be read.
    pub fn auxiliary_vector(&self) -> Result<Vec<u8>> {
        /// Most words of arguments, environment and vector.
        const MOST: u64 = 1 << 20;
        let mut at = self.program().map_or(0, |p| p.initial_sp);
        let end = at + 8 * MOST;
        let mut word = || {
            let mut bytes = [0; 8];
            self.read(at, &mut bytes)?;
            at += 8;
            match at < end {
                true => Ok(u64::from_le_bytes(bytes)),
                false => Err(refused(libc::E2BIG)),
            }
        };
        let count = word()?;
        for _ in 0..count {
            word()?;
        }
        // The end of the arguments, then the environment.
        word()?;
        while word()? != 0 {}
        let mut out = Vec::new();
        loop {
            let (kind, value) = (word()?, word()?);
            out.extend(kind.to_le_bytes());
            out.extend(value.to_le_bytes());
            if kind == 0 {
                return Ok(out);
            }
        }
    }

    /// Writable memory of the program that is there: first byte and length of each stretch.
    ///
    /// # Errors
    /// When the kernel doesn't say.
    pub fn writable(&self) -> Result<Vec<(u64, u64)>> {
        let maps = Maps::of(self.pid)?;
        let stubs: Vec<(u64, u64)> = self
            .slots()
            .map(|i| {
                let slot = self.live.slot(i);
                (slot.stub_first.load(SeqCst), slot.stub_len.load(SeqCst))
            })
            .collect();
        let of_program = |start: u64, end: u64| {
            let compiled = &self.points.compiled;
            (start >= RESERVATION_END || end <= RESERVATION)
                && !compiled.iter().any(|c| c.holds(start))
                && !stubs
                    .iter()
                    .any(|(at, len)| *len > 0 && (start..end).contains(at))
        };
        Ok(maps
            .lines()
            .filter(|l| l.access.starts_with(b"rw") && of_program(l.range.start, l.range.end))
            .map(|l| (l.range.start, l.range.end - l.range.start))
            .filter(|(_, len)| *len >= PAGE)
            .collect())
    }

    /// All mappings.
    pub(crate) fn mapped(&self) -> std::io::Result<Vec<Range<u64>>> {
        let maps = Maps::of(self.pid)?;
        Ok(maps.lines().map(|l| l.range).collect())
    }

    /// Mappings that can be run.
    pub(crate) fn code_mappings(&self) -> std::io::Result<Vec<Range<u64>>> {
        let maps = Maps::of(self.pid)?;
        let can_run = maps.lines().filter(|l| l.access[2] == b'x');
        Ok(can_run.map(|l| l.range).collect())
    }

    /// The program's mappings that its children share.
    pub(crate) fn shared_mappings(&self) -> std::io::Result<Vec<(u64, u64)>> {
        let maps = Maps::of(self.pid)?;
        let of_program = |start: u64, end: u64| start >= RESERVATION_END || end <= RESERVATION;
        Ok(maps
            .lines()
            .filter(|l| l.is_shared() && of_program(l.range.start, l.range.end))
            .map(|l| (l.range.start, l.range.end - l.range.start))
            .collect())
    }
}

/// Lays out the files of a recording under a directory, as links into the trace, for a gdb on this machine: it reads them faster than
/// through the connection.
///
/// # Errors
/// When the directory can't be written.
pub fn lay_out(timeline: &Timeline, dir: &Path, cwd: &[u8], root: &Path) -> Result<()> {
    let files = dir.join(FILES_DIR).canonicalize()?;
    for (name, hash) in &timeline.known.files {
        let name = normal(name, cwd).and_then(|n| String::from_utf8(n).ok());
        for name in name.iter().flat_map(|n| aliases(n)) {
            let path = root.join(&name[1..]);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            match std::os::unix::fs::symlink(files.join(hash.to_string()), &path) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                done => done?,
            }
        }
    }
    Ok(())
}

/// A name without `.` and `..`, from the root, as far as that is seen without the file system: a directory on the way that is a symbolic link
/// would lead elsewhere. `cwd`: where a name begins that does not begin at the root.
pub(crate) fn normal(name: &[u8], cwd: &[u8]) -> Option<Vec<u8>> {
    let whole = match name.first()? {
        b'/' => name.to_vec(),
        _ if cwd.starts_with(b"/") => [cwd, b"/", name].concat(),
        _ => return None,
    };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in whole.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    match parts[..] {
        [] => None,
        _ => Some([b"/", &parts.join(&b'/')[..]].concat()),
    }
}

/// Names under which distributions have the same file by way of symbolic links, which are not in the trace.
fn aliases(name: &str) -> Vec<String> {
    let mut all = vec![name.to_string()];
    let base = name.rsplit('/').next().unwrap_or(name);
    if base.starts_with("ld-linux") {
        all.push(format!("/lib64/{base}"));
        all.push(format!("/lib/{base}"));
    }
    if base == "libc.so" && name.contains("musl") {
        // It is its own dynamic linker.
        all.push("/lib/ld-musl-x86_64.so.1".to_string());
    }
    if let Some(rest) = name.strip_prefix("/usr/lib") {
        all.push(format!("/lib{rest}"));
    } else if name.starts_with("/lib") {
        all.push(format!("/usr{name}"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_was_rewritten_is_one_mapping() {
        let mapping = |start: u64, end: u64, access: &str, offset: u64, inode: u64| Mapping {
            range: start..end,
            access: access.into(),
            offset,
            device: (8, 1),
            inode,
            name: "/lib/x.so".into(),
        };
        let first = mapping(0x1000, 0x3000, "r-xp", 0x1000, 7);
        assert!(first.goes_on_in(&mapping(0x3000, 0x4000, "r-xp", 0x3000, 7)));
        for other in [
            mapping(0x4000, 0x5000, "r-xp", 0x3000, 7),
            mapping(0x3000, 0x4000, "r-xp", 0x4000, 7),
            mapping(0x3000, 0x4000, "r--p", 0x3000, 7),
            mapping(0x3000, 0x4000, "r-xp", 0x3000, 8),
        ] {
            assert!(!first.goes_on_in(&other), "{other:?}");
        }
        // Of what the linker has relocated, and what it hasn't.
        let data = mapping(0x1000, 0x3000, "r--p", 0x1000, 7);
        assert!(!data.goes_on_in(&mapping(0x3000, 0x4000, "r--p", 0x3000, 7)));
        assert!(mapping(0x1000, 0x3000, "---p", 0, 0).is_reservation());
        assert!(!mapping(0x1000, 0x3000, "---p", 0, 7).is_reservation());
        let listed = listed(&[first], |_| true);
        assert_eq!(listed, "1000-3000 r-xp 00001000 08:01 7 /lib/x.so\n");
    }

    #[test]
    fn names_lead_from_the_root() {
        let of = |name: &str, cwd: &str| {
            let name = normal(name.as_bytes(), cwd.as_bytes())?;
            Some(String::from_utf8(name).expect("text"))
        };
        assert_eq!(
            of("/a/bin/../lib/./x.so", "/").as_deref(),
            Some("/a/lib/x.so")
        );
        assert_eq!(of("../lib/x.so", "/a/bin").as_deref(), Some("/a/lib/x.so"));
        assert_eq!(of("/../../x.so", "/a").as_deref(), Some("/x.so"));
        assert_eq!(of("//a//x.so", "/").as_deref(), Some("/a/x.so"));
        assert_eq!(of("/a/..", "/"), None);
        assert_eq!(of("x.so", ""), None);
        assert_eq!(of("", "/"), None);
    }
}
