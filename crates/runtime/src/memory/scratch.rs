//! Scratch memory of a thread: what the kernel reads and writes while the thread does not hold the baton (DESIGN 3).

use crate::machine::guard;
use crate::machine::sys;
use crate::thread::{block_address, Block, Current, SCRATCH, SCRATCH_LEN};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::layout::{ARENA_BASE, EPOCHS_BASE, SHADOW_BASE};
use reprise_abi::order::ORDER_BASE;

/// The most scratch memory one call can get, in bytes; larger transfers are made in part, as a short read or write.
pub const MAX_SCRATCH: usize = 64 << 20;

static ARENA_NEXT: AtomicU64 = AtomicU64::new(ARENA_BASE);

static SHADOW_NEXT: AtomicU64 = AtomicU64::new(SHADOW_BASE);

/// Takes address space for the runtime's own use; never given back.
pub fn arena(len: u64) -> Option<u64> {
    let looks_for_races = crate::thread::in_force::orders_synchronisation()
        && crate::thread::in_force::looks_for_races();
    let end = if looks_for_races || crate::thread::in_force::has_private_views() {
        SHADOW_BASE
    } else {
        EPOCHS_BASE
    };
    piece(&ARENA_NEXT, end, len)
}

/// Pieces of the arena that belong to the program's memory: what lies there is of a piece with what is in that. Address and bytes of each.
static TABLES: [[AtomicU64; 2]; MOST_TABLES] =
    [const { [const { AtomicU64::new(0) }; 2] }; MOST_TABLES];
static TABLES_USED: AtomicU64 = AtomicU64::new(0);
/// Two, and those of threads that came to make one at the same time.
const MOST_TABLES: usize = 64;

/// As [`arena`], for what belongs to the program's memory: whoever takes over another state of that takes over this, too ([`tables`]).
pub fn table(len: u64) -> Option<u64> {
    let at = arena(len)?;
    let [to_at, to_len] = TABLES.get(TABLES_USED.fetch_add(1, Relaxed) as usize)?;
    to_len.store((len + 4095) & !4095, Relaxed);
    to_at.store(at, Relaxed);
    Some(at)
}

/// All of these, while no thread makes one: address and bytes.
pub fn tables() -> impl Iterator<Item = (u64, u64)> {
    let all = TABLES
        .iter()
        .map(|[at, len]| (at.load(Relaxed), len.load(Relaxed)));
    all.filter(|(at, _)| *at != 0)
}

/// As [`arena`], for what only a replay that looks for races has.
pub fn shadow_arena(len: u64) -> Option<u64> {
    piece(&SHADOW_NEXT, ORDER_BASE, len)
}

fn piece(next: &AtomicU64, end: u64, len: u64) -> Option<u64> {
    let len = (len + 4095) & !4095;
    // A guard page stays unmapped behind every piece.
    let at = next.fetch_add(len + 4096, Relaxed);
    // Threads that are processes have one arena, mapped before they were made.
    let mapped = || crate::thread::in_force::threads_are_processes() || sys::map_own(at, len);
    (at + len < end && mapped()).then_some(at)
}

/// Where the next piece of the arena will be.
pub fn arena_next() -> u64 {
    ARENA_NEXT.load(Relaxed)
}

/// The smallest unit of transfers without a cache (O_DIRECT): buffers of such calls must lie at a multiple of it, or of a page.
pub const SECTOR: usize = 512;

/// Scratch memory for a buffer of `len` bytes, at most.
pub fn room(len: usize) -> usize {
    match len >= SECTOR {
        true => len.saturating_add(4096 + 16),
        false => len + 16,
    }
}

/// The next place from `at` on for `len` bytes: aligned as the program's own at `like`, so that O_DIRECT is answered as it would be there.
fn aligned(at: u64, len: usize, like: u64) -> u64 {
    if len < SECTOR {
        return at;
    }
    let unit = if like % 4096 == 0 {
        4096
    } else {
        SECTOR as u64
    };
    at + (like.wrapping_sub(at) & (unit - 1))
}

/// A bump allocator over a thread's scratch memory, for one call.
pub struct Scratch {
    next: u64,
    end: u64,
}

impl Scratch {
    /// Scratch memory for a call that needs `want` bytes (less may be given: see [`MAX_SCRATCH`]).
    pub fn new(t: &mut Block, want: usize) -> Scratch {
        let own = block_address(t.slot) + SCRATCH;
        if want as u64 + 64 <= SCRATCH_LEN {
            return Scratch {
                next: own,
                end: own + SCRATCH_LEN,
            };
        }
        Scratch::large(t.as_current(), want).unwrap_or(Scratch {
            next: own,
            end: own + SCRATCH_LEN,
        })
    }

    /// Scratch memory beside what every thread has; `None` when there is no more.
    pub fn large(t: Current, want: usize) -> Option<Scratch> {
        let want = want.min(MAX_SCRATCH) as u64 + 4096;
        let (mut at, mut len) = t.big_scratch().get();
        if len < want {
            let more = want.next_power_of_two();
            if let Some(new) = arena(more) {
                if len != 0 {
                    sys::call(reprise_abi::syscalls::nr::MUNMAP, &[at, len]);
                }
                (at, len) = (new, more);
                t.big_scratch().set((at, len));
            }
        }
        (len != 0).then_some(Scratch {
            next: at,
            end: at + len,
        })
    }

    /// Takes exactly `len` bytes, for what the program has at `like`.
    pub fn take(&mut self, len: usize, like: u64) -> Option<u64> {
        let at = aligned(self.next, len, like);
        let len = (len as u64 + 15) & !15;
        if len > self.end.saturating_sub(at) {
            return None;
        }
        self.next = at + len;
        Some(at)
    }

    /// Takes `len` bytes or as many as there are.
    pub fn take_most(&mut self, len: usize, like: u64) -> Option<(u64, usize)> {
        let at = aligned(self.next, len, like);
        let n = len.min(self.end.saturating_sub(at) as usize & !15);
        if n == 0 && len > 0 {
            return None;
        }
        self.next = at + ((n as u64 + 15) & !15);
        Some((at, n))
    }

    /// Copies program memory in; on failure the errno as a negative number.
    pub fn copy_in(&mut self, from: u64, len: usize) -> Result<u64, i64> {
        let at = self.take(len, from).ok_or(-12i64)?;
        // SAFETY: scratch is ours; the program's side is guarded.
        guard::guarded(|| unsafe { guard::copy(at, from, len) }).ok_or(-14i64)?;
        Ok(at)
    }

    /// Copies in `len` bytes or as many as there is room for.
    pub fn copy_in_most(&mut self, from: u64, len: usize) -> Result<(u64, usize), i64> {
        let (at, len) = self.take_most(len, from).ok_or(-12i64)?;
        // SAFETY: as above.
        guard::guarded(|| unsafe { guard::copy(at, from, len) }).ok_or(-14i64)?;
        Ok((at, len))
    }
}
