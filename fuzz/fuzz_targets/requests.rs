//! Feeds what the agent takes out of memory that the program can write: words as a request ([`reprise_agent::asked`]), then writes to the request, the window,
//! the slots, the processes, the rings and their indices, and between them what an agent does: draining, merging, burying, answering.
//!
//! Must hold: no panic; it ends; nothing outside of the tables, the window and the rings is touched; the trace holds whole events only, and is complete.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_fuzz::requests(data));
