//! The content store: nothing is kept twice, nothing wrong is kept, nothing needed is collected.

use reprise_trace::store::STORE_DIR;
use reprise_trace::{ContentHash, Store, TraceError, FILES_DIR};
use std::fs::{File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

struct Place {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    Place {
        root: dir.path().to_path_buf(),
        _dir: dir,
    }
}

impl Place {
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.root.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn trace(&self, name: &str) -> PathBuf {
        let path = self.root.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn store(&self) -> Store {
        Store::open(&self.root).unwrap()
    }

    fn contents(&self) -> usize {
        let names = std::fs::read_dir(self.root.join(STORE_DIR))
            .unwrap()
            .flatten();
        let made = ["index", "inputs"];
        names
            .filter(|e| !made.iter().any(|n| e.file_name() == *n))
            .count()
    }

    fn index(&self) -> usize {
        std::fs::read_dir(self.root.join(STORE_DIR).join("index"))
            .unwrap()
            .count()
    }
}

fn keep(store: &Store, path: &Path, trace: &Path) -> ContentHash {
    store
        .keep_into(&File::open(path).unwrap(), path, trace)
        .unwrap()
        .hash
}

#[test]
fn the_same_content_is_kept_once() {
    let p = place();
    let (a, b, t, store) = (
        p.file("a", b"same"),
        p.file("b", b"same"),
        p.trace("t"),
        p.store(),
    );
    let hash = keep(&store, &a, &t);
    assert_eq!(keep(&store, &b, &t), hash);
    assert_eq!(hash, ContentHash::of(b"same"));
    assert_eq!(p.contents(), 1);
    let linked = t.join(FILES_DIR).join(hash.to_hex());
    assert_eq!(std::fs::read(&linked).unwrap(), b"same");
    assert_eq!(std::fs::metadata(&linked).unwrap().nlink(), 2);
    assert_eq!(std::fs::metadata(&linked).unwrap().mode() & 0o777, 0o400);
}

#[test]
fn a_fresh_file_is_hashed_each_time() {
    // Same length, and times set equal: only its ctime differs, and that may be too coarse.
    let p = place();
    let (a, t, store) = (p.file("a", b"one"), p.trace("t"), p.store());
    let times = FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
    File::options()
        .write(true)
        .open(&a)
        .unwrap()
        .set_times(times)
        .unwrap();
    assert_eq!(keep(&store, &a, &t), ContentHash::of(b"one"));
    assert_eq!(p.index(), 0, "its ctime is of now");
    std::fs::write(&a, b"two").unwrap();
    File::options()
        .write(true)
        .open(&a)
        .unwrap()
        .set_times(times)
        .unwrap();
    assert_eq!(keep(&store, &a, &t), ContentHash::of(b"two"));
}

/// A file of the system, older than a minute.
fn settled_file() -> Option<PathBuf> {
    let candidates = [
        "/etc/os-release",
        "/usr/lib/os-release",
        "/etc/passwd",
        "/bin/true",
    ];
    let old = |m: std::fs::Metadata| {
        m.ctime() + 120
            < std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_secs() as i64
    };
    candidates
        .iter()
        .map(PathBuf::from)
        .find(|p| std::fs::metadata(p).is_ok_and(old))
}

#[test]
fn a_settled_file_is_found_by_its_index() {
    let Some(file) = settled_file() else { return };
    let p = place();
    let (t, store) = (p.trace("t"), p.store());
    let hash = keep(&store, &file, &t);
    assert_eq!(p.index(), 1);
    assert_eq!(keep(&store, &file, &p.trace("u")), hash);
    // The index alone is not believed: the content must be there, whole.
    std::fs::remove_dir_all(p.root.join("t")).unwrap();
    std::fs::remove_dir_all(p.root.join("u")).unwrap();
    std::fs::remove_file(store.path_of(hash)).unwrap();
    assert_eq!(keep(&store, &file, &p.trace("v")), hash);
    std::fs::remove_dir_all(p.root.join("v")).unwrap();
    std::fs::remove_file(store.path_of(hash)).unwrap();
    std::fs::write(store.path_of(hash), b"short").unwrap();
    assert_eq!(keep(&store, &file, &p.trace("w")), hash);
    assert_eq!(
        std::fs::read(store.path_of(hash)).unwrap(),
        std::fs::read(&file).unwrap()
    );
}

#[test]
fn large_files_with_holes_come_through() {
    let p = place();
    let mut bytes = vec![0u8; 3 << 20];
    bytes[1_500_000] = 7;
    let (a, t, store) = (p.file("a", &bytes), p.trace("t"), p.store());
    let hash = keep(&store, &a, &t);
    assert!(std::fs::read(t.join(FILES_DIR).join(hash.to_hex())).unwrap() == bytes);
    let empty = keep(&store, &p.file("e", b""), &t);
    assert_eq!(std::fs::metadata(store.path_of(empty)).unwrap().len(), 0);
}

#[test]
fn bytes_are_kept_like_files() {
    let p = place();
    let (t, store) = (p.trace("t"), p.store());
    let kept = store.keep_bytes_into(b"runtime", &t).unwrap();
    assert_eq!(
        store.keep_bytes_into(b"runtime", &p.trace("u")).unwrap(),
        kept
    );
    assert_eq!((kept.len, p.contents()), (7, 1));
    assert_eq!(
        std::fs::read(t.join(FILES_DIR).join(kept.hash.to_hex())).unwrap(),
        b"runtime"
    );
}

#[test]
fn collection_takes_what_no_trace_links() {
    let p = place();
    let (t, store) = (p.trace("t"), p.store());
    let wanted = keep(&store, &p.file("a", b"wanted"), &t);
    let unwanted = store
        .keep(
            &File::open(p.file("b", b"unwanted")).unwrap(),
            Path::new("b"),
        )
        .unwrap();
    std::fs::write(p.root.join(STORE_DIR).join("tmp.1.1"), b"left by a crash").unwrap();
    let collected = store.gc().unwrap().unwrap();
    assert_eq!(collected.files, 2);
    assert!(store.path_of(wanted).exists() && !store.path_of(unwanted.hash).exists());
    let gone = store.link_into(unwanted.hash, &t.join("x"));
    assert!(matches!(gone, Err(TraceError::NoContent { .. })));
}

#[test]
fn only_regular_files_are_kept() {
    let p = place();
    let store = p.store();
    for path in ["/dev/null", "/"] {
        let kept = store.keep(&File::open(path).unwrap(), Path::new(path));
        assert!(matches!(kept, Err(TraceError::NotAFile { .. })), "{path}");
    }
}

#[test]
fn many_recordings_and_a_collector_at_once() {
    let p = place();
    let files: Vec<_> = (0..4u8)
        .map(|i| p.file(&format!("f{i}"), &vec![i + 1; 100_000]))
        .collect();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (p, files) = (&p, &files);
            scope.spawn(move || {
                for round in 0..25 {
                    let t = p.trace(&format!("t{worker}-{round}"));
                    for (i, f) in files.iter().enumerate() {
                        let hash = keep(&p.store(), f, &t);
                        let bytes = std::fs::read(t.join(FILES_DIR).join(hash.to_hex())).unwrap();
                        assert!(bytes == vec![i as u8 + 1; 100_000]);
                    }
                    std::fs::remove_dir_all(&t).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                p.store().gc().unwrap();
            }
        });
    });
    p.store().gc().unwrap();
    assert_eq!(p.contents(), 0);
}

/// Who links a content at the moment when another one puts the same content in its place gets it as well.
#[test]
fn many_keep_the_same_at_the_same_time() {
    const ROUNDS: usize = 400;
    const THREADS: usize = 8;
    let p = place();
    let store = p.store();
    let all = std::sync::Barrier::new(THREADS);
    let traces: Vec<_> = (0..THREADS).map(|i| p.trace(&format!("t{i}"))).collect();
    let failures: usize = std::thread::scope(|s| {
        let threads: Vec<_> = traces
            .iter()
            .map(|trace| {
                s.spawn(|| {
                    let keep = |round: usize| {
                        all.wait();
                        store.keep_bytes_into(format!("content {round}").as_bytes(), trace)
                    };
                    (0..ROUNDS).filter(|round| keep(*round).is_err()).count()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(failures, 0);
    assert_eq!(p.contents(), ROUNDS);
}
