//! Writing a stream and reading it back; streams that end early.

mod common;

use common::{event, noise, small_frames, write_stream};
use reprise_trace::stream::FRAME_HEADER_LEN;
use reprise_trace::{Reader, Result, Tail, TraceError, Writer, WriterOptions, EVENTS_FILE};
use std::path::Path;

fn events(n: u64) -> Vec<Vec<u8>> {
    (0..n)
        .map(|i| event(i, &noise(i + 1, (i * 37 % 300) as usize)))
        .collect()
}

fn read_all(dir: &Path) -> (Vec<Vec<u8>>, Result<()>) {
    let mut reader = Reader::open(dir).unwrap();
    let mut found = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(e)) => {
                assert_eq!(e.number, found.len() as u64);
                e.parse().unwrap();
                found.push(e.bytes.to_vec());
            }
            Ok(None) => return (found, Ok(())),
            Err(e) => return (found, Err(e)),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let events = events(500);
    write_stream(dir.path(), &events, small_frames());
    let (found, end) = read_all(dir.path());
    end.unwrap();
    assert!(found == events);
    let mut reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.tail(), &Tail::Complete);
    assert_eq!(reader.len(), 500);
    let stats = reader.check().unwrap();
    assert_eq!(stats.named_kinds()["syscall"], 500);
    assert_eq!(
        stats.bytes_raw,
        events.iter().map(|e| e.len() as u64).sum::<u64>()
    );
}

#[test]
fn an_empty_stream_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    write_stream(dir.path(), &[], WriterOptions::default());
    let mut reader = Reader::open(dir.path()).unwrap();
    assert!(reader.is_empty());
    assert_eq!(reader.tail(), &Tail::Complete);
    assert!(reader.next().unwrap().is_none());
    assert!(reader.read_raw(&mut Vec::new()).unwrap().is_none());
}

#[test]
fn every_event_can_be_sought() {
    let dir = tempfile::tempdir().unwrap();
    let events = events(200);
    write_stream(dir.path(), &events, small_frames());
    let mut reader = Reader::open(dir.path()).unwrap();
    for n in (0..200).rev().chain([7, 8, 150, 3]) {
        reader.seek(n).unwrap();
        assert_eq!(reader.position(), n);
        assert!(reader.next().unwrap().unwrap().bytes == events[n as usize]);
    }
    reader.seek(200).unwrap();
    assert!(reader.next().unwrap().is_none());
    assert!(matches!(
        reader.seek(201),
        Err(TraceError::NoSuchEvent {
            event: 201,
            len: 200,
            ..
        })
    ));
}

#[test]
fn raw_frames_and_single_events_mix() {
    let dir = tempfile::tempdir().unwrap();
    let events = events(200);
    write_stream(dir.path(), &events, small_frames());
    for start in [0, 1, 57, 199] {
        for singles in 0..4 {
            let mut reader = Reader::open(dir.path()).unwrap();
            reader.seek(start).unwrap();
            let (mut found, mut next, mut buf) = (Vec::new(), start, Vec::new());
            for _ in 0..singles {
                if let Some(e) = reader.next().unwrap() {
                    found.extend_from_slice(e.bytes);
                    next += 1;
                }
            }
            while let Some(frame) = reader.read_raw(&mut buf).unwrap() {
                assert_eq!(frame.first_event, next);
                next += frame.events;
                found.extend_from_slice(&buf);
            }
            assert_eq!(next, 200);
            assert!(found == events[start as usize..].concat());
        }
    }
}

#[test]
fn a_large_event_is_a_frame_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let large = vec![
        event(0, b"a"),
        event(1, &vec![0; 64 << 20]),
        event(2, &noise(1, 3 << 20)),
        event(3, b"b"),
    ];
    write_stream(dir.path(), &large, WriterOptions::default());
    let (found, end) = read_all(dir.path());
    end.unwrap();
    assert!(found == large);
    let size = std::fs::metadata(dir.path().join(EVENTS_FILE))
        .unwrap()
        .len();
    assert!(size < (3 << 20) + (64 << 10), "zeros cost {size} bytes");
}

#[test]
fn ordinary_zstd_reads_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let events = events(300);
    write_stream(dir.path(), &events, small_frames());
    let file = std::fs::File::open(dir.path().join(EVENTS_FILE)).unwrap();
    assert!(zstd::stream::decode_all(file).unwrap() == events.concat());
}

#[test]
fn killed_between_frames_loses_only_what_was_gathered() {
    let dir = tempfile::tempdir().unwrap();
    let events = events(40);
    let mut writer = Writer::create(dir.path()).unwrap();
    for e in &events[..30] {
        writer.push(e).unwrap();
    }
    assert_eq!(writer.next_event(), 30);
    writer.flush_frame().unwrap();
    assert_eq!(writer.gathered(), 0);
    for e in &events[30..] {
        writer.push(e).unwrap();
    }
    assert_eq!(writer.stats().events, 30);
    drop(writer);
    let (found, end) = read_all(dir.path());
    end.unwrap();
    assert!(found == events[..30]);
    let reader = Reader::open(dir.path()).unwrap();
    assert!(
        matches!(
            reader.tail(),
            Tail::Torn {
                events_good: 30,
                ..
            }
        ),
        "{:?}",
        reader.tail()
    );
}

#[test]
fn cut_anywhere_it_is_torn_never_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let events = events(60);
    write_stream(dir.path(), &events, small_frames());
    let path = dir.path().join(EVENTS_FILE);
    let whole = std::fs::read(&path).unwrap();
    for len in (0..whole.len()).rev() {
        std::fs::write(&path, &whole[..len]).unwrap();
        let (found, end) = read_all(dir.path());
        end.unwrap();
        assert!(events.starts_with(&found));
        let reader = Reader::open(dir.path()).unwrap();
        assert!(
            matches!(reader.tail(), Tail::Torn { events_good, .. } if *events_good == found.len() as u64),
            "{len}"
        );
    }
}

#[test]
fn zeros_after_a_power_cut_are_a_torn_tail() {
    let dir = tempfile::tempdir().unwrap();
    let events = events(60);
    write_stream(dir.path(), &events, small_frames());
    let path = dir.path().join(EVENTS_FILE);
    let whole = std::fs::read(&path).unwrap();
    let good = Reader::open(dir.path()).unwrap().len();
    for cut in [
        0,
        1,
        FRAME_HEADER_LEN,
        FRAME_HEADER_LEN + 9,
        whole.len() / 2,
        whole.len() - 20,
    ] {
        let mut bytes = whole[..cut].to_vec();
        bytes.resize(whole.len() + 5000, 0);
        std::fs::write(&path, &bytes).unwrap();
        let mut reader = Reader::open(dir.path()).unwrap();
        while reader.next().unwrap_or_default().is_some() {}
        assert!(reader.position() <= good);
    }
}

#[test]
fn damage_in_the_middle_names_the_event() {
    let dir = tempfile::tempdir().unwrap();
    let events = events(100);
    write_stream(dir.path(), &events, small_frames());
    let path = dir.path().join(EVENTS_FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (found, end) = read_all(dir.path());
    assert!(events.starts_with(&found));
    let Err(TraceError::Damaged { event, at_byte, .. }) = end else {
        panic!("{end:?}")
    };
    assert_eq!(event, found.len() as u64);
    assert!(at_byte <= middle as u64);
}

#[test]
fn a_newer_stream_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    write_stream(dir.path(), &events(3), WriterOptions::default());
    let path = dir.path().join(EVENTS_FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[12] = 9;
    let hash = xxhash_rust::xxh3::xxh3_64(&bytes[..48]);
    bytes[48..56].copy_from_slice(&hash.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(
        Reader::open(dir.path()),
        Err(TraceError::Newer {
            found: 9,
            ours: 1,
            ..
        })
    ));
}

#[test]
fn an_event_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path()).unwrap();
    let good = event(0, b"x");
    for bad in [
        &good[..8],
        &good[..good.len() - 8],
        &[good.clone(), vec![0; 8]].concat()[..],
        &[0; 32],
    ] {
        assert!(matches!(writer.push(bad), Err(TraceError::BadEvent(_))));
    }
    writer.push(&good).unwrap();
    assert_eq!(writer.finish().unwrap().events, 1);
}

#[test]
fn a_stream_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    write_stream(dir.path(), &events(3), WriterOptions::default());
    assert!(Writer::create(dir.path()).is_err());
}
