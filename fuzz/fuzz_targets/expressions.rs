//! Feeds any bytes as the condition of a breakpoint: an agent expression of gdb's ([`reprise_debug::expression`]).
//!
//! Must hold: no panic; it ends; its value follows from registers and memory; the machine code that it becomes is short.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_debug::fuzzed::expressions(data));
