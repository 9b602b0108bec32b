//! Processes of Python's that are made up, for tests: a thread in two functions, the inner one in a loop of its own, as each version lays them out.

use super::layout::{Ends, Integers, Layout};
use super::memory::tests::Made;

/// Where the interpreter's state is.
pub const RUNTIME: u64 = 0x1_0000;
/// The thread's pointer and its number.
pub const POINTER: u64 = 0x7f00_0000_1000;
pub const NUMBER: u64 = 4711;
/// Where the loops are that run the inner function, and the outer one.
pub const LOOPS: [u64; 2] = [0x7ffe_0000, 0x7ffe_8000];
/// Frames of the functions.
pub const FRAMES: [u64; 2] = [0x50_0000, 0x50_1000];

/// Lays objects out one behind the other.
pub struct Maker<'a> {
    layout: &'a Layout,
    pub made: Made,
    next: u64,
    classes: Vec<(&'static str, u64)>,
}

impl<'a> Maker<'a> {
    pub fn new(layout: &'a Layout) -> Maker<'a> {
        Maker {
            layout,
            made: Made::default(),
            next: 0x20_0000,
            classes: Vec::new(),
        }
    }

    fn room(&mut self, len: u64) -> u64 {
        let at = self.next;
        self.next += len.next_multiple_of(64) + 64;
        at
    }

    fn class(&mut self, name: &'static str) -> u64 {
        if let Some((_, at)) = self.classes.iter().find(|(n, _)| *n == name) {
            return *at;
        }
        let o = self.layout.objects;
        let (at, text) = (self.room(512), self.room(64));
        self.made.put(text, format!("{name}\0").as_bytes());
        self.put_words(at, 512, &[(o.class_name, text), (o.class_flags, 0)]);
        self.classes.push((name, at));
        at
    }

    /// Words at offsets; 0 elsewhere.
    pub fn put_words(&mut self, at: u64, len: usize, words: &[(u64, u64)]) {
        let mut bytes = vec![0; len];
        for (offset, word) in words {
            let from = *offset as usize;
            bytes[from..from + 8].copy_from_slice(&word.to_le_bytes());
        }
        self.made.put(at, &bytes);
    }

    fn object(&mut self, class: &'static str, words: &[(u64, u64)], tail: (u64, &[u8])) -> u64 {
        let class = self.class(class);
        let mut bytes = vec![0; 256 + tail.0 as usize + tail.1.len()];
        let class = (self.layout.objects.class, class);
        for (offset, word) in words.iter().chain([&class]) {
            let from = *offset as usize;
            bytes[from..from + 8].copy_from_slice(&word.to_le_bytes());
        }
        let from = tail.0 as usize;
        bytes[from..from + tail.1.len()].copy_from_slice(tail.1);
        let at = self.room(bytes.len() as u64);
        self.made.put(at, &bytes);
        at
    }

    pub fn text(&mut self, text: &str) -> u64 {
        let o = self.layout.objects;
        let (state, head) = match text.is_ascii() {
            true => (1 << 2 | 1 << 5 | 1 << 6, o.ascii),
            false => (4 << 2 | 1 << 5, o.compact),
        };
        let tail: Vec<u8> = match text.is_ascii() {
            true => text.bytes().collect(),
            false => text
                .chars()
                .flat_map(|c| (c as u32).to_le_bytes())
                .collect(),
        };
        let len = text.chars().count() as u64;
        self.object(
            "str",
            &[(o.text_len, len), (o.text_state, state)],
            (head, &tail),
        )
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> u64 {
        let o = self.layout.objects;
        self.object("bytes", &[(o.head, bytes.len() as u64)], (o.bytes, bytes))
    }

    pub fn tuple(&mut self, items: &[u64]) -> u64 {
        let o = self.layout.objects;
        let tail: Vec<u8> = items.iter().flat_map(|i| i.to_le_bytes()).collect();
        self.object(
            "tuple",
            &[(o.head, items.len() as u64)],
            (o.tuple_items, &tail),
        )
    }

    pub fn integer(&mut self, number: i32) -> u64 {
        let o = self.layout.objects;
        let (digits, is_negative) = (u64::from(number != 0), number < 0);
        let len = match o.integers {
            Integers::Count if is_negative => digits.wrapping_neg(),
            Integers::Count => digits,
            Integers::Tag => {
                digits << 3
                    | if is_negative {
                        2
                    } else {
                        u64::from(number == 0)
                    }
            }
        };
        let tail = number.unsigned_abs().to_le_bytes();
        self.object("int", &[(o.head, len)], (o.digits, &tail))
    }

    pub fn cell(&mut self, of: u64) -> u64 {
        let o = self.layout.objects;
        self.object("cell", &[(o.head, of)], (0, &[]))
    }

    /// A function of line 10, with an instruction in line 11 and one in line 12.
    fn code(&mut self, name: &str, locals: &[(&str, u8)]) -> u64 {
        let c = self.layout.codes;
        let names: Vec<u64> = locals.iter().map(|(n, _)| self.text(n)).collect();
        let kinds: Vec<u8> = locals.iter().map(|(_, k)| *k).collect();
        let words = [
            (c.file, self.text("/made.py")),
            (c.name, self.text(name)),
            (c.lines, self.bytes(&[0xd8, 4, 9, 0xd8, 4, 9])),
            (c.local_names, self.tuple(&names)),
            (c.local_kinds, self.bytes(&kinds)),
            (c.first_line, 10),
        ];
        self.object("code", &words, (0, &[]))
    }

    fn frame(&mut self, at: u64, code: u64, previous: u64, instruction: u64, locals: &[u64]) {
        let f = self.layout.frames;
        let start = code + self.layout.codes.instructions;
        let mut words = vec![
            (f.code, code),
            (f.previous, previous),
            (f.instruction, start + 2 * instruction),
        ];
        words.extend(locals.iter().zip(0..).map(|(l, i)| (f.locals + 8 * i, *l)));
        // Each is the outermost of its loop.
        if let Ends::Loop { is_outermost, .. } = self.layout.ends {
            words.push((is_outermost & !7, 1 << (8 * (is_outermost & 7))));
        }
        self.put_words(at, 256, &words);
    }

    /// All of it.
    pub fn process(mut self) -> Made {
        let (s, f) = (self.layout.states, self.layout.frames);
        let [inner, outer] = FRAMES;
        let (number, word) = (self.integer(-7), self.text("grün"));
        let cell = self.cell(word);
        let codes = [
            self.code("inner", &[("n", 0x20), ("gone", 0x20), ("word", 0x60)]),
            self.code("outer", &[]),
        ];
        // The owner of what ends a loop.
        let ends = |at: u64| (at & !7, 3 << (8 * (at & 7)));
        match self.layout.ends {
            Ends::Loop {
                innermost, next, ..
            } => {
                self.frame(inner, codes[0], outer, 0, &[number, 0, cell]);
                self.frame(outer, codes[1], 0, 1, &[]);
                self.put_words(LOOPS[0], 64, &[(innermost, inner), (next, LOOPS[1])]);
                self.put_words(LOOPS[1], 64, &[(innermost, outer)]);
            }
            Ends::Reached { .. } | Ends::Owned => {
                self.frame(inner, codes[0], LOOPS[0], 0, &[number, 0, cell]);
                self.frame(outer, codes[1], LOOPS[1], 1, &[]);
                self.put_words(LOOPS[0], 128, &[(f.previous, outer), ends(f.owner)]);
                self.put_words(LOOPS[1], 128, &[ends(f.owner)]);
            }
        }
        let reached = match self.layout.ends {
            Ends::Loop { .. } => LOOPS[0],
            Ends::Owned => inner,
            Ends::Reached { innermost } => {
                let at = self.room(64);
                self.put_words(at, 64, &[(innermost, inner)]);
                at
            }
        };
        let (interpreter, thread) = (self.room(0x4000), self.room(512));
        self.put_words(RUNTIME, 0x1000, &[(s.interpreters, interpreter)]);
        self.put_words(interpreter, 0x4000, &[(s.threads, thread)]);
        let words = [
            (s.innermost, reached),
            (s.pointer, POINTER),
            (s.number, NUMBER),
        ];
        self.put_words(thread, 512, &words);
        self.made
    }
}
