//! The name of a state: all that is logged of a place where a slice was cut, and all that replay compares.
//!
//! The whole memory's hash is the judge; everything else is there to say no sooner, or to say what differs.
//! As bytes it is the content of a [`Tag::State`](reprise_abi::event::Tag::State) section, which is untrusted input.

use super::choose::{Discriminators, MAX_DISCRIMINATORS};
use super::stub::{Discriminator, Source};
use super::walk::Plan;
#[cfg(test)]
use super::walk::CHANGING_PAGES;
use crate::machine::{Machine, Xmm, X87};
use core::fmt;
use reprise_abi::layout::PAGE;
use reprise_code::patchable::Form;
use reprise_code::regs::{Regs, FLAGS, GPRS, NAMES};

/// Version of the bytes of a name.
const VERSION: u8 = 1;
/// Most bytes of a name.
pub const MAX_NAME: usize = 2560;
/// Bytes above the stack pointer that are hashed.
pub const WINDOW: u64 = 4096;
/// Words around the stack pointer that are kept: to say which differs, and to test them in a stub.
pub const STACK_WORDS: usize = 64;
/// Bytes below the stack pointer where these words begin (the red zone of the ABI).
pub const RED_ZONE: u64 = 128;
/// Most pages of a name.
pub const MAX_PAGES: usize = 2 * GPRS;
/// Bytes of code that are kept.
pub const CODE_LEN: usize = 16;

/// A hash of bytes. Record and replay use the same.
pub type Hash = fn(&[u8]) -> u64;

/// A page and its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageHash {
    /// Address of the page.
    pub addr: u64,
    /// Hash of its content.
    pub hash: u64,
}

/// The name of a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// General registers, pc, flags, bases.
    pub regs: Regs,
    /// Low 128 bits of the vector registers.
    pub xmm: Xmm,
    /// Significands of the x87 registers.
    pub x87: X87,
    /// Hash of the canonical XSAVE image.
    pub extended: u64,
    /// How the place can be patched, as seen while recording.
    pub form: Form,
    /// Bytes of the instructions at the place.
    pub len: u8,
    /// The thread was spinning: nothing changes from visit to visit until another thread runs.
    pub spin: bool,
    /// No second visit of the place was seen.
    pub rare: bool,
    /// The program's bytes at the place; zeros where they can't be read.
    pub code: [u8; CODE_LEN],
    /// What tells this visit from others.
    pub discriminators: Discriminators,
    /// Words from [`RED_ZONE`] below the stack pointer; 0 where they can't be read.
    pub stack: [u64; STACK_WORDS],
    /// Which of `stack` could be read.
    pub stack_known: u64,
    /// The word that each general register points to; 0 where there is none.
    pub pointed: [u64; GPRS],
    /// Which of `pointed` could be read.
    pub pointed_known: u16,
    /// Bytes hashed from the stack pointer on: [`WINDOW`], or to the end of the memory there.
    pub window_len: u32,
    /// Their hash.
    pub window_hash: u64,
    /// The pages to which registers point, and some of those in which words change from visit to visit, with their hashes.
    pub pages: [PageHash; MAX_PAGES],
    /// How many of `pages` are used.
    pub page_count: u8,
    /// Hash of all writable memory; set by the caller.
    pub memory_hash: u64,
    /// Bytes of memory in that hash; set by the caller.
    pub memory_bytes: u64,
    /// Events logged before the cut; set by the caller.
    pub event: u64,
}

/// Why bytes are no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadName(pub &'static str);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad state name: {}", self.0)
    }
}

/// Hash of the memory from `addr` to the end of its page or `addr + len`, page by page until one can't be read; and how many bytes.
pub(super) fn hash_window<M: Machine + ?Sized>(addr: u64, machine: &M, hash: Hash) -> (u32, u64) {
    let mut bytes = [0; WINDOW as usize];
    let len = machine.compared(addr, &mut bytes);
    (len as u32, hash(&bytes[..len]))
}

impl Name {
    /// The name of the state in which `plan` left the thread. `memory_hash`, `memory_bytes` and `event` are still 0.
    pub fn of<M: Machine + ?Sized>(plan: &Plan, machine: &M, hash: Hash) -> Name {
        let regs = plan.regs;
        let mut name = Name {
            regs: Regs {
                rflags: regs.rflags & FLAGS,
                ..regs
            },
            xmm: machine.xmm(),
            x87: machine.x87(),
            extended: machine.extended(),
            form: plan.form,
            len: plan.len,
            spin: plan.spin,
            rare: plan.rare,
            code: [0; CODE_LEN],
            discriminators: plan.discriminators,
            stack: [0; STACK_WORDS],
            stack_known: 0,
            pointed: [0; GPRS],
            pointed_known: 0,
            window_len: 0,
            window_hash: 0,
            pages: [PageHash::default(); MAX_PAGES],
            page_count: 0,
            memory_hash: 0,
            memory_bytes: 0,
            event: 0,
        };
        let len = machine.code(regs.rip, &mut name.code);
        name.code[len..].fill(0);
        for i in 0..STACK_WORDS {
            if let Some(word) = machine.word(name.stack_addr(i)) {
                name.stack[i] = word;
                name.stack_known |= 1 << i;
            }
        }
        (name.window_len, name.window_hash) = hash_window(regs.rsp(), machine, hash);
        for r in 0..GPRS {
            name.look_where_it_points(r, machine, hash);
        }
        for page in plan.pages {
            name.add_page(page, machine, hash);
        }
        name
    }

    fn look_where_it_points<M: Machine + ?Sized>(&mut self, r: usize, machine: &M, hash: Hash) {
        let addr = self.regs.gpr[r];
        if machine.is_ours(addr) {
            return;
        }
        if let Some(word) = machine.word(addr) {
            self.pointed[r] = word;
            self.pointed_known |= 1 << r;
        }
        self.add_page(addr & !(PAGE - 1), machine, hash);
    }

    fn add_page<M: Machine + ?Sized>(&mut self, page: u64, machine: &M, hash: Hash) {
        let known = self.pages().iter().any(|p| p.addr == page);
        if known || self.pages().len() == MAX_PAGES || machine.is_ours(page) {
            return;
        }
        let (len, hash) = hash_window(page, machine, hash);
        if len as u64 == PAGE {
            self.pages[self.page_count as usize] = PageHash { addr: page, hash };
            self.page_count += 1;
        }
    }

    /// The pages that are compared one by one.
    pub fn pages(&self) -> &[PageHash] {
        &self.pages[..self.page_count as usize]
    }

    /// Address of word `i` of [`Name::stack`].
    pub fn stack_addr(&self, i: usize) -> u64 {
        self.regs
            .rsp()
            .wrapping_sub(RED_ZONE)
            .wrapping_add(8 * i as u64)
    }

    /// Writes the name to the start of `out` and returns its length; None when `out` is shorter than it needs
    /// ([`MAX_NAME`] bytes are always enough).
    pub fn to_bytes(&self, out: &mut [u8]) -> Option<usize> {
        let mut w = Writer { out, at: 0 };
        let flags = self.spin as u8 | (self.rare as u8) << 1;
        let counts = [self.discriminators.len() as u8, self.page_count];
        w.bytes(&[
            VERSION,
            self.form as u8,
            self.len,
            flags,
            counts[0],
            counts[1],
            0,
            0,
        ])?;
        for word in self.regs.gpr {
            w.word(word)?;
        }
        for word in [
            self.regs.rip,
            self.regs.rflags,
            self.regs.fs_base,
            self.regs.gs_base,
            self.extended,
        ] {
            w.word(word)?;
        }
        for word in self.xmm.iter().flatten().chain(&self.x87) {
            w.word(*word)?;
        }
        w.bytes(&self.code)?;
        w.word(self.stack_known)?;
        for i in (0..STACK_WORDS).filter(|i| self.stack_known >> i & 1 == 1) {
            w.word(self.stack[i])?;
        }
        w.word(self.pointed_known as u64 | (self.window_len as u64) << 32)?;
        for i in (0..GPRS).filter(|i| self.pointed_known >> i & 1 == 1) {
            w.word(self.pointed[i])?;
        }
        for word in [
            self.window_hash,
            self.memory_hash,
            self.memory_bytes,
            self.event,
        ] {
            w.word(word)?;
        }
        for discriminator in self.discriminators.iter() {
            let (kind, register, place) = match discriminator.source {
                Source::Register(r) => (1, r, 0),
                Source::Vector { index, high } => (2, index, high as u64),
                Source::Word(addr) => (3, 0, addr),
                Source::Half(addr) => (4, 0, addr),
                Source::WordAt(r, disp) => (5, r, disp as i64 as u64),
                Source::HalfAt(r, disp) => (6, r, disp as i64 as u64),
                Source::X87(i) => (7, i, 0),
            };
            w.bytes(&[kind, register, 0, 0, 0, 0, 0, 0])?;
            w.word(place)?;
            w.word(discriminator.value)?;
        }
        for page in self.pages() {
            w.word(page.addr)?;
            w.word(page.hash)?;
        }
        Some(w.at)
    }

    /// Reads a name that fills `bytes`, checking all of it.
    pub fn parse(bytes: &[u8]) -> Result<Name, BadName> {
        let mut r = Reader { rest: bytes };
        let head = r.array::<8>()?;
        let [version, form, len, flags, discriminator_count, page_count, 0, 0] = head else {
            return Err(BadName("spare bytes set"));
        };
        if version != VERSION {
            return Err(BadName("unknown version"));
        }
        let form = Form::from_u8(form).ok_or(BadName("unknown form of patch"))?;
        if flags & !3 != 0
            || discriminator_count as usize > MAX_DISCRIMINATORS
            || page_count as usize > MAX_PAGES
        {
            return Err(BadName("impossible count or flag"));
        }
        let mut regs = Regs {
            gpr: r.words()?,
            ..Regs::default()
        };
        [regs.rip, regs.rflags, regs.fs_base, regs.gs_base] = r.words()?;
        if regs.rflags & !FLAGS != 0 {
            return Err(BadName("impossible flags register"));
        }
        let extended = r.word()?;
        let mut xmm = [[0; 2]; 16];
        for register in &mut xmm {
            *register = r.words()?;
        }
        let x87 = r.words()?;
        let code = r.array()?;
        let stack_known = r.word()?;
        let mut stack = [0; STACK_WORDS];
        for i in (0..STACK_WORDS).filter(|i| stack_known >> i & 1 == 1) {
            stack[i] = r.word()?;
        }
        let known = r.word()?;
        let (pointed_known, window_len) = (known as u16, (known >> 32) as u32);
        if known as u32 > u16::MAX as u32 || window_len as u64 > WINDOW {
            return Err(BadName("impossible window"));
        }
        let mut pointed = [0; GPRS];
        for i in (0..GPRS).filter(|i| pointed_known >> i & 1 == 1) {
            pointed[i] = r.word()?;
        }
        let [window_hash, memory_hash, memory_bytes, event] = r.words()?;
        let mut discriminators = Discriminators::default();
        for _ in 0..discriminator_count {
            discriminators.push(r.discriminator()?);
        }
        let mut pages = [PageHash::default(); MAX_PAGES];
        for page in &mut pages[..page_count as usize] {
            let [addr, hash] = r.words()?;
            if addr % PAGE != 0 {
                return Err(BadName("page not on a page boundary"));
            }
            *page = PageHash { addr, hash };
        }
        if !r.rest.is_empty() {
            return Err(BadName("bytes after its end"));
        }
        Ok(Name {
            regs,
            xmm,
            x87,
            extended,
            form,
            len,
            spin: flags & 1 != 0,
            rare: flags & 2 != 0,
            code,
            discriminators,
            stack,
            stack_known,
            pointed,
            pointed_known,
            window_len,
            window_hash,
            pages,
            page_count,
            memory_hash,
            memory_bytes,
            event,
        })
    }
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.out
            .get_mut(self.at..self.at + bytes.len())?
            .copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }

    fn word(&mut self, word: u64) -> Option<()> {
        self.bytes(&word.to_le_bytes())
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadName> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(BadName("too short"))?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn word(&mut self) -> Result<u64, BadName> {
        self.array().map(u64::from_le_bytes)
    }

    fn words<const N: usize>(&mut self) -> Result<[u64; N], BadName> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.word()?;
        }
        Ok(words)
    }

    fn discriminator(&mut self) -> Result<Discriminator, BadName> {
        let [kind, register, 0, 0, 0, 0, 0, 0] = self.array::<8>()? else {
            return Err(BadName("spare bytes set"));
        };
        let [place, value] = self.words()?;
        let disp = i32::try_from(place as i64).map_err(|_| BadName("impossible displacement"));
        let source = match kind {
            1 => Source::Register(register),
            2 => Source::Vector {
                index: register,
                high: place == 1,
            },
            3 => Source::Word(place),
            4 => Source::Half(place),
            5 => Source::WordAt(register, disp?),
            6 => Source::HalfAt(register, disp?),
            7 => Source::X87(register),
            _ => return Err(BadName("unknown kind of discriminator")),
        };
        let discriminator = Discriminator { source, value };
        let unused = match source {
            Source::Register(_) | Source::X87(_) => place != 0,
            Source::Vector { .. } => place > 1,
            Source::Word(_) | Source::Half(_) => register != 0,
            _ => false,
        };
        if unused || !discriminator.is_valid() {
            return Err(BadName("impossible discriminator"));
        }
        Ok(discriminator)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |r: u8| NAMES.get(r as usize).copied().unwrap_or("?");
        match *self {
            Source::Register(r) => f.write_str(name(r)),
            Source::Vector { index, high } => {
                write!(f, "xmm{index}.{}", if high { "high" } else { "low" })
            }
            Source::X87(i) => write!(f, "st({i})"),
            Source::Word(addr) => write!(f, "[{addr:#x}]:64"),
            Source::Half(addr) => write!(f, "[{addr:#x}]:32"),
            Source::WordAt(r, disp) => write!(f, "[{}{disp:+}]:64", name(r)),
            Source::HalfAt(r, disp) => write!(f, "[{}{disp:+}]:32", name(r)),
        }
    }
}

impl fmt::Display for Discriminator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:#x}", self.source, self.value)
    }
}

/// One line; all registers too with `{:#}`.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pc={:#x} {}/{}",
            self.regs.rip,
            self.form.name(),
            self.len
        )?;
        if self.spin {
            f.write_str(" spin")?;
        }
        if self.rare {
            f.write_str(" rare")?;
        }
        for discriminator in self.discriminators.iter() {
            write!(f, " {discriminator}")?;
        }
        write!(
            f,
            " memory={:016x}/{} event={}",
            self.memory_hash, self.memory_bytes, self.event
        )?;
        if f.alternate() {
            for (i, (value, name)) in self.regs.gpr.iter().zip(NAMES).enumerate() {
                write!(
                    f,
                    "{}{name:>3}={value:#018x}",
                    if i % 4 == 0 { "\n  " } else { "  " }
                )?;
            }
            write!(f, "\n  flags={:#x}", self.regs.rflags)?;
            write!(
                f,
                " fs={:#x} gs={:#x} vectors={:016x}",
                self.regs.fs_base, self.regs.gs_base, self.extended
            )?;
            write!(
                f,
                " stack={:016x}/{} pages={}",
                self.window_hash, self.window_len, self.page_count
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn discriminator() -> impl Strategy<Value = Discriminator> {
        (
            0u8..6,
            0u8..16,
            any::<u64>(),
            any::<i32>(),
            any::<bool>(),
            any::<u64>(),
        )
            .prop_map(|(kind, r, addr, disp, high, value)| {
                let (source, value) = match kind {
                    0 => (Source::Register(r), value),
                    1 => (Source::Vector { index: r, high }, value),
                    2 => (Source::Word(addr), value),
                    3 => (Source::Half(addr), value >> 32),
                    4 => (Source::WordAt(r, disp), value),
                    _ => (Source::HalfAt(r, disp), value >> 32),
                };
                Discriminator { source, value }
            })
    }

    prop_compose! {
        /// Any name.
        pub fn any_name()(
            gpr in any::<[u64; 16]>(), rest in any::<[u64; 9]>(), xmm in any::<[[u64; 2]; 16]>(), form in 0usize..4,
            spin in any::<bool>(), rare in any::<bool>(), code in any::<[u8; 16]>(), len in any::<u8>(),
            list in proptest::collection::vec(discriminator(), 0..=MAX_DISCRIMINATORS),
            words in proptest::collection::vec(any::<u64>(), 64), known in any::<u64>(),
            pointed in any::<[u64; 16]>(), pages in proptest::collection::vec(any::<(u64, u64)>(), 0..=MAX_PAGES),
        ) -> Name {
            let mut discriminators = Discriminators::default();
            for d in list {
                discriminators.push(d);
            }
            let pointed_known = rest[0] as u16;
            let mut name = Name {
                regs: Regs { gpr, rip: rest[1], rflags: rest[2] & FLAGS, fs_base: rest[3], gs_base: rest[4] },
                xmm, x87: rest[1..].try_into().unwrap(), extended: rest[5], form: Form::ALL[form], len, spin, rare, code, discriminators,
                stack: std::array::from_fn(|i| if known >> i & 1 == 1 { words[i] } else { 0 }), stack_known: known,
                pointed: std::array::from_fn(|i| if pointed_known >> i & 1 == 1 { pointed[i] } else { 0 }), pointed_known,
                window_len: rest[6] as u32 % 4097, window_hash: rest[6],
                pages: [PageHash::default(); MAX_PAGES], page_count: pages.len() as u8,
                memory_hash: rest[7], memory_bytes: rest[8], event: rest[0],
            };
            for (to, (addr, hash)) in name.pages.iter_mut().zip(pages) {
                *to = PageHash { addr: addr & !4095, hash };
            }
            name
        }
    }

    proptest! {
        #[test]
        fn bytes_and_back(name in any_name()) {
            let mut bytes = [0; MAX_NAME];
            let len = name.to_bytes(&mut bytes).expect("MAX_NAME is enough");
            prop_assert_eq!(len % 8, 0);
            prop_assert_eq!(Name::parse(&bytes[..len]).unwrap(), name.clone());
            prop_assert!(Name::parse(&bytes[..len - 1]).is_err());
            prop_assert!(Name::parse(&bytes[..len + 1]).is_err());
            prop_assert!(name.to_bytes(&mut bytes[..len - 1]).is_none());
            let _ = format!("{name} {name:#}");
        }

        #[test]
        fn damaged_bytes_are_errors_or_names(name in any_name(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = [0; MAX_NAME];
            let len = name.to_bytes(&mut bytes).unwrap();
            bytes[at.index(len)] ^= 1 << bit;
            if let Ok(other) = Name::parse(&bytes[..len]) {
                // What is read is also what would be written: no two byte strings mean the same.
                let mut again = [0; MAX_NAME];
                let len_again = other.to_bytes(&mut again).unwrap();
                prop_assert_eq!(&again[..len_again], &bytes[..len]);
            }
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..MAX_NAME)) {
            let _ = Name::parse(&bytes);
        }
    }

    #[test]
    fn prints_one_line() {
        let mut discriminators = Discriminators::default();
        discriminators.push(Discriminator {
            source: Source::Half(0x7fff_0010),
            value: 0x1234,
        });
        discriminators.push(Discriminator {
            source: Source::WordAt(5, -8),
            value: 1,
        });
        let plan = Plan {
            regs: Regs {
                rip: 0x401000,
                ..Regs::default()
            },
            form: Form::Long,
            len: 5,
            discriminators,
            pages: [0; CHANGING_PAGES],
            spin: true,
            rare: false,
        };
        let name = Name::of(&plan, &super::super::live::Nothing, |_| 0);
        assert_eq!(
            format!("{name}"),
            "pc=0x401000 long/5 spin [0x7fff0010]:32=0x1234 [rbp-8]:64=0x1 memory=0000000000000000/0 event=0"
        );
        assert!(format!("{name:#}").contains("\n  rax=0x0000000000000000"));
    }
}
