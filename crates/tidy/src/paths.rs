//! Which modules of the crate's root a file names.

use crate::text::code_of;
use std::collections::BTreeSet;

/// The modules that follow `crate::`, or as many `super::` as lead to the crate's root, in a file whose path is told from the sources on.
pub fn modules_named(file: &str, source: &str) -> BTreeSet<String> {
    let code = code_of(source);
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if is_word_before(&code, at) || code[..at].ends_with('$') {
            continue;
        }
        heads(&code[at + "crate::".len()..], &mut named);
    }
    let up = "super::".repeat(depth(file));
    if !up.is_empty() {
        for (at, _) in code.match_indices(&up) {
            let begins = !is_word_before(&code, at) && !code[..at].ends_with("super::");
            if begins {
                heads(&code[at + up.len()..], &mut named);
            }
        }
    }
    named.remove("super");
    named.remove("self");
    named
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

/// The first word of each path that begins here: one, or those of a group in braces.
fn heads(rest: &str, named: &mut BTreeSet<String>) {
    let rest = rest.trim_start();
    let Some(group) = rest.strip_prefix('{') else {
        named.extend(word(rest));
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
                named.extend(word(&group[i..]));
                begins = false;
            }
            _ => {}
        }
    }
}

/// The module's name at the beginning of a path. What is no module has a capital letter or is a macro.
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
        modules_named(file, source).into_iter().collect()
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
    }

    #[test]
    fn what_is_no_path_of_a_module_is_not() {
        assert!(named("a.rs", "// crate::b\nlet s = \"crate::c\";").is_empty());
        assert!(named("a.rs", "use mycrate::b; $crate::c!();").is_empty());
        assert!(named("a.rs", "use crate::Thing;").is_empty());
        assert!(named("lib.rs", "mod a;").is_empty());
    }
}
