//! `reprise go`: the installed Go toolchain, called so that a program's goroutines can be recorded ([`reprise_goroutines`]).
//!
//! Files of Go's runtime and standard library are replaced by changed ones (`-overlay`); GOROOT is not touched, and the build cache knows both. Functions of
//! sync/atomic are instructions to the compiler; in packages that import it they become calls again (`-d=ssa/intrinsics/off`).
//! A program built so runs as ever when it is not recorded.

use crate::cli::CompileArgs;
use crate::compile;
use anyhow::{bail, Context, Result};
use reprise_goroutines::overlay::Version;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Subcommands that build something.
const BUILDING: [&str; 5] = ["build", "install", "run", "test", "vet"];
/// Packages of the standard library that use functions of sync/atomic where goroutines can see it.
const STANDARD: [&str; 4] = ["net", "net/http", "os/exec", "go/types"];
/// Options whose value may be the next word.
const WITH_VALUE: [&str; 48] = [
    "C",
    "p",
    "asmflags",
    "buildmode",
    "buildvcs",
    "compiler",
    "gccgoflags",
    "gcflags",
    "installsuffix",
    "ldflags",
    "mod",
    "modfile",
    "overlay",
    "pgo",
    "pkgdir",
    "tags",
    "toolexec",
    "o",
    "covermode",
    "coverpkg",
    "coverprofile",
    "run",
    "skip",
    "count",
    "bench",
    "benchtime",
    "timeout",
    "parallel",
    "cpu",
    "shuffle",
    "fuzz",
    "fuzztime",
    "fuzzminimizetime",
    "exec",
    "vet",
    "vettool",
    "outputdir",
    "cpuprofile",
    "memprofile",
    "memprofilerate",
    "blockprofile",
    "blockprofilerate",
    "mutexprofile",
    "mutexprofilefraction",
    "trace",
    "list",
    "godebug",
    "test.run",
];
/// Those that `go list` wants as well.
const FOR_LIST: [&str; 5] = ["C", "mod", "modfile", "tags", "compiler"];

/// What a command line of `go` asks for.
#[derive(Default, Debug, PartialEq, Eq)]
struct Asked {
    /// Options for `go list`.
    options: Vec<String>,
    /// Packages or files.
    packages: Vec<String>,
    /// Names of all options.
    names: BTreeSet<String>,
}

impl Asked {
    /// Of the words behind the subcommand.
    fn of(subcommand: &str, words: &[String]) -> Asked {
        let mut asked = Asked::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if subcommand == "test" && (word == "-args" || word == "--args") {
                break;
            }
            let Some(option) = word
                .strip_prefix("--")
                .or_else(|| word.strip_prefix('-'))
                .filter(|o| !o.is_empty())
            else {
                asked.packages.push(word.clone());
                if subcommand == "run" && !word.ends_with(".go") {
                    break;
                }
                continue;
            };
            let name = option.split('=').next().unwrap_or_default();
            asked.names.insert(name.into());
            let mut all = vec![word.clone()];
            if WITH_VALUE.contains(&name) && !option.contains('=') {
                all.extend(words.next().cloned());
            }
            if FOR_LIST.contains(&name) {
                asked.options.extend(all);
            }
        }
        asked
    }
}

/// `reprise go`
///
/// # Errors
/// When the installed Go is not known, or asked for what can't be recorded.
pub fn run(args: &CompileArgs) -> Result<i32> {
    let go = std::env::var_os("REPRISE_GO").unwrap_or_else(|| "go".into());
    let words: Vec<String> = args
        .args
        .iter()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    let Some(subcommand) = words.first().filter(|w| BUILDING.contains(&w.as_str())) else {
        return become_go(Command::new(&go), &args.args, &go);
    };
    let asked = Asked::of(subcommand, &words[1..]);
    for (option, why) in [
        ("overlay", "reprise go has an overlay of its own"),
        ("gcflags", "reprise go sets it itself"),
        (
            "race",
            "the race detector has a scheduler's eye of its own, and can't be recorded",
        ),
        ("msan", "sanitizers can't be recorded"),
        ("asan", "sanitizers can't be recorded"),
    ] {
        if asked.names.contains(option) {
            bail!("-{option} can't be had: {why}");
        }
    }
    let dir = words
        .iter()
        .position(|w| w == "-C" || w == "--C")
        .and_then(|i| words.get(i + 1))
        .map(PathBuf::from);
    let about = environment(&go, dir.as_deref())?;
    let [version, root, os, arch, flags] = &about[..] else {
        bail!("go env said something unexpected");
    };
    if (os.as_str(), arch.as_str()) != ("linux", "amd64") {
        bail!("goroutines can be recorded on linux/amd64, not {os}/{arch}");
    }
    if ["-gcflags", "-overlay", "-race"]
        .iter()
        .any(|f| flags.contains(f))
    {
        bail!("GOFLAGS has -gcflags, -overlay or -race, which reprise go can't have: {flags}");
    }
    if std::env::var_os("CGO_ENABLED").is_some_and(|v| v == "1") {
        bail!("what C code does is not recorded: programs with cgo can't be had (CGO_ENABLED=1)");
    }
    let version = Version::named(version)?;
    let root = Path::new(root);
    let key = xxhash_rust::xxh3::xxh3_64(format!("{}{}", version.key(), root.display()).as_bytes());
    let cache = compile::cache()?.join(format!("{}-{key:016x}", version.name));
    std::fs::create_dir_all(&cache).with_context(|| format!("can't make {}", cache.display()))?;
    let overlay = version.write(root, &cache)?;
    let mut command = Command::new(&go);
    command.env("CGO_ENABLED", "0");
    command.arg(subcommand);
    // -C has to be the first option.
    let first = match words.get(1).map(String::as_str) {
        Some("-C" | "--C") => 3,
        Some(w) if w.starts_with("-C=") || w.starts_with("--C=") => 2,
        _ => 1,
    };
    command.args(&args.args[1..first.min(args.args.len())]);
    command.arg(format!("-overlay={}", overlay.display()));
    let found = using_atomics(&go, subcommand == "test", &asked);
    for package in STANDARD.iter().map(|p| p.to_string()).chain(found) {
        command.arg(format!("-gcflags={package}=-d=ssa/intrinsics/off"));
    }
    become_go(command, &args.args[first.min(args.args.len())..], &go)
}

fn become_go(mut command: Command, words: &[OsString], go: &OsStr) -> Result<i32> {
    Err(command.args(words).exec())
        .with_context(|| format!("can't run {}: Go is needed", go.to_string_lossy()))
}

/// What `go env` says: version, root, system, processor, flags. In the program's directory another toolchain may be chosen.
fn environment(go: &OsStr, dir: Option<&Path>) -> Result<Vec<String>> {
    let mut command = Command::new(go);
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    let done = command
        .args(["env", "GOVERSION", "GOROOT", "GOOS", "GOARCH", "GOFLAGS"])
        .output();
    let done = done.with_context(|| format!("can't run {}: Go is needed", go.to_string_lossy()))?;
    if !done.status.success() {
        bail!("go env: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout)
        .lines()
        .map(String::from)
        .collect())
}

/// Packages outside of the standard library that import sync/atomic. What can't be found out, the build itself will complain of.
fn using_atomics(go: &OsStr, tests: bool, asked: &Asked) -> BTreeSet<String> {
    const FORMAT: &str = "{{if not .Standard}}{{range .Imports}}{{if eq . \"sync/atomic\"}}{{$.ImportPath}}\n{{end}}{{end}}{{end}}";
    let mut command = Command::new(go);
    command
        .arg("list")
        .args(&asked.options)
        .args(["-deps", "-e", "-f", FORMAT]);
    if tests {
        command.arg("-test");
    }
    let done = command
        .env("CGO_ENABLED", "0")
        .args(&asked.packages)
        .output();
    let text = done
        .map(|d| String::from_utf8_lossy(&d.stdout).into_owned())
        .unwrap_or_default();
    // A package that is compiled for a test is called "P [P.test]".
    text.lines()
        .filter_map(|l| l.split(' ').next())
        .filter(|l| !l.is_empty())
        .map(String::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Asked {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        Asked::of(&words[0], &words[1..])
    }

    #[test]
    fn packages_are_told_from_options() {
        let a = asked("build -C dir -o out -tags x,y -v ./cmd/server ./b");
        assert_eq!(a.packages, ["./cmd/server", "./b"]);
        assert_eq!(a.options, ["-C", "dir", "-tags", "x,y"]);
        assert_eq!(asked("run -race . -overlay=x").packages, ["."]);
        assert!(!asked("run . -overlay=x").names.contains("overlay"));
        assert_eq!(asked("run a.go b.go").packages, ["a.go", "b.go"]);
        let t = asked("test -run X -count=1 ./... -args -race");
        assert_eq!(t.packages, ["./..."]);
        assert!(!t.names.contains("race"));
        assert!(asked("test --race").names.contains("race"));
    }
}
