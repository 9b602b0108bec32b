//! Builds the runtime's image with a cargo of its own, and a target directory of its own (the outer cargo has locked the usual one). It is a part of the build script,
//! and of a test that wants an image with other features.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of the runtime: no vector registers in generated code, no libc.
const TARGET: &str = "x86_64-unknown-none";

/// The binary of `reprise-runtime` that is the image.
const IMAGE: &str = "reprise-runtime-image";

/// The workspace has this crate's unit tests built quickly.
const OPTIMISED: &str = "profile.release.package.reprise-runtime.opt-level=3";

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

/// What is wanted of a build.
pub struct Wanted<'a> {
    /// Features, with commas in between.
    pub features: &'a str,
    /// Soon, and slower.
    pub quickly: bool,
}

/// Builds the image in this target directory; where it is. An error is what cargo said, and what to do.
pub fn build(workspace: &Path, target_dir: &Path, wanted: &Wanted) -> Result<PathBuf, String> {
    let build = || cargo_build(workspace, target_dir, wanted);
    match build() {
        // rustup installs what rust-toolchain.toml names, unless it was told not to.
        Err(said) if said.contains("E0463") && add_target(workspace) => build(),
        other => other,
    }
    .map_err(|said| {
        let advice = match said.contains("E0463") {
            true => format!("\n\nthe target of the runtime is not installed: run `rustup target add {TARGET}`\n"),
            false => String::new(),
        };
        format!("building the runtime image failed:\n{said}{advice}")
    })?;
    Ok(target_dir.join(TARGET).join("release").join(IMAGE))
}

/// Has rustup install the runtime's target; says whether it did.
fn add_target(workspace: &Path) -> bool {
    Command::new("rustup")
        .current_dir(workspace)
        .args(["target", "add", TARGET])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Runs the nested cargo; an error is what it said.
fn cargo_build(workspace: &Path, target_dir: &Path, wanted: &Wanted) -> Result<(), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace)
        .args(["build", "-p", "reprise-runtime", "--bin", IMAGE])
        .args([
            "--features",
            wanted.features,
            "--release",
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(target_dir)
        .args(["--config", OPTIMISED]);
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
    match wanted.quickly {
        true => command
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true"),
        false => command
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
