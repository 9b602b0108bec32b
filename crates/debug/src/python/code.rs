//! Functions of Python's, and the lines of their instructions (CPython's Objects/locations.md).

use super::layout::Layout;
use super::memory::Memory;
use super::value::Values;

/// Longest table of locations.
const MOST_TABLE: u64 = 1 << 20;
/// Most variables of a function.
const MOST_LOCALS: usize = 64;
/// A name that can't be read.
const UNREADABLE: &str = "??";
/// Bytes of an instruction without its operands' caches.
const UNIT: i64 = 2;

/// A code object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Code {
    pub function: String,
    pub file: String,
    pub first_line: u32,
    /// Where its instructions are.
    instructions: u64,
    lines: Vec<u8>,
    /// Names of variables, and what these are (`CO_FAST_*` in Include/internal/pycore_code.h).
    pub locals: Vec<(String, u8)>,
}

impl Code {
    /// The one at `at`.
    pub fn read(memory: &Memory, layout: &Layout, at: u64) -> Option<Code> {
        let (values, offsets) = (Values::new(memory, layout), &layout.codes);
        if values.own_class(at)? != "code" {
            return None;
        }
        let object = |offset: u64| memory.pointer(at.checked_add(offset)?);
        let text = |offset: u64| values.text(object(offset)?);
        let names =
            object(offsets.local_names).and_then(|at| values.items_of_tuple(at, MOST_LOCALS));
        let kinds = object(offsets.local_kinds).and_then(|at| values.bytes(at, MOST_LOCALS as u64));
        let names = names.unwrap_or_default().into_iter();
        let named = names.zip(kinds.unwrap_or_default());
        let locals = named.map(|(name, kind)| (values.text(name).unwrap_or_default(), kind));
        let lines = object(offsets.lines).and_then(|at| values.bytes(at, MOST_TABLE));
        Some(Code {
            function: text(offsets.name).unwrap_or_else(|| UNREADABLE.into()),
            file: text(offsets.file).unwrap_or_else(|| UNREADABLE.into()),
            first_line: memory.half(at.checked_add(offsets.first_line)?)?,
            instructions: at.checked_add(offsets.instructions)?,
            lines: lines.unwrap_or_default(),
            locals: locals.collect(),
        })
    }

    /// The line of the instruction at `at`.
    pub fn line(&self, at: u64) -> Option<u32> {
        let distance = at.wrapping_sub(self.instructions) as i64;
        if distance < 0 {
            // It has not begun.
            return Some(self.first_line).filter(|line| *line != 0);
        }
        line(&self.lines, self.first_line, distance / UNIT)
    }

    /// It has no lines: it is the interpreter's own, and stands for none of the program's functions.
    pub fn is_internal(&self) -> bool {
        self.first_line == 0 && line(&self.lines, 0, 0).is_none()
    }
}

/// The line of the instruction with this number, in units. Each entry is for a few instructions: a byte with its highest bit set, which says in bits 3 to 6
/// which form it has and in the rest for how many instructions it is, and what belongs to the form.
fn line(table: &[u8], first_line: u32, instruction: i64) -> Option<u32> {
    /// From here on the line is 0 to 2 further; before, it's the same.
    const ONE_LINE: u8 = 10;
    /// From here on it is told, ...
    const TOLD: u8 = 13;
    /// ... and here there is none.
    const NONE: u8 = 15;
    let (mut at, mut line, mut begins) = (0, i64::from(first_line), 0);
    while let Some(head) = table.get(at).copied() {
        let form = head >> 3 & 0xf;
        match form {
            ONE_LINE..TOLD => line += i64::from(form - ONE_LINE),
            TOLD..NONE => line += signed(table.get(at + 1..).unwrap_or_default()),
            _ => {}
        }
        begins += i64::from(head & 7) + 1;
        if instruction < begins {
            let line = u32::try_from(line).ok();
            return line.filter(|line| form != NONE && *line != 0);
        }
        at += 1;
        // What belongs to an entry has its highest bit clear.
        while table.get(at).is_some_and(|b| b & 0x80 == 0) {
            at += 1;
        }
    }
    None
}

/// A number in groups of six bits, the lowest first; bit 6 says that there are more. The lowest bit is the sign.
fn signed(bytes: &[u8]) -> i64 {
    /// More would be no line.
    const MOST_GROUPS: usize = 6;
    let mut number = 0;
    for (byte, i) in bytes.iter().take(MOST_GROUPS).zip(0..) {
        number |= i64::from(byte & 0x3f) << (6 * i);
        if byte & 0x40 == 0 {
            break;
        }
    }
    match number & 1 {
        0 => number >> 1,
        _ => -(number >> 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An entry as the compiler makes it.
    #[derive(Clone, Debug)]
    enum Entry {
        Columns,
        OneLine(u8),
        NoColumns(i32),
        Long(i32),
        None,
    }

    fn put_signed(table: &mut Vec<u8>, number: i32) {
        let mut left = u64::from(number.unsigned_abs()) << 1 | u64::from(number < 0);
        while left >= 0x40 {
            table.push(0x40 | (left & 0x3f) as u8);
            left >>= 6;
        }
        table.push(left as u8);
    }

    impl Entry {
        fn put(&self, table: &mut Vec<u8>, len: u8) {
            let head = |form: u8| 0x80 | form << 3 | (len - 1);
            match self {
                Entry::Columns => table.extend([head(4), 0x21]),
                Entry::OneLine(n) => table.extend([head(10 + n), 4, 9]),
                Entry::NoColumns(n) => {
                    table.push(head(13));
                    put_signed(table, *n);
                }
                Entry::Long(n) => {
                    table.push(head(14));
                    put_signed(table, *n);
                    table.extend([0x41, 2, 5, 6]);
                }
                Entry::None => table.push(head(15)),
            }
        }

        fn moves(&self) -> i32 {
            match self {
                Entry::OneLine(n) => i32::from(*n),
                Entry::NoColumns(n) | Entry::Long(n) => *n,
                Entry::Columns | Entry::None => 0,
            }
        }
    }

    fn entry() -> impl Strategy<Value = (Entry, u8)> {
        let moves = -3000..3000;
        let entry = prop_oneof![
            Just(Entry::Columns),
            (0..3u8).prop_map(Entry::OneLine),
            moves.clone().prop_map(Entry::NoColumns),
            moves.prop_map(Entry::Long),
            Just(Entry::None),
        ];
        (entry, 1..=8u8)
    }

    proptest! {
        #[test]
        fn each_instruction_has_the_line_that_it_was_given(entries in prop::collection::vec(entry(), 0..40)) {
            let (mut table, mut lines, mut at) = (Vec::new(), Vec::new(), 100_000);
            for (entry, len) in &entries {
                entry.put(&mut table, *len);
                at += entry.moves();
                let here = (!matches!(entry, Entry::None)).then_some(at as u32);
                lines.extend((0..*len).map(|_| here));
            }
            for (wanted, i) in lines.iter().zip(0..) {
                prop_assert_eq!(line(&table, 100_000, i), *wanted);
            }
            prop_assert_eq!(line(&table, 100_000, lines.len() as i64), None);
        }

        #[test]
        fn any_table_ends(table in prop::collection::vec(any::<u8>(), 0..300), first in any::<u32>(), at in 0..5000i64) {
            line(&table, first, at);
        }
    }

    #[test]
    fn lines_are_those_of_a_real_table() {
        // def f(x):      # line 3
        //     y = x + 1
        //     return [
        //         y,
        //     ]
        // as CPython 3.11.7 compiles it: co_linetable, and the lines of its co_positions.
        let table = [
            0x80, 0x00, 0xd8, 0x08, 0x09, 0x88, 0x41, 0x89, 0x05, 0x80, 0x41, 0xe0, 0x08, 0x09,
            0xf0, 0x03, 0x02, 0x0c, 0x06, 0xf0, 0x00, 0x02, 0x05, 0x06,
        ];
        let lines: Vec<_> = (0..10).map(|i| line(&table, 3, i)).collect();
        assert_eq!(lines[0], Some(3));
        assert!(lines[1..6].iter().all(|l| *l == Some(4)), "{lines:?}");
        assert_eq!(lines[6], Some(6), "{lines:?}");
        assert!(lines[7..9].iter().all(|l| *l == Some(5)), "{lines:?}");
    }
}
