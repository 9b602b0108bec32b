//! Record: what the event of a mapping says of its file. Of a large one a range of a copy that the agent is about to make, which the program doesn't wait
//! for ([`reprise_abi::mapped`]); else the file's content, which is kept first ([`crate::memory::kept`]).
//!
//! As with reads ([`reprise_abi::inputs`]), a thread *promises* to refer to the file's version before it writes the event, and whoever is about to open the
//! file for writing waits until all that was promised is copied. Kept whole is what a debugger wants all of (code, ELF files), what somebody may change
//! (open for writing, mapped so), and what was mapped before as another version or as a whole: a replay has one file to show, in all mappings.

use crate::machine::sys::{self, MAP_SHARED};
use crate::memory::capture::Call;
use crate::memory::kept::{self, KeptFile};
use crate::memory::{identity, input_rows, map, up};
use crate::thread::{process, session};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::Tag;
use reprise_abi::inputs::{inputs, Input, Reference, REFERENCE_LEN, UNKNOWN_HASH};
use reprise_abi::mapped::{copy_of, ended, name_of, ELF_MAGIC, LEAST_MAPPED};
use reprise_abi::session::{region_flags, MODE_RECORD};
use reprise_abi::syscalls::nr;

const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;

/// What a mapping shows, as its event says it.
pub struct Shown {
    /// The file's number in the session, 0 when unknown.
    pub number: u32,
    /// The content's hash in words; zeros when it isn't known.
    pub content: [u64; 2],
    tag: Tag,
    len: u64,
    bytes: [u8; REFERENCE_LEN],
    in_bytes: usize,
}

impl Shown {
    fn whole(kept: &KeptFile) -> Shown {
        let mut bytes = [0; REFERENCE_LEN];
        bytes[..kept.hash.len()].copy_from_slice(&kept.hash);
        Shown {
            number: kept.number,
            content: kept.words(),
            tag: Tag::File,
            len: kept.len,
            bytes,
            in_bytes: kept.hash.len(),
        }
    }

    fn range(number: u32, len: u64, r: &Reference) -> Shown {
        let mut bytes = [0; REFERENCE_LEN];
        for (to, word) in bytes.chunks_exact_mut(8).zip(r.words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        Shown {
            number,
            content: [0; 2],
            tag: Tag::Mapped,
            len,
            bytes,
            in_bytes: REFERENCE_LEN,
        }
    }

    /// The event's section.
    pub fn section(&self) -> (Tag, u64, u64, usize) {
        let from = self.bytes.as_ptr() as u64;
        (self.tag, self.len, from, self.in_bytes)
    }
}

/// What the mapping of a descriptor's file shows that was just made.
pub fn shown(c: &Call, fd: u64) -> Shown {
    if let Some(range) = by_reference(c, fd) {
        return range;
    }
    let shared = c.args[3] & MAP_SHARED != 0;
    let kept = kept::keep_file(fd, shared);
    // From now on a replay has all of it, and a mapping of parts would take that away.
    if let Some(name) = name(kept.number) {
        if copy_of(name).is_some() {
            set_name(kept.number, ended(name));
        }
    }
    Shown::whole(&kept)
}

fn by_reference(c: &Call, fd: u64) -> Option<Shown> {
    let a = &c.args;
    let s = session();
    let writes = a[3] & MAP_SHARED != 0 && a[2] & PROT_WRITE != 0;
    let lost = s.recording_lost.load(Relaxed) != 0;
    let copies = inputs(s).copies.load(Relaxed) != 0;
    if writes || a[2] & PROT_EXEC != 0 || lost || copies || s.mode != MODE_RECORD {
        return None;
    }
    let stat = identity::stat_of(fd)?;
    let (identity, len) = (identity::identity(&stat), stat[kept::SIZE]);
    if identity == 0
        || len < LEAST_MAPPED
        || kept::known_content(&stat).is_some()
        || begins_as_elf(fd)
    {
        return None;
    }
    let before = kept::known_file(identity);
    if before != 0 && s.file_ever_shared[before as usize].load(Relaxed) != 0 {
        return None;
    }
    let stamp = kept::stamp_of(&stat);
    let row = input_rows::find(&stamp).or_else(|| input_rows::ask(fd, &stamp, true).ok())?;
    let it = &inputs(s).files[row];
    let is_right =
        |it: &Input| input_rows::is_open_version(it, &stamp) && it.mappable.load(SeqCst) != 0;
    if !input_rows::promise(it, is_right) {
        return None;
    }
    let Some(number) = number_for(it, before, identity) else {
        input_rows::take_back(it);
        return None;
    };
    let end = a[5].saturating_add(up(a[1])).min(len).max(a[5]);
    let r = Reference {
        number: it.number.load(Relaxed) as u64,
        offset: a[5],
        len: end - a[5],
        hash: UNKNOWN_HASH,
    };
    Some(Shown::range(number, len, &r))
}

/// The file's number in the session, when replays can show it in this way.
fn number_for(it: &Input, before: u32, identity: u64) -> Option<u32> {
    let copy = name_of(it.number.load(Relaxed) as u64);
    if before != 0 && name(before) != Some(copy) && may_be_mapped(before) {
        return None;
    }
    let number = Some(kept::file_number(identity)).filter(|n| *n != 0)?;
    set_name(number, copy);
    Some(number)
}

/// Does a process of the session have this file mapped? Of others it is not known here.
pub fn may_be_mapped(number: u32) -> bool {
    let mine = process::entry().live_threads.load(Relaxed);
    number != 0 && (map().has_file(number) || session().live_threads.load(Relaxed) != mine)
}

/// What replays have of a file that was mapped, as far as it matters: the name of a copy of parts, or the hash of the content of a file that was shared.
fn name(number: u32) -> Option<[u64; 2]> {
    let all = &session().file_contents;
    let words = all.get(number as usize).filter(|_| number != 0)?;
    Some([words[0].load(Relaxed), words[1].load(Relaxed)])
}

fn set_name(number: u32, name: [u64; 2]) {
    let words = &session().file_contents[number as usize];
    for (to, word) in words.iter().zip(name) {
        to.store(word, Relaxed);
    }
}

/// Does a replay have no more than parts of this file?
pub fn is_in_parts(number: u32) -> bool {
    name(number).is_some_and(|name| copy_of(name).is_some())
}

fn begins_as_elf(fd: u64) -> bool {
    let mut magic = [0u8; 4];
    let args = [fd, magic.as_mut_ptr() as u64, magic.len() as u64, 0];
    // What can't be read is the agent's to open, and says so.
    sys::call(nr::PREAD64, &args) != magic.len() as i64 || magic == ELF_MAGIC
}

/// What mremap(2) makes a mapping show beyond what it showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    file: u32,
    offset: u64,
    len: u64,
}

/// What a mapping will show in addition when this mremap(2) has succeeded, before the map knows.
pub fn growth(a: &[u64; 6]) -> Option<Growth> {
    let (from, old, new) = (a[0], up(a[1]), up(a[2]));
    // Without a length: shared memory once more, as much as is wanted from there on.
    let (r, at) = match old {
        0 => (map().at(from)?, from),
        _ => (map().at(from + old - 1)?, from + old),
    };
    (r.flags & region_flags::FILE != 0 && r.file != 0 && new > old).then_some(Growth {
        file: r.file,
        offset: r.offset + (at - r.start),
        len: new - old,
    })
}

impl Growth {
    /// What the event says of it, of a file of which a replay has parts only.
    pub fn shown(&self) -> Option<Shown> {
        let number = copy_of(name(self.file)?)?;
        let its = |it: &&Input| it.number.load(SeqCst) as u64 == number;
        let row = input_rows::all().iter().find(its);
        let row = row.filter(|it| input_rows::promise(it, |it| its(&it)));
        let most = row.map_or(i64::MAX as u64, |it| it.stamp[LEN].load(Relaxed));
        let end = (self.offset.saturating_add(self.len)).min(most);
        let r = Reference {
            number,
            offset: self.offset,
            len: end.saturating_sub(self.offset),
            hash: UNKNOWN_HASH,
        };
        Some(Shown::range(0, 0, &r))
    }
}

/// Where in a stamp the file's length is.
const LEN: usize = 2;
