//! See `fuzz_targets/manifest.rs`.

use reprise_trace::{Manifest, Summary, FORMAT_VERSION, MANIFEST_FILE};
use std::path::Path;

/// Reads `data` as a manifest, and as a summary.
pub fn manifest(data: &[u8]) {
    let name = Path::new(MANIFEST_FILE);
    if let Ok(manifest) = Manifest::parse(name, data) {
        assert!(manifest.format_version <= FORMAT_VERSION);
        let json = serde_json::to_vec(&manifest).expect("a manifest can be written");
        let again = Manifest::parse(name, &json).expect("and what was written can be read");
        assert_eq!(again, manifest);
    }
    if let Ok(summary) = serde_json::from_slice::<Summary>(data) {
        let json = serde_json::to_vec(&summary).expect("a summary can be written");
        let again: Summary = serde_json::from_slice(&json).expect("and read");
        assert_eq!(again, summary);
    }
}
