//! The runtime's image: an ELF file for `x86_64-unknown-none`, loaded and relocated here, so that the process only has to map it.

use crate::error::{os_as, LaunchError, Result};
use crate::vdso;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela};
use object::Endianness;
use reprise_abi::layout::{IMAGE_BASE, IMAGE_MAX};
use rustix::fs::{memfd_create, MemfdFlags};
use std::borrow::Cow;
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
        let file = match file.as_ptr().align_offset(align_of::<Aligned<()>>()) {
            0 => file,
            _ => {
                words.resize(file.len().div_ceil(8), 0u64);
                let aligned = object::pod::bytes_of_slice_mut(&mut words);
                aligned[..file.len()].copy_from_slice(file);
                &aligned[..file.len()]
            }
        };
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
        let mut parts = Vec::new();
        let mut segments: Vec<Segment> = Vec::new();
        for p in programs.iter().filter(|p| p.p_type(e) == elf::PT_LOAD) {
            let data = p
                .data(e, file)
                .map_err(|()| bad("segment outside the file"))?;
            let at = p.p_vaddr(e) as usize;
            if (at + data.len()) as u64 > size {
                return Err(bad("segment outside the image"));
            }
            parts.push(Part {
                at,
                data: Cow::Borrowed(data),
            });
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
        relocate(header, file, &mut parts)?;
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
        let written = parts.try_for_each(|p| f.write_all_at(&p.data, p.at as u64));
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

/// What the file has of a segment.
struct Part<'a> {
    /// Offset in the image.
    at: usize,
    data: Cow<'a, [u8]>,
}

/// The part that has these bytes, and where in it they are.
fn part_with<'a, 'f>(
    parts: &'a mut [Part<'f>],
    at: usize,
    len: usize,
) -> Option<(&'a mut Cow<'f, [u8]>, std::ops::Range<usize>)> {
    parts.iter_mut().find_map(|p| {
        let from = at.checked_sub(p.at)?;
        let end = from.checked_add(len).filter(|end| *end <= p.data.len())?;
        Some((&mut p.data, from..end))
    })
}

fn relocate(
    header: &elf::FileHeader64<Endianness>,
    file: &[u8],
    parts: &mut [Part<'_>],
) -> Result<()> {
    let e = Endianness::Little;
    let programs = header
        .program_headers(e, file)
        .map_err(|x| bad(x.to_string()))?;
    let (mut rela, mut size) = (0u64, 0u64);
    for p in programs {
        if let Some(list) = p.dynamic(e, file).map_err(|x| bad(x.to_string()))? {
            for d in list {
                match d.d_tag(e) as u32 {
                    elf::DT_RELA => rela = d.d_val(e),
                    elf::DT_RELASZ => size = d.d_val(e),
                    _ => {}
                }
            }
        }
    }
    let (data, table) = part_with(parts, rela as usize, size as usize)
        .ok_or_else(|| bad("relocations outside the image"))?;
    let table = data[table].to_vec();
    for r in table.chunks_exact(std::mem::size_of::<elf::Rela64<Endianness>>()) {
        let (r, _) = object::pod::from_bytes::<elf::Rela64<Endianness>>(r)
            .map_err(|()| bad("relocation"))?;
        if Rela::r_type(r, e, false) != elf::R_X86_64_RELATIVE {
            return Err(bad("a relocation that isn't relative"));
        }
        let value = IMAGE_BASE.wrapping_add(Rela::r_addend(r, e) as u64);
        let (data, word) = part_with(parts, Rela::r_offset(r, e) as usize, 8)
            .ok_or_else(|| bad("relocation outside the image"))?;
        data.to_mut()[word].copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
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
