//! Record: what is known of the descriptors that a program reads: how much each has brought, which file it is, and where its position is.
//!
//! **Invariant:** a file is said of a descriptor only if nothing has given the descriptor another meaning since somebody looked
//! ([`Followed::look`] to [`Followed::found`]), and only where one table of descriptors is all that this memory's threads have.

use crate::log::output::table;
use crate::thread::Block;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};

/// So many KiB of a descriptor are logged by their bytes before the agent is asked: who reads little has nothing to do with references.
const BEFORE_ASKING: i32 = 128;
/// A file is asked about that is so many KiB long, or has brought so many: the copy of a shorter one, a file of its own in the trace, costs more than its bytes in
/// the events do. (Recording who reads 500 files of 200 KB took 1.6 to 2.1 times as long with copies of them.)
const WORTHWHILE: i32 = 512;
/// Where counting begins once more, when the file can't be referred to now.
const NOT_NOW: i32 = -4096;
/// In [`Followed::brought`]: it will never be a file to refer to.
const NEVER: i32 = i32::MIN;
/// Descriptors that are followed; of others all is logged by its bytes.
const MOST: usize = 4096;
/// In [`Followed::file`]: the lowest bits are its row plus 1, and those from here on its number.
const NUMBER_SHIFT: u32 = 16;
/// In [`Followed::file`]: which file it is isn't known; what follows counts how often that was so.
const UNKNOWN: u64 = 1 << 63;
/// In [`Followed::position`]: not known.
const ANYWHERE: u64 = u64::MAX;
/// In [`Followed::position`]: others than reads move it, so it is asked for each time.
const MOVED: u64 = u64::MAX - 1;

/// A descriptor.
pub struct Followed {
    /// KiB that it has brought, up to [`WORTHWHILE`].
    brought: AtomicI32,
    file: AtomicU64,
    position: AtomicU64,
}

static ALL: [Followed; MOST] = [const {
    Followed {
        brought: AtomicI32::new(0),
        file: AtomicU64::new(UNKNOWN),
        position: AtomicU64::new(ANYWHERE),
    }
}; MOST];
/// Each time that descriptors are forgotten has a number of its own.
static FORGOTTEN: AtomicU64 = AtomicU64::new(UNKNOWN);

/// What is known of `fd`; none where it isn't followed.
#[inline]
pub fn get(fd: u64) -> Option<&'static Followed> {
    ALL.get(fd as u32 as usize)
}

/// Descriptors have got another meaning, or none.
pub fn forget(first: u64, last: u64) {
    let end = (last as u32 as usize).min(MOST - 1);
    let first = first as u32 as usize;
    let unknown = fresh();
    for it in ALL.iter().take(end + 1).skip(first) {
        // Most were never read: a page that stays as it is costs no copy after a fork.
        if it.file.load(Relaxed) != UNKNOWN || it.brought.load(Relaxed) != 0 {
            it.file.store(unknown, SeqCst);
            it.brought.store(0, Relaxed);
            it.position.store(ANYWHERE, Relaxed);
        }
    }
}

/// Not known, and not known in this way before.
fn fresh() -> u64 {
    FORGOTTEN.fetch_add(1, Relaxed).wrapping_add(1) | UNKNOWN
}

/// Somebody is about to look which file a descriptor is.
pub struct Looking(u64);

impl Followed {
    /// Is it time to look which file it is, when it is to bring `asked` bytes? One that brings much at once is due at once.
    #[inline]
    pub fn is_due(&self, asked: u64) -> bool {
        let so_far = self.brought.load(Relaxed);
        so_far >= BEFORE_ASKING || (so_far >= 0 && asked >> 10 >= BEFORE_ASKING as u64)
    }

    /// Is a file worth a copy that has `size` bytes?
    pub fn is_worthwhile(&self, size: u64) -> bool {
        self.brought.load(Relaxed) >= WORTHWHILE || size >> 10 >= WORTHWHILE as u64
    }

    /// It has brought `bytes` more.
    #[inline]
    pub fn count(&self, bytes: i64) {
        let sum = self.brought.load(Relaxed);
        if sum != NEVER && sum < WORTHWHILE {
            let more = (bytes >> 10).min(i32::MAX as i64) as i32;
            self.brought
                .store(sum.saturating_add(more).min(WORTHWHILE), Relaxed);
        }
    }

    /// It is no file to refer to, and never will be.
    pub fn never(&self) {
        self.brought.store(NEVER, Relaxed);
    }

    /// It can't be referred to for the time being.
    pub fn not_now(&self) {
        self.brought.store(NOT_NOW, Relaxed);
    }

    /// Which file it is will be looked at next.
    pub fn look(&self) -> Looking {
        let file = self.file.load(SeqCst);
        if file != UNKNOWN {
            return Looking(file);
        }
        // So that who forgets it finds something to forget.
        let fresh = fresh();
        match self.file.compare_exchange(file, fresh, SeqCst, SeqCst) {
            Ok(_) => Looking(fresh),
            Err(other) => Looking(other),
        }
    }

    /// It was this file, by its row and number, when it was looked at.
    pub fn found(&self, since: Looking, row: usize, number: u32) {
        let file = (row as u64 + 1) | ((number as u64) << NUMBER_SHIFT);
        // Somebody has closed it meanwhile: that counts.
        let _ = self.file.compare_exchange(since.0, file, SeqCst, Relaxed);
    }

    /// The row and number of its file, where both are known: nobody need look.
    #[inline]
    pub fn file(&self, t: &Block) -> Option<(usize, u32)> {
        if !table::is_one() || !table::is_known(t.as_current()) {
            return None;
        }
        let file = self.file.load(SeqCst);
        if file & UNKNOWN != 0 {
            return None;
        }
        let row = (file as u16 as usize).checked_sub(1)?;
        Some((row, (file >> NUMBER_SHIFT) as u32))
    }

    /// The row in which its file was found last: where to look first.
    pub fn last_row(&self) -> Option<usize> {
        let file = self.file.load(Relaxed);
        match file & UNKNOWN {
            0 => (file as u16 as usize).checked_sub(1),
            _ => None,
        }
    }

    /// Where its next read begins, if reads were all that moved it.
    #[inline]
    pub fn position(&self) -> Option<u64> {
        Some(self.position.load(Relaxed)).filter(|at| *at < MOVED)
    }

    /// Its position is here, after a read that began where `expected` said, if anything did.
    #[inline]
    pub fn moved_to(&self, position: u64, expected: bool) {
        match (self.position.load(Relaxed), expected) {
            (MOVED, _) => {}
            (_, true) => self.position.store(position, Relaxed),
            // Who seeks, or shares the position with others, does so again.
            (_, false) => self.position.store(MOVED, Relaxed),
        }
    }
}
