//! A source without what is no code: comments, strings and characters are blanks.

/// The text with blanks in the place of comments and literals, of the same length in characters.
pub fn code_of(source: &str) -> String {
    let all: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < all.len() {
        let end = literal(&all, at);
        if end == at {
            code.push(all[at]);
            at += 1;
            continue;
        }
        // Lines stay lines.
        let blank = |c: &char| if *c == '\n' { '\n' } else { ' ' };
        code.extend(all[at..end.min(all.len())].iter().map(blank));
        at = end;
    }
    code
}

/// Where the comment or the literal ends that begins here; here, if none does.
fn literal(all: &[char], at: usize) -> usize {
    let is = |n: usize, c: char| all.get(at + n) == Some(&c);
    let after_word = at > 0 && (all[at - 1].is_alphanumeric() || all[at - 1] == '_');
    match all[at] {
        '/' if is(1, '/') => (at..all.len())
            .find(|i| all[*i] == '\n')
            .unwrap_or(all.len()),
        '/' if is(1, '*') => comment(all, at),
        '"' => string(all, at + 1),
        'r' if !after_word && (is(1, '"') || is(1, '#')) => raw(all, at),
        // A lifetime has no second quote.
        '\'' if is(1, '\\') => (at + 3..all.len())
            .find(|i| all[*i] == '\'')
            .map_or(all.len(), |i| i + 1),
        '\'' if is(2, '\'') => at + 3,
        _ => at,
    }
}

/// The end of a comment, which may have others inside.
fn comment(all: &[char], begin: usize) -> usize {
    let (mut depth, mut at) = (0, begin);
    while at + 1 < all.len() {
        match (all[at], all[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    all.len()
}

fn string(all: &[char], mut at: usize) -> usize {
    while at < all.len() {
        match all[at] {
            '"' => return at + 1,
            '\\' => at += 2,
            _ => at += 1,
        }
    }
    all.len()
}

/// The end of a raw string; `begin` itself, when it is a raw identifier.
fn raw(all: &[char], begin: usize) -> usize {
    let marks = all[begin + 1..].iter().take_while(|c| **c == '#').count();
    let inside = begin + 1 + marks;
    if all.get(inside) != Some(&'"') {
        return begin;
    }
    let ends = |i: &usize| {
        let rest = all.get(i + 1..i + 1 + marks);
        all[*i] == '"' && rest.is_some_and(|r| r.iter().all(|c| *c == '#'))
    };
    (inside + 1..all.len())
        .find(ends)
        .map_or(all.len(), |i| i + 1 + marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_code_is_blank() {
        for (source, code) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"x("a\"b", 'c', '\'')"#, "x(      ,    ,     )"),
            (r###"r#"a"b"# + r#type"###, "         + r#type"),
            ("for<'a> fn(&'a u8)", "for<'a> fn(&'a u8)"),
        ] {
            assert_eq!(code_of(source), code);
        }
    }
}
