//! `reprise record` and what it is told: options, outputs, ends, processes, the flight recorder, attaching.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod action;
mod attach;
mod chaos;
mod cli;
mod closed_outputs;
mod engine_none;
mod full;
mod keep;
mod keep_order;
mod killed;
mod log;
mod one_process;
mod outputs;
mod outside;
mod processes;
mod runners;
mod stop;
mod stops;
mod told_to_end;
