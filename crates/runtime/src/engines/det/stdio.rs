//! libc's streams, as far as the engine knows them: which lock belongs to which stream, and what of its memory is the stream's.
//!
//! The locks are taken by code that libc has inlined, so they are known by their addresses. A stream that fopen(3) and its kin have made lies
//! directly before its lock; the three standard ones have names. Only streams of files are known, whose functions are all libc's: of others the program's code
//! runs under the lock, and its memory would be no stream's.

use crate::machine::guard::{self, Program};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_code::elf::{Exports, Symbol};

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
        for (from, to) in guard::read(pointers).map(used).into_iter().flatten() {
            if from != 0 && to > from {
                self.add(from, (to - from).next_multiple_of(unit));
            }
        }
    }
}

/// Where what is used of a buffer begins and ends, by the pointers of a stream, from `_IO_read_ptr` to `_IO_save_end`: what was read, what is to be written,
/// and what was pushed back.
fn used(pointers: [u64; 11]) -> [(u64, u64); 3] {
    let [read, read_end, read_base, write_base, write, _, _, _, save, _, save_end] = pointers;
    [
        (read_base, read_end.max(read)),
        (write_base, write),
        (save, save_end),
    ]
}

/// Is at `file` a stream of a file that has its lock there?
fn is_stream(file: u64, lock: u64) -> bool {
    let functions = FILES.each_ref().map(|f| f.load(Relaxed));
    guard::read(file).is_some_and(|words| is_file(&words, lock, &functions))
}

/// Are these the words of an open stream that has its lock there, and one of these tables of functions?
fn is_file(words: &[u64; WORDS], lock: u64, functions: &[u64]) -> bool {
    const MAGIC: u64 = 0xfbad_0000;
    const MAGIC_MASK: u64 = 0xffff_0000;
    /// It is in libc's list (`_IO_LINKED`).
    const LINKED: u64 = 0x80;
    let word = |at: u64| words[at as usize / 8];
    word(0) & (MAGIC_MASK | LINKED) == MAGIC | LINKED
        && word(LOCK) == lock
        && word(FUNCTIONS) != 0
        && functions.contains(&word(FUNCTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS_OF_FILES: [u64; 2] = [0x1000, 0];
    const ITS_LOCK: u64 = 0x5000;

    fn words() -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[0] = 0xfbad_2084;
        words[LOCK as usize / 8] = ITS_LOCK;
        words[FUNCTIONS as usize / 8] = 0x1000;
        words
    }

    fn is(words: &[u64; WORDS]) -> bool {
        is_file(words, ITS_LOCK, &FUNCTIONS_OF_FILES)
    }

    #[test]
    fn a_stream_is_known_by_its_words() {
        assert!(is(&words()));
        assert!(!is_file(&words(), ITS_LOCK + 8, &FUNCTIONS_OF_FILES));
        // It was closed.
        let mut closed = words();
        closed[0] = 0xfbad_2004;
        assert!(!is(&closed));
        // Functions of the program's, or none.
        for functions in [0x2000, 0] {
            let mut other = words();
            other[FUNCTIONS as usize / 8] = functions;
            assert!(!is(&other));
        }
    }

    #[test]
    fn what_is_used_of_a_buffer_lies_between_its_pointers() {
        let all = [
            0x100, 0x180, 0x80, 0x200, 0x208, 0x300, 0x80, 0x300, 0x400, 0x408, 0x410,
        ];
        assert_eq!(used(all), [(0x80, 0x180), (0x200, 0x208), (0x400, 0x410)]);
        // More was written than is to be read.
        let mut written = all;
        written[0] = 0x190;
        assert_eq!(used(written)[0], (0x80, 0x190));
    }
}
