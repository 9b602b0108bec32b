//! Recording what shmat(2) and shmdt(2) do.

use crate::log::events;
use crate::machine::hash;
use crate::machine::present::Presence;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::scratch;
use crate::memory::shm::{attach, detach, Attached};
use crate::thread::Block;
use reprise_abi::event::{section_len, EventHeader, Kind, Tag, FILE_NUMBER_SHIFT, MAX_EVENT};
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;
use reprise_abi::syscalls::nr;

const ENOMEM: i64 = -12;

/// Record: attaches or detaches, and logs it.
pub fn record(t: &mut Block, c: &Call) -> i64 {
    if c.nr == nr::SHMDT {
        // SAFETY: the program's own call.
        let r = unsafe { sys::syscall6(c.nr, c.args) };
        if r == 0 {
            detach(c.args[0], false);
        }
        events::call_with(t, c, r, 0, 0, &[]);
        return r;
    }
    let done = attach(c);
    match done.and_then(|(r, a)| log(t, c, r, &a)) {
        Ok(r) => r,
        Err(e) => {
            events::call_with(t, c, e, 0, 0, &[]);
            e
        }
    }
}

/// Writes the event of an attachment: the segment's size, and its pages if they can't be known.
fn log(t: &Block, c: &Call, at: i64, a: &Attached) -> Result<i64, i64> {
    let (from, pages) = (at as u64, a.size.div_ceil(PAGE));
    // One byte for each page: others may change what it contains meanwhile.
    let Some(list) = scratch::arena(pages) else {
        return Err(give_back(from));
    };
    let mut full = 0;
    if a.first {
        Presence::now().each(from, from + pages * PAGE, region_flags::SHARED, |page| {
            // SAFETY: a page of the segment; a byte of the list.
            unsafe {
                if !hash::is_zero_page(page) {
                    *((list + (page - from) / PAGE) as *mut u8) = 1;
                    full += 1;
                }
            }
        });
    }
    let sections = section_len(0) + full * section_len(PAGE as usize);
    if sections > MAX_EVENT / 2 {
        sys::munmap(list, pages.next_multiple_of(PAGE));
        return Err(give_back(from));
    }
    let h = EventHeader {
        detail: c.nr as u32,
        flags: a.number << FILE_NUMBER_SHIFT,
        value: at,
        ..events::header(
            Kind::Syscall,
            t.slot,
            c.nargs + t.logging.stamps().len(),
            sections,
        )
    };
    let mut w = crate::log::ring::Writer::begin(&h);
    w.put_words(&c.args[..c.nargs]);
    w.put_words(t.logging.stamps());
    w.put_section(Tag::Offset as u32, a.size, 0, 0);
    for page in (0..pages).map(|p| from + p * PAGE) {
        // SAFETY: a byte of the list.
        if unsafe { *((list + (page - from) / PAGE) as *const u8) } != 0 {
            w.put_section(Tag::Output as u32, page, page, PAGE as usize);
        }
    }
    w.finish();
    sys::munmap(list, pages.next_multiple_of(PAGE));
    Ok(at)
}

/// It can't be recorded: what the program gets instead.
fn give_back(at: u64) -> i64 {
    sys::shmdt(at);
    detach(at, false);
    ENOMEM
}
