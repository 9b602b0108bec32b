//! Files of a trace, opened as what they are: somebody else's. A trace directory may come from anywhere; a link in it may lead out of it, a fifo would
//! never end to be opened, and a device never to be read (symlink(7), fifo(7)).

use crate::error::Context;
use crate::{ContentHash, Result, FILES_DIR};
use rustix::fs::{fstat, openat, FileType, Mode, OFlags, CWD};
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Opens the file `name` of the trace in `dir` for reading: a regular file below that directory, to which no link leads. `name` is relative; `dir` itself
/// is the user's own word and may be a link.
///
/// # Errors
/// As openat(2); [`io::ErrorKind::InvalidInput`] where something else lies there.
pub fn open(dir: &Path, name: impl AsRef<Path>) -> io::Result<File> {
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, dir, way, Mode::empty())?;
    let mut components = name.as_ref().components().peekable();
    while let Some(component) = components.next() {
        let Component::Normal(step) = component else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it leads out of the trace",
            ));
        };
        let flags = match components.peek() {
            Some(_) => way,
            // A fifo is opened at once, and found out; so is a terminal.
            None => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC,
        };
        let opened = openat(&at, step, flags | OFlags::NOFOLLOW, Mode::empty());
        at = opened.map_err(|e| match e {
            rustix::io::Errno::LOOP => io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is a symbolic link, which no trace has",
            ),
            other => other.into(),
        })?;
    }
    match FileType::from_raw_mode(fstat(&at)?.st_mode) {
        FileType::RegularFile => Ok(File::from(at)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        )),
    }
}

/// Reads the whole file `name` of the trace in `dir`.
///
/// # Errors
/// As [`open`] and read(2).
pub fn read(dir: &Path, name: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open(dir, name)?, &mut bytes)?;
    Ok(bytes)
}

/// Is there anything among the contents of the trace in `dir` that is no regular file? A process that opens contents by itself would wait for a fifo.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`], with the name of the first.
pub fn check_contents(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir.join(FILES_DIR))? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            let name = entry.file_name();
            let what = format!("{} is no regular file", name.to_string_lossy());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    }
    Ok(())
}

/// The first content of the trace in `dir` that is not what its name says, if there is one: all are read.
///
/// # Errors
/// When one can't be read.
pub fn damaged_content(dir: &Path) -> Result<Option<PathBuf>> {
    let files = dir.join(FILES_DIR);
    let mut names: Vec<ContentHash> = match std::fs::read_dir(&files) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other
            .context("read", &files)?
            .flatten()
            .filter_map(|e| ContentHash::from_hex(e.file_name().to_str()?))
            .collect(),
    };
    names.sort_unstable();
    for hash in names {
        let name = Path::new(FILES_DIR).join(hash.to_string());
        let path = dir.join(&name);
        let file = open(dir, name).context("open", &path)?;
        if ContentHash::of_file(&file).context("read", &path)?.0 != hash {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_below_it() {
        let t = tempfile::tempdir().unwrap();
        let dir = t.path().join("trace");
        std::fs::create_dir_all(dir.join("files")).unwrap();
        std::fs::write(t.path().join("outside"), "secret").unwrap();
        std::fs::write(dir.join("files/there"), "content").unwrap();
        assert_eq!(read(&dir, "files/there").unwrap(), b"content");
        // The directory itself may be named by a link.
        symlink(&dir, t.path().join("latest")).unwrap();
        assert_eq!(
            read(&t.path().join("latest"), "files/there").unwrap(),
            b"content"
        );

        symlink("../outside", dir.join("link")).unwrap();
        symlink(t.path(), dir.join("elsewhere")).unwrap();
        rustix::fs::mknodat(
            CWD,
            dir.join("fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for name in [
            "link",
            "elsewhere/outside",
            "fifo",
            "files",
            "../outside",
            "files/../../outside",
        ] {
            let e = open(&dir, name).expect_err(name);
            assert_eq!(
                e.kind() == io::ErrorKind::InvalidInput,
                name != "elsewhere/outside",
                "{name}: {e}"
            );
        }
        let e = open(&dir, t.path().join("outside")).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
        let e = open(&dir, "files/nothing").unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
    }
}
