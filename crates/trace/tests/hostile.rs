//! Damaged and hostile input: nothing panics, nothing large is allocated, and what is read is a prefix of what was written.

mod common;

use common::{event, noise, small_frames, write_stream};
use proptest::prelude::*;
use reprise_trace::{
    beginning, Checkpoints, CheckpointsWriter, Moment, StoppedThread, CHECKPOINTS_FILE,
};
use reprise_trace::{
    pack, Content, Image, ImageReader, ImageWriter, Manifest, Reader, Region, Summary, Tail,
};
use reprise_trace::{ContentHash, Result, EVENTS_FILE, IMAGE_FILE};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No single allocation of these tests has a reason to be larger.
const LARGEST: usize = 32 << 20;

/// The system's allocator, noting the largest request.
struct Watch;

static SEEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed on unchanged.
unsafe impl GlobalAlloc for Watch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        SEEN.fetch_max(layout.size(), Ordering::Relaxed);
        System.alloc(layout)
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        System.dealloc(p, layout)
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        SEEN.fetch_max(size, Ordering::Relaxed);
        System.realloc(p, layout, size)
    }
}

#[global_allocator]
static ALLOCATOR: Watch = Watch;

/// Ways to spoil a file.
#[derive(Clone, Debug)]
enum Spoil {
    Flip {
        at: prop::sample::Index,
        bit: u8,
    },
    Set {
        at: prop::sample::Index,
        bytes: Vec<u8>,
    },
    Cut {
        at: prop::sample::Index,
    },
    Remove {
        at: prop::sample::Index,
        len: usize,
    },
    Insert {
        at: prop::sample::Index,
        bytes: Vec<u8>,
    },
    Append {
        bytes: Vec<u8>,
    },
    Repeat {
        from: prop::sample::Index,
        len: usize,
    },
}

fn spoil() -> impl Strategy<Value = Spoil> {
    let at = any::<prop::sample::Index>;
    let bytes = || prop::collection::vec(any::<u8>(), 1..64);
    prop_oneof![
        4 => (at(), 0..8u8).prop_map(|(at, bit)| Spoil::Flip { at, bit }),
        2 => (at(), bytes()).prop_map(|(at, bytes)| Spoil::Set { at, bytes }),
        2 => at().prop_map(|at| Spoil::Cut { at }),
        1 => (at(), 1..500usize).prop_map(|(at, len)| Spoil::Remove { at, len }),
        1 => (at(), bytes()).prop_map(|(at, bytes)| Spoil::Insert { at, bytes }),
        1 => bytes().prop_map(|bytes| Spoil::Append { bytes }),
        1 => (at(), 1..2000usize).prop_map(|(from, len)| Spoil::Repeat { from, len }),
    ]
}

fn apply(spoil: &Spoil, file: &mut Vec<u8>) {
    if file.is_empty() {
        return;
    }
    let size = file.len();
    match spoil {
        Spoil::Flip { at, bit } => file[at.index(size)] ^= 1 << bit,
        Spoil::Set { at, bytes } => {
            let at = at.index(size);
            let n = bytes.len().min(size - at);
            file[at..at + n].copy_from_slice(&bytes[..n]);
        }
        Spoil::Cut { at } => file.truncate(at.index(size)),
        Spoil::Remove { at, len } => {
            let at = at.index(size);
            file.drain(at..(at + len).min(size));
        }
        Spoil::Insert { at, bytes } => {
            let at = at.index(size);
            file.splice(at..at, bytes.iter().copied());
        }
        Spoil::Append { bytes } => file.extend_from_slice(bytes),
        Spoil::Repeat { from, len } => {
            let from = from.index(size);
            file.extend_from_within(from..(from + len).min(size));
        }
    }
}

fn spoil_file(path: &Path, spoils: &[Spoil]) {
    let mut bytes = std::fs::read(path).unwrap();
    spoils.iter().for_each(|s| apply(s, &mut bytes));
    std::fs::write(path, bytes).unwrap();
}

/// Few enough for every run; `REPRISE_FUZZ_CASES=100000` for a long search.
fn config() -> ProptestConfig {
    let asked = std::env::var("REPRISE_FUZZ_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(100),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn region(start: u64, pages: u64, content: Content) -> Region {
    Region {
        start,
        len: pages * 4096,
        prot: 3,
        flags: 0,
        content,
        name: "x".into(),
    }
}

fn write_image(dir: &Path) -> Result<Image> {
    let mut writer = ImageWriter::create(dir)?;
    writer.region(region(0x1000, 600, Content::Zero))?;
    writer.bytes(0x1000, &noise(5, 300 * 4096))?;
    let hash = ContentHash::of(b"x");
    writer.region(region(
        0x100_0000,
        4,
        Content::File {
            hash,
            file_offset: 4096,
            runs: Vec::new(),
        },
    ))?;
    writer.bytes(0x100_1000, &noise(6, 4096))?;
    writer.finish()
}

/// Two checkpoints of the trace in `dir`.
fn write_checkpoints(dir: &Path) -> Result<()> {
    let reader = Reader::open(dir)?;
    let mut writer = CheckpointsWriter::create(dir, &reader)?;
    for event in [0, 1] {
        let mut checkpoint = writer.begin()?;
        let image: &mut ImageWriter = checkpoint.as_mut();
        image.region(region(0x1000, 40, Content::Zero))?;
        image.bytes(0x1000, &noise(7 + event, 20 * 4096))?;
        let thread = StoppedThread {
            tid: 1,
            registers: vec![event; beginning::REGISTERS],
            vectors: noise(9, 1000),
            mask: 0,
            clears: 0,
            signal_stack: [0; 3],
        };
        let moment = Moment {
            event,
            at_byte: 0,
            files: 3,
            copies: Vec::new(),
            known: Default::default(),
            threads: vec![thread],
            rings: Vec::new(),
            stamp: 0,
        };
        writer = checkpoint.finish(moment, std::time::Duration::from_secs(event))?;
    }
    writer.finish()
}

/// A checkpoint's moment, and its contents.
type Found = (Moment, Vec<(u64, Vec<u8>)>);

/// Everything that can be read of the checkpoints.
fn read_checkpoints(dir: &Path) -> Result<Vec<Found>> {
    let reader = Reader::open(dir)?;
    let mut found = Vec::new();
    let Some(all) = Checkpoints::open(dir, &reader)? else {
        return Ok(found);
    };
    for c in all.list() {
        let (mut image, moment) = all.image(*c)?;
        image.check_blocks()?;
        let mut contents = Vec::new();
        for i in 0..image.image().regions.len() {
            image.read_region(i, |address, bytes| {
                contents.push((address, bytes.to_vec()));
                Ok(())
            })?;
        }
        found.push((moment, contents));
    }
    Ok(found)
}

/// Everything the image has, as far as it can be read.
fn read_image(dir: &Path) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut reader = ImageReader::open(dir)?;
    let mut found = Vec::new();
    for i in 0..reader.image().regions.len() {
        reader.read_region(i, |address, bytes| {
            found.push((address, bytes.to_vec()));
            Ok(())
        })?;
    }
    Ok(found)
}

fn allocations_were_small() {
    let seen = SEEN.load(Ordering::Relaxed);
    assert!(seen <= LARGEST, "an allocation of {seen} bytes");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_spoiled_stream_gives_a_prefix(
        sizes in prop::collection::vec(0..900usize, 0..80),
        spoils in prop::collection::vec(spoil(), 0..4),
        seek: prop::sample::Index,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let events: Vec<_> = sizes.iter().enumerate().map(|(i, n)| event(i as u64, &noise(i as u64 + 1, *n))).collect();
        write_stream(dir.path(), &events, small_frames());
        spoil_file(&dir.path().join(EVENTS_FILE), &spoils);
        if let Ok(mut reader) = Reader::open(dir.path()) {
            let mut n = 0;
            let complete = loop {
                match reader.next() {
                    Ok(Some(e)) => {
                        prop_assert_eq!(e.number, n as u64);
                        prop_assert!(e.bytes == events[n]);
                        n += 1;
                    }
                    Ok(None) => break reader.tail() == &Tail::Complete,
                    Err(e) => {
                        let text = e.to_string();
                        let says_where = text.contains(&format!("events 0 to {n} (exclusive) are good"));
                        prop_assert!(says_where, "{}", text);
                        break false;
                    }
                }
            };
            if complete {
                prop_assert_eq!(n, events.len(), "a complete stream has all events");
            }
            let target = seek.index(events.len() + 1) as u64;
            if reader.seek(target).is_ok() {
                if let Ok(Some(e)) = reader.next() {
                    prop_assert!(e.bytes == events[target as usize]);
                }
            }
            let (mut buf, mut raw) = (Vec::new(), Vec::new());
            reader.seek(0).ok();
            while let Ok(Some(_)) = reader.read_raw(&mut buf) {
                raw.extend_from_slice(&buf);
            }
            prop_assert!(events.concat().starts_with(&raw));
        }
        allocations_were_small();
    }

    #[test]
    fn a_spoiled_image_gives_the_truth_or_an_error(spoils in prop::collection::vec(spoil(), 1..3)) {
        let dir = tempfile::tempdir().unwrap();
        let image = write_image(dir.path()).unwrap();
        let truth = read_image(dir.path()).unwrap();
        spoil_file(&dir.path().join(IMAGE_FILE), &spoils);
        if let Ok(found) = read_image(dir.path()) {
            prop_assert!(found == truth);
            let reader = ImageReader::open(dir.path()).unwrap();
            prop_assert_eq!(reader.image(), &image);
        }
        allocations_were_small();
    }

    #[test]
    fn spoiled_checkpoints_give_the_truth_or_an_error(spoils in prop::collection::vec(spoil(), 1..3)) {
        let dir = tempfile::tempdir().unwrap();
        write_stream(dir.path(), &[event(0, &noise(3, 500))], small_frames());
        write_checkpoints(dir.path()).unwrap();
        let truth = read_checkpoints(dir.path()).unwrap();
        prop_assert_eq!(truth.len(), 2);
        spoil_file(&dir.path().join(CHECKPOINTS_FILE), &spoils);
        if let Ok(found) = read_checkpoints(dir.path()) {
            prop_assert!(found == truth);
        }
        allocations_were_small();
    }

    #[test]
    fn a_spoiled_manifest_never_panics(spoils in prop::collection::vec(spoil(), 1..5)) {
        let mut json = serde_json::to_vec(&common::manifest()).unwrap();
        spoils.iter().for_each(|s| apply(s, &mut json));
        if let Ok(m) = Manifest::parse(Path::new("manifest.json"), &json) {
            prop_assert!(m.format_version <= reprise_trace::FORMAT_VERSION);
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(reprise_trace::SUMMARY_FILE), &json).unwrap();
        prop_assert!(Summary::read(dir.path()).is_ok());
        allocations_were_small();
    }

    #[test]
    fn a_spoiled_pack_gives_the_truth_or_an_error(spoils in prop::collection::vec(spoil(), 1..3)) {
        let dir = tempfile::tempdir().unwrap();
        let (trace, packed, out) = (dir.path().join("t"), dir.path().join("p"), dir.path().join("out"));
        std::fs::create_dir(&trace).unwrap();
        common::manifest().write(&trace).unwrap();
        write_stream(&trace, &[event(0, &noise(3, 5000))], small_frames());
        pack::pack(&trace, &packed).unwrap();
        spoil_file(&packed, &spoils);
        match pack::unpack(&packed, &out, 1 << 30) {
            Ok(()) => {
                for name in [reprise_trace::MANIFEST_FILE, EVENTS_FILE] {
                    prop_assert!(std::fs::read(out.join(name)).unwrap() == std::fs::read(trace.join(name)).unwrap());
                }
            }
            Err(_) => prop_assert!(!out.exists()),
        }
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        prop_assert!(names.iter().all(|n| n == "t" || n == "p" || n == "out"), "left behind: {:?}", names);
        allocations_were_small();
    }

    #[test]
    fn a_forged_frame_header_sizes_no_allocation(raw_len: u32, compressed_len in 0..2000u32, events: u32, first in 0..3u64) {
        // Headers with right hashes and wrong claims, as only an attacker makes them.
        let dir = tempfile::tempdir().unwrap();
        let junk = zstd::bulk::compress(&event(0, &noise(1, 3000)), 1).unwrap();
        let header = reprise_trace::stream::FrameHeader {
            first_event: first,
            events,
            raw_len,
            compressed_len,
            columns_len: 0,
            hash: xxhash_rust::xxh3::xxh3_64(&junk[..(compressed_len as usize).min(junk.len())]),
        };
        let file = [header.to_bytes().to_vec(), junk].concat();
        std::fs::write(dir.path().join(EVENTS_FILE), file).unwrap();
        if let Ok(mut reader) = Reader::open(dir.path()) {
            while let Ok(Some(_)) = reader.next() {}
        }
        allocations_were_small();
    }
}
