//! Who knows a system call. What is known of calls is in one table, `crates/abi/src/syscalls`; code asks that what a call does. A file that names many
//! calls has begun a table of its own.
//!
//! Counted are the numbers (`nr::READ`) in code that is built: not in comments, and not in tests, which name calls as examples.

use crate::text::code_of;

/// The most calls that a file may name. That is room for a call whose code is unlike that of all others, and none for a list.
pub const MOST_NAMED: usize = 5;

/// The table itself, and the list of calls that the runtime makes for itself, a name for each.
const MAY_NAME_ALL: [&str; 2] = ["abi/src/syscalls/", "runtime/src/machine/own_calls.rs"];

/// How many times a file names a call. `path` begins with the crate's folder.
pub fn calls_named(path: &str, source: &str) -> usize {
    let in_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
    if in_tests || MAY_NAME_ALL.iter().any(|all| path.starts_with(all)) {
        return 0;
    }
    let code = code_of(source);
    let built = without_tests(&code);
    let numbers = built.match_indices("nr::").filter(|(at, _)| {
        let is_word = built[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let named = built[at + "nr::".len()..].chars().next();
        !is_word && named.is_some_and(|c| c.is_ascii_uppercase() || c == '_')
    });
    numbers.count()
}

/// Does a file take numbers out of their module, to name them without it?
pub fn takes_numbers_out(source: &str) -> bool {
    let code = code_of(source);
    let built = without_tests(&code);
    let mut uses = built.split("use ").skip(1);
    uses.any(|rest| {
        let tree = rest.split(';').next().unwrap_or_default();
        let words: String = tree.split_whitespace().collect();
        let numbers = words.contains("syscalls::nr::") || words.contains("{nr::");
        numbers || words.contains(",nr::") || words.contains("nras")
    })
}

/// The code before a file's module of tests, which is its last.
fn without_tests(code: &str) -> &str {
    let ends = code.match_indices("#[cfg(test)]").find(|(at, mark)| {
        let rest = code[at + mark.len()..].trim_start();
        rest.starts_with("mod tests {")
    });
    ends.map_or(code, |(at, _)| &code[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "fn f(n: u64) -> bool {\n    // nr::OPEN is none.\n    matches!(n, nr::READ | syscalls::nr::WRITE | nr::_SYSCTL)\n}\n";

    #[test]
    fn numbers_in_code_are_counted() {
        assert_eq!(calls_named("runtime/src/a.rs", LIST), 3);
        assert_eq!(
            calls_named("runtime/src/a.rs", "use syscalls::nr; let snr::X = nr;"),
            0
        );
        let both = format!("{LIST}#[cfg(test)]\nmod tests {{ const N: u64 = nr::READ; }}");
        assert_eq!(calls_named("runtime/src/a.rs", &both), 3);
        let helper = format!("#[cfg(test)]\nfn only() {{}}\n{LIST}");
        assert_eq!(calls_named("runtime/src/a.rs", &helper), 3);
    }

    #[test]
    fn the_table_and_tests_may_name_all() {
        for path in [
            "abi/src/syscalls/files.rs",
            "runtime/src/machine/own_calls.rs",
            "place/src/tests.rs",
            "heap/src/tests/one.rs",
        ] {
            assert_eq!(calls_named(path, LIST), 0, "{path}");
        }
    }

    #[test]
    fn numbers_without_their_module_are_found() {
        for source in [
            "use reprise_abi::syscalls::nr::*;",
            "use reprise_abi::syscalls::nr::{READ, WRITE};",
            "use reprise_abi::syscalls::{self, nr::READ};",
            "use reprise_abi::syscalls::{nr::READ};",
            "use reprise_abi::syscalls::nr as n;",
        ] {
            assert!(takes_numbers_out(source), "{source}");
        }
        for source in [
            "use reprise_abi::syscalls::{self, nr};",
            "use reprise_abi::syscalls;\nlet n = syscalls::nr::READ;",
        ] {
            assert!(!takes_numbers_out(source), "{source}");
        }
    }
}
