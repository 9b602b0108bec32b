//! The replaying half of `order`: every thread takes its answers from its own ring, and goes on when the stamps of its events, and the
//! numbers of its operations, come to their turn.

mod entries;
mod events;
pub mod faults;
mod gates;
mod life;
mod objects;
mod signals;

pub(super) use entries::not_as_listed;
pub use entries::settle;
pub(super) use events::{expect, expect_exit, replay_call, same_arguments};
pub(crate) use life::gives_up;
pub(super) use life::{first_header, is_over};
pub(super) use life::{header, is_unused, runs_now, take_slot};
pub use life::{is_vacant, wait_for_others_to_end};
pub use objects::{after_operation, begin_operation, end_operation, faulted_operation};
pub(super) use signals::follow;

/// Replaying in `order`.
pub struct Replay;
