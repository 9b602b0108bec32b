//! Go programs, recorded and replayed at the level of goroutines (Castor, sections 3.5 and 4.2).
//!
//! [`overlay`] makes the toolchain put hooks into its own runtime and standard library; [`log`] is what a program built so shares with Reprise;
//! [`process`] starts it, and [`cell`] keeps a replayed one from everything else.

pub mod cell;
pub mod log;
pub mod overlay;
pub mod process;
