//! The walls inside of the runtime. Cargo keeps those between crates; inside of one, any module can name any other, and sooner or later does.
//!
//! `rooms.txt` lists the rooms from the ground up. What is found are [`Breach`]es: an import of a room further up, an engine that names another one, an
//! engine that is named outside of its room and the crate's root. A path is found by its text, `crate::` or `super::` and what follows, in
//! `use` lines and elsewhere; comments and strings are none.

mod paths;
mod text;

pub use paths::modules_named;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// The last room of the list, whose modules are peers.
const ENGINES: &str = "engines";

/// Which module belongs where.
pub struct Rooms {
    names: Vec<String>,
    /// The place of each module's room in `names`.
    of: BTreeMap<String, usize>,
}

/// A wall that has a hole.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Breach {
    /// The file that reaches through it, from the crate's sources on.
    pub file: String,
    /// The module of the crate's root that it reaches.
    pub module: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.file, self.module)
    }
}

impl Rooms {
    /// Reads a list of rooms.
    ///
    /// # Panics
    /// When a line has no colon, or a module is in two rooms.
    pub fn parse(list: &str) -> Rooms {
        let (mut names, mut of) = (Vec::new(), BTreeMap::new());
        for line in list
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty())
        {
            let (room, modules) = line.split_once(':').expect("a room and its modules");
            for module in modules.split_whitespace() {
                let other = of.insert(module.to_string(), names.len());
                assert!(other.is_none(), "{module} is in two rooms");
            }
            names.push(room.to_string());
        }
        Rooms { names, of }
    }

    /// The modules that are in a room.
    pub fn modules(&self) -> BTreeSet<&str> {
        self.of.keys().map(String::as_str).collect()
    }

    /// May a file of module `from` name module `to`?
    pub fn allow(&self, from: &str, to: &str) -> bool {
        let (Some(from_room), Some(to_room)) = (self.of.get(from), self.of.get(to)) else {
            // The root and what it has in itself know everybody, and anybody may name what lies there.
            return true;
        };
        let are_engines = self.names[*to_room] == ENGINES;
        from == to || to_room < from_room || to_room == from_room && !are_engines
    }

    /// The breaches of one file, whose path is told from the crate's sources on.
    pub fn breaches(&self, file: &str, source: &str) -> BTreeSet<Breach> {
        let module = module_of(file);
        let named = modules_named(file, source);
        let reached = named.into_iter().filter(|to| !self.allow(&module, to));
        let breach = |to| Breach {
            file: file.to_string(),
            module: to,
        };
        reached.map(breach).collect()
    }
}

/// The module of the crate's root in which a file is; the root's own files are in `lib`.
pub fn module_of(file: &str) -> String {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first).to_string()
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

    const LIST: &str = "# ground first\nmachine: sys guard\ngate: gate\nengines: serial order\n";

    fn found(file: &str, source: &str) -> Vec<String> {
        let all = Rooms::parse(LIST).breaches(file, source);
        all.iter().map(Breach::to_string).collect()
    }

    #[test]
    fn an_arrow_that_runs_up_is_found() {
        assert_eq!(
            found("sys.rs", "use crate::gate::Gate;"),
            ["sys.rs -> gate"]
        );
        assert_eq!(
            found("guard/mod.rs", "fn f() { crate::gate::enter() }"),
            ["guard/mod.rs -> gate"]
        );
        assert!(found("gate.rs", "use crate::sys::call;\nuse crate::guard;").is_empty());
        assert!(found("sys.rs", "use crate::guard;").is_empty());
    }

    #[test]
    fn an_engine_that_names_another_is_found() {
        assert_eq!(
            found("order/record.rs", "use crate::serial::baton;"),
            ["order/record.rs -> serial"]
        );
        assert!(found(
            "order/record.rs",
            "use crate::order::turns;\nuse crate::gate;"
        )
        .is_empty());
    }

    #[test]
    fn an_engine_that_is_named_outside_is_found() {
        assert_eq!(
            found("gate.rs", "match () { () => crate::order::enter() }"),
            ["gate.rs -> order"]
        );
        assert!(found("lib.rs", "use crate::{order, serial};").is_empty());
    }

    #[test]
    #[should_panic(expected = "is in two rooms")]
    fn a_module_has_one_room() {
        Rooms::parse("a: x\nb: x\n");
    }
}
