//! `replay --with`: a rebuilt program in the place of the recorded one. Its segments are mapped where the recorded program's were; the auxiliary
//! vector on the stack is made to tell of it; and the runtime is told where the two are, and where each variable was
//! ([`reprise_abi::rebuilt`]).
//!
//! Before that, the recorded program itself is replayed once, unseen: that replay lists all operations ([`reprise_abi::listing`]).

use crate::report::Divergence;
use crate::{symbols, ReplayError};
use memmap2::MmapOptions;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind};
use reprise_abi::layout::{PAGE, RESERVATION, RESERVATION_END};
use reprise_abi::listing::{Listing, LISTING_BASE, LISTING_LEN};
use reprise_abi::rebuilt::{MAX_MOVED, REBUILT_BASE};
use reprise_abi::session::{region_flags, FLAG_LISTS, FLAG_REBUILT};
use reprise_abi::stage::{StageOp, OP_COPY, OP_MAP, OP_PROTECT};
use reprise_trace::{opened, Content, ContentHash, Image, FILES_DIR};
use rustix::fs::{memfd_create, MemfdFlags};
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

const AT_NULL: u64 = 0;
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_ENTRY: u64 = 9;
const MAP_SHARED: u32 = 1;
const MAP_PRIVATE: u32 = 2;
const MAP_NORESERVE: u32 = 0x4000;
const MAP_ANONYMOUS: u32 = 0x20;
const PROT_RW: u32 = 3;

/// The rebuilt program, or the recorded one while its operations are listed.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    path: PathBuf,
    /// `None`: the recorded one.
    elf: Option<Elf>,
    /// The list of operations.
    listing: File,
    /// The file that it stands for: that of the first image.
    instead_of: Cell<Option<ContentHash>>,
    /// How far its addresses are from those in its file.
    bias: Cell<u64>,
}

/// A segment that is mapped.
#[derive(Clone, Debug)]
struct Segment {
    address: u64,
    in_memory: u64,
    offset: u64,
    in_file: u64,
    prot: u32,
}

#[derive(Debug)]
struct Elf {
    bytes: Vec<u8>,
    moves: bool,
    entry: u64,
    segments: Vec<Segment>,
    /// Address of the program headers, and how many there are.
    headers: (u64, u64),
    interpreted: bool,
}

/// What is done instead of mapping the recorded program.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Regions of the image that begin there are left out.
    pub was: Range<u64>,
    /// What is mapped instead: start, end, protection, flags.
    pub regions: Vec<(u64, u64, u32, u32)>,
    /// How; copies take their bytes from `bytes`.
    pub ops: Vec<StageOp>,
    /// See there.
    pub bytes: Vec<u8>,
    /// Descriptors that the operations name.
    pub files: Vec<File>,
    /// The entry, if that is not the dynamic linker's.
    pub entry: Option<u64>,
    /// Words of the stack that change: addresses and values.
    pub words: Vec<(u64, u64)>,
}

fn up(n: u64) -> u64 {
    n.next_multiple_of(PAGE)
}

fn down(n: u64) -> u64 {
    n & !(PAGE - 1)
}

fn memory_file(bytes: &[u8]) -> Result<File, ReplayError> {
    let made = memfd_create(c"rebuilt", MemfdFlags::CLOEXEC);
    let made = made.map_err(io("make memory for the rebuilt program"))?;
    let mut file = File::from(made);
    file.write_all(bytes)
        .map_err(io("copy the rebuilt program"))?;
    Ok(file)
}

fn io<E: Into<std::io::Error>>(what: &str) -> impl FnOnce(E) -> ReplayError + '_ {
    move |error| ReplayError::Io {
        what: what.into(),
        source: error.into(),
    }
}

impl Elf {
    fn parse(bytes: Vec<u8>) -> Option<Elf> {
        let endian = LittleEndian;
        let data = bytes.as_slice();
        let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
        let kind = header.e_type(endian);
        let fits = header.e_machine(endian) == elf::EM_X86_64
            && header.endian().ok()? == endian
            && matches!(kind, elf::ET_EXEC | elf::ET_DYN);
        if !fits {
            return None;
        }
        let headers = header.program_headers(endian, data).ok()?;
        let mut segments = Vec::new();
        for p in headers.iter().filter(|p| p.p_type(endian) == elf::PT_LOAD) {
            let flags = p.p_flags(endian);
            let prot = |bit, prot| if flags & bit != 0 { prot } else { 0 };
            let s = Segment {
                address: p.p_vaddr(endian),
                in_memory: p.p_memsz(endian),
                offset: p.p_offset(endian),
                in_file: p.p_filesz(endian),
                prot: prot(elf::PF_R, 1) | prot(elf::PF_W, 2) | prot(elf::PF_X, 4),
            };
            let file_end = s.offset.checked_add(s.in_file)?;
            let end = s.address.checked_add(s.in_memory)?;
            if file_end > data.len() as u64
                || end > 1 << 46
                || s.in_file > s.in_memory
                || s.address % PAGE != s.offset % PAGE
            {
                return None;
            }
            segments.push(s);
        }
        let place = header.e_phoff(endian);
        let first = segments
            .iter()
            .find(|s| s.offset <= place && place < s.offset + s.in_file)?;
        let headers_at = first.address + (place - first.offset);
        let interpreted = headers.iter().any(|p| p.p_type(endian) == elf::PT_INTERP);
        Some(Elf {
            moves: kind == elf::ET_DYN,
            entry: header.e_entry(endian),
            headers: (headers_at, headers.len() as u64),
            interpreted,
            segments,
            bytes,
        })
    }

    /// Its pages, before they are moved.
    fn span(&self) -> Range<u64> {
        let start = self.segments.iter().map(|s| down(s.address)).min();
        let end = self
            .segments
            .iter()
            .map(|s| up(s.address + s.in_memory))
            .max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// Sections that it writes to.
    fn sections(&self) -> HashMap<String, Range<u64>> {
        let Ok(file) = object::File::parse(self.bytes.as_slice()) else {
            return HashMap::new();
        };
        let written = u64::from(elf::SHF_ALLOC | elf::SHF_WRITE);
        let of = |s: object::Section| {
            let SectionFlags::Elf { sh_flags } = s.flags() else {
                return None;
            };
            let plain = sh_flags & written == written && sh_flags & u64::from(elf::SHF_TLS) == 0;
            let name = s.name().ok().filter(|_| plain)?.to_string();
            Some((name, s.address()..s.address() + s.size()))
        };
        file.sections().filter_map(of).collect()
    }

    /// Variables whose names nothing else has.
    fn variables(&self) -> HashMap<String, Range<u64>> {
        let Ok(file) = object::File::parse(self.bytes.as_slice()) else {
            return HashMap::new();
        };
        let mut all: HashMap<String, Option<Range<u64>>> = HashMap::new();
        for s in file.symbols() {
            if s.kind() != SymbolKind::Data || s.size() == 0 || !s.is_definition() {
                continue;
            }
            let Ok(name) = s.name() else { continue };
            let range = s.address()..s.address() + s.size();
            all.entry(name.to_string())
                .and_modify(|known| *known = None)
                .or_insert(Some(range));
        }
        all.into_iter().filter_map(|(k, v)| Some((k, v?))).collect()
    }
}

/// The auxiliary vector: where its entries are, and what they say.
struct Vector(Vec<(u64, [u64; 2])>);

impl Vector {
    /// That of the stack which begins at `sp`.
    fn find(image: &Image, blob: &[u8], sp: u64) -> Option<Vector> {
        let runs = image.regions.iter().flat_map(|r| r.content.runs());
        let run = runs
            .into_iter()
            .find(|r| (r.address..r.address + r.len).contains(&sp))?;
        let word = |at: u64| {
            let end = run.address + run.len;
            let from = (at + 8 <= end).then_some(run.blob_offset + (at - run.address))? as usize;
            let bytes = blob.get(from..from + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let mut at = sp + 8 * (word(sp)?.checked_add(2)?);
        while word(at)? != 0 {
            at += 8;
        }
        at += 8;
        let mut all = Vec::new();
        loop {
            let entry = [word(at)?, word(at + 8)?];
            if entry[0] == AT_NULL {
                return Some(Vector(all));
            }
            all.push((at + 8, entry));
            at += 16;
        }
    }

    fn get(&self, key: u64) -> Option<(u64, u64)> {
        let found = self.0.iter().find(|(_, e)| e[0] == key)?;
        Some((found.0, found.1[1]))
    }
}

impl Rebuilt {
    /// Reads a program.
    ///
    /// # Errors
    /// When it can't be read, or is none.
    pub fn open(path: &Path) -> Result<Rebuilt, ReplayError> {
        let bytes = std::fs::read(path).map_err(|source| ReplayError::Io {
            what: format!("read {}", path.display()),
            source,
        })?;
        let Some(elf) = Elf::parse(bytes) else {
            return Err(ReplayError::Unsupported(format!(
                "{} is no program for x86-64 Linux",
                path.display()
            )));
        };
        let listing = memory_file(&[])?;
        listing
            .set_len(LISTING_LEN)
            .map_err(|source| ReplayError::Io {
                what: "make room for the list of operations".into(),
                source,
            })?;
        Ok(Rebuilt {
            path: path.into(),
            elf: Some(elf),
            listing,
            instead_of: Cell::new(None),
            bias: Cell::new(0),
        })
    }

    /// The recorded program, whose replay makes the list that this one follows.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn as_recorded(&self) -> Result<Rebuilt, ReplayError> {
        Ok(Rebuilt {
            path: self.path.clone(),
            elf: None,
            listing: self.listing.try_clone().map_err(|source| ReplayError::Io {
                what: "keep the list of operations".into(),
                source,
            })?,
            instead_of: Cell::new(None),
            bias: Cell::new(0),
        })
    }

    /// What the session is told of it.
    pub fn flag(&self) -> u32 {
        match self.elf {
            Some(_) => FLAG_REBUILT,
            None => FLAG_LISTS,
        }
    }

    /// Looks at the list's head.
    fn with_listing<R>(&self, look: impl FnOnce(&Listing) -> R) -> Result<R, ReplayError> {
        let len = std::mem::size_of::<Listing>();
        let head = MmapOptions::new().len(len).map_raw(&self.listing);
        let head = head.map_err(io("read the list of operations"))?;
        // SAFETY: mapped until the end of this function; it is only atomics.
        Ok(look(unsafe { &*(head.as_ptr() as *const Listing) }))
    }

    /// From here on the list is read from its beginning. False: the runtime in the trace knows nothing of it.
    ///
    /// # Errors
    /// When it can't be mapped.
    pub fn rewind(&self) -> Result<bool, ReplayError> {
        self.with_listing(|list| {
            for p in &list.places {
                p.chunk.store(p.first.load(Relaxed), Relaxed);
                p.word.store(1, Relaxed);
            }
            list.known.load(Relaxed) != 0
        })
    }

    /// Where the program's own code called what the thread was in that diverged.
    pub fn caller(&self, d: &Divergence) -> Option<String> {
        let caller = self.with_listing(|list| list.caller.load(Relaxed)).ok()?;
        self.place(caller).filter(|_| caller != d.pc)
    }

    /// The name of a place in its code.
    pub fn place(&self, pc: u64) -> Option<String> {
        let address = pc.wrapping_sub(self.bias.get());
        let mut segments = self.elf.as_ref()?.segments.iter();
        let s = segments.find(|s| (s.address..s.address + s.in_file).contains(&address))?;
        symbols::place_in(&self.path, s.offset + (address - s.address))
    }

    fn no(&self, why: &str) -> ReplayError {
        ReplayError::Unsupported(format!("{} can't be replayed: {why}", self.path.display()))
    }

    /// Takes the place of the program in an image whose bytes are `blob`, and whose stack and brk area begin there.
    ///
    /// # Errors
    /// When it does not fit there.
    pub fn take_place(
        &self,
        dir: &Path,
        image: &Image,
        blob: &[u8],
        sp: u64,
        brk: u64,
    ) -> Result<Exchange, ReplayError> {
        let unknown = || self.no("the trace does not say where the recorded program was");
        let vector = Vector::find(image, blob, sp).ok_or_else(unknown)?;
        let (_, headers) = vector.get(AT_PHDR).ok_or_else(unknown)?;
        let region = image
            .regions
            .iter()
            .find(|r| (r.start..r.end()).contains(&headers));
        let Some(Content::File { hash, .. }) = region.map(|r| &r.content) else {
            return Err(unknown());
        };
        let hash = *hash;
        let mut exchange = Exchange::default();
        exchange.map_listing(&self.listing)?;
        if self.instead_of.get().is_some_and(|known| known != hash) {
            // Another program, by an exec.
            exchange.map_table(&table([[0; 2]; 2], &[]))?;
            return Ok(exchange);
        }
        self.instead_of.set(Some(hash));
        let name = Path::new(FILES_DIR).join(hash.to_string());
        let path = dir.join(&name);
        let bytes = opened::read(dir, name).map_err(|source| ReplayError::Io {
            what: format!("read {}", path.display()),
            source,
        })?;
        let old = Elf::parse(bytes).ok_or_else(unknown)?;
        let old_bias = headers.wrapping_sub(old.headers.0);
        let moved = |r: Range<u64>, bias: u64| r.start.wrapping_add(bias)..r.end.wrapping_add(bias);
        let was = moved(old.span(), old_bias);
        let Some(new) = &self.elf else {
            exchange.map_table(&table([[was.start, was.end]; 2], &[]))?;
            return Ok(exchange);
        };
        if old.moves != new.moves || old.interpreted != new.interpreted {
            return Err(
                self.no("it is linked in another way than the recorded one (-pie, -static)")
            );
        }
        let mut bias = old_bias;
        if new.moves {
            // Above is the brk area.
            let end = moved(new.span(), bias).end;
            bias = bias.wrapping_sub(end.saturating_sub(brk));
        }
        self.bias.set(bias);
        let is = moved(new.span(), bias);
        let others = image.regions.iter().map(|r| (r.start, r.end()));
        let mut taken = others
            .filter(|(start, _)| !was.contains(start))
            .chain([(RESERVATION, RESERVATION_END), (brk, brk + PAGE)]);
        if taken.any(|(start, end)| start < is.end && is.start < end) || is.start < 0x1_0000 {
            return Err(self.no("it does not fit where the recorded one was"));
        }
        exchange.was = was.clone();
        exchange.entry = (!new.interpreted).then(|| new.entry.wrapping_add(bias));
        let file = memory_file(&new.bytes)?;
        for s in &new.segments {
            exchange.map_segment(&file, &new.bytes, s, bias);
        }
        exchange.files.push(file);
        exchange.regions.sort_unstable();
        let news = [
            (AT_PHDR, new.headers.0.wrapping_add(bias)),
            (AT_PHNUM, new.headers.1),
            (AT_ENTRY, new.entry.wrapping_add(bias)),
        ];
        for (key, value) in news {
            exchange
                .words
                .extend(vector.get(key).map(|(at, _)| (at, value)));
        }
        let list = places(&old, old_bias, new, bias);
        exchange.map_table(&table([[was.start, was.end], [is.start, is.end]], &list))?;
        Ok(exchange)
    }
}

/// Where the rebuilt program's variables are, and where they were.
fn places(old: &Elf, old_bias: u64, new: &Elf, bias: u64) -> Vec<[u64; 3]> {
    let (known, sections) = (old.variables(), old.sections());
    let mut variables: Vec<(Range<u64>, u64)> = new
        .variables()
        .into_iter()
        .filter_map(|(name, r)| Some((r, known.get(&name)?.start)))
        .collect();
    variables.sort_unstable_by_key(|(r, _)| r.start);
    let mut parts: Vec<_> = new.sections().into_iter().collect();
    parts.sort_unstable_by_key(|(_, r)| r.start);
    let mut all = Vec::new();
    for (name, section) in parts {
        // What has no name moves with its section.
        let was = sections.get(&name).map(|r| r.start);
        let mut at = section.start;
        let rest = |all: &mut Vec<[u64; 3]>, from: u64, to: u64| {
            if let Some(was) = was.filter(|_| from < to) {
                all.push([from, to, was + (from - section.start)]);
            }
        };
        for (r, was) in variables.iter().filter(|(r, _)| section.contains(&r.start)) {
            if r.start < at {
                continue;
            }
            rest(&mut all, at, r.start);
            all.push([r.start, r.end, *was]);
            at = r.end;
        }
        rest(&mut all, at, section.end);
    }
    all.truncate(MAX_MOVED);
    let here = |[from, to, was]: [u64; 3]| {
        [
            from.wrapping_add(bias),
            to.wrapping_add(bias),
            was.wrapping_add(old_bias),
        ]
    };
    all.into_iter().map(here).collect()
}

/// What the runtime reads.
fn table(ranges: [[u64; 2]; 2], list: &[[u64; 3]]) -> Vec<u8> {
    let head = ranges.into_iter().flatten().chain([list.len() as u64]);
    let words = head.chain(list.iter().flatten().copied());
    words.flat_map(u64::to_le_bytes).collect()
}

impl Exchange {
    fn map_listing(&mut self, file: &File) -> Result<(), ReplayError> {
        let file = file.try_clone().map_err(|source| ReplayError::Io {
            what: "map the list of operations".into(),
            source,
        })?;
        self.ops.push(StageOp {
            kind: OP_MAP,
            prot: PROT_RW,
            flags: MAP_SHARED | MAP_NORESERVE,
            fd: file.as_raw_fd(),
            addr: LISTING_BASE,
            len: LISTING_LEN,
            offset: 0,
        });
        self.files.push(file);
        Ok(())
    }

    fn map_table(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        let file = memory_file(bytes)?;
        self.ops.push(StageOp {
            kind: OP_MAP,
            prot: 1,
            flags: MAP_PRIVATE,
            fd: file.as_raw_fd(),
            addr: REBUILT_BASE,
            len: up(bytes.len() as u64),
            offset: 0,
        });
        self.files.push(file);
        Ok(())
    }

    /// As the kernel does it: the file's pages, and zeros behind them.
    fn map_segment(&mut self, file: &File, bytes: &[u8], s: &Segment, bias: u64) {
        let at = |address: u64| address.wrapping_add(bias);
        let (start, end) = (down(s.address), up(s.address + s.in_memory));
        let filled = s.address + s.in_file;
        let of_file = if s.in_file == 0 { start } else { up(filled) };
        if start < of_file {
            // What the file has behind the segment's end is zero.
            let torn = s.in_memory > s.in_file && filled % PAGE != 0;
            let map = StageOp {
                kind: OP_MAP,
                prot: if torn { s.prot | PROT_RW } else { s.prot },
                flags: MAP_PRIVATE,
                fd: file.as_raw_fd(),
                addr: at(start),
                len: of_file - start,
                offset: down(s.offset),
            };
            self.ops.push(map);
            if torn {
                let from = (s.offset + s.in_file - filled % PAGE) as usize;
                let to = (s.offset + s.in_file) as usize;
                let mut page = bytes.get(from..to).unwrap_or_default().to_vec();
                page.resize(PAGE as usize, 0);
                self.ops.push(StageOp {
                    kind: OP_COPY,
                    addr: at(down(filled)),
                    len: PAGE,
                    offset: self.bytes.len() as u64,
                    ..StageOp::default()
                });
                self.bytes.extend(page);
                self.ops.push(StageOp {
                    kind: OP_PROTECT,
                    ..StageOp {
                        prot: s.prot,
                        ..map
                    }
                });
            }
            self.regions
                .push((at(start), at(of_file), s.prot, region_flags::FILE));
        }
        if of_file < end {
            self.ops.push(StageOp {
                kind: OP_MAP,
                prot: s.prot,
                flags: MAP_PRIVATE | MAP_ANONYMOUS,
                fd: -1,
                addr: at(of_file),
                len: end - of_file,
                offset: 0,
            });
            self.regions.push((at(of_file), at(end), s.prot, 0));
        }
    }
}
