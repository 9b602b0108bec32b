//! See `fuzz_targets/pack.rs`.

use super::bytes::Bytes;
use reprise_trace::{
    image_number, pack, ContentHash, Manifest, FILES_DIR, MANIFEST_FILE, NAMED_FILES,
};
use std::path::Path;

/// What a pack begins with.
const MAGIC: &[u8; 24] = b"\x5b\x2a\x4d\x18\x10\x00\x00\x00reprise-pack-2\r\n";
/// What it may become.
const MOST: u64 = 1 << 20;
/// Names that look like those of a trace's files.
const LIKE_NAMES: [&str; 11] = [
    pack::SUMS_FILE,
    "image.1",
    "image.01",
    "image.1048577",
    FILES_DIR,
    "files/",
    "files/../manifest.json",
    "/etc/reprise",
    "../outside",
    "./manifest.json",
    "",
];
/// A manifest without surprises.
const MANIFEST: &str = r#"{"format_version":1,"reprise_version":"0","abi_version":1,"engine":"serial","argv":[],"env":[],"cwd":"/","exe":"/",
"started":0,"machine":{"kernel":"","cpu":"","cpus":1},"aslr":false,"cpuid_faulting":true,"chaos_seed":null,"pid":1,"checksum_every":0,
"start":{"entry":0,"initial_sp":0,"brk_start":0,"stack_limit":0,"xsave_mask":0,"xsave_size":0,"cpuid":[],"initial_mask":0,"initial_ignored":0,
"affinity":[]},"runtime_hash":"00000000000000000000000000000000"}"#;

/// Unpacks `data`, made into a pack in the way that its first byte says.
pub fn pack(data: &[u8]) {
    let mut data = Bytes(data);
    let packed = match data.u8() % 4 {
        0 => data.0.to_vec(),
        1 => [&MAGIC[..], data.0].concat(),
        2 => around(data.0),
        _ => around(&archive(&mut data)),
    };
    let scratch = super::scratch();
    let (file, dir) = (scratch.path().join("pack"), scratch.path().join("out"));
    std::fs::write(&file, packed).expect("a file");
    let unpacked = pack::unpack(&file, &dir, MOST);
    let mut names: Vec<_> = std::fs::read_dir(scratch.path())
        .expect("our directory")
        .map(|e| e.expect("an entry").file_name())
        .collect();
    names.sort();
    match unpacked {
        Ok(()) => {
            assert_eq!(names, ["out", "pack"]);
            Manifest::read(&dir).expect("a trace has a manifest");
            assert!(check(&dir, "") <= MOST);
        }
        Err(_) => assert_eq!(names, ["pack"], "something was left behind"),
    }
}

/// A pack with this archive.
fn around(archive: &[u8]) -> Vec<u8> {
    let mut zstd = zstd::bulk::compress(archive, 1).expect("it can be compressed");
    zstd.splice(0..0, *MAGIC);
    zstd
}

/// An archive of entries with right checksums.
fn archive(data: &mut Bytes) -> Vec<u8> {
    let mut tar = Vec::new();
    if data.u8() % 8 != 0 {
        entry(
            &mut tar,
            MANIFEST_FILE.as_bytes(),
            b'0',
            MANIFEST.len() as u64,
            MANIFEST.as_bytes(),
        );
    }
    while !data.0.is_empty() {
        let how = data.u8();
        let len = usize::from(data.u8()) << (how >> 5);
        let content = &mut data.take(len).to_vec();
        if how & 8 != 0 {
            content.resize(len, 0);
        }
        let hashed = format!("{FILES_DIR}/{}", ContentHash::of(content));
        let name = match how & 7 {
            0 | 1 => hashed.as_bytes(),
            2 => data.take(100),
            _ => {
                let which = usize::from(data.u8()) % (NAMED_FILES.len() + LIKE_NAMES.len());
                let mut all = NAMED_FILES.iter().chain(&LIKE_NAMES);
                all.nth(which).map_or(&b""[..], |name| name.as_bytes())
            }
        };
        let (mut kind, mut claimed) = (b'0', content.len() as u64);
        if how & 16 != 0 {
            match data.u8() % 4 {
                0 => kind = data.u8(),
                1 => claimed = data.u64(),
                2 => claimed = claimed.wrapping_add(u64::from(data.u8())),
                _ => tar.extend_from_slice(data.take(512)),
            }
        }
        entry(&mut tar, name, kind, claimed, content);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// Appends an entry in GNU's format; numbers that octal digits can't tell are in binary.
fn entry(tar: &mut Vec<u8>, name: &[u8], kind: u8, len: u64, content: &[u8]) {
    let mut head = [0; 512];
    let name = &name[..name.len().min(100)];
    head[..name.len()].copy_from_slice(name);
    head[100..107].copy_from_slice(b"0000600");
    match len >> 33 {
        0 => head[124..135].copy_from_slice(format!("{len:011o}").as_bytes()),
        _ => {
            head[124] = 0x80;
            head[128..136].copy_from_slice(&len.to_be_bytes());
        }
    }
    head[156] = kind;
    head[257..265].copy_from_slice(b"ustar  \0");
    head[148..156].fill(b' ');
    let sum: u32 = head.iter().map(|b| u32::from(*b)).sum();
    head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    tar.extend_from_slice(&head);
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

/// Everything in an unpacked trace is a plain file with one of a trace's names; how many bytes there are.
fn check(dir: &Path, inside: &str) -> u64 {
    let mut all = 0;
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name in text");
        let kind = entry.file_type().expect("its type");
        if inside.is_empty() && name == FILES_DIR {
            assert!(kind.is_dir());
            all += check(&entry.path(), FILES_DIR);
            continue;
        }
        assert!(kind.is_file(), "{name} is no plain file");
        match inside {
            "" => assert!(NAMED_FILES.contains(&name.as_str()) || image_number(&name).is_some()),
            _ => {
                let hash = ContentHash::from_hex(&name).expect("a hash");
                let content = std::fs::read(entry.path()).expect("a content");
                assert_eq!(ContentHash::of(&content), hash);
            }
        }
        all += entry.metadata().expect("its length").len();
    }
    all
}
