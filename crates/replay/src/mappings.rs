//! What was mapped where at a moment of a recording: for whoever has many addresses to name ([`crate::symbols`] is for one).

use crate::symbols::{address_of, base_name, demangled, separate_debug_file, source_lines, symbol};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};
use reprise_abi::effect::Effect;
use reprise_abi::event::{EventHeader, Kind, Tag};
use reprise_abi::layout::PAGE;
use reprise_abi::syscalls;
use reprise_launch::maps::{Line, Maps};
use reprise_trace::{Content, ContentHash, ImageReader, Reader, Result, FILES_DIR};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of such an entry.
const ENTRY_LEN: u64 = size_of::<[u64; 2]>() as u64;
/// Most bytes of a file that is looked at.
const MAX_FILE: u64 = 2 << 30;

/// A stretch of memory with a file's content.
#[derive(Clone, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    /// Offset of its beginning in the file.
    offset: u64,
    path: PathBuf,
    name: String,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    files: PathBuf,
    list: Vec<Mapping>,
}

/// A place in a file.
pub(crate) struct Place {
    /// The file.
    pub path: PathBuf,
    /// What it was called.
    pub name: String,
    /// How far into the file.
    pub offset: u64,
}

impl Mappings {
    /// Those at the last of some moments, each told by a slot and how many events and entries it had by then; and the numbers of their last events.
    pub fn read(dir: &Path, moments: &[(u32, u64)]) -> Result<(Mappings, Vec<Option<u64>>)> {
        let mut all = Mappings {
            files: dir.join(FILES_DIR),
            list: Vec::new(),
        };
        all.initial(dir)?;
        let mut numbers = vec![None; moments.len()];
        let mut left = moments.iter().filter(|(_, events)| *events > 0).count();
        let mut counts = HashMap::new();
        let mut names = HashMap::new();
        let mut reader = Reader::open(dir)?;
        while let Some(e) = reader.next()? {
            if left == 0 {
                break;
            }
            let Ok(h) = EventHeader::parse(e.bytes) else {
                break;
            };
            let kind = Kind::from_u8(h.kind);
            let count = counts.entry(h.slot as u32).or_insert(0u64);
            let before = *count;
            *count += match kind {
                Some(Kind::End) => 0,
                Some(Kind::Sync) => entries(&e.parse()?),
                _ => 1,
            };
            for (n, (slot, events)) in numbers.iter_mut().zip(moments) {
                if *slot == h.slot as u32 && (before + 1..=*count).contains(events) {
                    *n = Some(e.number);
                    left -= 1;
                }
            }
            if !matches!(kind, Some(Kind::Syscall | Kind::Exit)) || h.value < 0 {
                continue;
            }
            let shapes = matches!(
                syscalls::effect(h.detail.into()),
                Effect::Maps | Effect::Unmaps | Effect::Remaps | Effect::OpensFile(_)
            );
            if shapes {
                all.change(&e.parse()?, &mut names);
            }
        }
        Ok((all, numbers))
    }

    /// Those of a process of this machine, as /proc/PID/maps tells of them.
    pub fn of_process(maps: &Maps) -> Mappings {
        let files = maps.lines().filter(Line::has_path);
        let list = files.map(|l| Mapping {
            start: l.range.start,
            end: l.range.end,
            offset: l.offset,
            name: base_name(l.name.as_bytes()),
            path: l.name.into(),
        });
        Mappings {
            files: PathBuf::new(),
            list: list.collect(),
        }
    }

    fn initial(&mut self, dir: &Path) -> Result<()> {
        let image = ImageReader::open(dir)?;
        for r in &image.image().regions {
            if let Content::File {
                hash, file_offset, ..
            } = &r.content
            {
                self.list.push(Mapping {
                    start: r.start,
                    end: r.end(),
                    offset: *file_offset,
                    path: self.path(hash),
                    name: base_name(&r.name.0),
                });
            }
        }
        Ok(())
    }

    fn change(&mut self, e: &reprise_abi::event::Event, names: &mut HashMap<u64, String>) {
        let (a, result) = (|i| e.arg(i), e.header.value as u64);
        let up = |n: u64| n.saturating_add(PAGE - 1) & !(PAGE - 1);
        match syscalls::effect(e.header.detail.into()) {
            Effect::OpensFile(_) => {
                if let Some(path) = e.sections().find(|s| s.tag == Tag::Path) {
                    names.insert(result, base_name(path.bytes));
                }
            }
            Effect::Maps => {
                let end = result.saturating_add(up(a(1)));
                self.cut(result, end);
                let hash = e.sections().find(|s| s.tag == Tag::File);
                if let Some(hash) = hash.and_then(|s| s.bytes.try_into().ok()) {
                    let hash = ContentHash(hash);
                    self.list.push(Mapping {
                        start: result,
                        end,
                        offset: a(5),
                        path: self.path(&hash),
                        name: names
                            .get(&a(4))
                            .cloned()
                            .unwrap_or_else(|| hash.to_string()),
                    });
                }
            }
            Effect::Unmaps => self.cut(a(0), a(0).saturating_add(up(a(1)))),
            // What was moved is not followed; code is not moved.
            Effect::Remaps if result != a(0) => self.cut(a(0), a(0).saturating_add(up(a(1)))),
            _ => {}
        }
    }

    /// Nothing of a file is left there.
    fn cut(&mut self, start: u64, end: u64) {
        let mut kept = Vec::new();
        for m in self.list.drain(..) {
            if m.end <= start || end <= m.start {
                kept.push(m);
                continue;
            }
            if m.start < start {
                kept.push(Mapping {
                    end: start,
                    ..m.clone()
                });
            }
            if end < m.end {
                kept.push(Mapping {
                    start: end,
                    offset: m.offset + (end - m.start),
                    ..m
                });
            }
        }
        self.list = kept;
    }

    /// What is at this address.
    pub fn at(&self, address: u64) -> Option<Place> {
        let m = self
            .list
            .iter()
            .find(|m| (m.start..m.end).contains(&address))?;
        Some(Place {
            path: m.path.clone(),
            name: m.name.clone(),
            offset: m.offset + (address - m.start),
        })
    }

    fn path(&self, hash: &ContentHash) -> PathBuf {
        self.files.join(hash.to_string())
    }

    /// Function and line of the code at this address, with those that were inlined there, the innermost first.
    pub fn lines(&self, pc: u64) -> Vec<String> {
        let Some(p) = self.at(pc) else {
            return vec![format!("{pc:#x}")];
        };
        lines_in(&p).unwrap_or_else(|| vec![format!("{}+{:#x}", p.name, p.offset)])
    }

    /// Is the memory at this address one of libc's or ld.so's own variables, or of a table by which modules find each other's functions and variables?
    pub fn is_of_libc(&self, address: u64) -> bool {
        self.modules()
            .any(|m| is_of_libc(m, address).unwrap_or(false))
    }

    /// The first mapping of each file.
    fn modules(&self) -> impl Iterator<Item = &Mapping> {
        let mut seen = HashSet::new();
        self.list.iter().filter(move |m| seen.insert(&m.path))
    }

    /// The variable that lies at this address, and how far into it.
    pub fn variable(&self, address: u64) -> Option<String> {
        self.modules().find_map(|m| variable_in(m, address))
    }
}

/// Names of the files that libc's and ld.so's code and variables are in (without versions).
const LIBC: [&str; 2] = ["libc.so", "ld-linux"];
/// Sections that ld.so fills.
const TABLES: [&str; 2] = [".got", ".got.plt"];

/// How many entries of synchronisation a thread finds in its ring in the place of this event.
fn entries(e: &reprise_abi::event::Event) -> u64 {
    let section = e.sections().find(|s| s.tag == Tag::Entries);
    section.map_or(1, |s| s.bytes.len() as u64 / ENTRY_LEN)
}

/// An object file's bytes.
pub(crate) fn content(path: &Path) -> Option<ReadCache<File>> {
    let file = File::open(path).ok()?;
    (file.metadata().ok()?.len() <= MAX_FILE).then(|| ReadCache::new(file))
}

fn lines_in(p: &Place) -> Option<Vec<String>> {
    let data = content(&p.path)?;
    let file = object::File::parse(&data).ok()?;
    let address = address_of(&file, p.offset)?;
    if let Some(lines) = source_lines(&file, address) {
        return Some(lines);
    }
    let apart = separate_debug_file(&file).and_then(|p| content(&p));
    let apart = apart
        .as_ref()
        .and_then(|data| object::File::parse(data).ok());
    if let Some(lines) = apart.as_ref().and_then(|f| source_lines(f, address)) {
        return Some(lines);
    }
    let name = apart
        .as_ref()
        .and_then(|f| symbol(f, address))
        .or_else(|| symbol(&file, address))?;
    Some(vec![format!("{name} ({}+{address:#x})", p.name)])
}

/// For what address an address in the module with this mapping was linked; `None`: it is not in the module. What begins as zeros lies behind the
/// file's content.
fn linked<'a, R: object::ReadRef<'a>>(
    file: &object::File<'a, R>,
    m: &Mapping,
    address: u64,
) -> Option<u64> {
    let bias = m.start.wrapping_sub(address_of(file, m.offset)?);
    let at = address.wrapping_sub(bias);
    let inside = |s: &object::Segment<'a, '_, R>| s.address() <= at && at - s.address() < s.size();
    file.segments().find(inside).map(|_| at)
}

fn is_of_libc(m: &Mapping, address: u64) -> Option<bool> {
    let data = content(&m.path)?;
    let file = object::File::parse(&data).ok()?;
    let at = linked(&file, m, address)?;
    let table = |s: &object::Section<'_, '_, _>| {
        let named = s.name().is_ok_and(|n| TABLES.contains(&n));
        named && s.address() <= at && at - s.address() < s.size()
    };
    Some(LIBC.iter().any(|n| m.name.starts_with(n)) || file.sections().any(|s| table(&s)))
}

/// The variable of the module with this mapping that lies at the address.
fn variable_in(m: &Mapping, address: u64) -> Option<String> {
    let data = content(&m.path)?;
    let file = object::File::parse(&data).ok()?;
    let at = linked(&file, m, address)?;
    let mut all = file.symbols().chain(file.dynamic_symbols());
    let found = all.find(|s| {
        s.is_definition()
            && s.kind() == SymbolKind::Data
            && s.address() <= at
            && at - s.address() < s.size()
    })?;
    let name = demangled(found.name().ok()?);
    Some(match at - found.address() {
        0 => name,
        offset => format!("{name}+{offset:#x}"),
    })
}
