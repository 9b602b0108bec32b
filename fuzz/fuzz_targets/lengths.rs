//! Feeds any bytes to [`reprise_code::length`]: code of the program, of which the tables say where its instructions end.
//!
//! Must hold: no panic; of what is an instruction to `iced-x86`, whose lengths [`reprise_code::decode`] has, the tables say the same length and the same
//! LOCK prefix, or nothing; instructions that are decoded one after another lie so.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_fuzz::lengths(data));
