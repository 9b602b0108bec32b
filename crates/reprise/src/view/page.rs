//! The page: one file of HTML, style and script, with a place for data. Served, the place is empty and the page asks for tiles; written to a file,
//! all tiles are inside, compressed.

use super::tiles::Tiles;
use flate2::write::GzEncoder;
use flate2::Compression;
use serde_json::Value;
use std::io::{BufWriter, Write};

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Where the data go in the page.
const DATA: &str = "/*DATA*/";

/// The page without data.
pub fn served() -> String {
    page().replace(DATA, "null")
}

fn page() -> String {
    HTML.replace("/*STYLE*/", STYLE)
        .replace("/*SCRIPT*/", SCRIPT)
}

/// Writes the page with everything inside.
///
/// # Errors
/// When the trace can't be read, or the file not written.
pub fn whole(tiles: &mut Tiles, file: impl Write) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, file);
    let page = page();
    let (before, behind) = page.split_once(DATA).unwrap_or((&page, ""));
    out.write_all(before.as_bytes())?;
    let about = tiles.about().to_string();
    write!(out, "{{\"about\":{},\"tiles\":{{", harmless(&about))?;
    let mut comma = "";
    for level in 0..tiles.levels() {
        for number in 0..tiles.tiles(level) {
            let Some(tile) = tiles.tile(level, number)? else {
                continue;
            };
            write!(out, "{comma}\n\"{level}/{number}\":\"{}\"", packed(&tile)?)?;
            comma = ",";
        }
    }
    out.write_all(b"}}")?;
    out.write_all(behind.as_bytes())?;
    Ok(out.flush()?)
}

/// JSON that can stand in a script element: nothing in it looks like HTML.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// A tile, compressed, in base64.
fn packed(tile: &Value) -> std::io::Result<String> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(tile.to_string().as_bytes())?;
    Ok(base64(&packer.finish()?))
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= group.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_the_rfc_has_it() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    #[test]
    fn the_page_is_one_file_and_asks_nothing_of_the_network() {
        let page = served();
        for place in ["/*STYLE*/", "/*SCRIPT*/", DATA] {
            assert!(!page.contains(place), "{place} is left");
        }
        for outside in [
            "http:", "https:", "src=", "href=", "url(", "@import", "import(",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn no_data_end_the_script_element() {
        assert_eq!(harmless("[\"</script>\"]"), "[\"\\u003c/script>\"]");
    }
}
