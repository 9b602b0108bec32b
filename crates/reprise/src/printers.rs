//! What gdb needs to show values of Rust and Go as people write them: scripts that come with the compiler, and that a program names in a section.

use object::{Object, ObjectSection, ReadCache};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The script that a program of rustc's names.
const OF_RUST: &str = "gdb_load_rust_pretty_printers.py";
/// Where that of Go's is in Go's own tree.
const OF_GO: &str = "src/runtime/runtime-gdb.py";
/// Where the names are.
const SECTION: &str = ".debug_gdb_scripts";
/// Where distributions put Rust's scripts, ...
const RUST_OF_DISTRIBUTIONS: &str = "/usr/lib/rustlib/etc";
/// ... and where Go is, when nobody has it in his path.
const PLACES_OF_GO: [&str; 2] = ["/usr/local/go", "/usr/lib/go"];

/// Has gdb load what shows the values of this program, where there is its compiler. gdb loads scripts only from places that it is told to
/// trust; these are the compilers' own.
pub fn load(gdb: &mut Command, program: &Path) {
    let Some(named) = named_by(program) else {
        return;
    };
    let names = |script: &str| named.windows(script.len()).any(|w| w == script.as_bytes());
    if names(OF_RUST) {
        load_for_rust(gdb);
    }
    if names(OF_GO) {
        load_for_go(gdb, &named);
    }
}

fn load_for_rust(gdb: &mut Command) {
    let Some(dir) = directory_of_rust() else {
        return;
    };
    trust(gdb, &dir);
    gdb.arg("--directory").arg(&dir);
    let old = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let paths = std::iter::once(dir).chain(std::env::split_paths(&old));
    if let Ok(path) = std::env::join_paths(paths.filter(|p| !p.as_os_str().is_empty())) {
        gdb.env("PYTHONPATH", path);
    }
}

/// Only the script of this machine's Go is trusted, not any that a trace names.
fn load_for_go(gdb: &mut Command, named: &[u8]) {
    let own = said_by(Command::new("go").args(["env", "GOROOT"]));
    let places = own.into_iter().chain(PLACES_OF_GO.map(PathBuf::from));
    for script in places.map(|root| root.join(OF_GO)) {
        let text = script.to_string_lossy().into_owned();
        let is_named = named.windows(text.len()).any(|w| w == text.as_bytes());
        if is_named && script.exists() {
            return trust(gdb, &script);
        }
    }
}

fn trust(gdb: &mut Command, path: &Path) {
    let mut trust = OsString::from("add-auto-load-safe-path ");
    trust.push(path);
    gdb.arg("-iex").arg(trust);
}

/// The section of a program that names scripts.
fn named_by(program: &Path) -> Option<Vec<u8>> {
    let cache = ReadCache::new(File::open(program).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let names = file.section_by_name(SECTION)?.data().ok()?;
    Some(names.to_vec())
}

fn directory_of_rust() -> Option<PathBuf> {
    let sysroot = said_by(Command::new("rustc").args(["--print", "sysroot"]));
    let own = sysroot.map(|s| s.join("lib/rustlib/etc"));
    let mut all = own.into_iter().chain([RUST_OF_DISTRIBUTIONS.into()]);
    all.find(|dir| dir.join(OF_RUST).exists())
}

/// The path that a compiler prints.
fn said_by(command: &mut Command) -> Option<PathBuf> {
    let asked = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = String::from_utf8(asked.ok()?.stdout).ok()?;
    let path = text.trim();
    (!path.is_empty()).then(|| path.into())
}
