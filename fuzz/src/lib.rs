//! Fuzz targets for what Reprise reads from strangers; `scripts/fuzz.sh` builds and runs them.

mod bodies;
mod limit;

pub use bodies::*;
