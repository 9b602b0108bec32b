//! Feeds a packed trace to [`reprise_trace::pack::unpack`]. The first byte says how it is made: the bytes are the file, what follows the magic, the
//! archive inside (compressed here), or tell of entries (whose names, types, lengths and contents they choose; checksums and hashes are made here).
//!
//! Must hold: no panic; it ends; either there is a directory with a manifest, plain files of a trace's names only, contents that are what they are called, and
//! no more bytes than were allowed, or there is nothing at all; nothing appears anywhere else.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_fuzz::pack(data));
