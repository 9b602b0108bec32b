//! Feeds any bytes as `manifest.json` and as `summary.json`.
//!
//! Must hold: no panic; no manifest of a newer format is taken; what is taken can be written, and is read again as the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_fuzz::manifest(data));
