//! What a program may do to its recorder, and a trace to whoever replays it.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod hostile;
mod isolation;
mod packets;
mod sandbox;
mod scribbles;
mod untrusted;
