//! Feeds any bytes to [`reprise_place::name::Name::parse`]: the name of a state, as an event of a trace has it.
//!
//! Must hold: no panic; what is read is written as the same bytes, and can be printed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_fuzz::names(data));
