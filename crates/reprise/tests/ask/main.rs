//! Commands that ask a recording: values, calls, writers, differences, races, pictures, the view in a browser.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod bisect;
mod goroutines;
mod java;
mod mcp;
mod origin;
mod pictures;
mod python;
mod questions;
mod races;
mod view;
