//! What a replayed program writes, shown once: a replay that starts anew writes the same bytes again, which are not shown a second time.

use crate::marks::{Mark, Marks, Piece};
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
    /// What is shown before what.
    marks: Marks,
    /// Where what has marks ends.
    ends: [u64; 2],
}

impl Output {
    /// Nothing of it is shown.
    pub fn unseen() -> Output {
        Output {
            files: None,
            shown: [u64::MAX; 2],
            marks: Marks::default(),
            ends: [0; 2],
        }
    }

    /// With these marks.
    pub fn marked(marks: Marks) -> Output {
        Output {
            marks,
            ..Output::default()
        }
    }

    /// What has been written since the last mark was so by this process, at this event.
    pub(crate) fn mark(&mut self, pid: u32, event: u64) {
        for (i, written) in self.written().into_iter().enumerate() {
            let at = self.ends[i];
            if written > at {
                self.marks[i].push(Mark { at, pid, event });
                self.ends[i] = written;
            }
        }
    }

    /// What has marks of a stream, 1 or 2, up to this byte.
    pub(crate) fn pieces(&self, stream: u8, most: u64) -> Vec<Piece> {
        let i = usize::from(stream) - 1;
        let Some(files) = &self.files else {
            return Vec::new();
        };
        let ends = self.marks[i].iter().skip(1).map(|m| m.at);
        let ends = ends.chain([self.ends[i]]);
        let marks = self.marks[i].iter().zip(ends);
        let there = marks.take_while(|(m, _)| m.at < most);
        there
            .map(|(mark, end)| {
                let mut text = vec![0; (end.min(most) - mark.at) as usize];
                let read = files[i].read_exact_at(&mut text, mark.at);
                Piece {
                    stream,
                    mark: *mark,
                    text: read.map_or(Vec::new(), |()| text),
                }
            })
            .collect()
    }

    /// All marks.
    pub(crate) fn marks(self) -> Marks {
        self.marks
    }

    /// For a new replay: nothing is written yet; what was shown stays known.
    ///
    /// # Errors
    /// When memory or descriptors are short.
    pub fn fresh(self) -> std::io::Result<Output> {
        Ok(Output {
            files: Some([memory_file()?, memory_file()?]),
            ends: [0; 2],
            ..self
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
                let shown = self.shown[i];
                let next = self.marks[i].partition_point(|m| m.at < shown);
                let mut marks = self.marks[i][next..].iter();
                let here = marks.next().filter(|m| m.at == shown);
                let end = match here {
                    Some(_) => marks.next(),
                    None => self.marks[i].get(next),
                };
                let end = end.map_or(len, |m| m.at.min(len));
                let want = bytes.len().min((end - shown) as usize);
                let Ok(n @ 1..) = file.read_at(&mut bytes[..want], self.shown[i]) else {
                    break;
                };
                let mark = here.map(Mark::to_string).unwrap_or_default();
                let _ = match i {
                    0 => show_on(std::io::stdout(), &mark, &bytes[..n]),
                    _ => show_on(std::io::stderr(), &mark, &bytes[..n]),
                };
                self.shown[i] += n as u64;
            }
        }
        let _ = std::io::stdout().flush();
    }
}

fn show_on(mut to: impl Write, mark: &str, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(mark.as_bytes())?;
    to.write_all(bytes)
}

fn memory_file() -> std::io::Result<File> {
    Ok(memfd_create(c"output", MemfdFlags::CLOEXEC)?.into())
}
