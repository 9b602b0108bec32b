//! The session's memory as it was at a moment, to go back to: head, slots and tables, without the rings.

use crate::error::{os, Result};
use crate::shared::{SharedSession, ORDER_OFFSET, RING_OFFSET};
use reprise_abi::layout::SESSION_BASE;
use reprise_abi::order::{ORDER_BASE, ORDER_HEAD_LEN};
use rustix::fs::{seek, SeekFrom};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// A part of the session's memory that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where it is mapped.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
    /// Where it lies in the session's memory.
    offset: u64,
}

impl Part {
    /// Head, slots and tables.
    pub const SESSION: Part = Part {
        start: SESSION_BASE,
        len: RING_OFFSET,
        offset: 0,
    };
    /// The head of the engine `order`.
    pub const ORDER: Part = Part {
        start: ORDER_BASE,
        len: ORDER_HEAD_LEN as u64,
        offset: ORDER_OFFSET,
    };
    /// All of them, in order of their addresses.
    pub const ALL: [Part; 2] = [Part::SESSION, Part::ORDER];

    fn holds(&self, at: u64, len: u64) -> bool {
        at >= self.offset
            && at
                .checked_add(len)
                .is_some_and(|end| end <= self.offset + self.len)
    }
}

/// What was in it. Pages of zeros are not kept.
#[derive(Default)]
pub struct SavedSession {
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl SavedSession {
    /// Bytes that are kept.
    pub fn len(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// The pages of a part that are no zeros, by the addresses at which they are mapped.
    pub fn pages(&self, part: Part) -> impl Iterator<Item = (u64, &[u8])> {
        let of_part = self.pages.range(part.offset..part.offset + part.len);
        of_part.map(move |(at, bytes)| (at - part.offset + part.start, &bytes[..]))
    }

    /// Adds whole pages to what was in a part, at this address; false when they can't have been there.
    pub fn add(&mut self, part: Part, address: u64, bytes: &[u8]) -> bool {
        let at = address.wrapping_sub(part.start).wrapping_add(part.offset);
        let fits =
            at % PAGE == 0 && bytes.len() as u64 % PAGE == 0 && part.holds(at, bytes.len() as u64);
        if fits {
            let pages = bytes.chunks_exact(PAGE as usize);
            let placed = (at..).step_by(PAGE as usize).zip(pages);
            self.pages
                .extend(placed.map(|(at, page)| (at, page.into())));
        }
        fits
    }

    /// Was it all zeros?
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

impl SharedSession {
    /// Keeps what is in it now. Nobody may change it meanwhile.
    ///
    /// # Errors
    /// When memory is short.
    pub fn save(&self) -> Result<SavedSession> {
        let mut pages = BTreeMap::new();
        self.each_page(|at, bytes| {
            pages.insert(at, bytes.into());
            Ok(())
        })?;
        Ok(SavedSession { pages })
    }

    /// Makes it what it was. Nobody may use it meanwhile.
    ///
    /// # Errors
    /// When memory is short.
    pub fn put_back(&self, saved: &SavedSession) -> Result<()> {
        let file = self.file()?;
        let write = |at, bytes: &[u8]| {
            file.write_all_at(bytes, at)
                .map_err(|_| os("write the session's memory"))
        };
        self.each_page(|at, _| match saved.pages.contains_key(&at) {
            true => Ok(()),
            false => write(at, &[0; PAGE as usize]),
        })?;
        saved.pages.iter().try_for_each(|(at, b)| write(*at, b))
    }

    fn file(&self) -> Result<std::fs::File> {
        let own = self.as_fd().try_clone_to_owned();
        own.map(Into::into)
            .map_err(|_| os("open the session's memory"))
    }

    /// Calls `f` with all pages that are not zeros, but those of rings.
    fn each_page(&self, mut f: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let parts = Part::ALL.iter();
        let mut there = parts.filter(|p| **p != Part::ORDER || self.order().is_some());
        there.try_for_each(|p| self.each_between(p.offset, p.offset + p.len, &mut f))
    }

    fn each_between(
        &self,
        first: u64,
        last: u64,
        f: &mut impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let file = self.file()?;
        let mut page = [0; PAGE as usize];
        let mut at = first;
        loop {
            // What was never written is not read: that would make it be there.
            let Ok(data) = seek(self, SeekFrom::Data(at)) else {
                return Ok(());
            };
            let hole = seek(self, SeekFrom::Hole(data)).unwrap_or(0);
            let end = hole.min(last);
            at = data & !(PAGE - 1);
            if at >= end {
                return Ok(());
            }
            while at < end {
                file.read_exact_at(&mut page, at)
                    .map_err(|_| os("read the session's memory"))?;
                if page.iter().any(|b| *b != 0) {
                    f(at, &page)?;
                }
                at += PAGE;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn it_is_again_what_it_was() {
        let s = SharedSession::create().unwrap();
        s.session().baton.store(7, Relaxed);
        let saved = s.save().unwrap();
        assert!(!saved.is_empty());
        s.session().baton.store(8, Relaxed);
        s.slot(3000).visible_tid.store(9, Relaxed);
        s.put_back(&saved).unwrap();
        assert_eq!(s.session().baton.load(Relaxed), 7);
        assert_eq!(s.slot(3000).visible_tid.load(Relaxed), 0);
        assert_eq!(s.save().unwrap().len(), saved.len());
    }
}
