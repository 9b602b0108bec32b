//! Every path that a document names is there, and every link leads somewhere.

use reprise_tidy::documents::{links, paths_named};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents: those of the root, and all below docs/.
fn documents() -> Vec<PathBuf> {
    let (mut all, mut left) = (Vec::new(), vec![root(), root().join("docs")]);
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).expect("a folder of documents") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "md") {
                all.push(path);
            } else if path.is_dir() && dir != root() {
                left.push(path);
            }
        }
    }
    all
}

#[test]
fn what_documents_name_is_there() {
    let all = documents();
    assert!(all.len() > 10, "the documents are somewhere else: {all:?}");
    let mut missing = Vec::new();
    for document in all {
        let text = std::fs::read_to_string(&document).expect("a document");
        let here = document.parent().expect("a folder").to_path_buf();
        let paths = paths_named(&text).into_iter().map(|p| root().join(p));
        let links = links(&text).into_iter().map(|l| here.join(l));
        for path in paths.chain(links).filter(|p| !p.exists()) {
            missing.push(format!("{}: {}", document.display(), path.display()));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
