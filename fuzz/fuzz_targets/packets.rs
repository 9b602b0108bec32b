//! Feeds any bytes as what gdb says on its connection, and as what is answered.
//!
//! Must hold: no panic; it ends; nothing that was said is lost, or kept for long; conditions of breakpoints are no longer than allowed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_debug::fuzzed::packets(data));
