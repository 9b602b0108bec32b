//! What a replayed program writes, shown once: a replay that starts anew writes the same bytes again, which are not shown a second time.

use rustix::fs::{memfd_create, MemfdFlags};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

/// The program's standard output and error, as files in memory, and how much of each stream has been shown.
#[derive(Default)]
pub struct Output {
    files: Option<[File; 2]>,
    shown: [u64; 2],
}

impl Output {
    /// Nothing of it is shown.
    pub fn unseen() -> Output {
        Output {
            files: None,
            shown: [u64::MAX; 2],
        }
    }

    /// For a new replay: nothing is written yet; what was shown stays known.
    ///
    /// # Errors
    /// When memory or descriptors are short.
    pub fn fresh(self) -> std::io::Result<Output> {
        Ok(Output {
            files: Some([memory_file()?, memory_file()?]),
            shown: self.shown,
        })
    }

    /// Descriptors for the program to write to.
    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        self.files.as_ref().map_or([-1; 2], |files| {
            [files[0].as_raw_fd(), files[1].as_raw_fd()]
        })
    }

    /// How much has been written.
    pub(crate) fn written(&self) -> [u64; 2] {
        let len = |f: &File| f.metadata().map_or(0, |m| m.len());
        self.files
            .as_ref()
            .map_or([0; 2], |files| [len(&files[0]), len(&files[1])])
    }

    /// Goes back to when so much had been written.
    pub(crate) fn cut(&mut self, written: [u64; 2]) {
        for (file, len) in self.files.iter().flatten().zip(written) {
            let _ = file.set_len(len);
            // The program writes where its descriptor, which is a copy of this one, is.
            let _ = (&*file).seek(SeekFrom::Start(len));
        }
    }

    /// So much was written before the replay began, which is not shown.
    pub(crate) fn begins_at(&mut self, written: [u64; 2]) {
        let here = self.written();
        self.cut([0, 1].map(|i| written[i].max(here[i])));
        for (shown, written) in self.shown.iter_mut().zip(written) {
            *shown = (*shown).max(written);
        }
    }

    /// How much of each stream has been shown.
    pub(crate) fn shown(&self) -> [u64; 2] {
        self.shown
    }

    /// What was shown since, while nothing else wrote, was not the recorded program's.
    pub(crate) fn forget_since(&mut self, shown: [u64; 2]) {
        self.shown = shown;
    }

    /// Shows what is new. What nobody wants to read is not shown.
    pub fn show(&mut self) {
        let Some(files) = &self.files else { return };
        for (i, file) in files.iter().enumerate() {
            let len = file.metadata().map_or(0, |m| m.len());
            let mut bytes = vec![0; 1 << 16];
            while self.shown[i] < len {
                let want = bytes.len().min((len - self.shown[i]) as usize);
                let Ok(n @ 1..) = file.read_at(&mut bytes[..want], self.shown[i]) else {
                    break;
                };
                let _ = match i {
                    0 => std::io::stdout().write_all(&bytes[..n]),
                    _ => std::io::stderr().write_all(&bytes[..n]),
                };
                self.shown[i] += n as u64;
            }
        }
        let _ = std::io::stdout().flush();
    }
}

fn memory_file() -> std::io::Result<File> {
    Ok(memfd_create(c"output", MemfdFlags::CLOEXEC)?.into())
}
