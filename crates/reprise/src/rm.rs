//! `reprise rm`: removes traces, and contents that no other trace needs.

use crate::cli::RmArgs;
use crate::exit::{line_of, AlreadySaid};
use crate::human;
use anyhow::bail;
use reprise_console::{say, tell};
use reprise_trace::Catalog;
use std::path::Path;

/// `reprise rm`: one that can't be removed does not save the others.
pub fn run(args: &RmArgs) -> anyhow::Result<()> {
    let catalog = Catalog::from_env()?;
    let mut failed = false;
    let mut told = Ok(());
    for what in &args.traces {
        match remove(&catalog, what) {
            Ok(_) if args.quiet => {}
            Ok(freed) => {
                told = told.and(tell!("removed {} ({})", what.display(), human::size(freed)));
            }
            Err(error) => {
                failed = true;
                say!("{}", line_of(&error).unwrap_or_default());
            }
        }
    }
    match failed {
        true => Err(AlreadySaid.into()),
        false => Ok(told?),
    }
}

fn remove(catalog: &Catalog, what: &Path) -> anyhow::Result<u64> {
    let dir = catalog.locate(what)?;
    if dir.is_file() {
        bail!(
            "{} is a file, not a trace directory; remove it with rm",
            what.display()
        );
    }
    Ok(catalog.remove(&dir)?)
}
