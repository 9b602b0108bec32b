//! Feeds what a trace holds beside its manifest. The first byte says what the bytes are: events in memory, a stream, a frame of events, a frame in columns
//! (with right hashes, as only an attacker makes them), an image, images and a beginning as files or by their index (again with right hashes), or checkpoints.
//!
//! Must hold: no panic; it ends; no allocation but by what is really there; each event that a reader hands out is whole and parses; what was read can be
//! written and is read again as the same, through columns too; contents of an image lie inside their regions.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_fuzz::entries(data));
