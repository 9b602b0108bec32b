//! Which functions are to be looked at closely ([`super::units`]): nine of ten have nothing to be ordered, and to decode them takes long.
//!
//! A function is gone through by the lengths of its instructions ([`reprise_code::length`]); only what by its bytes may matter is decoded.

use super::learned::Loads;
use super::operation::Operation;
use super::shared::{Waits, FUTEX};
use super::units::Function;
use reprise_code::decode::{Insn, Place};
use reprise_code::length::{Plain, Shape, WINDOW};

const XCHG_BYTE: u8 = 0x86;
const XCHG: u8 = 0x87;
const NOP: u8 = 0x90;
const SYSCALL: u8 = 0x05;
const GROUP_15: u8 = 0xae;
const MFENCE: u8 = 0xf0;
/// `mov` of a constant to eax, to edi, and to any register.
const TO_EAX: u8 = 0xb8;
const TO_EDI: u8 = 0xbf;
const TO_ANY: u8 = 0xc7;
/// Modes of a ModRM byte.
const MODE: u8 = 0xc0;

/// What can be said of an instruction without decoding it.
enum Seen<'a> {
    /// It has a plain form.
    Plain(Plain),
    /// What the tables tell.
    Shape(&'a Shape, &'a [u8; WINDOW]),
    /// The tables leave it open.
    Insn(&'a Insn),
}

/// May it be one that changes memory in one step, or that a wait is made of?
fn may_matter(shape: &Shape, code: &[u8; WINDOW]) -> bool {
    let opcode = code[shape.opcode];
    shape.locked
        || match (shape.two, opcode) {
            (true, SYSCALL) => true,
            // `mfence`
            (true, GROUP_15) => code[shape.modrm] == MFENCE,
            (true, _) => false,
            (_, XCHG_BYTE | XCHG) => code[shape.modrm] & MODE != MODE,
            // `pause`
            (_, NOP) => shape.opcode == 1 && code[0] == 0xf3,
            (_, TO_EAX | TO_EDI | TO_ANY) => {
                let at = shape.len.saturating_sub(4);
                Shape::word(code, at) == FUTEX as i32
            }
            _ => false,
        }
}

/// The address of a word that takes no register.
pub(super) fn fixed(p: Place) -> Option<u64> {
    (p.base.is_none() && p.index.is_none()).then_some(p.offset)
}

impl Function<'_> {
    /// Calls `seen` for all instructions, as [`each`](Function::each) does, with the address of each; until it says no.
    #[inline(always)]
    fn go_through(&self, mut seen: impl FnMut(u64, Seen) -> bool) {
        let mut at = 0;
        let mut last;
        while at < self.code.len() {
            let rest = &self.code[at..];
            let window: &[u8; WINDOW] = match rest.first_chunk() {
                Some(w) => w,
                None => {
                    last = [0; WINDOW];
                    last[..rest.len()].copy_from_slice(rest);
                    &last
                }
            };
            let pc = self.start + at as u64;
            if let Some(p) = Plain::of(window) {
                if p.len > rest.len() || !seen(pc, Seen::Plain(p)) {
                    return;
                }
                at += p.len;
                continue;
            }
            match Shape::of(window) {
                Some(s) if s.len > rest.len() => return,
                Some(s) => {
                    if !seen(pc, Seen::Shape(&s, window)) {
                        return;
                    }
                    at += s.len;
                    if window[0] == 0xe9 {
                        let target = Shape::word(window, 1) as i64 as u64;
                        let target = (pc + s.len as u64).wrapping_add(target);
                        at += self.rest_of_syscall(pc + s.len as u64, target);
                    }
                }
                None => {
                    let Some(i) = self.insn(pc) else { return };
                    if !seen(pc, Seen::Insn(&i)) {
                        return;
                    }
                    at += i.bytes().len();
                }
            }
        }
    }

    /// Is there anything to be ordered, as far as this function tells by itself? Calls `found` for the words at fixed addresses that it changes
    /// in one step.
    pub fn has_sites(&self, mut found: impl FnMut(u64)) -> bool {
        let mut has = self.learned != Loads::None;
        let mut waits = Waits::default();
        let mut look = |i: &Insn| {
            if self.change(i).is_some() {
                has = true;
                i.place().and_then(fixed).into_iter().for_each(&mut found);
            }
            has |= waits.at(i) && self.may_wait();
            has |= self.thread_id.is_some_and(|id| id.may_be_named_by(i));
        };
        let thread_id = self.thread_id;
        self.go_through(|pc, seen| {
            match seen {
                Seen::Plain(p) => {
                    let id = thread_id.zip(p.displacement());
                    if id.is_some_and(|(id, d)| id.is_named_by(d)) {
                        self.insn(pc).iter().for_each(&mut look);
                    }
                }
                Seen::Insn(i) => look(i),
                Seen::Shape(s, code) => {
                    let names = |d: i32| thread_id.is_some_and(|id| id.is_named_by(d));
                    let matters = may_matter(s, code)
                        || (thread_id.is_some()
                            && s.modrm != 0
                            && s.displacement(code).is_some_and(names));
                    if matters {
                        self.insn(pc).iter().for_each(&mut look);
                    }
                }
            }
            true
        });
        has
    }

    /// Does it load or store one of these words, between `first` and `last`?
    pub fn names_words(&self, first: u64, last: u64, holds: impl Fn(u64) -> bool) -> bool {
        let mut has = false;
        self.go_through(|pc, seen| {
            let near = |at: &u64| (first..=last).contains(at) && holds(*at);
            let decoded = match seen {
                Seen::Plain(p) => {
                    let word = p.fixed(pc + p.len as u64).filter(near);
                    word.and_then(|_| self.insn(pc))
                }
                Seen::Insn(i) => Some(*i),
                Seen::Shape(s, code) => {
                    let word = Some(s).filter(|s| s.modrm != 0);
                    let word = word.and_then(|s| s.fixed(pc, code)).filter(near);
                    word.and_then(|_| self.insn(pc))
                }
            };
            let held = |p: Place| fixed(p).is_some_and(&holds);
            has |= decoded
                .is_some_and(|i| Operation::of_any(&i).is_some() && i.place().is_some_and(held));
            !has
        });
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::locked::thread_id::ThreadId;
    use crate::sync::locked::units::Work;
    use reprise_code::functions::Functions;
    use reprise_code::memory::Memory;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// A file as it is mapped.
    struct Mapped {
        bytes: Vec<u8>,
        /// Address of the ELF header.
        header: u64,
        /// The code.
        code: (u64, u64),
    }

    impl Memory for &Mapped {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            let found = self.bytes.get(addr as usize..addr as usize + buf.len());
            found.map(|f| buf.copy_from_slice(f)).is_some()
        }
    }

    impl Mapped {
        fn of(file: &[u8]) -> Mapped {
            let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
            let half = |at: usize| word(at) as u32;
            let count = half(56) as u16 as usize;
            let all = (0..count).map(|i| word(32) as usize + 56 * i);
            let load = all.filter(|h| half(*h) == reprise_code::elf::LOAD);
            let mut mapped = Mapped {
                bytes: Vec::new(),
                header: u64::MAX,
                code: (0, 0),
            };
            for h in load {
                let [offset, address, _, len] = [8, 16, 24, 32].map(|at| word(h + at) as usize);
                mapped.bytes.resize(address + len, 0);
                mapped.bytes[address..].copy_from_slice(&file[offset..offset + len]);
                mapped.header = mapped.header.min(address as u64);
                if half(h + 4) & 1 != 0 {
                    mapped.code = (address as u64, (address + len) as u64);
                }
            }
            mapped
        }

        /// Calls `run` for its functions.
        fn each(&self, thread_id: Option<ThreadId>, mut run: impl FnMut(&Function)) {
            // What has no such table is not searched.
            let Some(functions) = Functions::at(self, self.header, self.code.0) else {
                return;
            };
            for i in 0..functions.count() {
                let (start, len) = functions.function(i).unwrap();
                if self.code.0 <= start && start + len <= self.code.1 {
                    run(&Function {
                        own_memory_is_private: false,
                        thread_id,
                        learned: Loads::None,
                        waits: Default::default(),
                        start,
                        code: &self.bytes[start as usize..(start + len) as usize],
                    });
                }
            }
        }
    }

    /// Whoever has units when all is decoded is found, and so are all words.
    fn nothing_is_overlooked(name: &str) -> (usize, usize) {
        let mapped = Mapped::of(&std::fs::read(name).unwrap());
        let thread_id = name
            .contains("libc.so")
            .then(|| ThreadId::new(0x2d0, 0x2c0));
        let (mut all, mut found) = (BTreeSet::new(), BTreeSet::new());
        mapped.each(thread_id, |f| {
            let changed = |i: &Insn| f.change(i).and_then(|_| i.place()).and_then(fixed);
            f.each(|i| all.extend(changed(i)));
            f.has_sites(|address| found.extend(Some(address)));
        });
        assert_eq!(all, found, "{name}");
        let ends = all.first().zip(all.last());
        let (mut functions, mut looked_at) = (0, 0);
        let mut work = Work::boxed();
        mapped.each(thread_id, |f| {
            let holds = |address: u64| all.contains(&address);
            let n = f.units(&holds, |_, _| None, &mut work).len();
            let names = |(first, last): (&u64, &u64)| f.names_words(*first, *last, holds);
            let found = f.has_sites(|_| {}) || ends.is_some_and(names);
            assert!(n == 0 || found, "{name}: {:x}", f.start);
            functions += 1;
            looked_at += found as usize;
        });
        (functions, looked_at)
    }

    #[test]
    fn nothing_is_overlooked_in_libraries_and_in_this_program() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut files: BTreeSet<_> = maps
            .split_whitespace()
            .map(std::string::String::from)
            .collect();
        files.retain(|f| f.starts_with('/'));
        for more in ["libm.so.6", "libstdc++.so.6"] {
            let beside = |f: &std::string::String| {
                f.strip_suffix("libc.so.6")
                    .map(|d| std::format!("{d}{more}"))
            };
            let path = files.iter().find_map(beside);
            files.extend(path.filter(|p| std::path::Path::new(p).exists()));
        }
        let mut total = (0, 0);
        for f in &files {
            let (functions, found) = nothing_is_overlooked(f);
            std::println!("{f}: {found} of {functions} functions");
            total = (total.0 + functions, total.1 + found);
        }
        assert!(total.0 > 1000 && total.1 > 10, "{total:?}");
        // It is of use only where most are passed over.
        assert!(total.1 * 4 < total.0, "{total:?}");
    }
}
