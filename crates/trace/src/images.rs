//! The images of the programs that processes became by exec, one behind the other in the file `images`: to make a file for each costs more
//! than to write it.
//!
//! Before each image stand its number and its length, written when the image is whole: what a crash left behind the last one is no image.
//! Older traces have a file for each, see [`image_name`](crate::image_name).

use crate::error::Context;
use crate::image::Tools;
use crate::stream::u64_at;
use crate::{ImageReader, ImageWriter, Result, TraceError, IMAGES_FILE, MAX_IMAGES};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number and length.
const HEAD_LEN: u64 = 16;

/// Writes the images of a trace: [`Images::begin`], what [`ImageWriter`] offers, [`Images::end`].
pub struct Images {
    path: PathBuf,
    file: Option<Arc<File>>,
    end: u64,
    number: u64,
    tools: Option<Tools>,
}

impl Images {
    /// None yet; the file is made with the first.
    pub fn new(dir: &Path) -> Images {
        Images {
            path: dir.join(IMAGES_FILE),
            file: None,
            end: 0,
            number: 0,
            tools: None,
        }
    }

    /// Begins image `n`, behind all that are whole.
    pub fn begin(&mut self, n: u64) -> Result<ImageWriter> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&self.path);
                let file = Arc::new(file.context("create", &self.path)?);
                self.file.insert(file).clone()
            }
        };
        self.number = n;
        let tools = match self.tools.take() {
            Some(tools) => tools,
            None => Tools::new(&self.path)?,
        };
        let names = [self.path.clone(), self.path.clone()];
        ImageWriter::begin(file, self.end + HEAD_LEN, names, tools)
    }

    /// Ends the image that was begun last.
    pub fn end(&mut self, mut image: ImageWriter) -> Result<()> {
        let len = image.close()?;
        let Some(file) = &self.file else {
            return Ok(());
        };
        let head = [self.number, len].map(u64::to_le_bytes).concat();
        file.write_all_at(&head, self.end)
            .context("write", &self.path)?;
        self.end += HEAD_LEN + len;
        self.tools = Some(image.tools);
        Ok(())
    }
}

/// Finds the images of a trace.
pub struct ImageSet {
    dir: PathBuf,
    /// The file with those of the execs, and where in it each begins, with its length; once they were looked for.
    execs: Option<Found>,
}

impl ImageSet {
    /// Those of the trace in `dir`.
    pub fn new(dir: &Path) -> ImageSet {
        ImageSet {
            dir: dir.into(),
            execs: None,
        }
    }

    /// Their numbers, in order.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn numbers(&mut self) -> Result<Vec<u64>> {
        let mut numbers = match self.found()? {
            (Some(_), places) => places.keys().copied().collect(),
            (None, _) => crate::redact::own_images(&self.dir)?,
        };
        numbers.push(0);
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Whether those of the execs are in one file.
    pub(crate) fn are_together(&self) -> bool {
        matches!(self.execs, Some((Some(_), _)))
    }

    fn found(&mut self) -> Result<&mut Found> {
        let path = self.dir.join(IMAGES_FILE);
        Ok(match &mut self.execs {
            Some(known) => known,
            none => none.insert(find(&self.dir, &path)?),
        })
    }

    /// Opens image `n`; 0 is the first program's.
    ///
    /// # Errors
    /// As [`ImageReader::open`].
    pub fn image(&mut self, n: u64) -> Result<ImageReader> {
        if n == 0 {
            return ImageReader::open(&self.dir);
        }
        let path = self.dir.join(IMAGES_FILE);
        let (file, places) = self.found()?;
        match (file, places.get(&n)) {
            (Some(file), Some((base, len))) => ImageReader::at(file.clone(), *base, *len, path),
            (None, _) => ImageReader::open_nth(&self.dir, n),
            (Some(_), None) => Err(TraceError::corrupt(&path, format!("image {n} is missing"))),
        }
    }
}

type Found = (Option<Arc<File>>, HashMap<u64, (u64, u64)>);

fn find(dir: &Path, path: &Path) -> Result<Found> {
    let mut places = HashMap::new();
    let file = match crate::opened::open(dir, IMAGES_FILE) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((None, places)),
        other => other.context("open", path)?,
    };
    let all = file.metadata().context("read", path)?.len();
    let mut at = 0;
    while at + HEAD_LEN <= all {
        let mut head = [0; HEAD_LEN as usize];
        file.read_exact_at(&mut head, at).context("read", path)?;
        let (n, len) = (u64_at(&head, 0), u64_at(&head, 8));
        let base = at + HEAD_LEN;
        // What a crash left at the end begins with zeros, or is cut off.
        if n == 0 || n > MAX_IMAGES || len > all - base {
            break;
        }
        places.insert(n, (base, len));
        at = base + len;
    }
    Ok((Some(Arc::new(file)), places))
}
