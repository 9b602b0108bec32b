//! A test of the table (`record --test-writes`): what a call really changes in memory, against what the table says that it does.
//!
//! Before a call that the table knows, all pages that the program can write are hashed, and the buffers of the call are saved, as large as the table
//! says that they are. After it, what the event tells of gets its old bytes back, and the pages are hashed again: one that differs was written
//! where no replay would write. The recording ends there, with status 125, and names the call.

use crate::machine::guard;
use crate::machine::guarded::Guarded;
use crate::machine::sys;
use crate::memory;
use crate::memory::capture::Call;
use crate::memory::scratch::arena;
use crate::memory::track::Snapshot;
use crate::thread::leave::Baton;
use crate::thread::panic::hex;
use crate::thread::session;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::session::FLAG_TEST_WRITES;
use reprise_abi::syscalls;

/// Most stretches of memory of one call; calls with more are not looked at.
const MOST: usize = 2100;
/// Most bytes of them.
const MOST_BYTES: u64 = 4 << 20;

/// A stretch of the program's memory, and where its bytes are kept.
#[derive(Clone, Copy, Default)]
struct Kept {
    address: u64,
    len: u64,
    at: u64,
}

struct Lists {
    before: [Kept; MOST],
    after: [Kept; MOST],
}

static LISTS: Guarded<Lists, Baton> = Guarded::new(Lists {
    before: [Kept {
        address: 0,
        len: 0,
        at: 0,
    }; MOST],
    after: [Kept {
        address: 0,
        len: 0,
        at: 0,
    }; MOST],
});
/// Where bytes are kept: first those of before, then those of after.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Is the table tested?
#[inline]
pub fn are_tested() -> bool {
    session().flags & FLAG_TEST_WRITES != 0
}

/// What was there before a call.
pub struct Before {
    pages: Snapshot,
    kept: usize,
}

fn lists() -> &'static mut Lists {
    // SAFETY: calls are looked at by the thread that makes them, which has the baton before and after; it asks once before, and once after.
    unsafe { LISTS.change() }
}

fn bytes(half: u64) -> Option<u64> {
    if BYTES.load(Relaxed) == 0 {
        BYTES.store(arena(2 * MOST_BYTES)?, Relaxed);
    }
    Some(BYTES.load(Relaxed) + half * MOST_BYTES)
}

/// Copies a stretch of the program's memory to the end of a list.
fn keep(list: &mut [Kept; MOST], n: &mut usize, next: &mut u64, end: u64, address: u64, len: u64) {
    if len == 0 {
        return;
    }
    if *n == MOST || *next + len > end {
        *n = MOST;
        return;
    }
    let at = *next;
    // SAFETY: room of ours; the program's side is guarded.
    if guard::guarded(|| unsafe { guard::copy(at, address, len as usize) }).is_some() {
        list[*n] = Kept { address, len, at };
        *n += 1;
        *next += len;
    }
}

/// Looks at memory before a call; `None` where it can't be looked at.
pub fn before(c: &Call) -> Option<Before> {
    let at = bytes(0)?;
    let state = core::cell::Cell::new((0usize, at));
    c.all_memory(|address, len| {
        let (mut n, mut next) = state.get();
        let len = memory::writable_part(address, len.min(MOST_BYTES));
        if n < MOST {
            keep(
                &mut lists().before,
                &mut n,
                &mut next,
                at + MOST_BYTES,
                address,
                len,
            );
        }
        state.set((n, next));
        true
    });
    let (kept, _) = state.get();
    if kept == MOST {
        return None;
    }
    Some(Before {
        pages: Snapshot::take()?,
        kept,
    })
}

impl Before {
    /// Compares memory after the call with what its event says.
    pub fn compare(self, c: &Call, result: i64) {
        let Some(at) = bytes(1) else { return };
        let (mut n, mut next) = (0, at);
        let Lists { before, after } = lists();
        // A test of this test: of one call nothing is told.
        let is_forgotten = session().forget_syscall == c.nr + 1;
        c.outputs(result, |o| {
            if is_forgotten {
                return;
            }
            let len = memory::writable_part(o.address, o.len as u64);
            keep(after, &mut n, &mut next, at + MOST_BYTES, o.address, len);
        });
        if n == MOST {
            return;
        }
        for told in &after[..n] {
            for was in &before[..self.kept] {
                let start = told.address.max(was.address);
                let end = (told.address + told.len).min(was.address + was.len);
                if start < end {
                    let from = was.at + (start - was.address);
                    put(start, from, end - start);
                }
            }
        }
        let unknown = self.pages.changed().first().map(|[page, _]| *page);
        // The last of overlapping ones is what is there.
        for told in &after[..n] {
            put(told.address, told.at, told.len);
        }
        if let Some(page) = unknown {
            complain(c, result, page);
        }
    }
}

fn put(to: u64, from: u64, len: u64) {
    // SAFETY: the program's side is guarded.
    let _ = guard::guarded(|| unsafe { guard::copy(to, from, len as usize) });
}

fn complain(c: &Call, result: i64, page: u64) -> ! {
    let name = syscalls::lookup(c.nr).map_or("?", |d| d.name);
    let mut room = [[0; 18]; 4];
    let [a, b, r, p] = &mut room;
    sys::complain(&[
        "reprise: --test-writes: ",
        name,
        "(",
        hex(c.args[0], a),
        ", ",
        hex(c.args[1], b),
        ", ...) = ",
        hex(result as u64, r),
        " wrote what the table does not say to the page at ",
        hex(page, p),
        "\n",
    ]);
    crate::thread::panic::give_up("the table of system calls is wrong")
}
