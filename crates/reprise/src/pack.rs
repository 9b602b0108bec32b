//! `reprise pack`: one self-contained file, to be sent to someone else.

use crate::cli::PackArgs;
use crate::human;
use anyhow::bail;
use reprise_console::tell;
use reprise_trace::{pack, Catalog};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// `reprise pack`
pub fn run(args: &PackArgs) -> anyhow::Result<()> {
    if let Some(file) = args.trace.as_deref().filter(|p| p.is_file()) {
        bail!(
            "{} is a file, perhaps packed already; name a trace that `reprise ls` lists",
            file.display()
        );
    }
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let file = args.output.clone().unwrap_or_else(|| usual_name(&dir));
    let size = pack::pack(&dir, &file)?;
    if !args.quiet {
        let (file, size) = (file.display(), human::size(size));
        tell!("packed into {file} ({size}); replay it with `reprise replay {file}`")?;
    }
    Ok(())
}

/// `NAME.reprise` in the working directory.
fn usual_name(dir: &Path) -> PathBuf {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.into());
    let mut name = whole
        .file_name()
        .map_or_else(|| OsString::from("trace"), OsString::from);
    name.push(".");
    name.push(pack::EXTENSION);
    name.into()
}
