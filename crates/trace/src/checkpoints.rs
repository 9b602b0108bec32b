//! Checkpoints on disk: the process of a replay as it was at some events, so that a replay can begin there.
//!
//! The file `checkpoints` has one [image](crate::image) after the other, each with its [`Moment`] as a [`beginning`] has it. Images
//! have their pages in common: a page is written once. Behind the last image is the table, in JSON, compressed, and a footer.
//!
//! They are a cache. A trace says nothing of them anywhere else, and they say of which trace they are ([`seal`]): what does not fit, or is damaged, is
//! as if it were not there.

use crate::codec::{Packer, Unpacker};
use crate::error::Context;
use crate::image::Chain;
use crate::stream::{u32_at, u64_at};
use crate::{beginning, ImageReader, ImageWriter, Moment, Reader, Result, TraceError};
use crate::{CHECKPOINTS_FILE, PARTS_VERSION};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::{xxh3_64, Xxh3};

/// Most checkpoints of a trace.
pub const MOST: usize = 1 << 16;
/// Most bytes of a table, raw.
const MAX_TABLE: u32 = 16 << 20;
const MAGIC: u64 = u64::from_le_bytes(*b"RPRCHKPT");
/// Packed and raw length of the table, version, 4 bytes of zero, hash of the packed table, hash of these words, magic.
const FOOT_LEN: usize = 40;

/// A checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Events that had happened.
    pub event: u64,
    /// Microseconds that a replay took from the trace's beginning to there.
    pub after: u64,
    /// Where its image ends in the file.
    end: u64,
}

impl Checkpoint {
    /// How long a replay took from the trace's beginning to there, when it was made.
    pub fn after(&self) -> Duration {
        Duration::from_micros(self.after)
    }
}

#[derive(Serialize, Deserialize)]
struct Table {
    /// Of which trace they are.
    seal: u64,
    checkpoints: Vec<Checkpoint>,
}

/// What a trace has of its own: where its frames begin, and how many events they have.
pub fn seal(reader: &Reader) -> u64 {
    let mut hasher = Xxh3::new();
    for (event, at) in reader.frames() {
        hasher.update(&event.to_le_bytes());
        hasher.update(&at.to_le_bytes());
    }
    hasher.update(&reader.len().to_le_bytes());
    hasher.digest()
}

/// Writes the checkpoints of one trace, in the order of their events.
pub struct CheckpointsWriter {
    path: PathBuf,
    chain: Chain,
    table: Table,
}

impl CheckpointsWriter {
    /// Begins a file for the trace in `dir`. It appears under its name only when it is finished.
    ///
    /// # Errors
    /// When it can't be created.
    pub fn create(dir: &Path, reader: &Reader) -> Result<CheckpointsWriter> {
        let path = dir.join(CHECKPOINTS_FILE);
        let new = dir.join(format!("{CHECKPOINTS_FILE}.tmp"));
        Ok(CheckpointsWriter {
            chain: Chain::create(new, path.clone())?,
            path,
            table: Table {
                seal: seal(reader),
                checkpoints: Vec::new(),
            },
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.table.checkpoints.len()
    }

    /// Begins the next one: all regions, then [`BegunCheckpoint::finish`].
    ///
    /// # Errors
    /// When there are too many, or it can't be written.
    pub fn begin(self) -> Result<BegunCheckpoint> {
        if self.count() >= MOST {
            return Err(TraceError::Limit {
                what: "checkpoints of the trace",
                found: self.count() as u64 + 1,
                limit: MOST as u64,
            });
        }
        let CheckpointsWriter { path, chain, table } = self;
        Ok(BegunCheckpoint {
            image: chain.begin()?,
            path,
            table,
        })
    }

    /// Writes the table, and gives the file its name.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn finish(self) -> Result<()> {
        let table = serde_json::to_vec(&self.table)
            .map_err(|e| TraceError::corrupt(&self.path, e.to_string()))?;
        let mut all = Vec::new();
        let mut packer = Packer::new().context("compress for", &self.path)?;
        let packed = packer.pack(&table, &mut all);
        packed.context("compress for", &self.path)?;
        let mut foot = Vec::new();
        foot.extend_from_slice(&(all.len() as u32).to_le_bytes());
        foot.extend_from_slice(&(table.len() as u32).to_le_bytes());
        foot.extend_from_slice(&u64::from(PARTS_VERSION).to_le_bytes());
        foot.extend_from_slice(&xxh3_64(&all).to_le_bytes());
        foot.extend_from_slice(&xxh3_64(&foot).to_le_bytes());
        foot.extend_from_slice(&MAGIC.to_le_bytes());
        assert_eq!(foot.len(), FOOT_LEN);
        all.extend_from_slice(&foot);
        self.chain.finish(&all)
    }
}

/// A checkpoint that is being written.
pub struct BegunCheckpoint {
    image: ImageWriter,
    path: PathBuf,
    table: Table,
}

impl BegunCheckpoint {
    /// Ends it. `after`: how long the replay took to there.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn finish(mut self, moment: Moment, after: Duration) -> Result<CheckpointsWriter> {
        let event = moment.event;
        self.image.moment(moment);
        let (chain, end) = self.image.close_in_chain()?;
        self.table.checkpoints.push(Checkpoint {
            event,
            after: after.as_micros() as u64,
            end,
        });
        Ok(CheckpointsWriter {
            path: self.path,
            chain,
            table: self.table,
        })
    }
}

impl AsMut<ImageWriter> for BegunCheckpoint {
    fn as_mut(&mut self) -> &mut ImageWriter {
        &mut self.image
    }
}

/// The checkpoints of a trace.
pub struct Checkpoints {
    path: PathBuf,
    file: Arc<File>,
    /// Bytes of the file before the table.
    len: u64,
    list: Vec<Checkpoint>,
}

impl Checkpoints {
    /// Those of the trace in `dir`, which `reader` reads; `None` where it has none.
    ///
    /// # Errors
    /// When they are damaged, or those of another trace.
    pub fn open(dir: &Path, reader: &Reader) -> Result<Option<Checkpoints>> {
        let path = dir.join(CHECKPOINTS_FILE);
        let file = match crate::opened::open(dir, CHECKPOINTS_FILE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.context("open", &path)?,
        };
        let corrupt = |why: &str| TraceError::corrupt(&path, why);
        let (table, len) = read_table(&file, &path)?;
        if table.seal != seal(reader) {
            return Err(corrupt("they are of another trace"));
        }
        let mut last = [0; 2];
        for c in &table.checkpoints {
            if c.event < last[0] || c.end <= last[1] || c.end > len || c.event > reader.len() {
                return Err(corrupt("its table makes no sense"));
            }
            last = [c.event, c.end];
        }
        Ok(Some(Checkpoints {
            file: Arc::new(file),
            path,
            len,
            list: table.checkpoints,
        }))
    }

    /// All of them, in order.
    pub fn list(&self) -> &[Checkpoint] {
        &self.list
    }

    /// Bytes of their file, without the table.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// The last one at which at most so many events had happened.
    pub fn before(&self, events: u64) -> Option<Checkpoint> {
        let n = self.list.partition_point(|c| c.event <= events);
        self.list[..n].last().copied()
    }

    /// Its image, checked in every part of it but the contents.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn image(&self, of: Checkpoint) -> Result<(ImageReader, Moment)> {
        let image = ImageReader::at(Arc::clone(&self.file), 0, of.end, self.path.clone())?;
        let moment = beginning::checked(&image, &self.path)?;
        match moment.event == of.event {
            true => Ok((image, moment)),
            false => Err(TraceError::corrupt(&self.path, "it is of another moment")),
        }
    }
}

/// The table, and where it begins.
fn read_table(file: &File, path: &Path) -> Result<(Table, u64)> {
    let corrupt = |why: &str| TraceError::corrupt(path, why);
    let len = file.metadata().context("read", path)?.len();
    let mut foot = [0; FOOT_LEN];
    let Some(foot_at) = len.checked_sub(FOOT_LEN as u64) else {
        return Err(corrupt("it is too short"));
    };
    file.read_exact_at(&mut foot, foot_at)
        .context("read", path)?;
    if u64_at(&foot, 32) != MAGIC || u64_at(&foot, 24) != xxh3_64(&foot[..24]) {
        return Err(corrupt("its end is cut off"));
    }
    let (packed_len, raw_len) = (u32_at(&foot, 0), u32_at(&foot, 4));
    match u32_at(&foot, 8) {
        PARTS_VERSION => {}
        found => {
            return Err(TraceError::Newer {
                path: path.into(),
                found,
                ours: PARTS_VERSION,
                by: None,
            })
        }
    }
    let at = foot_at.checked_sub(u64::from(packed_len));
    let Some(at) = at.filter(|_| packed_len <= MAX_TABLE && raw_len <= MAX_TABLE) else {
        return Err(corrupt("its table is not where it should be"));
    };
    let (mut packed, mut raw) = (vec![0; packed_len as usize], Vec::new());
    file.read_exact_at(&mut packed, at).context("read", path)?;
    if xxh3_64(&packed) != u64_at(&foot, 16) {
        return Err(corrupt("its table has a wrong hash"));
    }
    let bad = |e: &dyn std::fmt::Display| corrupt(&format!("its table can't be read: {e}"));
    let mut unpacker = Unpacker::new().context("decompress", path)?;
    let unpacked = unpacker.unpack(&packed, raw_len as usize, &mut raw);
    unpacked.map_err(|e| bad(&e))?;
    let table: Table = serde_json::from_slice(&raw).map_err(|e| bad(&e))?;
    match table.checkpoints.len() > MOST {
        true => Err(corrupt("its table has too many checkpoints")),
        false => Ok((table, at)),
    }
}
