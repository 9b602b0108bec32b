//! See `fuzz_targets/elf.rs`.

use super::bytes::Bytes;
use reprise_code::elf::Module;
use reprise_code::entries;
use reprise_code::functions::Functions;
use reprise_code::memory::Memory;
use reprise_code::reached::{Walk, MAX_WAITING};
use reprise_code::sweep::{self, Way};
use reprise_launch::{orderable, RuntimeImage};
use reprise_replay::symbols;
use reprise_trace::{Content, ImageWriter, Region, Writer};
use std::cell::Cell;

const PAGE: u64 = 4096;
/// Most symbols that are asked for.
const MOST_SYMBOLS: u64 = 1000;
/// Reads that finding a thing in a module has a reason to make.
const MOST_READS: u64 = 100_000;
/// Reads that following its control flow has a reason to make: a few for each symbol that is looked at.
const MOST_FOLLOWED: u64 = 8 << 20;
/// Longest image of which an address is named.
const MOST_NAMED: usize = 1 << 20;

/// Reads `data` as an ELF file, by whom its first byte says.
pub fn elf(data: &[u8]) {
    let mut data = Bytes(data);
    match data.u8() % 4 {
        0 => runtime(data.0),
        1 => module(&mut data),
        2 => program(data.0),
        _ => object(&mut data),
    }
}

/// The runtime of a trace.
fn runtime(file: &[u8]) {
    let Ok(image) = RuntimeImage::load(file) else {
        return;
    };
    let mut below = 0;
    for s in &image.segments {
        assert!(s.len > 0 && s.offset >= below && s.offset % PAGE == 0 && s.len % PAGE == 0);
        below = s.offset + s.len;
    }
    assert!(below <= image.vdso);
}

/// A module as it lies in memory: what was read of it is counted.
struct Mapped<'a> {
    at: u64,
    bytes: &'a [u8],
    reads: &'a Cell<u64>,
}

impl Memory for Mapped<'_> {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        let from = addr.checked_sub(self.at).map(|from| from as usize);
        let bytes = from.and_then(|from| self.bytes.get(from..from.checked_add(buf.len())?));
        bytes.is_some_and(|bytes| {
            buf.copy_from_slice(bytes);
            true
        })
    }
}

/// What the recorded program has mapped.
fn module(data: &mut Bytes) {
    // Also at the end of all addresses.
    let at = match data.u8() % 4 {
        0 => 0u64.wrapping_sub(data.0.len() as u64) & !(PAGE - 1),
        _ => 0x7f00_0000_0000,
    };
    let pc = at.wrapping_add(data.u32().into());
    let reads = Cell::new(0);
    let memory = || Mapped {
        at,
        bytes: data.0,
        reads: &reads,
    };
    let m = &memory();
    let Some(module) = Module::at(m, at) else {
        return;
    };
    module.entry(m);
    module.build_id(m);
    module.holds(m, pc);
    if let Some(exports) = module.exports(m) {
        exports.is_module(m, b"libc.so.6");
        exports.find(m, b"malloc");
        exports.find(m, b"_dl_catch_exception");
        let mut found = 0;
        exports.each_function(m, MOST_SYMBOLS, |_| found += 1);
        assert!(found < MOST_READS);
    }
    if let Some(functions) = Functions::at(memory(), at, pc) {
        functions.function(functions.count());
        if let Some(start) = functions.function_of(pc) {
            assert!(start <= pc);
        }
        functions.end_of(pc);
        let mut way = Way::default();
        if sweep::is_instruction(&functions, &mut way, pc) == Some(true) {
            let start = functions.function_of(pc).expect("a function");
            assert_eq!(sweep::arrives(m, start, pc), Some(true));
        }
    }
    let code = at..at.saturating_add(data.0.len() as u64);
    entries::each(m, code.clone(), code.clone(), |start, end| {
        assert!(code.start <= start && start < end && end <= code.end);
    });
    assert!(reads.get() < MOST_READS, "{} reads", reads.get());
    let mut seen = vec![0; data.0.len().div_ceil(8)];
    let mut waiting = vec![0; MAX_WAITING];
    Walk::of(m, &module, code, &mut seen, &mut waiting).is_reached(pc);
    assert!(reads.get() < MOST_FOLLOWED, "{} reads", reads.get());
}

/// A program that is about to be recorded.
fn program(file: &[u8]) {
    let scratch = super::scratch();
    let path = scratch.path().join("program");
    std::fs::write(&path, file).expect("a file");
    orderable::unfit(&path);
}

/// What a trace has mapped, where an address is to be named.
fn object(data: &mut Bytes) {
    const START: u64 = 0x40_0000;
    let pc = START + u64::from(data.u32()) % MOST_NAMED as u64;
    let bytes = &data.0[..data.0.len().min(MOST_NAMED)];
    let len = (bytes.len() as u64).next_multiple_of(PAGE).max(PAGE);
    let scratch = super::scratch();
    let dir = scratch.path();
    let mut image = ImageWriter::create(dir).expect("an image");
    let region = Region {
        start: START,
        len,
        prot: 5,
        flags: 0,
        content: Content::Zero,
        name: "[vdso]".into(),
    };
    image.region(region).expect("a region");
    for (page, at) in bytes
        .chunks(PAGE as usize)
        .zip((START..).step_by(PAGE as usize))
    {
        let mut whole = page.to_vec();
        whole.resize(PAGE as usize, 0);
        image.bytes(at, &whole).expect("its bytes");
    }
    image.finish().expect("an image");
    let events = Writer::create(dir).expect("a stream");
    events.finish().expect("a stream");
    if let Some(place) = symbols::place(dir, 0, pc) {
        assert!(place.len() < 64 << 10);
    }
}
