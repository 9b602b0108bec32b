//! Record: the files that the trace keeps, because the program mapped them, and their numbers in the session.

use crate::machine::sys;
use crate::memory;
use crate::memory::identity;
use crate::thread::request;
use crate::thread::session;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use reprise_abi::layout::SESSION_BASE;
use reprise_abi::session::{
    request as requests, KnownFile, FILE_STAMP, MAX_KNOWN_FILES, MAX_SHARED_FILES, WINDOW_LEN,
    WINDOW_OFFSET,
};

/// The agent may not open the file.
const EACCES: u32 = 13;

/// The number of a file that was mapped before by any process, 0 for others.
pub fn known_file(identity: u64) -> u32 {
    let s = session();
    let known = s.files_known.load(Relaxed) as usize;
    s.file_identities
        .iter()
        .take((known + 1).min(MAX_SHARED_FILES))
        .skip(1)
        .position(|k| k.load(Relaxed) == identity)
        .map_or(0, |i| i as u32 + 1)
}

/// The number of a file in this session, from 1, by its identity; 0 when there are too many.
pub fn file_number(identity: u64) -> u32 {
    let known = known_file(identity);
    if known != 0 {
        return known;
    }
    let s = session();
    // Where processes run at the same time, several may meet with new files.
    let _lock =
        crate::thread::in_force::orders_synchronisation().then(crate::thread::schedule::lock);
    let known = known_file(identity);
    if known != 0 {
        return known;
    }
    let n = s.files_known.load(Relaxed) + 1;
    let Some(word) = s.file_identities.get(n as usize) else {
        return 0;
    };
    word.store(identity, Relaxed);
    s.files_known.store(n, Relaxed);
    n
}

/// A file that the trace now holds.
pub struct KeptFile {
    /// Its content hash.
    pub hash: [u8; 16],
    /// Its length in bytes.
    pub len: u64,
    /// Its number in the session, 0 when unknown.
    pub number: u32,
}

impl KeptFile {
    fn set_hash(&mut self, words: [u64; 2]) {
        for (to, word) in self.hash.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Its content hash in words; zeros when it isn't known.
    pub fn words(&self) -> [u64; 2] {
        let word = u128::from_le_bytes(self.hash);
        [word as u64, (word >> 64) as u64]
    }
}

/// What tells a version of a file.
pub type Stamp = [u64; FILE_STAMP];

/// That of a file of which fstat(2) says this.
pub fn stamp_of(stat: &[u64; 18]) -> Stamp {
    STAMPED.map(|i| stat[i])
}

/// Places in `struct stat`: what [`FILE_STAMP`] words are taken from.
const STAMPED: [usize; FILE_STAMP] = [0, 1, SIZE, 11, 12, 13, 14];
/// Place of the length in `struct stat`.
pub const SIZE: usize = 6;

/// The content of a file that the trace holds already, by what the agent has said of it.
pub fn known_content(stat: &[u64; 18]) -> Option<[u64; 2]> {
    let s = session();
    let len = (s.kept_len.load(Acquire) as usize).min(MAX_KNOWN_FILES);
    let same = |f: &&KnownFile| {
        let mut words = f.stamp.iter().zip(STAMPED);
        // The inode tells most apart.
        f.stamp[1].load(Relaxed) == stat[1] && words.all(|(w, i)| w.load(Relaxed) == stat[i])
    };
    let file = s.kept[..len].iter().find(same)?;
    Some([0, 1].map(|i| file.content[i].load(Relaxed)))
}

/// Asks the agent to keep the file behind a descriptor that was mapped. `shared`: others may write to it through mappings from now on.
pub fn keep_file(fd: u64, shared: bool) -> KeptFile {
    keep(fd, shared, true)
}

/// Asks the agent to keep what a file that is mapped has become.
pub fn keep_changed(fd: u64) -> KeptFile {
    keep(fd, true, false)
}

/// `for_mapping`: it is asked for because the file was mapped.
fn keep(fd: u64, shared: bool, for_mapping: bool) -> KeptFile {
    let mut kept = KeptFile {
        hash: [0; 16],
        len: 0,
        number: 0,
    };
    let s = session();
    if s.recording_lost.load(Relaxed) != 0 {
        return kept;
    }
    let Some(stat) = identity::stat_of(fd) else {
        return kept;
    };
    let before = known_file(identity::identity(&stat)) as usize;
    let ever = before != 0 && s.file_ever_shared[before].load(Relaxed) != 0;
    if for_mapping && ever && memory::map().has_file(before as u32) {
        // A replay has a copy of it, which shows what its writers left: what the trace has of it serves as a name only.
        let content = &s.file_contents[before];
        kept.set_hash([0, 1].map(|i| content[i].load(Relaxed)));
        let in_parts = reprise_abi::mapped::copy_of(kept.words()).is_some();
        if kept.hash != [0; 16] && !in_parts {
            kept.len = stat[SIZE];
            kept.number = before as u32;
            return kept;
        }
    }
    if let Some(content) = known_content(&stat).filter(|_| !shared && !ever) {
        kept.set_hash(content);
        kept.len = stat[SIZE];
        kept.number = file_number(identity::identity(&stat));
        return kept;
    }
    let args = [
        fd,
        crate::thread::process::kernel_pid() as u64,
        (shared || ever) as u64,
    ];
    let Some((mut status, mut answer)) = request::ask(requests::KEEP_FILE, &args) else {
        return kept;
    };
    if status == EACCES {
        match hand_over(fd) {
            Some(done) => (status, answer) = done,
            None => return kept,
        }
    }
    kept.set_hash([answer[0], answer[1]]);
    kept.len = answer[2];
    if status == 0 {
        kept.number = file_number(answer[3]);
        if shared && kept.number != 0 {
            let n = kept.number as usize;
            for (to, word) in s.file_contents[n].iter().zip(kept.words()) {
                to.store(word, Relaxed);
            }
            s.file_ever_shared[n].store(1, Relaxed);
        }
    }
    kept
}

/// The agent can't open a file of this process, which is not dumpable or has become another user: gives it the bytes.
#[cold]
fn hand_over(fd: u64) -> Option<(u32, [u64; 4])> {
    let window = SESSION_BASE + WINDOW_OFFSET as u64;
    let identity = identity::identity_of(fd);
    let mut offset = 0;
    loop {
        let n = sys::pread64(fd, window, WINDOW_LEN as u64, offset);
        if n < 0 {
            crate::thread::message::note(reprise_abi::notes::UNREADABLE);
            return None;
        }
        let part = [n as u64, offset, identity];
        let answer = request::ask(requests::HAND_FILE, &part)?;
        if n == 0 || answer.0 != 0 {
            return Some(answer);
        }
        offset += n as u64;
    }
}
