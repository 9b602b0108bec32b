//! Which programs the engines `order` and `det` can't run, told before they are started: they need a glibc whose functions they can find by name
//! (DESIGN 5). Goroutines and Java's threads meet in code that their runtimes generate or carry along, which nobody orders.

use object::elf::{FileHeader64, DT_NEEDED, PT_INTERP, PT_NOTE, SHT_DYNSYM};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::{LittleEndian as Le, ReadCache, ReadRef};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Interpreters of interpreters that are followed.
const MAX_SCRIPTS: usize = 4;
/// Bytes of a script's first line that are looked at.
const LINE: u64 = 256;

/// Why a program can't be run by `order` and `det`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It has no libc whose functions could be found by their names.
    Static,
    /// Its libc is another one.
    OtherLibc,
    /// Written in Go.
    Go,
    /// A Java virtual machine.
    Java,
    /// JavaScript's, V8.
    Node,
    /// Erlang's virtual machine.
    Beam,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unfit::Static => {
                "it is linked statically: there is no libc whose functions can be found"
            }
            Unfit::OtherLibc => "its C library is not glibc",
            Unfit::Go => "it is written in Go: its threads meet in the code of Go's own scheduler",
            Unfit::Java => {
                "it is a Java virtual machine: its threads meet in code that it generates"
            }
            Unfit::Node => "it is Node.js: its threads meet by plain atomic loads in V8",
            Unfit::Beam => {
                "it is Erlang's virtual machine: its schedulers meet by plain atomic loads"
            }
        })
    }
}

/// What stands against running this program by `order` or `det`; of a script, its interpreter counts. What can't be read is left to others to
/// complain of.
pub fn unfit(program: &Path) -> Option<Unfit> {
    let mut path = program.to_path_buf();
    for _ in 0..MAX_SCRIPTS {
        match interpreter(&path) {
            Some(next) => path = next,
            None => break,
        }
    }
    // Such a program may be large, and little of it is looked at.
    judge(&ReadCache::new(std::fs::File::open(&path).ok()?))
}

/// The program that a script names in its first line.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    let file = std::fs::File::open(script).ok()?;
    file.take(LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let word = line
        .split(|b| matches!(b, b' ' | b'\t'))
        .find(|w| !w.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

fn judge<'a, R: ReadRef<'a>>(data: R) -> Option<Unfit> {
    let header = FileHeader64::<Le>::parse(data).ok()?;
    let segments = header.program_headers(Le, data).ok()?;
    // The note by which every program of Go's linker is known, stripped or not.
    let is_go = |s: &object::elf::ProgramHeader64<Le>| {
        s.p_type(Le) == PT_NOTE
            && s.data(Le, data)
                .is_ok_and(|d| d.windows(4).any(|w| w == b"Go\0\0"))
    };
    if segments.iter().any(is_go) {
        return Some(Unfit::Go);
    }
    let Some(interpreter) = segments.iter().find(|s| s.p_type(Le) == PT_INTERP) else {
        return Some(Unfit::Static);
    };
    let name = interpreter.data(Le, data).ok()?;
    if !name.windows(8).any(|w| w == b"ld-linux") {
        return Some(Unfit::OtherLibc);
    }
    let needs = |library: &[u8]| needed(header, data).is_some_and(|l| l.contains(&library));
    if needs(b"libjli.so") || needs(b"libjvm.so") {
        return Some(Unfit::Java);
    }
    let exports = |names: &[&[u8]]| exports_one_of(header, data, names).unwrap_or(false);
    let is_node =
        needed(header, data).is_some_and(|l| l.iter().any(|n| n.starts_with(b"libnode.so")));
    if is_node || exports(&[b"node_module_register", b"napi_create_function"]) {
        return Some(Unfit::Node);
    }
    exports(&[b"enif_make_atom"]).then_some(Unfit::Beam)
}

/// What extensions call tells whose they are.
fn exports_one_of<'a, R: ReadRef<'a>>(
    header: &FileHeader64<Le>,
    data: R,
    names: &[&[u8]],
) -> Option<bool> {
    let sections = header.sections(Le, data).ok()?;
    let symbols = sections.symbols(Le, data, SHT_DYNSYM).ok()?;
    let one_of = |s: &object::elf::Sym64<Le>| {
        !s.is_undefined(Le)
            && s.name(Le, symbols.strings())
                .is_ok_and(|n| names.contains(&n))
    };
    Some(symbols.iter().any(one_of))
}

/// The libraries that a program asks for by itself.
fn needed<'a, R: ReadRef<'a>>(header: &FileHeader64<Le>, data: R) -> Option<Vec<&'a [u8]>> {
    let sections = header.sections(Le, data).ok()?;
    let (entries, link) = sections.dynamic(Le, data).ok()??;
    let strings = sections.strings(Le, data, link).ok()?;
    let wanted = entries.iter().filter(|e| e.tag32(Le) == Some(DT_NEEDED));
    let names = wanted.filter_map(|e| strings.get(e.val32(Le)?).ok());
    Some(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_this_machine() {
        assert_eq!(unfit(Path::new("/bin/sh")), None);
        // A test of Rust's is a dynamic program.
        assert_eq!(unfit(&std::env::current_exe().unwrap()), None);
        // ld.so has no interpreter.
        assert_eq!(
            unfit(Path::new("/lib64/ld-linux-x86-64.so.2")),
            Some(Unfit::Static)
        );
        assert_eq!(unfit(Path::new("/etc/passwd")), None);
    }

    #[test]
    fn a_script_is_its_interpreter() {
        let dir = std::env::temp_dir().join(format!("reprise-orderable-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let script = dir.join("script");
        std::fs::write(&script, "#! /lib64/ld-linux-x86-64.so.2 -x\n").unwrap();
        assert_eq!(unfit(&script), Some(Unfit::Static));
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(unfit(&script), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
