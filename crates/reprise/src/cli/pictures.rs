//! What the commands that make pictures are told.

use clap::Args;
use std::path::PathBuf;

/// What `export` is told.
#[derive(Args, Debug, Clone)]
pub struct ExportArgs {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// As trace events in JSON, which ui.perfetto.dev and chrome://tracing open
    #[arg(long, required = true)]
    pub perfetto: bool,

    /// The file to make (default: NAME.json.gz in this directory); compressed if it ends in .gz; - for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Show at most so many bytes of each buffer
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 32)]
    pub string_limit: usize,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// What `view` is told.
#[derive(Args, Debug, Clone)]
pub struct ViewArgs {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Serve the page at this port of 127.0.0.1 (default: one that is free)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub port: u16,

    /// Open no browser, only say where the page is
    #[arg(long)]
    pub no_browser: bool,

    /// Write a page with the whole trace inside into this file instead of serving one
    #[arg(short, long, value_name = "FILE.html", conflicts_with_all = ["port", "no_browser"])]
    pub output: Option<PathBuf>,

    /// Show at most so many bytes of each buffer
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 32)]
    pub string_limit: usize,
}
