//! `reprise cc`, `reprise c++`, `reprise cargo`: compilers called so that a program's atomic operations and volatile accesses become function
//! calls, which the `order` engine sees (DESIGN 5; Castor 4.2 does it with a compiler pass of its own).
//!
//! clang has such a pass, that of ThreadSanitizer, and options to switch off all of it but the atomics; volatiles become atomics by
//! `-fms-volatile`. What it calls is defined by an object of ours (`cc/atomics.c`), compiled once and linked into every program and library.
//! Without Reprise the program runs as ever.
//!
//! With `--races` plain accesses become calls as well, of functions that do nothing (`cc/races.c`) until [`crate::races`] looks for races.

use crate::cli::CompileArgs;
use anyhow::{bail, Context, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source of what the program calls.
const ATOMICS: &str = include_str!("../cc/atomics.c");
/// What it calls besides when it is built for [`crate::races`].
const RACES: &str = concat!(
    "#define REPRISE_RACES 1\n",
    include_str!("../cc/atomics.c"),
    include_str!("../cc/races.c")
);
/// What a program can say to Reprise.
const HEADER: &str = include_str!("../../../include/reprise.h");
/// Options of the pass, as clang and rustc hand them to LLVM: nothing but atomics.
const PASS: [&str; 3] = [
    "-tsan-instrument-memory-accesses=0",
    "-tsan-instrument-func-entry-exit=0",
    "-tsan-instrument-memintrinsics=0",
];
/// With which memory accesses are told of, too. Calls of functions are not: stacks are found by the tables for unwinding.
const PASS_FOR_RACES: [&str; 1] = ["-tsan-instrument-func-entry-exit=0"];
/// Functions that access memory for the program, and that the linker replaces.
const WRAPPED: [&str; 3] = ["memcpy", "memmove", "memset"];
/// Symbols that the runtime looks for, and other modules of the program use.
const EXPORTS: [&str; 2] = ["__tsan_*", "reprise_cc_*"];
/// Options of a compiler that take the next argument as their value.
const WITH_VALUE: [&str; 37] = [
    "-o",
    "-x",
    "-I",
    "-L",
    "-D",
    "-U",
    "-F",
    "-B",
    "-l",
    "-u",
    "-z",
    "-T",
    "-e",
    "-A",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-isysroot",
    "--sysroot",
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-Xclang",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-mllvm",
    "-target",
    "-arch",
    "-gcc-toolchain",
    "--param",
    "-working-directory",
];
/// Options with which nothing is linked.
const WITHOUT_LINKING: [&str; 9] = [
    "-c",
    "-S",
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "-r",
    "--precompile",
    "--analyze",
];

/// The compiler to call: what this variable says, else this command.
fn compiler(variable: &str, otherwise: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| otherwise.into())
}

/// Does the compiler link something when it is called like this?
fn links(args: &[OsString]) -> bool {
    let mut inputs = 0;
    let mut value = false;
    for a in args.iter().map(|a| a.to_string_lossy()) {
        if std::mem::take(&mut value) {
            continue;
        }
        if WITHOUT_LINKING.contains(&&*a) {
            return false;
        }
        value = WITH_VALUE.contains(&&*a);
        inputs += usize::from(!a.starts_with('-') || a == "-");
    }
    inputs > 0
}

/// Where objects of ours are kept.
pub(crate) fn cache() -> Result<PathBuf> {
    let dir = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|d| d.is_absolute());
    let home = || std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache"));
    let dir = dir
        .or_else(home)
        .context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(dir.join("reprise"))
}

/// Puts a file into the cache under this name, whole, if it isn't there yet.
fn keep(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    if path.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(dir).with_context(|| format!("can't make {}", dir.display()))?;
    let made = tempfile::NamedTempFile::new_in(dir)
        .with_context(|| format!("can't write to {}", dir.display()))?;
    std::fs::write(made.path(), text)?;
    made.persist(path)?;
    Ok(())
}

/// The directory of `reprise.h`.
fn headers() -> Result<PathBuf> {
    let key = xxhash_rust::xxh3::xxh3_64(HEADER.as_bytes());
    let dir = cache()?.join(format!("include-{key:016x}"));
    keep(&dir, "reprise.h", HEADER)?;
    Ok(dir)
}

/// `reprise header`
pub fn header() -> Result<()> {
    Ok(reprise_console::tell_text(HEADER)?)
}

/// The object that is linked into programs, compiled by `compiler` if it isn't there yet.
fn support(compiler: &OsStr, text: &str) -> Result<PathBuf> {
    let dir = cache()?;
    let key = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
    let object = dir.join(format!("atomics-{key:016x}.o"));
    if object.exists() {
        return Ok(object);
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("can't make {}", dir.display()))?;
    // Several compilations may be at it: each with files of its own, and the last one stays.
    let work =
        tempfile::tempdir_in(&dir).with_context(|| format!("can't write to {}", dir.display()))?;
    let (source, made) = (work.path().join("atomics.c"), work.path().join("atomics.o"));
    std::fs::write(&source, text)?;
    let done = Command::new(compiler)
        .args(["-x", "c", "-O2", "-fPIC", "-g0", "-c"])
        .args([source.as_os_str(), OsStr::new("-o"), made.as_os_str()])
        .output()
        .with_context(|| missing(compiler))?;
    if !done.status.success() {
        bail!(
            "{} can't compile what programs are linked with: {}",
            compiler.to_string_lossy(),
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    std::fs::rename(&made, &object)?;
    Ok(object)
}

fn missing(compiler: &OsStr) -> String {
    format!(
        "can't run {}: clang is needed (Debian: apt install clang)",
        compiler.to_string_lossy()
    )
}

/// Becomes that command.
fn become_command(mut command: Command) -> Result<i32> {
    let name = command.get_program().to_owned();
    Err(command.exec()).with_context(|| missing(&name))
}

/// `reprise cc` and `reprise c++`: clang with the arguments given. `--races` in front of them is ours.
fn clang(compiler: &OsStr, args: &[OsString]) -> Result<i32> {
    let races = args.first().is_some_and(|a| a == "--races");
    let args = if races { &args[1..] } else { args };
    if args
        .iter()
        .any(|a| a.to_string_lossy().starts_with("-fsanitize=thread"))
    {
        bail!("-fsanitize=thread can't be had together with what this command does: record such a program with --engine serial");
    }
    let mut command = Command::new(compiler);
    command.args(["-Xclang", "-fms-volatile", "-Xclang", "-fsanitize=thread"]);
    let (pass, text) = match races {
        true => (&PASS_FOR_RACES[..], RACES),
        false => (&PASS[..], ATOMICS),
    };
    command.args(pass.iter().flat_map(|p| ["-mllvm", p]));
    if races {
        // For the lines in the report, unless the program's own options say more.
        command.arg("-gline-tables-only");
    }
    command.arg("-idirafter").arg(headers()?);
    // Options of the pass have no meaning in a call that only links.
    command.arg("-Wno-unused-command-line-argument");
    command.args(args);
    if links(args) {
        // Behind the program's own inputs, whatever language an -x before said they were in.
        command.args(["-x", "none"]).arg(support(compiler, text)?);
        command.args(EXPORTS.map(|e| format!("-Wl,--export-dynamic-symbol={e}")));
        if races {
            command.args(WRAPPED.map(|f| format!("-Wl,--wrap={f}")));
        }
    }
    become_command(command)
}

/// `reprise cc`
pub fn c(args: &CompileArgs) -> Result<i32> {
    clang(&compiler("REPRISE_CC", "clang"), &args.args)
}

/// `reprise c++`
pub fn cxx(args: &CompileArgs) -> Result<i32> {
    clang(&compiler("REPRISE_CXX", "clang++"), &args.args)
}

/// `reprise cargo`: the pass for every crate, as cargo hands it to rustc.
pub fn cargo(args: &CompileArgs) -> Result<i32> {
    if args.args.first().is_some_and(|a| a == "--races") {
        bail!("--races is for cc and c++: stable Rust can't be told to instrument memory accesses");
    }
    // Flags are separated by this where they may hold spaces (cargo's CARGO_ENCODED_RUSTFLAGS).
    const BETWEEN: char = '\x1f';
    let object = support(&compiler("REPRISE_CC", "clang"), ATOMICS)?;
    let object = object.to_str().context("the cache's path is not UTF-8")?;
    let mut flags: Vec<String> = match std::env::var("CARGO_ENCODED_RUSTFLAGS") {
        Ok(flags) => flags.split(BETWEEN).map(String::from).collect(),
        Err(_) => {
            let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
            flags.split_whitespace().map(String::from).collect()
        }
    };
    flags.extend(["-Cpasses=tsan-module", "-Cpasses=tsan"].map(String::from));
    flags.push(format!("-Cllvm-args={}", PASS.join(" ")));
    flags.push(format!("-Clink-arg={object}"));
    flags.extend(EXPORTS.map(|e| format!("-Clink-arg=-Wl,--export-dynamic-symbol={e}")));
    flags.retain(|f| !f.is_empty());
    let mut command = Command::new(compiler("CARGO", "cargo"));
    command.args(&args.args);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join(&BETWEEN.to_string()));
    become_command(command)
}

#[cfg(test)]
mod tests {
    use super::links;
    use std::ffi::OsString;

    #[test]
    fn what_links() {
        let links = |line: &str| links(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(links("a.c -o a"));
        assert!(links("-O2 a.o b.o -lpthread"));
        assert!(links("-shared -o liba.so a.o"));
        assert!(links("@file"));
        assert!(!links("-c a.c -o a.o"));
        assert!(!links("--version"));
        assert!(!links("-v"));
        assert!(!links("-o a -I include -MF a.d"));
        assert!(!links("-E -x c -"));
    }
}
