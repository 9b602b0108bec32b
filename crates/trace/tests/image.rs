//! Images: what is stored, what is left out, what is refused.

mod common;

use common::noise;
use proptest::prelude::*;
use reprise_trace::{
    Content, ContentHash, ImageReader, ImageWriter, Region, TraceError, IMAGE_FILE,
};
use std::collections::BTreeMap;

const PAGE: usize = 4096;

fn region(start: u64, pages: u64, content: Content) -> Region {
    Region {
        start,
        len: pages * PAGE as u64,
        prot: 3,
        flags: 0,
        content,
        name: "[test]".into(),
    }
}

fn pages_of(reader: &mut ImageReader, index: usize) -> BTreeMap<u64, Vec<u8>> {
    let mut pages = BTreeMap::new();
    let take = |address: u64, bytes: &[u8]| {
        for (i, page) in bytes.chunks(PAGE).enumerate() {
            assert!(pages
                .insert(address + (i * PAGE) as u64, page.to_vec())
                .is_none());
        }
        Ok(())
    };
    reader.read_region(index, take).unwrap();
    pages
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_come_back(layout in prop::collection::vec(prop::collection::vec(0..3u8, 1..400), 1..4), as_file: bool) {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = ImageWriter::create(dir.path()).unwrap();
        let (mut at, mut expected) = (0x10000, Vec::new());
        for (r, pages) in layout.iter().enumerate() {
            let content = match as_file {
                true => Content::File { hash: ContentHash::of(b"f"), file_offset: 0, runs: Vec::new() },
                false => Content::Zero,
            };
            writer.region(region(at, pages.len() as u64, content)).unwrap();
            let mut kept = BTreeMap::new();
            for (i, kind) in pages.iter().enumerate() {
                let address = at + (i * PAGE) as u64;
                let page = match kind {
                    0 => continue,
                    1 => vec![0; PAGE],
                    _ => noise((r * 1000 + i + 1) as u64, PAGE),
                };
                writer.bytes(address, &page).unwrap();
                if as_file || *kind != 1 {
                    kept.insert(address, page);
                }
            }
            expected.push(kept);
            at += (pages.len() * PAGE) as u64;
        }
        let image = writer.finish().unwrap();
        let mut reader = ImageReader::open(dir.path()).unwrap();
        prop_assert_eq!(reader.image(), &image);
        for (i, pages) in expected.iter().enumerate() {
            prop_assert!(&pages_of(&mut reader, i) == pages);
        }
        prop_assert_eq!(reader.blob_len(), expected.iter().map(|p| (p.len() * PAGE) as u64).sum::<u64>());
    }
}

#[test]
fn zeros_cost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ImageWriter::create(dir.path()).unwrap();
    writer
        .region(region(0x1000_0000, 16384, Content::Zero))
        .unwrap();
    for i in 0..64 {
        writer
            .bytes(0x1000_0000 + (i << 20), &vec![0; 1 << 20])
            .unwrap();
    }
    let image = writer.finish().unwrap();
    assert_eq!(
        image.regions[0].content,
        Content::Bytes { runs: Vec::new() }
    );
    assert!(
        std::fs::metadata(dir.path().join(IMAGE_FILE))
            .unwrap()
            .len()
            < 1000
    );
}

#[test]
fn a_run_may_span_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = noise(9, 3 << 20);
    let mut writer = ImageWriter::create(dir.path()).unwrap();
    writer.region(region(0x1000, 1000, Content::Zero)).unwrap();
    writer.bytes(0x2000, &bytes).unwrap();
    let image = writer.finish().unwrap();
    assert_eq!(image.regions[0].content.runs().len(), 1);
    let mut reader = ImageReader::open(dir.path()).unwrap();
    let mut found = vec![0; 3 << 20];
    reader.read_blob(0, &mut found).unwrap();
    assert!(found == bytes);
    let mut some = vec![0; 100];
    reader.read_blob((1 << 20) - 50, &mut some).unwrap();
    assert!(some == bytes[(1 << 20) - 50..][..100]);
    assert!(reader.read_blob(3 << 20, &mut some).is_err());
}

#[test]
fn improper_regions_and_bytes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ImageWriter::create(dir.path()).unwrap();
    assert!(writer.bytes(0x1000, &[0; PAGE]).is_err(), "no region yet");
    writer.region(region(0x10000, 4, Content::Zero)).unwrap();
    let bad = [
        region(0x10000, 1, Content::Zero),
        region(0x13000, 1, Content::Zero),
        region(0x20001, 1, Content::Zero),
        region(0x20000, 0, Content::Zero),
        region(0x7fff_ffff_e000, 2, Content::Zero),
        region(!0xfff, 1, Content::Zero),
        Region {
            prot: 8,
            ..region(0x20000, 1, Content::Zero)
        },
        Region {
            flags: 64,
            ..region(0x20000, 1, Content::Zero)
        },
        region(
            0x20000,
            1,
            Content::File {
                hash: ContentHash::default(),
                file_offset: 1,
                runs: Vec::new(),
            },
        ),
    ];
    for r in bad {
        assert!(writer.region(r.clone()).is_err(), "{r:?}");
    }
    writer.bytes(0x11000, &[1; PAGE]).unwrap();
    for (address, len) in [
        (0x11000, PAGE),
        (0x12001, PAGE),
        (0x12000, 7),
        (0x13000, 2 * PAGE),
        (0x14000, PAGE),
        (!0xfff, PAGE),
    ] {
        assert!(
            writer.bytes(address, &vec![1; len]).is_err(),
            "{address:x} {len}"
        );
    }
    writer.bytes(0x13000, &[1; PAGE]).unwrap();
    assert_eq!(writer.finish().unwrap().regions[0].content.runs().len(), 2);
}

#[test]
fn an_unfinished_image_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    drop(ImageWriter::create(dir.path()).unwrap());
    assert!(matches!(
        ImageReader::open(dir.path()),
        Err(TraceError::Corrupt { .. })
    ));
}
