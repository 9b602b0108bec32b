//! The catalog and packed traces.

mod common;

use common::{event, write_stream};
use reprise_trace::catalog::{LATEST, UNPACKED_DIR};
use reprise_trace::{pack, Catalog, Manifest, Reader, Summary, TraceError, WriterOptions};
use reprise_trace::{FILES_DIR, FORMAT_VERSION, MANIFEST_FILE};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn catalog() -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::at(dir.path().join("root"));
    (dir, catalog)
}

fn record(catalog: &Catalog, program: &str) -> PathBuf {
    let dir = catalog.create(OsStr::new(program)).unwrap();
    fill(catalog, &dir);
    dir
}

fn fill(catalog: &Catalog, dir: &Path) {
    catalog
        .store()
        .unwrap()
        .keep_bytes_into(b"runtime", dir)
        .unwrap();
    common::manifest().write(dir).unwrap();
    write_stream(dir, &[event(0, b"hello")], WriterOptions::default());
    Summary {
        events: 1,
        ..Summary::default()
    }
    .write(dir)
    .unwrap();
    catalog.set_latest(dir).unwrap();
}

#[test]
fn names_count_up_and_latest_follows() {
    let (_d, catalog) = catalog();
    assert!(matches!(
        catalog.resolve(None),
        Err(TraceError::NoTraces { .. })
    ));
    let first = record(&catalog, "/usr/bin/sort");
    let second = record(&catalog, "sort");
    assert!(first.ends_with("sort-0") && second.ends_with("sort-1"));
    assert_eq!(
        std::fs::metadata(&first).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!(catalog.resolve(None).unwrap(), second);
    assert_eq!(catalog.resolve(Some(Path::new("sort-0"))).unwrap(), first);
    assert_eq!(
        std::fs::read_link(catalog.root().join(LATEST)).unwrap(),
        Path::new("sort-1")
    );
    let names: Vec<_> = catalog
        .list()
        .unwrap()
        .into_iter()
        .map(|e| (e.name.clone(), e.complete()))
        .collect();
    assert_eq!(
        names,
        [("sort-0".to_string(), true), ("sort-1".to_string(), true)]
    );
}

#[test]
fn odd_program_names_make_plain_directories() {
    let (_d, catalog) = catalog();
    for (program, expected) in [
        ("../..", "trace-0"),
        ("-rf", "rf-0"),
        (".hidden", "hidden-0"),
        ("a b\n", "a_b_-0"),
        ("", "trace-1"),
    ] {
        assert!(
            catalog
                .create(OsStr::new(program))
                .unwrap()
                .ends_with(expected),
            "{program}"
        );
    }
    let long = catalog.create(OsStr::new(&"x".repeat(255))).unwrap();
    assert_eq!(long.file_name().unwrap().len(), 66);
}

#[test]
fn many_at_once_get_different_names() {
    let (_d, catalog) = catalog();
    let make = || {
        (0..25)
            .map(|_| catalog.create(OsStr::new("p")).unwrap())
            .collect::<Vec<_>>()
    };
    let all: Vec<PathBuf> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..4).map(|_| s.spawn(make)).collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), 100);
}

#[test]
fn an_explicit_place_must_be_empty() {
    let (d, catalog) = catalog();
    let dir = d.path().join("here/trace");
    let made = Catalog::create_at(&dir).unwrap();
    assert_eq!(
        Catalog::create_at(&dir).unwrap(),
        made,
        "empty is good enough"
    );
    fill(&catalog, &made);
    assert!(matches!(
        Catalog::create_at(&dir),
        Err(TraceError::Exists { .. })
    ));
    assert!(matches!(
        Catalog::create_at(&dir.join(MANIFEST_FILE)),
        Err(TraceError::Exists { .. })
    ));
    assert_eq!(
        catalog.resolve(None).unwrap(),
        made,
        "latest leads out of the root"
    );
    assert!(catalog.list().unwrap().is_empty());
}

#[test]
fn errors_say_what_it_is() {
    let (d, catalog) = catalog();
    let text = |path: &Path| catalog.resolve(Some(path)).unwrap_err().to_string();
    assert!(text(Path::new("nothing")).contains("no such file"));
    assert!(text(d.path()).contains("not a trace"));
    let file = d.path().join("file");
    std::fs::write(&file, b"text").unwrap();
    assert!(text(&file).contains("no packed trace"));
    let newer = record(&catalog, "p");
    let json = std::fs::read_to_string(newer.join(MANIFEST_FILE)).unwrap();
    let json = json.replacen(
        &format!("\"format_version\": {FORMAT_VERSION}"),
        "\"format_version\": 77, \"shape\": {}",
        1,
    );
    std::fs::write(newer.join(MANIFEST_FILE), json).unwrap();
    let message = text(&newer);
    assert!(
        message.contains("77") && message.contains("0.1.0") && message.contains("upgrade"),
        "{message}"
    );
    assert!(catalog.list().unwrap()[0]
        .problem
        .as_ref()
        .unwrap()
        .contains("77"));
    std::fs::write(newer.join(MANIFEST_FILE), b"{").unwrap();
    assert!(text(&newer).contains("damaged"));
}

#[test]
fn removal_takes_contents_along_and_latest_back() {
    let (_d, catalog) = catalog();
    let (first, second) = (record(&catalog, "p"), record(&catalog, "q"));
    let content = catalog
        .store()
        .unwrap()
        .path_of(common::manifest().runtime_hash);
    catalog.remove(&second).unwrap();
    assert!(content.exists() && !second.exists());
    assert_eq!(catalog.latest().unwrap(), first);
    assert!(catalog.remove(&first).unwrap() > 0);
    assert!(!content.exists());
    assert!(matches!(catalog.latest(), Err(TraceError::NoTraces { .. })));
}

#[test]
fn removal_leaves_foreign_files() {
    let (d, catalog) = catalog();
    let trace = record(&catalog, "p");
    let mine = trace.join("notes.txt");
    std::fs::write(&mine, b"mine").unwrap();
    assert!(catalog.remove(&trace).is_err());
    assert!(mine.exists());
    assert!(catalog.remove(d.path()).is_err(), "not a trace");
    assert!(catalog.remove(&catalog.root().join(".store")).is_err());
    assert!(catalog.store().unwrap().gc().is_ok());
    let half = catalog.create(OsStr::new("half")).unwrap();
    catalog
        .remove(&catalog.locate(Path::new("half-0")).unwrap())
        .unwrap();
    assert!(!half.exists());
    let last = record(&catalog, "last");
    catalog.remove(&catalog.root().join(LATEST)).unwrap();
    assert!(!last.exists());
}

#[test]
fn a_recording_that_was_killed_is_listed_as_such() {
    let (_d, catalog) = catalog();
    let dir = record(&catalog, "p");
    std::fs::remove_file(dir.join("summary.json")).unwrap();
    let entry = catalog.list().unwrap().remove(0);
    assert!(!entry.complete() && entry.manifest.is_some());
    assert_eq!(Reader::open(&dir).unwrap().stats().events, 1);
    catalog.create(OsStr::new("q")).unwrap();
    assert_eq!(catalog.list().unwrap().len(), 2);
}

#[test]
fn manifest_and_summary_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = common::manifest();
    manifest.write(dir.path()).unwrap();
    assert_eq!(Manifest::read(dir.path()).unwrap(), manifest);
    assert_eq!(Summary::read(dir.path()).unwrap(), None);
    Summary::reserve(dir.path()).unwrap();
    assert_eq!(Summary::read(dir.path()).unwrap(), None);
    let summary = Summary {
        wait_status: Some(-1),
        warnings: vec!["w".into(); 3000],
        ..Summary::default()
    };
    summary.write(dir.path()).unwrap();
    assert_eq!(Summary::read(dir.path()).unwrap(), Some(summary));
    std::fs::write(dir.path().join("summary.json"), b"{\"events\": 1").unwrap();
    assert_eq!(
        Summary::read(dir.path()).unwrap(),
        None,
        "half a summary is none"
    );
}

#[test]
fn a_packed_trace_is_a_trace() {
    let (d, catalog) = catalog();
    let dir = record(&catalog, "p");
    let packed = d.path().join("p.reprise");
    let size = pack::pack(&dir, &packed).unwrap();
    assert_eq!(size, std::fs::metadata(&packed).unwrap().len());
    assert!(matches!(
        pack::pack(&dir, &packed),
        Err(TraceError::Exists { .. })
    ));
    catalog.remove(&dir).unwrap();

    let unpacked = catalog.resolve(Some(&packed)).unwrap();
    assert_eq!(
        catalog.resolve(Some(&packed)).unwrap(),
        unpacked,
        "unpacked once"
    );
    assert!(unpacked.starts_with(catalog.root().join(UNPACKED_DIR)));
    assert_eq!(Manifest::read(&unpacked).unwrap(), common::manifest());
    assert_eq!(Reader::open(&unpacked).unwrap().check().unwrap().events, 1);
    let content = unpacked
        .join(FILES_DIR)
        .join(common::manifest().runtime_hash.to_hex());
    assert_eq!(std::fs::read(content).unwrap(), b"runtime");
    catalog.gc().unwrap();
    assert!(unpacked.exists(), "in use a moment ago");
    assert!(catalog.list().unwrap().is_empty());
}

/// The entries of a packed trace, with their contents.
fn entries(packed: &Path) -> Vec<(String, Vec<u8>)> {
    let zstd = zstd::stream::read::Decoder::new(std::fs::File::open(packed).unwrap()).unwrap();
    let mut archive = tar::Archive::new(zstd);
    let read = |e: std::io::Result<tar::Entry<_>>| {
        let mut e = e.unwrap();
        let (name, mut bytes) = (e.path().unwrap().display().to_string(), Vec::new());
        e.read_to_end(&mut bytes).unwrap();
        (name, bytes)
    };
    archive.entries().unwrap().map(read).collect()
}

/// Packs these entries, whatever they are, as a new reprise does.
fn seal(path: &Path, entries: &[(String, Vec<u8>)]) {
    let mut out = std::fs::File::create(path).unwrap();
    out.write_all(b"\x5b\x2a\x4d\x18\x10\x00\x00\x00reprise-pack-2\r\n")
        .unwrap();
    let mut archive = tar::Builder::new(zstd::stream::write::Encoder::new(out, 1).unwrap());
    for (name, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_path(name).unwrap();
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        archive.append(&header, &bytes[..]).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
}

/// The last entry of a pack tells the strong hash of each other one: what has no hash of its own in the trace can't be changed either.
#[test]
fn a_pack_whose_contents_were_exchanged_is_refused() {
    let (d, catalog) = catalog();
    let trace = record(&catalog, "t");
    let (packed, out) = (d.path().join("packed"), d.path().join("out"));
    pack::pack(&trace, &packed).unwrap();
    let good = entries(&packed);
    let names: Vec<&str> = good.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names.first(), Some(&MANIFEST_FILE));
    assert_eq!(names.last(), Some(&pack::SUMS_FILE));
    let sums = String::from_utf8(good[good.len() - 1].1.clone()).unwrap();
    let line = |(name, bytes): &(String, Vec<u8>)| {
        let sum = blake3::hash(bytes).to_hex();
        format!("{sum}  {name}\n")
    };
    let told: String = good[..good.len() - 1].iter().map(line).collect();
    assert_eq!(sums, told);
    // As it is, it is taken.
    let again = d.path().join("again");
    seal(&again, &good);
    pack::unpack(&again, &out, 1 << 30).unwrap();
    assert!(!out.join(pack::SUMS_FILE).exists());
    let at = names
        .iter()
        .position(|n| *n == reprise_trace::EVENTS_FILE)
        .unwrap();
    let mut changed = good.clone();
    changed[at].1[0] ^= 1;
    let mut fewer = good.clone();
    fewer.remove(at);
    let unsealed = good[..good.len() - 1].to_vec();
    let mut behind = good.clone();
    behind.push(("summary.json".into(), b"{}".to_vec()));
    let mut twice = good.clone();
    twice.push(good[good.len() - 1].clone());
    for (entries, why) in [
        (changed, "its contents are not those"),
        (fewer, "its contents are not those"),
        (unsealed, "it has no BLAKE3SUMS"),
        (behind, "behind its last one"),
        (twice, "behind its last one"),
    ] {
        seal(&again, &entries);
        let refused = pack::unpack(&again, &d.path().join("refused"), 1 << 30);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
        assert!(!d.path().join("refused").exists());
    }
}

/// An archive with the magic of a pack and these entries after its manifest.
fn forge(path: &Path, entries: &[(&str, tar::EntryType, &[u8])]) {
    let mut out = std::fs::File::create(path).unwrap();
    out.write_all(b"\x5b\x2a\x4d\x18\x10\x00\x00\x00reprise-pack-1\r\n")
        .unwrap();
    let mut archive = tar::Builder::new(zstd::stream::write::Encoder::new(out, 1).unwrap());
    let json = serde_json::to_vec(&common::manifest()).unwrap();
    for (name, kind, bytes) in [
        &[(MANIFEST_FILE, tar::EntryType::Regular, &json[..])],
        entries,
    ]
    .concat()
    {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        if kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_mode(0o644);
        header.set_cksum();
        archive.append(&header, bytes).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
}

#[test]
fn no_entry_leads_out_of_its_directory() {
    use tar::EntryType;
    let d = tempfile::tempdir().unwrap();
    let (packed, out) = (d.path().join("bad"), d.path().join("out"));
    let hex = reprise_trace::ContentHash::of(b"x").to_hex();
    let cases: [(&str, EntryType); 11] = [
        ("../evil", EntryType::Regular),
        ("/tmp/evil", EntryType::Regular),
        ("files/../../evil", EntryType::Regular),
        ("files/abc", EntryType::Regular),
        ("evil", EntryType::Regular),
        ("image", EntryType::Symlink),
        ("files", EntryType::Symlink),
        ("files/", EntryType::Directory),
        ("image", EntryType::GNUSparse),
        ("x", EntryType::GNULongName),
        (MANIFEST_FILE, EntryType::Regular),
    ];
    for (name, kind) in cases {
        forge(
            &packed,
            &[(
                name,
                kind,
                if kind == EntryType::Symlink {
                    b""
                } else {
                    b"x"
                },
            )],
        );
        let result = pack::unpack(&packed, &out, 1 << 30);
        assert!(
            matches!(result, Err(TraceError::Corrupt { .. })),
            "{name} {result:?}"
        );
        assert_eq!(std::fs::read_dir(d.path()).unwrap().count(), 1, "{name}");
    }
    forge(
        &packed,
        &[(&format!("files/{hex}"), EntryType::Regular, b"not x")],
    );
    assert!(pack::unpack(&packed, &out, 1 << 30)
        .unwrap_err()
        .to_string()
        .contains("hash"));
    forge(
        &packed,
        &[(&format!("files/{hex}"), EntryType::Regular, b"x")],
    );
    assert!(matches!(
        pack::unpack(&packed, &out, 100),
        Err(TraceError::Limit { limit: 100, .. })
    ));
    assert_eq!(std::fs::read_dir(d.path()).unwrap().count(), 1);
    pack::unpack(&packed, &out, 1 << 30).unwrap();
    assert!(matches!(
        pack::unpack(&packed, &out, 1 << 30),
        Err(TraceError::Exists { .. })
    ));
}
