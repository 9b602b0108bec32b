//! Stacks of CPython: in which of its functions each thread is, at which lines, and what their variables are.
//!
//! They are read from outside, out of the interpreter's own structures, without the scripts that gdb has for it, and without debugging
//! information. Since 3.13 the interpreter tells for debuggers where its structures have what (`_Py_DebugOffsets`, at the beginning of
//! `_PyRuntime`); for 3.11 and 3.12 that is known here ([`layout`]). Older ones have other frames, free-threaded ones other objects: of both
//! nothing is told.
//!
//! - [`memory`]: what is read;
//! - [`layout`]: where the structures have what;
//! - [`stack`]: interpreters, their threads, these threads' frames;
//! - [`code`]: functions, and the lines of their instructions;
//! - [`value`]: objects in words.
//!
//! A native stack has a frame of the interpreter's loop for each *run* of Python functions that call each other without C between them.
//! Each such loop has a place on the native stack that Python's frames lead to: by that address a run is put where it belongs.
//!
//! Nothing that is read is trusted: each read may fail, each walk has a limit, and what is broken makes a stack short.

mod code;
mod layout;
#[cfg(test)]
mod made;
mod memory;
mod stack;
mod value;

use crate::debuggee::Debuggee;
use layout::Layout;
use memory::Memory;
use serde::{Deserialize, Serialize};

/// The beginning of the name of the library that has the interpreter, where the program hasn't it itself.
const LIBRARY: &[u8] = b"libpython";
/// The interpreter's state, and the version, which is there since 3.11.
const SYMBOLS: [&str; 2] = ["_PyRuntime", "Py_Version"];

/// What is known of all threads.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stacks {
    /// Those that are in the interpreter.
    pub threads: Vec<Stack>,
}

/// A thread's part of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stack {
    /// The thread, as the program knew it.
    pub thread: u32,
    /// Innermost first.
    pub runs: Vec<Run>,
    /// There is more that can't be read, or is beyond a limit.
    #[serde(default)]
    pub is_cut: bool,
}

/// Functions that call each other without C between them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// An address in the native frame of the loop that runs them; 0: it isn't known.
    pub at: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

/// A function of Python's that was called, and has not returned.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Frame {
    /// Its qualified name.
    pub function: String,
    /// The file, as its compiler was told.
    pub file: String,
    /// The line, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Variables that have a value, in the order in which the function names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locals: Vec<Variable>,
}

/// A variable.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value in words, much as Python's `repr` has it, but short.
    pub value: String,
}

/// A native thread, by what the interpreter knows of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Native {
    /// As the program knew it.
    thread: u32,
    /// Its thread pointer, which pthread_self(3) returns.
    pointer: u64,
}

impl Debuggee {
    /// Python's stacks of all threads, or of one, as the program knew it.
    pub(crate) fn python(&self, only: Option<u32>) -> Stacks {
        let Some((runtime, version)) = self.python_runtime() else {
            return Stacks::default();
        };
        let read = |at: u64, into: &mut [u8]| self.read(at, into).is_ok();
        let memory = Memory::new(&read);
        let layout = Layout::of(&memory, runtime, version);
        let natives = self
            .slots()
            .map(|slot| Native {
                thread: self.visible(slot),
                pointer: self.registers(slot).map_or(0, |r| r.fs_base),
            })
            .filter(|n| only.is_none_or(|only| n.thread == only));
        match layout {
            Some(layout) => stack::all(&memory, &layout, runtime, &natives.collect::<Vec<_>>()),
            None => Stacks::default(),
        }
    }

    /// Where the interpreter's state is, and its version.
    fn python_runtime(&self) -> Option<(u64, Option<u64>)> {
        let all = self.loaded();
        let is_likely = |name: &[u8]| {
            let last = name.rsplit(|b| *b == b'/').next().unwrap_or_default();
            name.is_empty() || last.starts_with(LIBRARY)
        };
        let likely = all.iter().filter(|l| is_likely(&l.name));
        likely.into_iter().find_map(|l| {
            let [runtime, version] = self.dynamic_symbols(l, SYMBOLS);
            Some((runtime?, version.and_then(|at| self.word(at))))
        })
    }
}

/// Reads a memory in which all addresses are there, and lead to these bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn any_memory(bytes: &[u8]) {
    let Some(first) = bytes.first() else { return };
    let read = |at: u64, into: &mut [u8]| {
        for (to, i) in into.iter_mut().zip(0..) {
            *to = bytes[(at.wrapping_add(i) % bytes.len() as u64) as usize];
        }
        true
    };
    let memory = Memory::new(&read);
    let known = Layout::some()[usize::from(*first) % 3];
    let layout = Layout::of(&memory, 0, None).unwrap_or(known);
    let thread = Native {
        thread: 1,
        pointer: memory.word(layout.states.pointer).unwrap_or(0),
    };
    as_json(&stack::all(&memory, &layout, 0, &[thread]));
}

/// As JSON without any character beyond ASCII, which gdb would have to have a locale for.
pub(crate) fn as_json(stacks: &Stacks) -> String {
    let text = serde_json::to_string(stacks).unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_ascii() {
            true => out.push(c),
            false => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out += &format!("\\u{unit:04x}");
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gdb_is_told_is_ascii() {
        let frame = Frame {
            function: "über".into(),
            file: "/tmp/\u{1F40D}.py".into(),
            line: Some(3),
            locals: Vec::new(),
        };
        let stacks = Stacks {
            threads: vec![Stack {
                thread: 7,
                runs: vec![Run {
                    at: 9,
                    frames: vec![frame],
                }],
                is_cut: true,
            }],
        };
        let text = as_json(&stacks);
        assert!(text.is_ascii() && text.contains("\\u00fcber"), "{text}");
        let back: Stacks = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back, stacks);
    }
}
