//! What gdb needs to show values of Rust as people write them: scripts that come with the compiler, and that a program names in a section.

use object::{Object, ObjectSection, ReadCache};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The script that a program of rustc's names.
const SCRIPT: &str = "gdb_load_rust_pretty_printers.py";
/// Where the name is.
const SECTION: &str = ".debug_gdb_scripts";
/// Where distributions put the scripts.
const OF_DISTRIBUTIONS: &str = "/usr/lib/rustlib/etc";

/// Has gdb load what shows the values of this program, where it is one of Rust, and there is a compiler. gdb loads scripts only from places that
/// it is told to trust; this one is the compiler's own.
pub fn load(gdb: &mut Command, program: &Path) {
    if !names_it(program).unwrap_or(false) {
        return;
    }
    let Some(dir) = directory() else {
        return;
    };
    let mut trust = OsString::from("add-auto-load-safe-path ");
    trust.push(&dir);
    gdb.arg("-iex").arg(trust).arg("--directory").arg(&dir);
    let old = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let paths = std::iter::once(dir).chain(std::env::split_paths(&old));
    if let Ok(path) = std::env::join_paths(paths.filter(|p| !p.as_os_str().is_empty())) {
        gdb.env("PYTHONPATH", path);
    }
}

fn names_it(program: &Path) -> Option<bool> {
    let cache = ReadCache::new(File::open(program).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let names = file.section_by_name(SECTION)?.data().ok()?;
    let wanted = SCRIPT.as_bytes();
    Some(names.windows(wanted.len()).any(|w| w == wanted))
}

fn directory() -> Option<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]).stdin(Stdio::null());
    let asked = rustc.stderr(Stdio::null()).output().ok();
    let sysroot = asked.and_then(|o| String::from_utf8(o.stdout).ok());
    let own = sysroot.map(|s| Path::new(s.trim()).join("lib/rustlib/etc"));
    let mut all = own.into_iter().chain([OF_DISTRIBUTIONS.into()]);
    all.find(|dir| dir.join(SCRIPT).exists())
}
