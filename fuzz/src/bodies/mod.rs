//! What the fuzz targets do with their bytes: one function for each. Here and not in `fuzz_targets/`, because `crates/agent/tests/fuzz_targets.rs`
//! compiles and runs the same text without a fuzzer, so that it doesn't rot.

mod bytes;
mod entries;
mod manifest;
mod pack;
mod requests;

pub use entries::entries;
pub use manifest::manifest;
pub use pack::pack;
pub use requests::requests;

/// Where files of this process are tried out: each by a name of its own, so that targets can run beside each other.
fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("reprise-fuzz-")
        .tempdir()
        .expect("a directory for temporary files")
}
