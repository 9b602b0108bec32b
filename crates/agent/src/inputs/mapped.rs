//! What mappings show of large files ([`reprise_abi::mapped`]): before the event of a mapping gets into the trace, its range is in the copy.
//!
//! Nobody knows what the program will have read there, so no hash decides, but the file's identity after the copy: only files on which there is a lease are
//! mapped by reference, and whoever wants to change one waits for it. mremap(2) can make a mapping show more of a file that has been given up
//! meanwhile: such files stay open, without a lease, and what is copied of them later is right as long as they are what they were.

use super::{fill, mark_inexact, stamp, Copy, Inputs, Row, LEN, PIECE};
use reprise_abi::event::{Event, Kind, Tag};
use reprise_abi::inputs::{input_state, inputs, Reference};
use reprise_abi::mapped;
use reprise_abi::syscalls::nr;
use reprise_launch::SharedSession;
use reprise_trace::{inputs as copies, TraceError, FILES_DIR};
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// Most files that stay open although nothing more is referred to but by mappings that grow.
const MOST_GIVEN_UP: usize = 64;

/// Can this event say what a mapping shows?
pub(super) fn may_map(event: &Event) -> bool {
    let call = u64::from(event.header.detail);
    event.kind == Kind::Syscall && matches!(call, nr::MMAP | nr::MREMAP)
}

/// Files that were mapped, and are not referred to any more.
#[derive(Default)]
pub(super) struct GivenUp(VecDeque<Row>);

impl GivenUp {
    /// Whoever wants to change the file may.
    pub(super) fn add(&mut self, mut row: Row) {
        row.lease.give_back(&row.source);
        if self.0.len() == MOST_GIVEN_UP {
            self.0.pop_front();
        }
        self.0.push_back(row);
    }
}

impl Inputs {
    /// As [`Inputs::keep`], of a mapping.
    pub(super) fn keep_mapped(
        &mut self,
        shared: &SharedSession,
        event: &Event,
    ) -> Result<Option<Vec<u8>>, TraceError> {
        let mut changed = None;
        for section in event.sections().filter(|s| s.tag == Tag::Mapped) {
            // What is none is none of ours: a replay finds that out.
            let Some(r) = mapped::parse(section.bytes) else {
                continue;
            };
            let same = |row: &Row| row.number == r.file();
            let found = self
                .rows
                .iter()
                .position(|row| row.as_ref().is_some_and(same));
            let mut given_up = self.given_up.0.iter_mut();
            let row = match found {
                Some(row) => self.rows[row].as_mut(),
                None => given_up.find(|row| same(row)),
            };
            let copied = match row {
                Some(row) => row.keep_range(&self.dir, &mut self.piece, &r)?,
                None => None,
            };
            if let Some(copied) = copied {
                self.copied += copied;
            } else {
                let name = found.and_then(|row| self.rows[row].as_ref());
                let name = name.map(|row| row.name.display().to_string());
                self.is_not_copied(name);
                mark_inexact(&mut changed, event, section.bytes, &r);
            }
            let Some(row) = found else { continue };
            self.uses += 1;
            let uses = self.uses;
            if let Some(it) = &mut self.rows[row] {
                it.handled += 1;
                it.references += 1;
                it.mapped = true;
                it.last_used = uses;
                if copied.is_none() {
                    let table = inputs(shared.session());
                    table.files[row].state.store(input_state::CLOSED, SeqCst);
                }
            }
        }
        Ok(changed)
    }

    fn is_not_copied(&mut self, name: Option<String>) {
        let name = name.unwrap_or_else(|| "a file".into());
        let warning = format!(
            "{name} was changed right after the program had mapped it: from there on a replay may not be what happened (--inputs copy keeps what is mapped before the program goes on)"
        );
        if !self.warnings.contains(&warning) {
            reprise_console::say!("{warning}");
            self.warnings.push(warning);
        }
    }
}

impl Row {
    fn is_as_it_was(&self) -> bool {
        self.source
            .metadata()
            .is_ok_and(|meta| stamp(&meta) == self.stamp)
    }

    /// Copies what is not there yet of a range, as far as the file goes: how many bytes that were; none when the file isn't any more what it was.
    ///
    /// # Errors
    /// When there is no room.
    fn keep_range(
        &mut self,
        dir: &Path,
        piece: &mut Vec<u8>,
        r: &Reference,
    ) -> Result<Option<u64>, TraceError> {
        let range = r.offset..(r.offset + r.len).min(self.stamp[LEN]);
        if range.start < range.end {
            self.bytes_referred += range.end - range.start;
        }
        let as_before = self.is_as_it_was();
        let Copy::Growing { file, have } = &mut self.copy else {
            return Ok(Some(0));
        };
        let missing = match range.start < range.end {
            true => have.cut(range),
            false => Vec::new(),
        };
        let missing: Vec<_> = missing.into_iter().filter(|(_, there)| !there).collect();
        if missing.is_empty() {
            return Ok(Some(0));
        }
        if !as_before {
            return Ok(None);
        }
        piece.resize(PIECE, 0);
        let mut copied = 0;
        for (part, _) in &missing {
            for at in part.clone().step_by(PIECE) {
                let bytes = &mut piece[..(part.end - at).min(PIECE as u64) as usize];
                fill(&self.source, bytes, at);
                // Holes stay holes.
                if bytes.iter().any(|b| *b != 0) {
                    let written = file.write_all_at(bytes, at);
                    let path = dir.join(FILES_DIR).join(copies::name(self.number));
                    written.map_err(|e| TraceError::io("write", &path, e))?;
                    copied += bytes.len() as u64;
                }
            }
        }
        if !self.is_as_it_was() {
            return Ok(None);
        }
        if let Copy::Growing { have, .. } = &mut self.copy {
            missing.into_iter().for_each(|(part, _)| have.add(part));
        }
        Ok(Some(copied))
    }
}
