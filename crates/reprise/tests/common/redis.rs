//! redis as the tests start it.

use super::Guest;
use std::path::{Path, PathBuf};

/// It serves on `port`, and keeps nothing but what it writes to `data`. `more`: other arguments.
pub fn redis(program: impl Into<PathBuf>, port: u16, data: &Path, more: &[&str]) -> Guest {
    let port = port.to_string();
    let usual = [
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
    ];
    let guest = Guest::program(program.into()).args(usual).args([data]);
    guest.args(more.iter().copied())
}
