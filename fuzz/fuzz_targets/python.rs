//! Takes any bytes for the memory of a program that has an interpreter of Python ([`reprise_debug::python`]): all addresses are there, and lead to them.
//!
//! Must hold: no panic; it ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_debug::fuzzed::python(data));
