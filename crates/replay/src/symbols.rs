//! Names for addresses: which function and source line of the recorded program an address belongs to.
//!
//! What is mapped at an address is taken from the trace alone: the initial image, then every event that maps or unmaps there.
//! The file's content is the one kept in the trace, so that the answer is that of the recording, not of what the machine has
//! under that name today. Names are help for people: whatever can't be read gives no name, never an error.

use addr2line::gimli::{self, EndianSlice, LittleEndian};
use object::read::ReadRef;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};
use reprise_abi::effect::Effect;
use reprise_abi::event::{Event, EventHeader, Kind, Tag};
use reprise_abi::layout::PAGE;
use reprise_abi::syscalls;
use reprise_trace::{opened, Content, ContentHash, ImageReader, Reader, Result, FILES_DIR};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Most bytes of a region kept as bytes that are looked at as an object file (the vDSO has one page).
const MAX_BYTES: u64 = 1 << 20;
/// Most descriptors whose files' names are remembered.
const MAX_NAMES: usize = 1 << 16;
/// Where distributions keep debug information apart from the program, by build id.
const DEBUG_DIR: &str = "/usr/lib/debug/.build-id";

/// What is at an address.
#[derive(Debug)]
struct Mapped {
    /// A file's name, or one like `[vdso]`.
    name: String,
    source: Source,
    /// How far into the source.
    offset: u64,
}

#[derive(Debug)]
enum Source {
    /// A file of the trace.
    File(ContentHash),
    /// Memory of the initial image, from its region's beginning.
    Bytes(Vec<u8>),
}

/// Function and source line of the address `pc`, as the program's memory was before event `event` of the trace in `dir`:
/// `main (foo.c:12)`, or, with less debug information, `libfoo.so+0x1234 function`.
pub fn place(dir: &Path, event: u64, pc: u64) -> Option<String> {
    let mapped = mapped(dir, event, pc).ok()??;
    let named = match &mapped.source {
        Source::File(hash) => in_file(dir, *hash, &mapped),
        Source::Bytes(bytes) => in_object(bytes.as_slice(), &mapped),
    };
    Some(named.unwrap_or_else(|| format!("{}+{:#x}", mapped.name, mapped.offset)))
}

/// The name of a place in a file, by its offset in it.
pub(crate) fn place_in(file: &Path, offset: u64) -> Option<String> {
    let name = file.file_name()?.to_string_lossy().into_owned();
    let source = Source::Bytes(Vec::new());
    let mapped = Mapped {
        name,
        source,
        offset,
    };
    in_object(&ReadCache::new(File::open(file).ok()?), &mapped)
}

/// What is mapped at `pc` before event `event`.
fn mapped(dir: &Path, event: u64, pc: u64) -> Result<Option<Mapped>> {
    let mut mapped = initially(dir, pc)?;
    let mut names = HashMap::new();
    let mut reader = Reader::open(dir)?;
    while let Some(e) = reader.next()? {
        if e.number >= event {
            break;
        }
        let Ok(h) = EventHeader::parse(e.bytes) else {
            break;
        };
        if !matches!(Kind::from_u8(h.kind), Some(Kind::Syscall | Kind::Exit)) || h.value < 0 {
            continue;
        }
        match syscalls::effect(h.detail.into()) {
            Effect::OpensFile(_) if names.len() < MAX_NAMES => {
                if let Some(path) = e.parse()?.sections().find(|s| s.tag == Tag::Path) {
                    names.insert(h.value as u64, base_name(path.bytes));
                }
            }
            Effect::Maps | Effect::Unmaps | Effect::Remaps => {
                change(&e.parse()?, pc, &names, &mut mapped)
            }
            _ => {}
        }
    }
    Ok(mapped)
}

/// What the initial image has at `pc`.
fn initially(dir: &Path, pc: u64) -> Result<Option<Mapped>> {
    let mut image = ImageReader::open(dir)?;
    let Some(i) = image
        .image()
        .regions
        .iter()
        .position(|r| r.start <= pc && pc < r.end())
    else {
        return Ok(None);
    };
    let r = image.image().regions[i].clone();
    let (source, from) = match r.content {
        Content::File {
            hash, file_offset, ..
        } => (Source::File(hash), file_offset),
        _ => {
            let mut bytes = vec![0; r.len.min(MAX_BYTES) as usize];
            image.read_region(i, |at, run| {
                let at = (at - r.start) as usize;
                if let Some(room) = bytes.get_mut(at..) {
                    let n = room.len().min(run.len());
                    room[..n].copy_from_slice(&run[..n]);
                }
                Ok(())
            })?;
            (Source::Bytes(bytes), 0)
        }
    };
    Ok(Some(Mapped {
        name: base_name(&r.name.0),
        source,
        offset: pc - r.start + from,
    }))
}

/// Applies a call that shapes the address space.
fn change(event: &Event, pc: u64, names: &HashMap<u64, String>, mapped: &mut Option<Mapped>) {
    let covers = |start: u64, len: u64| {
        pc >= start && pc - start < len.saturating_add(PAGE - 1) & !(PAGE - 1)
    };
    let (a, result) = (|i| event.arg(i), event.header.value as u64);
    match syscalls::effect(event.header.detail.into()) {
        Effect::Maps if covers(result, a(1)) => {
            let file = event
                .sections()
                .find(|s| s.tag == Tag::File)
                .and_then(|s| s.bytes.try_into().ok());
            *mapped = file.map(|hash| {
                let hash = ContentHash(hash);
                let name = names
                    .get(&a(4))
                    .cloned()
                    .unwrap_or_else(|| hash.to_string());
                Mapped {
                    name,
                    source: Source::File(hash),
                    offset: a(5).wrapping_add(pc - result),
                }
            });
        }
        Effect::Unmaps if covers(a(0), a(1)) => *mapped = None,
        // What was moved here is not followed; code is not moved.
        Effect::Remaps if result != a(0) && (covers(result, a(2)) || covers(a(0), a(1))) => {
            *mapped = None
        }
        Effect::Remaps if covers(a(0), a(1)) && !covers(a(0), a(2)) => *mapped = None,
        _ => {}
    }
}

pub(crate) fn base_name(path: &[u8]) -> String {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    if name.is_empty() {
        return "memory".into();
    }
    // It goes to a terminal.
    String::from_utf8_lossy(name)
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn in_file(dir: &Path, hash: ContentHash, mapped: &Mapped) -> Option<String> {
    let name = Path::new(FILES_DIR).join(hash.to_string());
    in_object(&ReadCache::new(opened::open(dir, name).ok()?), mapped)
}

/// The best name that an object file has for a place in itself.
fn in_object<'a, R: ReadRef<'a>>(data: R, mapped: &Mapped) -> Option<String> {
    let file = object::File::parse(data).ok()?;
    let address = address_of(&file, mapped.offset)?;
    if let Some(line) = source_line(&file, address) {
        return Some(line);
    }
    let apart = separate_debug_file(&file).and_then(|p| Some(ReadCache::new(File::open(p).ok()?)));
    let apart = apart
        .as_ref()
        .and_then(|data| object::File::parse(data).ok());
    if let Some(line) = apart.as_ref().and_then(|file| source_line(file, address)) {
        return Some(line);
    }
    let name = apart
        .as_ref()
        .and_then(|f| symbol(f, address))
        .or_else(|| symbol(&file, address));
    Some(format!(
        "{}+{address:#x}{}",
        mapped.name,
        name.map_or_else(String::new, |n| format!(" {n}"))
    ))
}

/// From an offset in the file to the address for which it was linked.
pub(crate) fn address_of<'a, R: ReadRef<'a>>(
    file: &object::File<'a, R>,
    offset: u64,
) -> Option<u64> {
    let within = |range: &Range<u64>| range.contains(&offset);
    file.segments().find_map(|s| {
        let (start, len) = s.file_range();
        within(&(start..start.saturating_add(len)))
            .then(|| s.address().wrapping_add(offset - start))
    })
}

/// `function (file:line)`, if the debug information tells both.
fn source_line<'a, R: ReadRef<'a>>(file: &object::File<'a, R>, address: u64) -> Option<String> {
    source_lines(file, address)?.into_iter().next()
}

/// As [`source_line`]: the innermost function that was inlined here comes first, the one that the others were inlined into last.
pub(crate) fn source_lines<'a, R: ReadRef<'a>>(
    file: &object::File<'a, R>,
    address: u64,
) -> Option<Vec<String>> {
    file.section_by_name(".debug_info")
        .or_else(|| file.section_by_name(".zdebug_info"))?;
    let load = |id: gimli::SectionId| -> std::result::Result<Cow<[u8]>, gimli::Error> {
        Ok(file
            .section_by_name(id.name())
            .and_then(|s| s.uncompressed_data().ok())
            .unwrap_or_default())
    };
    let sections = gimli::DwarfSections::load(load).ok()?;
    let context =
        addr2line::Context::from_dwarf(sections.borrow(|s| EndianSlice::new(s, LittleEndian)))
            .ok()?;
    let mut frames = context.find_frames(address).skip_all_loads().ok()?;
    let mut lines = Vec::new();
    while let Some(frame) = frames.next().ok()? {
        let location = frame.location?;
        let (path, line) = (location.file?, location.line?);
        let name = frame
            .function
            .and_then(|f| Some(demangled(&f.raw_name().ok()?)));
        let name = name
            .or_else(|| symbol(file, address))
            .unwrap_or_else(|| "?".into());
        lines.push(format!("{name} ({path}:{line})"));
    }
    (!lines.is_empty()).then_some(lines)
}

/// The function that holds this address, from the symbol tables.
pub(crate) fn symbol<'a, R: ReadRef<'a>>(
    file: &object::File<'a, R>,
    address: u64,
) -> Option<String> {
    let holds = |s: &object::Symbol<'a, '_, R>| {
        s.is_definition()
            && s.kind() == SymbolKind::Text
            && s.address() <= address
            && address - s.address() < s.size().max(1)
    };
    let mut all = file.symbols().chain(file.dynamic_symbols()).filter(holds);
    all.next()?
        .name()
        .ok()
        .filter(|n| !n.is_empty())
        .map(demangled)
}

pub(crate) fn demangled(name: &str) -> String {
    // Without these beginnings, short names of C would be taken for the mangled names of types.
    if name.starts_with("_Z") || name.starts_with("_R") {
        return addr2line::demangle_auto(name.into(), None).into_owned();
    }
    name.into()
}

/// Where this machine has the debug information of this very file, if it does.
pub(crate) fn separate_debug_file<'a, R: ReadRef<'a>>(
    file: &object::File<'a, R>,
) -> Option<PathBuf> {
    let id = file.build_id().ok()??;
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
    Some(
        Path::new(DEBUG_DIR)
            .join(format!("{first:02x}"))
            .join(format!("{rest}.debug")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_abi::event::{section_len, HEADER_LEN};
    use reprise_abi::syscalls::nr;
    use reprise_trace::{ImageWriter, Region, Writer};

    /// A function whose line is known: this one.
    #[inline(never)]
    fn landmark() -> u32 {
        std::hint::black_box(line!())
    }

    /// This program's own mapping around the landmark: start, length, offset in the file.
    fn own_text() -> (u64, u64, u64) {
        let pc = landmark as *const () as u64;
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let number = |s: &str| u64::from_str_radix(s, 16).expect("a number");
        let parsed = maps.lines().map(|l| {
            let mut fields = l.split_whitespace();
            let (start, end) = fields
                .next()
                .and_then(|f| f.split_once('-'))
                .expect("a range");
            (
                number(start),
                number(end) - number(start),
                number(fields.nth(1).expect("an offset")),
            )
        });
        parsed
            .into_iter()
            .find(|m| m.0 <= pc && pc - m.0 < m.1)
            .expect("mapped")
    }

    fn call(number: u64, args: &[u64], result: i64, sections: &[(Tag, &[u8])]) -> Vec<u8> {
        let body: usize = sections.iter().map(|s| section_len(s.1.len())).sum();
        let len = HEADER_LEN + 8 * args.len() + body;
        let h = EventHeader {
            len: len as u32,
            kind: Kind::Syscall as u8,
            nargs: args.len() as u8,
            detail: number as u32,
            value: result,
            ..Default::default()
        };
        let mut bytes = h.to_bytes().to_vec();
        args.iter()
            .for_each(|a| bytes.extend_from_slice(&a.to_le_bytes()));
        for (tag, content) in sections {
            bytes.extend_from_slice(&[0; 8]);
            bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&(*tag as u32).to_le_bytes());
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        bytes
    }

    /// A trace whose image is this program's text and a page of bytes, with these events; the program's content is in it.
    fn trace(events: impl FnOnce(ContentHash) -> Vec<Vec<u8>>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        let exe = std::env::current_exe().expect("this program");
        let (hash, _) = ContentHash::of_file(&File::open(&exe).expect("open")).expect("hash");
        std::fs::create_dir(dir.path().join(FILES_DIR)).expect("create");
        std::fs::copy(&exe, dir.path().join(FILES_DIR).join(hash.to_string())).expect("a copy");
        let (start, len, file_offset) = own_text();
        let region = |start, len, content, name: &str| Region {
            start,
            len,
            prot: 5,
            flags: 0,
            content,
            name: name.into(),
        };
        let mut image = ImageWriter::create(dir.path()).expect("an image");
        image
            .region(region(0x10000, PAGE, Content::Zero, "/opt/data"))
            .expect("a region");
        image
            .bytes(0x10000, &reprise_launch::vdso::image())
            .expect("bytes");
        image
            .region(region(0x20000, PAGE, Content::Zero, ""))
            .expect("a region");
        let content = Content::File {
            hash,
            file_offset,
            runs: vec![],
        };
        image
            .region(region(start, len, content, "/bin/test"))
            .expect("a region");
        image.finish().expect("an image");
        let mut writer = Writer::create(dir.path()).expect("a stream");
        for e in events(hash) {
            writer.push(&e).expect("an event");
        }
        writer.finish().expect("a stream");
        dir
    }

    fn expected() -> String {
        format!("symbols.rs:{})", landmark() - 1)
    }

    /// With the line where the test binary has line tables (release builds are stripped of them), by symbol otherwise.
    fn leads_to_landmark(found: &str) -> bool {
        if cfg!(debug_assertions) {
            found.contains("landmark (") && found.ends_with(&expected())
        } else {
            found.contains("landmark")
        }
    }

    #[test]
    fn the_initial_image_leads_to_the_source() {
        let dir = trace(|_| vec![]);
        let found = place(dir.path(), 0, landmark as *const () as u64).expect("a place");
        assert!(leads_to_landmark(&found), "{found}");
        assert_eq!(place(dir.path(), 0, 0x5000), None);
        assert_eq!(
            place(dir.path(), 0, 0x20010).as_deref(),
            Some("memory+0x10")
        );
    }

    #[test]
    fn memory_kept_as_bytes_has_symbols_too() {
        let dir = trace(|_| vec![]);
        let found = place(dir.path(), 0, 0x100f5).expect("a place");
        assert_eq!(found, "data+0xf5 clock_gettime");
        assert_eq!(place(dir.path(), 0, 0x10fff).as_deref(), Some("data+0xfff"));
    }

    #[test]
    fn later_mappings_count_up_to_the_event() {
        const ELSEWHERE: u64 = 0x6000_0000_0000;
        let (start, len, offset) = own_text();
        let dir = trace(|hash| {
            vec![
                call(
                    nr::OPENAT,
                    &[0, 0, 0, 0],
                    3,
                    &[(Tag::Path, b"/lib/libother.so")],
                ),
                call(
                    nr::MMAP,
                    &[0, len, 5, 2, 3, offset],
                    ELSEWHERE as i64,
                    &[(Tag::File, &hash.0)],
                ),
                call(nr::MMAP, &[0, 100, 3, 0x22, u64::MAX, 0], -12, &[]),
                call(nr::MUNMAP, &[ELSEWHERE, len], 0, &[]),
                call(
                    nr::MMAP,
                    &[start, len, 3, 0x32, u64::MAX, 0],
                    start as i64,
                    &[],
                ),
            ]
        });
        let here = landmark as *const () as u64;
        let there = here - start + ELSEWHERE;
        let at = |event, pc| place(dir.path(), event, pc);
        assert_eq!(at(1, there), None);
        for event in [2, 3] {
            let found = at(event, there).expect("a place");
            assert!(leads_to_landmark(&found), "{found}");
        }
        assert_eq!(at(4, there), None);
        assert!(at(4, here).is_some());
        assert_eq!(at(5, here), None);
        // The first page holds no code: the headers of the file, which belong to no function.
        let mapped = mapped(dir.path(), 2, there)
            .expect("readable")
            .expect("mapped");
        assert_eq!(mapped.name, "libother.so");
    }

    #[test]
    fn names_of_c_stay_as_they_are() {
        assert_eq!(demangled("f"), "f");
        assert_eq!(demangled("_Z1fi"), "f(int)");
        assert_eq!(
            demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(base_name(b"/tmp/a\x1b[31m"), "a?[31m");
    }
}
