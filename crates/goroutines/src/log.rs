//! The log of goroutines in memory that the program shares: a ring while recording, the whole of it while replaying.
//!
//! The program's side is `overlay/runtime/reprise.go`, whose `repriseShared` and `repriseUnit` are laid out as here. All of the memory is the program's
//! to scribble over, so each length and number is checked.

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{memfd_create, MemfdFlags};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Bytes of an event, and of each piece of what it carries.
pub const UNIT: usize = 32;
/// Bytes before the first unit.
const PAGE: usize = 4096;
/// "go01": what the program checks.
const MAGIC: u64 = 0x3130_6f67;
/// No event.
const NONE: u32 = u32::MAX;
/// Most bytes that an event carries.
pub const MOST: usize = (1 << 24) - 1;

/// Offsets in the first page; see `repriseShared`.
mod at {
    pub const MAGIC: usize = 0;
    pub const MODE: usize = 8;
    pub const UNITS: usize = 16;
    pub const SEED: usize = 24;
    pub const GOROUTINES: usize = 56;
    pub const ORDERED: usize = 64;
    pub const TOTAL: usize = 72;
    pub const BEFORE: usize = 80;
    pub const END: usize = 88;
    pub const FIRSTS: usize = 96;
    pub const OWNERS: usize = 104;
    pub const SIZE: usize = 112;
    pub const NEXT: usize = 184;
    pub const READ: usize = 248;
    pub const UNKNOWN: usize = 376;
    pub const CONSUMED: usize = 384;
    pub const DONE: usize = 392;
    pub const REPORT_LENGTH: usize = 396;
    pub const REPORT: usize = 400;
}

/// Bytes of the report of a divergence.
const REPORT: usize = 2048;

/// What an event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Its number, as in `repriseGo` and the following.
    pub number: u8,
    /// What it is called.
    pub name: &'static str,
    /// Whether it has a place in the order of all; else it is what one goroutine was told.
    pub is_ordered: bool,
    /// Whether the program ends with it.
    pub is_end: bool,
}

const fn told(number: u8, name: &'static str) -> Kind {
    Kind {
        number,
        name,
        is_ordered: false,
        is_end: false,
    }
}

const fn ordered(number: u8, name: &'static str) -> Kind {
    Kind {
        is_ordered: true,
        ..told(number, name)
    }
}

/// A system call.
pub const SYSCALL: u8 = 20;

/// All kinds.
pub const KINDS: [Kind; 35] = [
    told(1, "go"),
    ordered(2, "send"),
    ordered(3, "receive"),
    ordered(4, "close"),
    ordered(5, "select"),
    ordered(6, "Mutex.Lock"),
    ordered(7, "Mutex.TryLock"),
    ordered(8, "RWMutex.RLock"),
    ordered(9, "RWMutex.TryRLock"),
    ordered(10, "RWMutex.Lock"),
    ordered(11, "RWMutex.TryLock"),
    ordered(12, "WaitGroup.Add"),
    ordered(13, "WaitGroup.Wait"),
    ordered(14, "Cond.Wait"),
    ordered(15, "Cond.Signal"),
    ordered(16, "Cond.Broadcast"),
    ordered(17, "atomic operation"),
    told(18, "time.Now"),
    told(19, "monotonic clock"),
    told(SYSCALL, "system call"),
    told(21, "network poller"),
    told(22, "new timer"),
    told(23, "Timer.Stop"),
    told(24, "Timer.Reset"),
    ordered(25, "emptied timer"),
    ordered(26, "timer sends"),
    ordered(27, "timer starts a goroutine"),
    ordered(28, "descriptor's lock"),
    told(29, "signal"),
    told(30, "NumGoroutine"),
    Kind {
        is_end: true,
        ..ordered(31, "exit")
    },
    Kind {
        is_end: true,
        ..ordered(32, "panic")
    },
    Kind {
        is_end: true,
        ..told(33, "deadlock")
    },
    told(34, "new process"),
    told(35, "len of a channel"),
];

impl Kind {
    /// The kind with this number.
    pub fn of(number: u8) -> Option<&'static Kind> {
        KINDS.get(usize::from(number).wrapping_sub(1))
    }
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Its kind.
    pub kind: &'static Kind,
    /// Whose it is: 1 for main's goroutine, 0 for what timers do.
    pub goroutine: u32,
    /// Where the goroutine goes on behind the operation; 0 where that is not recorded.
    pub pc: u32,
    /// Depends on the kind.
    pub arg: u32,
    /// Depends on the kind.
    pub value: u64,
    /// What it carries.
    pub data: &'a [u8],
}

/// Memory shared with the program, with its first page.
pub struct Shared {
    file: File,
    memory: MmapRaw,
}

impl Shared {
    fn create(size: usize) -> io::Result<Shared> {
        let file = File::from(memfd_create(c"reprise-goroutines", MemfdFlags::CLOEXEC)?);
        file.set_len(size as u64)?;
        let memory = MmapOptions::new().len(size).map_raw(&file)?;
        Ok(Shared { file, memory })
    }

    /// The file behind it.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at % 8 == 0 && at + 8 <= self.memory.len());
        // SAFETY: it lies in the mapping, which lives as long as `self`; atomics are valid for every bit pattern.
        unsafe { &*(self.memory.as_ptr().add(at) as *const AtomicU64) }
    }

    fn half(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at % 4 == 0 && at + 4 <= self.memory.len());
        // SAFETY: as above.
        unsafe { &*(self.memory.as_ptr().add(at) as *const AtomicU32) }
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at + into.len() <= self.memory.len());
        // SAFETY: within the mapping; the program may write there meanwhile, and any bytes are good bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.memory.as_ptr().add(at),
                into.as_mut_ptr(),
                into.len(),
            )
        }
    }

    fn write(&mut self, at: usize, from: &[u8]) {
        assert!(at + from.len() <= self.memory.len());
        // SAFETY: within the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(
                from.as_ptr(),
                self.memory.as_mut_ptr().add(at),
                from.len(),
            )
        }
    }

    fn begin(&mut self, mode: u64, units: u64, seed: &[u8; 32]) {
        self.word(at::MODE).store(mode, Relaxed);
        self.word(at::UNITS).store(units, Relaxed);
        self.write(at::SEED, seed);
        self.word(at::SIZE).store(self.memory.len() as u64, Relaxed);
        self.word(at::MAGIC).store(MAGIC, Release);
    }
}

/// The ring of a recorded program.
pub struct Ring {
    shared: Shared,
    units: u64,
    read: u64,
    data: Vec<u8>,
}

impl Ring {
    /// Makes a ring of so many units, a power of 2, for a program whose random numbers follow from `seed`.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn create(units: u64, seed: &[u8; 32]) -> io::Result<Ring> {
        assert!(units.is_power_of_two());
        let mut shared = Shared::create(PAGE + units as usize * UNIT)?;
        shared.begin(1, units, seed);
        Ok(Ring {
            shared,
            units,
            read: 0,
            data: Vec::new(),
        })
    }

    /// The memory.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The number of a system call that the program made and nobody knows; what it wrote is not in the log.
    pub fn unknown_call(&self) -> Option<u64> {
        self.shared.word(at::UNKNOWN).load(Relaxed).checked_sub(1)
    }

    /// Takes out what is there, and gives each event to `take`; returns whether there was any. When `ended`, the program is dead, and what its threads
    /// had only begun to write is passed over.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn drain<E>(
        &mut self,
        ended: bool,
        mut take: impl FnMut(Entry) -> Result<(), E>,
    ) -> Result<bool, E> {
        let begin = self.read;
        // Nobody can have written what had no room.
        let end = self
            .shared
            .word(at::NEXT)
            .load(Acquire)
            .min(begin + self.units);
        loop {
            let unit = self.unit(self.read);
            if self.shared.word(unit).load(Acquire) != self.read + 1 {
                if ended && self.read < end {
                    self.read += 1;
                    continue;
                }
                break;
            }
            let head = self.shared.word(unit + 8).load(Relaxed);
            let what = self.shared.word(unit + 16).load(Relaxed);
            let value = self.shared.word(unit + 24).load(Relaxed);
            let length = (head >> 8) as usize & MOST;
            let units = 1 + length.div_ceil(UNIT) as u64;
            if let Some(kind) = Kind::of(head as u8).filter(|_| units <= self.units) {
                self.data.resize(length.next_multiple_of(UNIT), 0);
                for (i, piece) in self.data.chunks_exact_mut(UNIT).enumerate() {
                    let at = PAGE + ((self.read + 1 + i as u64) & (self.units - 1)) as usize * UNIT;
                    self.shared.read(at, piece);
                }
                let (goroutine, pc, arg) = ((head >> 32) as u32, what as u32, (what >> 32) as u32);
                let data = &self.data[..length];
                take(Entry {
                    kind,
                    goroutine,
                    pc,
                    arg,
                    value,
                    data,
                })?;
            }
            self.read += units;
            // Room is given back in large pieces: the program's threads look at this word.
            if self.read - self.shared.word(at::READ).load(Relaxed) > self.units / 64 {
                self.shared.word(at::READ).store(self.read, Release);
            }
        }
        self.shared.word(at::READ).store(self.read, Release);
        Ok(self.read != begin)
    }

    /// Where a unit lies.
    fn unit(&self, place: u64) -> usize {
        PAGE + (place & (self.units - 1)) as usize * UNIT
    }
}

/// Gathers a log for a replay.
#[derive(Default)]
pub struct Gatherer {
    units: Vec<u8>,
    firsts: Vec<u32>,
    lasts: Vec<u32>,
    owners: Vec<u32>,
    total: u64,
    end: Option<(u64, u64)>,
}

/// Why a log can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum BadLog {
    /// It has more events than a replay can number.
    #[error("the recording is too long to be replayed: more than 2^32 units")]
    Long,
    /// Goroutines have numbers that nobody gave them.
    #[error("the recording is damaged: it has event {0} of goroutine {1}")]
    Goroutine(u64, u32),
    /// There is no memory.
    #[error("no memory for a replay: {0}")]
    Memory(#[from] io::Error),
}

impl Gatherer {
    /// Adds the next event.
    ///
    /// # Errors
    /// When it can't be one.
    pub fn push(&mut self, e: &Entry) -> Result<(), BadLog> {
        let index = self.units.len() / UNIT;
        let id = e.goroutine as usize;
        if index + 1 + e.data.len() / UNIT >= NONE as usize {
            return Err(BadLog::Long);
        }
        if e.goroutine as u64 > self.total + 1 {
            return Err(BadLog::Goroutine(self.total, e.goroutine));
        }
        if self.firsts.len() <= id {
            self.firsts.resize(id + 1, NONE);
            self.lasts.resize(id + 1, NONE);
        }
        match self.lasts[id] {
            NONE => self.firsts[id] = index as u32,
            last => self.units[last as usize * UNIT..][..4]
                .copy_from_slice(&(index as u32).to_le_bytes()),
        }
        self.lasts[id] = index as u32;
        let turn = match e.kind.is_ordered {
            true => self.owners.len() as u32,
            false => NONE,
        };
        if e.kind.is_ordered {
            self.owners.push(e.goroutine);
        }
        let head =
            u64::from(e.kind.number) | (e.data.len() as u64) << 8 | u64::from(e.goroutine) << 32;
        for word in [
            u64::from(NONE) | u64::from(turn) << 32,
            head,
            u64::from(e.pc) | u64::from(e.arg) << 32,
            e.value,
        ] {
            self.units.extend_from_slice(&word.to_le_bytes());
        }
        self.units.extend_from_slice(e.data);
        self.units
            .resize(self.units.len().next_multiple_of(UNIT), 0);
        if e.kind.is_end && self.end.is_none() {
            self.end = Some((index as u64, self.total));
        }
        self.total += 1;
        Ok(())
    }

    /// How many events there are.
    pub fn events(&self) -> u64 {
        self.total
    }

    /// Whether the program's end is among them; else it was killed, or the recording is cut off.
    pub fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// The memory for a replay.
    ///
    /// # Errors
    /// When there is none.
    pub fn finish(mut self, seed: &[u8; 32]) -> Result<Replayed, BadLog> {
        // Goroutines that made no event, but were made.
        let made = (self.total as usize + 2).max(self.firsts.len());
        self.firsts.resize(made, NONE);
        let firsts = PAGE + self.units.len();
        let owners = firsts + self.firsts.len() * 4;
        let size = (owners + self.owners.len() * 4).next_multiple_of(PAGE);
        let mut shared = Shared::create(size)?;
        shared.write(PAGE, &self.units);
        for (from, numbers) in [(firsts, &self.firsts), (owners, &self.owners)] {
            for (i, n) in numbers.iter().enumerate() {
                shared.half(from + i * 4).store(*n, Relaxed);
            }
        }
        let (end, before) = self.end.unwrap_or((u64::from(NONE), 0));
        for (at, value) in [
            (at::GOROUTINES, made as u64),
            (at::ORDERED, self.owners.len() as u64),
            (at::TOTAL, self.total),
            (at::BEFORE, before),
            (at::END, end),
            (at::FIRSTS, firsts as u64),
            (at::OWNERS, owners as u64),
        ] {
            shared.word(at).store(value, Relaxed);
        }
        shared.begin(2, (self.units.len() / UNIT) as u64, seed);
        Ok(Replayed { shared })
    }
}

/// The memory of a replay.
pub struct Replayed {
    shared: Shared,
}

/// How a replay ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// The program did something else; in words.
    Diverged(String),
    /// All that was recorded is replayed, and the program had not ended.
    Finished,
    /// By the program's own end.
    Itself,
}

impl Replayed {
    /// The memory.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// How many events have been replayed.
    pub fn consumed(&self) -> u64 {
        self.shared.word(at::CONSUMED).load(Relaxed)
    }

    /// How it ended; to be asked when the process is dead.
    pub fn done(&self) -> Done {
        match self.shared.half(at::DONE).load(Acquire) {
            1 => {
                let length =
                    (self.shared.half(at::REPORT_LENGTH).load(Relaxed) as usize).min(REPORT);
                let mut text = vec![0; length];
                self.shared.read(at::REPORT, &mut text);
                Done::Diverged(String::from_utf8_lossy(&text).into_owned())
            }
            2 => Done::Finished,
            _ => Done::Itself,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes an event as the program does; returns the place behind it.
    fn put(ring: &Ring, place: u64, kind: u8, goroutine: u32, value: u64, data: &[u8]) -> u64 {
        let shared = &ring.shared;
        let at = ring.unit(place);
        let head = u64::from(kind) | (data.len() as u64) << 8 | u64::from(goroutine) << 32;
        shared.word(at + 8).store(head, Relaxed);
        shared.word(at + 16).store(0, Relaxed);
        shared.word(at + 24).store(value, Relaxed);
        let units = 1 + data.len().div_ceil(UNIT) as u64;
        for (i, piece) in data.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            let at = ring.unit(place + 1 + i as u64 / 4) + i % 4 * 8;
            shared.word(at).store(u64::from_le_bytes(word), Relaxed);
        }
        shared.word(at).store(place + 1, Release);
        shared.word(at::NEXT).store(place + units, Release);
        place + units
    }

    fn taken(ring: &mut Ring, ended: bool) -> Vec<(u8, u32, u64, Vec<u8>)> {
        let mut all = Vec::new();
        let mut take = |e: Entry| -> Result<(), ()> {
            all.push((e.kind.number, e.goroutine, e.value, e.data.to_vec()));
            Ok(())
        };
        ring.drain(ended, &mut take).expect("it takes all");
        all
    }

    #[test]
    fn the_ring_goes_around() {
        let mut ring = Ring::create(16, &[0; 32]).expect("a ring");
        let mut place = 0;
        for i in 0..100_u64 {
            let data = vec![i as u8; i as usize % 90];
            place = put(&ring, place, SYSCALL, 1, i, &data);
            assert_eq!(taken(&mut ring, false), [(SYSCALL, 1, i, data)]);
            assert_eq!(ring.shared.word(at::READ).load(Relaxed), place);
        }
    }

    #[test]
    fn what_was_only_begun_is_passed_over_at_the_end() {
        let mut ring = Ring::create(64, &[0; 32]).expect("a ring");
        let place = put(&ring, 0, 2, 1, 7, &[]);
        put(&ring, place + 3, 31, 1, 8, &[]);
        assert_eq!(taken(&mut ring, false).len(), 1);
        assert!(taken(&mut ring, false).is_empty());
        assert_eq!(taken(&mut ring, true), [(31, 1, 8, Vec::new())]);
        // Nonsense in the program's word makes no endless work.
        ring.shared.word(at::NEXT).store(u64::MAX, Relaxed);
        assert!(taken(&mut ring, true).is_empty());
    }

    #[test]
    fn a_replay_has_each_goroutines_events_in_a_chain() {
        let entry = |number: u8, goroutine| Entry {
            kind: Kind::of(number).expect("a kind"),
            goroutine,
            pc: 1,
            arg: 2,
            value: 3,
            data: &[9; 40],
        };
        let mut log = Gatherer::default();
        for (kind, goroutine) in [(1, 1), (2, 1), (3, 2), (18, 1), (31, 1)] {
            log.push(&entry(kind, goroutine)).expect("an event");
        }
        assert!(log.has_end());
        let bad = log.push(&entry(2, 77));
        assert!(matches!(bad, Err(BadLog::Goroutine(5, 77))));
        let replayed = log.finish(&[0; 32]).expect("memory");
        let s = &replayed.shared;
        let unit = |i: usize| s.word(PAGE + i * UNIT).load(Relaxed);
        // Of goroutine 1: events 0, 3, 9, 12, as units of 3 each; ordered are the second, the third and the last.
        let none = u64::from(NONE);
        assert_eq!(unit(0), 3 | none << 32);
        assert_eq!(unit(3), 9);
        assert_eq!(unit(6), none | 1 << 32);
        assert_eq!(unit(12), none | 2 << 32);
        assert_eq!(s.word(at::BEFORE).load(Relaxed), 4);
        assert_eq!(s.word(at::ORDERED).load(Relaxed), 3);
    }

    #[test]
    fn kinds_are_numbered_from_one_on() {
        for (i, kind) in KINDS.iter().enumerate() {
            assert_eq!(usize::from(kind.number), i + 1);
        }
        assert_eq!(Kind::of(0), None);
    }
}
