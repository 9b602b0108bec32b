//! The overlay: files that the installed Go toolchain compiles instead of its own (`go build -overlay`), so that GOROOT is never touched.
//!
//! `edits-VERSION.txt` says what is changed, function by function, each with a hash of the function's old text. So an edit that no longer fits what is
//! installed is found, and nothing is built.
//!
//! | line | what it says |
//! |---|---|
//! | `@file PATH` | the file below GOROOT/src that the following lines change |
//! | `@import PATH` | a package that it imports besides |
//! | `@word OLD NEW` | an identifier that gets another name where it is called; `@hash` of the whole file comes before |
//! | `@jumps PREFIX` | an assembler file's functions jump to those of the same names with this prefix; `@hash` of the whole file comes before |
//! | `@in HEAD` | the function, type or block that begins with this text at the beginning of a line, and ends at the next `}` or `)` there |
//! | `@hash HASH` | BLAKE3 of its old text, 16 hex digits |
//! | `@top` | the following lines go behind its first line |
//! | `@old`, `@new` | the following lines, which must be in it exactly once, are replaced; `@all` instead of `@old`: everywhere |
//! | `@end` | ends what `@top` and `@new` began |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A version of Go, its edits, and the files that are added.
pub struct Version {
    /// As `go env GOVERSION` says it.
    pub name: &'static str,
    edits: &'static str,
    added: &'static [(&'static str, &'static str)],
}

/// The versions that are known.
pub const VERSIONS: [Version; 1] = [Version {
    name: "go1.26.8",
    edits: include_str!("../overlay/edits-1.26.8.txt"),
    added: &[
        (
            "runtime/reprise.go",
            include_str!("../overlay/runtime/reprise.go"),
        ),
        (
            "runtime/reprise_calls.go",
            include_str!("../overlay/runtime/reprise_calls.go"),
        ),
        (
            "internal/sync/reprise.go",
            include_str!("../overlay/internal/sync/reprise.go"),
        ),
        (
            "internal/poll/reprise.go",
            include_str!("../overlay/internal/poll/reprise.go"),
        ),
        (
            "sync/reprise.go",
            include_str!("../overlay/sync/reprise.go"),
        ),
        (
            "sync/atomic/reprise.go",
            include_str!("../overlay/sync/atomic/reprise.go"),
        ),
        (
            "syscall/reprise.go",
            include_str!("../overlay/syscall/reprise.go"),
        ),
        (
            "unique/reprise.go",
            include_str!("../overlay/unique/reprise.go"),
        ),
    ],
}];

/// Why there is no overlay.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No edits for this version.
    #[error("this is {0}; goroutines can be recorded with {known} only", known = known())]
    Version(String),
    /// The installed source is not the one that the edits are for.
    #[error("{0}: {1} is not what it is in the released version, so it can't be changed (its hash is {2})")]
    Changed(String, String, String),
    /// The edits themselves are wrong.
    #[error("edits of {0}: {1}")]
    Edits(String, String),
    /// A file can't be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
}

fn known() -> String {
    VERSIONS
        .iter()
        .map(|v| v.name)
        .collect::<Vec<_>>()
        .join(" and ")
}

impl Version {
    /// The version with this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<&'static Version, Error> {
        let found = VERSIONS.iter().find(|v| v.name == name);
        found.ok_or_else(|| Error::Version(name.into()))
    }

    /// What tells this overlay from others.
    pub fn key(&self) -> String {
        let mut hash = blake3::Hasher::new();
        hash.update(self.edits.as_bytes());
        for (path, text) in self.added {
            hash.update(path.as_bytes());
            hash.update(text.as_bytes());
        }
        hash.finalize().to_hex()[..16].into()
    }

    /// Writes the changed files below `dir`, and the overlay's JSON as `dir/overlay.json`; returns its path. Files that are there already and right are
    /// left alone.
    ///
    /// # Errors
    /// When what is installed at `goroot` isn't the released version, or files can't be read or written.
    pub fn write(&self, goroot: &Path, dir: &Path) -> Result<PathBuf, Error> {
        let source = goroot.join("src");
        let mut files = self.changed(&|path| {
            let path = source.join(path);
            std::fs::read_to_string(&path).map_err(|e| Error::File(path, e))
        })?;
        files.extend(
            self.added
                .iter()
                .map(|(path, text)| (path.to_string(), text.to_string())),
        );
        let mut replaced = serde_json::Map::new();
        for (path, text) in &files {
            let at = dir.join(path.replace('/', "_"));
            put(&at, text)?;
            replaced.insert(
                source.join(path).display().to_string(),
                at.display().to_string().into(),
            );
        }
        let json = dir.join("overlay.json");
        put(
            &json,
            &serde_json::json!({ "Replace": replaced }).to_string(),
        )?;
        Ok(json)
    }

    /// The changed files by their paths below GOROOT/src.
    fn changed(
        &self,
        read: &dyn Fn(&str) -> Result<String, Error>,
    ) -> Result<BTreeMap<String, String>, Error> {
        let mut files = BTreeMap::new();
        let mut lines = self.edits.lines();
        let mut path = String::new();
        let mut text = String::new();
        let (mut start, mut end) = (0, 0);
        let mut head = String::new();
        while let Some(line) = lines.next() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let wrong = |why: &str| Error::Edits(path.clone(), format!("{why}: {line}"));
            match word {
                "" | "#" => {}
                "@file" => {
                    if !path.is_empty() {
                        files.insert(std::mem::take(&mut path), std::mem::take(&mut text));
                    }
                    path = rest.into();
                    text = read(rest)?;
                    (start, end, head) = (0, text.len(), "the file".into());
                }
                "@in" => {
                    start =
                        find_once(&format!("\n{text}"), &format!("\n{rest}")).ok_or_else(|| {
                            Error::Changed(path.clone(), rest.into(), "unknown".into())
                        })?;
                    let tail = &text[start..];
                    let one_line = tail.lines().next().is_some_and(|l| l.ends_with(" }"));
                    let length = match one_line {
                        true => tail.find('\n').map(|n| n + 1),
                        false => [tail.find("\n}\n"), tail.find("\n)\n")]
                            .into_iter()
                            .flatten()
                            .min()
                            .map(|n| n + 3),
                    };
                    end = start + length.ok_or_else(|| wrong("no end"))?;
                    head = rest.into();
                }
                "@hash" => {
                    let hash =
                        blake3::hash(&text.as_bytes()[start..end]).to_hex()[..16].to_string();
                    if hash != rest {
                        return Err(Error::Changed(path, head, hash));
                    }
                }
                "@import" => {
                    let at = text.find("import (\n").ok_or_else(|| wrong("no imports"))?
                        + "import (\n".len();
                    text.insert_str(at, &format!("\t{rest}\n"));
                }
                "@word" => {
                    let (old, new) = rest
                        .split_once(' ')
                        .ok_or_else(|| wrong("two words are wanted"))?;
                    text = rename(&text, old, new);
                }
                "@jumps" => {
                    text =
                        jump(&text, rest).ok_or_else(|| wrong("a function does more than jump"))?
                }
                "@top" => {
                    let added = block(&mut lines);
                    let at = start
                        + text[start..end]
                            .find('\n')
                            .ok_or_else(|| wrong("no line"))?
                        + 1;
                    text.insert_str(at, &added);
                    end += added.len();
                }
                "@old" | "@all" => {
                    let (old, new) = (block(&mut lines), block(&mut lines));
                    let part = &text[start..end];
                    let changed = match word {
                        "@old" => find_once(part, &old).map(|_| part.replacen(&old, &new, 1)),
                        _ => part.contains(&old).then(|| part.replace(&old, &new)),
                    };
                    let changed = changed.ok_or_else(|| {
                        Error::Edits(path.clone(), format!("{head} does not have once:\n{old}"))
                    })?;
                    text.replace_range(start..end, &changed);
                    end = start + changed.len();
                }
                _ => return Err(wrong("unknown")),
            }
        }
        files.insert(path, text);
        Ok(files)
    }
}

/// The lines up to `@new` or `@end`.
fn block(lines: &mut std::str::Lines) -> String {
    let mut text = String::new();
    for line in lines.take_while(|l| !matches!(*l, "@new" | "@end")) {
        text += line;
        text.push('\n');
    }
    text
}

/// Where a text is that must be there exactly once.
fn find_once(text: &str, what: &str) -> Option<usize> {
    let at = text.find(what)?;
    text[at + 1..].find(what).is_none().then_some(at)
}

/// Gives an identifier another name wherever it is called.
fn rename(text: &str, old: &str, new: &str) -> String {
    let call = format!("{old}(");
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&call) {
        let inside = rest[..at]
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.');
        out += &rest[..at];
        out += if inside { old } else { new };
        rest = &rest[at + old.len()..];
    }
    out + rest
}

/// Has each function of an assembler file, which are jumps all of them, jump to the function of its name with a prefix.
fn jump(text: &str, prefix: &str) -> Option<String> {
    let mut out = String::new();
    let mut name = None;
    for line in text.lines() {
        match (line.strip_prefix("TEXT ·"), line.strip_prefix("\tJMP\t")) {
            (Some(rest), _) => {
                name = Some(rest.split_once('(')?.0);
                out += line;
            }
            (_, Some(_)) => out += &format!("\tJMP\t·{prefix}{}(SB)", name.take()?),
            _ if line.starts_with('\t') => return None,
            _ => out += line,
        }
        out.push('\n');
    }
    name.is_none().then_some(out)
}

/// Writes a file, unless it is there with this text.
fn put(path: &Path, text: &str) -> Result<(), Error> {
    if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    let of = |e| Error::File(path.into(), e);
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&temporary, text).map_err(of)?;
    std::fs::rename(&temporary, path).map_err(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "import (\n\t\"a\"\n)\n\nfunc f() {\n\tone()\n\ttwo()\n}\n\nfunc g() int { return Load(x) }\n";

    fn changed(edits: &'static str) -> Result<String, Error> {
        let version = Version {
            name: "go0",
            edits,
            added: &[],
        };
        let files = version.changed(&|_| Ok(SOURCE.into()))?;
        Ok(files["x.go"].clone())
    }

    #[test]
    fn functions_are_edited() {
        let text = changed("@file x.go\n@import \"b\"\n@in func f() {\n@top\n\tzero()\n@end\n@old\n\ttwo()\n@new\n\tthree()\n@end\n@in func g() \n@old\nfunc g() int { return Load(x) }\n@new\n@end\n");
        let wanted =
            "import (\n\t\"b\"\n\t\"a\"\n)\n\nfunc f() {\n\tzero()\n\tone()\n\tthree()\n}\n\n";
        assert_eq!(text.expect("edits that fit"), wanted);
        let text = changed("@file x.go\n@word Load myLoad\n").expect("a word");
        assert!(text.contains("return myLoad(x)"));
        assert_eq!(
            rename("x.Load(Load(a), reLoad(b))", "Load", "my"),
            "x.Load(my(a), reLoad(b))"
        );
        let jumps = jump("TEXT ·A(SB),NOSPLIT,$0\n\tJMP\tother(SB)\n", "my");
        assert_eq!(
            jumps.as_deref(),
            Some("TEXT ·A(SB),NOSPLIT,$0\n\tJMP\t·myA(SB)\n")
        );
        assert_eq!(jump("TEXT ·A(SB)\n\tRET\n", "my"), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for edits in [
            "@file x.go\n@in func f() {\n@hash 0000000000000000\n",
            "@file x.go\n@in func h() {\n",
        ] {
            assert!(matches!(changed(edits), Err(Error::Changed(..))), "{edits}");
        }
        for edits in [
            "@file x.go\n@in func f() {\n@old\n\tfour()\n@new\n@end\n",
            "@file x.go\n@unknown\n",
        ] {
            assert!(matches!(changed(edits), Err(Error::Edits(..))), "{edits}");
        }
        assert!(Version::named("go1.25.3").is_err_and(|e| e.to_string().contains("go1.25.3")));
    }

    #[test]
    fn every_edit_has_its_hash() {
        for version in &VERSIONS {
            let lines: Vec<&str> = version.edits.lines().collect();
            for (i, line) in lines
                .iter()
                .enumerate()
                .filter(|(_, l)| l.starts_with("@in "))
            {
                let next = lines.get(i + 1).and_then(|l| l.strip_prefix("@hash "));
                assert!(next.is_some_and(|h| h.len() == 16), "{line}");
            }
        }
    }
}
