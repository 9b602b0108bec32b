//! The pages that a process really has of its mappings (proc_pid_pagemap(5)), read from outside.

use libc::pid_t;
use reprise_abi::layout::PAGE;
use reprise_abi::pagemap::{category, PageRange, ScanArgument, PAGEMAP_SCAN};
use std::fs::File;
use std::io::Result;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;
/// Bits of /proc/PID/pagemap.
const IN_MEMORY: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE_OR_SHARED: u64 = 1 << 61;
/// Whoever touches it has a fault (MADV_GUARD_INSTALL; Linux 6.15).
const GUARD: u64 = 1 << 58;

/// Which pages of a mapping are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// All, whether the process has touched them or not.
    All,
    /// All that can be read: pages of a mapped file behind its end can't.
    Readable,
    /// Those that it has.
    Present,
    /// Those of a private mapping of a file that it has changed.
    Changed,
}

impl Wanted {
    fn holds(self, entry: u64) -> bool {
        let there = entry & (IN_MEMORY | SWAPPED) != 0;
        match self {
            _ if entry & GUARD != 0 => false,
            Wanted::All | Wanted::Readable => true,
            Wanted::Present => there,
            Wanted::Changed => there && entry & FILE_OR_SHARED == 0,
        }
    }
}

/// The memory of a process that does not run.
pub struct Pages {
    memory: File,
    pagemap: File,
}

impl Pages {
    /// Those of a process.
    ///
    /// # Errors
    /// When it may not be looked into, or is gone.
    pub fn of(pid: pid_t) -> Result<Pages> {
        Ok(Pages {
            memory: File::open(format!("/proc/{pid}/mem"))?,
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
        })
    }

    /// The guard pages between these addresses, in order; none where the kernel does not tell of them.
    ///
    /// They are asked for by PAGEMAP_SCAN (Linux 6.16 for guards), which skips what has no page tables.
    pub fn guards(&self, of: Range<u64>) -> Vec<Range<u64>> {
        const RANGES: usize = 256;
        let mut all: Vec<Range<u64>> = Vec::new();
        let mut at = of.start;
        while at < of.end {
            let mut found = [PageRange::default(); RANGES];
            let mut scan = ScanArgument {
                size: size_of::<ScanArgument>() as u64,
                start: at,
                end: of.end,
                vec: found.as_mut_ptr() as u64,
                vec_len: RANGES as u64,
                category_mask: category::GUARD,
                return_mask: category::GUARD,
                ..ScanArgument::default()
            };
            // SAFETY: the kernel writes as many ranges as there is room for, and the argument.
            let n = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN, &mut scan) };
            let Some(found) = usize::try_from(n).ok().and_then(|n| found.get(..n)) else {
                return all;
            };
            for r in found {
                match all.last_mut().filter(|last| last.end == r.start) {
                    Some(last) => last.end = r.end,
                    None => all.push(r.start..r.end),
                }
                at = r.end;
            }
            if found.len() < RANGES {
                return all;
            }
        }
        all
    }

    /// `of` in parts, of which each is all guards, or has none.
    pub fn parts(&self, of: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut all = Vec::new();
        let mut at = of.start;
        for guards in self.guards(of.clone()) {
            if at < guards.start {
                all.push((at..guards.start, false));
            }
            at = guards.end;
            all.push((guards, true));
        }
        if at < of.end {
            all.push((at..of.end, false));
        }
        all
    }

    /// Calls `f` with each stretch of wanted pages of `of`, in order.
    ///
    /// # Errors
    /// What `f` returns, or what the kernel says where memory can't be read, which `failed` makes an error of the caller's.
    pub fn each<E>(
        &self,
        of: Range<u64>,
        wanted: Wanted,
        failed: impl Fn(std::io::Error) -> E,
        mut f: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let end = of.end;
        let mut entries = vec![0u8; CHUNK / PAGE as usize * 8];
        let mut bytes = vec![0u8; CHUNK];
        let mut at = of.start;
        while at < end {
            let pages = ((end - at) / PAGE).min((CHUNK as u64) / PAGE) as usize;
            let entries = &mut entries[..pages * 8];
            let told = self.pagemap.read_exact_at(entries, at / PAGE * 8);
            told.map_err(&failed)?;
            let is_wanted = |i: usize| {
                let mut word = [0; 8];
                word.copy_from_slice(&entries[8 * i..8 * i + 8]);
                wanted.holds(u64::from_le_bytes(word))
            };
            let mut i = 0;
            while i < pages {
                let n = (i..pages).take_while(|i| is_wanted(*i)).count();
                let from = at + i as u64 * PAGE;
                let part = &mut bytes[..n * PAGE as usize];
                match self.memory.read_exact_at(part, from) {
                    Ok(()) if n == 0 => {}
                    Ok(()) => f(from, part)?,
                    Err(_) if wanted == Wanted::Readable => {
                        let all = part.chunks_exact_mut(PAGE as usize);
                        for (page, from) in all.zip((from..).step_by(PAGE as usize)) {
                            if self.memory.read_exact_at(page, from).is_ok() {
                                f(from, page)?;
                            }
                        }
                    }
                    Err(e) => return Err(failed(e)),
                }
                i += n.max(1);
            }
            at += pages as u64 * PAGE;
        }
        Ok(())
    }
}
