//! The images of execs, which lie in one file.

use reprise_trace::{
    image_name, Content, Image, ImageSet, ImageWriter, Images, Region, TraceError, IMAGES_FILE,
};
use std::fs::OpenOptions;

const PAGE: u64 = 4096;

fn region(start: u64, pages: u64) -> Region {
    Region {
        start,
        len: pages * PAGE,
        prot: 3,
        flags: 0,
        content: Content::Zero,
        name: "data".into(),
    }
}

fn fill(image: &mut ImageWriter, byte: u8, pages: u64) {
    image.region(region(0x10000, pages)).unwrap();
    let bytes = vec![byte; (pages * PAGE) as usize];
    image.bytes(0x10000, &bytes).unwrap();
}

fn check(set: &mut ImageSet, n: u64, byte: u8, pages: u64) {
    let mut image = set.image(n).unwrap();
    assert_eq!(image.blob_len(), pages * PAGE);
    let mut all = vec![0; (pages * PAGE) as usize];
    image.read_blob(0, &mut all).unwrap();
    assert!(all.iter().all(|b| *b == byte), "image {n}");
}

#[test]
fn one_behind_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut images = Images::new(dir.path());
    // The third is larger than what is gathered before it is written; the fourth is given up in the middle.
    for (n, byte, pages) in [(1, 7, 1), (2, 8, 3), (3, 9, 1000)] {
        let mut image = images.begin(n).unwrap();
        fill(&mut image, byte, pages);
        images.end(image).unwrap();
    }
    let mut image = images.begin(4).unwrap();
    fill(&mut image, 10, 1000);
    drop(image);
    let mut image = images.begin(5).unwrap();
    fill(&mut image, 11, 2);
    images.end(image).unwrap();

    let mut set = ImageSet::new(dir.path());
    check(&mut set, 5, 11, 2);
    check(&mut set, 1, 7, 1);
    check(&mut set, 3, 9, 1000);
    check(&mut set, 2, 8, 3);
    assert!(matches!(set.image(4), Err(TraceError::Corrupt { .. })));
}

#[test]
fn what_a_crash_cut_off_costs_only_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let mut images = Images::new(dir.path());
    for n in 1..=3 {
        let mut image = images.begin(n).unwrap();
        fill(&mut image, n as u8, 2);
        images.end(image).unwrap();
    }
    let path = dir.path().join(IMAGES_FILE);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let mut set = ImageSet::new(dir.path());
    check(&mut set, 1, 1, 2);
    check(&mut set, 2, 2, 2);
    assert!(set.image(3).is_err());
}

#[test]
fn older_traces_have_a_file_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let mut image = ImageWriter::create(dir.path()).unwrap();
    fill(&mut image, 5, 2);
    let _: Image = image.finish().unwrap();
    let own = dir.path().join(image_name(1));
    std::fs::rename(dir.path().join(image_name(0)), own).unwrap();
    check(&mut ImageSet::new(dir.path()), 1, 5, 2);
    assert!(ImageSet::new(dir.path()).image(2).is_err());
}
