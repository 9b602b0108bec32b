//! Which rooms a file names.

use crate::text::code_of;
use crate::ENGINES;
use std::collections::BTreeSet;

/// The rooms that follow `crate::`, or as many `super::` as lead to the crate's root, in a file whose path is told from the sources on; of the
/// room of engines, with the engine's name: `engines::serial`.
pub fn rooms_named(file: &str, source: &str) -> BTreeSet<String> {
    let code = code_of(source);
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if !is_word_before(&code, at) {
            heads(&code[at + "crate::".len()..], "", &mut named);
        }
    }
    let depth = depth(file);
    above(&code, depth, "", &mut named);
    if file.starts_with("engines/") && depth > 1 {
        above(&code, depth - 1, ENGINES, &mut named);
    }
    named.remove("super");
    named.remove("self");
    named
}

/// What follows exactly so many `super::`.
fn above(code: &str, depth: usize, outer: &str, named: &mut BTreeSet<String>) {
    let up = "super::".repeat(depth);
    if up.is_empty() {
        return;
    }
    for (at, _) in code.match_indices(&up) {
        if !is_word_before(code, at) && !code[at + up.len()..].starts_with("super::") {
            heads(&code[at + up.len()..], outer, named);
        }
    }
}

/// How many `super` lead from a file's module to the crate's root.
fn depth(file: &str) -> usize {
    let parts: Vec<&str> = file.split('/').collect();
    match parts.last() {
        Some(&"lib.rs") if parts.len() == 1 => 0,
        Some(&"mod.rs") => parts.len() - 1,
        _ => parts.len(),
    }
}

fn is_word_before(code: &str, at: usize) -> bool {
    let before = code[..at].chars().next_back();
    before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
}

/// The first word of each path that begins here: one, or those of a group in braces. Of a path into the engines' room, the engine, too.
fn heads(rest: &str, outer: &str, named: &mut BTreeSet<String>) {
    let rest = rest.trim_start();
    let Some(group) = rest.strip_prefix('{') else {
        head(rest, outer, named);
        return;
    };
    let (mut depth, mut begins) = (0, true);
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && !c.is_whitespace() => {
                head(&group[i..], outer, named);
                begins = false;
            }
            _ => {}
        }
    }
}

/// The room at the beginning of one path.
fn head(path: &str, outer: &str, named: &mut BTreeSet<String>) {
    let Some(word) = word(path) else {
        return;
    };
    let into = path[word.len()..].strip_prefix("::");
    match into {
        _ if !outer.is_empty() => {
            named.insert(format!("{outer}::{word}"));
        }
        Some(inner) if word == ENGINES => heads(inner, ENGINES, named),
        _ => {
            named.insert(word);
        }
    }
}

/// The name of a module at the beginning of a path. What is no module has a capital letter.
fn word(path: &str) -> Option<String> {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
    let word = &path[..end.unwrap_or(path.len())];
    word.starts_with(|c: char| c.is_lowercase() || c == '_')
        .then(|| word.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(file: &str, source: &str) -> Vec<String> {
        rooms_named(file, source).into_iter().collect()
    }

    #[test]
    fn paths_of_all_forms_are_found() {
        assert_eq!(named("a.rs", "use crate::b::C;"), ["b"]);
        assert_eq!(
            named("a.rs", "use crate::{b, c::{d, e}, f as g};"),
            ["b", "c", "f"]
        );
        assert_eq!(
            named("a.rs", "use crate::{\n    b::{c},\n    d,\n};"),
            ["b", "d"]
        );
        assert_eq!(named("a.rs", "let x = crate::b::c();"), ["b"]);
        assert_eq!(named("a.rs", "use super::b;"), ["b"]);
        assert_eq!(
            named("a/c.rs", "use super::b;\nuse super::super::d;"),
            ["d"]
        );
        assert_eq!(named("a/mod.rs", "use super::b;"), ["b"]);
        assert_eq!(
            named("engines/a/c.rs", "use super::super::b::d;\nuse super::e;"),
            ["engines::b"]
        );
        assert_eq!(
            named("a.rs", "use crate::engines::{b, c::{d, e}};"),
            ["engines::b", "engines::c"]
        );
    }

    #[test]
    fn what_is_no_path_of_a_module_is_not() {
        assert!(named("a.rs", "// crate::b\nlet s = \"crate::c\";").is_empty());
        assert!(named("a.rs", "use mycrate::b;").is_empty());
        assert!(named("a.rs", "use crate::Thing;").is_empty());
        assert!(named("lib.rs", "mod a;").is_empty());
    }
}
