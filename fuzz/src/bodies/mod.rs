//! What the fuzz targets do with their bytes: one function for each. Here and not in `fuzz_targets/`, because `crates/debug/tests/fuzz_targets.rs`
//! compiles and runs the same text without a fuzzer, so that it doesn't rot.

mod bytes;
mod elf;
mod entries;
mod filters;
mod lengths;
mod manifest;
mod names;
mod pack;
mod requests;

pub use elf::elf;
pub use entries::entries;
pub use filters::filters;
pub use lengths::lengths;
pub use manifest::manifest;
pub use names::names;
pub use pack::pack;
pub use requests::requests;

/// Where files of this process are tried out: each by a name of its own, so that targets can run beside each other.
fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("reprise-fuzz-")
        .tempdir()
        .expect("a directory for temporary files")
}
