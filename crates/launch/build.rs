//! Builds the runtime image that the launcher puts into programs, with a nested cargo ([`image`]), relocates it ([`prelink`]), and leaves it in
//! `OUT_DIR/runtime.elf`, where the library embeds it, with its hashes beside it.
#![allow(clippy::print_stderr)]

mod image;
mod prelink;

use image::Wanted;
use std::path::{Path, PathBuf};
use std::{env, fs};
use xxhash_rust::xxh3::{xxh3_128, xxh3_64};

/// If this variable is set, the image is built quickly, and is slower.
const QUICKLY: &str = "REPRISE_QUICK_IMAGE";

/// What the image is made of, from the workspace's root: a change in any of it builds it again.
const SOURCES: [&str; 7] = [
    "crates/runtime",
    "crates/place",
    "crates/code",
    "crates/heap",
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
    let hashes = [
        ("blake3", blake3::hash(&image).to_string()),
        ("xxh3", format!("{:032x}", xxh3_128(&image))),
        ("build", format!("{:#x}", xxh3_64(&image))),
    ];
    for (name, hash) in hashes {
        let path = out.join(format!("runtime.{name}"));
        fs::write(path, hash).expect("OUT_DIR can be written");
    }
}

/// The workspace's root, two directories above this crate.
fn workspace_root() -> PathBuf {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    here.join("../..")
        .canonicalize()
        .expect("the crate lies in crates/launch of the workspace")
}

/// The nested cargo's target directory: one beside all that this one builds. The script runs once for each way in which the crate is built,
/// and the image is the same for all of them.
fn nested_target(out: &Path, quickly: bool) -> PathBuf {
    /// `OUT_DIR` is `<profile>/build/<package>/out`.
    const PROFILE: usize = 3;
    let profile = out.ancestors().nth(PROFILE).unwrap_or(out);
    profile.join(match quickly {
        true => "runtime-image-quick",
        false => "runtime-image",
    })
}

/// Builds the image and puts it, relocated, into `out/runtime.elf`.
fn build_image(workspace: &Path, out: &Path) -> Result<(), String> {
    let wanted = Wanted {
        features: "image",
        quickly: env::var_os(QUICKLY).is_some(),
    };
    let built = image::build(workspace, &nested_target(out, wanted.quickly), &wanted)?;
    let failed = |error| format!("copying {}: {error}", built.display());
    let mut image = fs::read(&built).map_err(failed)?;
    let plan = prelink::Plan::of(&image);
    let plan = plan.map_err(|why| format!("the runtime's image: {why}"))?;
    plan.apply(&mut image);
    fs::write(out.join("runtime.elf"), image).map_err(failed)
}
