//! Feeds any bytes as an ELF file to those who read one. The first byte says to whom: the loader of a trace's runtime, what looks for functions in a module that
//! lies in memory, what says whether a program can be ordered, what names an address of a trace.
//!
//! Must hold: no panic; it ends, after no more reads than there is a reason for; no allocation but by what is really there; segments of a runtime are whole pages
//! that don't overlap.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_fuzz::elf(data));
