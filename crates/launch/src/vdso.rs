//! The vDSO that the program sees: the kernel's functions, each a system call of its own, so that clocks are read through
//! gates (DESIGN 3). It stands exactly where the kernel's stood, so that every copy of the auxiliary vector, the stack's and
//! that of /proc/self/auxv, stays true.
//!
//! The image is a shared object of one page, as vdso(7) describes the kernel's: found by its program headers and dynamic
//! section (C libraries, Go), by its section headers (debuggers), unwound by its `.eh_frame` (exceptions, profilers). Each
//! function is `mov $nr,%eax; syscall; ret`, the form that the runtime rewrites into a jump once it is hot.

use object::elf::*;
use object::{LittleEndian as Le, Pod, U16, U32, U64};
use std::mem::size_of;

/// Bytes of the image: one page.
pub const LEN: usize = 4096;

/// Name of the object, and of its base version.
const SONAME: &str = "linux-vdso.so.1";
/// Version of all its functions on x86-64; C libraries and Go ask for it.
const VERSION: &str = "LINUX_2.6";

/// The functions: name, system call.
const FUNCTIONS: [(&str, i64); 5] = [
    ("clock_gettime", libc::SYS_clock_gettime),
    ("gettimeofday", libc::SYS_gettimeofday),
    ("time", libc::SYS_time),
    ("getcpu", libc::SYS_getcpu),
    ("clock_getres", libc::SYS_clock_getres),
];

/// Bytes of a function with its padding.
const SLOT: usize = 16;
/// Buckets of the hash table.
const BUCKETS: usize = 4;
/// Symbols before the first function: the null symbol.
const FIRST: usize = 1;
/// Index of [`VERSION`] among the versions; 1 is the base.
const VERSION_INDEX: u16 = 2;

/// Sections, in the order of their headers.
#[derive(Clone, Copy)]
enum Section {
    Hash = 1,
    GnuHash,
    Dynsym,
    Dynstr,
    Versym,
    Verdef,
    Dynamic,
    EhFrameHdr,
    EhFrame,
    Text,
    Shstrtab,
}

const SECTIONS: [(Section, &str, u32); 11] = [
    (Section::Hash, ".hash", SHT_HASH),
    (Section::GnuHash, ".gnu.hash", SHT_GNU_HASH),
    (Section::Dynsym, ".dynsym", SHT_DYNSYM),
    (Section::Dynstr, ".dynstr", SHT_STRTAB),
    (Section::Versym, ".gnu.version", SHT_GNU_VERSYM),
    (Section::Verdef, ".gnu.version_d", SHT_GNU_VERDEF),
    (Section::Dynamic, ".dynamic", SHT_DYNAMIC),
    (Section::EhFrameHdr, ".eh_frame_hdr", SHT_PROGBITS),
    (Section::EhFrame, ".eh_frame", SHT_PROGBITS),
    (Section::Text, ".text", SHT_PROGBITS),
    (Section::Shstrtab, ".shstrtab", SHT_STRTAB),
];

/// Makes all functions of the kernel's own image system calls, where they are: for a process that knows their addresses already.
///
/// # Errors
/// When it can't be read, in words for people.
pub fn redirect(image: &mut [u8]) -> Result<(), String> {
    use object::{Object, ObjectSymbol};
    /// The kernel's has it since Linux 6.11.
    const GETRANDOM: (&str, i64) = ("getrandom", libc::SYS_getrandom);
    let copy = image.to_vec();
    let file = object::read::elf::ElfFile64::<Le>::parse(&copy[..])
        .map_err(|e| format!("its vDSO can't be read: {e}"))?;
    for symbol in file.dynamic_symbols().filter(|s| s.is_definition()) {
        let name = symbol.name().unwrap_or_default();
        let name = name.strip_prefix("__vdso_").unwrap_or(name);
        let all = FUNCTIONS.iter().chain([&GETRANDOM]);
        if let Some((_, nr)) = all.into_iter().find(|(n, _)| *n == name) {
            let code = call(*nr);
            let at = symbol.address() as usize;
            let to = image.get_mut(at..at + code.len());
            to.ok_or("its vDSO is shorter than it says")?
                .copy_from_slice(&code);
        }
    }
    Ok(())
}

const PROGRAM_HEADERS: usize = 3;
const HEADERS_LEN: usize =
    size_of::<FileHeader64<Le>>() + PROGRAM_HEADERS * size_of::<ProgramHeader64<Le>>();

fn half(n: u16) -> U16<Le> {
    U16::new(Le, n)
}

fn word(n: usize) -> U32<Le> {
    U32::new(Le, n as u32)
}

fn long(n: usize) -> U64<Le> {
    U64::new(Le, n as u64)
}

/// Strings behind one another, each with its NUL; the first is empty.
struct Strings(Vec<u8>);

impl Strings {
    fn new() -> Strings {
        Strings(vec![0])
    }

    fn add(&mut self, s: &str) -> usize {
        let at = self.0.len();
        self.0.extend_from_slice(s.as_bytes());
        self.0.push(0);
        at
    }
}

/// The image as it grows: its bytes, and where each section lies (offset, length).
struct Image {
    bytes: Vec<u8>,
    places: [(usize, usize); SECTIONS.len() + 1],
}

impl Image {
    fn put<T: Pod>(&mut self, value: &T) {
        self.bytes.extend_from_slice(object::pod::bytes_of(value));
    }

    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn section(&mut self, which: Section, align: usize, content: impl FnOnce(&mut Image)) {
        self.align(align);
        let at = self.bytes.len();
        content(self);
        self.places[which as usize] = (at, self.bytes.len() - at);
    }

    fn at(&self, which: Section) -> usize {
        self.places[which as usize].0
    }

    fn len(&self, which: Section) -> usize {
        self.places[which as usize].1
    }

    /// A distance from where the next byte will lie.
    fn put_relative(&mut self, to: usize) {
        let distance = to as i64 - self.bytes.len() as i64;
        self.bytes
            .extend_from_slice(&(distance as i32).to_le_bytes());
    }
}

/// The exported names, in the order of the symbol table, each with its function: weak without prefix, global with it.
fn names() -> Vec<(String, u8, usize)> {
    let pair = |(i, (name, _)): (usize, &(&str, i64))| {
        [
            (name.to_string(), STB_WEAK, i),
            (format!("__vdso_{name}"), STB_GLOBAL, i),
        ]
    };
    FUNCTIONS.iter().enumerate().flat_map(pair).collect()
}

/// The image's bytes, all addresses relative to its first.
pub fn image() -> Vec<u8> {
    let names = names();
    let mut strings = Strings::new();
    let (soname, version) = (strings.add(SONAME), strings.add(VERSION));
    let at: Vec<usize> = names.iter().map(|n| strings.add(&n.0)).collect();
    let mut image = Image {
        bytes: vec![0; HEADERS_LEN],
        places: Default::default(),
    };
    image.section(Section::Text, SLOT, text);
    image.section(Section::Hash, 8, |o| sysv_hash(o, &names));
    image.section(Section::GnuHash, 8, |o| put_gnu_hash(o, &names));
    image.section(Section::Dynsym, 8, |o| symbols(o, &names, &at));
    image.section(Section::Dynstr, 1, |o| {
        o.bytes.extend_from_slice(&strings.0)
    });
    image.section(Section::Versym, 2, |o| {
        o.put(&half(VER_NDX_LOCAL));
        names.iter().for_each(|_| o.put(&half(VERSION_INDEX)));
    });
    image.section(Section::Verdef, 8, |o| versions(o, soname, version));
    image.section(Section::Dynamic, 8, |o| dynamic(o, soname));
    image.section(Section::EhFrame, 8, frames);
    image.section(Section::EhFrameHdr, 4, frame_index);
    let mut section_names = Strings::new();
    let named: Vec<usize> = SECTIONS.iter().map(|s| section_names.add(s.1)).collect();
    image.section(Section::Shstrtab, 1, |o| {
        o.bytes.extend_from_slice(&section_names.0)
    });
    image.align(8);
    let table = image.bytes.len();
    section_headers(&mut image, &named);
    headers(&mut image, table);
    assert!(image.bytes.len() <= LEN, "the vDSO is larger than its page");
    image.bytes.resize(LEN, 0);
    image.bytes
}

fn text(o: &mut Image) {
    for (_, nr) in FUNCTIONS {
        let mut slot = [0xcc; SLOT];
        slot[..8].copy_from_slice(&call(nr));
        o.bytes.extend_from_slice(&slot);
    }
}

/// `mov $nr,%eax; syscall; ret`
fn call(nr: i64) -> [u8; 8] {
    let [a, b, c, d] = (nr as u32).to_le_bytes();
    [0xb8, a, b, c, d, 0x0f, 0x05, 0xc3]
}

fn sysv_hash(o: &mut Image, names: &[(String, u8, usize)]) {
    let (mut buckets, mut chains) = ([0; BUCKETS], vec![0; FIRST + names.len()]);
    for (i, (name, ..)) in (FIRST..).zip(names) {
        let bucket = hash(name.as_bytes()) as usize % BUCKETS;
        chains[i] = buckets[bucket];
        buckets[bucket] = i;
    }
    for n in [BUCKETS, chains.len()]
        .iter()
        .chain(&buckets)
        .chain(&chains)
    {
        o.put(&word(*n));
    }
}

/// One bucket, so that the symbols may stay in their order.
fn put_gnu_hash(o: &mut Image, names: &[(String, u8, usize)]) {
    const BLOOM_SHIFT: u32 = 6;
    let hashes: Vec<u32> = names.iter().map(|n| gnu_hash(n.0.as_bytes())).collect();
    let bloom = hashes.iter().fold(0u64, |b, h| {
        b | 1 << (h % 64) | 1 << ((h >> BLOOM_SHIFT) % 64)
    });
    for n in [1, FIRST, 1, BLOOM_SHIFT as usize] {
        o.put(&word(n));
    }
    o.put(&U64::<Le>::new(Le, bloom));
    o.put(&word(FIRST));
    for (i, h) in hashes.iter().enumerate() {
        let last = i + 1 == hashes.len();
        o.put(&U32::<Le>::new(Le, h & !1 | last as u32));
    }
}

fn symbols(o: &mut Image, names: &[(String, u8, usize)], strings: &[usize]) {
    o.bytes.extend_from_slice(&[0; size_of::<Sym64<Le>>()]);
    for ((_, binding, function), name) in names.iter().zip(strings) {
        o.put(&Sym64::<Le> {
            st_name: word(*name),
            st_info: binding << 4 | STT_FUNC,
            st_other: STV_DEFAULT,
            st_shndx: half(Section::Text as u16),
            st_value: long(o.at(Section::Text) + function * SLOT),
            st_size: long(SLOT / 2),
        });
    }
}

/// The base version, which is the object's own name, and the functions' version.
fn versions(o: &mut Image, soname: usize, version: usize) {
    const ENTRY: usize = size_of::<Verdef<Le>>();
    const AUX: usize = size_of::<Verdaux<Le>>();
    let list = [
        (VER_FLG_BASE, 1, SONAME, soname, ENTRY + AUX),
        (0, VERSION_INDEX, VERSION, version, 0),
    ];
    for (flags, index, name, string, next) in list {
        o.put(&Verdef::<Le> {
            vd_version: half(VER_DEF_CURRENT),
            vd_flags: half(flags),
            vd_ndx: half(index),
            vd_cnt: half(1),
            vd_hash: U32::new(Le, hash(name.as_bytes())),
            vd_aux: word(ENTRY),
            vd_next: word(next),
        });
        o.put(&Verdaux::<Le> {
            vda_name: word(string),
            vda_next: word(0),
        });
    }
}

fn dynamic(o: &mut Image, soname: usize) {
    let list = [
        (DT_SONAME, soname),
        (DT_HASH, o.at(Section::Hash)),
        (DT_GNU_HASH, o.at(Section::GnuHash)),
        (DT_STRTAB, o.at(Section::Dynstr)),
        (DT_SYMTAB, o.at(Section::Dynsym)),
        (DT_STRSZ, o.len(Section::Dynstr)),
        (DT_SYMENT, size_of::<Sym64<Le>>()),
        (DT_VERDEF, o.at(Section::Verdef)),
        (DT_VERDEFNUM, 2),
        (DT_VERSYM, o.at(Section::Versym)),
        (DT_NULL, 0),
    ];
    for (tag, value) in list {
        o.put(&Dyn64::<Le> {
            d_tag: long(tag as usize),
            d_val: long(value),
        });
    }
}

/// Call frame information: everywhere, the return address is what the stack pointer points to.
fn frames(o: &mut Image) {
    // Version 1, "zR", code alignment 1, data alignment -8, return address in column 16, addresses relative to themselves in 4
    // bytes; def_cfa rsp+8, return address at cfa-8.
    const COMMON: [u8; 16] = [
        1,
        b'z',
        b'R',
        0,
        1,
        0x78,
        16,
        1,
        0x1b,
        0x0c,
        7,
        8,
        0x80 | 16,
        1,
        0,
        0,
    ];
    let common = o.bytes.len();
    o.put(&word(4 + COMMON.len()));
    o.put(&word(0));
    o.bytes.extend_from_slice(&COMMON);
    o.put(&word(16));
    let back = o.bytes.len() - common;
    o.put(&word(back));
    o.put_relative(o.at(Section::Text));
    o.put(&word(o.len(Section::Text)));
    // No augmentation, three nops; then the end of the list.
    o.put(&word(0));
    o.put(&word(0));
}

/// Offset of the functions' description in `.eh_frame`.
const FRAME_ENTRY: usize = 24;

/// The table by which unwinders find the one entry there is.
fn frame_index(o: &mut Image) {
    let here = o.bytes.len();
    // Version 1; pointer relative to itself, count plain, table relative to this header; all in 4 bytes.
    o.bytes.extend_from_slice(&[1, 0x1b, 0x03, 0x3b]);
    o.put_relative(o.at(Section::EhFrame));
    o.put(&word(1));
    for to in [o.at(Section::Text), o.at(Section::EhFrame) + FRAME_ENTRY] {
        let distance = to as i32 - here as i32;
        o.bytes.extend_from_slice(&distance.to_le_bytes());
    }
}

fn section_headers(o: &mut Image, named: &[usize]) {
    o.bytes
        .extend_from_slice(&[0; size_of::<SectionHeader64<Le>>()]);
    for ((which, _, kind), name) in SECTIONS.iter().zip(named) {
        let (link, info, entry) = match which {
            Section::Hash => (Section::Dynsym as usize, 0, 4),
            Section::GnuHash => (Section::Dynsym as usize, 0, 0),
            Section::Dynsym => (Section::Dynstr as usize, FIRST, size_of::<Sym64<Le>>()),
            Section::Versym => (Section::Dynsym as usize, 0, 2),
            Section::Verdef => (Section::Dynstr as usize, 2, 0),
            Section::Dynamic => (Section::Dynstr as usize, 0, size_of::<Dyn64<Le>>()),
            _ => (0, 0, 0),
        };
        let (flags, address) = match which {
            Section::Shstrtab => (0, 0),
            Section::Text => (SHF_ALLOC | SHF_EXECINSTR, o.at(*which)),
            _ => (SHF_ALLOC, o.at(*which)),
        };
        o.put(&SectionHeader64::<Le> {
            sh_name: word(*name),
            sh_type: U32::new(Le, *kind),
            sh_flags: long(flags as usize),
            sh_addr: long(address),
            sh_offset: long(o.at(*which)),
            sh_size: long(o.len(*which)),
            sh_link: word(link),
            sh_info: word(info),
            sh_addralign: long(1),
            sh_entsize: long(entry),
        });
    }
}

/// Fills the file header and the program headers, now that all places are known.
fn headers(o: &mut Image, section_table: usize) {
    let program = |kind, flags, at: usize, len: usize, align| ProgramHeader64::<Le> {
        p_type: U32::new(Le, kind),
        p_flags: U32::new(Le, flags),
        p_offset: long(at),
        p_vaddr: long(at),
        p_paddr: long(at),
        p_filesz: long(len),
        p_memsz: long(len),
        p_align: long(align),
    };
    let part = |s: Section| (o.at(s), o.len(s));
    let (dynamic, index) = (part(Section::Dynamic), part(Section::EhFrameHdr));
    let programs: [_; PROGRAM_HEADERS] = [
        program(PT_LOAD, PF_R | PF_X, 0, LEN, LEN),
        program(PT_DYNAMIC, PF_R, dynamic.0, dynamic.1, 8),
        program(PT_GNU_EH_FRAME, PF_R, index.0, index.1, 4),
    ];
    let file = FileHeader64::<Le> {
        e_ident: Ident {
            magic: ELFMAG,
            class: ELFCLASS64,
            data: ELFDATA2LSB,
            version: EV_CURRENT,
            os_abi: ELFOSABI_SYSV,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: half(ET_DYN),
        e_machine: half(EM_X86_64),
        e_version: word(EV_CURRENT as usize),
        e_entry: long(0),
        e_phoff: long(size_of::<FileHeader64<Le>>()),
        e_shoff: long(section_table),
        e_flags: word(0),
        e_ehsize: half(size_of::<FileHeader64<Le>>() as u16),
        e_phentsize: half(size_of::<ProgramHeader64<Le>>() as u16),
        e_phnum: half(PROGRAM_HEADERS as u16),
        e_shentsize: half(size_of::<SectionHeader64<Le>>() as u16),
        e_shnum: half(SECTIONS.len() as u16 + 1),
        e_shstrndx: half(Section::Shstrtab as u16),
    };
    let mut head = object::pod::bytes_of(&file).to_vec();
    head.extend_from_slice(object::pod::bytes_of_slice(&programs));
    assert_eq!(head.len(), HEADERS_LEN);
    o.bytes[..HEADERS_LEN].copy_from_slice(&head);
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::read::elf::{
        Dyn, ElfFile64, FileHeader, HashTable, ProgramHeader, SectionHeader, Sym,
    };
    use object::{Object, ObjectSection, ObjectSymbol};

    /// Aligned for the parser.
    fn parsed<R>(test: impl FnOnce(&ElfFile64<Le>, &[u8]) -> R) -> R {
        let image = image();
        assert_eq!(image.len(), LEN);
        let mut words = vec![0u64; LEN / 8];
        let bytes = object::pod::bytes_of_slice_mut(&mut words);
        bytes.copy_from_slice(&image);
        let bytes = &*bytes;
        test(&ElfFile64::parse(bytes).expect("an ELF file"), bytes)
    }

    #[test]
    fn every_function_is_a_call_that_can_be_rewritten() {
        parsed(|file, bytes| {
            for (name, nr) in FUNCTIONS {
                for (name, weak) in [(name.to_string(), true), (format!("__vdso_{name}"), false)] {
                    let s = file
                        .dynamic_symbols()
                        .find(|s| s.name() == Ok(&name))
                        .expect("exported");
                    assert!(
                        s.is_definition()
                            && s.is_weak() == weak
                            && s.kind() == object::SymbolKind::Text,
                        "{name}"
                    );
                    let at = s.address() as usize;
                    let mut code = vec![0xb8];
                    code.extend_from_slice(&(nr as u32).to_le_bytes());
                    code.extend_from_slice(&[0x0f, 0x05, 0xc3]);
                    assert_eq!(bytes[at..at + s.size() as usize], code, "{name}");
                    // A REX prefix before the `mov` would make it another instruction; the runtime looks.
                    assert!(!(0x40..=0x4f).contains(&bytes[at - 1]), "{name}");
                }
            }
            assert_eq!(file.dynamic_symbols().count(), 2 * FUNCTIONS.len());
        });
    }

    #[test]
    fn both_hash_tables_find_every_name_at_its_version() {
        parsed(|file, bytes| {
            let header = file.elf_header();
            let sections = file.elf_section_table();
            let versions = sections
                .versions(Le, bytes)
                .expect("versions")
                .expect("some");
            let symbols = sections.symbols(Le, bytes, SHT_DYNSYM).expect("symbols");
            let strings = symbols.strings();
            let (gnu, _) = sections
                .gnu_hash(Le, bytes)
                .expect("gnu hash")
                .expect("some");
            let table = sections
                .hash_header(Le, bytes)
                .expect("hash")
                .expect("some");
            assert_eq!(
                (table.bucket_count.get(Le), table.chain_count.get(Le)),
                (BUCKETS as u32, 2 * FUNCTIONS.len() as u32 + 1)
            );
            let section = sections
                .iter()
                .find(|s| s.sh_type(Le) == SHT_HASH)
                .expect("hash");
            let table =
                HashTable::<FileHeader64<Le>>::parse(Le, section.data(Le, bytes).expect("data"))
                    .expect("hash");
            for (name, ..) in names() {
                let wanted = hash(name.as_bytes());
                let (i, _) = table
                    .find(Le, name.as_bytes(), wanted, None, &symbols, &versions)
                    .unwrap_or_else(|| panic!("{name} by hash"));
                let (j, symbol) = gnu
                    .find(
                        Le,
                        name.as_bytes(),
                        gnu_hash(name.as_bytes()),
                        None,
                        &symbols,
                        &versions,
                    )
                    .unwrap_or_else(|| panic!("{name} by GNU hash"));
                assert_eq!((i, symbol.name(Le, strings)), (j, Ok(name.as_bytes())));
                let index = versions.version_index(Le, i);
                let version = versions
                    .version(index)
                    .expect("a version")
                    .expect("not local");
                assert_eq!(version.name(), VERSION.as_bytes());
            }
            assert!(table
                .find(
                    Le,
                    b"nonsense",
                    hash(b"nonsense"),
                    None,
                    &symbols,
                    &versions
                )
                .is_none());
            assert_eq!(
                hash(VERSION.as_bytes()),
                0x3ae_75f6,
                "the hash that Go and glibc have as a constant"
            );
            assert_eq!(header.e_type(Le), ET_DYN);
        });
    }

    #[test]
    fn the_dynamic_section_agrees_with_the_sections() {
        parsed(|file, bytes| {
            let programs = file.elf_program_headers();
            let load: Vec<_> = programs
                .iter()
                .filter(|p| p.p_type(Le) == PT_LOAD)
                .collect();
            assert_eq!(load.len(), 1);
            assert_eq!(
                (
                    load[0].p_vaddr(Le),
                    load[0].p_memsz(Le),
                    load[0].p_flags(Le)
                ),
                (0, LEN as u64, PF_R | PF_X)
            );
            let list = programs
                .iter()
                .find_map(|p| p.dynamic(Le, bytes).expect("readable"))
                .expect("a dynamic section");
            let value = |tag: u32| {
                list.iter()
                    .find(|d| d.d_tag(Le) == tag.into())
                    .map(|d| d.d_val(Le))
                    .expect("there")
            };
            let at = |name| file.section_by_name(name).expect("there").address();
            for (tag, name) in [
                (DT_HASH, ".hash"),
                (DT_GNU_HASH, ".gnu.hash"),
                (DT_STRTAB, ".dynstr"),
                (DT_SYMTAB, ".dynsym"),
                (DT_VERSYM, ".gnu.version"),
                (DT_VERDEF, ".gnu.version_d"),
            ] {
                assert_eq!(value(tag), at(name), "{name}");
            }
            assert_eq!(list.last().map(|d| d.d_tag(Le)), Some(DT_NULL.into()));
            let name = &bytes[(value(DT_STRTAB) + value(DT_SONAME)) as usize..];
            assert!(name.starts_with(b"linux-vdso.so.1\0"));
        });
    }

    #[test]
    fn unwinders_find_the_entry_of_the_functions() {
        parsed(|file, bytes| {
            let word =
                |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
            let section = |name| {
                file.section_by_name(name)
                    .map(|s| s.address() as usize)
                    .expect("there")
            };
            let (index, frames, text) = (
                section(".eh_frame_hdr"),
                section(".eh_frame"),
                section(".text"),
            );
            assert_eq!(index as i32 + 4 + word(index + 4), frames as i32);
            assert_eq!(index as i32 + word(index + 12), text as i32);
            let entry = frames + FRAME_ENTRY;
            assert_eq!(index as i32 + word(index + 16), entry as i32);
            // Back to the common part, then where and how long.
            assert_eq!(entry as i32 + 4 - word(entry + 4), frames as i32);
            assert_eq!(entry as i32 + 8 + word(entry + 8), text as i32);
            assert_eq!(word(entry + 12) as usize, FUNCTIONS.len() * SLOT);
        });
    }
}
