//! A process stopped before its first instruction, and how runtime, session and blocks come into it (FACTS, "Injection at exec").

use super::mappings::{mappings_of, Mapping};
use crate::auxv;
use crate::error::{LaunchError, Result};
use crate::reach::Reach;
use crate::remote::{Calls, Page, MAY_FAIL, TO_FIRST, TO_THIRD};
use crate::runtime::RuntimeImage;
use crate::shared::{SharedSession, ORDER_MEMORY, ORDER_OFFSET, RING_OFFSET};
use crate::tracee::{self, Tracee};
use crate::vdso;
use libc::pid_t;
use reprise_abi::conflicts::{CONFLICTS_BASE, CONFLICTS_LEN};
use reprise_abi::layout::*;
use reprise_abi::memo::{MEMO_BASE, MEMO_LEN};
use reprise_abi::order::{ORDER_BASE, ORDER_TOTAL};
use reprise_abi::session::{
    region_flags, InitialRegion, Session, MAX_INITIAL_REGIONS, SESSION_TOTAL,
};

/// A program stopped before its first instruction.
pub struct Stopped {
    pub(crate) tracee: Tracee,
    slot: usize,
    /// Its process id.
    pub pid: pid_t,
    /// Its mappings, ours and the kernel's own excluded.
    pub mappings: Vec<Mapping>,
    pub(crate) entry: libc::user_regs_struct,
    pub(crate) page: Page,
    pub(crate) finished: bool,
}

impl Stopped {
    /// A process at the event of its exec: its registers are the program's first ones.
    pub(crate) fn begin(pid: pid_t, slot: usize) -> Result<Stopped> {
        let tracee = Tracee::new(pid)?;
        let entry = tracee.registers()?;
        let page = Page::around(&tracee, entry.rip)?;
        Ok(Stopped {
            tracee,
            slot,
            pid,
            mappings: vec![],
            entry,
            page,
            finished: false,
        })
    }

    /// Makes one call in its name.
    pub(crate) fn remote(&self, nr: i64, args: [u64; 6]) -> Result<i64> {
        let mut calls = Calls::new(&self.page);
        calls.add(nr, args, TO_FIRST | MAY_FAIL);
        Ok(calls.make(&self.tracee, &self.entry)?.kept[0])
    }

    /// Maps the runtime, the session and the first thread's block into the program. `None`: it can't reach them in this way.
    ///
    /// # Errors
    /// When they have no room, or the program died.
    pub(crate) fn put_in(
        &mut self,
        shared: &mut SharedSession,
        image: &RuntimeImage,
        reach: Reach,
    ) -> Result<Option<()>> {
        let maps = mappings_of(self.pid)?;
        let mut calls = Calls::new(&self.page);
        let opened = reach.open(&mut calls);
        self.map_ours(&mut calls, shared, image, reach);
        let (mut mappings, mut vdso) = (Vec::new(), None);
        for m in maps {
            if (RESERVATION..RESERVATION_END).contains(&m.start) || m.start >= USER_END {
                continue;
            }
            let name = m.name.to_string_lossy();
            if name.starts_with("[v") {
                // The vDSO and its data: reading the clock there would escape the gates.
                let all = [m.start, m.end - m.start, 0, 0, 0, 0];
                calls.add(libc::SYS_munmap, all, 0);
                if name == "[vdso]" {
                    vdso = Some(m.start);
                    mappings.push(put_vdso(&mut calls, m, image, reach));
                }
                continue;
            }
            mappings.push(m);
        }
        reach.close(&mut calls);
        auxv::hide(&self.tracee, &self.entry, vdso, &mut calls)?;
        calls.add(libc::SYS_brk, [0; 6], TO_THIRD);
        let made = calls.make(&self.tracee, &self.entry)?;
        tracing::debug!(pid = self.pid, mappings = mappings.len(), failed = ?made.failed, "runtime mapped");
        match made.failed {
            None => {}
            Some((n, _)) if n < opened => {
                for fd in &made.kept[..n] {
                    self.remote(libc::SYS_close, [*fd as u64, 0, 0, 0, 0, 0])?;
                }
                return Ok(None);
            }
            Some((_, error)) => {
                let why = std::io::Error::from_raw_os_error(-error as i32);
                return Err(LaunchError::Unsupported(format!(
                    "no room for the runtime in this program ({why})"
                )));
            }
        }
        self.mappings = mappings;
        self.page.restore(&self.tracee)?;
        let s = shared.session_mut();
        if self.mappings.len() > MAX_INITIAL_REGIONS {
            return Err(LaunchError::Unsupported(format!(
                "more than {MAX_INITIAL_REGIONS} mappings at exec"
            )));
        }
        self.tell_mappings(s);
        s.entry = self.entry.rip;
        s.initial_sp = self.entry.rsp;
        s.brk_start = made.kept[2] as u64;
        s.stack_limit = stack_limit(self.pid);
        // A program that begins.
        (s.attached, s.brk_now) = (0, 0);
        Ok(Some(()))
    }

    /// Tells the runtime of the program's mappings.
    pub(crate) fn tell_mappings(&self, s: &mut Session) {
        for (to, m) in s.initial_regions.iter_mut().zip(&self.mappings) {
            *to = InitialRegion {
                start: m.start,
                end: m.end,
                prot: m.prot,
                flags: m.flags,
                offset: m.offset,
                content: [0; 2],
            };
        }
        s.initial_regions_len = self.mappings.len() as u32;
    }

    /// Calls are made from the page of these registers' instruction from now on.
    pub(crate) fn look_anew(&mut self, registers: libc::user_regs_struct) -> Result<()> {
        self.entry = registers;
        self.page = Page::around(&self.tracee, registers.rip)?;
        Ok(())
    }

    /// The calls that map what is ours.
    pub(crate) fn map_ours(
        &self,
        calls: &mut Calls,
        shared: &SharedSession,
        image: &RuntimeImage,
        reach: Reach,
    ) {
        let fixed = libc::MAP_FIXED_NOREPLACE;
        let mut map = |at: u64, len: u64, prot: i32, flags: i32, fd: (u64, u64), offset: u64| {
            let flags = (flags | fixed) as u64;
            calls.add(
                libc::SYS_mmap,
                [at, len, prot as u64, flags, fd.0, offset],
                fd.1,
            );
        };
        let (private, shared_one) = (libc::MAP_PRIVATE, libc::MAP_SHARED);
        for s in &image.segments {
            let at = IMAGE_BASE + s.offset;
            map(at, s.len, s.prot, private, reach.image(), s.offset);
        }
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let session = reach.session();
        let len = SESSION_TOTAL.next_multiple_of(4096) as u64;
        map(SESSION_BASE, len, rw, shared_one, session, 0);
        for at in [RING_BASE, RING_BASE + RING_SIZE] {
            map(at, RING_SIZE, rw, shared_one, session, RING_OFFSET);
        }
        if shared.conflicts().is_some() {
            let (at, len) = (CONFLICTS_BASE, CONFLICTS_LEN);
            map(at, len, rw, shared_one, session, ORDER_OFFSET);
        }
        if shared.order().is_some() {
            let flags = shared_one | libc::MAP_NORESERVE;
            map(ORDER_BASE, ORDER_MEMORY, rw, flags, session, ORDER_OFFSET);
        } else if shared.memo().is_some() {
            let offset = ORDER_OFFSET + ORDER_TOTAL;
            map(MEMO_BASE, MEMO_LEN, rw, shared_one, session, offset);
        }
        let anonymous = private | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        map(self.block(), BLOCK_STRIDE, rw, anonymous, (u64::MAX, 0), 0);
    }

    /// Where its first thread's block is.
    fn block(&self) -> u64 {
        BLOCKS_BASE + self.slot as u64 * BLOCK_STRIDE
    }

    /// Its first stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.entry.rsp
    }

    /// Reads the program's memory.
    ///
    /// # Errors
    /// Where nothing is mapped.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.tracee.read(at, into)
    }

    /// Lets the program go, with the runtime as its first code. Everything in the session must be set by now.
    ///
    /// # Errors
    /// [`LaunchError::Died`] when it was killed meanwhile.
    pub fn go(&mut self, image: &RuntimeImage) -> Result<pid_t> {
        let mut r = self.entry;
        r.rip = image.start;
        r.rdi = self.block();
        r.rsp = self.block() + BLOCK_STRIDE;
        r.orig_rax = u64::MAX;
        let gone = self.tracee.set_registers(&r);
        if let Err(e) = gone.and_then(|()| self.tracee.detach()) {
            let killed = tracee::is_dying(self.pid);
            return Err(if killed { LaunchError::Died(0) } else { e });
        }
        self.finished = true;
        tracing::debug!(pid = self.pid, slot = self.slot, "let go");
        Ok(self.pid)
    }
}

/// Puts our vDSO where the kernel's was.
fn put_vdso(calls: &mut Calls, was: Mapping, image: &RuntimeImage, reach: Reach) -> Mapping {
    let len = vdso::LEN as u64;
    let prot = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
    let (fd, how) = reach.image();
    let args = [was.start, len, prot as u64, flags as u64, fd, image.vdso];
    calls.add(libc::SYS_mmap, args, how);
    Mapping {
        end: was.start + len,
        prot: prot as u32,
        flags: region_flags::VDSO,
        ..was
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if !self.finished {
            tracee::end(self.pid);
        }
    }
}

/// The soft limit of the program's stack in bytes; no limit counts as 1 GiB.
pub(crate) fn stack_limit(pid: pid_t) -> u64 {
    // SAFETY: fills a struct of ours.
    unsafe {
        let mut l: libc::rlimit = std::mem::zeroed();
        l.rlim_cur = 8 << 20;
        libc::prlimit(pid, libc::RLIMIT_STACK, std::ptr::null(), &mut l);
        l.rlim_cur.min(1 << 30)
    }
}
