//! How an event gets out of the process while recording, and in while replaying; and what the program writes to the outputs that it started with.

pub mod awaited;
pub mod busy;
pub mod debugger;
pub mod epoch;
pub mod events;
pub mod followed;
pub mod held;
pub mod inputs;
pub mod output;
pub mod quiet;
pub mod ring;
pub mod seeks;
pub mod total;
