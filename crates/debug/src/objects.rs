//! What the dynamic linker has loaded, as it tells debuggers: the program and its libraries, by the list that `r_debug` begins (link.h), and
//! their files in the trace.

use crate::debuggee::Debuggee;
use crate::files::normal;
use object::{Object, ObjectSymbol, ReadCache};
use reprise_trace::{opened, FILES_DIR};
use std::fmt::Write;
use std::fs::File;
use std::path::Path;

/// Something that is loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Loaded {
    /// Address of its `link_map`.
    pub link_map: u64,
    /// What is added to addresses of its file.
    pub bias: u64,
    /// Its dynamic section.
    pub dynamic: u64,
    /// Address of its namespace's `r_debug`.
    pub namespace: u64,
    /// The file's name in the recording; empty for the program itself.
    pub name: Vec<u8>,
}

/// Most that are listed, ...
const MOST: usize = 1 << 16;
/// ... of at most so many namespaces (dlmopen).
const MOST_NAMESPACES: usize = 64;
/// Longest name of a library (PATH_MAX).
const LONGEST_NAME: usize = 4096;

/// Entries of the auxiliary vector and the dynamic section, and kinds of program headers (elf.h).
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const PT_TLS: u32 = 7;
const DT_DEBUG: u64 = 21;
/// Size of the header of a file, ...
const FILE_HEADER: u64 = 64;
/// ... and of a program header.
const HEADER: u64 = 56;
/// Most program headers and entries of a dynamic section that are looked at.
const MOST_ENTRIES: u64 = 1024;

/// A program header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    kind: u32,
    /// Its offset in the file.
    offset: u64,
    /// Its address in the file, ...
    pub at: u64,
    /// ... its length in memory, ...
    pub len: u64,
    /// ... and its alignment.
    pub align: u64,
}

impl Debuggee {
    pub(crate) fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The program's own headers, and what is added to their addresses.
    fn program_headers(&self) -> Option<(Vec<Header>, u64)> {
        let vector = self.auxiliary_vector().ok()?;
        let of = |kind: u64| {
            let mut pairs = vector.chunks_exact(16);
            pairs.find_map(|pair| {
                let word =
                    |i: usize| Some(u64::from_le_bytes(pair.get(i..i + 8)?.try_into().ok()?));
                (word(0)? == kind).then(|| word(8))?
            })
        };
        let (at, count) = (of(AT_PHDR)?, of(AT_PHNUM)?.min(MOST_ENTRIES));
        let headers: Option<Vec<Header>> = (0..count)
            .map(|i| {
                let from = at + i * HEADER;
                Some(Header {
                    kind: self.word(from)? as u32,
                    offset: self.word(from + 8)?,
                    at: self.word(from + 16)?,
                    len: self.word(from + 40)?,
                    align: self.word(from + 48)?,
                })
            })
            .collect();
        let headers = headers?;
        let own = headers.iter().find(|h| h.kind == PT_PHDR);
        // Programs without an interpreter don't tell: their headers are behind the file's own, at its beginning.
        let first = headers.iter().find(|h| h.kind == PT_LOAD && h.offset == 0);
        let bias = match (own, first) {
            (Some(own), _) => at.wrapping_sub(own.at),
            (None, Some(first)) => at.wrapping_sub(first.at + FILE_HEADER),
            (None, None) => 0,
        };
        Some((headers, bias))
    }

    /// The program's own thread-local variables, as their first values lie in its file.
    pub(crate) fn thread_locals(&self) -> Option<Header> {
        let (headers, _) = self.program_headers()?;
        headers.into_iter().find(|h| h.kind == PT_TLS)
    }

    /// Where the dynamic linker tells of what it has loaded; `None` before it does, and in static programs.
    fn linker_tells(&self) -> Option<u64> {
        let (headers, bias) = self.program_headers()?;
        let dynamic = headers.iter().find(|h| h.kind == PT_DYNAMIC)?;
        let from = bias.wrapping_add(dynamic.at);
        let entries = (0..MOST_ENTRIES).map(|i| from + 16 * i);
        for entry in entries {
            match self.word(entry)? {
                0 => return None,
                DT_DEBUG => return self.word(entry + 8).filter(|at| *at != 0),
                _ => {}
            }
        }
        None
    }

    /// Everything that is loaded, the program first, then its libraries in the order in which they were loaded, then other namespaces.
    pub(crate) fn loaded(&self) -> Vec<Loaded> {
        let mut all = Vec::new();
        let mut tells = self.linker_tells();
        let mappings = self.mappings().unwrap_or_default();
        for _ in 0..MOST_NAMESPACES {
            let Some(at) = tells else { break };
            let mut map = self.word(at + 8).unwrap_or(0);
            while map != 0 && all.len() < MOST {
                let Some([bias, name, dynamic, next]) = self.words_at(map) else {
                    break;
                };
                let name = match all.is_empty() {
                    true => Vec::new(),
                    false => self.name_of_loaded(name, dynamic, &mappings),
                };
                all.push(Loaded {
                    link_map: map,
                    bias,
                    dynamic,
                    namespace: at,
                    name,
                });
                map = next;
            }
            // Since version 2 (glibc 2.35) there are more lists than one.
            let version = self.word(at).unwrap_or(0) as u32;
            tells = match version {
                2.. => self.word(at + 40).filter(|at| *at != 0),
                _ => None,
            };
        }
        all
    }

    fn words_at<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        for (word, i) in words.iter_mut().zip(0..) {
            *word = self.word(at + 8 * i)?;
        }
        Some(words)
    }

    /// A library's name as the trace has it. The dynamic linker may know it by way of `..`, or from a directory in which the program was.
    fn name_of_loaded(&self, name: u64, dynamic: u64, mappings: &str) -> Vec<u8> {
        let mut bytes = vec![0; LONGEST_NAME];
        let n = self.read_some(name, &mut bytes).unwrap_or(0);
        bytes.truncate(n);
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(0);
        bytes.truncate(end);
        let cwd = &self.live.manifest().cwd.0;
        if let Some(plain) = normal(&bytes, cwd).filter(|_| bytes.starts_with(b"/")) {
            if self.kept(&plain).is_some() {
                return plain;
            }
        }
        let mapped = mappings.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            let holds = (number(start)?..number(end)?).contains(&dynamic);
            let from = rest.find('/').filter(|_| holds)?;
            normal(&rest.as_bytes()[from..], cwd)
        });
        // The kernel's own library is no file.
        mapped.unwrap_or_else(|| match bytes.contains(&b'/') {
            true => bytes,
            false => Vec::new(),
        })
    }

    /// The list as gdb wants it (qXfer:libraries-svr4:read).
    pub(crate) fn libraries_in_xml(&self) -> String {
        let all = self.loaded();
        let mut out = String::from("<library-list-svr4 version=\"1.0\"");
        let mut all = all.iter();
        if let Some(program) = all.next() {
            let _ = write!(out, " main-lm=\"{:#x}\"", program.link_map);
        }
        out.push('>');
        for one in all.filter(|l| !l.name.is_empty()) {
            let _ = write!(
                out,
                "<library name=\"{}\" lm=\"{:#x}\" l_addr=\"{:#x}\" l_ld=\"{:#x}\" lmid=\"{:#x}\"/>",
                escaped(&String::from_utf8_lossy(&one.name)),
                one.link_map,
                one.bias,
                one.dynamic,
                one.namespace
            );
        }
        out.push_str("</library-list-svr4>");
        out
    }

    /// Looks into the file of something that is loaded, as the trace has it.
    pub(crate) fn look_into<T>(
        &self,
        loaded: &Loaded,
        look: impl FnOnce(&object::File<'_, &ReadCache<File>>) -> Option<T>,
    ) -> Option<T> {
        let name = match loaded.name.is_empty() {
            true => self.executable(),
            false => loaded.name.clone(),
        };
        let kept = Path::new(FILES_DIR).join(self.kept(&name)?.to_string());
        let cache = ReadCache::new(opened::open(&self.dir, kept).ok()?);
        look(&object::File::parse(&cache).ok()?)
    }

    /// Has it thread-local variables?
    pub(crate) fn has_thread_locals(&self, loaded: &Loaded) -> bool {
        use object::read::elf::ProgramHeader;
        self.look_into(loaded, |file| match file {
            object::File::Elf64(elf) => {
                let headers = elf.elf_program_headers();
                let kinds = headers.iter().map(|h| h.p_type(elf.endian()));
                Some(kinds.into_iter().any(|kind| kind == PT_TLS))
            }
            _ => None,
        })
        .unwrap_or(false)
    }

    /// Functions with such names, in everything that is loaded.
    pub(crate) fn functions(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<u64> {
        let mut all = self.loaded();
        if all.is_empty() {
            // A static program.
            let bias = self.program_headers().map_or(0, |(_, bias)| bias);
            all.push(Loaded {
                link_map: 0,
                bias,
                dynamic: 0,
                namespace: 0,
                name: Vec::new(),
            });
        }
        let mut found: Vec<u64> = Vec::new();
        for one in &all {
            let of_it = self.look_into(one, |file| {
                let names = file.symbols().chain(file.dynamic_symbols());
                let functions =
                    names.filter(|s| s.is_definition() && s.name().is_ok_and(&is_wanted));
                Some(functions.map(|s| s.address()).collect::<Vec<u64>>())
            });
            found.extend(of_it.iter().flatten().map(|a| a.wrapping_add(one.bias)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The same of those that other modules may refer to, which no file goes without.
    pub(crate) fn dynamic_symbols<const N: usize>(
        &self,
        loaded: &Loaded,
        wanted: [&str; N],
    ) -> [Option<u64>; N] {
        self.look_into(loaded, |file| {
            let found = |wanted: &str| {
                let mut all = file.dynamic_symbols();
                let symbol = all.find(|s| s.is_definition() && s.name() == Ok(wanted))?;
                Some(symbol.address().wrapping_add(loaded.bias))
            };
            Some(wanted.map(found))
        })
        .unwrap_or([None; N])
    }

    /// Where symbols of these names are, as its file says.
    pub(crate) fn symbols<const N: usize>(
        &self,
        loaded: &Loaded,
        wanted: [&str; N],
    ) -> [Option<u64>; N] {
        self.look_into(loaded, |file| {
            let mut found = [None; N];
            for symbol in file.symbols().chain(file.dynamic_symbols()) {
                let Ok(name) = symbol.name() else { continue };
                let which = wanted.iter().position(|w| *w == name);
                if let Some(i) = which.filter(|_| symbol.is_definition()) {
                    found[i] = Some(symbol.address().wrapping_add(loaded.bias));
                }
            }
            Some(found)
        })
        .unwrap_or([None; N])
    }
}

/// Text within an attribute of XML.
fn escaped(text: &str) -> String {
    let pairs = [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
    ];
    pairs
        .iter()
        .fold(text.to_string(), |t, (c, e)| t.replace(*c, e))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_can_hold_anything() {
        assert_eq!(
            super::escaped("/a<b>&\"c\""),
            "/a&lt;b&gt;&amp;&quot;c&quot;"
        );
    }
}
