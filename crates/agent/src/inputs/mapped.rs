//! What mappings show of large files ([`reprise_abi::mapped`]): before the event of a mapping gets into the trace, its range is in the copy.
//!
//! Nobody knows what the program will have read there, so no hash decides, but the file's identity after the copy: only files on which there is a lease are
//! mapped by reference, and whoever wants to change one waits for it. mremap(2) can make a mapping show more of a file that has been given up
//! meanwhile: such files stay open, without a lease, and what is copied of them later is right as long as they are what they were.

use super::{fill, is_version, mark_inexact, put, put_word, Copy, Inputs, Row, LEN, PIECE};
use reprise_abi::event::{Event, Kind, Tag};
use reprise_abi::inputs::{cut, input_state, inputs, Reference};
use reprise_abi::mapped;
use reprise_launch::SharedSession;
use reprise_trace::{first_data, inputs as copies, TraceError, FILES_DIR};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// Most files that stay open although nothing more is referred to but by mappings that grow.
const MOST_GIVEN_UP: usize = 64;
/// Bytes that are copied before the agent looks for what else there is to do.
const SLICE: u64 = 2 << 20;

/// Can this event say what a mapping shows?
fn may_map(event: &Event) -> bool {
    event.kind == Kind::Syscall && mapped::can_map(event.header.detail.into())
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

    fn of(&mut self, r: &Reference) -> Option<&mut Row> {
        self.0.iter_mut().find(|row| row.number == r.file())
    }
}

/// What becomes of an event.
pub(crate) enum Keeping {
    /// It can be written, as it is or as these bytes.
    Done(Option<Vec<u8>>),
    /// Not yet: what its mapping shows is copied up to somewhere. It is to be asked for again.
    Later,
}

impl Inputs {
    /// As [`Inputs::keep`], of any event. `in_slices`: others, who ask the agent for something, need not wait until a large file is copied.
    ///
    /// # Errors
    /// When there is no room.
    pub(crate) fn keep_next(
        &mut self,
        shared: &SharedSession,
        event: &Event,
        number: u64,
        in_slices: bool,
    ) -> Result<Keeping, TraceError> {
        match may_map(event) {
            true => self.keep_mapped(shared, event, in_slices),
            false => self.keep(shared, event, number).map(Keeping::Done),
        }
    }

    /// Is what an event refers to being copied, which is the next to be written?
    pub(crate) fn is_copying(&self) -> bool {
        self.copying
    }

    fn keep_mapped(
        &mut self,
        shared: &SharedSession,
        event: &Event,
        in_slices: bool,
    ) -> Result<Keeping, TraceError> {
        let sections = event.sections().filter(|s| s.tag == Tag::Mapped);
        // What is none is none of ours: a replay finds that out.
        let all: Vec<(&[u8], Reference)> = sections
            .filter_map(|s| Some((s.bytes, mapped::parse(s.bytes)?)))
            .collect();
        let mut most = match in_slices {
            true => SLICE,
            false => u64::MAX,
        };
        let mut outcomes = Vec::new();
        for (_, r) in &all {
            let row = match self.row_of(r) {
                Some(row) => self.rows[row].as_mut(),
                None => self.given_up.of(r),
            };
            let len = row.as_ref().map_or(u64::MAX, |row| row.stamp[LEN]);
            let done = match row {
                Some(row) => row.keep_range(&self.dir, &mut self.piece, r, &mut most)?,
                None => Copied::Changed,
            };
            self.copying = matches!(done, Copied::Partly(_));
            match done {
                Copied::All(bytes) | Copied::Partly(bytes) => self.copied += bytes as i64,
                Copied::Changed => {}
            }
            if self.copying {
                return Ok(Keeping::Later);
            }
            outcomes.push((!matches!(done, Copied::Changed), len));
        }
        let mut changed = None;
        for ((words, r), (is_right, len)) in all.iter().zip(outcomes) {
            let row = self.row_of(r);
            if r.offset + r.len > len {
                // A mapping that has grown shows the file as far as it goes.
                let len = len.saturating_sub(r.offset);
                put_word(&mut changed, event, words, 2, len);
            }
            if !is_right {
                let row = row.and_then(|row| self.rows[row].as_ref());
                self.is_not_copied(row.map(|row| row.name.display().to_string()));
                mark_inexact(&mut changed, event, words, r);
            }
            let Some(row) = row else { continue };
            self.uses += 1;
            let uses = self.uses;
            if let Some(it) = &mut self.rows[row] {
                it.handled += 1;
                it.references += 1;
                it.bytes_referred += r.len.min(len.saturating_sub(r.offset));
                it.mapped = true;
                it.last_used = uses;
                if !is_right {
                    let table = inputs(shared.session());
                    table.files[row].state.store(input_state::CLOSED, SeqCst);
                }
            }
        }
        Ok(Keeping::Done(changed))
    }

    fn is_not_copied(&mut self, name: Option<String>) {
        let name = name.unwrap_or_else(|| "a file".into());
        let warning = format!(
            "{name} was changed right after the program had mapped it: from there on a replay may not be what happened (--inputs copy keeps what is mapped before the program goes on)"
        );
        self.warn(warning);
    }
}

impl Row {
    /// Copies what is not there yet of a range, as far as the file goes, and no more than `most` bytes.
    ///
    /// # Errors
    /// When there is no room.
    fn keep_range(
        &mut self,
        dir: &Path,
        piece: &mut Vec<u8>,
        r: &Reference,
        most: &mut u64,
    ) -> Result<Copied, TraceError> {
        let range = r.offset..(r.offset + r.len).min(self.stamp[LEN]);
        let (number, source, stamp) = (self.number, &self.source, &self.stamp);
        let Copy::Growing { file, have } = &mut self.copy else {
            return Ok(Copied::All(0));
        };
        let missing = match range.start < range.end {
            true => have.cut(range),
            false => Vec::new(),
        };
        let mut copied = 0;
        for (part, _) in missing.into_iter().filter(|(_, there)| !there) {
            let mut at = part.start;
            while at < part.end {
                if *most == 0 {
                    return Ok(Copied::Partly(copied));
                }
                if !is_version(source, stamp) {
                    return Ok(Copied::Changed);
                }
                let data = match first_data(source, at..part.end) {
                    Ok(Some(data)) => data,
                    Ok(None) => part.end..part.end,
                    Err(_) => at..part.end,
                };
                let now = data.start..data.end.min(data.start.saturating_add(*most));
                piece.resize(PIECE as usize, 0);
                for part in cut(now.start, now.end, PIECE) {
                    let bytes = &mut piece[..(part.end - part.start) as usize];
                    fill(source, bytes, part.start);
                    let path = || dir.join(FILES_DIR).join(copies::name(number));
                    let put = put(file, bytes, part.start);
                    copied += put.map_err(|e| TraceError::io("write", &path(), e))? as u64;
                }
                if !is_version(source, stamp) {
                    return Ok(Copied::Changed);
                }
                *most -= now.end - now.start;
                have.add(at..now.end);
                at = now.end;
            }
        }
        Ok(Copied::All(copied))
    }
}

/// What was copied of a range, and how many bytes.
enum Copied {
    /// All.
    All(u64),
    /// As much as was wanted.
    Partly(u64),
    /// The file isn't any more what it was.
    Changed,
}
