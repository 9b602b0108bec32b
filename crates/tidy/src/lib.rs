//! What the sources keep to: the walls inside of the runtime, who may know system calls ([`calls`]), who makes references that
//! nobody checks ([`aliases`]), what the image is built from ([`image`]), and what the documents name ([`documents`]).
//!
//! Cargo keeps the walls between crates; inside of one, any module can name any other, and sooner or later does.
//!
//! Each folder of the runtime's sources is a room; `rooms.txt` lists them from the ground up. What is found are [`Breach`]es: an import of a room
//! further up, an engine that names another one, an engine that is named outside of its room and the crate's root. A path is found by its text,
//! `crate::` or `super::` and what follows, in `use` lines and elsewhere; comments and strings are none.

pub mod aliases;
pub mod calls;
pub mod documents;
pub mod image;
mod paths;
mod text;

pub use paths::rooms_named;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// The last room of the list, whose folders are peers.
const ENGINES: &str = "engines";

/// The rooms, from the ground up.
pub struct Rooms {
    names: Vec<String>,
}

/// A wall that has a hole.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Breach {
    /// The file that reaches through it, from the crate's sources on.
    pub file: String,
    /// The room that it reaches; of an engine, with its name.
    pub reached: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.file, self.reached)
    }
}

impl Rooms {
    /// Reads a list of rooms, one a line.
    ///
    /// # Panics
    /// When a room is named twice.
    pub fn parse(list: &str) -> Rooms {
        let lines = list.lines().map(str::trim);
        let mut names: Vec<String> = Vec::new();
        for name in lines.filter(|l| !l.starts_with('#') && !l.is_empty()) {
            assert!(!names.iter().any(|n| n == name), "{name} is named twice");
            names.push(name.to_string());
        }
        Rooms { names }
    }

    /// The rooms' names.
    pub fn names(&self) -> BTreeSet<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// May a file of room `from` name room `to`? Both as [`room_of`] has them.
    pub fn allow(&self, from: &str, to: &str) -> bool {
        let (Some(from_level), Some(to_level)) = (self.level(from), self.level(to)) else {
            // The root and what it has in itself know everybody, and anybody may name what lies there.
            return true;
        };
        if self.names[to_level] == ENGINES {
            return from == to || to == ENGINES && from_level == to_level;
        }
        to_level <= from_level
    }

    fn level(&self, room: &str) -> Option<usize> {
        let outer = room.split("::").next().unwrap_or(room);
        self.names.iter().position(|n| n == outer)
    }

    /// The breaches of one file, whose path is told from the crate's sources on.
    pub fn breaches(&self, file: &str, source: &str) -> BTreeSet<Breach> {
        let room = room_of(file);
        let named = rooms_named(file, source);
        let reached = named.into_iter().filter(|to| !self.allow(&room, to));
        let breach = |reached| Breach {
            file: file.to_string(),
            reached,
        };
        reached.map(breach).collect()
    }
}

/// The room in which a file is, and of an engine's file its engine, too: `engines::serial`. The root's own files are in `lib`.
pub fn room_of(file: &str) -> String {
    let parts: Vec<&str> = file.split('/').collect();
    match parts.as_slice() {
        [ENGINES, engine, ..] if *engine != "mod.rs" => {
            format!("{ENGINES}::{}", engine.trim_end_matches(".rs"))
        }
        [room, _, ..] => room.to_string(),
        [file] => file.trim_end_matches(".rs").to_string(),
        [] => String::new(),
    }
}

/// The table of engines, which says by which numbers and names they are known.
const TABLE: &str = include_str!("../../abi/src/engine.rs");

/// What stands in the table between each `before` and the next `after`.
fn in_table<'a>(before: &'a str, after: &'a str) -> impl Iterator<Item = &'static str> + use<'a> {
    let parts = TABLE.split(before).skip(1);
    parts.filter_map(move |part| Some(part.split_once(after)?.0))
}

/// The numbers by which the runtime knows an engine in one of its roles; all but that of no engine, whose name has other meanings, too.
fn roles() -> Vec<&'static str> {
    let recorders = in_table("recorder: role::", ",");
    let all = recorders.chain(in_table("replayer: role::", ","));
    all.filter(|role| *role != "NONE").collect()
}

/// The engines that a file asks for by number, or compares a name with, instead of asking for what they can.
pub fn engines_asked_for(source: &str) -> Vec<String> {
    let code = text::code_of(source);
    let roles = roles();
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut found: Vec<String> = words
        .filter(|w| roles.contains(w))
        .map(String::from)
        .collect();
    for name in in_table("name: \"", "\"") {
        for comparison in ["==", "!="] {
            if source.contains(&format!("{comparison} \"{name}\"")) {
                found.push(format!("{comparison} {name}"));
            }
        }
    }
    found
}

/// All Rust files below a directory, by their paths from there on, with their texts.
///
/// # Errors
/// When one can't be read.
pub fn sources(dir: &Path) -> std::io::Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(dir).unwrap_or(&path);
                all.insert(name.display().to_string(), std::fs::read_to_string(&path)?);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# ground first\nmachine\ngate\nengines\n";

    fn found(file: &str, source: &str) -> Vec<String> {
        let all = Rooms::parse(LIST).breaches(file, source);
        all.iter().map(Breach::to_string).collect()
    }

    #[test]
    fn an_arrow_that_runs_up_is_found() {
        assert_eq!(
            found("machine/sys.rs", "use crate::gate::Gate;"),
            ["machine/sys.rs -> gate"]
        );
        assert_eq!(
            found("machine/guard/mod.rs", "fn f() { crate::gate::enter() }"),
            ["machine/guard/mod.rs -> gate"]
        );
        assert_eq!(
            found("machine/sys.rs", "use super::super::gate;"),
            ["machine/sys.rs -> gate"]
        );
        let down = "use crate::machine::sys::call;\nuse crate::machine;";
        assert!(found("gate/mod.rs", down).is_empty());
        assert!(found("machine/sys.rs", "use crate::machine::guard;").is_empty());
    }

    #[test]
    fn an_engine_that_names_another_is_found() {
        let breach = ["engines/order/record.rs -> engines::serial"];
        for source in [
            "use crate::engines::serial::baton;",
            "use crate::engines::{order::turns, serial};",
            "use super::super::serial;",
        ] {
            assert_eq!(found("engines/order/record.rs", source), breach, "{source}");
        }
        let own = "use crate::engines::order::turns;\nuse crate::gate;\nuse super::turns;";
        assert!(found("engines/order/record.rs", own).is_empty());
    }

    #[test]
    fn an_engine_that_is_named_outside_is_found() {
        assert_eq!(
            found(
                "gate/mod.rs",
                "match () { () => crate::engines::order::enter() }"
            ),
            ["gate/mod.rs -> engines::order"]
        );
        assert!(found("lib.rs", "use crate::engines::{order, serial};").is_empty());
    }

    #[test]
    fn an_engine_that_is_asked_for_by_number_or_name_is_found() {
        let number = "if ENGINE.load(Relaxed) == ORDER_REPLAY {} // DET";
        assert_eq!(engines_asked_for(number), ["ORDER_REPLAY"]);
        let name = "let order = manifest.engine == \"order\";";
        assert_eq!(engines_asked_for(name), ["== order"]);
        assert!(engines_asked_for("in_force::orders_synchronisation()").is_empty());
        for (role, name) in [("SERIAL_RECORD", "serial"), ("DET", "det")] {
            assert!(roles().contains(&role));
            assert!(in_table("name: \"", "\"").any(|n| n == name));
        }
    }

    #[test]
    #[should_panic(expected = "is named twice")]
    fn a_room_has_one_place() {
        Rooms::parse("a\na\n");
    }
}
