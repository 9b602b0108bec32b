//! The session's shared memory: head, slots and ring in one memfd.

use crate::error::{os_as, LaunchError, Result};
use crate::maps;
use memmap2::{MmapOptions, MmapRaw};
use reprise_abi::conflicts::{Conflicts, CONFLICTS_LEN};
use reprise_abi::layout::{MAX_SLOTS, RING_SIZE};
use reprise_abi::memo::{Memo, MEMO_LEN};
use reprise_abi::order::{ring_offset, slots_with, OrderHead, ORDER_TOTAL};
use reprise_abi::races::Races;
use reprise_abi::session::{Session, Slot, FLAG_EPOCHS, MAGIC, SESSION_TOTAL, VERSION};
use rustix::fs::{ftruncate, major, memfd_create, minor, MemfdFlags};
use rustix::mm::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;

/// Bytes of proc_pid_maps(5) that are read at a time: the kernel makes no more than a page.
const MAPS_PIECE: usize = 4096;

/// Offset of the ring in the memfd.
pub const RING_OFFSET: u64 = (SESSION_TOTAL as u64).next_multiple_of(4096);

/// Offset of the `order` engine's memory in the memfd.
pub const ORDER_OFFSET: u64 = RING_OFFSET + RING_SIZE;
/// Its bytes, with what was found in code before.
pub const ORDER_MEMORY: u64 = ORDER_TOTAL + MEMO_LEN;

/// The session's memory as a launcher, agent or driver sees it. Children made by fork share it.
pub struct SharedSession {
    fd: OwnedFd,
    head: *mut Session,
    ring: Ring,
    /// The memory of the `order` engine, null without it.
    order: *mut u8,
    /// See [`SharedSession::add_memo`]; null without it.
    memo: *const u8,
    /// See [`SharedSession::add_conflicts`]; null without it.
    conflicts: *const Conflicts,
    /// What all of these, but for the ring, point into.
    mapped: Vec<MmapRaw>,
    /// Bytes of a slot's ring there.
    ring_size: u64,
    /// See [`SharedSession::add_leader`].
    has_leader: bool,
}

// SAFETY: all of it is atomics and memory that both sides treat as untrusted.
unsafe impl Send for SharedSession {}

/// What fails where memory is short.
const MAP: &str = "map the session's memory";

/// Maps a part of the session's memory, wherever there is room.
fn map(fd: &OwnedFd, offset: u64, len: u64) -> Result<MmapRaw> {
    let mut what = MmapOptions::new();
    what.offset(offset).len(len as usize).no_reserve_swap();
    what.map_raw(fd).map_err(os_as(MAP))
}

/// Gives the session's memory this length.
fn size(fd: &OwnedFd, len: u64) -> Result<()> {
    ftruncate(fd, len).map_err(|error| match crate::limits::too_large(len) {
        Some(why) => LaunchError::Unsupported(why),
        None => os_as("size the session's memory")(error),
    })
}

/// The ring twice, one after the other.
struct Ring(*mut u8);

impl Ring {
    fn of(fd: &OwnedFd) -> Result<Ring> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping, at a place that nothing else has.
        let at = unsafe { mmap_anonymous(none, Ring::LEN, both, MapFlags::PRIVATE) };
        let ring = Ring(at.map_err(os_as(MAP))?.cast());
        for half in [ring.0, ring.0.wrapping_add(Ring::LEN / 2)] {
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            // SAFETY: over a part of what was just mapped, which nobody knows yet.
            let at = unsafe { mmap(half.cast(), Ring::LEN / 2, both, flags, fd, RING_OFFSET) };
            at.map_err(os_as(MAP))?;
        }
        Ok(ring)
    }

    /// Bytes of both.
    const LEN: usize = 2 * RING_SIZE as usize;
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: a mapping of our own; whoever has a reference into it borrows the session that goes.
        let _ = unsafe { munmap(self.0.cast(), Ring::LEN) };
    }
}

impl SharedSession {
    /// By which its memory is found among the mappings of a process.
    pub const NAME: &'static str = "memfd:reprise-session";

    /// Makes a new session.
    ///
    /// # Errors
    /// When memory or descriptors are short.
    pub fn create() -> Result<SharedSession> {
        let fd = memfd_create(c"reprise-session", MemfdFlags::CLOEXEC)
            .map_err(os_as("make the session's memory"))?;
        size(&fd, RING_OFFSET + RING_SIZE)?;
        let mapped = map(&fd, 0, RING_OFFSET)?;
        let head = mapped.as_mut_ptr() as *mut Session;
        let ring = Ring::of(&fd)?;
        // SAFETY: fresh memory of the right size; every bit pattern is a Session.
        unsafe {
            (*head).magic = MAGIC;
            (*head).version = VERSION;
        }
        Ok(SharedSession {
            fd,
            head,
            ring,
            order: std::ptr::null_mut(),
            memo: std::ptr::null(),
            conflicts: std::ptr::null(),
            mapped: vec![mapped],
            ring_size: 0,
            has_leader: false,
        })
    }

    /// Adds what the `order` engine needs: a head, and a ring of `ring_size` bytes for each slot.
    ///
    /// # Errors
    /// When memory is short.
    pub fn add_order(&mut self, ring_size: u64) -> Result<()> {
        let at = self.add(ORDER_MEMORY)?;
        self.order = at;
        self.memo = self.order.wrapping_add(ORDER_TOTAL as usize);
        self.ring_size = ring_size;
        // SAFETY: fresh memory of the right size; the program does not run yet.
        unsafe { (*(at as *mut OrderHead)).ring_size = ring_size };
        Ok(())
    }

    /// Adds what a program that is recorded in epochs needs ([`FLAG_EPOCHS`]): the memory of the `order` engine, for its leader.
    ///
    /// # Errors
    /// When memory is short.
    pub fn add_leader(&mut self, ring_size: u64) -> Result<()> {
        self.add_order(ring_size)?;
        self.session_mut().flags |= FLAG_EPOCHS;
        self.has_leader = true;
        Ok(())
    }

    /// Adds memory for what was found in code before, where there is none of the `order` engine's. It lies where that would have it.
    ///
    /// # Errors
    /// When memory is short.
    pub fn add_memo(&mut self) -> Result<()> {
        let at = self.add(ORDER_MEMORY)?;
        self.memo = at.wrapping_add(ORDER_TOTAL as usize);
        Ok(())
    }

    /// Adds memory for what `run --det-report` leaves behind. It lies where the `order` engine's would.
    ///
    /// # Errors
    /// When memory is short.
    pub fn add_conflicts(&mut self) -> Result<()> {
        let at = self.add(CONFLICTS_LEN)?;
        self.conflicts = at as *const Conflicts;
        Ok(())
    }

    /// Adds so many bytes behind what every session has: where they are mapped.
    fn add(&mut self, len: u64) -> Result<*mut u8> {
        size(&self.fd, ORDER_OFFSET + len)?;
        let mapped = map(&self.fd, ORDER_OFFSET, len)?;
        let at = mapped.as_mut_ptr();
        self.mapped.push(mapped);
        Ok(at)
    }

    /// What `run --det-report` leaves behind, where that was asked for.
    pub fn conflicts(&self) -> Option<&Conflicts> {
        // SAFETY: mapped for as long as self lives; every bit pattern is one.
        (!self.conflicts.is_null()).then(|| unsafe { &*self.conflicts })
    }

    /// The head of the `order` engine's memory, where that is the engine.
    pub fn order(&self) -> Option<&OrderHead> {
        // SAFETY: mapped for as long as self lives.
        (!self.order.is_null()).then(|| unsafe { &*(self.order as *const OrderHead) })
    }

    /// The rings of which the trace is made, where each thread has one: in epochs they are a leader's, and the trace has what copies did.
    pub fn rings(&self) -> Option<&OrderHead> {
        self.order().filter(|_| !self.has_leader())
    }

    /// Is the program recorded in epochs? (What the session's flags say is the program's to write.)
    pub fn has_leader(&self) -> bool {
        self.has_leader
    }

    /// What was found in code before, where the engine replaces locked instructions.
    pub fn memo(&self) -> Option<&Memo> {
        // SAFETY: mapped for as long as self lives; it is only atomics.
        (!self.memo.is_null()).then(|| unsafe { &*(self.memo as *const Memo) })
    }

    /// Bytes of a slot's ring, as they were asked for; 0 without the `order` engine. What the head says is the program's to write.
    pub fn ring_size(&self) -> u64 {
        self.ring_size
    }

    /// The first byte of a slot's own ring.
    ///
    /// # Panics
    /// Without the `order` engine, or when there is no such slot.
    pub fn slot_ring(&self, slot: usize) -> *mut u8 {
        assert!(!self.order.is_null() && slot < slots_with(self.ring_size));
        self.order
            .wrapping_add(ring_offset(slot, self.ring_size) as usize)
    }

    /// What a replay that looks for races leaves behind. It lies where other sessions have their ring.
    pub fn races(&self) -> &Races {
        // SAFETY: as large as the ring at most, and mapped for as long as self lives; every bit pattern is one.
        unsafe { &*(self.ring.0 as *const Races) }
    }

    /// Has this thread's process the session's memory mapped? Nobody can put it into a foreign one.
    ///
    /// # Errors
    /// When what it has mapped can't be seen.
    pub fn is_mapped_by(&self, pid: u32, tid: u32) -> std::io::Result<bool> {
        let memory = std::fs::File::from(self.fd.try_clone()?).metadata()?;
        let device = (major(memory.dev()), minor(memory.dev()));
        // A piece at a time: the session's memory is one of the first mappings of who has it, and the kernel makes the text as it is read.
        let maps = std::fs::File::open(format!("/proc/{pid}/task/{tid}/maps"))?;
        let maps = BufReader::with_capacity(MAPS_PIECE, maps);
        let mut none = true;
        for line in maps.split(b'\n') {
            let line = line?;
            none = false;
            let line = maps::Line::parse(&line);
            if line.is_some_and(|l| l.device == device && l.inode == memory.ino()) {
                return Ok(true);
            }
        }
        // A thread that has ended has nothing mapped any more, whatever its process has.
        match none {
            true => Err(ErrorKind::NotFound.into()),
            false => Ok(false),
        }
    }

    /// The memfd.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The head.
    pub fn session(&self) -> &Session {
        // SAFETY: mapped for as long as self lives.
        unsafe { &*self.head }
    }

    /// The head, for filling it before the program runs.
    pub fn session_mut(&mut self) -> &mut Session {
        // SAFETY: as above; the program does not run yet.
        unsafe { &mut *self.head }
    }

    /// Slot `i`.
    pub fn slot(&self, i: usize) -> &Slot {
        assert!(i < MAX_SLOTS);
        // SAFETY: inside the mapping.
        unsafe { &*(Session::slot_address(self.head as usize, i) as *const Slot) }
    }

    /// `len` bytes of the ring from position `at`, contiguous thanks to the double mapping.
    ///
    /// # Panics
    /// When `len` is larger than the ring.
    pub fn ring_bytes(&self, at: u64, len: usize) -> *mut u8 {
        assert!(len <= RING_SIZE as usize);
        self.ring.0.wrapping_add((at & (RING_SIZE - 1)) as usize)
    }
}

impl AsFd for SharedSession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
