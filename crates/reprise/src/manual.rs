//! Completion scripts and manual pages, made from the command line's own definition.

use crate::cli::{definition, CompletionsArgs, ManArgs};
use anyhow::{bail, Context};
use reprise_console::Output;
use std::io::Write;

/// `reprise completions SHELL`
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "reprise", &mut script);
    Output
        .write_all(&script)
        .context("can't print the completion script")
}

/// `reprise man [COMMAND]`, `reprise man -o DIR`
pub fn man(args: &ManArgs) -> anyhow::Result<()> {
    let mut command = definition().disable_help_subcommand(true);
    command.build();
    if let Some(dir) = &args.output {
        std::fs::create_dir_all(dir).with_context(|| format!("can't create {}", dir.display()))?;
        return clap_mangen::generate_to(command, dir)
            .with_context(|| format!("can't write manual pages into {}", dir.display()));
    }
    let page = match &args.command {
        None => command,
        Some(name) => match command.find_subcommand(name) {
            Some(found) => found.clone(),
            None => bail!("reprise has no command `{name}`; `reprise --help` lists them"),
        },
    };
    let mut roff = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut roff)
        .and_then(|()| Output.write_all(&roff))
        .context("can't print the manual page")
}
