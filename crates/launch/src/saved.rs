//! The session's memory as it was at a moment, to go back to: head, slots and tables, without the rings.

use crate::error::{os, Result};
use crate::shared::{SharedSession, ORDER_OFFSET, RING_OFFSET};
use reprise_abi::order::ORDER_HEAD_LEN;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

/// Bytes of a page.
const PAGE: u64 = 4096;

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

    /// The pages that are no zeros, by where they are in it.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().map(|(at, bytes)| (*at, &bytes[..]))
    }

    /// Adds whole pages to what was in it, at this place; false when they can't have been there.
    pub fn add(&mut self, at: u64, bytes: &[u8]) -> bool {
        let fits = at % PAGE == 0
            && bytes.len() as u64 % PAGE == 0
            && at
                .checked_add(bytes.len() as u64)
                .is_some_and(|end| end <= RING_OFFSET);
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
        // SAFETY: open for as long as self lives.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd()) };
        let own = fd.try_clone_to_owned();
        own.map(Into::into)
            .map_err(|_| os("open the session's memory"))
    }

    /// Calls `f` with all pages that are not zeros, but those of rings.
    fn each_page(&self, mut f: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.each_between(0, RING_OFFSET, &mut f)?;
        match self.order() {
            Some(_) => {
                self.each_between(ORDER_OFFSET, ORDER_OFFSET + ORDER_HEAD_LEN as u64, &mut f)
            }
            None => Ok(()),
        }
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
            // SAFETY: a descriptor of ours. What was never written is not read: that would make it be there.
            let data = unsafe { libc::lseek(self.fd(), at as i64, libc::SEEK_DATA) };
            let hole = match data {
                0.. => unsafe { libc::lseek(self.fd(), data, libc::SEEK_HOLE) },
                _ => return Ok(()),
            };
            let end = (hole.max(0) as u64).min(last);
            at = data as u64 & !(PAGE - 1);
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
