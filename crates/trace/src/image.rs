//! The initial memory image: what the program's address space was before its first instruction.
//!
//! The file `image` has the contents as a *blob*, cut into zstd frames of 1 MiB, then an index (regions, in JSON,
//! compressed), then a footer that says where the index is. Contents go through one block at a time, in either direction,
//! so that an image of many GB needs no memory. Pages of zeros are not stored. Everything is checked before it is believed:
//! a region of an image that was opened is page-aligned, in order, overlaps no other, and its runs lie inside it and inside the blob.

use crate::beginning::Moment;
use crate::codec::{Packer, Unpacker};
use crate::error::Context;
use crate::stream::{u32_at, u64_at};
use crate::{ByteString, ContentHash, Result, Start, TraceError, IMAGE_FILE, PARTS_VERSION};
use reprise_abi::layout::{PAGE, USER_END};
use reprise_abi::session::region_flags;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Raw bytes of a block of the blob; the last one may be shorter.
pub const BLOCK: u64 = 1 << 20;
/// Most bytes of an index, raw.
pub const MAX_INDEX: u64 = 128 << 20;
/// Most regions of an image (the kernel's own default limit of mappings is 65,530).
pub const MAX_REGIONS: usize = 1 << 20;
/// Most bytes of a blob.
pub const MAX_BLOB: u64 = 1 << 44;

const FIRST_MAGIC: u64 = u64::from_le_bytes(*b"RPRIMAGE");
const LAST_MAGIC: u64 = u64::from_le_bytes(*b"RPRIMEND");
/// Magic, version, 4 bytes of zero.
const HEAD_LEN: u64 = 16;
/// Where the index is, its packed and raw length, its hash, hash of these words, magic.
const FOOT_LEN: u64 = 40;

/// Name of the file of image `n` of a trace: 0 is the first program's. Those of the execs have files of their own only in older traces, see
/// [`crate::Images`].
pub fn image_name(n: u64) -> String {
    match n {
        0 => IMAGE_FILE.into(),
        n => format!("{IMAGE_FILE}.{n}"),
    }
}

/// Number of the image with this name, when it is one.
pub fn image_number(name: &str) -> Option<u64> {
    let n = name
        .strip_prefix(IMAGE_FILE)?
        .strip_prefix('.')?
        .parse()
        .ok()?;
    (n > 0 && n <= crate::MAX_IMAGES && image_name(n) == name).then_some(n)
}

/// All regions, in order of their addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Image {
    /// The regions.
    pub regions: Vec<Region>,
}

/// A mapping of the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// PROT_* bits of mmap(2).
    pub prot: u32,
    /// See [`region_flags`].
    pub flags: u32,
    /// What is in it.
    pub content: Content,
    /// Its name, as in /proc/self/maps.
    pub name: ByteString,
}

/// What is in a region.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Content {
    /// Zeros only.
    Zero,
    /// Zeros but for these runs.
    Bytes {
        /// In order of their addresses.
        runs: Vec<Run>,
    },
    /// A file, but for these runs (pages that the program or the loader changed).
    File {
        /// Its content, under `files/` in the trace.
        hash: ContentHash,
        /// Where in the file the region begins.
        file_offset: u64,
        /// In order of their addresses.
        runs: Vec<Run>,
    },
}

/// Pages that lie together both in memory and in the blob.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First address.
    pub address: u64,
    /// Bytes, whole pages.
    pub len: u64,
    /// Where in the blob.
    pub blob_offset: u64,
}

impl Serialize for Run {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        [self.address, self.len, self.blob_offset].serialize(s)
    }
}

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Run, D::Error> {
        let [address, len, blob_offset] = <[u64; 3]>::deserialize(d)?;
        Ok(Run {
            address,
            len,
            blob_offset,
        })
    }
}

impl Content {
    /// Its runs.
    pub fn runs(&self) -> &[Run] {
        match self {
            Content::Zero => &[],
            Content::Bytes { runs } | Content::File { runs, .. } => runs,
        }
    }
}

impl Region {
    /// First address behind it.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

impl Index {
    /// Keeps the blocks only in which there are runs, which are cut at their ends.
    fn keep_used(&mut self) {
        let size = self.block;
        let mut new: BTreeMap<u64, u64> = BTreeMap::new();
        for run in self.regions.iter().flat_map(|r| r.content.runs()) {
            let last = (run.blob_offset + run.len - 1) / size;
            new.extend((run.blob_offset / size..=last).map(|n| (n, 0)));
        }
        for (i, n) in new.values_mut().enumerate() {
            *n = i as u64;
        }
        for region in &mut self.regions {
            let (Content::Bytes { runs } | Content::File { runs, .. }) = &mut region.content else {
                continue;
            };
            let mut cut: Vec<Run> = Vec::with_capacity(runs.len());
            for run in runs.iter() {
                let mut done = 0;
                while done < run.len {
                    let old = run.blob_offset + done;
                    let len = (size - old % size).min(run.len - done);
                    let blob_offset = new[&(old / size)] * size + old % size;
                    let address = run.address + done;
                    match cut.last_mut() {
                        Some(r)
                            if r.address + r.len == address
                                && r.blob_offset + r.len == blob_offset =>
                        {
                            r.len += len
                        }
                        _ => cut.push(Run {
                            address,
                            len,
                            blob_offset,
                        }),
                    }
                    done += len;
                }
            }
            *runs = cut;
        }
        self.blocks = new.keys().map(|n| self.blocks[*n as usize]).collect();
        self.blob_len = self.blocks.len() as u64 * size;
    }
}

#[derive(Serialize, Deserialize)]
struct Index {
    regions: Vec<Region>,
    blob_len: u64,
    blocks: Vec<Block>,
    /// Raw bytes of a block.
    #[serde(default = "usual_block", skip_serializing_if = "is_usual_block")]
    block: u64,
    /// How the program starts; the first program's is in the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<Start>,
    /// The moment at which this was the memory of a replay; `None` of programs that have not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moment: Option<Moment>,
}

fn usual_block() -> u64 {
    BLOCK
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_usual_block(block: &u64) -> bool {
    *block == BLOCK
}

/// Where a block is in the file, its packed bytes, and their hash.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Block {
    at: u64,
    len: u32,
    hash: u64,
}

/// Writes the image of one trace: [`ImageWriter::region`], then its [`ImageWriter::bytes`], and so on; [`ImageWriter::finish`].
pub struct ImageWriter {
    file: Arc<File>,
    /// Where in the file the image begins.
    base: u64,
    path: PathBuf,
    target: PathBuf,
    pub(crate) tools: Tools,
    position: u64,
    /// How much of it is in the file; the rest is in `tools.unwritten`.
    written: u64,
    index: Index,
    /// Of an image that has pages in common with those before it in its file.
    chain: Option<Chain>,
}

/// What images in one file have in common: each is the file up to its own end, and its runs may lie in blocks that were written with an earlier one.
/// A page is written once, however often it is there.
pub(crate) struct Chain {
    file: Arc<File>,
    paths: [PathBuf; 2],
    tools: Tools,
    position: u64,
    /// All blocks of the file.
    blocks: Vec<Block>,
    /// Where each page is among their raw bytes, by its BLAKE3.
    known: HashMap<[u8; 32], u64>,
}

/// Raw bytes of a block of a chain: an image may want one page of a block that is an earlier one's.
const CHAIN_BLOCK: u64 = 1 << 16;

/// A new file that only its owner can read.
fn created(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).context("create", path)
}

impl Chain {
    /// Begins the first image in a new file: its path, and what it will be named.
    pub(crate) fn create(path: PathBuf, target: PathBuf) -> Result<Chain> {
        let file = Arc::new(created(&path)?);
        let tools = Tools::new(&path)?;
        Ok(Chain {
            file,
            paths: [path, target],
            tools,
            position: 0,
            blocks: Vec::new(),
            known: HashMap::new(),
        })
    }

    /// The next image.
    pub(crate) fn begin(mut self) -> Result<ImageWriter> {
        let tools = std::mem::replace(&mut self.tools, Tools::new(&self.paths[0])?);
        let (file, paths) = (Arc::clone(&self.file), self.paths.clone());
        let mut writer = ImageWriter::new(file, 0, paths, tools);
        writer.index.block = CHAIN_BLOCK;
        writer.index.blob_len = self.blocks.len() as u64 * CHAIN_BLOCK;
        writer.index.blocks = std::mem::take(&mut self.blocks);
        (writer.position, writer.written) = (self.position, self.position);
        writer.chain = Some(self);
        if writer.position == 0 {
            writer.head()?;
        }
        Ok(writer)
    }

    /// Appends what is no image, and gives the file its name.
    pub(crate) fn finish(self, last: &[u8]) -> Result<()> {
        let [path, target] = &self.paths;
        let written = self.file.write_all_at(last, self.position);
        written.context("write", path)?;
        std::fs::rename(path, target).context("write", target)
    }
}

/// What is used for one image after the other.
pub(crate) struct Tools {
    packer: Packer,
    block: Vec<u8>,
    packed: Vec<u8>,
    unwritten: Vec<u8>,
}

impl Tools {
    pub(crate) fn new(path: &Path) -> Result<Tools> {
        Ok(Tools {
            packer: Packer::new().context("compress for", path)?,
            block: Vec::new(),
            packed: Vec::new(),
            unwritten: Vec::new(),
        })
    }
}

impl ImageWriter {
    /// Begins the image of the trace in `dir`. It appears under its name only when it is finished.
    pub fn create(dir: &Path) -> Result<ImageWriter> {
        ImageWriter::create_named(dir, IMAGE_FILE)
    }

    pub(crate) fn create_named(dir: &Path, name: &str) -> Result<ImageWriter> {
        let (path, target) = (dir.join(format!("{name}.tmp")), dir.join(name));
        let (file, tools) = (created(&path)?, Tools::new(&path)?);
        ImageWriter::begin(Arc::new(file), 0, [path, target], tools)
    }

    /// Begins an image at `base` in a file.
    pub(crate) fn begin(
        file: Arc<File>,
        base: u64,
        [path, target]: [PathBuf; 2],
        tools: Tools,
    ) -> Result<ImageWriter> {
        let mut writer = ImageWriter::new(file, base, [path, target], tools);
        writer.head()?;
        Ok(writer)
    }

    fn new(file: Arc<File>, base: u64, [path, target]: [PathBuf; 2], tools: Tools) -> ImageWriter {
        ImageWriter {
            file,
            base,
            path,
            target,
            tools,
            position: 0,
            written: 0,
            index: Index {
                regions: Vec::new(),
                blob_len: 0,
                blocks: Vec::new(),
                block: BLOCK,
                start: None,
                moment: None,
            },
            chain: None,
        }
    }

    fn head(&mut self) -> Result<()> {
        let mut head = FIRST_MAGIC.to_le_bytes().to_vec();
        head.extend_from_slice(&u64::from(PARTS_VERSION).to_le_bytes());
        assert_eq!(head.len() as u64, HEAD_LEN);
        self.append(&head)
    }

    /// Says how the program starts.
    pub fn start(&mut self, start: Start) {
        self.index.start = Some(start);
    }

    pub(crate) fn moment(&mut self, moment: Moment) {
        self.index.moment = Some(moment);
    }

    /// Adds a region, above those added before. The runs in its content must be empty; [`ImageWriter::bytes`] fills them.
    ///
    /// # Errors
    /// When it is no proper region, or not above the last one.
    pub fn region(&mut self, region: Region) -> Result<()> {
        let below = self.index.regions.last().map_or(0, Region::end);
        if !region.content.runs().is_empty() {
            return Err(TraceError::corrupt(
                &self.target,
                "a new region already has runs",
            ));
        }
        check_region(&region, below, 0).map_err(|why| TraceError::corrupt(&self.target, why))?;
        self.index.regions.push(region);
        Ok(())
    }

    /// Adds contents of the region added last: whole pages at `address`, above those added before. Zero pages cost
    /// nothing, except in a region that shows a file, where they are a change like any other.
    ///
    /// # Errors
    /// When they don't lie in the region, or aren't whole pages; [`TraceError::TraceFull`].
    pub fn bytes(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let refused = |why: &str| Err(TraceError::corrupt(&self.target, why));
        let Some(region) = self.index.regions.last_mut() else {
            return refused("bytes before any region");
        };
        let end = address.checked_add(bytes.len() as u64);
        if address % PAGE != 0 || bytes.len() as u64 % PAGE != 0 {
            return refused("bytes that aren't whole pages");
        }
        let filled = region
            .content
            .runs()
            .last()
            .map_or(region.start, |r| r.address + r.len);
        if address < filled || end.is_none_or(|end| end > region.end()) {
            return refused("bytes outside their region, or out of order");
        }
        if matches!(region.content, Content::Zero) {
            region.content = Content::Bytes { runs: Vec::new() };
        }
        let keep_zeros = matches!(region.content, Content::File { .. });
        let pages = bytes
            .chunks_exact(PAGE as usize)
            .zip((address..).step_by(PAGE as usize));
        for (page, at) in pages {
            if keep_zeros || page != ZERO_PAGE {
                self.page(at, page)?;
            }
        }
        Ok(())
    }

    fn page(&mut self, address: u64, page: &[u8]) -> Result<()> {
        let end = self.index.blob_len;
        let known = self.chain.as_mut().map(|c| {
            let hash = *blake3::hash(page).as_bytes();
            *c.known.entry(hash).or_insert(end)
        });
        let blob_offset = known.unwrap_or(end);
        if let Some(Content::Bytes { runs } | Content::File { runs, .. }) =
            self.index.regions.last_mut().map(|r| &mut r.content)
        {
            match runs.last_mut() {
                Some(r) if r.address + r.len == address && r.blob_offset + r.len == blob_offset => {
                    r.len += PAGE
                }
                _ => runs.push(Run {
                    address,
                    len: PAGE,
                    blob_offset,
                }),
            }
        }
        if blob_offset != end {
            return Ok(());
        }
        self.tools.block.extend_from_slice(page);
        self.index.blob_len += PAGE;
        if self.tools.block.len() as u64 >= self.index.block {
            self.flush_block()?;
        }
        Ok(())
    }

    fn flush_block(&mut self) -> Result<()> {
        let Tools {
            packer,
            block,
            packed,
            ..
        } = &mut self.tools;
        packer
            .pack(block, packed)
            .context("compress for", &self.path)?;
        block.clear();
        let packed = std::mem::take(packed);
        self.index.blocks.push(Block {
            at: self.position,
            len: packed.len() as u32,
            hash: xxh3_64(&packed),
        });
        let result = self.append(&packed);
        self.tools.packed = packed;
        result
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.tools.unwritten.extend_from_slice(bytes);
        self.position += bytes.len() as u64;
        if self.tools.unwritten.len() as u64 >= BLOCK {
            self.write()?;
        }
        Ok(())
    }

    /// Writes what is gathered.
    fn write(&mut self) -> Result<()> {
        self.file
            .write_all_at(&self.tools.unwritten, self.base + self.written)
            .context("write", &self.path)?;
        self.written += self.tools.unwritten.len() as u64;
        self.tools.unwritten.clear();
        Ok(())
    }

    /// Writes the index and gives the file its name; returns the image as a reader will see it.
    pub fn finish(mut self) -> Result<Image> {
        self.close()?;
        std::fs::rename(&self.path, &self.target).context("write", &self.target)?;
        Ok(Image {
            regions: self.index.regions,
        })
    }

    /// Ends an image of a chain; what the next one is made of, and where this one ends in the file.
    pub(crate) fn close_in_chain(mut self) -> Result<(Chain, u64)> {
        if !self.tools.block.is_empty() {
            // A block that others are behind is a full one.
            self.tools.block.resize(self.index.block as usize, 0);
            self.flush_block()?;
        }
        let blocks = self.index.blocks.clone();
        self.index.keep_used();
        let end = self.close()?;
        let refused = || TraceError::corrupt(&self.target, "an image of no chain");
        let mut chain = self.chain.take().ok_or_else(refused)?;
        (chain.blocks, chain.position) = (blocks, end);
        chain.tools = self.tools;
        Ok((chain, end))
    }

    /// Writes the index, and all that is not written yet; the image's bytes.
    pub(crate) fn close(&mut self) -> Result<u64> {
        if !self.tools.block.is_empty() {
            self.flush_block()?;
        }
        let index = serde_json::to_vec(&self.index)
            .map_err(|e| TraceError::corrupt(&self.target, e.to_string()))?;
        if index.len() as u64 > MAX_INDEX {
            return Err(TraceError::Limit {
                what: "index of the image",
                found: index.len() as u64,
                limit: MAX_INDEX,
            });
        }
        let mut packed = std::mem::take(&mut self.tools.packed);
        self.tools
            .packer
            .pack(&index, &mut packed)
            .context("compress for", &self.path)?;
        let mut foot = Vec::new();
        foot.extend_from_slice(&self.position.to_le_bytes());
        foot.extend_from_slice(&(packed.len() as u32).to_le_bytes());
        foot.extend_from_slice(&(index.len() as u32).to_le_bytes());
        foot.extend_from_slice(&xxh3_64(&packed).to_le_bytes());
        foot.extend_from_slice(&xxh3_64(&foot).to_le_bytes());
        foot.extend_from_slice(&LAST_MAGIC.to_le_bytes());
        assert_eq!(foot.len() as u64, FOOT_LEN);
        self.append(&packed)?;
        self.append(&foot)?;
        self.tools.packed = packed;
        self.write()?;
        Ok(self.position)
    }
}

impl AsMut<ImageWriter> for ImageWriter {
    fn as_mut(&mut self) -> &mut ImageWriter {
        self
    }
}

const ZERO_PAGE: &[u8] = &[0; PAGE as usize];

/// Reads the image of one trace.
pub struct ImageReader {
    file: Arc<File>,
    /// Where in the file the image begins.
    base: u64,
    path: PathBuf,
    image: Image,
    blob_len: u64,
    blocks: Vec<Block>,
    start: Option<Start>,
    moment: Option<Moment>,
    unpacker: Unpacker,
    packed: Vec<u8>,
    /// Raw bytes of a block.
    block: u64,
    /// The blocks that were read last, by their index: no more than [`MOST_LOADED`] bytes.
    loaded: HashMap<usize, Vec<u8>>,
}

/// Most bytes of blocks that a reader keeps.
const MOST_LOADED: u64 = 32 << 20;

impl ImageReader {
    /// Opens the image of the trace in `dir` and checks its index.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`] when it is not whole; [`TraceError::Newer`].
    pub fn open(dir: &Path) -> Result<ImageReader> {
        ImageReader::open_nth(dir, 0)
    }

    /// Opens image `n` of the trace in `dir` when it has a file of its own, see [`image_name`].
    ///
    /// # Errors
    /// As [`ImageReader::open`].
    pub fn open_nth(dir: &Path, n: u64) -> Result<ImageReader> {
        let name = image_name(n);
        let path = dir.join(&name);
        let file = match crate::opened::open(dir, name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(TraceError::corrupt(
                    &path,
                    "it is missing: the recording was killed before the program began",
                ))
            }
            other => other.context("open", &path)?,
        };
        let len = file.metadata().context("read", &path)?.len();
        ImageReader::at(Arc::new(file), 0, len, path)
    }

    pub(crate) fn open_named(dir: &Path, name: &str) -> Result<ImageReader> {
        let path = dir.join(name);
        let file = crate::opened::open(dir, name).context("open", &path)?;
        let len = file.metadata().context("read", &path)?.len();
        ImageReader::at(Arc::new(file), 0, len, path)
    }

    /// Opens an image of `len` bytes at `base` in a file.
    pub(crate) fn at(file: Arc<File>, base: u64, len: u64, path: PathBuf) -> Result<ImageReader> {
        let mut unpacker = Unpacker::new().context("decompress", &path)?;
        let index = read_index(&file, base, len, &path, &mut unpacker)?;
        check_index(&index).map_err(|why| TraceError::corrupt(&path, why))?;
        Ok(ImageReader {
            file,
            base,
            path,
            image: Image {
                regions: index.regions,
            },
            blob_len: index.blob_len,
            blocks: index.blocks,
            start: index.start,
            moment: index.moment,
            unpacker,
            packed: Vec::new(),
            block: index.block,
            loaded: HashMap::new(),
        })
    }

    /// How the program starts, if the image says so.
    pub fn start(&self) -> Option<&Start> {
        self.start.as_ref()
    }

    /// The moment at which this was the memory of a replay, if it was.
    pub(crate) fn moment(&self) -> Option<&Moment> {
        self.moment.as_ref()
    }

    /// The regions.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Bytes of all runs together.
    pub fn blob_len(&self) -> u64 {
        self.blob_len
    }

    /// Reads the blob from `offset` on into all of `buf`.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`] when it is damaged there, or ends before.
    pub fn read_blob(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let rest = self.blob_from(offset + done as u64)?;
            let n = rest.len().min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&rest[..n]);
            done += n;
        }
        Ok(())
    }

    /// Hands the contents of region `index` to `take`, in order: address and bytes, at most [`BLOCK`] at a time.
    ///
    /// # Errors
    /// As [`ImageReader::read_blob`], and those of `take`.
    ///
    /// # Panics
    /// When there is no such region.
    pub fn read_region(
        &mut self,
        index: usize,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        for i in 0..self.image.regions[index].content.runs().len() {
            let run = self.image.regions[index].content.runs()[i];
            let mut done = 0;
            while done < run.len {
                let rest = self.blob_from(run.blob_offset + done)?;
                let n = (rest.len() as u64).min(run.len - done);
                take(run.address + done, &rest[..n as usize])?;
                done += n;
            }
        }
        Ok(())
    }

    /// Are all its blocks whole? They are read, not decompressed.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`] when one is not.
    pub fn check_blocks(&mut self) -> Result<()> {
        for i in 0..self.blocks.len() {
            self.load_packed(self.blocks[i])?;
        }
        Ok(())
    }

    /// Reads a block as it is in the file.
    fn load_packed(&mut self, block: Block) -> Result<()> {
        self.packed.resize(block.len as usize, 0);
        self.file
            .read_exact_at(&mut self.packed, self.base + block.at)
            .context("read", &self.path)?;
        match xxh3_64(&self.packed) == block.hash {
            true => Ok(()),
            false => Err(TraceError::corrupt(
                &self.path,
                "a block of contents has a wrong hash",
            )),
        }
    }

    /// The blob from `offset` to the end of its block; not empty.
    fn blob_from(&mut self, offset: u64) -> Result<&[u8]> {
        if offset >= self.blob_len {
            return Err(TraceError::corrupt(&self.path, "contents end too early"));
        }
        let index = (offset / self.block) as usize;
        if !self.loaded.contains_key(&index) {
            // One image after the other is read, in order: what was read long ago is rarely wanted again.
            if (self.loaded.len() as u64 + 1) * self.block > MOST_LOADED {
                self.loaded.clear();
            }
            let block = self.blocks[index];
            let raw_len = (self.blob_len - index as u64 * self.block).min(self.block) as usize;
            self.load_packed(block)?;
            let mut raw = Vec::new();
            let unpacked = self.unpacker.unpack(&self.packed, raw_len, &mut raw);
            unpacked.map_err(|e| {
                TraceError::corrupt(&self.path, format!("a block can't be decompressed: {e}"))
            })?;
            self.loaded.insert(index, raw);
        }
        Ok(&self.loaded[&index][(offset % self.block) as usize..])
    }
}

fn read_index(
    file: &File,
    base: u64,
    file_len: u64,
    path: &Path,
    unpacker: &mut Unpacker,
) -> Result<Index> {
    let corrupt = |why: &str| TraceError::corrupt(path, why);
    if file_len < HEAD_LEN + FOOT_LEN {
        return Err(corrupt("it is too short"));
    }
    let (mut head, mut foot) = ([0; HEAD_LEN as usize], [0; FOOT_LEN as usize]);
    file.read_exact_at(&mut head, base).context("read", path)?;
    if u64_at(&head, 0) != FIRST_MAGIC || u32_at(&head, 12) != 0 {
        return Err(corrupt("it is no image"));
    }
    match u32_at(&head, 8) {
        PARTS_VERSION => {}
        found if found > PARTS_VERSION => {
            return Err(TraceError::Newer {
                path: path.into(),
                found,
                ours: PARTS_VERSION,
                by: None,
            })
        }
        _ => return Err(corrupt("it is of an unknown version")),
    }
    file.read_exact_at(&mut foot, base + file_len - FOOT_LEN)
        .context("read", path)?;
    if u64_at(&foot, 32) != LAST_MAGIC || u64_at(&foot, 24) != xxh3_64(&foot[..24]) {
        return Err(corrupt("its end is cut off"));
    }
    let (at, packed_len, raw_len) = (u64_at(&foot, 0), u32_at(&foot, 8), u32_at(&foot, 12));
    if at.checked_add(u64::from(packed_len)) != Some(file_len - FOOT_LEN)
        || u64::from(raw_len) > MAX_INDEX
    {
        return Err(corrupt("its index is not where it should be"));
    }
    let (mut packed, mut raw) = (vec![0; packed_len as usize], Vec::new());
    file.read_exact_at(&mut packed, base + at)
        .context("read", path)?;
    if xxh3_64(&packed) != u64_at(&foot, 16) {
        return Err(corrupt("its index has a wrong hash"));
    }
    let bad = |e: &dyn std::fmt::Display| corrupt(&format!("its index can't be read: {e}"));
    unpacker
        .unpack(&packed, raw_len as usize, &mut raw)
        .map_err(|e| bad(&e))?;
    let index: Index = serde_json::from_slice(&raw).map_err(|e| bad(&e))?;
    let behind = |b: &Block| {
        b.at.checked_add(u64::from(b.len))
            .is_none_or(|end| end > at)
    };
    if index.blocks.iter().any(behind) {
        return Err(corrupt("a block lies outside the file"));
    }
    Ok(index)
}

fn check_index(index: &Index) -> std::result::Result<(), &'static str> {
    if index.regions.len() > MAX_REGIONS {
        return Err("too many regions");
    }
    let sizes = PAGE..=BLOCK;
    if !index.block.is_power_of_two() || !sizes.contains(&index.block) {
        return Err("its blocks are of an impossible size");
    }
    if index.blob_len > MAX_BLOB
        || index.blob_len.div_ceil(index.block) != index.blocks.len() as u64
    {
        return Err("blocks don't add up");
    }
    let mut below = 0;
    for region in &index.regions {
        check_region(region, below, index.blob_len)?;
        below = region.end();
    }
    Ok(())
}

/// Checks that a region is proper, begins at `below` or above, and has its runs inside itself and the blob.
fn check_region(
    region: &Region,
    below: u64,
    blob_len: u64,
) -> std::result::Result<(), &'static str> {
    if region.start % PAGE != 0 || region.len % PAGE != 0 || region.len == 0 {
        return Err("a region isn't whole pages");
    }
    if region.start < below || region.len > USER_END || region.end() > USER_END {
        return Err("regions overlap, or lie outside user space");
    }
    if region.prot & !7 != 0
        || region.flags
            & !(region_flags::SHARED
                | region_flags::FILE
                | region_flags::STACK
                | region_flags::VDSO
                | region_flags::NOT_INHERITED
                | region_flags::WIPED
                | region_flags::GUARDED)
            != 0
    {
        return Err("a region has unknown flags");
    }
    if matches!(region.content, Content::File { file_offset, .. } if file_offset % PAGE != 0 || file_offset > i64::MAX as u64)
    {
        return Err("a region shows a file at an impossible offset");
    }
    let mut filled = region.start;
    for run in region.content.runs() {
        let in_pages = run.address % PAGE == 0 && run.len % PAGE == 0 && run.len > 0;
        let end = run
            .address
            .checked_add(run.len)
            .filter(|end| *end <= region.end());
        let in_blob = run
            .blob_offset
            .checked_add(run.len)
            .is_some_and(|end| end <= blob_len);
        match end {
            Some(end) if in_pages && in_blob && run.address >= filled => filled = end,
            _ => return Err("a run lies outside its region or the contents"),
        }
    }
    Ok(())
}
