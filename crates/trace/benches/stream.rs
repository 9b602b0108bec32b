//! What the trace costs: `cargo bench -p reprise-trace`. Prints figures; judges nothing.
#![allow(clippy::print_stdout)]

use reprise_abi::event::{EventHeader, Kind, SectionHeader, Tag, HEADER_LEN, SECTION_LEN};
use reprise_trace::{Reader, Store, Writer};
use std::fs::File;
use std::path::Path;
use std::time::Instant;

/// An event as `read` of 512 bytes makes it.
fn read_event(n: u64, fill: impl FnMut() -> u8) -> Vec<u8> {
    let len = HEADER_LEN + 24 + SECTION_LEN + 512;
    let header = EventHeader {
        len: len as u32,
        kind: Kind::Syscall as u8,
        nargs: 3,
        value: 512,
        ..EventHeader::default()
    };
    let mut bytes = header.to_bytes().to_vec();
    for word in [n % 3, 0x7fff_f7d8_0000, 512, 0x7fff_f7d8_0000] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    let section = SectionHeader {
        address: 0,
        len: 512,
        tag: Tag::Output as u32,
    };
    bytes.extend_from_slice(&section.len.to_le_bytes());
    bytes.extend_from_slice(&section.tag.to_le_bytes());
    bytes.extend(std::iter::repeat_with(fill).take(512));
    bytes
}

fn stream(name: &str, events: &[Vec<u8>], rounds: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let start = Instant::now();
    let mut writer = Writer::create(dir.path()).expect("create");
    for _ in 0..rounds {
        events.iter().for_each(|e| writer.push(e).expect("push"));
    }
    let stats = writer.finish().expect("finish");
    let written = start.elapsed();
    let start = Instant::now();
    let (mut reader, mut buf) = (Reader::open(dir.path()).expect("open"), Vec::new());
    while reader.read_raw(&mut buf).expect("read").is_some() {}
    let read = start.elapsed();
    let rate = |t: std::time::Duration| stats.bytes_raw as f64 / t.as_secs_f64() / 1e6;
    println!(
        "{name:12} {:9} events  write {:6.0} MB/s  read {:6.0} MB/s  {:.4} of raw on disk",
        stats.events,
        rate(written),
        rate(read),
        stats.bytes_compressed as f64 / stats.bytes_raw as f64
    );
}

fn store() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = [
        "/bin/true",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/etc/passwd",
    ];
    for (n, name) in ["store, new", "store, known", "store, known"]
        .iter()
        .enumerate()
    {
        let trace = dir.path().join(n.to_string());
        std::fs::create_dir(&trace).expect("create");
        let start = Instant::now();
        let store = Store::open(dir.path()).expect("open");
        for path in files.iter().map(Path::new).filter(|p| p.exists()) {
            store
                .keep_into(&File::open(path).expect("open"), path, &trace)
                .expect("keep");
        }
        println!("{name:12} {} files in {:?}", files.len(), start.elapsed());
    }
}

fn main() {
    let mut seed = 1u64;
    let mut noise = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as u8
    };
    let zeros: Vec<_> = (0..1000).map(|n| read_event(n, || 0)).collect();
    let random: Vec<_> = (0..1000).map(|n| read_event(n, &mut noise)).collect();
    stream("zeros", &zeros, 2000);
    stream("noise", &random, 1000);
    store();
}
