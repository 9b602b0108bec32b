//! Traces for tests.
#![allow(dead_code)]

use reprise_abi::event::{section_len, EventHeader, Kind, SectionHeader, Tag, HEADER_LEN};
use reprise_trace::{
    ByteString, ContentHash, Machine, Manifest, Start, Writer, WriterOptions, FORMAT_VERSION,
};
use std::path::Path;

/// A valid event with `content` as its output.
pub fn event(n: u64, content: &[u8]) -> Vec<u8> {
    let len = HEADER_LEN + 8 + section_len(content.len());
    let header = EventHeader {
        len: len as u32,
        kind: Kind::Syscall as u8,
        nargs: 1,
        value: n as i64,
        ..EventHeader::default()
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(&n.to_le_bytes());
    let section = SectionHeader {
        address: 0x1000,
        len: content.len() as u32,
        tag: Tag::Output as u32,
    };
    bytes.extend_from_slice(&section.address.to_le_bytes());
    bytes.extend_from_slice(&section.len.to_le_bytes());
    bytes.extend_from_slice(&section.tag.to_le_bytes());
    bytes.extend_from_slice(content);
    bytes.resize(len, 0);
    bytes
}

/// Bytes that don't compress.
pub fn noise(mut seed: u64, len: usize) -> Vec<u8> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Options with small frames, so that there are many.
pub fn small_frames() -> WriterOptions {
    WriterOptions {
        frame_raw: 1024,
        ..WriterOptions::default()
    }
}

/// Writes a whole stream.
pub fn write_stream(dir: &Path, events: &[Vec<u8>], options: WriterOptions) {
    let mut writer = Writer::with_options(dir, options).unwrap();
    for e in events {
        writer.push(e).unwrap();
    }
    writer.finish().unwrap();
}

pub fn manifest() -> Manifest {
    Manifest {
        format_version: FORMAT_VERSION,
        reprise_version: "0.1.0".into(),
        abi_version: reprise_abi::session::VERSION,
        engine: "serial".into(),
        argv: vec![ByteString::from("prog"), ByteString(vec![0xff, 0, 7])],
        env: vec![ByteString::from("A=1")],
        cwd: ByteString::from("/"),
        exe: ByteString::from("/bin/prog"),
        started: 1_700_000_000_000_000_000,
        machine: Machine::current(),
        aslr: false,
        cpuid_faulting: true,
        chaos_seed: Some(u64::MAX),
        pid: 42,
        children: Vec::new(),
        checksum_every: 0,
        learned: Vec::new(),
        hooks: false,
        epochs: false,
        unhooked: 0,
        redacted: None,
        start: Start {
            entry: 0x7fff_f7fe_4540,
            cpuid: vec![
                Default::default(),
                reprise_abi::session::CpuidLeaf {
                    leaf: 7,
                    subleaf: 1,
                    regs: [1, 2, 3, u32::MAX],
                },
            ],
            ..Start::default()
        },
        runtime_hash: ContentHash::of(b"runtime"),
    }
}
