//! The grammar of rr's command line, and what becomes of each option (rr's Command.cc, main.cc, RecordCommand.cc, ReplayCommand.cc).
//!
//! An option is `-x`, or `--name`, of which a beginning is enough; its value is the rest of the word, what is behind `=`, or the next word.

use anyhow::{bail, Context, Result};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;

/// What becomes of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is translated.
    Known,
    /// It tunes how rr works, which has no counterpart here, and changes nothing of what is asked for.
    Tunes,
    /// It asks for what there is not: why.
    Refused(&'static str),
}
use Fate::{Known, Refused, Tunes};

/// An option of rr's: its letter (a blank where it has none), its name, whether it has a value, and what becomes of it.
pub type Row = (char, &'static str, bool, Fate);

const NO_DUMPS: Fate = Refused("`reprise core EVENT` writes a program's memory");
const NO_CPUID: Fate = Refused("`reprise record --cpu` has levels of processors");
const NO_SIGNALS: Fate = Refused("signals act as the program wants it");

/// Those of all commands.
pub const GLOBAL: &[Row] = &[
    ('A', "microarch", true, Tunes),
    (
        'C',
        "checksum",
        true,
        Refused("`reprise verify` compares hashes"),
    ),
    ('D', "dump-on", true, NO_DUMPS),
    ('E', "fatal-errors", false, Tunes),
    ('F', "force-things", false, Tunes),
    ('K', "check-cached-mmaps", false, Tunes),
    ('M', "mark-stdio", false, Known),
    ('N', "version", false, Known),
    ('S', "suppress-environment-warnings", false, Tunes),
    ('T', "dump-at", true, NO_DUMPS),
    (' ', "log", true, Tunes),
    (' ', "non-interactive", false, Tunes),
    (' ', "resource-path", true, Tunes),
];

/// Those of `rr record`.
pub const RECORD: &[Row] = &[
    (' ', "asan", false, Tunes),
    (' ', "bind-to-cpu", true, Tunes),
    (' ', "copy-preload-src", false, Tunes),
    (' ', "disable-avx-512", false, NO_CPUID),
    (' ', "disable-cpuid-features", true, NO_CPUID),
    (' ', "disable-cpuid-features-ext", true, NO_CPUID),
    (' ', "disable-cpuid-features-xsave", true, NO_CPUID),
    (' ', "nested", true, Known),
    (' ', "no-file-cloning", false, Tunes),
    (' ', "no-read-cloning", false, Tunes),
    (
        ' ',
        "num-cores",
        true,
        Refused("the program is shown the processors that there are"),
    ),
    (' ', "save-as", true, Refused("-o names the directory")),
    (' ', "scarce-fds", false, Tunes),
    (
        ' ',
        "setuid-sudo",
        false,
        Refused("set-user-ID programs run as their caller"),
    ),
    (' ', "stap-sdt", false, Tunes),
    (' ', "syscall-buffer-sig", true, Tunes),
    (' ', "syscall-buffer-size", true, Tunes),
    (' ', "trace-id", true, Refused("traces have no ids")),
    (' ', "tsan", false, Tunes),
    (' ', "unmap-vdso", false, Tunes),
    ('c', "num-cpu-ticks", true, Tunes),
    ('h', "chaos", false, Known),
    ('i', "ignore-signal", true, NO_SIGNALS),
    ('n', "no-syscall-buffer", false, Tunes),
    ('o', "output-trace-dir", true, Known),
    ('p', "print-trace-dir", true, Known),
    ('s', "always-switch", false, Tunes),
    ('t', "continue-through-signal", true, NO_SIGNALS),
    ('u', "cpu-unbound", false, Tunes),
    ('v', "env", true, Known),
    ('w', "wait", false, Known),
];

/// Those of `rr replay`.
pub const REPLAY: &[Row] = &[
    (' ', "fullname", false, Known),
    (' ', "retry-transient-errors", false, Tunes),
    (' ', "serve-files", false, Tunes),
    (' ', "share-private-mappings", false, Tunes),
    (' ', "stats", true, Refused("no such counters are kept")),
    (
        ' ',
        "tty",
        true,
        Refused("what the program writes goes to the standard output"),
    ),
    ('a', "autopilot", false, Known),
    ('d', "debugger", true, Known),
    ('f', "onfork", true, Known),
    ('g', "goto", true, Known),
    ('h', "dbghost", true, Known),
    ('i', "interpreter", true, Known),
    ('k', "keep-listening", false, Known),
    ('o', "debugger-option", true, Known),
    ('p', "onprocess", true, Known),
    ('q', "no-redirect-output", false, Known),
    ('s', "dbgport", true, Known),
    (
        't',
        "trace",
        true,
        Refused("no registers are printed instruction by instruction"),
    ),
    ('u', "cpu-unbound", false, Tunes),
    ('x', "gdb-x", true, Known),
];

/// Those of `rr ls`.
pub const LIST: &[Row] = &[
    ('l', "long-listing", false, Known),
    ('r', "reverse", false, Known),
    ('t', "sort-by-age", false, Known),
];

/// An option as it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// Its name.
    pub name: &'static str,
    /// Its value; nothing where it has none.
    pub value: OsString,
}

impl Given {
    /// Its value as a number, or the like.
    ///
    /// # Errors
    /// When it is none.
    pub fn number<T: FromStr>(&self) -> Result<T> {
        let text = self.value.to_string_lossy();
        let number = text.parse().ok();
        number.with_context(|| format!("--{} wants another value than `{text}`", self.name))
    }
}

/// Words of a command line that are still to be read.
#[derive(Clone, Debug)]
pub struct Words(VecDeque<OsString>);

impl Words {
    /// These.
    pub fn of(words: impl IntoIterator<Item = OsString>) -> Words {
        Words(words.into_iter().collect())
    }

    /// The next word, whatever it is.
    pub fn next(&mut self) -> Option<OsString> {
        self.0.pop_front()
    }

    /// All that is left.
    pub fn rest(self) -> Vec<OsString> {
        self.0.into()
    }

    /// With this word before them.
    pub fn before(mut self, word: OsString) -> Words {
        self.0.push_front(word);
        self
    }

    /// The next option that is known, if one is next; those that only tune are passed over. `command`: whose they are.
    ///
    /// # Errors
    /// When it is refused, not known, or its value is missing.
    pub fn option(&mut self, tables: &[&[Row]], command: &str) -> Result<Option<Given>> {
        loop {
            let Some(word) = self.0.front().filter(|w| w.len() > 1).cloned() else {
                return Ok(None);
            };
            let bytes = word.as_bytes();
            if bytes[0] != b'-' || bytes == b"--" {
                return Ok(None);
            }
            let shown = word.to_string_lossy();
            let row = tables
                .iter()
                .flat_map(|t| t.iter())
                .find(|r| fits(bytes, r));
            let Some((_, name, takes, fate)) = row else {
                // It may be a command in the disguise of an option.
                if command == super::NAME {
                    return Ok(None);
                }
                bail!("`{command}` has no option {shown} here; docs/RR.md lists those that it has");
            };
            if let Refused(why) = fate {
                bail!("rr's option --{name} has no counterpart here: {why}");
            }
            self.0.pop_front();
            let value = match (takes, behind(bytes)) {
                (false, None) => OsString::new(),
                (false, Some(_)) => bail!("--{name} takes no value, as in {shown}"),
                (true, Some(value)) => OsString::from_vec(value.to_vec()),
                (true, None) => self
                    .next()
                    .with_context(|| format!("--{name} wants a value"))?,
            };
            if *fate == Known {
                return Ok(Some(Given { name, value }));
            }
        }
    }
}

/// Is this word the option?
fn fits(word: &[u8], (letter, name, ..): &Row) -> bool {
    match word.strip_prefix(b"--") {
        Some(long) => {
            let end = long.iter().position(|b| *b == b'=').unwrap_or(long.len());
            end > 0 && name.as_bytes().starts_with(&long[..end])
        }
        None => *letter != ' ' && word[1] == *letter as u8,
    }
}

/// What of its value is in the word itself.
fn behind(word: &[u8]) -> Option<&[u8]> {
    match word.strip_prefix(b"--") {
        Some(long) => {
            let at = long.iter().position(|b| *b == b'=')?;
            Some(&long[at + 1..])
        }
        None => match word.get(2..)? {
            [] => None,
            [b'=', value @ ..] => Some(value),
            value => Some(value),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values of options.
    type Found = Vec<(&'static str, String)>;

    fn all(line: &str, table: &[Row]) -> Result<(Found, Vec<OsString>)> {
        let mut words = Words::of(line.split(' ').map(OsString::from));
        let mut found = Vec::new();
        while let Some(given) = words.option(&[table, GLOBAL], "rr test")? {
            found.push((given.name, given.value.to_string_lossy().into_owned()));
        }
        Ok((found, words.rest()))
    }

    #[test]
    fn values_stand_where_rr_finds_them() {
        let port = ("dbgport", "7".to_string());
        for line in [
            "-s 7 x",
            "-s7 x",
            "-s=7 x",
            "--dbgport=7 x",
            "--dbgport 7 x",
            "--dbgp=7 x",
        ] {
            let (found, rest) = all(line, REPLAY).expect(line);
            assert_eq!(
                (found, rest),
                (vec![port.clone()], vec!["x".into()]),
                "{line}"
            );
        }
        let (found, rest) = all("-u -k -S --onprocess=12 -- -q", REPLAY).expect("options");
        let wanted = [
            ("keep-listening", String::new()),
            ("onprocess", "12".into()),
        ];
        assert_eq!(found, wanted);
        assert_eq!(rest, ["--", "-q"]);
    }

    #[test]
    fn what_there_is_not_is_refused_by_its_name() {
        for (line, says) in [
            ("-t 7", "--trace"),
            ("--nothing", "no option --nothing"),
            ("-s", "--dbgport wants a value"),
            ("--autopilot=1", "takes no value"),
            ("-ka", "takes no value"),
        ] {
            let error = all(line, REPLAY).expect_err(line).to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn each_table_has_each_option_once() {
        for table in [RECORD, REPLAY, LIST] {
            let both: Vec<&Row> = table.iter().chain(GLOBAL).collect();
            for (i, (letter, name, ..)) in both.iter().enumerate() {
                let twice = |r: &&&Row| r.1 == *name || (*letter != ' ' && r.0 == *letter);
                assert!(!both[..i].iter().any(|r| twice(&r)), "{name}");
            }
        }
    }
}
