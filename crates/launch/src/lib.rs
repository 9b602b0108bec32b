//! Bringing the runtime into a process: into a program at its exec for recording, into an empty child for replay.
//!
//! - [`shared`]: the session's memory, made by the launcher and mapped by everybody;
//! - [`saved`]: that memory as it was at a moment;
//! - [`runtime`]: the runtime's image, embedded in this binary or taken from a trace;
//! - [`cpu`]: what cpuid shall answer, and how large a signal frame's vector state is;
//! - [`features`]: the processor's features by name, and limits to what machines have in common;
//! - [`memo`]: what the `order` engine found in code, kept in a file;
//! - [`futex`]: sleeping on words of the session;
//! - [`vdso`]: the vDSO that the program sees, all gates;
//! - [`record`]: starts a program, stops it at its exec, puts the runtime in, lets it go;
//! - [`exec`]: the same for what a process of the session becomes by exec, [`attach`]: for a process that is running already;
//! - [`orderable`]: which programs the `order` engine can't record;
//! - [`ptrace`]: what the kernel offers to a tracer, [`inject`]: calls made by a traced thread in its tracer's name, and
//!   [`kernel_state`]: what they ask and set;
//! - [`pages`]: the memory that a process really has;
//! - [`stopped`]: lets a thread that is stopped go on for a moment;
//! - [`replay`]: forks a child that becomes the recorded program.

pub mod attach;
mod auxv;
pub mod confine;
pub mod cpu;
pub mod dispositions;
pub mod doings;
pub mod error;
pub mod exec;
pub mod features;
pub mod futex;
mod hand;
mod identity;
pub mod inject;
pub mod kernel_state;
pub mod known;
pub mod limits;
pub mod maps;
pub mod memo;
pub mod nested;
pub mod orderable;
pub mod pages;
#[path = "../prelink.rs"]
mod prelink;
pub mod proc_files;
pub mod process;
pub mod ptrace;
mod reach;
pub mod record;
mod remote;
pub mod replay;
pub mod runtime;
pub mod saved;
pub mod shared;
pub mod stopped;
pub mod threads;
mod tracee;
pub mod vdso;

pub use error::LaunchError;
pub use runtime::{Landmarks, OfOrder, RuntimeImage};
pub use saved::{Part, SavedSession};
pub use shared::SharedSession;
