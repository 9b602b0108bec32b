//! Writing events: what the recording half of `serial` says, byte by byte.

use crate::log::inputs::Referred;
use crate::log::ring::Writer;
use crate::machine::guard;
use crate::memory::capture::Call;
use crate::memory::of_file::Note;
use crate::thread::{slot, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::{section_len, EventHeader, Kind, Tag, FILE_NUMBER_SHIFT, HEADER_LEN};

/// A header with its length filled in for `nargs` words and `sections` bytes.
pub fn header(kind: Kind, slot: u32, nargs: usize, sections: usize) -> EventHeader {
    EventHeader {
        len: (HEADER_LEN + 8 * nargs + sections) as u32,
        kind: kind as u8,
        nargs: nargs as u8,
        slot: slot as u16,
        ..Default::default()
    }
}

/// Writes an event of words only.
pub fn plain(kind: Kind, slot: u32, detail: u32, value: i64, args: &[u64]) {
    if kind == Kind::Patch && crate::thread::in_force::has_private_views() {
        // A replay of `det` finds by itself what is to be rewritten.
        return;
    }
    let mut w = Writer::begin(&EventHeader {
        detail,
        value,
        ..header(kind, slot, args.len(), 0)
    });
    w.put_words(args);
    w.finish();
}

/// Writes an event with one section.
pub fn with_section(
    kind: Kind,
    slot: u32,
    detail: u32,
    value: i64,
    args: &[u64],
    tag: Tag,
    bytes: &[u8],
) {
    let h = EventHeader {
        detail,
        value,
        ..header(kind, slot, args.len(), section_len(bytes.len()))
    };
    let mut w = Writer::begin(&h);
    w.put_words(args);
    w.put_section(tag as u32, 0, bytes.as_ptr() as u64, bytes.len());
    w.finish();
}

/// Begins a call's event; its arguments are in all but [`Kind::Exit`], whose [`Kind::Enter`] has them.
fn begin_call(
    t: &Block,
    kind: Kind,
    c: &Call,
    result: i64,
    flags: u32,
    input_hash: u64,
    sections: usize,
) -> Writer {
    let nargs = if kind == Kind::Exit { 0 } else { c.nargs };
    let stamps = t.logging.stamps();
    let h = EventHeader {
        detail: c.nr as u32,
        flags,
        value: result,
        input_hash,
        ..header(kind, t.slot, nargs + stamps.len(), sections)
    };
    let mut w = Writer::begin(&h);
    w.put_words(&c.args[..nargs]);
    w.put_words(stamps);
    w
}

/// Writes a call's event: [`Kind::Syscall`] or [`Kind::Exit`], with everything the kernel wrote.
pub fn call(t: &Block, kind: Kind, c: &Call, result: i64, flags: u32, input_hash: u64) {
    call_noted(t, kind, c, result, flags, input_hash, None);
}

/// As [`call`], with what the call did to a mapped file.
pub fn call_noted(
    t: &Block,
    kind: Kind,
    c: &Call,
    result: i64,
    flags: u32,
    input_hash: u64,
    note: Option<&Note>,
) {
    let previews = c.previews();
    let mut sections = 0;
    for (tag, _, len) in previews {
        if tag != 0 {
            sections += section_len(len);
        }
    }
    let outputs = c.outputs_once(result);
    let (mut bytes, mut parts, mut in_bytes) = (0, 0, 0);
    outputs.each(c, result, |o| {
        bytes += o.len;
        parts += 1;
        in_bytes += section_len(o.len);
    });
    let mut referred = Referred::of(t, result, bytes);
    sections += match &referred {
        Some(_) => parts * section_len(Referred::LEN),
        None => in_bytes,
    };
    let mut flags = flags;
    if let Some(n) = note {
        sections += section_len(n.section_bytes());
        flags |= n.number << FILE_NUMBER_SHIFT;
    }
    sections += t.noted().sections_len(c, result);
    let mut w = begin_call(t, kind, c, result, flags, input_hash, sections);
    for (tag, address, len) in previews {
        if tag != 0 {
            w.put_section(tag, address, address, len);
        }
    }
    outputs.each(c, result, |o| match &mut referred {
        Some(referred) => {
            let words = referred.next(o.local, o.len);
            let (tag, from) = (Tag::Reference as u32, words.as_ptr() as u64);
            w.put_section(tag, o.address, from, Referred::LEN);
        }
        None => w.put_section(Tag::Output as u32, o.address, o.local, o.len),
    });
    if let Some(n) = note {
        w.put_section(
            n.tag as u32,
            n.address,
            n.hash.as_ptr() as u64,
            n.section_bytes(),
        );
    }
    t.noted().each(c, result, |tag, address, from, len| {
        w.put_section(tag as u32, address, from, len)
    });
    w.finish();
    t.noted().is_logged();
}

/// Writes a call's event whose outputs are given.
pub fn call_with(
    t: &Block,
    c: &Call,
    result: i64,
    flags: u32,
    input_hash: u64,
    outputs: &[(Tag, u64, u64, usize)],
) {
    ended_with(t, Kind::Syscall, c, result, flags, input_hash, outputs);
}

/// As [`call_with`], as an event of either kind that ends a call.
pub fn ended_with(
    t: &Block,
    kind: Kind,
    c: &Call,
    result: i64,
    flags: u32,
    input_hash: u64,
    outputs: &[(Tag, u64, u64, usize)],
) {
    let sections = outputs.iter().map(|o| section_len(o.3)).sum();
    let mut w = begin_call(t, kind, c, result, flags, input_hash, sections);
    for (tag, address, from, len) in outputs {
        w.put_section(*tag as u32, *address, *from, *len);
    }
    w.finish();
}

/// Writes a call whose outputs are whole pages, found by comparison.
pub fn tracked_call(
    t: &Block,
    kind: Kind,
    c: &Call,
    result: i64,
    flags: u32,
    input_hash: u64,
    pages: &[[u64; 2]],
) {
    const PAGE: usize = reprise_abi::layout::PAGE as usize;
    let sections = pages.len() * section_len(PAGE);
    let mut w = begin_call(t, kind, c, result, flags, input_hash, sections);
    for [page, _] in pages {
        w.put_section(Tag::Output as u32, *page, *page, PAGE);
    }
    w.finish();
}

/// Writes [`Kind::Enter`] of the call that slot `i` has noted.
pub fn enter(i: u32, flags: u32) {
    let s = slot(i);
    let mut args = [0; 6];
    for (a, from) in args.iter_mut().zip(&s.call_args) {
        *a = from.load(Relaxed);
    }
    let n = s.call_nr.load(Relaxed);
    let nargs = reprise_abi::syscalls::lookup(n as u64).map_or(6, |d| d.args.len());
    let h = EventHeader {
        detail: n,
        flags,
        input_hash: s.call_input_hash.load(Relaxed),
        ..header(Kind::Enter, i, nargs, 0)
    };
    let mut w = Writer::begin(&h);
    w.put_words(&args[..nargs]);
    w.finish();
}

/// Writes [`Kind::ThreadExit`], with the words of futexes that waiters inherited.
pub fn thread_exit(slot: u32, last: bool, status: u64, inherited: &[u64]) {
    let sections = inherited.len() * section_len(4);
    let h = EventHeader {
        detail: last as u32,
        value: status as i64,
        ..header(Kind::ThreadExit, slot, 0, sections)
    };
    let mut w = Writer::begin(&h);
    for address in inherited {
        w.put_section(Tag::Output as u32, *address, *address, 4);
    }
    w.finish();
}

/// Copies what the kernel wrote into scratch memory to where the program expects it.
pub fn copy_out(c: &Call, result: i64) {
    c.outputs(result, |o| {
        if o.address != o.local {
            // SAFETY: scratch is ours; the program's side is guarded. A page that the program unmapped meanwhile loses
            // the bytes, as it would under the kernel.
            let _ = guard::guarded(|| unsafe { guard::copy(o.address, o.local, o.len) });
        }
    });
}
