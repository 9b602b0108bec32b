//! Where CPython's structures have what.
//!
//! Since 3.13 `_PyRuntime` begins with a table of offsets for debuggers (`_Py_DebugOffsets`: 3.13 in Include/internal/pycore_runtime.h, later in
//! pycore_debug_offsets.h). Which word of the table says what changes from one version to the next, and in no version between its releases. For 3.11 and
//! 3.12 there is no such table; their structures don't change any more.

use super::memory::Memory;

/// How the table begins.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// Words of it that are read: more than any version has.
const WORDS: usize = 112;
/// No structure is larger. (The interpreter's state has some hundred thousand bytes.)
const MOST_OFFSET: u64 = 1 << 24;

/// How the frames that one loop runs are told from those of the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    /// 3.11: each loop has a `_PyCFrame` on the native stack, in which the innermost frame is named; the outermost frame says that it is one.
    Loop {
        /// Offset of the innermost frame in `_PyCFrame`, ...
        innermost: u64,
        /// ... that of the next loop, ...
        next: u64,
        /// ... and in a frame, whether it is the outermost of its loop.
        is_outermost: u64,
    },
    /// 3.12: the loop's `_PyCFrame` only leads to the innermost frame of all, and frames end as they do later.
    Reached {
        /// Offset of the innermost frame in `_PyCFrame`.
        innermost: u64,
    },
    /// 3.13 and later: behind the last frame comes one that lies on the native stack, and whose owner is no thread.
    Owned,
}

/// Offsets in an interpreter's state, and in a thread's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct States {
    /// In the runtime: the first interpreter.
    pub interpreters: u64,
    /// In an interpreter: the next one, ...
    pub next_interpreter: u64,
    /// ... and its first thread.
    pub threads: u64,
    /// In a thread: the next one, ...
    pub next_thread: u64,
    /// ... what leads to its frames, ...
    pub innermost: u64,
    /// ... its thread pointer, ...
    pub pointer: u64,
    /// ... and its number, as the kernel has it.
    pub number: u64,
}

/// Offsets in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frames {
    pub code: u64,
    pub previous: u64,
    /// The instruction, or up to 3.12 the unit before the next one.
    pub instruction: u64,
    pub locals: u64,
    pub owner: u64,
}

/// Offsets in a code object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Codes {
    pub file: u64,
    pub name: u64,
    pub lines: u64,
    pub first_line: u64,
    pub local_names: u64,
    pub local_kinds: u64,
    pub instructions: u64,
}

/// How long an integer is, and its sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Integers {
    /// 3.11: a signed count of digits.
    Count,
    /// Later: a word whose two lowest bits are the sign, and the rest above three is the count of digits.
    Tag,
}

/// Offsets in objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Objects {
    /// What an object begins with.
    pub head: u64,
    pub class: u64,
    pub class_name: u64,
    pub class_flags: u64,
    pub tuple_items: u64,
    pub list_items: u64,
    pub dict_keys: u64,
    pub dict_values: u64,
    pub float: u64,
    pub digits: u64,
    pub bytes: u64,
    pub text_state: u64,
    pub text_len: u64,
    /// The head of a string whose characters are ASCII, ...
    pub ascii: u64,
    /// ... and of any other.
    pub compact: u64,
    pub integers: Integers,
    /// What a dict whose values are elsewhere has before the first of them.
    pub before_values: u64,
}

/// All of it, for a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub states: States,
    pub ends: Ends,
    pub frames: Frames,
    pub codes: Codes,
    pub objects: Objects,
}

/// Of 3.11, but for what is said below.
const OLD: Layout = Layout {
    states: States {
        interpreters: 40,
        next_interpreter: 0,
        threads: 16,
        next_thread: 8,
        innermost: 56,
        pointer: 152,
        number: 160,
    },
    ends: Ends::Loop {
        innermost: 8,
        next: 16,
        is_outermost: 68,
    },
    frames: Frames {
        code: 32,
        previous: 48,
        instruction: 56,
        locals: 72,
        owner: 69,
    },
    codes: Codes {
        file: 112,
        name: 128,
        lines: 136,
        first_line: 72,
        local_names: 96,
        local_kinds: 104,
        instructions: 184,
    },
    objects: Objects {
        head: 16,
        class: 8,
        class_name: 24,
        class_flags: 168,
        tuple_items: 24,
        list_items: 24,
        dict_keys: 32,
        dict_values: 40,
        float: 16,
        digits: 24,
        bytes: 32,
        text_state: 32,
        text_len: 16,
        ascii: 48,
        compact: 72,
        integers: Integers::Count,
        before_values: 0,
    },
};

/// Where the parts of the table begin, in words.
struct Parts {
    thread: usize,
    /// In the part of threads: their pointer, with their number behind it.
    pointer: usize,
    frame: usize,
    code: usize,
    object: usize,
    class: usize,
    tuple: usize,
    list: usize,
    dict: usize,
    float: usize,
    integer: usize,
    bytes: usize,
    text: usize,
}

const PARTS_13: Parts = Parts {
    thread: 19,
    pointer: 5,
    frame: 28,
    code: 34,
    object: 44,
    class: 46,
    tuple: 50,
    list: 53,
    dict: 56,
    float: 59,
    integer: 61,
    bytes: 64,
    text: 67,
};

const PARTS_14: Parts = Parts {
    thread: 22,
    pointer: 5,
    frame: 31,
    code: 39,
    object: 50,
    class: 52,
    tuple: 56,
    list: 59,
    dict: 66,
    float: 69,
    integer: 71,
    bytes: 74,
    text: 77,
};

const PARTS_15: Parts = Parts {
    thread: 22,
    pointer: 8,
    frame: 39,
    code: 47,
    object: 58,
    class: 60,
    tuple: 68,
    list: 71,
    dict: 78,
    float: 81,
    integer: 83,
    bytes: 86,
    text: 89,
};

impl Layout {
    /// The layout of the interpreter whose state is at `runtime`; `version`, where it says so itself (`Py_Version`). `None`: it isn't known.
    pub fn of(memory: &Memory, runtime: u64, version: Option<u64>) -> Option<Layout> {
        let table = memory.bytes(runtime, 8 * WORDS)?;
        match table.starts_with(COOKIE) {
            true => Layout::told(&table),
            false => Layout::known(version?),
        }
    }

    fn known(version: u64) -> Option<Layout> {
        match version >> 16 {
            0x030b => Some(OLD),
            0x030c => Some(Layout {
                states: States {
                    threads: 72,
                    pointer: 136,
                    number: 144,
                    ..OLD.states
                },
                ends: Ends::Reached { innermost: 0 },
                frames: Frames {
                    code: 0,
                    previous: 8,
                    owner: 70,
                    ..OLD.frames
                },
                codes: Codes {
                    first_line: 68,
                    instructions: 192,
                    ..OLD.codes
                },
                objects: Objects {
                    ascii: 40,
                    compact: 56,
                    integers: Integers::Tag,
                    ..OLD.objects
                },
            }),
            _ => None,
        }
    }

    fn told(table: &[u8]) -> Option<Layout> {
        let words = table.chunks_exact(8).map(|w| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(w);
            u64::from_le_bytes(bytes)
        });
        let words: Vec<u64> = words.collect();
        let [_, version, is_free_threaded] = *words.first_chunk()?;
        let parts = match (version >> 16, is_free_threaded) {
            (0x030d, 0) => PARTS_13,
            (0x030e, 0) => PARTS_14,
            (0x030f, 0) => PARTS_15,
            _ => return None,
        };
        let of = |part: usize, i: usize| {
            let offset = words.get(part + i).copied();
            offset.filter(|o| *o < MOST_OFFSET)
        };
        let Parts {
            thread,
            pointer,
            frame,
            code,
            object,
            class,
            ..
        } = parts;
        let ascii = of(parts.text, 3)?;
        Some(Layout {
            states: States {
                interpreters: of(3, 2)?,
                next_interpreter: of(6, 2)?,
                threads: of(6, 3)?,
                next_thread: of(thread, 2)?,
                innermost: of(thread, 4)?,
                pointer: of(thread, pointer)?,
                number: of(thread, pointer + 1)?,
            },
            ends: Ends::Owned,
            frames: Frames {
                code: of(frame, 2)?,
                previous: of(frame, 1)?,
                instruction: of(frame, 3)?,
                locals: of(frame, 4)?,
                owner: of(frame, 5)?,
            },
            codes: Codes {
                file: of(code, 1)?,
                name: of(code, 3)?,
                lines: of(code, 4)?,
                first_line: of(code, 5)?,
                local_names: of(code, 7)?,
                local_kinds: of(code, 8)?,
                instructions: of(code, 9)?,
            },
            objects: Objects {
                head: of(object, 0)?,
                class: of(object, 1)?,
                class_name: of(class, 1)?,
                class_flags: of(class, 3)?,
                tuple_items: of(parts.tuple, 1)?,
                list_items: of(parts.list, 1)?,
                dict_keys: of(parts.dict, 1)?,
                dict_values: of(parts.dict, 2)?,
                float: of(parts.float, 1)?,
                digits: of(parts.integer, 2)?,
                bytes: of(parts.bytes, 2)?,
                text_state: of(parts.text, 1)?,
                text_len: of(parts.text, 2)?,
                ascii,
                // A length and an address, of the text in UTF-8.
                compact: ascii + 16,
                integers: Integers::Tag,
                // Its capacity, its size, and two flags.
                before_values: 8,
            },
        })
    }
}

#[cfg(any(test, fuzzing))]
impl Layout {
    /// One of each kind: 3.11, 3.12, and 3.13.0 as it tells itself of 64-bit Linux.
    pub fn some() -> [Layout; 3] {
        let [old, reached] = [0x030b_07f0, 0x030c_01f0].map(Layout::known);
        let old = old.unwrap_or(OLD);
        let told = Layout {
            states: States {
                interpreters: 632,
                next_interpreter: 7264,
                threads: 7344,
                next_thread: 8,
                innermost: 72,
                pointer: 152,
                number: 160,
            },
            ends: Ends::Owned,
            codes: Codes {
                instructions: 200,
                ..reached.unwrap_or(OLD).codes
            },
            objects: Objects {
                before_values: 8,
                ..reached.unwrap_or(OLD).objects
            },
            ..reached.unwrap_or(OLD)
        };
        [old, reached.unwrap_or(OLD), told]
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::Made;
    use super::*;

    fn layout(table: &[u64], version: Option<u64>) -> Option<Layout> {
        let mut made = Made::default();
        made.words(0x1000, table);
        let read = |at: u64, into: &mut [u8]| made.read(at, into);
        Layout::of(&Memory::new(&read), 0x1000, version)
    }

    /// A table in which each word is its own number.
    fn numbered(version: u64) -> [u64; WORDS] {
        let mut table: [u64; WORDS] = std::array::from_fn(|i| i as u64);
        table[..3].copy_from_slice(&[u64::from_le_bytes(*COOKIE), version, 0]);
        table
    }

    #[test]
    fn a_table_is_read_as_its_version_has_it() {
        for (version, thread, number, kinds, len) in [
            (0x030d_00f0, 23, 25, 42, 69),
            (0x030e_0af0, 26, 28, 47, 79),
            (0x030f_02f0, 26, 31, 55, 91),
        ] {
            let l = layout(&numbered(version), None).expect("a layout");
            assert_eq!(
                (l.states.innermost, l.states.number),
                (thread, number),
                "{version:x}"
            );
            assert_eq!(
                (l.codes.local_kinds, l.objects.text_len),
                (kinds, len),
                "{version:x}"
            );
        }
    }

    #[test]
    fn what_is_not_known_has_no_layout() {
        assert!(layout(&[0; WORDS], Some(0x030b_07f0)).is_some());
        assert!(layout(&[0; WORDS], Some(0x030c_01f0)).is_some());
        // Older, and one that would have a table.
        for version in [None, Some(0x030a_0df0), Some(0x030d_00f0)] {
            assert_eq!(layout(&[0; WORDS], version), None);
        }
        assert_eq!(layout(&numbered(0x0310_00f0), None), None);
        let mut free_threaded = numbered(0x030e_00f0);
        free_threaded[2] = 1;
        assert_eq!(layout(&free_threaded, None), None);
        let mut far = numbered(0x030e_00f0);
        far[26] = MOST_OFFSET;
        assert_eq!(layout(&far, None), None);
        assert_eq!(layout(&[0; 4], Some(0x030b_07f0)), None);
    }
}
