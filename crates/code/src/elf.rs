//! A loaded ELF module as it lies in memory: its segments, its dynamic table, the functions that it exports.
//!
//! What is read belongs to the program, or to a file that it chose: nothing is trusted, every read may fail, every walk has a limit.
//! (System V ABI, "Program Loading and Dynamic Linking"; the GNU hash table as binutils and glibc read it.)

use crate::memory::Memory;

/// `PT_LOAD`
pub const LOAD: u32 = 1;
/// `PT_DYNAMIC`
pub const DYNAMIC: u32 = 2;
/// `PT_GNU_EH_FRAME`
pub const EH_FRAME: u32 = 0x6474_e550;

/// Bytes of a program header.
const PHENTSIZE: u64 = 56;
/// Most program headers that are looked at: as many as the kernel runs a program with (`load_elf_phdrs` in fs/binfmt_elf.c).
const MAX_HEADERS: u64 = 65536 / PHENTSIZE;
/// Most entries of a dynamic table that are looked at.
const MAX_DYNAMIC: u64 = 256;
/// Longest chain of a hash table that is followed.
const MAX_CHAIN: u32 = 4096;
/// Symbols in a bucket of a hash table, at most, where all are followed. Linkers make chains of two or three.
const AVERAGE_CHAIN: u64 = 16;
/// Most notes of a segment that are looked at.
const MAX_NOTES: usize = 16;
/// Bytes of a symbol.
const SYMENT: u64 = 24;
/// Longest name that is compared.
const MAX_NAME: usize = 64;

/// A module whose headers are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// What is added to the addresses that the file names.
    pub base: u64,
    header: u64,
    headers: u64,
    count: u64,
}

impl Module {
    /// The module whose ELF header lies at `at`.
    pub fn at<M: Memory + ?Sized>(memory: &M, at: u64) -> Option<Module> {
        if memory.half(at)? != u32::from_le_bytes(*b"\x7fELF") {
            return None;
        }
        let module = Module {
            base: 0,
            header: at,
            headers: at.wrapping_add(memory.word(at.wrapping_add(32))?),
            count: (memory.half(at.wrapping_add(56))? as u64 & 0xffff).min(MAX_HEADERS),
        };
        let (lowest, _) = module.segment(memory, LOAD)?;
        Some(Module {
            base: at.wrapping_sub(lowest & !0xfff),
            ..module
        })
    }

    /// Where its ELF header lies.
    pub fn headers_at(&self) -> u64 {
        self.header
    }

    /// Where its code begins, as its header says.
    pub fn entry<M: Memory + ?Sized>(&self, memory: &M) -> Option<u64> {
        match memory.word(self.header.wrapping_add(24))? {
            0 => None,
            entry => Some(self.base.wrapping_add(entry)),
        }
    }

    /// What its dynamic table says under this tag.
    pub fn dynamic<M: Memory + ?Sized>(&self, memory: &M, tag: u64) -> Option<u64> {
        let (at, _) = self.segment(memory, DYNAMIC)?;
        for i in 0..MAX_DYNAMIC {
            let entry = at.wrapping_add(16 * i);
            match memory.word(entry)? {
                0 => return None,
                t if t == tag => return memory.word(entry.wrapping_add(8)),
                _ => {}
            }
        }
        None
    }

    /// ld.so turns the file's addresses in a dynamic table into real ones when it relocates the module.
    pub fn place(&self, address: u64) -> u64 {
        if address < self.base {
            self.base.wrapping_add(address)
        } else {
            address
        }
    }

    /// Address and length in memory of every segment of this kind.
    fn segments<'a, M: Memory + ?Sized>(
        &'a self,
        memory: &'a M,
        kind: u32,
    ) -> impl Iterator<Item = (u64, u64)> + 'a {
        (0..self.count)
            .map(|i| self.headers.wrapping_add(i * PHENTSIZE))
            .filter(move |h| memory.half(*h) == Some(kind))
            // p_vaddr at 16, p_memsz at 40.
            .filter_map(move |h| {
                Some((
                    memory.word(h.wrapping_add(16))?,
                    memory.word(h.wrapping_add(40))?,
                ))
            })
            .map(|(v, len)| (self.base.wrapping_add(v), len))
    }

    /// Address and length in memory of the first segment of this kind.
    pub fn segment<M: Memory + ?Sized>(&self, memory: &M, kind: u32) -> Option<(u64, u64)> {
        self.segments(memory, kind).next()
    }

    /// The first 8 bytes of its build id, if it has one (`NT_GNU_BUILD_ID`).
    pub fn build_id<M: Memory + ?Sized>(&self, memory: &M) -> Option<u64> {
        const NOTE: u32 = 4;
        const BUILD_ID: u32 = 3;
        let gnu = u32::from_le_bytes(*b"GNU\0");
        self.segments(memory, NOTE).find_map(|(start, len)| {
            let mut at = start;
            for _ in 0..MAX_NOTES {
                if at.saturating_add(24) > start.saturating_add(len) {
                    break;
                }
                // Lengths of name and content, kind; the name.
                let [name_len, content_len, kind, name] =
                    [0, 4, 8, 12].map(|o| memory.half(at.wrapping_add(o)).unwrap_or_default());
                if (name_len, kind, name) == (4, BUILD_ID, gnu) && content_len >= 8 {
                    return memory.word(at.wrapping_add(16));
                }
                let padded = |n: u32| (n as u64).next_multiple_of(4);
                at = at.wrapping_add(12 + padded(name_len) + padded(content_len));
            }
            None
        })
    }

    /// Does a segment of the module hold this address?
    pub fn holds<M: Memory + ?Sized>(&self, memory: &M, address: u64) -> bool {
        self.segments(memory, LOAD)
            .any(|(start, len)| (start & !0xfff..start.saturating_add(len)).contains(&address))
    }

    /// Its dynamic table, if that can be read and has a GNU hash table.
    pub fn exports<M: Memory + ?Sized>(&self, memory: &M) -> Option<Exports> {
        const NULL: u64 = 0;
        const STRTAB: u64 = 5;
        const SYMTAB: u64 = 6;
        const SONAME: u64 = 14;
        const GNU_HASH: u64 = 0x6fff_fef5;
        const VERSYM: u64 = 0x6fff_fff0;
        let (at, _) = self.segment(memory, DYNAMIC)?;
        let [mut strings, mut symbols, mut soname, mut hash, mut versions] = [None; 5];
        for i in 0..MAX_DYNAMIC {
            let entry = at.wrapping_add(16 * i);
            let value = memory.word(entry.wrapping_add(8))?;
            match memory.word(entry)? {
                NULL => break,
                STRTAB => strings = Some(value),
                SYMTAB => symbols = Some(value),
                SONAME => soname = Some(value),
                GNU_HASH => hash = Some(value),
                VERSYM => versions = Some(value),
                _ => {}
            }
        }
        let place = |v: u64| self.place(v);
        Some(Exports {
            base: self.base,
            strings: place(strings?),
            symbols: place(symbols?),
            soname,
            hash: place(hash?),
            versions: versions.map(place),
        })
    }
}

/// What a module exports, by name.
#[derive(Clone, Copy, Debug)]
pub struct Exports {
    base: u64,
    strings: u64,
    symbols: u64,
    soname: Option<u64>,
    hash: u64,
    versions: Option<u64>,
}

/// An exported symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Where it lies.
    pub address: u64,
    /// Bytes of it, as the file says.
    pub size: u64,
    /// `STT_` type.
    pub kind: u8,
    /// It is what the name means when no version is asked for.
    pub default: bool,
}

/// `STT_OBJECT`
pub const OBJECT: u8 = 1;
/// `STT_FUNC`; an indirect function (`STT_GNU_IFUNC`) is none.
pub const FUNC: u8 = 2;

/// The hash by which the GNU table finds names.
fn gnu_hash(name: &[u8]) -> u32 {
    name.iter()
        .fold(5381u32, |h, c| h.wrapping_mul(33).wrapping_add(*c as u32))
}

impl Exports {
    /// Is the string at offset `at` this one?
    fn is_named<M: Memory + ?Sized>(&self, memory: &M, at: u64, name: &[u8]) -> bool {
        let mut found = [0u8; MAX_NAME];
        let n = name.len() + 1;
        n <= MAX_NAME
            && memory.read(self.strings.wrapping_add(at), &mut found[..n])
            && &found[..n - 1] == name
            && found[n - 1] == 0
    }

    /// Is this the module's name (`DT_SONAME`)?
    pub fn is_module<M: Memory + ?Sized>(&self, memory: &M, name: &[u8]) -> bool {
        self.soname
            .is_some_and(|at| self.is_named(memory, at, name))
    }

    /// Calls `found` for every definition of this name, in all its versions.
    pub fn each<M: Memory + ?Sized>(
        &self,
        memory: &M,
        name: &[u8],
        mut found: impl FnMut(Symbol),
    ) -> Option<()> {
        let [buckets, first, bloom] =
            [0, 4, 8].map(|o| memory.half(self.hash.wrapping_add(o)).unwrap_or_default());
        if buckets == 0 {
            return None;
        }
        let wanted = gnu_hash(name);
        let table = self.hash.wrapping_add(16 + bloom as u64 * 8);
        let chains = table.wrapping_add(buckets as u64 * 4);
        let start = memory.half(table.wrapping_add((wanted % buckets) as u64 * 4))?;
        if start < first {
            return None;
        }
        for i in start..start.saturating_add(MAX_CHAIN) {
            let hash = memory.half(chains.wrapping_add((i - first) as u64 * 4))?;
            if hash | 1 == wanted | 1 {
                if let Some(s) = self.symbol(memory, i as u64, name) {
                    found(s);
                }
            }
            // The last of a chain has bit 0.
            if hash & 1 != 0 {
                break;
            }
        }
        Some(())
    }

    /// Calls `found` for the address of every function that the module exports, as far as `most` buckets go, and [`AVERAGE_CHAIN`] times as
    /// many symbols.
    pub fn each_function<M: Memory + ?Sized>(
        &self,
        memory: &M,
        most: u64,
        mut found: impl FnMut(u64),
    ) -> Option<()> {
        let [buckets, first, bloom] =
            [0, 4, 8].map(|o| memory.half(self.hash.wrapping_add(o)).unwrap_or_default());
        let table = self.hash.wrapping_add(16 + bloom as u64 * 8);
        let chains = table.wrapping_add(buckets as u64 * 4);
        // Chains may lead through the same symbols again and again.
        let mut left = most.saturating_mul(AVERAGE_CHAIN);
        for bucket in 0..(buckets as u64).min(most) {
            let start = memory.half(table.wrapping_add(bucket * 4))?;
            if start < first {
                continue;
            }
            for i in start..start.saturating_add(MAX_CHAIN) {
                left = left.checked_sub(1)?;
                let at = self.symbols.wrapping_add(i as u64 * SYMENT);
                let [info, _, section, section_high] =
                    memory.half(at.wrapping_add(4))?.to_le_bytes();
                if info & 15 == FUNC && (section, section_high) != (0, 0) {
                    found(self.base.wrapping_add(memory.word(at.wrapping_add(8))?));
                }
                if memory.half(chains.wrapping_add((i - first) as u64 * 4))? & 1 != 0 {
                    break;
                }
            }
        }
        Some(())
    }

    /// The default definition of a name.
    pub fn find<M: Memory + ?Sized>(&self, memory: &M, name: &[u8]) -> Option<Symbol> {
        let mut result = None;
        self.each(memory, name, |s| {
            if s.default {
                result = Some(s);
            }
        })?;
        result
    }

    /// Symbol `i`, if it has this name and is defined here.
    fn symbol<M: Memory + ?Sized>(&self, memory: &M, i: u64, name: &[u8]) -> Option<Symbol> {
        let at = self.symbols.wrapping_add(i * SYMENT);
        // st_name, st_info, st_other, st_shndx, st_value, st_size.
        let name_at = memory.half(at)?;
        let [info, _, section, section_high] = memory.half(at.wrapping_add(4))?.to_le_bytes();
        if (section, section_high) == (0, 0) || !self.is_named(memory, name_at as u64, name) {
            return None;
        }
        let hidden = match self.versions {
            // Two bytes each; read as the low half of four, of which the last symbol may have only two.
            Some(v) => {
                let mut bytes = [0; 2];
                memory.read(v.wrapping_add(2 * i), &mut bytes) && bytes[1] & 0x80 != 0
            }
            None => false,
        };
        Some(Symbol {
            address: self.base.wrapping_add(memory.word(at.wrapping_add(8))?),
            size: memory.word(at.wrapping_add(16))?,
            kind: info & 15,
            default: !hidden,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// A file as it is mapped: segment by segment.
    struct Mapped {
        base: u64,
        bytes: Vec<u8>,
    }

    impl Memory for Mapped {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            let Some(from) = addr.checked_sub(self.base) else {
                return false;
            };
            match self.bytes.get(from as usize..from as usize + buf.len()) {
                Some(b) => {
                    buf.copy_from_slice(b);
                    true
                }
                None => false,
            }
        }
    }

    fn libc() -> Mapped {
        let path = std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .find_map(|l| {
                l.find('/')
                    .map(|i| l[i..].to_string())
                    .filter(|p| p.ends_with("/libc.so.6"))
            })
            .expect("the C library of this test");
        let file = std::fs::read(path).unwrap();
        let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
        let (headers, count) = (word(32), word(56) & 0xffff);
        let mut bytes = Vec::new();
        for h in (0..count).map(|i| headers + i * 56) {
            if file[h] as u32 == LOAD && file[h + 1] == 0 {
                let (offset, address, len) = (word(h + 8), word(h + 16), word(h + 32));
                bytes.resize((address + len).max(bytes.len()), 0);
                bytes[address..address + len].copy_from_slice(&file[offset..offset + len]);
            }
        }
        Mapped {
            base: 0x7f00_0000_0000,
            bytes,
        }
    }

    #[test]
    fn the_hash_of_the_specification() {
        assert_eq!(gnu_hash(b""), 0x1505);
        assert_eq!(gnu_hash(b"printf"), 0x156b_2bb8);
        assert_eq!(gnu_hash(b"syscall"), 0xbac2_12a0);
    }

    #[test]
    fn finds_the_functions_of_libc() {
        let memory = libc();
        let module = Module::at(&memory, memory.base).unwrap();
        assert_eq!(module.base, memory.base);
        let exports = module.exports(&memory).unwrap();
        assert!(exports.is_module(&memory, b"libc.so.6"));
        assert!(!exports.is_module(&memory, b"libc.so"));
        for name in ["pthread_mutex_lock", "pthread_cond_wait", "sem_post"] {
            let s = exports.find(&memory, name.as_bytes()).unwrap();
            assert_eq!(s.kind, FUNC, "{name}");
            assert!(s.size > 5, "{name}");
            assert!(module.holds(&memory, s.address), "{name}");
        }
        // Two versions that differ, of which one is meant when none is named.
        let mut versions = Vec::new();
        exports.each(&memory, b"pthread_cond_wait", |s| versions.push(s));
        assert_eq!(versions.len(), 2);
        assert_eq!(versions.iter().filter(|s| s.default).count(), 1);
        assert_ne!(versions[0].address, versions[1].address);
        // An indirect function is told from others.
        assert_ne!(exports.find(&memory, b"memcpy").unwrap().kind, FUNC);
        assert_eq!(exports.find(&memory, b"no_such_function"), None);
    }

    #[test]
    fn headers_without_number() {
        let mut memory = libc();
        memory.bytes[56..58].fill(0xff);
        let module = Module::at(&memory, memory.base).expect("is one");
        assert_eq!(module.count, MAX_HEADERS);
    }

    /// How often the functions are looked at of a table in which each chain leads through all symbols and has no end.
    #[test]
    fn chains_that_lead_through_the_same_symbols() {
        struct Counted(Mapped, core::cell::Cell<u64>);
        impl Memory for Counted {
            fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
                self.1.set(self.1.get() + 1);
                self.0.read(addr, buf)
            }
        }
        const BUCKETS: u32 = 1000;
        const AT: u64 = 0x1000;
        // Buckets, first symbol, words of the filter, its shift; each bucket begins with symbol 1. No link of a chain has an end; symbols are zeros.
        let mut table: Vec<u32> = std::vec![BUCKETS, 1, 0, 0];
        table.resize(table.len() + BUCKETS as usize, 1);
        let mut bytes: Vec<u8> = table.iter().flat_map(|w| w.to_le_bytes()).collect();
        let symbols = bytes.len() as u64 + 4 * u64::from(MAX_CHAIN);
        bytes.resize((symbols + SYMENT * u64::from(MAX_CHAIN + 1)) as usize, 0);
        let memory = Counted(Mapped { base: AT, bytes }, Default::default());
        let exports = Exports {
            base: 0,
            strings: AT,
            symbols: AT + symbols,
            soname: None,
            hash: AT,
            versions: None,
        };
        let most = 100;
        assert_eq!(exports.each_function(&memory, most, |_| ()), None);
        let reads = memory.1.get();
        assert!(reads < 4 * most * AVERAGE_CHAIN, "{reads} reads");
    }

    #[test]
    fn survives_nonsense() {
        let mut memory = libc();
        assert_eq!(Module::at(&memory, memory.base + 16), None);
        // A file cut short anywhere, and bytes changed anywhere in its tables.
        let whole = memory.bytes.clone();
        for cut in (0..whole.len()).step_by(whole.len() / 97) {
            memory.bytes.truncate(whole.len() - cut);
            if let Some(e) = Module::at(&memory, memory.base).and_then(|m| m.exports(&memory)) {
                let _ = e.find(&memory, b"pthread_mutex_lock");
            }
        }
        for at in (0..0x20000).step_by(61) {
            memory.bytes = whole.clone();
            memory.bytes[at] ^= 0xff;
            if let Some(e) = Module::at(&memory, memory.base).and_then(|m| m.exports(&memory)) {
                let _ = e.find(&memory, b"pthread_mutex_lock");
            }
        }
    }
}
