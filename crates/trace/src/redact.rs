//! A copy of a trace in which some values are not to be read any more: passwords, tokens, names.
//!
//! Each place where such a value stands gets as many `X`: in the manifest and the summary, in the images of memory, in what events hold, and in the
//! contents of files, which get the names of their new hashes, also where they are referred to. Nothing changes its length or its place, so a
//! replay goes the same way as long as the program does not look at the values. Hashes of all memory are left out, since none would fit.
//!
//! A value is found where its bytes stand one behind the other: in one mapping of memory, in one part of an event (what one call read into one
//! place), in one file. Not found is one that was read in pieces, or that was encoded. The runtime is Reprise's own and is left as it is, and so are
//! single words that events tell: registers, arguments, and what threads loaded under `order`.

use crate::error::Context;
use crate::hash::each_block;
use crate::{
    image_name, image_number, ByteString, ContentHash, ImageReader, ImageSet, ImageWriter, Images,
    Inputs, Manifest, Reader, Result, Summary, Tail, TraceError, Writer, BEGINNING_FILE, FILES_DIR,
};
use memchr::memmem::Finder;
use reprise_abi::event::{Event, Kind, Tag, HEADER_LEN, SECTION_LEN};
use reprise_abi::layout::PAGE;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// Least bytes of a value: shorter ones stand everywhere by chance.
pub const LEAST: usize = 4;
/// What stands in the place of each byte.
const FILL: u8 = b'X';
/// Most bytes of a variable of the environment (the kernel's limit is 128 KiB).
const MAX_VARIABLE: u64 = 256 << 10;
/// Most variables.
const MAX_VARIABLES: u64 = 1 << 20;

/// What was taken out of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Redaction {
    /// How many values.
    pub values: u64,
    /// How many places had one of them.
    pub places: u64,
}

/// The values that are taken out.
pub struct Values {
    finders: Vec<Finder<'static>>,
    longest: usize,
}

impl Values {
    /// These.
    ///
    /// # Errors
    /// [`TraceError::Redaction`] when one is shorter than [`LEAST`], or nothing but what would stand in its place.
    pub fn new(mut values: Vec<Vec<u8>>) -> Result<Values> {
        values.sort();
        values.dedup();
        for value in &values {
            if value.len() < LEAST {
                return Err(TraceError::Redaction(format!(
                    "a value has fewer than {LEAST} bytes, which stand in many places by chance"
                )));
            }
            if value.iter().all(|b| *b == FILL) {
                return Err(TraceError::Redaction(
                    "a value is nothing but X, as it would be afterwards".into(),
                ));
            }
        }
        Ok(Values {
            longest: values.iter().map(Vec::len).max().unwrap_or(0),
            finders: values
                .iter()
                .map(|v| Finder::new(v.as_slice()).into_owned())
                .collect(),
        })
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.finders.len()
    }

    /// Calls `found` with the beginning and the length of each place that ends behind `searched`.
    fn each(&self, bytes: &[u8], searched: usize, mut found: impl FnMut(usize, usize)) {
        for finder in &self.finders {
            let len = finder.needle().len();
            let mut at = (searched + 1).saturating_sub(len);
            // Places may overlap.
            while let Some(n) = bytes.get(at..).and_then(|rest| finder.find(rest)) {
                found(at + n, len);
                at += n + 1;
            }
        }
    }

    /// Takes them out of some bytes; returns how many places there were.
    fn take_out(&self, bytes: &mut [u8]) -> u64 {
        let mut places = Vec::new();
        self.each(bytes, 0, |at, len| places.push(at..at + len));
        // First all are found: one may be a part of another.
        for place in &places {
            bytes[place.clone()].fill(FILL);
        }
        places.len() as u64
    }

    fn take_out_of(&self, text: &mut ByteString) -> u64 {
        self.take_out(&mut text.0)
    }

    fn take_out_of_string(&self, text: &mut String) -> u64 {
        let mut bytes = std::mem::take(text).into_bytes();
        let places = self.take_out(&mut bytes);
        *text = String::from_utf8_lossy(&bytes).into_owned();
        places
    }
}

/// Bytes that come piece by piece, and go on without the values, in whole pages but for the end.
struct Stretch<'v> {
    values: &'v Values,
    start: u64,
    bytes: Vec<u8>,
    /// The bytes that are of a value.
    marked: Vec<bool>,
    searched: usize,
    places: u64,
}

impl<'v> Stretch<'v> {
    fn new(values: &'v Values) -> Stretch<'v> {
        Stretch {
            values,
            start: 0,
            bytes: Vec::new(),
            marked: Vec::new(),
            searched: 0,
            places: 0,
        }
    }

    fn add(
        &mut self,
        at: u64,
        piece: &[u8],
        out: &mut impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if at != self.start + self.bytes.len() as u64 {
            self.end(out)?;
            self.start = at;
        }
        self.bytes.extend_from_slice(piece);
        self.marked.resize(self.bytes.len(), false);
        let (marked, places) = (&mut self.marked, &mut self.places);
        self.values.each(&self.bytes, self.searched, |at, len| {
            marked[at..at + len].fill(true);
            *places += 1;
        });
        self.searched = self.bytes.len();
        // The beginning of a value may be at the end.
        let whole = self.bytes.len().saturating_sub(self.values.longest);
        self.pass_on(whole / PAGE as usize * PAGE as usize, out)
    }

    fn end(&mut self, out: &mut impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.pass_on(self.bytes.len(), out)
    }

    fn pass_on(
        &mut self,
        len: usize,
        out: &mut impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        for (byte, _) in self
            .bytes
            .iter_mut()
            .zip(&self.marked[..len])
            .filter(|(_, marked)| **marked)
        {
            *byte = FILL;
        }
        out(self.start, &self.bytes[..len])?;
        self.bytes.drain(..len);
        self.marked.drain(..len);
        self.start += len as u64;
        self.searched -= len;
        Ok(())
    }
}

/// The environments of the programs of the trace in `dir`, as they began: each variable's name and value.
///
/// # Errors
/// When an image is damaged.
pub fn environments(dir: &Path) -> Result<Vec<(ByteString, Vec<u8>)>> {
    let manifest = Manifest::read(dir)?;
    let mut all = Vec::new();
    let mut set = ImageSet::new(dir);
    for n in set.numbers()? {
        let mut image = set.image(n)?;
        let start = match n {
            0 => &manifest.start,
            _ => match image.start() {
                Some(start) => start,
                None => continue,
            },
        };
        // A process that was running already has no beginning.
        if start.attached == 0 {
            let stack = start.initial_sp;
            environment(&mut image, stack, &mut all)?;
        }
    }
    Ok(all)
}

/// The environment of a program that begins with this stack.
fn environment(
    image: &mut ImageReader,
    stack: u64,
    all: &mut Vec<(ByteString, Vec<u8>)>,
) -> Result<()> {
    let Some(arguments) = word(image, stack)? else {
        return Ok(());
    };
    let mut at = stack.saturating_add(8 * arguments.min(MAX_VARIABLES) + 16);
    for _ in 0..MAX_VARIABLES {
        let Some(address) = word(image, at)?.filter(|a| *a != 0) else {
            break;
        };
        let text = string(image, address)?;
        if let Some(equals) = text.iter().position(|b| *b == b'=') {
            all.push((
                ByteString(text[..equals].to_vec()),
                text[equals + 1..].to_vec(),
            ));
        }
        at += 8;
    }
    Ok(())
}

fn word(image: &mut ImageReader, address: u64) -> Result<Option<u64>> {
    let mut bytes = [0; 8];
    Ok(memory(image, address, &mut bytes)?.then(|| u64::from_le_bytes(bytes)))
}

/// The text there, up to its zero.
fn string(image: &mut ImageReader, address: u64) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    while (text.len() as u64) < MAX_VARIABLE {
        let at = address.saturating_add(text.len() as u64);
        let mut piece = vec![0; (PAGE - at % PAGE) as usize];
        if !memory(image, at, &mut piece)? {
            break;
        }
        if let Some(end) = piece.iter().position(|b| *b == 0) {
            text.extend_from_slice(&piece[..end]);
            break;
        }
        text.append(&mut piece);
    }
    Ok(text)
}

/// Reads memory that is stored in the image; false where there is none.
fn memory(image: &mut ImageReader, address: u64, out: &mut [u8]) -> Result<bool> {
    let regions = &image.image().regions;
    let runs = regions.iter().flat_map(|r| r.content.runs());
    let inside = |r: &&crate::Run| {
        address >= r.address
            && address
                .checked_add(out.len() as u64)
                .is_some_and(|end| end <= r.address + r.len)
    };
    let Some(run) = runs.copied().find(|r| inside(&r)) else {
        return Ok(false);
    };
    image.read_blob(run.blob_offset + (address - run.address), out)?;
    Ok(true)
}

/// Makes a copy of the trace in `dir`, without these values, in the new or empty directory `into`.
///
/// # Errors
/// [`TraceError::Redaction`] for a trace of which only the last stretch was kept, and for one that is damaged.
pub fn redact(dir: &Path, values: &Values, into: &Path) -> Result<Redaction> {
    if dir.join(BEGINNING_FILE).exists() {
        return Err(TraceError::Redaction(
            "of a run of which only the last stretch was kept nothing can be taken out".into(),
        ));
    }
    let mut manifest = Manifest::read(dir)?;
    let (renamed, mut places) = contents(dir, values, manifest.runtime_hash, into)?;
    places += images(dir, values, &renamed, into)?;
    let (stats, found) = events(dir, values, &renamed, into)?;
    places += found;
    if let Some(mut summary) = Summary::read(dir)? {
        let counted = Summary::of_stream(&stats);
        summary.events = counted.events;
        summary.bytes_raw = counted.bytes_raw;
        summary.bytes_compressed = counted.bytes_compressed;
        summary.events_by_kind = counted.events_by_kind;
        summary.inputs.clear();
        let texts = summary.warnings.iter_mut().chain(&mut summary.native_cpuid);
        let texts = texts.chain([&mut summary.end_reason]);
        let others = summary
            .uncaptured
            .iter_mut()
            .flat_map(|u| u.name.iter_mut().chain([&mut u.why]));
        places += texts
            .chain(others)
            .map(|text| values.take_out_of_string(text))
            .sum::<u64>();
        summary.write(into)?;
    }
    let texts = manifest.argv.iter_mut().chain(&mut manifest.env);
    let texts = texts.chain([&mut manifest.cwd, &mut manifest.exe]);
    places += texts.map(|text| values.take_out_of(text)).sum::<u64>();
    let names = manifest.learned.iter_mut().map(|l| &mut l.name);
    places += names
        .map(|name| values.take_out_of_string(name))
        .sum::<u64>();
    let redaction = Redaction {
        values: values.count() as u64,
        places,
    };
    let before = manifest.redacted.unwrap_or_default();
    manifest.redacted = Some(Redaction {
        values: before.values + redaction.values,
        places: before.places + redaction.places,
    });
    manifest.write(into)?;
    Ok(redaction)
}

type Renamed = HashMap<ContentHash, ContentHash>;

/// The contents; those that are changed have new names.
fn contents(
    dir: &Path,
    values: &Values,
    runtime: ContentHash,
    into: &Path,
) -> Result<(Renamed, u64)> {
    let (mut renamed, mut places) = (Renamed::new(), 0);
    let (files, target) = (dir.join(FILES_DIR), into.join(FILES_DIR));
    DirBuilder::new()
        .mode(0o700)
        .create(&target)
        .context("create", &target)?;
    let entries = match std::fs::read_dir(&files) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((renamed, 0)),
        other => other.context("read", &files)?,
    };
    for entry in entries {
        let entry = entry.context("read", &files)?;
        let name = entry.file_name();
        let Some(hash) = name.to_str().and_then(ContentHash::from_hex) else {
            continue;
        };
        let path = entry.path();
        let file =
            crate::opened::open(dir, Path::new(FILES_DIR).join(&name)).context("open", &path)?;
        let found = match hash == runtime {
            true => 0,
            false => file_without(&file, &path, values, &mut |_, _| Ok(()))?,
        };
        let copy = target.join(&name);
        if found == 0 {
            if std::fs::hard_link(&path, &copy).is_err() {
                std::fs::copy(&path, &copy).context("copy", &path)?;
            }
            continue;
        }
        places += found;
        let new = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&copy)
            .context("create", &copy)?;
        let len = file.metadata().context("read", &path)?.len();
        new.set_len(len).context("write", &copy)?;
        file_without(&file, &path, values, &mut |at, bytes| {
            new.write_all_at(bytes, at).context("write", &copy)
        })?;
        let (other, _) = ContentHash::of_file(&new).context("read", &copy)?;
        let named = target.join(other.to_hex());
        std::fs::rename(&copy, &named).context("write", &named)?;
        renamed.insert(hash, other);
    }
    Ok((renamed, places))
}

/// Hands on what is in a file, without the values; how many places there were.
fn file_without(
    file: &File,
    path: &Path,
    values: &Values,
    out: &mut impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let (mut stretch, mut failed) = (Stretch::new(values), None);
    let read = each_block(file, true, |at, bytes| {
        if failed.is_none() {
            failed = stretch.add(at, bytes, out).err();
        }
        Ok(())
    });
    read.context("read", path)?;
    if let Some(e) = failed {
        return Err(e);
    }
    stretch.end(out)?;
    Ok(stretch.places)
}

/// All images.
fn images(dir: &Path, values: &Values, renamed: &Renamed, into: &Path) -> Result<u64> {
    let mut places = 0;
    let mut set = ImageSet::new(dir);
    let mut together = Images::new(into);
    for n in set.numbers()? {
        let mut image = set.image(n)?;
        if n > 0 && set.are_together() {
            let mut writer = together.begin(n)?;
            places += one_image(&mut image, values, renamed, &mut writer)?;
            together.end(writer)?;
        } else {
            let mut writer = ImageWriter::create_named(into, &image_name(n))?;
            places += one_image(&mut image, values, renamed, &mut writer)?;
            writer.finish()?;
        }
    }
    Ok(places)
}

fn one_image(
    image: &mut ImageReader,
    values: &Values,
    renamed: &Renamed,
    writer: &mut ImageWriter,
) -> Result<u64> {
    use crate::Content;
    let mut places = 0;
    if let Some(start) = image.start() {
        writer.start(start.clone());
    }
    for i in 0..image.image().regions.len() {
        let mut region = image.image().regions[i].clone();
        places += values.take_out_of(&mut region.name);
        match &mut region.content {
            Content::Zero => {}
            Content::Bytes { runs } => runs.clear(),
            Content::File { hash, runs, .. } => {
                *hash = renamed.get(hash).copied().unwrap_or(*hash);
                runs.clear();
            }
        }
        writer.region(region)?;
        let mut stretch = Stretch::new(values);
        let mut out = |at: u64, bytes: &[u8]| writer.bytes(at, bytes);
        image.read_region(i, |at, bytes| stretch.add(at, bytes, &mut out))?;
        stretch.end(&mut out)?;
        places += stretch.places;
    }
    Ok(places)
}

/// All events but hashes of memory.
fn events(
    dir: &Path,
    values: &Values,
    renamed: &Renamed,
    into: &Path,
) -> Result<(crate::StreamStats, u64)> {
    let mut places = 0;
    let mut reader = Reader::open(dir)?;
    if matches!(reader.tail(), Tail::Damaged { .. }) {
        return Err(TraceError::Redaction(
            "the events of this trace are damaged".into(),
        ));
    }
    let mut writer = Writer::create(into)?;
    // What was read of files is in the events of the copy: what is taken out of it would not fit the hashes.
    let mut inputs = Inputs::of(dir);
    let mut mapped = BTreeSet::new();
    while let Some(event) = reader.next()? {
        let parsed = event.parse()?;
        if parsed.kind == Kind::Hash {
            continue;
        }
        mapped.extend(crate::inputs::mapped(&parsed).map(|r| r.file()));
        let expanded = inputs.expand(&parsed, u64::MAX)?;
        let mut bytes = expanded.unwrap_or_else(|| event.bytes.to_vec());
        let parsed = Event::parse(&bytes);
        let places_of = parsed.map(|e| sections(&e));
        let places_of = places_of.map_err(|_| TraceError::BadEvent("what it refers to"))?;
        for (tag, place) in places_of {
            let section = &mut bytes[place];
            match tag {
                Tag::Entries => {}
                Tag::File => {
                    let new = <[u8; 16]>::try_from(&*section).ok();
                    if let Some(new) = new.and_then(|h| renamed.get(&ContentHash(h))) {
                        section.copy_from_slice(&new.0);
                    }
                }
                _ => places += values.take_out(section),
            }
        }
        writer.push(&bytes)?;
    }
    for number in mapped {
        places += input(dir, values, number, into)?;
    }
    Ok((writer.finish()?, places))
}

/// A copy that mappings show. It keeps its number: there is no hash of it.
fn input(dir: &Path, values: &Values, number: u64, into: &Path) -> Result<u64> {
    let name = Path::new(FILES_DIR).join(crate::inputs::name(number));
    let (path, copy) = (dir.join(&name), into.join(&name));
    let file = crate::opened::open(dir, &name).context("open", &path)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let new = options.open(&copy).context("create", &copy)?;
    let len = file.metadata().context("read", &path)?.len();
    new.set_len(len).context("write", &copy)?;
    file_without(&file, &path, values, &mut |at, bytes| {
        new.write_all_at(bytes, at).context("write", &copy)
    })
}

/// Where in an event its sections have their bytes.
fn sections(event: &Event) -> Vec<(Tag, std::ops::Range<usize>)> {
    let mut at = HEADER_LEN + 8 * event.header.nargs as usize;
    let place = |section: reprise_abi::event::Section| {
        let from = at + SECTION_LEN;
        at = from + section.bytes.len().next_multiple_of(8);
        (section.tag, from..from + section.bytes.len())
    };
    event.sections().map(place).collect()
}

/// The number of images in files of their own.
pub(crate) fn own_images(dir: &Path) -> Result<Vec<u64>> {
    let mut numbers: Vec<u64> = std::fs::read_dir(dir)
        .context("read", dir)?
        .flatten()
        .filter_map(|e| image_number(e.file_name().to_str()?))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(list: &[&str]) -> Values {
        Values::new(list.iter().map(|v| v.as_bytes().to_vec()).collect()).unwrap()
    }

    #[test]
    fn values_that_overlap_are_taken_out_whole() {
        let v = values(&["abcdef", "efgh", "cdef", "abab"]);
        let mut bytes = b"-abcdefgh-ababab-abcde-".to_vec();
        assert_eq!(v.take_out(&mut bytes), 5);
        assert_eq!(bytes, b"-XXXXXXXX-XXXXXX-abcde-");
        assert!(Values::new(vec![b"abc".to_vec()]).is_err());
        assert!(Values::new(vec![b"XXXXX".to_vec()]).is_err());
    }

    #[test]
    fn a_value_is_found_across_pieces_of_any_size() {
        let v = values(&["secret", "retire"]);
        let mut whole = vec![b'.'; 5 * PAGE as usize + 123];
        for at in [0, 4090, 4094, 8190, 12000, 5 * PAGE as usize + 115] {
            whole[at..at + 8].copy_from_slice(b"secretir");
        }
        whole[12008] = b'e';
        let mut expected = whole.clone();
        let places = v.take_out(&mut expected);
        for size in [1, 7, 4096, 5000, whole.len()] {
            let (mut stretch, mut got) = (Stretch::new(&v), Vec::new());
            let mut out = |at: u64, bytes: &[u8]| {
                assert_eq!(at, 64 + got.len() as u64);
                got.extend_from_slice(bytes);
                Ok(())
            };
            for (i, piece) in whole.chunks(size).enumerate() {
                let at = 64 + (i * size) as u64;
                stretch.add(at, piece, &mut out).unwrap();
            }
            stretch.end(&mut out).unwrap();
            assert_eq!(stretch.places, places, "{size}");
            assert!(got == expected, "{size}");
        }
    }
}
