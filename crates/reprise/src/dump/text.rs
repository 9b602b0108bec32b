//! Bytes as text: quoted like C, bounded, safe for any terminal.

use std::fmt::Write;

/// Quotes the first `limit` bytes; three dots say that there were more, of `total` in all.
pub fn quoted(bytes: &[u8], limit: usize, total: u64) -> String {
    let shown = &bytes[..bytes.len().min(limit)];
    let mut text = String::with_capacity(shown.len() + 5);
    text.push('"');
    for (i, &byte) in shown.iter().enumerate() {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\r' => text.push_str("\\r"),
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(byte)),
            // A digit after a short octal escape would be read as part of it.
            _ if shown.get(i + 1).is_some_and(u8::is_ascii_digit) => {
                let _ = write!(text, "\\{byte:03o}");
            }
            _ => {
                let _ = write!(text, "\\{byte:o}");
            }
        }
    }
    text.push('"');
    if (shown.len() as u64) < total {
        text.push_str("...");
    }
    text
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_c_and_says_what_is_left_out() {
        assert_eq!(quoted(b"a\n\"\\\0", 32, 5), r#""a\n\"\\\0""#);
        assert_eq!(quoted(b"\x01\x37", 32, 2), r#""\0017""#);
        assert_eq!(quoted(b"\xff\x1b[", 32, 3), r#""\377\33[""#);
        assert_eq!(quoted(b"abcdef", 3, 6), r#""abc"..."#);
        assert_eq!(quoted(b"abc", 32, 1000), r#""abc"..."#);
        assert_eq!(quoted(b"", 32, 0), r#""""#);
        assert_eq!(hex(b"\x00\xffa"), "00ff61");
    }
}
