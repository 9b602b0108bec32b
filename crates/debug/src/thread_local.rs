//! Where a thread's own variables are (qGetTLSAddr).
//!
//! Those of the program itself are at a distance from the thread pointer that the linker has fixed (ELF Handling For Thread-Local Storage,
//! variant II), whatever C library it uses. Those of libraries are found through the thread's vector of blocks (DTV), the second word behind
//! the thread pointer: by glibc's descriptions of its own structures, which are there for debuggers (nptl_db), or else as musl has them.

use crate::debuggee::Debuggee;
use crate::objects::Loaded;

/// Most modules with thread-local variables that are counted.
const MOST_MODULES: u64 = 1 << 16;
/// Where the DTV is named, behind the thread pointer.
const DTV: u64 = 8;
/// In an entry of glibc's DTV: no block yet.
const UNALLOCATED: u64 = u64::MAX;
/// Most parts of glibc's list of modules.
const MOST_PARTS: usize = 1024;

/// What glibc tells of its own structures.
const TOLD: [&str; 13] = [
    "_thread_db_link_map_l_tls_modid",
    "_thread_db_link_map_l_tls_offset",
    "_thread_db_pthread_dtvp",
    "_thread_db_dtv_dtv",
    "_thread_db_dtv_t_pointer_val",
    "_thread_db_dtv_t_counter",
    "_thread_db_dtv_slotinfo_list_len",
    "_thread_db_dtv_slotinfo_list_next",
    "_thread_db_dtv_slotinfo_list_slotinfo",
    "_thread_db_dtv_slotinfo_gen",
    "_thread_db_rtld_global__dl_tls_dtv_slotinfo_list",
    "_thread_db_sizeof_dtv_slotinfo",
    "_rtld_global",
];

/// A part of one of glibc's structures: its size and its offset, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    size: u64,
    offset: u64,
}

/// Where glibc has what leads to a thread's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glibc {
    module: Part,
    offset: Part,
    dtv: Part,
    entry: Part,
    value: Part,
    generation: Part,
    list: Option<ListOfModules>,
}

/// Where it tells since which generation of the DTV a module has been there.
#[derive(Clone, Copy, Debug)]
struct ListOfModules {
    first: u64,
    len: Part,
    next: Part,
    entries: Part,
    entry: u64,
    generation: Part,
}

impl Debuggee {
    /// Address of the variable at `offset` among the thread-local variables of the library with this link map (0: of the program), for the
    /// thread of `slot`; `None`: it has none yet, or it isn't known.
    pub(crate) fn thread_local(&self, slot: usize, offset: u64, link_map: u64) -> Option<u64> {
        let pointer = self.registers(slot).ok()?.fs_base;
        let all = self.loaded();
        let is_program = link_map == 0 || all.first().is_some_and(|l| l.link_map == link_map);
        if pointer == 0 {
            return None;
        }
        if is_program {
            let locals = self.thread_locals()?;
            return Some(below(pointer, locals.len, locals.align)?.wrapping_add(offset));
        }
        let block = match self.glibc(&all) {
            Some(glibc) => self.block_of_glibc(&glibc, pointer, link_map),
            None => self.block_of_musl(&all, pointer, link_map),
        };
        Some(block?.wrapping_add(offset))
    }

    fn glibc(&self, all: &[Loaded]) -> Option<Glibc> {
        let last = |l: &Loaded| {
            let from = l.name.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
            l.name[from..].to_vec()
        };
        // Until 2.33 threads had a library of their own.
        let is_likely = |l: &&Loaded| {
            [&b"libc.so"[..], b"libpthread"]
                .iter()
                .any(|p| last(l).starts_with(p))
        };
        let told = all.iter().filter(is_likely).find_map(|l| {
            let found = self.symbols(l, TOLD);
            found[0].map(|_| found)
        })?;
        let linker = all.iter().filter(|l| last(l).starts_with(b"ld-linux"));
        let part = |i: usize| self.part(told[i]?);
        let global = linker
            .filter_map(|l| self.symbols(l, ["_rtld_global"])[0])
            .next();
        let list = || {
            let first = global? + part(10)?.offset;
            Some(ListOfModules {
                first: self.word(first)?,
                len: part(6)?,
                next: part(7)?,
                entries: part(8)?,
                entry: u64::from(self.half(told[11]?)?),
                generation: part(9)?,
            })
        };
        Some(Glibc {
            module: part(0)?,
            offset: part(1)?,
            dtv: part(2)?,
            entry: part(3)?,
            value: part(4)?,
            generation: part(5)?,
            list: list(),
        })
    }

    fn half(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes).ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    /// Three words of 32 bits: the size in bits, how many, the offset.
    fn part(&self, at: u64) -> Option<Part> {
        Some(Part {
            size: u64::from(self.half(at)?) / 8,
            offset: u64::from(self.half(at + 8)?),
        })
    }

    fn block_of_glibc(&self, glibc: &Glibc, pointer: u64, link_map: u64) -> Option<u64> {
        let module = self.word(link_map + glibc.module.offset)?;
        if module == 0 || module > MOST_MODULES {
            return None;
        }
        let dtv = self.word(pointer + glibc.dtv.offset)?;
        let entry = |i: u64| dtv.wrapping_add(glibc.entry.offset + glibc.entry.size * i);
        // How many there are is told before the first one.
        let there = self.word(entry(u64::MAX).wrapping_add(glibc.generation.offset))?;
        let generation = self.word(entry(0) + glibc.generation.offset)?;
        let is_new = |list| self.since(list, module).is_some_and(|g| g > generation);
        let block = match module <= there && !glibc.list.as_ref().is_some_and(is_new) {
            true => self.word(entry(module) + glibc.value.offset)?,
            false => UNALLOCATED,
        };
        if block != UNALLOCATED {
            return Some(block);
        }
        // What was there when the thread began is below its pointer all the same.
        let below = self.word(link_map + glibc.offset.offset)?;
        (below != 0 && below != UNALLOCATED).then(|| pointer.wrapping_sub(below))
    }

    /// Since which generation of the DTV the module has been there.
    fn since(&self, list: &ListOfModules, module: u64) -> Option<u64> {
        let (mut part, mut first) = (list.first, 0);
        for _ in 0..MOST_PARTS {
            let len = self.word(part + list.len.offset)?;
            if module - first < len {
                let entry = part + list.entries.offset + (module - first) * list.entry;
                return self.word(entry + list.generation.offset);
            }
            first += len;
            part = self.word(part + list.next.offset).filter(|p| *p != 0)?;
        }
        None
    }

    /// musl numbers what has thread-local variables in the order of its list, and never unloads.
    fn block_of_musl(&self, all: &[Loaded], pointer: u64, link_map: u64) -> Option<u64> {
        let here = all.iter().position(|l| l.link_map == link_map)?;
        let before = &all[..=here];
        let module = before.iter().filter(|l| self.has_thread_locals(l)).count() as u64;
        let dtv = self.word(pointer + DTV)?;
        let there = self.word(dtv)?;
        let block = match module {
            0 => return None,
            _ if module > there || there > MOST_MODULES => return None,
            _ => self.word(dtv + 8 * module)?,
        };
        (block != 0).then_some(block)
    }
}

/// Where a block of this length begins that ends at the thread pointer.
fn below(pointer: u64, len: u64, align: u64) -> Option<u64> {
    let align = align.max(1);
    let len = len.checked_next_multiple_of(align)?;
    pointer.checked_sub(len)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_programs_block_ends_at_the_thread_pointer() {
        assert_eq!(super::below(0x1000, 0x14, 8), Some(0xfe8));
        assert_eq!(super::below(0x1000, 0x14, 0), Some(0xfec));
        assert_eq!(super::below(0x10, 0x14, 8), None);
        assert_eq!(super::below(0x1000, u64::MAX, 16), None);
    }
}
