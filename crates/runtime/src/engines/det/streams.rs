//! The memory of libc's streams between [I/O turns](super::io_turns) of one phase, in which nobody commits anything.
//!
//! Who unlocks a stream **publishes** it: an **image** of its memory ([`Stream::pieces`]) is left where all threads see it. Who locks it in the same phase takes the image
//! into its own view first, if it hasn't seen that one. When the phase is over, before the first turn, the images are written to the mirror ([`flush`]), and each
//! thread, before it commits, has its copies of these bytes, and what they are compared with, as they are there ([`take_listed`]): so nobody commits what was there before.
//! From then on streams are memory like any other, until the next phase.
//!
//! What a thread does to a stream without its lock (fopen(3), which makes it; putc_unlocked(3)) after it has published it is published when its phase ends, unless somebody
//! has locked the stream since.
//!
//! Images are changed by the thread whose I/O turn it is; by the one that has the phase's lead; and its own last ones by a thread that runs, while there are no I/O turns.

use super::io_turns;
use super::stdio::{self, Piece, Stream, PIECES};
use super::{token, turns};
use crate::isolate::layout::{MIRROR, STREAMS, STREAMS_LEN};
use crate::isolate::options;
use crate::isolate::{commit, pages, views};
use crate::machine::guard;
use crate::sync::libc::cancel;
use crate::sync::locked;
use crate::thread::panic;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use reprise_abi::det::ISOLATION;
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
    file: u64,
    /// The round in which it was published, ...
    round: u32,
    /// ... by the thread of this slot.
    by: u32,
    len: u64,
    pieces: [Piece; PIECES],
    /// Who has seen it, by slot.
    seen: [u64; MAX_SLOTS / 64],
}

const _: () = assert!(core::mem::size_of::<Image>() as u64 <= HEAD);

/// The last round in which anything was published, ...
static PUBLISHED: AtomicU32 = AtomicU32::new(0);
/// ... and whose images are in the mirror.
static FLUSHED: AtomicU32 = AtomicU32::new(0);

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
        self.len = pieces.list().len() as u64;
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

/// Are there I/O turns in this round still?
fn in_phase() -> bool {
    FLUSHED.load(Relaxed) != token::round()
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
    let (i, from) = locked::next_of_libc(t.saved().resume)?;
    let regs = crate::machine::frame::regs_of(f, t.saved().rax, t.fs_base);
    let lock = i.operands(&regs).list().first()?.addr;
    // Around each call that is a cancellation point.
    if cancel::is_own(t, lock) && i.bytes().windows(2).any(|b| b == CMPXCHG) {
        return Some(What::Own);
    }
    let known = t.det().io.held.find(lock);
    let held = known.is_some();
    // Who finds the lock taken exchanges it, and waits.
    let waits = !held && !i.is_locked();
    let stream = known.or_else(|| Stream::of_lock(lock))?;
    let is_real = waits || stdio::is_asked_for(from);
    Some(What::AtLock(stream, held, is_real))
}

/// Before a locked instruction: it has its turn.
pub fn before(t: &mut Block, f: &Frame) {
    let known = match io_turns::on() && !t.det().in_turn {
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
    if !t.det().in_turn {
        return;
    }
    if is_real {
        turns::in_earnest(t);
    }
    if !held && publishes(t) {
        load(t, &s);
        if !s.fits() || Image::for_stream(&s).is_none() {
            turns::in_earnest(t);
        }
    }
    t.det().io.operation = Some(Deed {
        stream: s,
        held,
        before: guard::read(s.lock).unwrap_or(0),
    });
}

/// After a locked instruction, in its turn still.
pub fn after(t: &mut Block) {
    let Some(d) = t.det().io.operation.take() else {
        return;
    };
    let now = guard::read::<u32>(d.stream.lock).unwrap_or(0);
    if d.held {
        publish(t, &d.stream);
        if now == 0 || now + 1 == d.before {
            t.det().io.held.remove(d.stream.lock);
        }
    } else if d.before == 0 && now != 0 {
        let in_io_turn = t.det().io.has;
        t.det().io.held.add(d.stream, in_io_turn);
        // Nobody else sees it before that turn ends.
        if !in_io_turn {
            publish(t, &d.stream);
        }
    }
}

/// Do others that come later in this phase depend on images for what the thread does now to streams?
fn publishes(t: &Block) -> bool {
    let io_turn = t.det().io.has && !t.det().io.alone;
    options::has(ISOLATION) && (io_turn || t.det().leads)
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
    if !publishes(t) {
        return;
    }
    if let Some(i) = Image::for_stream(s) {
        i.publish(t, s);
        PUBLISHED.store(token::round(), Relaxed);
    }
}

impl Image {
    fn publish(&mut self, t: &Block, s: &Stream) {
        // It is about to be closed: what was its memory is somebody else's soon.
        if !s.is_open() || !self.take(s) {
            self.round = 0;
            return;
        }
        (self.round, self.by, self.file) = (token::round(), t.slot, s.file);
        self.seen = [0; MAX_SLOTS / 64];
        self.seen[t.slot as usize / 64] |= 1 << (t.slot % 64);
    }
}

/// The thread's phase ends: what it has published last, or has locked in its I/O turn, is seen by all as it is now.
pub fn publish_last(t: &mut Block) {
    if !in_phase() {
        return;
    }
    if publishes(t) {
        for n in 0..t.det().io.held.len {
            publish(t, &t.det().io.held.list[n].0);
        }
    }
    for i in published().filter(|i| i.by == t.slot) {
        let (file, lock) = (i.file, i.lock);
        i.publish(t, &Stream { file, lock });
    }
}

/// Calls `f` with each part of the image's pieces that lies on one page: its address, where its bytes are, and how many.
fn each_part(i: &Image, mut f: impl FnMut(u64, u64, u64)) {
    i.each(|p, from| {
        let mut done = 0;
        while done < p.len {
            let at = p.at + done;
            let len = (PAGE - at % PAGE).min(p.len - done);
            f(at, from + done, len);
            done += len;
        }
    });
}

/// In its turn, before it commits: of what was published the thread has changed nothing.
pub fn take_listed(t: &Block) {
    for i in published() {
        each_part(i, |at, from, len| commit::change_base(t, at, from, len));
    }
}

/// Before the first turn of the round: what was published in its phase is what all see from now on.
pub fn flush() {
    let round = token::round();
    if PUBLISHED.load(Relaxed) != round || FLUSHED.swap(round, Relaxed) == round {
        return;
    }
    for i in published() {
        each_part(i, |at, from, len| {
            if let Some(offset) = views::offset_of(at) {
                // SAFETY: the image and the mirror are ours.
                unsafe { guard::copy(MIRROR + offset, from, len as usize) };
            }
        });
    }
    // When all is there: twins are made of it.
    for i in published() {
        each_part(i, |at, _, _| {
            if let Some(offset) = views::offset_of(at) {
                pages::has_changed(offset & !(PAGE - 1), round);
            }
        });
    }
}
