//! Interprets the syscall table: what a call reads and writes, for any call, from its description alone.
//!
//! A [`Call`] is what the program asked for. [`Call::input_hash`] sums up what the kernel will read;
//! [`Call::localise`] replaces the program's buffers by scratch memory, for calls that give up the baton;
//! [`Call::outputs`] lists what the kernel wrote.

use crate::machine::guard;
use crate::machine::hash;
use crate::memory::scratch::{room, Scratch, MAX_SCRATCH, SECTOR};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use reprise_abi::effect::{Effect, NoWait, Position};
use reprise_abi::layout::USER_END;
use reprise_abi::spec::{Blocking, Mem, Replay, Restart, Size, Syscall};
use reprise_abi::syscalls;

/// A system call of the program.
#[derive(Clone, Copy)]
pub struct Call {
    /// Number.
    pub nr: u64,
    /// Arguments as the program passed them.
    pub args: [u64; 6],
    /// Arguments as the kernel gets them: the same, or scratch memory.
    pub local: [u64; 6],
    /// How many arguments the call has.
    pub nargs: usize,
    /// The memory behind each argument, sub-tables resolved.
    pub mem: [Mem; 6],
    /// Whether it may wait.
    pub blocking: Blocking,
    /// How it is replayed.
    pub replay: Replay,
    /// What a signal does to it.
    pub restart: Restart,
    /// What it does besides.
    pub effect: Effect,
    /// Is it known to the table, sub-tables included?
    pub known: bool,
    /// What the sub-table says of a call that is special as a whole (prctl).
    pub option_replay: Replay,
    /// The arguments without what the kernel ignores of them; sizes are right only for these.
    canonical: [u64; 6],
    /// The value behind the call's length pointer before the call.
    length_before: u32,
}

/// Something the kernel wrote: bytes at `local` that belong to the program's `address`.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Where the program expects them.
    pub address: u64,
    /// Where they are.
    pub local: u64,
    /// How many.
    pub len: usize,
}

/// What a call wrote, found out once: looked at again it may be something else, where other threads change what is mapped.
pub struct Outputs {
    first: [Output; FEW],
    count: usize,
}

/// So many outputs are remembered; nearly every call has fewer.
const FEW: usize = 8;

impl Outputs {
    /// Calls `f` with each; `c` and `result` as at first.
    pub fn each(&self, c: &Call, result: i64, mut f: impl FnMut(Output)) {
        match self.first.get(..self.count) {
            Some(all) => all.iter().copied().for_each(f),
            None => c.outputs(result, &mut f),
        }
    }
}

/// A msghdr of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Msghdr {
    pub name: u64,
    pub name_len: u32,
    _pad: u32,
    pub iov: u64,
    pub iov_len: u64,
    pub control: u64,
    pub control_len: u64,
    flags: u32,
    _pad2: u32,
}

/// Offset of `msg_len` in a mmsghdr, and the size of one.
pub(crate) const MMSG_LEN: u64 = 56;
pub(crate) const MMSG_SIZE: u64 = 64;
const EINTR: i64 = -4;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const ENOMEM: i64 = -12;
/// Most bytes that one call reads into the program's own memory: they must fit into one event. The program sees a short read.
pub const MAX_DIRECT: u64 = 1 << 29;
/// Most iovecs the kernel accepts (UIO_MAXIOV).
const MAX_IOV: u64 = 1024;
/// Bytes of an output that are logged beyond what the result tells of, when a fault came in between: no message, and no pipe, holds more.
const MAX_FAULTED: usize = 1 << 20;
/// Longest path the kernel reads (PATH_MAX).
pub const MAX_PATH: usize = 4096;
/// More than this is never taken as a single buffer's size (the kernel's own MAX_RW_COUNT).
const MAX_BUFFER: u64 = 0x7fff_f000;

/// What a fault adds to the hash of inputs.
pub const FAULTED_INPUT: u64 = 0x0bad;
/// Most bytes of an input that are shown to people.
const PREVIEW: usize = 32;
/// Inputs of so many bytes and more have previews only for a while, ...
const LARGE_INPUT: usize = 4096;
/// ... the first so many of each process.
const LARGE_SHOWN: u32 = 1000;

/// Whether people want to see the beginning of what this call reads.
pub fn has_preview(number: u64) -> bool {
    use syscalls::nr;
    matches!(number, nr::WRITE | nr::SENDTO | nr::CONNECT | nr::BIND)
}

/// How many bytes of an input of `len` bytes they see; none: it has no section of its own. Of a program that writes much they see only the first large ones: else
/// most of its trace were these.
pub fn preview_len(number: u64, len: usize) -> Option<usize> {
    static LARGE: AtomicU32 = AtomicU32::new(0);
    let large = len >= LARGE_INPUT && LARGE.fetch_add(1, Relaxed) >= LARGE_SHOWN;
    (has_preview(number) && !large).then_some(len.min(PREVIEW))
}

/// The bytes that a length argument stands for, as in [`Size::Arg`].
pub fn buffer_len(argument: u64) -> usize {
    (argument as i64).clamp(0, MAX_BUFFER as i64) as usize
}

/// The bytes of one part of an iovec array.
pub fn part_len(len: u64) -> usize {
    len.min(MAX_BUFFER) as usize
}

impl Call {
    /// An argument, by its position in the table.
    #[inline]
    pub fn arg(&self, position: u8) -> u64 {
        self.args[position as usize]
    }

    /// The flag by which the call is told not to wait.
    pub fn no_wait(&self) -> Option<NoWait> {
        syscalls::lookup(self.nr).and_then(|call| call.no_wait)
    }

    /// Is the call told by a flag not to wait?
    pub fn is_told_not_to_wait(&self) -> bool {
        self.no_wait().is_some_and(|f| self.arg(f.at) & f.flag != 0)
    }

    /// The descriptors that are closed by the call, from the first to the last, whatever comes of it.
    #[inline]
    pub fn closed(&self) -> Option<(u64, u64)> {
        match self.effect {
            Effect::Closes(fd) => Some((self.arg(fd), self.arg(fd))),
            Effect::Replaces(r) => Some((self.arg(r.onto), self.arg(r.onto))),
            Effect::ClosesRange(first, last, _) => Some((self.arg(first), self.arg(last))),
            _ => None,
        }
    }

    /// Does the call read or write where the descriptor's own position is?
    pub fn is_at_own_position(&self) -> bool {
        match self.effect {
            Effect::Reads(_, at) | Effect::Writes(_, at) => match at {
                Position::Own => true,
                Position::At(_) => false,
                Position::AtOrOwn(offset) => self.arg(offset) == u64::MAX,
            },
            _ => false,
        }
    }

    /// Looks the call up; sub-tables of ioctl, fcntl and prctl are resolved here.
    #[inline(always)]
    pub fn new(nr: u64, args: [u64; 6], desc: Option<&'static Syscall>) -> Call {
        let mut c = Call {
            nr,
            args,
            local: args,
            nargs: 6,
            mem: [Mem::None; 6],
            blocking: Blocking::Never,
            replay: Replay::Emulate,
            restart: Restart::No,
            effect: Effect::Other,
            known: false,
            option_replay: Replay::Emulate,
            canonical: args,
            length_before: 0,
        };
        let Some(d) = desc else { return c };
        c.nargs = d.args.len();
        c.effect = d.effect;
        c.canonical = d.canonical(&args);
        if is_plain(d) {
            c.known = true;
            (c.blocking, c.restart, c.replay, c.option_replay) =
                (d.blocking, d.restart, d.replay, d.replay);
            for (to, a) in c.mem.iter_mut().zip(d.args) {
                *to = a.mem;
            }
            return c;
        }
        let r = syscalls::resolve(d, &c.canonical);
        c.known = !r.unknown;
        (c.blocking, c.restart, c.option_replay) = (r.blocking, r.restart, r.replay);
        c.replay = if d.replay == Replay::Special {
            d.replay
        } else {
            r.replay
        };
        for (i, a) in d.args.iter().enumerate() {
            c.mem[i] = syscalls::mem(a, &c.canonical);
            if let Some(n) = length_pointer(c.mem[i]) {
                // Without a length (recv) there is no fault to survive, which would cost more than the call.
                c.length_before = match args[n as usize] {
                    0 => 0,
                    at => guard::read::<u32>(at).unwrap_or(0),
                };
            }
        }
        c
    }

    pub(crate) fn size(&self, s: Size, result: i64) -> usize {
        s.bytes(&self.canonical, result, |_| self.length_before)
            .min(MAX_BUFFER) as usize
    }

    /// Bytes written, given the result.
    pub(crate) fn used(&self, cap: Size, used: Size, result: i64) -> usize {
        let cap = self.size(cap, result);
        let after = |_| match used {
            Size::Deref32(n) | Size::Deref32Plus(n, _) | Size::Chosen { at: n, .. } => {
                guard::read::<u32>(self.local[n as usize]).unwrap_or(0)
            }
            _ => 0,
        };
        (used.bytes(&self.canonical, result, after).min(MAX_BUFFER) as usize).min(cap)
    }

    /// Calls `f` with each input the kernel reads: (address, bytes).
    pub(crate) fn inputs(&self, mut f: impl FnMut(u64, usize)) {
        for i in 0..self.nargs {
            let p = self.args[i];
            if p == 0 {
                continue;
            }
            match self.mem[i] {
                Mem::Path => f(p, guard::string_len(p, MAX_PATH).unwrap_or(0)),
                Mem::In(s) => f(p, self.size(s, 0)),
                Mem::InOut { cap, .. } | Mem::InOutAlways(cap) => f(p, self.size(cap, 0)),
                Mem::IovecIn(n) => iovecs(p, self.args[n as usize], usize::MAX, &mut f),
                Mem::MsghdrIn => message_inputs(p, &mut f),
                Mem::MmsghdrIn(n) => {
                    for k in 0..(self.args[n as usize] as u32 as u64).min(MAX_IOV) {
                        message_inputs(p + k * MMSG_SIZE, &mut f);
                    }
                }
                _ => {}
            }
        }
    }

    /// Does all memory that the kernel reads and writes pass `test`? Not where the table can't tell what it is.
    pub fn all_memory(&self, test: impl Fn(u64, u64) -> bool) -> bool {
        let mut good = true;
        for i in 0..self.nargs {
            let p = self.args[i];
            if p == 0 {
                continue;
            }
            let count = |n: u8| (self.args[n as usize] as u32 as u64).min(MAX_IOV);
            let messages = match self.mem[i] {
                Mem::None => continue,
                Mem::Path => {
                    let len = guard::string_len(p, MAX_PATH);
                    good = good && len.is_some_and(|len| test(p, len as u64 + 1));
                    continue;
                }
                Mem::In(s) => {
                    good = good && test(p, self.size(s, 0) as u64);
                    continue;
                }
                Mem::Out { cap, .. }
                | Mem::InOut { cap, .. }
                | Mem::OutAlways(cap)
                | Mem::InOutAlways(cap) => {
                    good = good && test(p, self.size(cap, 0) as u64);
                    continue;
                }
                Mem::IovecIn(n) | Mem::IovecOut(n) => {
                    let count = self.args[n as usize];
                    good = good && count <= MAX_IOV && iovecs_pass(p, count, &test);
                    continue;
                }
                Mem::MsghdrIn | Mem::MsghdrOut => (1, 0),
                Mem::MmsghdrIn(n) | Mem::MmsghdrOut(n) => (count(n), MMSG_SIZE),
                _ => return false,
            };
            for k in 0..messages.0 {
                good = good && message_passes(p + k * messages.1, &test);
            }
        }
        good
    }

    /// Bytes that the kernel reads.
    pub fn input_len(&self) -> usize {
        let mut n: usize = 0;
        self.inputs(|_, len| n = n.saturating_add(len));
        n
    }

    /// Hash of everything the kernel reads; 0 for a call without inputs.
    pub fn input_hash(&self) -> u64 {
        let mut h = 0;
        self.inputs(|p, n| {
            // SAFETY: guarded.
            h = guard::guarded(|| unsafe { hash::input(h, p, n) }).unwrap_or(h ^ FAULTED_INPUT);
        });
        h
    }

    /// What people want to see of the inputs: (tag, address, bytes), at most two.
    pub fn previews(&self) -> [(u32, u64, usize); 2] {
        use reprise_abi::event::Tag;
        let mut out = [(0, 0, 0); 2];
        let mut n = 0;
        for i in 0..self.nargs {
            let p = self.args[i];
            if p == 0 || n == 2 {
                continue;
            }
            match self.mem[i] {
                Mem::Path => {
                    if let Some(len) = guard::string_len(p, MAX_PATH) {
                        out[n] = (Tag::Path as u32, p, len);
                        n += 1;
                    }
                }
                // Where nothing can be read the section is noise; the result, EFAULT, says so.
                Mem::In(s) if has_preview(self.nr) => {
                    if let Some(len) = preview_len(self.nr, self.size(s, 0)) {
                        out[n] = (Tag::Input as u32, p, len);
                        n += 1;
                    }
                }
                _ => {}
            }
        }
        out
    }

    /// Calls `f` with everything the kernel wrote. `result` is the call's result.
    pub fn outputs(&self, result: i64, mut f: impl FnMut(Output)) {
        let failed = crate::machine::sys::is_error(result);
        let torn = writes_before_failing(self.nr, result);
        for i in 0..self.nargs {
            let (address, local) = (self.args[i], self.local[i]);
            if address == 0 {
                continue;
            }
            let mut out = |address, local, len| {
                if len > 0 {
                    f(Output {
                        address,
                        local,
                        len,
                    });
                }
            };
            match self.mem[i] {
                // An impossible length is refused before anything is written.
                Mem::OutAlways(n) | Mem::InOutAlways(n) if failed && result != EINTR => {
                    out(address, local, there(address, local, self.size(n, 0)));
                }
                Mem::OutAlways(n) | Mem::InOutAlways(n) => out(address, local, self.size(n, 0)),
                // One of several pointers was bad: the others may have been written before that was noticed.
                Mem::Out { cap, .. } | Mem::InOut { cap, .. } if torn => {
                    out(address, local, there(address, local, self.size(cap, 0)));
                }
                Mem::IovecOut(n) if torn => {
                    all_parts(address, local, self.args[n as usize], &mut out)
                }
                Mem::MsghdrOut if torn => message_outputs(address, local, None, &mut out),
                Mem::MmsghdrOut(n) if torn => {
                    for k in 0..(self.args[n as usize] as u32 as u64).min(MAX_IOV) {
                        let at = k * MMSG_SIZE;
                        message_outputs(address + at, local + at, None, &mut out);
                    }
                }
                _ if failed => {}
                Mem::Out { cap, used } | Mem::InOut { cap, used } => {
                    let mut len = self.used(cap, used, result);
                    let asked = self.size(cap, 0);
                    if address == local
                        && zeroes_the_rest(self.nr, self.args[0], local, asked as u64, result)
                    {
                        len = asked;
                    }
                    if address == local && may_be_torn(address, len, asked) {
                        len = there(address, local, asked);
                    }
                    out(address, local, len);
                }
                Mem::IovecOut(n) => {
                    let count = self.args[n as usize];
                    let mut bytes = result as usize;
                    let (mut asked, mut first) = (0u64, 0);
                    if address == local && bytes % SECTOR == 0 {
                        iovecs(address, count, usize::MAX, &mut |at, len| {
                            first = if asked == 0 { at } else { first };
                            asked += len as u64;
                        });
                        if zeroes_the_rest(self.nr, self.args[0], first, asked, result) {
                            bytes = asked as usize;
                        }
                    }
                    if list_may_be_torn(address, local, count, bytes) {
                        all_parts(address, local, count, &mut out);
                    } else {
                        iovec_pairs(address, local, count, bytes, &mut out);
                    }
                }
                Mem::MsghdrOut => message_outputs(address, local, Some(result as usize), &mut out),
                Mem::MmsghdrOut(n) => {
                    let count = (self.args[n as usize] as u32 as u64).min(MAX_IOV);
                    // The one after the last that is counted may have failed in its midst.
                    if (result as u64) < count {
                        let at = result as u64 * MMSG_SIZE;
                        if !message_passes(address + at, &crate::memory::is_writable) {
                            message_outputs(address + at, local + at, None, &mut out);
                        }
                    }
                    for k in 0..result as u64 {
                        let at = k * MMSG_SIZE;
                        let len = guard::read::<u32>(local + at + MMSG_LEN).unwrap_or(0);
                        message_outputs(address + at, local + at, Some(len as usize), &mut out);
                        out(address + at + MMSG_LEN, local + at + MMSG_LEN, 4);
                    }
                }
                Mem::MmsghdrIn(_) => {
                    for k in 0..result as u64 {
                        let at = k * MMSG_SIZE + MMSG_LEN;
                        out(address + at, local + at, 4);
                    }
                }
                _ => {}
            }
        }
    }

    /// The same, to be gone through several times.
    pub fn outputs_once(&self, result: i64) -> Outputs {
        let none = Output {
            address: 0,
            local: 0,
            len: 0,
        };
        let mut all = Outputs {
            first: [none; FEW],
            count: 0,
        };
        self.outputs(result, |o| {
            if let Some(place) = all.first.get_mut(all.count) {
                *place = o;
            }
            all.count += 1;
        });
        all
    }

    /// Can the kernel write to the program's memory by this call?
    pub fn writes_memory(&self) -> bool {
        use Mem::{In, IovecIn, MsghdrIn, None, Path, Strings};
        let only_read =
            |m: &Mem| matches!(m, None | Path | Strings | In(_) | IovecIn(_) | MsghdrIn);
        !self.mem[..self.nargs].iter().all(only_read)
    }

    /// Replaces the program's buffers by scratch memory. On failure the errno that the program shall see.
    ///
    /// What can't be read, or not be written to its end, stays as it is: the kernel then finds the fault at its own time, after
    /// whatever it checks before, and writes as much as it can.
    pub fn localise(&mut self, scratch: &mut Scratch) -> Result<(), i64> {
        for i in 0..self.nargs {
            if self.args[i] != 0 {
                match self.localise_argument(i, scratch) {
                    Ok(local) => self.local[i] = local,
                    Err(EFAULT) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    fn localise_argument(&mut self, i: usize, scratch: &mut Scratch) -> Result<u64, i64> {
        let p = self.args[i];
        let messages = |n: u8| (self.args[n as usize] as u32 as u64).min(MAX_IOV);
        match self.mem[i] {
            Mem::Path => {
                let len = guard::string_len(p, MAX_PATH).ok_or(EFAULT)? + 1;
                scratch.copy_in(p, len.min(MAX_PATH))
            }
            // More than there is scratch memory for is written in part.
            Mem::In(Size::Arg(n))
                if writes_part(self.nr) && room(self.size(Size::Arg(n), 0)) > MAX_SCRATCH =>
            {
                let (a, len) = scratch.copy_in_most(p, self.size(Size::Arg(n), 0))?;
                self.local[n as usize] = len as u64;
                Ok(a)
            }
            Mem::In(s) => scratch.copy_in(p, self.size(s, 0)),
            Mem::InOut { cap, .. } | Mem::InOutAlways(cap) => {
                let len = self.size(cap, 0);
                writable(p, len)?;
                scratch.copy_in(p, len)
            }
            // Small outputs may be written in part: they begin as what the program has there.
            Mem::OutAlways(size) => {
                let len = self.size(size, 0);
                writable(p, len)?;
                scratch.copy_in(p, len)
            }
            Mem::Out { cap, used } => {
                let want = self.size(cap, 0);
                writable(p, want)?;
                // As do those whose bytes no result counts, and all where the call can fail at a bad pointer after some were written.
                if want <= 512 || used == cap || !self.all_memory(crate::memory::is_mapped) {
                    return scratch.copy_in(p, want);
                }
                match (scratch.take(want, p), cap) {
                    (Some(a), _) => Ok(a),
                    // A plain buffer may be filled in part: the program sees a short read.
                    (None, Size::Arg(n)) => {
                        let (a, len) = scratch.take_most(want, p).ok_or(ENOMEM)?;
                        self.local[n as usize] = len as u64;
                        Ok(a)
                    }
                    _ => Err(ENOMEM),
                }
            }
            Mem::IovecIn(n) => localise_iovecs(p, self.args[n as usize], scratch, true),
            Mem::IovecOut(n) => localise_iovecs(p, self.args[n as usize], scratch, false),
            Mem::MsghdrIn => localise_messages(p, 1, 56, scratch, true),
            Mem::MsghdrOut => localise_messages(p, 1, 56, scratch, false),
            Mem::MmsghdrIn(n) => localise_messages(p, messages(n), 64, scratch, true),
            Mem::MmsghdrOut(n) => localise_messages(p, messages(n), 64, scratch, false),
            // It may be the kernel's id of a process, or the length that there is room for.
            _ => Ok(self.local[i]),
        }
    }

    /// Makes a single large buffer smaller, so that what the kernel writes fits into an event.
    pub fn shorten(&mut self) {
        for (mem, at) in self.mem[..self.nargs].iter().zip(self.args) {
            if let Mem::Out {
                cap: Size::Arg(n), ..
            } = mem
            {
                let len = &mut self.local[*n as usize];
                // What reaches beyond all addresses is for the kernel to refuse.
                if (MAX_DIRECT..=USER_END.saturating_sub(at)).contains(len) {
                    *len = MAX_DIRECT;
                }
            }
        }
    }

    /// Bytes of scratch memory that the call needs.
    pub fn scratch_needed(&self) -> usize {
        let mut n: usize = 0;
        self.inputs(|_, len| n = n.saturating_add(room(len)));
        for i in 0..self.nargs {
            if self.args[i] == 0 {
                continue;
            }
            let p = self.args[i];
            n = n.saturating_add(match self.mem[i] {
                Mem::Out { cap, .. }
                | Mem::InOut { cap, .. }
                | Mem::OutAlways(cap)
                | Mem::InOutAlways(cap) => room(self.size(cap, 0)),
                Mem::IovecOut(k) | Mem::IovecIn(k) => {
                    let mut sum = room((self.args[k as usize].min(MAX_IOV) * 16) as usize);
                    iovecs(p, self.args[k as usize], usize::MAX, &mut |_, len| {
                        sum = sum.saturating_add(room(len))
                    });
                    sum
                }
                Mem::MsghdrOut => message_capacity(p),
                Mem::MsghdrIn => 64 + room(MAX_IOV as usize * 16),
                Mem::MmsghdrIn(k) | Mem::MmsghdrOut(k) => {
                    let mut sum: usize = 0;
                    for k in 0..(self.args[k as usize] as u32 as u64).min(MAX_IOV) {
                        sum = sum.saturating_add(message_capacity(p + k * MMSG_SIZE));
                    }
                    sum
                }
                _ => 64,
            });
        }
        n
    }
}

/// The argument behind which the length of this memory is found, if that is where it is.
fn length_pointer(m: Mem) -> Option<u8> {
    let (Mem::In(size)
    | Mem::OutAlways(size)
    | Mem::InOutAlways(size)
    | Mem::Out { cap: size, .. }
    | Mem::InOut { cap: size, .. }) = m
    else {
        return None;
    };
    match size {
        Size::Deref32(n) | Size::Deref32Plus(n, _) | Size::Chosen { at: n, .. } => Some(n),
        _ => None,
    }
}

/// Can the kernel have written to the call's buffers when it failed like this? At a bad pointer the good ones before it are written; a
/// message is received before a wrong length of its sender's name is noticed.
pub fn writes_before_failing(number: u64, result: i64) -> bool {
    result == EFAULT
        || (result == EINVAL && matches!(syscalls::effect(number), Effect::Receives(_)))
}

/// May the kernel have written more of a buffer than the `len` bytes that it tells of? Where a buffer of `asked` bytes can't be written to
/// its end, a fault may have come in the middle of what is not counted then: an entry of a directory, a piece of a pipe.
#[inline]
pub fn may_be_torn(address: u64, len: usize, asked: usize) -> bool {
    const PAGE: u64 = reprise_abi::layout::PAGE;
    let last = address.saturating_add(asked as u64);
    // What ends in the page in which it begins can be written, if any of it was. (Where it ends by the result may not be: what fills up
    // the last entry of a directory is counted, not written.)
    len < asked
        && (len == 0 || address / PAGE != (last - 1) / PAGE)
        && !crate::memory::is_writable(address, asked as u64)
}

/// How much of a buffer can have been written before a fault: all of what is ours, and what the program can write.
fn there(address: u64, local: u64, len: usize) -> usize {
    let most = len.min(MAX_FAULTED);
    match address == local {
        true => crate::memory::writable_part(address, most as u64) as usize,
        false => most,
    }
}

/// As [`may_be_torn`], of an iovec array and its local twin.
fn list_may_be_torn(array: u64, local: u64, count: u64, bytes: usize) -> bool {
    let (mut asked, mut torn) = (0usize, false);
    iovec_pairs(array, local, count, usize::MAX, &mut |at, to, len| {
        asked = asked.saturating_add(len);
        torn |= at == to && !crate::memory::is_writable(at, len as u64);
    });
    torn && bytes < asked
}

/// Calls `out` with all that can have been written of an iovec array's parts.
fn all_parts(array: u64, local: u64, count: u64, out: &mut impl FnMut(u64, u64, usize)) {
    iovec_pairs(array, local, count, usize::MAX, &mut |at, from, len| {
        out(at, from, there(at, from, len))
    });
}

/// Does this call write a part of its bytes when it can't write all?
fn writes_part(number: u64) -> bool {
    syscalls::lookup(number).is_some_and(Syscall::writes_one_buffer)
}

/// May the kernel have written more of the buffer at `address` than the result says? Reading without a cache (O_DIRECT) up to the end
/// of a file fills what was asked for beyond it with zeros.
pub fn zeroes_the_rest(number: u64, fd: u64, address: u64, asked: u64, result: i64) -> bool {
    const F_GETFL: u64 = 3;
    const O_DIRECT: i64 = 0o40000;
    let sector = SECTOR as u64;
    result > 0
        && (result as u64) < asked
        && result as u64 % sector == 0
        && asked >= sector
        && address % sector == 0
        && reprise_abi::inputs::reads(number)
        && matches!(crate::machine::sys::fcntl(fd, F_GETFL), flags if flags > 0 && flags & O_DIRECT != 0)
}

/// Does the description alone say everything: no sub-table, no length behind a pointer? Found out once for each call.
#[inline]
pub fn is_plain(d: &'static Syscall) -> bool {
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
    static KNOWN: [AtomicU8; syscalls::LIMIT] = [const { AtomicU8::new(0) }; syscalls::LIMIT];
    let k = &KNOWN[d.nr as usize];
    match k.load(Relaxed) {
        1 => true,
        2 => false,
        _ => {
            let plain = !syscalls::has_socket_option(d)
                && d.args.iter().all(|a| match a.mem {
                    Mem::Ioctl(_)
                    | Mem::Fcntl(_)
                    | Mem::Prctl
                    | Mem::Command(..)
                    | Mem::Unknown => false,
                    m => length_pointer(m).is_none(),
                });
            k.store(if plain { 1 } else { 2 }, Relaxed);
            plain
        }
    }
}

/// Calls `f` with the parts of an iovec array, up to `limit` bytes in all.
pub(crate) fn iovecs(array: u64, count: u64, limit: usize, f: &mut impl FnMut(u64, usize)) {
    let mut left = limit;
    for k in 0..count.min(MAX_IOV) {
        let Some([base, len]) = guard::read::<[u64; 2]>(array + k * 16) else {
            return;
        };
        let n = (len.min(MAX_BUFFER) as usize).min(left);
        if n > 0 {
            f(base, n);
        }
        left -= n;
    }
}

/// Calls `out` with the parts of an iovec array and of its local twin that hold the first `bytes` bytes.
fn iovec_pairs(
    array: u64,
    local: u64,
    count: u64,
    bytes: usize,
    out: &mut impl FnMut(u64, u64, usize),
) {
    let mut left = bytes;
    for k in 0..count.min(MAX_IOV) {
        let (Some([base, _]), Some([lbase, len])) = (
            guard::read::<[u64; 2]>(array + k * 16),
            guard::read::<[u64; 2]>(local + k * 16),
        ) else {
            return;
        };
        let n = (len.min(MAX_BUFFER) as usize).min(left);
        out(base, lbase, n);
        left -= n;
    }
}

fn message_inputs(p: u64, f: &mut impl FnMut(u64, usize)) {
    let Some(m) = guard::read::<Msghdr>(p) else {
        return;
    };
    if m.name != 0 {
        f(m.name, (m.name_len as usize).min(128));
    }
    iovecs(m.iov, m.iov_len, usize::MAX, f);
    if m.control != 0 {
        f(m.control, m.control_len.min(65536) as usize);
    }
}

fn message_capacity(p: u64) -> usize {
    let Some(m) = guard::read::<Msghdr>(p) else {
        return 64;
    };
    let mut n =
        192 + room(m.iov_len.min(MAX_IOV) as usize * 16) + room(m.control_len.min(65536) as usize);
    iovecs(m.iov, m.iov_len, usize::MAX, &mut |_, len| {
        n = n.saturating_add(room(len))
    });
    n
}

/// Calls `out` with what was written of a message of so many bytes, or with all that can have been written.
fn message_outputs(
    address: u64,
    local: u64,
    bytes: Option<usize>,
    out: &mut impl FnMut(u64, u64, usize),
) {
    let (Some(m), Some(l)) = (guard::read::<Msghdr>(address), guard::read::<Msghdr>(local)) else {
        return;
    };
    if m.name != 0 {
        // The program's own msghdr still says how much room there was, unless it is the same memory.
        let room = if address == local { 128 } else { m.name_len };
        out(m.name, l.name, l.name_len.min(room).min(128) as usize);
    }
    match bytes {
        Some(n) if !list_may_be_torn(m.iov, l.iov, m.iov_len, n) => {
            iovec_pairs(m.iov, l.iov, m.iov_len, n, out)
        }
        _ => all_parts(m.iov, l.iov, m.iov_len, out),
    }
    if m.control != 0 {
        out(m.control, l.control, l.control_len.min(65536) as usize);
    }
    out(address + 8, local + 8, 4);
    out(address + 40, local + 40, 12);
}

/// Do an iovec array and all its parts pass?
fn iovecs_pass(array: u64, count: u64, test: &impl Fn(u64, u64) -> bool) -> bool {
    let part = |k: u64| match guard::read::<[u64; 2]>(array + k * 16) {
        Some([base, len]) => test(base, len.min(MAX_BUFFER)),
        None => false,
    };
    test(array, count * 16) && (0..count).all(part)
}

/// Does a msghdr, with all it points to, pass?
fn message_passes(p: u64, test: &impl Fn(u64, u64) -> bool) -> bool {
    let Some(m) = guard::read::<Msghdr>(p) else {
        return false;
    };
    test(p, MMSG_SIZE)
        && (m.name == 0 || test(m.name, m.name_len as u64))
        && (m.control == 0 || test(m.control, m.control_len))
        && m.iov_len <= MAX_IOV
        && iovecs_pass(m.iov, m.iov_len, test)
}

/// Is this memory that the kernel can write for the program?
fn writable(at: u64, len: usize) -> Result<(), i64> {
    if crate::memory::is_writable(at, len as u64) {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// One buffer of a list: a local one, or the program's own where it is no good.
fn localise_part(
    at: u64,
    want: usize,
    scratch: &mut Scratch,
    copy: bool,
) -> Result<(u64, usize), i64> {
    if copy {
        return match scratch.copy_in(at, want) {
            Ok(local) => Ok((local, want)),
            Err(EFAULT) => Ok((at, want)),
            Err(e) => Err(e),
        };
    }
    if writable(at, want).is_err() {
        return Ok((at, want));
    }
    Ok(scratch.take_most(want, at).unwrap_or_default())
}

fn localise_iovecs(array: u64, count: u64, scratch: &mut Scratch, copy: bool) -> Result<u64, i64> {
    if count > MAX_IOV {
        return Ok(array);
    }
    let local = scratch.copy_in(array, count as usize * 16)?;
    for k in 0..count {
        let Some([base, len]) = guard::read::<[u64; 2]>(local + k * 16) else {
            return Err(EFAULT);
        };
        if (len as i64) < 0 {
            // The kernel refuses it.
            continue;
        }
        let want = len.min(MAX_BUFFER) as usize;
        let (at, len) = localise_part(base, want, scratch, copy)?;
        guard::write(local + k * 16, &[at, len as u64]);
    }
    Ok(local)
}

fn localise_messages(
    p: u64,
    count: u64,
    size: u64,
    scratch: &mut Scratch,
    copy: bool,
) -> Result<u64, i64> {
    let local = scratch.copy_in(p, (count * size) as usize)?;
    for k in 0..count {
        let at = local + k * size;
        let Some(mut m) = guard::read::<Msghdr>(at) else {
            return Err(EFAULT);
        };
        if m.name != 0 {
            let len = (m.name_len as usize).min(128);
            if copy {
                m.name = localise_part(m.name, len, scratch, true)?.0;
            } else if writable(m.name, len).is_ok() {
                m.name = scratch.take(128, m.name).ok_or(ENOMEM)?;
            }
        }
        if m.iov_len <= MAX_IOV {
            match localise_iovecs(m.iov, m.iov_len, scratch, copy) {
                Ok(iov) => m.iov = iov,
                Err(EFAULT) => {}
                Err(e) => return Err(e),
            }
        }
        if m.control != 0 {
            let len = m.control_len.min(65536) as usize;
            if copy {
                m.control = localise_part(m.control, len, scratch, true)?.0;
            } else if writable(m.control, len).is_ok() {
                m.control = scratch.take(len, m.control).ok_or(ENOMEM)?;
            }
        }
        guard::write(at, &m);
    }
    Ok(local)
}
