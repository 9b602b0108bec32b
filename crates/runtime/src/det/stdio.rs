//! libc's streams, as far as the engine knows them: which lock belongs to which stream, and what of its memory is the stream's.
//!
//! The locks are taken by code that libc has inlined, so they are known by their addresses. A stream that fopen(3) and its kin have made lies
//! directly before its lock; the three standard ones have names. Only streams of files are known, whose functions are all libc's: of others the program's code
//! runs under the lock, and its memory would be no stream's.

use crate::elf::{Exports, Symbol};
use crate::guard::{self, Program};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a `FILE` with the pointer to its functions.
const FILE_LEN: u64 = 0xe0;
/// Its words.
const WORDS: usize = FILE_LEN as usize / 8;
/// Bytes of a lock (`_IO_lock_t`).
const LOCK_LEN: u64 = 16;
/// Bytes of `struct _IO_wide_data`.
const WIDE_LEN: u64 = 0xe8;
/// Where in a `FILE` the pointers to its buffer begin, ...
const BUFFER: u64 = 8;
/// ... the next stream of libc's list, which is not the stream's own, ...
const CHAIN: u64 = 0x68;
/// ... its lock, ...
const LOCK: u64 = 0x88;
/// ... what belongs to it if it is of wide characters, ...
const WIDE: u64 = 0xa0;
/// ... libc's lists of what is to be freed, which are not its own either, ...
const LISTS: u64 = 0xa8;
/// ... whether it is, ...
const MODE: u64 = 0xc0;
/// ... and its functions.
const FUNCTIONS: u64 = 0xd8;
/// Of a larger buffer no image is made.
const BUFFER_MAX: u64 = 64 << 10;

/// Most pieces of memory that a stream consists of: four, and the used parts of a buffer, for both kinds of characters.
pub const PIECES: usize = 5 + 3 + 3;

/// `_IO_2_1_stdin_`, `_IO_2_1_stdout_` and `_IO_2_1_stderr_`.
static STANDARD: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// Functions of streams of files.
static FILES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// flockfile(3) and its kin: where they begin and end.
static CALLED: [[AtomicU64; 2]; 3] = [const { [const { AtomicU64::new(0) }; 2] }; 3];

/// Functions by which programs print.
const PRINTS: [&[u8]; 20] = [
    b"printf",
    b"fprintf",
    b"vprintf",
    b"vfprintf",
    b"dprintf",
    b"__printf_chk",
    b"__fprintf_chk",
    b"__vprintf_chk",
    b"__vfprintf_chk",
    b"puts",
    b"fputs",
    b"putchar",
    b"putc",
    b"fputc",
    b"_IO_putc",
    b"fwrite",
    b"fflush",
    b"perror",
    b"write",
    b"writev",
];

/// Where they begin.
static ENTRIES: [AtomicU64; PRINTS.len()] = [const { AtomicU64::new(0) }; PRINTS.len()];

/// Does a function begin here by which the program prints?
pub fn is_print(entry: u64) -> bool {
    ENTRIES.iter().any(|e| e.load(Relaxed) == entry)
}

/// Remembers where things are in libc.
pub fn libc(exports: &Exports) {
    let find = |name: &[u8]| exports.find(&Program, name);
    let note = |cell: &AtomicU64, name: &[u8]| {
        if let Some(s) = find(name) {
            cell.store(s.address, Relaxed);
        }
    };
    note(&STANDARD[0], b"_IO_2_1_stdin_");
    note(&STANDARD[1], b"_IO_2_1_stdout_");
    note(&STANDARD[2], b"_IO_2_1_stderr_");
    note(&FILES[0], b"_IO_file_jumps");
    note(&FILES[1], b"_IO_wfile_jumps");
    let entries = ENTRIES.iter().zip(PRINTS);
    entries.for_each(|(cell, name)| note(cell, name));
    let called: [&[u8]; 3] = [b"flockfile", b"ftrylockfile", b"funlockfile"];
    for (cell, name) in CALLED.iter().zip(called) {
        if let Some(Symbol { address, size, .. }) = find(name) {
            cell[0].store(address, Relaxed);
            cell[1].store(address + size, Relaxed);
        }
    }
}

/// Is this code of a function by which the program itself locks a stream? What else it protects with that lock is not known.
pub fn is_asked_for(pc: u64) -> bool {
    CALLED
        .iter()
        .any(|[from, to]| (from.load(Relaxed)..to.load(Relaxed)).contains(&pc))
}

/// A stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stream {
    /// Where its `FILE` is.
    pub file: u64,
    /// Where its lock is.
    pub lock: u64,
}

/// A piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Piece {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

impl Stream {
    /// The stream whose lock is at this address.
    pub fn of_lock(lock: u64) -> Option<Stream> {
        let named = STANDARD.iter().map(|s| s.load(Relaxed));
        let mut all = named.chain([lock.wrapping_sub(FILE_LEN)]);
        all.find(|file| is_stream(*file, lock))
            .map(|file| Stream { file, lock })
    }

    /// Is it a stream still?
    pub fn is_open(&self) -> bool {
        is_stream(self.file, self.lock)
    }

    /// Is it, as it is now, small enough for an image?
    pub fn fits(&self) -> bool {
        let small = |buffer: u64| {
            let read = |at| guard::read::<u64>(buffer + at);
            // _IO_buf_base and _IO_buf_end
            let (base, end) = (read(6 * 8), read(7 * 8));
            matches!((base, end), (Some(b), Some(e)) if e.wrapping_sub(b) <= BUFFER_MAX)
        };
        small(self.file + BUFFER) && self.wide().is_none_or(small)
    }

    /// Where its part for wide characters is, if it is in use.
    fn wide(&self) -> Option<u64> {
        let mode = guard::read::<i32>(self.file + MODE)?;
        let at = guard::read::<u64>(self.file + WIDE)?;
        (mode > 0 && at != 0).then_some(at)
    }

    /// The pieces of memory that are the stream's, in the calling thread's view; the lock first.
    pub fn pieces(&self) -> Pieces {
        let mut all = Pieces::default();
        all.add(self.lock, LOCK_LEN);
        all.add(self.file, CHAIN);
        all.add(self.file + CHAIN + 8, LISTS - CHAIN - 8);
        all.add(self.file + MODE, FILE_LEN - MODE);
        all.add_used(self.file + BUFFER, 1);
        if let Some(wide) = self.wide() {
            all.add(wide, WIDE_LEN);
            all.add_used(wide, 4);
        }
        all
    }
}

/// Pieces of memory.
#[derive(Default)]
pub struct Pieces {
    list: [Piece; PIECES],
    len: usize,
}

impl Pieces {
    /// All of them.
    pub fn list(&self) -> &[Piece] {
        &self.list[..self.len]
    }

    fn add(&mut self, at: u64, len: u64) {
        self.list[self.len] = Piece { at, len };
        self.len += 1;
    }

    /// What is used of a buffer, by the pointers at this address. `unit`: bytes of a character.
    fn add_used(&mut self, pointers: u64, unit: u64) {
        let Some(p) = guard::read::<[u64; 11]>(pointers) else {
            return;
        };
        let [read, read_end, read_base, write_base, write, _, _, _, save, _, save_end] = p;
        for (from, to) in [
            (read_base, read_end.max(read)),
            (write_base, write),
            (save, save_end),
        ] {
            if from != 0 && to > from {
                self.add(from, (to - from).next_multiple_of(unit));
            }
        }
    }
}

/// Is at `file` a stream of a file that has its lock there?
fn is_stream(file: u64, lock: u64) -> bool {
    const MAGIC: u64 = 0xfbad_0000;
    const MAGIC_MASK: u64 = 0xffff_0000;
    /// It is in libc's list (`_IO_LINKED`).
    const LINKED: u64 = 0x80;
    let Some(words) = guard::read::<[u64; WORDS]>(file) else {
        return false;
    };
    let word = |at: u64| words[at as usize / 8];
    let functions = FILES.iter().map(|f| f.load(Relaxed));
    word(0) & (MAGIC_MASK | LINKED) == MAGIC | LINKED
        && word(LOCK) == lock
        && functions.filter(|f| *f != 0).any(|f| f == word(FUNCTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `FILE` of this process, whose lock lies behind it.
    struct Made([u64; WORDS + 2]);

    impl Made {
        fn new() -> std::boxed::Box<Made> {
            FILES[0].store(0x1000, Relaxed);
            let mut made = std::boxed::Box::new(Made([0; WORDS + 2]));
            let lock = made.file() + FILE_LEN;
            made.0[0] = 0xfbad_2084;
            made.0[LOCK as usize / 8] = lock;
            made.0[FUNCTIONS as usize / 8] = 0x1000;
            made
        }
        fn file(&self) -> u64 {
            self.0.as_ptr() as u64
        }
    }

    #[test]
    fn a_stream_is_known_by_its_lock() {
        let mut made = Made::new();
        let (file, lock) = (made.file(), made.file() + FILE_LEN);
        assert_eq!(Stream::of_lock(lock), Some(Stream { file, lock }));
        assert_eq!(Stream::of_lock(lock + 8), None);
        // It was closed.
        made.0[0] = 0xfbad_2004;
        assert_eq!(Stream::of_lock(lock), None);
        // Functions of the program's.
        let mut made = Made::new();
        made.0[FUNCTIONS as usize / 8] = 0x2000;
        assert_eq!(Stream::of_lock(made.file() + FILE_LEN), None);
    }

    #[test]
    fn pieces_are_what_is_used() {
        let mut made = Made::new();
        let (file, lock) = (made.file(), made.file() + FILE_LEN);
        let stream = Stream { file, lock };
        let at = |s: &Stream| -> std::vec::Vec<(u64, u64)> {
            let all = s.pieces();
            all.list().iter().map(|p| (p.at, p.len)).collect()
        };
        let own = [
            (lock, 16),
            (file, 0x68),
            (file + 0x70, 0x38),
            (file + 0xc0, 0x20),
        ];
        assert_eq!(at(&stream), own);
        // read_ptr, read_end, read_base, write_base, write_ptr, write_end, buf_base, buf_end
        let pointers = [
            0x100,
            0x180,
            0x80,
            0x200,
            0x208,
            0x300,
            0x80,
            0x80 + BUFFER_MAX,
        ];
        made.0[1..9].copy_from_slice(&pointers);
        assert_eq!(at(&stream)[..4], own);
        assert_eq!(at(&stream)[4..], [(0x80, 0x100), (0x200, 8)]);
        assert!(stream.fits());
        made.0[8] += 1;
        assert!(!stream.fits());
    }
}
