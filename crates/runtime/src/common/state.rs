//! Hashes of the program's whole state at events: what makes "the same" a measured fact (DESIGN 4).

use super::report::{diverge, Actual};
use crate::log::events;
use crate::log::ring;
use crate::machine::frame::frame_hash;
use crate::machine::sys;
use crate::memory;
use crate::thread::{session, Block, Frame};
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use reprise_abi::event::{EventHeader, Kind};
use reprise_abi::session::divergence_kind;

/// Automatic hashing looks at the clock only every so many events.
const LOOK_EVERY: u64 = 4096;
/// A hash may cost this part of the time since the one before it.
const COST_FACTOR: i64 = 200;
/// How fast memory is hashed, about.
const BYTES_PER_NS: i64 = 8;

static SINCE: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicI64 = AtomicI64::new(0);
static COST: AtomicI64 = AtomicI64::new(0);

/// Record: hashes the state if it is time.
pub fn maybe_hash(t: &mut Block, frame: &Frame) {
    let n = SINCE.load(Relaxed) + 1;
    SINCE.store(n, Relaxed);
    let every = session().checksum_every;
    let due = match every {
        0 => n % LOOK_EVERY == 0 && affordable(),
        e => n >= e,
    };
    if due {
        record(t, frame);
    }
}

/// Record: hashes the state before a thread or the process ends, unless that was done a moment ago and costs much.
pub fn hash_at_exit(t: &mut Block, frame: &Frame) {
    if session().live_threads.load(Relaxed) == 1 || affordable() || session().checksum_every != 0 {
        record(t, frame);
    }
}

/// Is a hash worth its time now?
pub fn affordable() -> bool {
    let now = sys::monotonic().ns();
    if LAST.load(Relaxed) == 0 {
        LAST.store(now, Relaxed);
    }
    let cost = match COST.load(Relaxed) {
        // Not known before the first one: what could be there says what it may come to.
        0 => memory::writable_bytes() as i64 / BYTES_PER_NS,
        known => known,
    };
    (now - LAST.load(Relaxed)) / COST_FACTOR > cost
}

fn record(t: &mut Block, frame: &Frame) {
    record_with(t, frame, 0, memory::hash_all);
}

/// Record: logs the state of the thread, and of memory as `hash` says. `detail` tells one kind of place from others.
pub fn record_with(
    t: &mut Block,
    frame: &Frame,
    detail: u32,
    hash: impl FnOnce() -> memory::StateHash,
) {
    use reprise_abi::event::{section_len, Tag};
    let begun = sys::monotonic().ns();
    let h = hash();
    let frame_len = core::mem::size_of::<Frame>();
    let sections = section_len(frame_len) + section_len(16 * h.len);
    let head = EventHeader {
        value: h.sum as i64,
        detail,
        ..events::header(Kind::Hash, t.slot, 3, sections)
    };
    let mut w = ring::Writer::begin(&head);
    w.put_words(&[h.bytes, frame_hash(frame), t.fs_base]);
    w.put_section(
        Tag::State as u32,
        0,
        frame as *const Frame as u64,
        frame_len,
    );
    w.put_section(Tag::State as u32, 1, h.regions.as_ptr() as u64, 16 * h.len);
    w.finish();
    let now = sys::monotonic().ns();
    COST.store(now - begun, Relaxed);
    LAST.store(now, Relaxed);
    SINCE.store(0, Relaxed);
    count(h.bytes);
}

fn count(bytes: u64) {
    let c = &session().counters;
    c.hashed.fetch_add(bytes, Relaxed);
    c.hashes.fetch_add(1, Relaxed);
}

/// Replay: the next event is a hash; computes it and compares.
pub fn check(t: &mut Block, frame: &Frame, header: &EventHeader) {
    check_with(t, frame, header, |_| memory::hash_all());
}

/// As [`check`]; `hash` computes that of memory, given how many bytes were hashed then.
pub fn check_with(
    t: &mut Block,
    frame: &Frame,
    header: &EventHeader,
    hash: impl FnOnce(u64) -> memory::StateHash,
) {
    let mut r = ring::Reader::begin(*header);
    let args = r.args();
    // A program may write to its own code.
    let _code = crate::log::debugger::CodeAsRecorded::begin();
    if crate::common::rebuilt::on() {
        return r.finish();
    }
    let h = hash(args[0]);
    let mut mine = [h.bytes, frame_hash(frame), t.fs_base, 0, 0, 0, 0, 0];
    if h.sum as i64 != header.value || args[1..3] != mine[1..3] {
        locate(&mut r, frame, &h, &mut mine);
        diverge(
            t,
            divergence_kind::STATE,
            Some(header),
            &Actual {
                kind: Kind::Hash,
                detail: 0,
                value: h.sum as i64,
                input_hash: 0,
                args: &mine,
            },
        );
    }
    count(h.bytes);
    r.finish();
}

/// Finds the first register or region that differs: into words 3 to 6: what (1 register, 2 region), which, recorded, actual.
fn locate(r: &mut ring::Reader, frame: &Frame, h: &memory::StateHash, out: &mut [u64; 8]) {
    const WORDS: usize = 18;
    // SAFETY: a frame is 18 plain words.
    let mine = unsafe { &*(frame as *const Frame as *const [u64; WORDS]) };
    while let Some((kind, len, _)) = r.section() {
        for i in 0..len / 8 {
            let recorded = r.word();
            if out[3] != 0 {
                continue;
            }
            if let Some(now) = mine.get(i).filter(|now| kind == 0 && **now != recorded) {
                out[3..7].copy_from_slice(&[1, i as u64, recorded, *now]);
            }
            let region = h.regions.get(i / 2).filter(|_| i / 2 < h.len);
            if let Some(region) = region.filter(|m| kind == 1 && i % 2 == 1 && m[1] != recorded) {
                out[3..7].copy_from_slice(&[2, region[0], recorded, region[1]]);
            }
        }
    }
}
