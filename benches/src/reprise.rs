//! The command that is judged: builds it, records, replays, and weighs traces.

use crate::program::{Program, Sample};
use anyhow::{bail, Context, Result};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The built command, with a directory of its own for traces.
#[derive(Debug)]
pub struct Reprise {
    path: PathBuf,
    traces: PathBuf,
    engine: Option<String>,
}

/// A trace on disk, in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Size {
    /// Everything.
    pub all: u64,
    /// The compressed events.
    pub events: u64,
    /// Kept files, by inode: the program, its libraries, the runtime, what was read. Traces share them.
    pub files: BTreeMap<u64, u64>,
}

impl Size {
    /// Bytes of kept files.
    pub fn kept(&self) -> u64 {
        self.files.values().sum()
    }

    /// Everything but the kept files that `other` has, too.
    pub fn beside(&self, other: &Size) -> u64 {
        let shared = self.files.iter().filter(|f| other.files.contains_key(f.0));
        self.all - shared.map(|f| f.1).sum::<u64>()
    }
}

impl Reprise {
    /// Builds the release, unless the environment variable REPRISE names a build. Recordings are made by `engine`, or by the
    /// default engine.
    ///
    /// # Errors
    /// When it doesn't build.
    pub fn build(traces: PathBuf, engine: Option<String>) -> Result<Reprise> {
        let path = match std::env::var_os("REPRISE") {
            Some(path) => PathBuf::from(path).canonicalize().context("REPRISE")?,
            None => build()?,
        };
        std::fs::create_dir_all(&traces)?;
        Ok(Reprise {
            path,
            traces,
            engine,
        })
    }

    /// The command itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same, with recordings made by this engine.
    #[must_use]
    pub fn with_engine(&self, engine: &str) -> Reprise {
        Reprise {
            path: self.path.clone(),
            traces: self.traces.clone(),
            engine: Some(engine.into()),
        }
    }

    /// Replays the latest trace in both orders and learns where it leaves its path, if it does. If it doesn't, only those loads stay learned of
    /// which these replays show that they race. Whether there was nothing new.
    ///
    /// # Errors
    /// When it doesn't end.
    pub fn learn(&self, dir: &Path) -> Result<bool> {
        let known = || std::fs::read(self.traces.join("learned.json")).unwrap_or_default();
        let before = known();
        let mut exact = true;
        for order in ["partial", "total"] {
            let replay = ["replay", "--learn", "--narrow", "--order", order];
            exact = exact && self.command(replay).run(dir, "learn")?.status.success();
        }
        Ok(exact && known() == before)
    }

    /// The engine that records.
    pub fn engine(&self) -> &str {
        self.engine.as_deref().unwrap_or("serial")
    }

    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Program {
        let mut program = Program::new([&self.path]).with_env("REPRISE_TRACE_DIR", &self.traces);
        program
            .argv
            .extend(arguments.into_iter().map(|a| a.as_ref().into()));
        program
    }

    /// The command that records `program`.
    pub fn recording(&self, program: &Program) -> Program {
        let mut command = self.command(["record", "-q"]);
        if let Some(engine) = &self.engine {
            command.argv.extend(["--engine", engine].map(Into::into));
        }
        command.argv.push("--".into());
        command.argv.extend(program.argv.iter().cloned());
        command.env.extend(program.env.iter().cloned());
        command
    }

    /// Replays the latest trace, which must work.
    ///
    /// # Errors
    /// When it ends by an error of Reprise's own, or not at all.
    pub fn replay(&self, dir: &Path) -> Result<Sample> {
        let sample = self.command(["replay"]).run(dir, "replay")?;
        own_failure(&sample)?;
        Ok(sample)
    }

    /// Facts of the latest trace, as `reprise info --json` tells them.
    ///
    /// # Errors
    /// When there are none.
    pub fn info(&self, dir: &Path) -> Result<serde_json::Value> {
        let sample = self.command(["info", "--json"]).run(dir, "info")?;
        own_failure(&sample)?;
        Ok(serde_json::from_slice(&std::fs::read(&sample.stdout)?)?)
    }

    /// What the latest trace weighs. Kept files count in full, also those that other traces share.
    ///
    /// # Errors
    /// Of the file system.
    pub fn size(&self) -> Result<Size> {
        let trace = self.traces.join("latest");
        let mut size = Size::default();
        for entry in std::fs::read_dir(&trace)? {
            let m = entry?.metadata()?;
            if m.is_file() {
                size.all += m.size();
            }
        }
        for entry in std::fs::read_dir(trace.join("files"))? {
            let m = entry?.metadata()?;
            size.files.insert(m.ino(), m.size());
        }
        size.all += size.kept();
        size.events = std::fs::metadata(trace.join("events.zst"))?.size();
        Ok(size)
    }

    /// Removes the latest trace; the store of kept files stays, as it does in daily use.
    ///
    /// # Errors
    /// Of the file system.
    pub fn forget(&self) -> Result<()> {
        let link = self.traces.join("latest");
        let trace = link.canonicalize()?;
        std::fs::remove_dir_all(trace)?;
        Ok(std::fs::remove_file(link)?)
    }
}

/// Reprise's own errors have this exit status.
const OWN_FAILURE: i32 = 125;

/// An error when the command failed by itself, and not the program it ran.
///
/// # Errors
/// See above.
pub fn own_failure(sample: &Sample) -> Result<()> {
    if sample.status.code() == Some(OWN_FAILURE) {
        bail!("reprise failed: {}", sample.stderr.trim());
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    // Benches lie in TARGET/release/deps.
    let own = std::env::current_exe()?;
    let profile = own
        .ancestors()
        .nth(2)
        .context("the bench lies in no target directory")?;
    let target = profile.parent().context("no target directory")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(["build", "--release", "-q", "-p", "reprise", "--target-dir"])
        .arg(target)
        .current_dir(top())
        .status()
        .context("cargo")?;
    if !done.success() {
        bail!("reprise does not build");
    }
    Ok(target.join("release/reprise"))
}

/// The project's top directory.
pub fn top() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}
