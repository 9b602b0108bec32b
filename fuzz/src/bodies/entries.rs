//! See `fuzz_targets/entries.rs`.

use super::bytes::Bytes;
use reprise_abi::event::{Event, EventHeader, ParseError, HEADER_LEN, MAX_EVENT};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::MAX_SHARED_FILES;
use reprise_trace::stamps::Stamps;
use reprise_trace::stream::FrameHeader;
use reprise_trace::{
    beginning, checkpoints, Census, Checkpoints, ImageReader, ImageSet, Moment, Reader, Writer,
};
use reprise_trace::{BEGINNING_FILE, CHECKPOINTS_FILE, EVENTS_FILE, IMAGES_FILE, IMAGE_FILE};
use reprise_trace::{FORMAT_VERSION, PARTS_VERSION};
use serde_json::Value;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Most bytes of an image's contents that are looked at: many regions may show the same ones.
const MOST_SHOWN: u64 = 8 << 20;

/// Reads `data` as what its first byte says.
pub fn entries(data: &[u8]) {
    let mut data = Bytes(data);
    match data.u8() % 9 {
        0 => events(data.0),
        1 => stream(data.0),
        2 => {
            let count = count(data.0);
            frame(data.0, data.0.len() as u32, 0, count);
        }
        3 => {
            let (raw_len, count) = (data.u32() & 0xff_ffff, u32::from(data.u16()));
            frame(data.0, raw_len, data.0.len() as u32, count);
        }
        4 => {
            let (raw_len, columns_len, count) = (data.u32() & 0xff_ffff, data.u32(), data.u32());
            frame(data.0, raw_len, columns_len, count);
        }
        5 => files(&[
            (IMAGE_FILE, data.0),
            (IMAGES_FILE, data.0),
            (BEGINNING_FILE, data.0),
        ]),
        6 => {
            let image = image(data.0);
            let images = [1u64.to_le_bytes(), (image.len() as u64).to_le_bytes()].concat();
            let images = [&images[..], &image].concat();
            files(&[
                (IMAGE_FILE, &image),
                (IMAGES_FILE, &images),
                (BEGINNING_FILE, &image),
            ]);
        }
        7 => checkpoints_of(data),
        _ => {
            let first = data.u16().into();
            let (one, other) = data.0.split_at(data.0.len().min(first));
            files(&[(IMAGES_FILE, one), (EVENTS_FILE, other)]);
        }
    }
}

/// One event after the other, as they lie in memory.
fn events(mut bytes: &[u8]) {
    let (mut census, mut stamps) = (Census::new(1), Stamps::default());
    loop {
        match Event::parse(bytes) {
            Ok(event) => {
                let len = event.header.len as usize;
                assert!((HEADER_LEN..=bytes.len()).contains(&len) && len % 8 == 0);
                assert_eq!(event.bytes(), &bytes[..len]);
                assert_eq!(event.header.to_bytes(), bytes[..HEADER_LEN]);
                // All sections that were checked are there.
                let args = 8 * usize::from(event.header.nargs);
                let sections = event
                    .sections()
                    .map(|s| 16 + s.bytes.len().next_multiple_of(8));
                assert_eq!(HEADER_LEN + args + sections.sum::<usize>(), len);
                census.follow(&event);
                stamps.note(&event);
                bytes = &bytes[len..];
            }
            Err(ParseError::Short(least)) => {
                assert!(least > bytes.len() && least <= MAX_EVENT);
                break;
            }
            Err(ParseError::Bad(_)) => break,
        }
    }
    assert!(stamps.missing(u64::MAX, 100).len() <= 100);
    census.missing();
}

/// How many events these bytes may be.
fn count(mut bytes: &[u8]) -> u32 {
    let mut n = 0;
    while let Ok(h) = EventHeader::parse(bytes) {
        n += 1;
        bytes = bytes.get(h.len as usize..).unwrap_or(&[]);
    }
    n
}

/// A stream of one frame with right hashes.
fn frame(content: &[u8], raw_len: u32, columns_len: u32, events: u32) {
    let packed = zstd::bulk::compress(content, 1).expect("it can be compressed");
    let header = FrameHeader {
        first_event: 0,
        events,
        raw_len,
        compressed_len: packed.len() as u32,
        columns_len,
        hash: xxh3_64(&packed),
    };
    stream(&[&header.to_bytes()[..], &packed].concat());
}

/// Reads a stream; the events that come of it can be written and read again.
fn stream(file: &[u8]) {
    let (from, to) = (super::scratch(), super::scratch());
    std::fs::write(from.path().join(EVENTS_FILE), file).expect("a file");
    let events = read(from.path());
    if events.is_empty() {
        return;
    }
    let mut writer = Writer::create(to.path()).expect("a stream");
    for event in &events {
        writer.push(event).expect("an event that was read");
    }
    writer.finish().expect("a stream");
    assert_eq!(read(to.path()), events);
}

/// All events of a stream, up to the first bad place, read in each way that there is.
fn read(dir: &Path) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    let Ok(mut reader) = Reader::open(dir) else {
        return events;
    };
    let first = reader.first();
    while let Ok(Some(event)) = reader.next() {
        assert_eq!(event.number, first + events.len() as u64);
        event.parse().expect("an event that was checked");
        events.push(event.bytes.to_vec());
    }
    if let Some(last) = events.last() {
        let number = first + events.len() as u64 - 1;
        reader.seek(number).expect("an event that was read");
        let again = reader.next().expect("it").expect("is still there");
        assert_eq!(again.bytes, last);
    }
    let (mut raw, mut part) = (Vec::new(), Vec::new());
    reader.seek(first).ok();
    while let Ok(Some(_)) = reader.read_raw(&mut part) {
        raw.append(&mut part);
    }
    assert!(events.concat().starts_with(&raw) || raw.starts_with(&events.concat()));
    events
}

/// An image with this index, and right hashes and places for it and its blocks.
fn image(index: &[u8]) -> Vec<u8> {
    let mut file = b"RPRIMAGE".to_vec();
    file.extend_from_slice(&u64::from(FORMAT_VERSION).to_le_bytes());
    let block = zstd::bulk::compress(&[0x5a; 8192], 1).expect("it can be compressed");
    let block_at = file.len();
    file.extend_from_slice(&block);
    let mut index = index.to_vec();
    if let Ok(mut json) = serde_json::from_slice::<Value>(&index) {
        let blocks = json.get_mut("blocks").and_then(Value::as_array_mut);
        for b in blocks.into_iter().flatten() {
            // Some stay as they are.
            if b.get("hash") == Some(&Value::from(0)) {
                b["at"] = block_at.into();
                b["len"] = block.len().into();
                b["hash"] = xxh3_64(&block).into();
            }
        }
        index = json.to_string().into_bytes();
    }
    let packed = zstd::bulk::compress(&index, 1).expect("it can be compressed");
    let mut foot = (file.len() as u64).to_le_bytes().to_vec();
    foot.extend_from_slice(&(packed.len() as u32).to_le_bytes());
    foot.extend_from_slice(&(index.len() as u32).to_le_bytes());
    foot.extend_from_slice(&xxh3_64(&packed).to_le_bytes());
    foot.extend_from_slice(&xxh3_64(&foot).to_le_bytes());
    foot.extend_from_slice(b"RPRIMEND");
    [file, packed, foot].concat()
}

/// Checkpoints of a trace without events, with right hashes and lengths: the table, behind its length, and the index of an image.
fn checkpoints_of(mut data: Bytes) {
    let scratch = super::scratch();
    let dir = scratch.path();
    std::fs::write(dir.join(EVENTS_FILE), b"").expect("a file");
    let reader = Reader::open(dir).expect("an empty stream");
    let len = data.u16().into();
    let mut table = data.take(len).to_vec();
    let mut file = image(data.0);
    if let Ok(mut json) = serde_json::from_slice::<Value>(&table) {
        if let Some(seal) = json.get_mut("seal") {
            *seal = checkpoints::seal(&reader).into();
        }
        let all = json.get_mut("checkpoints").and_then(Value::as_array_mut);
        for c in all.into_iter().flatten() {
            // Some stay as they are.
            if c.get("end") == Some(&Value::from(0)) {
                c["end"] = file.len().into();
            }
        }
        table = json.to_string().into_bytes();
    }
    let packed = zstd::bulk::compress(&table, 1).expect("it can be compressed");
    let mut foot = (packed.len() as u32).to_le_bytes().to_vec();
    foot.extend_from_slice(&(table.len() as u32).to_le_bytes());
    foot.extend_from_slice(&u64::from(PARTS_VERSION).to_le_bytes());
    foot.extend_from_slice(&xxh3_64(&packed).to_le_bytes());
    foot.extend_from_slice(&xxh3_64(&foot).to_le_bytes());
    foot.extend_from_slice(b"RPRCHKPT");
    file.extend_from_slice(&packed);
    file.extend_from_slice(&foot);
    std::fs::write(dir.join(CHECKPOINTS_FILE), file).expect("a file");
    let Ok(Some(all)) = Checkpoints::open(dir, &reader) else {
        return;
    };
    let mut last = 0;
    for c in all.list() {
        assert!((last..=reader.len()).contains(&c.event));
        last = c.event;
        if let Ok((mut image, moment)) = all.image(*c) {
            assert_eq!(moment.event, c.event);
            check(&moment);
            let _ = image.check_blocks();
            show(image);
        }
    }
    assert_eq!(all.before(u64::MAX), all.list().last().copied());
}

/// What can be relied on of a moment that was read.
fn check(moment: &Moment) {
    assert!((1..=MAX_SLOTS).contains(&moment.threads.len()));
    let mut threads = moment.threads.iter();
    assert!(threads.all(|t| t.registers.len() == beginning::REGISTERS && t.tid > 0));
    assert!(moment.files > 2);
    for c in &moment.copies {
        c.room();
        assert!((1..MAX_SHARED_FILES as u64).contains(&c.number));
    }
}

/// Reads all that these files of a trace tell.
fn files(files: &[(&str, &[u8])]) {
    let scratch = super::scratch();
    let dir = scratch.path();
    for (name, content) in files {
        std::fs::write(dir.join(name), content).expect("a file");
    }
    if let Ok(image) = ImageReader::open(dir) {
        show(image);
    }
    let mut set = ImageSet::new(dir);
    for n in [0, 1, 2, u64::MAX] {
        if let Ok(image) = set.image(n) {
            show(image);
        }
    }
    if let Ok(Some((image, moment))) = beginning::open(dir) {
        check(&moment);
        show(image);
    }
    if dir.join(EVENTS_FILE).exists() {
        read(dir);
    }
}

/// Looks at all contents of an image: they lie in their regions.
fn show(mut image: ImageReader) {
    let mut left = MOST_SHOWN;
    let mut below = 0;
    for i in 0..image.image().regions.len() {
        let region = image.image().regions[i].clone();
        assert!(region.start >= below && region.len > 0);
        below = region.end();
        let mut filled = region.start;
        let _ = image.read_region(i, |address, bytes| {
            assert!(!bytes.is_empty() && address >= filled);
            filled = address + bytes.len() as u64;
            assert!(filled <= region.end());
            left = left.saturating_sub(bytes.len() as u64);
            match left {
                // Enough: no error of the image's.
                0 => Err(reprise_trace::TraceError::BadEvent("enough")),
                _ => Ok(()),
            }
        });
    }
    let mut buf = [0; 10_000];
    let _ = image.read_blob(image.blob_len().saturating_sub(5000), &mut buf);
}
