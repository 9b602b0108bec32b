//! Shadow memory: who accessed which bytes last (FastTrack, at the grain of bytes).
//!
//! For every 8 bytes of the program there is a list of accesses that a later one may race with: for each byte the last write, and the reads
//! since then that nothing orders among each other. An access leaves the list when a later one happened after it that races with all that it
//! would have raced with; so nothing is ever lost, and in the absence of races the list is short.

use super::clock::Clock;
use super::pool::Pool;
use crate::memory::scratch::shadow_arena;
use crate::thread::panic;
use reprise_abi::layout::PAGE;
use reprise_abi::races::how;

/// Bytes that have one list.
pub const GRAIN: u64 = 8;
/// Accesses that need no further block.
const FEW: usize = 2;
/// Accesses of a further block.
const MORE: usize = 5;
/// A page's lists.
const LISTS: usize = (PAGE / GRAIN) as usize;
/// The address of a page says which table of pages it is in, and where there.
const TABLE_BITS: u32 = 18;
const PAGE_BITS: u32 = 12;
const ADDRESS_BITS: u32 = 47;

/// [`Cell::flags`]: a synchronisation object lies there.
const OBJECT: u32 = 1;

/// An access that is remembered.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Past {
    /// The thread, ...
    pub thread: u16,
    /// ... which of the bytes, ...
    pub mask: u8,
    /// ... bits of [`how`], ...
    pub how: u8,
    /// ... when, by the thread's clock, ...
    pub time: u32,
    /// ... its number among all accesses, ...
    pub number: u64,
    /// ... and where.
    pub pc: u64,
}

const _: () = assert!(core::mem::size_of::<Past>() == 24);

impl Past {
    fn is(&self, bit: u32) -> bool {
        self.how as u32 & bit != 0
    }
}

#[repr(C)]
struct Cell {
    few: [Past; FEW],
    /// Address of a [`Block`].
    more: u64,
    len: u32,
    flags: u32,
}

#[repr(C)]
struct Block {
    all: [Past; MORE],
    next: u64,
}

const _: () = assert!(core::mem::size_of::<Cell>() == 64);
const _: () = assert!(core::mem::size_of::<Block>() == 128);

/// The shadow of all memory. All zero is that of memory that nobody has accessed.
#[derive(Default)]
pub struct Shadow {
    /// Address of the table of tables.
    root: u64,
    /// The page that was looked for last, plus 1, and its lists.
    last: (u64, u64),
}

impl Cell {
    /// The `i`th access; there must be so many.
    fn at(&mut self, i: usize) -> &mut Past {
        if i < FEW {
            return &mut self.few[i];
        }
        let (mut i, mut block) = (i - FEW, self.more);
        loop {
            // SAFETY: blocks of the pool, as many as the length says.
            let b = unsafe { &mut *(block as *mut Block) };
            if i < MORE {
                return &mut b.all[i];
            }
            (i, block) = (i - MORE, b.next);
        }
    }

    fn push(&mut self, pool: &mut Pool, past: Past) {
        let n = self.len as usize;
        if n >= FEW && (n - FEW) % MORE == 0 {
            let new = pool.take(core::mem::size_of::<Block>());
            let mut word: *mut u64 = &mut self.more;
            // SAFETY: the chain's blocks.
            unsafe {
                for _ in 0..(n - FEW) / MORE {
                    word = &mut (*(*word as *mut Block)).next;
                }
                *word = new;
            }
        }
        self.len += 1;
        *self.at(n) = past;
    }

    /// Keeps those accesses of which something is left.
    fn retain(&mut self, pool: &mut Pool, mut left: impl FnMut(&Past) -> u8) {
        let mut kept = 0;
        for i in 0..self.len as usize {
            let mut past = *self.at(i);
            past.mask = left(&past);
            if past.mask != 0 {
                *self.at(kept) = past;
                kept += 1;
            }
        }
        self.shrink(pool, kept);
    }

    fn shrink(&mut self, pool: &mut Pool, len: usize) {
        let mut blocks = len.saturating_sub(FEW).div_ceil(MORE);
        let mut word: *mut u64 = &mut self.more;
        // SAFETY: the chain's blocks; those behind the last one that is used go back.
        unsafe {
            while *word != 0 && blocks > 0 {
                word = &mut (*(*word as *mut Block)).next;
                blocks -= 1;
            }
            let mut block = core::mem::take(&mut *word);
            while block != 0 {
                let next = (*(block as *const Block)).next;
                pool.give(block, core::mem::size_of::<Block>());
                block = next;
            }
        }
        self.len = len as u32;
    }
}

impl Shadow {
    /// The word that leads to a page's lists.
    fn page(&mut self, address: u64, make: bool) -> Option<&'static mut u64> {
        if address >> ADDRESS_BITS != 0 {
            return None;
        }
        let tables = 8 << (ADDRESS_BITS - PAGE_BITS - TABLE_BITS);
        // SAFETY: tables of ours, which live as long as the process; the indices are as large as the tables.
        unsafe {
            if self.root == 0 {
                self.root = table(tables);
            }
            let word = (self.root as *mut u64).add((address >> (PAGE_BITS + TABLE_BITS)) as usize);
            if *word == 0 {
                if !make {
                    return None;
                }
                *word = table(8 << TABLE_BITS);
            }
            let i = (address >> PAGE_BITS) & ((1 << TABLE_BITS) - 1);
            Some(&mut *(*word as *mut u64).add(i as usize))
        }
    }

    fn cell(&mut self, pool: &mut Pool, address: u64) -> Option<&'static mut Cell> {
        let number = (address >> PAGE_BITS) + 1;
        if self.last.0 != number {
            let word = self.page(address, true)?;
            if *word == 0 {
                *word = pool.take(LISTS * core::mem::size_of::<Cell>());
            }
            self.last = (number, *word);
        }
        // SAFETY: one of the page's lists.
        Some(unsafe { &mut *(self.last.1 as *mut Cell).add((address % PAGE / GRAIN) as usize) })
    }

    /// An access to some of the 8 bytes at `address`: the access that it races with, if there is one. `knows` is the thread's clock.
    pub fn access(
        &mut self,
        pool: &mut Pool,
        knows: &Clock,
        address: u64,
        new: Past,
    ) -> Option<Past> {
        let cell = self.cell(pool, address)?;
        let mut race = None;
        let mut superseded = 0;
        for i in 0..cell.len as usize {
            let old = cell.at(i);
            if old.mask & new.mask == 0 {
                continue;
            }
            let before = old.thread == new.thread || old.time <= knows.of(old.thread);
            if old.thread == new.thread
                && old.time == new.time
                && old.mask & new.mask == new.mask
                && covers(old, &new)
            {
                // The thread did the same before, and told nobody of it since: it would have raced then.
                return None;
            }
            if !before
                && (old.is(how::WRITES) || new.is(how::WRITES))
                && !(old.is(how::ATOMIC) && new.is(how::ATOMIC))
            {
                race = race.or(Some(*old));
            }
            superseded |= u32::from(before && covers(&new, old));
        }
        if superseded != 0 {
            cell.retain(pool, |old| {
                let before = old.thread == new.thread || old.time <= knows.of(old.thread);
                match before && covers(&new, old) {
                    true => old.mask & !new.mask,
                    false => old.mask,
                }
            });
        }
        cell.push(pool, new);
        race
    }

    /// A synchronisation object lies at `address`.
    pub fn note_object(&mut self, pool: &mut Pool, address: u64) {
        if let Some(cell) = self.cell(pool, address) {
            cell.flags |= OBJECT;
        }
    }

    /// Calls `f` with the address of every list of a range that there is, and may be anything but empty.
    fn each(&mut self, start: u64, end: u64, mut f: impl FnMut(u64, &mut Cell)) {
        let mut at = start & !(GRAIN - 1);
        while at < end {
            let behind = (at | (PAGE - 1)) + 1;
            match self.page(at, false) {
                // There is no table either.
                None => at = (at | ((1 << (PAGE_BITS + TABLE_BITS)) - 1)) + 1,
                Some(0) => at = behind,
                Some(lists) => {
                    let lists = *lists as *mut Cell;
                    for address in (at..behind.min(end)).step_by(GRAIN as usize) {
                        // SAFETY: one of the page's lists.
                        f(address, unsafe {
                            &mut *lists.add((address % PAGE / GRAIN) as usize)
                        });
                    }
                    at = behind;
                }
            }
        }
    }

    /// What lies there now is new memory. `object` is called for every 8 bytes in which a synchronisation object was.
    pub fn forget(
        &mut self,
        pool: &mut Pool,
        start: u64,
        end: u64,
        mut object: impl FnMut(&mut Pool, u64),
    ) {
        self.each(start, end, |address, cell| {
            if cell.len != 0 {
                cell.shrink(pool, 0);
            }
            if core::mem::take(&mut cell.flags) & OBJECT != 0 {
                object(pool, address);
            }
        });
    }

    /// The first 8 bytes of a range that anybody has accessed.
    pub fn next_known(&mut self, start: u64, end: u64) -> Option<u64> {
        let mut at = start & !(GRAIN - 1);
        while at < end {
            let behind = (at | (PAGE - 1)) + 1;
            match self.page(at, false) {
                None => at = (at | ((1 << (PAGE_BITS + TABLE_BITS)) - 1)) + 1,
                Some(0) => at = behind,
                Some(lists) => {
                    let lists = *lists as *const Cell;
                    // SAFETY: the page's lists.
                    let known =
                        |a: &u64| unsafe { (*lists.add((a % PAGE / GRAIN) as usize)).len } != 0;
                    let found = (at..behind.min(end)).step_by(GRAIN as usize).find(known);
                    if found.is_some() {
                        return found;
                    }
                    at = behind;
                }
            }
        }
        None
    }
}

/// Does `new` race with all that `old` races with?
fn covers(new: &Past, old: &Past) -> bool {
    (new.is(how::WRITES) || !old.is(how::WRITES)) && (!new.is(how::ATOMIC) || old.is(how::ATOMIC))
}

fn table(bytes: u64) -> u64 {
    shadow_arena(bytes).unwrap_or_else(|| panic::give_up("races: no memory for tables of pages"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use how::{ATOMIC, WRITES};

    /// Two threads, 1 and 2, that know themselves.
    struct Scene {
        pool: Pool,
        shadow: Shadow,
        clocks: [Clock; 3],
        number: u64,
    }

    impl Scene {
        fn new() -> Scene {
            let mut pool = Pool::default();
            let mut clocks = [Clock::default(), Clock::default(), Clock::default()];
            for (i, c) in clocks.iter_mut().enumerate() {
                c.set(&mut pool, i as u16, 1);
            }
            Scene {
                pool,
                shadow: Shadow::default(),
                clocks,
                number: 0,
            }
        }

        /// The thread of the access that this one races with.
        fn access(&mut self, thread: u16, address: u64, mask: u8, how: u32) -> Option<u16> {
            self.number += 1;
            let knows = &self.clocks[thread as usize];
            let new = Past {
                thread,
                mask,
                how: how as u8,
                time: knows.of(thread),
                number: self.number,
                pc: 0,
            };
            let race = self.shadow.access(&mut self.pool, knows, address, new);
            race.map(|p| p.thread)
        }

        /// What `from` has done happened before what `to` will do.
        fn tell(&mut self, from: usize, to: usize) {
            let time = self.clocks[from].of(from as u16);
            self.clocks[to].set(&mut self.pool, from as u16, time);
            self.clocks[from].set(&mut self.pool, from as u16, time + 1);
        }
    }

    const AT: u64 = 0x5_1234_5000;

    #[test]
    fn writes_race_with_all_and_reads_with_writes() {
        let mut s = Scene::new();
        assert_eq!(s.access(1, AT, 0xff, 0), None);
        assert_eq!(s.access(2, AT, 0x0f, 0), None);
        assert_eq!(s.access(1, AT, 0xff, WRITES), Some(2));
        assert_eq!(s.access(2, AT, 0x10, 0), Some(1));
        // It has read this one before, and that race is known.
        assert_eq!(s.access(2, AT, 0x01, 0), None);
        // Elsewhere nobody was.
        assert_eq!(s.access(2, AT + 8, 0xff, WRITES), None);
        assert_eq!(s.access(2, 0x7fff_ffff_fff8, 0xff, WRITES), None);
    }

    #[test]
    fn bytes_beside_each_other_are_others() {
        let mut s = Scene::new();
        assert_eq!(s.access(1, AT, 0x01, WRITES), None);
        assert_eq!(s.access(2, AT, 0x02, WRITES), None);
        assert_eq!(s.access(0, AT, 0xf0, WRITES), None);
        assert_eq!(s.access(1, AT, 0x03, 0), Some(2));
    }

    #[test]
    fn what_happened_before_is_no_race_and_is_forgotten() {
        let mut s = Scene::new();
        for round in 0..100 {
            assert_eq!(s.access(1, AT, 0xff, WRITES), None, "round {round}");
            s.tell(1, 2);
            assert_eq!(s.access(2, AT, 0x0f, WRITES), None);
            s.tell(2, 1);
        }
        let cell = s.shadow.cell(&mut s.pool, AT).expect("a list");
        assert!(cell.len <= 2, "{}", cell.len);
        // A write in between doesn't hide what nobody was told of.
        assert_eq!(s.access(1, AT, 0xff, WRITES), None);
        assert_eq!(s.access(1, AT, 0xff, WRITES), None);
        assert_eq!(s.access(2, AT, 0x80, 0), Some(1));
    }

    #[test]
    fn a_read_does_not_hide_the_write_before_it() {
        let mut s = Scene::new();
        assert_eq!(s.access(1, AT, 0xff, WRITES), None);
        s.tell(1, 2);
        assert_eq!(s.access(2, AT, 0xff, 0), None);
        assert_eq!(s.access(0, AT, 0xff, 0), Some(1));
    }

    #[test]
    fn atomic_accesses_race_with_plain_ones_only() {
        let mut s = Scene::new();
        assert_eq!(s.access(1, AT, 0x0f, WRITES | ATOMIC), None);
        assert_eq!(s.access(2, AT, 0x0f, WRITES | ATOMIC), None);
        assert_eq!(s.access(2, AT, 0x0f, ATOMIC), None);
        assert_eq!(s.access(0, AT, 0x0f, 0), Some(1));
        // One's own atomic access doesn't cover the plain one before it.
        let mut s = Scene::new();
        assert_eq!(s.access(1, AT, 0x0f, WRITES), None);
        assert_eq!(s.access(1, AT, 0x0f, WRITES | ATOMIC), None);
        assert_eq!(s.access(2, AT, 0x0f, WRITES | ATOMIC), Some(1));
    }

    #[test]
    fn new_memory_has_no_past() {
        let mut s = Scene::new();
        for i in 0..20 {
            assert_eq!(s.access(1, AT + 8 * i, 0xff, WRITES), None);
        }
        s.shadow.note_object(&mut s.pool, AT + 16);
        assert_eq!(s.shadow.next_known(AT - 0x4000_0000, AT + 8), Some(AT));
        let mut objects = std::vec::Vec::new();
        s.shadow
            .forget(&mut s.pool, AT + 8, AT + 80, |_, a| objects.push(a));
        assert_eq!(objects, [AT + 16]);
        assert_eq!(s.shadow.next_known(AT + 8, AT + 200), Some(AT + 80));
        assert_eq!(s.shadow.next_known(AT + 160, AT + 0x1_0000_0000), None);
        assert_eq!(s.access(2, AT + 8, 0xff, WRITES), None);
        assert_eq!(s.access(2, AT + 80, 0xff, WRITES), Some(1));
    }

    #[test]
    fn many_readers_are_all_remembered() {
        let mut s = Scene::new();
        let mut clocks = std::vec::Vec::new();
        for thread in 10..50 {
            let mut c = Clock::default();
            c.set(&mut s.pool, thread, 1);
            let past = Past {
                thread,
                mask: 0xff,
                time: 1,
                ..Past::default()
            };
            assert_eq!(s.shadow.access(&mut s.pool, &c, AT, past), None);
            clocks.push(c);
        }
        // A writer that knows all but one.
        for thread in (10..50).filter(|t| *t != 33) {
            s.clocks[1].set(&mut s.pool, thread, 1);
        }
        assert_eq!(s.access(1, AT, 0x10, WRITES), Some(33));
        let cell = s.shadow.cell(&mut s.pool, AT).expect("a list");
        assert!(cell.len > 30);
        cell.retain(&mut s.pool, |p| u8::from(p.thread == 33));
        assert_eq!((cell.len, cell.at(0).thread), (1, 33));
    }
}
