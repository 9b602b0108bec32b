//! The memory of libc's streams between [I/O turns](super::io_turns) of one phase, in which nobody commits anything.
//!
//! Who unlocks a stream **publishes** it: an **image** of its memory ([`Stream::pieces`]) is left where all threads see it. Who locks it in the same round takes the image
//! into its own view first, if it hasn't seen that one. Ordinary commits treat these bytes like any others, and whose come last is by chance of the ring; so
//! at the end of the round the images are written to the mirror ([`flush`]), and everybody begins the next phase with what is true. Images of earlier rounds mean
//! nothing.
//!
//! A thread that has a stream's lock for longer than its I/O turn, as by flockfile(3), is the only one that changes the stream; it publishes it at the end of
//! each of its turns, and takes it back in each, since commits of the round may have mixed it with what others had before.
//!
//! Images are changed by the thread whose turn it is, and in a phase by the one that has its lead.

use super::io_turns;
use super::options;
use super::stdio::{self, Piece, Stream, PIECES};
use super::{token, turns};
use crate::cut::decode::Insn;
use crate::cut::regs::Regs;
use crate::guard::{self, Program};
use crate::isolate::layout::{MIRROR, STREAMS, STREAMS_LEN};
use crate::isolate::{commit, views};
use crate::locked;
use crate::panic;
use crate::sync::cancel;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use reprise_abi::det::{ALONE, ISOLATION};
use reprise_abi::layout::{MAX_SLOTS, PAGE};

/// Bytes of an image with what is known of it.
const STRIDE: u64 = 512 << 10;
/// Bytes of what is known of it.
const HEAD: u64 = 4096;
/// Images, at most: of more streams in one round none are made, and their locks are taken in real turns.
const IMAGES: usize = (STREAMS_LEN / STRIDE) as usize;
/// The opcode of an instruction that changes a word which is what the thread believes.
const CMPXCHG: [u8; 2] = [0x0f, 0xb1];
/// Streams that a thread has locked at a time.
const MAX_HELD: usize = 16;

/// A stream as it was when somebody unlocked it.
#[repr(C)]
struct Image {
    lock: u64,
    /// The round in which it was published.
    round: u32,
    len: u32,
    pieces: [Piece; PIECES],
    /// Who has seen it, by slot.
    seen: [u64; MAX_SLOTS / 64],
}

const _: () = assert!(core::mem::size_of::<Image>() as u64 <= HEAD);

/// The last round in which anything was published.
static PUBLISHED: AtomicU32 = AtomicU32::new(0);

fn image(n: usize) -> &'static mut Image {
    // SAFETY: there is room for each; who may change them is said above.
    unsafe { &mut *((STREAMS + n as u64 * STRIDE) as *mut Image) }
}

impl Image {
    /// The one of the stream that has this lock.
    fn find(lock: u64) -> Option<&'static mut Image> {
        (0..IMAGES).map(image).find(|i| i.lock == lock)
    }

    /// As [`Image::find`]; or one that means nothing in this round.
    fn for_stream(s: &Stream) -> Option<&'static mut Image> {
        let round = token::round();
        let free = || (0..IMAGES).map(image).find(|i| i.round != round);
        let i = Image::find(s.lock).or_else(free)?;
        if i.lock != s.lock {
            (i.lock, i.round) = (s.lock, 0);
        }
        Some(i)
    }

    /// Calls `f` with each piece, and where its bytes are.
    fn each(&self, mut f: impl FnMut(Piece, u64)) {
        let mut from = core::ptr::from_ref(self) as u64 + HEAD;
        for p in &self.pieces[..self.len as usize] {
            f(*p, from);
            from += p.len;
        }
    }

    /// Takes the stream as the calling thread has it. False: it is too large, or can't be read.
    fn take(&mut self, s: &Stream) -> bool {
        let pieces = s.pieces();
        let mut to = core::ptr::from_ref(self) as u64 + HEAD;
        let end = to + STRIDE - HEAD;
        for (p, kept) in pieces.list().iter().zip(&mut self.pieces) {
            if p.len > end - to {
                return false;
            }
            // SAFETY: there is room; the program's side is guarded.
            if guard::guarded(|| unsafe { guard::copy(to, p.at, p.len as usize) }).is_none() {
                return false;
            }
            *kept = *p;
            to += p.len;
        }
        self.len = pieces.list().len() as u32;
        true
    }

    /// Gives the calling thread the stream as it is here.
    fn give(&self) {
        self.each(|p, from| {
            // SAFETY: the image is ours; the program's side is guarded.
            guard::guarded(|| unsafe { guard::copy(p.at, from, p.len as usize) });
        });
    }

    fn has_seen(&self, slot: u32) -> bool {
        self.seen[slot as usize / 64] >> (slot % 64) & 1 != 0
    }
}

/// Images of this round.
fn published() -> impl Iterator<Item = &'static mut Image> {
    let round = token::round();
    let n = match PUBLISHED.load(Relaxed) == round {
        true => IMAGES,
        false => 0,
    };
    (0..n).map(image).filter(move |i| i.round == round)
}

/// Are there images that the end of the round has to make common?
pub fn wait() -> bool {
    PUBLISHED.load(Relaxed) == token::round()
}

/// Streams whose locks a thread has, and whether its I/O turn lasts as long.
#[derive(Default)]
pub struct Held {
    list: [(Stream, bool); MAX_HELD],
    len: usize,
}

impl Held {
    fn find(&self, lock: u64) -> Option<Stream> {
        let mut all = self.list[..self.len].iter();
        all.find(|(s, _)| s.lock == lock).map(|(s, _)| *s)
    }

    fn add(&mut self, s: Stream, in_io_turn: bool) {
        if self.len == MAX_HELD {
            panic::give_up("det: a thread has locked more than 16 streams");
        }
        self.list[self.len] = (s, in_io_turn);
        self.len += 1;
    }

    fn remove(&mut self, lock: u64) {
        if let Some(n) = self.list[..self.len]
            .iter()
            .position(|(s, _)| s.lock == lock)
        {
            self.list.copy_within(n + 1..self.len, n);
            self.len -= 1;
        }
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Does the I/O turn last for one of them?
    pub fn any_in_io_turn(&self) -> bool {
        self.list[..self.len]
            .iter()
            .any(|(_, in_io_turn)| *in_io_turn)
    }

    /// The I/O turn ends before they are unlocked.
    pub fn outlive_turn(&mut self) {
        self.list[..self.len].iter_mut().for_each(|h| h.1 = false);
    }
}

/// A locked instruction on a stream's lock.
pub struct Deed {
    stream: Stream,
    /// The thread has the lock.
    held: bool,
    /// What the lock was.
    before: u32,
}

/// What a locked instruction of libc's is.
enum What {
    /// The thread's own business.
    Own,
    /// A stream's. Has the thread its lock? Is it a place of synchronisation?
    AtLock(Stream, bool, bool),
}

/// What the locked instruction is, if it is more or less than others, before which the thread is. `f`: its registers, but for rax, which the stub has kept.
fn look(t: &Block, f: &Frame) -> Option<What> {
    let (from, pc) = locked::of_libc(t.locked.resume)?;
    let i = Insn::at(pc, &Program)?;
    let regs = Regs {
        gpr: [
            t.locked.rax,
            f.rcx,
            f.rdx,
            f.rbx,
            f.rsp,
            f.rbp,
            f.rsi,
            f.rdi,
            f.r8,
            f.r9,
            f.r10,
            f.r11,
            f.r12,
            f.r13,
            f.r14,
            f.r15,
        ],
        rip: pc,
        rflags: f.rflags,
        fs_base: t.fs_base,
        gs_base: 0,
    };
    let lock = i.operands(&regs).list().first()?.addr;
    // Around each call that is a cancellation point.
    if cancel::is_own(t, lock) && i.bytes().windows(2).any(|b| b == CMPXCHG) {
        return Some(What::Own);
    }
    let known = t.det.io.held.find(lock);
    let held = known.is_some();
    // Who finds the lock taken exchanges it, and waits.
    let waits = !held && !i.is_locked();
    let stream = known.or_else(|| Stream::of_lock(lock))?;
    let is_real = waits || stdio::is_asked_for(from);
    Some(What::AtLock(stream, held, is_real))
}

/// Before a locked instruction: it has its turn.
pub fn before(t: &mut Block, f: &Frame) {
    let known = match io_turns::on() && !t.det.in_turn {
        true => look(t, f),
        false => None,
    };
    match known {
        Some(What::Own) => {}
        Some(What::AtLock(stream, held, is_real)) => begin(t, stream, held, is_real),
        None => turns::begin(t),
    }
}

fn begin(t: &mut Block, s: Stream, held: bool, is_real: bool) {
    match is_real {
        true => turns::begin(t),
        false => io_turns::begin(t),
    }
    if !t.det.in_turn {
        return;
    }
    if !held {
        load(t, &s);
        if t.det.io.has && (!s.fits() || Image::for_stream(&s).is_none()) {
            turns::in_earnest(t);
            load(t, &s);
        }
    }
    t.det.io.deed = Some(Deed {
        stream: s,
        held,
        before: guard::read(s.lock).unwrap_or(0),
    });
}

/// After a locked instruction, in its turn still.
pub fn after(t: &mut Block) {
    let Some(d) = t.det.io.deed.take() else {
        return;
    };
    let now = guard::read::<u32>(d.stream.lock).unwrap_or(0);
    if d.held {
        publish(t, &d.stream);
        if now == 0 {
            t.det.io.held.remove(d.stream.lock);
        }
    } else if d.before == 0 && now != 0 {
        let in_io_turn = t.det.io.has;
        t.det.io.held.add(d.stream, in_io_turn);
        // Nobody else sees it before that turn ends.
        if !in_io_turn {
            publish(t, &d.stream);
        }
    } else if now != d.before {
        publish_lock(&d.stream, now);
    }
}

/// The thread sees the stream as it was published last in this round.
fn load(t: &Block, s: &Stream) {
    if let Some(i) = published().find(|i| i.lock == s.lock) {
        if !i.has_seen(t.slot) {
            i.seen[t.slot as usize / 64] |= 1 << (t.slot % 64);
            i.give();
        }
    }
}

/// All others are to see the stream as the thread has it.
fn publish(t: &Block, s: &Stream) {
    // Whoever comes back into the ring sees what was committed.
    let alone = options::has(ALONE) && token::is_alone_in_ring(t.slot);
    if !options::has(ISOLATION) || alone && !wait() {
        return;
    }
    let Some(i) = Image::for_stream(s) else {
        return;
    };
    // It is about to be closed: what was its memory is somebody else's soon.
    if !s.is_open() || !i.take(s) {
        i.round = 0;
        return;
    }
    i.round = token::round();
    i.seen = [0; MAX_SLOTS / 64];
    i.seen[t.slot as usize / 64] |= 1 << (t.slot % 64);
    PUBLISHED.store(i.round, Relaxed);
}

/// As [`publish`], of a thread that has not got the lock: of the stream only that is what it says.
fn publish_lock(s: &Stream, value: u32) {
    if let Some(i) = published().find(|i| i.lock == s.lock) {
        i.each(|p, from| {
            if p.at == s.lock {
                // SAFETY: a word of the image.
                unsafe { core::ptr::write_volatile(from as *mut u32, value) };
            }
        });
        i.seen = [0; MAX_SLOTS / 64];
    }
}

/// Before the thread's turn ends: streams that it has locked are seen by all.
pub fn publish_held(t: &mut Block) {
    let mut n = 0;
    while n < t.det.io.held.len {
        let (s, _) = t.det.io.held.list[n];
        publish(t, &s);
        match guard::read::<u32>(s.lock) {
            // It was unlocked by a plain store.
            Some(0) | None => t.det.io.held.remove(s.lock),
            Some(_) => n += 1,
        }
    }
}

/// In a turn: the thread's memory is what was committed, also where that is a stream's. What it has seen of images is gone.
pub fn memory_is_common(t: &mut Block) {
    for i in published() {
        i.seen[t.slot as usize / 64] &= !(1 << (t.slot % 64));
        if t.det.io.held.find(i.lock).is_some() {
            i.give();
        }
    }
}

/// At the end of a round: what was published in it is what all see from now on. Also before the memory is copied for a new process.
pub fn flush() {
    for i in published() {
        i.each(|p, from| {
            let mut done = 0;
            while done < p.len {
                let at = p.at + done;
                let len = (PAGE - at % PAGE).min(p.len - done);
                if let Some(offset) = views::offset_of(at) {
                    // SAFETY: the image and the mirror are ours.
                    unsafe { guard::copy(MIRROR + offset, from + done, len as usize) };
                    commit::has_changed(offset);
                }
                done += len;
            }
        });
    }
}

/// For the report of conflicts: of the page at this address, bytes of streams are libc's business.
pub fn leave_out(page: u64, bytes: &mut [u64; PAGE as usize / 64]) {
    for i in published() {
        i.each(|p, _| {
            for at in p.at.max(page)..(p.at + p.len).min(page + PAGE) {
                let n = (at - page) as usize;
                bytes[n / 64] &= !(1 << (n % 64));
            }
        });
    }
}
