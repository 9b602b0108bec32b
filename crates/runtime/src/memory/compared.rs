//! What differs between the memory of this process and that of a copy of it (Respec 4.4; DoublePlay 5.2.2), while both rest.
//!
//! Of most pages it is known without a look that they are the same: the two processes still share them. /proc/PID/pagemap says of a page whether it is
//! mapped by one process alone. That is told of either side only as long as there is no third process that has the page, too: a copy of the copy,
//! or an older one.

use crate::machine::present;
use crate::machine::sys;
use crate::memory;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;
use reprise_abi::syscalls::nr;

/// Pages that are compared at a time.
const BATCH: usize = 1024;
const BATCH_LEN: u64 = BATCH as u64 * PAGE;

/// What a comparison has come to.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Pages that were looked at, since they are not shared any more.
    pub looked_at: u64,
    /// Pages that differ.
    pub different: u64,
    /// The first of them.
    pub first: u64,
}

/// The private memory of the program, by mappings.
fn private() -> impl Iterator<Item = memory::Region> {
    memory::each().filter(|r| r.flags & region_flags::SHARED == 0)
}

/// Compares the program's private memory with that of the process with this id. `None`: it can't be read.
pub fn with(pid: u32) -> Option<Compared> {
    let mut c = Compared::default();
    for r in private() {
        let mut look = |page| -> bool {
            c.looked_at += 1;
            match is_same(pid, page) {
                Some(true) => true,
                Some(false) => {
                    if c.different == 0 {
                        c.first = page;
                    }
                    c.different += 1;
                    true
                }
                None => false,
            }
        };
        let mut at = r.start;
        while at < r.end {
            let n = ((r.end - at) / PAGE).min(BATCH as u64) as usize;
            let (mut mine, mut others) = ([false; BATCH], [false; BATCH]);
            let end = at + n as u64 * PAGE;
            let known =
                present::each_alone(None, at, end, |p| mine[((p - at) / PAGE) as usize] = true)
                    && present::each_alone(Some(pid), at, end, |p| {
                        others[((p - at) / PAGE) as usize] = true
                    });
            if !known {
                return None;
            }
            for i in 0..n {
                if (mine[i] || others[i]) && !look(at + i as u64 * PAGE) {
                    return None;
                }
            }
            at += BATCH_LEN;
        }
    }
    Some(c)
}

/// Is this page the same in that process?
fn is_same(pid: u32, page: u64) -> Option<bool> {
    let mut theirs = [0u64; (PAGE / 8) as usize];
    transfer(
        nr::PROCESS_VM_READV,
        pid,
        theirs.as_mut_ptr() as u64,
        page,
        PAGE,
    )?;
    // What can't be read is none of the program's: guard pages.
    let mine = crate::machine::guard::read::<[u64; (PAGE / 8) as usize]>(page)?;
    Some(mine == theirs)
}

/// Moves bytes between `here` and `there` in that process.
fn transfer(call: u64, pid: u32, here: u64, there: u64, len: u64) -> Option<()> {
    let (local, remote) = ([here, len], [there, len]);
    let args = [
        pid as u64,
        local.as_ptr() as u64,
        1,
        remote.as_ptr() as u64,
        1,
        0,
    ];
    (sys::call(call, &args) == len as i64).then_some(())
}

/// A test: changes one byte of the copy, on page number `n` (of those that can be written to and are there, counted around); the page.
pub fn spoil(pid: u32, n: u64) -> Option<u64> {
    let pages = || {
        let writable =
            private().filter(|r| r.is_writable() && r.flags & region_flags::GUARDED == 0);
        writable.flat_map(|r| (r.start..r.end).step_by(PAGE as usize))
    };
    let is_there = |page: &u64| {
        let mut there = false;
        present::each_written(*page, page + PAGE, |_| there = true) && there
    };
    let count = pages().filter(is_there).count() as u64;
    let page = pages().filter(is_there).nth((n % count.max(1)) as usize)?;
    let at = page + n / 7 % PAGE;
    // The kernel writes to it.
    let byte = core::cell::UnsafeCell::new(0u8);
    transfer(nr::PROCESS_VM_READV, pid, byte.get() as u64, at, 1)?;
    // SAFETY: nobody else has it.
    unsafe { *byte.get() ^= 1 << (n % 8) };
    transfer(nr::PROCESS_VM_WRITEV, pid, byte.get() as u64, at, 1)?;
    Some(page)
}
