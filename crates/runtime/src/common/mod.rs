//! Halves of recording and of replaying that several engines have: a call made until it isn't made again, outputs written, a recorded signal
//! delivered, a stopped thread looked at, the search for a named place.

pub mod apply;
pub mod deliver;
pub mod make;
pub mod plain;
pub mod rebuilt;
pub mod report;
pub mod rewriting;
pub mod search;
pub mod segment;
pub mod start;
pub mod state;
pub mod stopped;
pub mod time_left;
