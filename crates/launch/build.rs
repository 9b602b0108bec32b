//! Builds the runtime image that the launcher puts into programs, with a nested cargo ([`image`]), and leaves it in `OUT_DIR/runtime.elf`, where the library embeds
//! it.
#![allow(clippy::print_stderr)]

mod image;

use image::Wanted;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// If this variable is set, the image is built quickly, and is slower.
const QUICKLY: &str = "REPRISE_QUICK_IMAGE";

/// What the image is made of, from the workspace's root: a change in any of it builds it again.
const SOURCES: [&str; 5] = [
    "crates/runtime",
    "crates/place",
    "crates/abi",
    "Cargo.toml",
    "Cargo.lock",
];

fn main() {
    let workspace = workspace_root();
    for source in SOURCES {
        println!(
            "cargo:rerun-if-changed={}",
            workspace.join(source).display()
        );
    }
    println!("cargo:rerun-if-env-changed={QUICKLY}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if let Err(message) = build_image(&workspace, &out) {
        eprintln!("{message}");
        std::process::exit(1);
    }
    let image = fs::read(out.join("runtime.elf")).expect("the image that was just built");
    let fingerprint = blake3::hash(&image).to_hex();
    fs::write(out.join("runtime.blake3"), fingerprint.as_str()).expect("OUT_DIR can be written");
}

/// The workspace's root, two directories above this crate.
fn workspace_root() -> PathBuf {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    here.join("../..")
        .canonicalize()
        .expect("the crate lies in crates/launch of the workspace")
}

/// Builds the image and copies it to `out/runtime.elf`.
fn build_image(workspace: &Path, out: &Path) -> Result<(), String> {
    let wanted = Wanted {
        features: "image",
        quickly: env::var_os(QUICKLY).is_some(),
    };
    let built = image::build(workspace, &out.join("runtime-target"), &wanted)?;
    fs::copy(&built, out.join("runtime.elf"))
        .map_err(|error| format!("copying {}: {error}", built.display()))?;
    Ok(())
}
