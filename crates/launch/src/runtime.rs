//! The runtime's image: an ELF file for `x86_64-unknown-none`, loaded and relocated here, so that the process only has to map it.

use crate::error::{os_as, LaunchError, Result};
use crate::prelink::Plan;
use crate::vdso;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::Endianness;
use reprise_abi::layout::{IMAGE_BASE, IMAGE_MAX};
use rustix::fs::{memfd_create, MemfdFlags};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// The runtime that was built together with this binary.
pub static EMBEDDED: &[u8] = &ALIGNED.0;
static ALIGNED: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/runtime.elf")));

/// Its name among the contents of a trace: XXH3, 128 bits, 32 hex digits.
pub const EMBEDDED_NAME: &str = include_str!(concat!(env!("OUT_DIR"), "/runtime.xxh3"));
/// Its [`RuntimeImage::build`].
const EMBEDDED_BUILD: u64 = include!(concat!(env!("OUT_DIR"), "/runtime.build"));

/// The parser reads structures in place and wants them aligned.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// A part of the image with one protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the image, whole pages.
    pub offset: u64,
    /// Bytes, whole pages.
    pub len: u64,
    /// PROT_ bits.
    pub prot: i32,
}

/// The image, relocated to [`IMAGE_BASE`], in a memfd.
pub struct RuntimeImage {
    fd: OwnedFd,
    /// Its segments.
    pub segments: Vec<Segment>,
    /// Offset of the vDSO that programs see in the same memfd.
    pub vdso: u64,
    /// Address of `rt_start`.
    pub start: u64,
    /// Address of `rt_start_replay`.
    pub start_replay: u64,
    /// Address of `rt_start_attached`; 0 in a runtime that was made before there was `attach`.
    pub start_attached: u64,
    /// A hash of the file that it was loaded from: XXH3, 64 bits.
    pub build: u64,
    /// What a debugger needs to know of it; `None` for a runtime that was made before there was one.
    pub landmarks: Option<Landmarks>,
}

/// Addresses of the runtime at which a debugger that traces a replay sees what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landmarks {
    /// A breakpoint: the debugger's own are to be out of the program's code.
    pub breakpoints_out: u64,
    /// A breakpoint: they can be in it again.
    pub breakpoints_in: u64,
    /// Instructions after which the program goes on.
    pub leaves: [u64; 3],
    /// What there is more under `order`; `None` for a runtime whose replays of such recordings no debugger can drive.
    pub order: Option<OfOrder>,
    /// The word that says which engine runs; `None` for a runtime that was made before there were diversions.
    pub engine: Option<u64>,
}

/// What a debugger needs to know of a runtime under `order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfOrder {
    /// Instructions after which the program goes on, or a stub.
    pub leaves: [u64; 7],
    /// The table of the runtime's code outside of its image: how many entries are in use, then a first byte and a length for each.
    pub beside: u64,
}

fn bad(why: impl Into<String>) -> LaunchError {
    LaunchError::BadRuntime(Path::new("runtime").to_path_buf(), why.into())
}

impl RuntimeImage {
    /// Loads an image from the bytes of its ELF file.
    ///
    /// # Errors
    /// When the file is not what it should be, or memory is short.
    pub fn load(file: &[u8]) -> Result<RuntimeImage> {
        let build = match std::ptr::eq(file, EMBEDDED) {
            true => EMBEDDED_BUILD,
            false => xxh3_64(file),
        };
        let mut words = Vec::new();
        let mut file = match file.as_ptr().align_offset(align_of::<Aligned<()>>()) {
            0 => file,
            _ => copied(file, &mut words),
        };
        let plan = Plan::of(file).map_err(bad)?;
        let mut relocated = Vec::new();
        if !plan.is_empty() {
            plan.apply(copied(file, &mut relocated));
            file = &object::pod::bytes_of_slice(&relocated)[..file.len()];
        }
        let e = Endianness::Little;
        let header =
            elf::FileHeader64::<Endianness>::parse(file).map_err(|x| bad(x.to_string()))?;
        let programs = header
            .program_headers(e, file)
            .map_err(|x| bad(x.to_string()))?;
        let page = |n: u64| n & !4095;
        let mut size = 0;
        for p in programs.iter().filter(|p| p.p_type(e) == elf::PT_LOAD) {
            size = size.max(p.p_vaddr(e).saturating_add(p.p_memsz(e)));
        }
        let size = page(size.saturating_add(4095));
        if size == 0 || size > IMAGE_MAX {
            return Err(bad("impossible size"));
        }
        // What the file has of each segment, and where in the image that is.
        let mut parts: Vec<(usize, &[u8])> = Vec::new();
        let mut segments: Vec<Segment> = Vec::new();
        for p in programs.iter().filter(|p| p.p_type(e) == elf::PT_LOAD) {
            let data = p
                .data(e, file)
                .map_err(|()| bad("segment outside the file"))?;
            let at = p.p_vaddr(e) as usize;
            if (at + data.len()) as u64 > size {
                return Err(bad("segment outside the image"));
            }
            parts.push((at, data));
            if p.p_memsz(e) == 0 {
                continue;
            }
            let first = page(p.p_vaddr(e));
            let end = page(p.p_vaddr(e) + p.p_memsz(e) + 4095);
            let f = p.p_flags(e);
            let mut prot = 0;
            for (bit, means) in [
                (elf::PF_R, libc::PROT_READ),
                (elf::PF_W, libc::PROT_WRITE),
                (elf::PF_X, libc::PROT_EXEC),
            ] {
                if f & bit != 0 {
                    prot |= means;
                }
            }
            match segments.last_mut() {
                Some(last) if last.offset > first => return Err(bad("segments out of order")),
                // Two segments in one page: the later one's protection must do for both.
                Some(last) if last.offset + last.len > first => {
                    last.len = last.len.max(end - last.offset);
                    last.prot |= prot;
                }
                _ => segments.push(Segment {
                    offset: first,
                    len: end - first,
                    prot,
                }),
            }
        }
        let symbols = symbols(header, file);
        let symbol = |name: &str| {
            let found = symbols.get(name.as_bytes()).copied();
            found.ok_or_else(|| bad(format!("no symbol {name}")))
        };
        // Behind it, in the same file, the vDSO.
        let vdso_at = size;
        let place = |name| symbol(name).ok().map(|at| IMAGE_BASE + at);
        let order = || {
            Some(OfOrder {
                leaves: [
                    place("rt_hooked_ret")?,
                    place("rt_locked_enter_leaves")?,
                    place("rt_locked_wake_leaves")?,
                    place("rt_locked_value_leaves")?,
                    place("rt_thread_local_found")?,
                    place("rt_thread_local_goes_on")?,
                    place("rt_thread_local_ends")?,
                ],
                beside: place("rt_beside")?,
            })
        };
        let order = order();
        let landmarks = || {
            Some(Landmarks {
                order,
                breakpoints_out: place("rt_breakpoints_out")?,
                breakpoints_in: place("rt_breakpoints_in")?,
                leaves: [
                    place("rt_leaves")?,
                    place("rt_leaves_with_flags")?,
                    place("rt_leaves_handler")?,
                ],
                engine: place("rt_engine"),
            })
        };
        let landmarks = landmarks();
        let (start, start_replay) = (symbol("rt_start")?, symbol("rt_start_replay")?);
        let start_attached = place("rt_start_attached").unwrap_or(0);
        let fd = memfd_create(c"reprise-runtime", MemfdFlags::CLOEXEC)
            .map_err(os_as("make memory for the runtime"))?;
        let f = std::fs::File::from(fd);
        // Where nothing is written there are zeros, which take no memory before they are changed.
        let mut parts = parts.iter();
        let written = parts.try_for_each(|(at, data)| f.write_all_at(data, *at as u64));
        let written = written.and_then(|()| f.write_all_at(&vdso::image(), vdso_at));
        written.map_err(|source| LaunchError::Os {
            what: "load the runtime".into(),
            source,
        })?;
        Ok(RuntimeImage {
            fd: f.into(),
            segments,
            vdso: vdso_at,
            start: IMAGE_BASE + start,
            start_replay: IMAGE_BASE + start_replay,
            start_attached,
            build,
            landmarks,
        })
    }

    /// The memfd that holds the image.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for RuntimeImage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A copy that is aligned as the parser wants it.
fn copied<'a>(file: &[u8], words: &'a mut Vec<u64>) -> &'a mut [u8] {
    words.resize(file.len().div_ceil(8), 0);
    let aligned = &mut object::pod::bytes_of_slice_mut(words)[..file.len()];
    aligned.copy_from_slice(file);
    aligned
}

/// The addresses of the symbols that are meant for a loader.
fn symbols<'f>(header: &elf::FileHeader64<Endianness>, file: &'f [u8]) -> HashMap<&'f [u8], u64> {
    use object::read::elf::Sym;
    let e = Endianness::Little;
    let sections = header.sections(e, file);
    let Ok(table) = sections.and_then(|s| s.symbols(e, file, elf::SHT_SYMTAB)) else {
        return HashMap::new();
    };
    let named = table.iter().filter_map(|s| {
        let name = s.name(e, table.strings()).ok()?;
        name.starts_with(b"rt_").then_some((name, s.st_value(e)))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_runtime_loads() {
        let r = RuntimeImage::load(EMBEDDED).expect("loads");
        assert!(r.start > IMAGE_BASE && r.start_replay > r.start);
        assert!(r
            .landmarks
            .is_some_and(|l| l.engine.is_some() && l.order.is_some()));
        let text = r
            .segments
            .iter()
            .find(|s| s.prot & libc::PROT_EXEC != 0)
            .expect("text");
        assert_eq!(text.prot & libc::PROT_WRITE, 0, "text is not writable");
        assert!((text.offset..text.offset + text.len).contains(&(r.start - IMAGE_BASE)));
    }

    #[test]
    fn the_embedded_runtime_is_named_by_its_bytes() {
        let name = xxhash_rust::xxh3::xxh3_128(EMBEDDED);
        assert_eq!(EMBEDDED_NAME, format!("{name:032x}"));
        let elsewhere: Vec<u8> = EMBEDDED.into();
        let copy = RuntimeImage::load(&elsewhere).expect("loads");
        let own = RuntimeImage::load(EMBEDDED).expect("loads");
        assert_eq!(own.build, copy.build);
    }

    /// All that is loaded of it.
    fn memory(image: &RuntimeImage) -> Vec<u8> {
        let last = image.segments.last().expect("segments");
        let mut all = vec![0; (last.offset + last.len) as usize];
        let memory = std::fs::File::from(image.as_fd().try_clone_to_owned().expect("memory"));
        memory.read_exact_at(&mut all, 0).expect("its memory");
        all
    }

    /// The embedded one has its relocations behind it, and their table still: with that in force again, and the words as linkers leave them, it is an image
    /// as traces have it that were made before.
    #[test]
    fn what_is_not_relocated_is_when_it_is_loaded() {
        use object::read::elf::{Dyn, SectionHeader};
        let e = Endianness::Little;
        let mut words = Vec::new();
        let file = copied(EMBEDDED, &mut words);
        let header = elf::FileHeader64::<Endianness>::parse(&*file).expect("ELF");
        let programs = header.program_headers(e, &*file).expect("segments");
        let dynamic = programs.iter().find(|p| p.p_type(e) == elf::PT_DYNAMIC);
        let dynamic = dynamic.expect("a dynamic section");
        let entries = dynamic.dynamic(e, &*file).expect("ELF").expect("entries");
        let size = entries
            .iter()
            .position(|d| d.d_tag(e) as u32 == elf::DT_RELASZ);
        let size_at = dynamic.p_offset(e) as usize + 16 * size.expect("a size") + 8;
        let sections = header.sections(e, &*file).expect("sections");
        let table = sections.iter().find(|s| s.sh_type(e) == elf::SHT_RELA);
        let table = table.expect("relocations").sh_size(e);
        file[size_at..size_at + 8].copy_from_slice(&table.to_le_bytes());
        let plan = Plan::of(file).expect("a plan");
        assert!(!plan.is_empty());
        plan.blank(file);
        let embedded = RuntimeImage::load(EMBEDDED).expect("loads");
        let relocated = RuntimeImage::load(file).expect("loads");
        assert!(memory(&embedded) == memory(&relocated), "another image");
        // What isn't in the image is refused.
        file[size_at..size_at + 8].copy_from_slice(&(table + 24 * 100_000).to_le_bytes());
        assert!(RuntimeImage::load(file).is_err());
    }

    #[test]
    fn damaged_images_are_refused() {
        assert!(RuntimeImage::load(&[]).is_err());
        assert!(RuntimeImage::load(&EMBEDDED[..1000]).is_err());
    }

    /// Offsets of the headers of segments that are loaded.
    fn loaded(file: &[u8]) -> Vec<usize> {
        let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().expect("a word"));
        let all = (0..(word(56) & 0xffff) as usize).map(|i| word(32) as usize + 56 * i);
        all.filter(|h| word(*h) as u32 == elf::PT_LOAD).collect()
    }

    #[test]
    fn segments_lie_one_behind_the_other() {
        let mut file = EMBEDDED.to_vec();
        let headers = loaded(&file);
        let (first, last) = (headers[0], headers[headers.len() - 1]);
        for at in 0..56 {
            file.swap(first + at, last + at);
        }
        let refused = RuntimeImage::load(&file).err().map(|e| e.to_string());
        assert!(refused.is_some_and(|why| why.contains("out of order")));
    }

    #[test]
    fn a_segment_without_bytes_is_none() {
        let mut file = EMBEDDED.to_vec();
        let headers = loaded(&file);
        let all = RuntimeImage::load(&file).expect("loads").segments.len();
        // Its length in memory.
        file[headers[0] + 40..headers[0] + 48].fill(0);
        let image = RuntimeImage::load(&file).expect("loads");
        assert_eq!(image.segments.len(), all - 1);
        assert!(image.segments.iter().all(|s| s.len > 0));
    }
}
