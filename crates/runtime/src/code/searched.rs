//! Record: what was looked for in code, and where it was found, for the whole session, and later ones (the launcher keeps it in a file): all
//! programs begin with the same loader and the same libraries.

use crate::machine::guard;
use crate::machine::hash;
use crate::memory::Region;
use crate::thread::session;
use core::sync::atomic::Ordering::*;
use reprise_abi::session::{SearchedCode, MAX_SEARCHED_SITES, SEARCH_CLAIMED};

/// Most places that are found in one mapping.
const MAX_FOUND: usize = 512;

/// What is looked for.
#[derive(Clone, Copy)]
pub enum What {
    /// Instructions that are replaced by [`crate::gate::cpuid`].
    Cpuid = 1,
    /// The one that is replaced by [`crate::code::resolver`].
    Xsavec = 2,
    /// As above, where `xsave` is used.
    Xsave = 3,
    /// As above, where `fxsave` is used.
    Fxsave = 4,
    /// Instructions that [`crate::gate::clock`] replaces.
    Clock = 5,
    /// What may be a cpuid in files that are no code of this process's modules.
    Foreign = 6,
}

/// In a place's length: of some bytes it could not be said what they are.
const UNSURE: u32 = 1 << 31;

/// Addresses of instructions.
pub struct Found {
    sites: [u64; MAX_FOUND],
    len: usize,
    unsure: bool,
}

impl Default for Found {
    fn default() -> Found {
        Found {
            sites: [0; MAX_FOUND],
            len: 0,
            unsure: false,
        }
    }
}

impl Found {
    /// Adds one; more than there is room for are left out.
    pub fn add(&mut self, pc: u64) {
        if let Some(s) = self.sites.get_mut(self.len) {
            *s = pc;
            self.len += 1;
        } else {
            self.unsure = true;
        }
    }

    /// It can't be said of all places what is there.
    pub fn be_unsure(&mut self) {
        self.unsure = true;
    }

    /// Are there places of which nothing is known?
    pub fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// All of them.
    pub fn sites(&self) -> &[u64] {
        &self.sites[..self.len]
    }
}

/// The file that a mapping of the program's beginning shows: the hash of its content, and where in it the mapping begins.
pub fn initial_content(r: &Region) -> [u64; 3] {
    let s = session();
    let known = &s.initial_regions[..s.initial_regions.len().min(s.initial_regions_len as usize)];
    let region = known.iter().find(|i| i.start == r.start);
    region.map_or([0; 3], |i| [i.content[0], i.content[1], i.offset])
}

/// What is known of the code, whose instructions of this kind have at most `size` bytes; where nothing is, what `search` finds, which is known
/// then.
pub fn found(
    r: &Region,
    content: [u64; 3],
    what: What,
    size: usize,
    search: impl FnOnce(&Region, &mut Found),
) -> Found {
    let mut found = Found::default();
    let place = Searched::of(r, content, what);
    if !place.as_ref().is_some_and(|s| s.tell(r, size, &mut found)) {
        search(r, &mut found);
        if let Some(s) = place {
            s.remember(r, &found);
        }
    }
    found
}

/// The session's place for what was found in a piece of code.
struct Searched {
    hash: u64,
    place: &'static SearchedCode,
}

impl Searched {
    /// The place of this code: its own, or one that is free. Code is known by the content of its file and the place in it, where
    /// that is known: then its bytes need not be looked at.
    fn of(r: &Region, content: [u64; 3], what: What) -> Option<Searched> {
        let len = (r.end - r.start) as usize;
        let (at, size) = match content {
            [0, 0, _] => (r.start, len),
            _ => (content.as_ptr() as u64, core::mem::size_of_val(&content)),
        };
        let seed = len as u64 ^ (what as u64) << 56;
        // SAFETY: guarded.
        let hash = guard::guarded(|| unsafe { hash::bytes(seed, at, size) })?;
        let hash = hash.clamp(1, SEARCH_CLAIMED - 1);
        let place = session().searched.iter().find(|s| {
            let its = s.hash.load(Relaxed);
            its == hash || its == 0
        })?;
        Some(Searched { hash, place })
    }

    /// What is known of the code, where instructions have at most `size` bytes; false when nothing is.
    fn tell(&self, r: &Region, size: usize, found: &mut Found) -> bool {
        let known = self.place.hash.load(Acquire) == self.hash;
        if known {
            let len = self.place.len.load(Relaxed);
            found.unsure |= len & UNSURE != 0;
            let n = (len & !UNSURE) as usize;
            let addresses = self.place.sites.iter().take(n);
            let addresses = addresses.map(|s| r.start + s.load(Relaxed) as u64);
            // Every process can scribble over the session.
            for pc in addresses.filter(|pc| pc + size as u64 <= r.end) {
                found.add(pc);
            }
        }
        known
    }

    /// Remembers what was found.
    fn remember(&self, r: &Region, found: &Found) {
        let fit = found.len <= MAX_SEARCHED_SITES && r.end - r.start <= u32::MAX as u64;
        // Other processes look for places, too.
        let free = || {
            let hash = &self.place.hash;
            hash.compare_exchange(0, SEARCH_CLAIMED, Acquire, Relaxed)
                .is_ok()
        };
        if !fit || !free() {
            return;
        }
        for (to, pc) in self.place.sites.iter().zip(found.sites()) {
            to.store((pc - r.start) as u32, Relaxed);
        }
        let unsure = if found.unsure { UNSURE } else { 0 };
        self.place.len.store(found.len as u32 | unsure, Relaxed);
        self.place.hash.store(self.hash, Release);
    }
}
