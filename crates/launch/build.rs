//! Builds the runtime image that the launcher puts into programs, with a nested cargo of its own
//! target directory (a shared one would wait on the lock that the outer cargo holds), and leaves
//! it in `OUT_DIR/runtime.elf`, where the library embeds it.
#![allow(clippy::print_stderr)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The target of the runtime: no vector registers in generated code, no libc.
const TARGET: &str = "x86_64-unknown-none";

/// The binary of `reprise-runtime` that is the image.
const IMAGE: &str = "reprise-runtime-image";

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

/// What the outer cargo, rustc or clippy set for this build and the image's must not inherit:
/// flags and wrappers of the host, and the profile's overrides.
const NOT_INHERITED: [&str; 12] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
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
    match cargo_build(workspace, out) {
        // rustup installs what rust-toolchain.toml names, unless it was told not to.
        Err(said) if said.contains("E0463") && add_target(workspace) => cargo_build(workspace, out),
        other => other,
    }
    .map_err(|said| {
        let advice = match said.contains("E0463") {
            true => format!("\n\nthe target of the runtime is not installed: run `rustup target add {TARGET}`\n"),
            false => String::new(),
        };
        format!("building the runtime image failed:\n{said}{advice}")
    })?;
    let built = target_dir(out).join(TARGET).join("release").join(IMAGE);
    fs::copy(&built, out.join("runtime.elf"))
        .map_err(|error| format!("copying {}: {error}", built.display()))?;
    Ok(())
}

/// Has rustup install the runtime's target; says whether it did.
fn add_target(workspace: &Path) -> bool {
    Command::new("rustup")
        .current_dir(workspace)
        .args(["target", "add", TARGET])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Where the nested cargo works.
fn target_dir(out: &Path) -> PathBuf {
    out.join("runtime-target")
}

/// Runs the nested cargo; an error is what it said.
fn cargo_build(workspace: &Path, out: &Path) -> Result<(), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace)
        .args(["build", "-p", "reprise-runtime", "--bin", IMAGE])
        .args(["--features", "image", "--release", "--target", TARGET])
        .arg("--target-dir")
        .arg(target_dir(out));
    if workspace.join("Cargo.lock").exists() && env::var("CARGO_NET_OFFLINE").is_ok() {
        command.arg("--offline");
    }
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        if is_of_outer_build(&name) {
            command.env_remove(name);
        }
    }
    // Gates cross crates at every step: whole-program optimisation halves their cost. It takes a minute, too: who works on the runtime can do without.
    match env::var_os(QUICKLY) {
        Some(_) => command
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true"),
        None => command
            .env("CARGO_PROFILE_RELEASE_LTO", "fat")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    };
    let output = command
        .output()
        .map_err(|error| format!("cargo can't be started: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Whether a variable belongs to the outer build's profile or target and would change the image.
fn is_of_outer_build(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PROFILE_")
        || (name.starts_with("CARGO_TARGET_") && name != "CARGO_TARGET_DIR")
}
