//! The trace's directory: is it where it was? What is written into files that nobody finds any more is lost, and no call says so.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A directory, and when it was seen last.
pub struct Place {
    dir: PathBuf,
    identity: Option<(u64, u64)>,
    seen: Instant,
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

impl Place {
    /// The place of a trace that is there.
    pub fn of(dir: &Path) -> Place {
        Place {
            dir: dir.into(),
            identity: dir.metadata().ok().as_ref().map(identity),
            seen: Instant::now(),
        }
    }

    /// Is it gone? Asked of the file system every now and then.
    pub fn is_lost(&mut self) -> bool {
        if self.seen.elapsed() < LOOK_EVERY {
            return false;
        }
        self.seen = Instant::now();
        self.is_gone()
    }

    /// Is it gone?
    pub fn is_gone(&self) -> bool {
        match self.dir.metadata() {
            Ok(meta) => Some(identity(&meta)) != self.identity,
            Err(e) => e.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// What to say of it when it is gone.
    pub fn loss(&self) -> String {
        format!("{} was removed or moved", self.dir.display())
    }
}
