//! What recording and replaying cost: the parts of `cargo bench -p reprise-bench`.
//!
//! Every figure is a ratio against the same command run natively in the same minutes: a *round* is one native run, one recording and
//! one replay, and a row's figures are medians over its rounds. So a slow machine, or a busy one, changes them less than it
//! changes times.
//!
//! - [`program`] runs one command and measures it; [`reprise`] is the command that is judged.
//! - [`rows`] has what is measured and the bars, [`trees`] the rows of process trees and servers; [`input`] and [`load`] are what the programs work on.
//! - [`kernels`] has a group of rows of its own: parallel kernels, each with the bar that follows from how often it synchronises.
//! - [`order`] has the rows of `--engine order`, [`events`] what a single event costs.
//! - [`debug`] has the rows of the debugger.
//! - [`figure`] holds results, [`kept`] those that stay; [`report`] and [`summary`] make `docs/BENCHMARKS.md` of them; [`machine`] says where they were
//!   measured, and [`quiet`] whether it had nothing else to do.

pub mod debug;
pub mod det;
pub mod events;
pub mod figure;
pub mod input;
pub mod kept;
pub mod kernels;
pub mod load;
pub mod machine;
pub mod order;
pub mod program;
pub mod quiet;
pub mod reads;
pub mod report;
pub mod reprise;
pub mod rows;
pub mod summary;
pub mod trees;
