//! Programs that nobody here wrote: servers, services, interpreters, long runs.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod goroutines;
mod servers;
mod services;
mod soak;
mod systems;
