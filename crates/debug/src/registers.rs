//! Registers as gdb knows them: their description, and their bytes in its order.

use crate::debuggee::General;
use gdbstub::arch::{Arch, Registers};
use std::fmt::Write;
use std::sync::OnceLock;

/// The legacy area of XSAVE: x87 and SSE.
const LEGACY: usize = 512;
/// Where in an XSAVE area the components are that differ from their initial state.
const COMPONENTS: usize = 512;
/// Where the upper halves of AVX's registers are.
const UPPER_HALVES: usize = 576;
/// Bits of the components.
const SSE: u64 = 2;
const AVX: u64 = 4;
/// The code and data segments of every 64-bit program under Linux.
const CODE: u32 = 0x33;
const DATA: u32 = 0x2b;

/// x86-64 with AVX.
pub enum X86_64 {}

impl Arch for X86_64 {
    type Usize = u64;
    type Registers = Shown;
    type BreakpointKind = usize;
    type RegId = ();

    fn target_description_xml() -> Option<&'static str> {
        static XML: OnceLock<String> = OnceLock::new();
        Some(XML.get_or_init(description))
    }
}

/// All registers of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    /// The general ones.
    pub general: General,
    /// The others, as XSAVE stores them.
    pub vectors: Vec<u8>,
}

impl Shown {
    /// Does the area hold this component?
    fn has(&self, component: u64) -> bool {
        let word = self.vectors.get(COMPONENTS..COMPONENTS + 8);
        word.and_then(|b| b.try_into().ok())
            .is_some_and(|b| u64::from_le_bytes(b) & component != 0)
    }

    /// These vector registers in another area, whose other components stay what they are.
    pub(crate) fn over(&self, mut area: Vec<u8>) -> Vec<u8> {
        /// Bytes of XCR0 in the legacy area, which belong to the kernel.
        const KERNELS: std::ops::Range<usize> = 464..512;
        let avx = self.has(AVX) && area.len() >= UPPER_HALVES + 256;
        let end = if avx { UPPER_HALVES + 256 } else { LEGACY };
        if self.vectors.len() < UPPER_HALVES + 256 || area.len() < UPPER_HALVES {
            return area;
        }
        area[..KERNELS.start].copy_from_slice(&self.vectors[..KERNELS.start]);
        if avx {
            area[UPPER_HALVES..end].copy_from_slice(&self.vectors[UPPER_HALVES..end]);
        }
        area[COMPONENTS] |= if avx { 7 } else { 3 };
        area
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.vectors.get(at..at + N);
        bytes.and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }

    /// The tag word in full: two bits for each register, of which FXSAVE keeps one.
    fn tags(&self) -> u32 {
        const EMPTY: u32 = 3;
        let kept = self.bytes::<1>(4)[0];
        (0..8)
            .filter(|i| kept & 1 << i == 0)
            .map(|i| EMPTY << (2 * i))
            .sum()
    }
}

impl Registers for Shown {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.general.rip
    }

    fn gdb_serialize(&self, mut write: impl FnMut(Option<u8>)) {
        let mut put = |bytes: &[u8]| bytes.iter().for_each(|b| write(Some(*b)));
        let g = &self.general;
        for r in g.r {
            put(&r.to_le_bytes());
        }
        put(&g.rip.to_le_bytes());
        for r in [g.flags as u32, CODE, DATA, 0, 0, 0, 0] {
            put(&r.to_le_bytes());
        }
        let x87 = self.has(1);
        for i in 0..8 {
            put(&if x87 {
                self.bytes::<10>(32 + 16 * i)
            } else {
                [0; 10]
            });
        }
        let word = |at: usize| u32::from(u16::from_le_bytes(self.bytes::<2>(at)));
        let long = |at: usize| u32::from_le_bytes(self.bytes::<4>(at));
        let control = match x87 {
            true => [
                word(0),
                word(2),
                self.tags(),
                word(12),
                long(8),
                word(20),
                long(16),
                word(6),
            ],
            false => [0x37f, 0, 0xffff, 0, 0, 0, 0, 0],
        };
        for r in control {
            put(&r.to_le_bytes());
        }
        let sse = self.has(SSE);
        for i in 0..16 {
            put(&if sse {
                self.bytes::<16>(160 + 16 * i)
            } else {
                [0; 16]
            });
        }
        put(&self.bytes::<4>(24));
        // orig_rax: no call is under way that a debugger could restart.
        put(&u64::MAX.to_le_bytes());
        put(&g.fs_base.to_le_bytes());
        // The runtime has gs; the program's own is 0.
        put(&0u64.to_le_bytes());
        let avx = self.has(AVX) && self.vectors.len() >= UPPER_HALVES + 256;
        for i in 0..16 {
            put(&if avx {
                self.bytes::<16>(UPPER_HALVES + 16 * i)
            } else {
                [0; 16]
            });
        }
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let mut rest = bytes;
        let mut take = |n: usize| {
            let (taken, left) = rest.split_at_checked(n).ok_or(())?;
            rest = left;
            Ok::<&[u8], ()>(taken)
        };
        let long = |b: &[u8]| {
            let mut word = [0; 8];
            word[..b.len()].copy_from_slice(b);
            u64::from_le_bytes(word)
        };
        for r in &mut self.general.r {
            *r = long(take(8)?);
        }
        self.general.rip = long(take(8)?);
        self.general.flags = long(take(4)?);
        // Segments are the kernel's.
        take(6 * 4)?;
        let mut area = vec![0; UPPER_HALVES + 256];
        area[COMPONENTS..COMPONENTS + 8].copy_from_slice(&(1 | SSE | AVX).to_le_bytes());
        for i in 0..8 {
            area[32 + 16 * i..][..10].copy_from_slice(take(10)?);
        }
        let mut control = [0u32; 8];
        for word in &mut control {
            *word = long(take(4)?) as u32;
        }
        put_control(&mut area, control);
        for i in 0..16 {
            area[160 + 16 * i..][..16].copy_from_slice(take(16)?);
        }
        area[24..28].copy_from_slice(take(4)?);
        take(8)?;
        self.general.fs_base = long(take(8)?);
        take(8)?;
        for i in 0..16 {
            area[UPPER_HALVES + 16 * i..][..16].copy_from_slice(take(16)?);
        }
        self.vectors = area;
        Ok(())
    }
}

/// Puts the control words of the x87 registers, as [`Shown`] serializes them, where XSAVE has them.
fn put_control(area: &mut [u8], control: [u32; 8]) {
    let [fctrl, fstat, ftag, fiseg, fioff, foseg, fooff, fop] = control;
    let kept = (0..8).filter(|i| ftag >> (2 * i) & 3 != 3);
    let tags: u32 = kept.map(|i| 1 << i).sum();
    for (at, word) in [
        (0, fctrl),
        (2, fstat),
        (4, tags),
        (6, fop),
        (12, fiseg),
        (20, foseg),
    ] {
        area[at..at + 2].copy_from_slice(&(word as u16).to_le_bytes());
    }
    area[8..12].copy_from_slice(&fioff.to_le_bytes());
    area[16..20].copy_from_slice(&fooff.to_le_bytes());
}

const _: () = assert!(LEGACY == COMPONENTS);

/// The description of what [`Shown`] serializes.
fn description() -> String {
    let mut x = String::from(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target version=\"1.0\"><architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi><feature name=\"org.gnu.gdb.i386.core\">",
    );
    let mut flags = String::from("<flags id=\"i386_eflags\" size=\"4\">");
    let names = [
        ("CF", 0),
        ("", 1),
        ("PF", 2),
        ("AF", 4),
        ("ZF", 6),
        ("SF", 7),
        ("TF", 8),
        ("IF", 9),
        ("DF", 10),
        ("OF", 11),
        ("NT", 14),
        ("RF", 16),
        ("VM", 17),
        ("AC", 18),
        ("VIF", 19),
        ("VIP", 20),
        ("ID", 21),
    ];
    for (name, bit) in names {
        let _ = write!(
            flags,
            "<field name=\"{name}\" start=\"{bit}\" end=\"{bit}\"/>"
        );
    }
    x += &flags;
    x += "</flags>";
    let mut reg = |name: &str, bits: u32, kind: &str| {
        let _ = write!(
            x,
            "<reg name=\"{name}\" bitsize=\"{bits}\" type=\"{kind}\"/>"
        );
    };
    for name in ["rax", "rbx", "rcx", "rdx", "rsi", "rdi"] {
        reg(name, 64, "int64");
    }
    reg("rbp", 64, "data_ptr");
    reg("rsp", 64, "data_ptr");
    for i in 8..16 {
        reg(&format!("r{i}"), 64, "int64");
    }
    reg("rip", 64, "code_ptr");
    reg("eflags", 32, "i386_eflags");
    for name in ["cs", "ss", "ds", "es", "fs", "gs"] {
        reg(name, 32, "int32");
    }
    for i in 0..8 {
        reg(&format!("st{i}"), 80, "i387_ext");
    }
    for name in [
        "fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop",
    ] {
        reg(name, 32, "int");
    }
    x += "</feature><feature name=\"org.gnu.gdb.i386.sse\">";
    for (id, kind, count) in [
        ("v4f", "ieee_single", 4),
        ("v2d", "ieee_double", 2),
        ("v16i8", "int8", 16),
        ("v8i16", "int16", 8),
        ("v4i32", "int32", 4),
        ("v2i64", "int64", 2),
    ] {
        let _ = write!(x, "<vector id=\"{id}\" type=\"{kind}\" count=\"{count}\"/>");
    }
    x += "<union id=\"vec128\">";
    for (name, kind) in [
        ("v4_float", "v4f"),
        ("v2_double", "v2d"),
        ("v16_int8", "v16i8"),
        ("v8_int16", "v8i16"),
        ("v4_int32", "v4i32"),
        ("v2_int64", "v2i64"),
        ("uint128", "uint128"),
    ] {
        let _ = write!(x, "<field name=\"{name}\" type=\"{kind}\"/>");
    }
    x += "</union>";
    for i in 0..16 {
        let _ = write!(x, "<reg name=\"xmm{i}\" bitsize=\"128\" type=\"vec128\"/>");
    }
    x += "<reg name=\"mxcsr\" bitsize=\"32\" type=\"int\" group=\"vector\"/></feature><feature name=\"org.gnu.gdb.i386.linux\"><reg name=\"orig_rax\" bitsize=\"64\" type=\"int\" group=\"system\"/></feature><feature name=\"org.gnu.gdb.i386.segments\"><reg name=\"fs_base\" bitsize=\"64\" type=\"int\"/><reg name=\"gs_base\" bitsize=\"64\" type=\"int\"/></feature><feature name=\"org.gnu.gdb.i386.avx\">";
    for i in 0..16 {
        let _ = write!(
            x,
            "<reg name=\"ymm{i}h\" bitsize=\"128\" type=\"uint128\"/>"
        );
    }
    x += "</feature></target>";
    x
}

/// The description in parts, as some debuggers want it (Delve reads registers of features only that the description includes): the file of
/// this name, which for `target.xml` includes the others.
pub(crate) fn described_in(file: &str) -> Option<String> {
    const FEATURE: &str = "<feature name=\"";
    let whole = description();
    let (head, rest) = whole.split_once(FEATURE)?;
    let mut parts = rest.trim_end_matches("</target>").split(FEATURE);
    let name_of = |part: &str| part.split('"').next().map(|name| format!("{name}.xml"));
    if file == "target.xml" {
        let names = parts.filter_map(name_of);
        let included: String = names
            .map(|name| format!("<xi:include href=\"{name}\"/>"))
            .collect();
        return Some(format!("{head}{included}</target>"));
    }
    let part = parts.find(|p| name_of(p).as_deref() == Some(file))?;
    Some(format!(
        "<?xml version=\"1.0\"?><!DOCTYPE feature SYSTEM \"gdb-target.dtd\">{FEATURE}{part}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_as_described() {
        let mut bytes = 0;
        Shown::default().gdb_serialize(|_| bytes += 1);
        let described: usize = description()
            .split("bitsize=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next()?.parse::<usize>().ok())
            .sum();
        assert_eq!(bytes * 8, described);
    }

    #[test]
    fn the_parts_are_the_whole() {
        let whole = description();
        let target = described_in("target.xml").expect("a target");
        let names: Vec<&str> = target.split("href=\"").skip(1).collect();
        let parts: String = names
            .iter()
            .filter_map(|n| described_in(n.split('"').next()?))
            .map(|p| p[p.find("<feature").expect("a feature")..].to_string())
            .collect();
        assert!(names.len() == 5 && whole.contains(&parts), "{parts}");
        assert_eq!(described_in("else.xml"), None);
    }

    #[test]
    fn what_is_written_is_what_was_read() {
        let mut shown = Shown {
            vectors: (0..UPPER_HALVES + 256).map(|i| i as u8).collect(),
            ..Shown::default()
        };
        shown.vectors[COMPONENTS] = 7;
        shown.general.r[3] = 0x1234_5678_9abc_def0;
        shown.general.rip = 7;
        let serialize = |s: &Shown| {
            let mut bytes = Vec::new();
            s.gdb_serialize(|b| bytes.extend(b));
            bytes
        };
        let bytes = serialize(&shown);
        let mut read = Shown::default();
        assert_eq!(read.gdb_deserialize(&bytes), Ok(()));
        assert_eq!(serialize(&read), bytes);
        assert_eq!(read.general, shown.general);
        assert!(read.gdb_deserialize(&bytes[1..]).is_err());
    }
}
