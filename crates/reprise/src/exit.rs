//! Exit statuses and last words: what `reprise` answers when it can't do what it was asked for.
//!
//! The statuses are those of `env`, `nohup` and `timeout`, so that our own failures are never taken for the program's: 125, and
//! for a program that can't be run 126, or 127 when there is none.

use reprise_launch::LaunchError;
use std::fmt;

/// Reprise itself failed, or was asked for something that it doesn't know.
pub const OWN_FAILURE: i32 = 125;

/// A failure with nothing more to say: the command's own output has said why.
#[derive(Debug)]
pub struct AlreadySaid;

impl fmt::Display for AlreadySaid {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl std::error::Error for AlreadySaid {}

/// The exit status that an error asks for.
pub fn status_of(error: &anyhow::Error) -> i32 {
    let mut chain = error.chain();
    let asked = chain.find_map(|e| e.downcast_ref::<LaunchError>());
    asked.map_or(OWN_FAILURE, LaunchError::exit_status)
}

/// The one line that an error is told in; None when it has nothing to say.
pub fn line_of(error: &anyhow::Error) -> Option<String> {
    let mut line = String::new();
    for part in error.chain().map(|e| one_line(&e.to_string())) {
        // An error that quotes its cause already needs no second quotation.
        if line.contains(part.as_str()) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&part);
    }
    (!line.is_empty()).then_some(line)
}

/// Joins lines, and drops what would move the cursor of a terminal.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn the_status_is_found_under_any_context() {
        let plain = anyhow::anyhow!("no");
        assert_eq!(status_of(&plain), OWN_FAILURE);
        let missing = LaunchError::NotFound {
            program: "x".into(),
        };
        let wrapped = Err::<(), _>(missing).context("record x").unwrap_err();
        assert_eq!(status_of(&wrapped), 127);
        assert_eq!(line_of(&wrapped).as_deref(), Some("record x: x: not found"));
    }

    #[test]
    fn last_words_are_one_line_and_say_nothing_twice() {
        let error = anyhow::anyhow!("inner").context("outer\n  (inner)");
        assert_eq!(line_of(&error).as_deref(), Some("outer (inner)"));
        assert_eq!(line_of(&AlreadySaid.into()), None);
        assert_eq!(one_line("a\x1b[2Jb\tc"), "a?[2Jb c");
    }
}
