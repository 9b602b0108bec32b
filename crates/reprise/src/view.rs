//! `reprise view`: the timeline of a trace's threads in a browser.
//!
//! The page is one file, embedded here, that asks nothing of the network: a small server gives it what it shows ([`server`]), or all of it
//! is inside ([`page::whole`]). The server also knows what only a replay tells ([`place`]).

mod index;
mod page;
mod place;
mod server;
mod tiles;

pub use server::secret;

use crate::cli::ViewArgs;
use crate::human;
use crate::output;
use anyhow::Context;
use reprise_console::{say, tell};
use reprise_trace::Catalog;
use server::Server;
use std::process::{Command, Stdio};
use tiles::Tiles;

/// What opens a page in the user's browser.
const OPENER: &str = "xdg-open";

/// `reprise view`
pub fn run(args: &ViewArgs) -> anyhow::Result<()> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let mut tiles = Tiles::of_trace(&dir, args.string_limit)?;
    let (events, threads) = (tiles.index.len(), tiles.index.threads.len() as u64);
    let counts = format!(
        "{} events of {} threads",
        human::count(events),
        human::count(threads)
    );
    if let Some(why) = &tiles.index.incomplete {
        say!("{}", crate::exit::one_line(why));
    }
    if let Some(file) = &args.output {
        output::make(file, |handle| page::whole(&mut tiles, handle))?;
        let size = std::fs::metadata(file).map_or(0, |m| m.len());
        let (file, size) = (file.display(), human::size(size));
        return say(&format!(
            "{counts} written to {file} ({size}); open it in a browser"
        ));
    }
    let server = Server::listen(args.port, tiles, &dir)?;
    let url = server.url();
    say(&format!("{counts} at {url} (Ctrl-C ends it)"))?;
    if !args.no_browser {
        open(&url);
    }
    server.serve()
}

fn say(line: &str) -> anyhow::Result<()> {
    tell!("{line}").context("can't print")
}

/// Opens the page in the user's browser, where there is a way; the address was printed in any case.
fn open(url: &str) {
    let mut command = Command::new(OPENER);
    command.arg(url).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut opener) = command.spawn() {
        std::thread::spawn(move || opener.wait());
    }
}
