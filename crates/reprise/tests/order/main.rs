//! The engine `order`, and the runtime's own locks and heap wherever else they are: under `serial --hooks`, at stops of the whole process, in the sketch of an engine.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod allocators;
mod buffers;
mod epochs;
mod guests;
mod hooks;
mod interposed;
mod libcs;
mod processes;
mod programs;
mod replays;
mod serial_hooks;
mod sketch;
mod stand;
mod stuck;
mod uniparallel;
