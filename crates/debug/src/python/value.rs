//! Objects of Python's in words: numbers, texts and what contains them, much as `repr` has them, but short; of all others their class and address.
//! None of the program's code is run for it, and what a class of the program's makes of a value isn't known.

use super::layout::{Integers, Layout};
use super::memory::Memory;
use std::fmt::Write;

/// Characters of a text, and bytes, that are shown.
const MOST_TEXT: u64 = 80;
/// Characters of a name, and of a file's.
const MOST_NAME: u64 = 1024;
/// Items of a container that are shown, ...
const MOST_ITEMS: usize = 8;
/// ... and containers in containers.
const MOST_DEPTH: usize = 3;
/// No value is longer, but for the text that ends it.
const MOST_VALUE: usize = 400;
/// Slots of a dict or a set that are looked at for its items.
const MOST_SLOTS: u64 = 1024;
/// Digits of an integer that are shown in decimal (120 bits).
const MOST_DIGITS: u64 = 4;
/// Bits of a digit.
const DIGIT: u64 = 30;
/// In a class's flags: it was made as the program ran.
const HEAP_TYPE: u64 = 1 << 9;
/// What a value of a variable is, by its lowest bits (Include/internal/pycore_stackref.h): not an object but an integer, ...
const TAGGED: u64 = 3;
/// ... above so many bits.
const TAG_BITS: u32 = 2;

/// Reads objects.
pub(super) struct Values<'a> {
    memory: &'a Memory<'a>,
    layout: &'a Layout,
}

/// Characters of a string.
struct Text {
    len: u64,
    /// Bytes of a character.
    width: u64,
    at: u64,
}

impl<'a> Values<'a> {
    pub fn new(memory: &'a Memory<'a>, layout: &'a Layout) -> Values<'a> {
        Values { memory, layout }
    }

    /// The class of an object, if it is one of the interpreter's own.
    pub fn own_class(&self, at: u64) -> Option<String> {
        let o = &self.layout.objects;
        let class = self.memory.pointer(at.checked_add(o.class)?)?;
        let flags = self.memory.word(class.checked_add(o.class_flags)?)?;
        self.class_name(class).filter(|_| flags & HEAP_TYPE == 0)
    }

    fn class_name(&self, class: u64) -> Option<String> {
        let offset = self.layout.objects.class_name;
        let name = self.memory.pointer(class.checked_add(offset)?)?;
        let name = self.memory.text(name)?;
        Some(name).filter(|n| !n.chars().any(char::is_control))
    }

    /// How many items a container of variable size has.
    fn len(&self, at: u64) -> Option<u64> {
        let len = self
            .memory
            .word(at.checked_add(self.layout.objects.head)?)?;
        Some(len).filter(|len| *len <= i64::MAX as u64)
    }

    /// The addresses of the first items of a tuple.
    pub fn items_of_tuple(&self, at: u64, most: usize) -> Option<Vec<u64>> {
        if self.own_class(at)? != "tuple" {
            return None;
        }
        let first = at.checked_add(self.layout.objects.tuple_items)?;
        self.addresses(first, self.len(at)?, most)
    }

    fn addresses(&self, first: u64, len: u64, most: usize) -> Option<Vec<u64>> {
        let count = usize::try_from(len).ok()?.min(most);
        let bytes = self.memory.bytes(first, 8 * count)?;
        let words = bytes.chunks_exact(8).map(|w| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(w);
            u64::from_le_bytes(bytes)
        });
        Some(words.collect())
    }

    /// The first bytes of an object of class `bytes`.
    pub fn bytes(&self, at: u64, most: u64) -> Option<Vec<u8>> {
        if self.own_class(at)? != "bytes" {
            return None;
        }
        let first = at.checked_add(self.layout.objects.bytes)?;
        let len = self.len(at)?.min(most);
        self.memory.bytes(first, usize::try_from(len).ok()?)
    }

    /// A name that the interpreter has as a string.
    pub fn text(&self, at: u64) -> Option<String> {
        if self.own_class(at)? != "str" {
            return None;
        }
        let text = self.text_at(at)?;
        let chars = self.characters(&text, MOST_NAME)?;
        Some(chars.into_iter().filter(|c| !c.is_control()).collect())
    }

    fn text_at(&self, at: u64) -> Option<Text> {
        let o = &self.layout.objects;
        // Two bits for its being interned, three for the width, one each for its characters being in it and being ASCII.
        let state = self.memory.half(at.checked_add(o.text_state)?)?;
        let (width, is_compact, is_ascii) =
            (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        let head = if is_ascii { o.ascii } else { o.compact };
        let is_sound = is_compact && matches!(width, 1 | 2 | 4);
        is_sound.then_some(Text {
            len: self.memory.word(at.checked_add(o.text_len)?)?,
            width: width.into(),
            at: at.checked_add(head)?,
        })
    }

    fn characters(&self, text: &Text, most: u64) -> Option<Vec<char>> {
        let len = text.len.min(most) * text.width;
        let bytes = self.memory.bytes(text.at, usize::try_from(len).ok()?)?;
        let width = usize::try_from(text.width).ok()?;
        let chars = bytes.chunks_exact(width).map(|c| {
            let mut bytes = [0; 4];
            bytes[..width].copy_from_slice(c);
            char::from_u32(u32::from_le_bytes(bytes)).unwrap_or(char::REPLACEMENT_CHARACTER)
        });
        Some(chars.collect())
    }

    /// The value of a variable, as it stands in a frame. `None`: it has none.
    pub fn variable(&self, word: u64, may_be_cell: bool) -> Option<String> {
        if word & TAGGED == TAGGED {
            return Some((word as i64 >> TAG_BITS).to_string());
        }
        let mut at = word & !TAGGED;
        // What several functions share is in a cell, once the function has made it.
        if may_be_cell && at != 0 && self.own_class(at).as_deref() == Some("cell") {
            at = self
                .memory
                .word(at.checked_add(self.layout.objects.head)?)?;
        }
        (at != 0).then(|| self.shown(at))
    }

    /// An object in words.
    pub fn shown(&self, at: u64) -> String {
        let mut out = String::new();
        self.show(at, 0, &mut out);
        out
    }

    fn show(&self, at: u64, depth: usize, out: &mut String) {
        let begins = out.len();
        if self.show_known(at, depth, out).is_none() {
            out.truncate(begins);
            let class = at.checked_add(self.layout.objects.class);
            let class = class.and_then(|at| self.memory.pointer(at));
            let name = class.and_then(|class| self.class_name(class));
            let _ = match name {
                Some(name) => write!(out, "<{name} at {at:#x}>"),
                None => write!(out, "<unreadable object at {at:#x}>"),
            };
        }
    }

    /// `None`: it is of another class, or can't be read.
    fn show_known(&self, at: u64, depth: usize, out: &mut String) -> Option<()> {
        let o = &self.layout.objects;
        let class = self.own_class(at)?;
        match &*class {
            "NoneType" => out.push_str("None"),
            "bool" => {
                let digit = self.memory.half(at.checked_add(o.digits)?)?;
                out.push_str(if digit == 0 { "False" } else { "True" });
            }
            "int" => self.show_integer(at, out)?,
            "float" => {
                let bits = self.memory.word(at.checked_add(o.float)?)?;
                match f64::from_bits(bits) {
                    nan if nan.is_nan() => out.push_str("nan"),
                    number => write!(out, "{number:?}").ok()?,
                }
            }
            "str" => {
                let text = self.text_at(at)?;
                let chars = self.characters(&text, MOST_TEXT)?;
                quote(chars.iter().copied(), out);
                rest(text.len, MOST_TEXT, out);
            }
            "bytes" => {
                let len = self.len(at)?;
                let bytes = self.bytes(at, MOST_TEXT)?;
                out.push('b');
                quote_bytes(&bytes, out);
                rest(len, MOST_TEXT, out);
            }
            "type" => {
                let name = self.class_name(at)?;
                write!(out, "<class {name}>").ok()?;
            }
            "tuple" | "list" | "dict" | "set" | "frozenset" => {
                self.show_container(&class, at, depth, out)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn show_integer(&self, at: u64, out: &mut String) -> Option<()> {
        let o = &self.layout.objects;
        let word = self.memory.word(at.checked_add(o.head)?)?;
        let (count, is_negative) = match o.integers {
            Integers::Count => ((word as i64).unsigned_abs(), (word as i64) < 0),
            Integers::Tag => (word >> 3, word & 3 == 2),
        };
        if count > MOST_DIGITS {
            let bits = count.checked_mul(DIGIT)?;
            return write!(out, "<int of up to {bits} bits>").ok();
        }
        let mut number = 0u128;
        for i in (0..count).rev() {
            let digit = self.memory.half(at.checked_add(o.digits + 4 * i)?)?;
            number = number << DIGIT | u128::from(digit);
        }
        let sign = if is_negative && number != 0 { "-" } else { "" };
        write!(out, "{sign}{number}").ok()
    }

    fn show_container(&self, class: &str, at: u64, depth: usize, out: &mut String) -> Option<()> {
        let o = &self.layout.objects;
        let len = match class {
            "tuple" | "list" => self.len(at)?,
            // Behind how many of its slots are used, or have been.
            "set" | "frozenset" => self.memory.word(at.checked_add(o.head + 8)?)?,
            _ => self.memory.word(at.checked_add(o.head)?)?,
        };
        if depth >= MOST_DEPTH && len != 0 {
            return write!(out, "<{class} of {len}>").ok();
        }
        let (open, close) = match (class, len) {
            ("tuple", 1) => ("(", ",)"),
            ("tuple", _) => ("(", ")"),
            ("list", _) => ("[", "]"),
            ("set", 0) => ("set(", ")"),
            ("frozenset", 0) => ("frozenset(", ")"),
            ("frozenset", _) => ("frozenset({", "})"),
            _ => ("{", "}"),
        };
        let items: Vec<(u64, Option<u64>)> = match class {
            "tuple" => of_one(self.items_of_tuple(at, MOST_ITEMS)?),
            "list" => {
                let first = self.memory.word(at.checked_add(o.list_items)?)?;
                of_one(self.addresses(first, len, MOST_ITEMS)?)
            }
            "dict" => self.items_of_dict(at)?,
            _ => of_one(self.items_of_set(at)?),
        };
        out.push_str(open);
        let mut shown = 0;
        for (key, value) in items.into_iter().take(MOST_ITEMS) {
            if out.len() >= MOST_VALUE {
                break;
            }
            if shown > 0 {
                out.push_str(", ");
            }
            self.show(key, depth + 1, out);
            if let Some(value) = value {
                out.push_str(": ");
                self.show(value, depth + 1, out);
            }
            shown += 1;
        }
        if shown < len {
            let comma = if shown > 0 { ", " } else { "" };
            write!(out, "{comma}... {} more", len - shown).ok()?;
        }
        out.push_str(close);
        Some(())
    }

    /// Include/internal/pycore_dict.h. Keys that are all strings have no hash beside them.
    fn items_of_dict(&self, at: u64) -> Option<Vec<(u64, Option<u64>)>> {
        /// In the table of keys: the size of its index, in bytes, as a power of two; its kind; how many entries it has; the index.
        const INDEX: u64 = 9;
        const KIND: u64 = 10;
        const ENTRIES: u64 = 24;
        const BEGINS: u64 = 32;
        const GENERAL: u8 = 0;
        /// Of an index.
        const MOST_POWER: u8 = 40;
        let o = &self.layout.objects;
        let keys = self.memory.pointer(at.checked_add(o.dict_keys)?)?;
        let values = self.memory.word(at.checked_add(o.dict_values)?)?;
        let power = self.memory.byte(keys.checked_add(INDEX)?)?;
        let kind = self.memory.byte(keys.checked_add(KIND)?)?;
        let count = self.memory.word(keys.checked_add(ENTRIES)?)?;
        let first = keys.checked_add(BEGINS + (1 << Some(power).filter(|p| *p <= MOST_POWER)?))?;
        let (size, key) = match kind {
            GENERAL => (24, 8),
            _ => (16, 0),
        };
        let mut items = Vec::new();
        for i in 0..count.min(MOST_SLOTS) {
            let entry = first.checked_add(i * size)?;
            let key = self.memory.word(entry.checked_add(key)?)?;
            let value = match values {
                0 => self.memory.word(entry.checked_add(size - 8)?)?,
                // The instances of a class share their keys.
                _ => self
                    .memory
                    .word(values.checked_add(o.before_values + 8 * i)?)?,
            };
            if key != 0 && value != 0 {
                items.push((key, Some(value)));
            }
            if items.len() >= MOST_ITEMS {
                break;
            }
        }
        Some(items)
    }

    /// Include/cpython/setobject.h: a table of keys and their hashes.
    fn items_of_set(&self, at: u64) -> Option<Vec<u64>> {
        /// The hash of what has been taken out.
        const DUMMY: u64 = u64::MAX;
        let head = at.checked_add(self.layout.objects.head)?;
        let mask = self.memory.word(head.checked_add(16)?)?;
        let table = self.memory.pointer(head.checked_add(24)?)?;
        let mut items = Vec::new();
        for i in 0..=mask.min(MOST_SLOTS - 1) {
            let entry = table.checked_add(16 * i)?;
            let key = self.memory.word(entry)?;
            if key != 0 && self.memory.word(entry.checked_add(8)?)? != DUMMY {
                items.push(key);
            }
            if items.len() >= MOST_ITEMS {
                break;
            }
        }
        Some(items)
    }
}

fn of_one(items: Vec<u64>) -> Vec<(u64, Option<u64>)> {
    items.into_iter().map(|item| (item, None)).collect()
}

/// A text was cut.
fn rest(len: u64, shown: u64, out: &mut String) {
    if len > shown {
        let _ = write!(out, "... {} more", len - shown);
    }
}

fn quote(chars: impl Iterator<Item = char>, out: &mut String) {
    out.push('\'');
    for c in chars {
        match c {
            '\'' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('\'');
}

fn quote_bytes(bytes: &[u8], out: &mut String) {
    out.push('\'');
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use super::super::made::Maker;
    use super::*;

    #[test]
    fn values_are_shown_as_python_shows_them() {
        for layout in Layout::some() {
            let mut maker = Maker::new(&layout);
            let (zero, small, word) = (maker.integer(0), maker.integer(-42), maker.text("it's\n"));
            let data = maker.bytes(b"\0'a");
            let one = maker.tuple(&[small]);
            let many = maker.tuple(&[zero; 20]);
            let deep = (0..5).fold(one, |inner, _| maker.tuple(&[inner]));
            let long = maker.text(&"ab".repeat(100));
            let made = maker.made;
            let read = |at: u64, into: &mut [u8]| made.read(at, into);
            let memory = Memory::new(&read);
            let shown = |at| Values::new(&memory, &layout).shown(at);
            assert_eq!(shown(zero), "0");
            assert_eq!(shown(word), "'it\\'s\\n'");
            assert_eq!(shown(data), "b'\\x00\\'a'");
            assert_eq!(shown(one), "(-42,)");
            assert_eq!(shown(many), "(0, 0, 0, 0, 0, 0, 0, 0, ... 12 more)");
            assert_eq!(shown(deep), "(((<tuple of 1>,),),)");
            assert_eq!(shown(long), format!("'{}'... 120 more", "ab".repeat(40)));
            assert_eq!(shown(0x33), "<unreadable object at 0x33>");
            let variable = |word| Values::new(&memory, &layout).variable(word, false);
            // An integer that is in the reference itself, and no value.
            assert_eq!(
                variable((-5i64 << TAG_BITS) as u64 | TAGGED).as_deref(),
                Some("-5")
            );
            assert_eq!(variable(zero | 1).as_deref(), Some("0"));
            assert_eq!(variable(0), None);
            assert_eq!(variable(1), None);
        }
    }
}
