//! Locations, numbers and bytes as people read them, and as programs do.

use serde_json::{json, Value};

/// A location as the server names it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Location<'a> {
    Memory { at: u64, len: u32 },
    Register { name: &'a str, from: u32, len: u32 },
}

pub fn location(text: &str) -> Option<Location<'_>> {
    let words: Vec<&str> = text.split(':').collect();
    match words[..] {
        ["m", at, len] => Some(Location::Memory {
            at: u64::from_str_radix(at, 16).ok()?,
            len: len.parse().ok()?,
        }),
        ["r", name, from, len] => Some(Location::Register {
            name,
            from: from.parse().ok()?,
            len: len.parse().ok()?,
        }),
        _ => None,
    }
}

/// In words: what lies there, if that has a name, else the address.
pub fn place_words(text: &str, symbol: Option<&String>) -> String {
    let bytes = |n: u32| if n == 1 { "1 byte" } else { "" };
    match (location(text), symbol) {
        (Some(Location::Memory { at, len }), symbol) => {
            let count = match len {
                1 => bytes(1).to_string(),
                n => format!("{n} bytes"),
            };
            match symbol {
                Some(symbol) => format!("{symbol}, {count} at {at:#x}"),
                None => format!("{count} at {at:#x}"),
            }
        }
        (Some(Location::Register { name, from, len }), _) => match (from, len) {
            (0, 8) => name.to_string(),
            (0, n) => format!("{name} (its lowest {})", counted(n)),
            (from, 1) => format!("{name} (its byte {from})"),
            (from, n) => format!("{name} (its bytes {from} to {})", from + n - 1),
        },
        _ => text.to_string(),
    }
}

fn counted(n: u32) -> String {
    match n {
        1 => "byte".into(),
        n => format!("{n} bytes"),
    }
}

/// Bytes from hexadecimal.
pub fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.filter_map(byte).collect()
}

/// A few bytes as people read them: a number, and text where they are some.
pub fn value_words(bytes: &[u8]) -> String {
    let is_text = |b: &u8| (b' '..=b'~').contains(b);
    let text = match bytes.iter().all(is_text) && !bytes.is_empty() {
        true => format!(
            " {}",
            crate::dump::quoted(bytes, bytes.len(), bytes.len() as u64)
        ),
        false => String::new(),
    };
    match bytes.len() {
        0 => "?".into(),
        1..=8 => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let number = u64::from_le_bytes(word);
            match number {
                0..=9 => format!("{number}{text}"),
                _ => format!("{number} ({number:#x}){text}"),
            }
        }
        _ => {
            let all: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
            format!("{}{text}", all.join(" "))
        }
    }
}

pub fn location_object(text: &str) -> Value {
    match location(text) {
        Some(Location::Memory { at, len }) => json!({"address": at, "bytes": len}),
        Some(Location::Register { name, from, len }) => {
            json!({"register": name, "first": from, "bytes": len})
        }
        None => Value::Null,
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn signed(number: u64) -> String {
    match number as i64 {
        n @ (..=-1 | 0..=9) => n.to_string(),
        n => format!("{n} ({n:#x})"),
    }
}
