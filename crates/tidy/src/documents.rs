//! What documents name: files of the repository, in backticks or as links.

/// The folders of the repository's root whose paths documents name.
const ROOTS: [&str; 8] = [
    "crates/", "tests/", "docs/", "benches/", "scripts/", "fuzz/", "include/", ".github/",
];

/// The paths from the repository's root that a document has in backticks. A pattern (`*`, `{a,b}`, `NAME`) is none.
pub fn paths_named(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2);
    let path = |span: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let named = ROOTS.iter().any(|r| span.starts_with(r));
        named && span.chars().all(plain) && !span.contains("NAME")
    };
    spans.filter(path).map(String::from).collect()
}

/// The targets of links that lead to files, without what follows `#`.
pub fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|t| t.split(')').next());
    let file = |t: &&str| !t.contains("://") && !t.is_empty() && !t.contains(' ');
    let without_anchor = |t: &str| t.split('#').next().unwrap_or_default().to_string();
    let all = targets.filter(file).map(without_anchor);
    all.filter(|t| !t.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_links_are_found() {
        let text = "See `crates/abi/src/lib.rs`, `x/y`, `tests/guests/*.c`, `tests/guests/NAME.c` and [this](docs/A.md#b), [that](https://x.y), `a` [here](#c).";
        assert_eq!(paths_named(text), ["crates/abi/src/lib.rs"]);
        assert_eq!(links(text), ["docs/A.md"]);
    }
}
