//! What is started: found as a shell finds it (execvp(3)), with its strings as execve(2) wants them.

use crate::error::{LaunchError, Result};
use rustix::fs::Access;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// What to start.
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Pin the program to one processor (what `serial` wants).
    pub pin: bool,
}

fn c_string(s: &OsStr) -> Result<CString> {
    CString::new(s.as_bytes())
        .map_err(|_| LaunchError::Unsupported(format!("{s:?}: a NUL byte in an argument")))
}

/// Finds the program the way execvp(3) does, so that a missing one is told before anything is started.
///
/// # Errors
/// [`LaunchError::NotFound`], or [`LaunchError::CannotRun`] for what is there but no program of ours.
pub fn find_program(name: &OsStr) -> Result<PathBuf> {
    let shown = name.to_string_lossy().into_owned();
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        std::env::split_paths(&path).map(|d| d.join(name)).collect()
    };
    let mut refused = None;
    for c in candidates {
        let Ok(meta) = std::fs::metadata(&c) else {
            continue;
        };
        if meta.is_dir() {
            refused = Some("it is a directory".to_string());
            continue;
        }
        if rustix::fs::access(&c, Access::EXEC_OK).is_err() {
            refused = Some("permission denied (is it executable?)".to_string());
            continue;
        }
        check_format(&c, &shown)?;
        return Ok(c);
    }
    match refused {
        Some(why) => Err(LaunchError::CannotRun {
            program: shown,
            why,
        }),
        None => Err(LaunchError::NotFound { program: shown }),
    }
}

/// Refuses what can run but can't be recorded.
fn check_format(path: &std::path::Path, shown: &str) -> Result<()> {
    use std::io::Read;
    let cannot = |why: &str| {
        Err(LaunchError::CannotRun {
            program: shown.to_string(),
            why: why.to_string(),
        })
    };
    let Ok(mut f) = std::fs::File::open(path) else {
        return Ok(());
    };
    let mut head = Vec::new();
    if f.by_ref().take(20).read_to_end(&mut head).is_err() {
        return Ok(());
    }
    if head.starts_with(b"#!") {
        return Ok(());
    }
    if !head.starts_with(b"\x7fELF") || head.len() < 20 {
        return cannot("it is neither an ELF program nor a script with #!");
    }
    match (head[4], u16::from_le_bytes([head[18], head[19]])) {
        (2, 62) => Ok(()),
        (1, 3) => cannot("it is a 32-bit program; only x86-64 programs can be recorded"),
        (_, machine) => cannot(&format!("it is for another architecture (ELF machine {machine}); only x86-64 programs can be recorded")),
    }
}

/// Strings as execve(2) wants them.
pub(super) struct Strings {
    pub(super) pointers: Vec<*const libc::c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    fn of(owned: Vec<CString>) -> Strings {
        let end = std::ptr::null();
        Strings {
            pointers: owned.iter().map(|s| s.as_ptr()).chain([end]).collect(),
            _owned: owned,
        }
    }
}

/// What execve(2) is given. It is made before the fork: a child may not allocate.
pub(super) struct Exec {
    pub(super) path: CString,
    pub(super) argv: Strings,
    pub(super) env: Strings,
}

impl Exec {
    /// Of a command, in this environment.
    pub(super) fn of(
        command: &Command,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Exec> {
        let program = find_program(&command.argv[0])?;
        let argv = command.argv.iter().map(|a| c_string(a));
        let env = environment.map(|(name, value)| {
            let mut both = name;
            both.push("=");
            both.push(value);
            CString::new(both.into_vec())
                .map_err(|_| LaunchError::Unsupported("a NUL byte in the environment".into()))
        });
        Ok(Exec {
            path: c_string(program.as_os_str())?,
            argv: Strings::of(argv.collect::<Result<_>>()?),
            env: Strings::of(env.collect::<Result<_>>()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(argv: &[&str]) -> Command {
        Command {
            argv: argv.iter().map(OsString::from).collect(),
            pin: false,
        }
    }

    #[test]
    fn an_exec_has_all_strings_and_ends() {
        let environment = [("A", "1"), ("EMPTY", "")].map(|(n, v)| (n.into(), v.into()));
        let exec = Exec::of(&command(&["/bin/sh", "-c", ""]), environment.into_iter());
        let exec = exec.expect("there is a shell");
        let of = |s: &Strings| -> Vec<String> {
            let (end, all) = s.pointers.split_last().expect("an end");
            assert!(end.is_null());
            // SAFETY: strings that the same structure owns.
            let text = |p: &*const libc::c_char| unsafe { std::ffi::CStr::from_ptr(*p) };
            all.iter()
                .map(|p| text(p).to_string_lossy().into())
                .collect()
        };
        assert_eq!(exec.path.as_bytes(), b"/bin/sh");
        assert_eq!(of(&exec.argv), ["/bin/sh", "-c", ""]);
        assert_eq!(of(&exec.env), ["A=1", "EMPTY="]);
    }

    #[test]
    fn a_string_that_no_program_can_get_is_told() {
        let none = std::iter::empty;
        let bad = Exec::of(&command(&["/bin/sh", "a\0b"]), none()).err();
        assert!(bad.is_some_and(|e| e.to_string().contains("NUL byte in an argument")));
        let environment = [(OsString::from("A"), OsString::from("a\0b"))];
        let bad = Exec::of(&command(&["/bin/sh"]), environment.into_iter()).err();
        assert!(bad.is_some_and(|e| e.to_string().contains("NUL byte in the environment")));
        let missing = Exec::of(&command(&["/no/such/program"]), none()).err();
        assert!(matches!(missing, Some(LaunchError::NotFound { .. })));
    }
}
