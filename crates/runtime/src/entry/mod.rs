//! Where control comes into the runtime: its first instruction in a process, a system call, a signal. What is done then is found further down; what an
//! engine has to say to it is asked through [`crate::engine::Engine`].

pub mod gate;
pub mod reenter;
pub mod signal;
pub mod start;
pub mod thread;
