//! Feeds a system call and a program's own seccomp filter to [`reprise_runtime::gate::seccomp::bpf::run`].
//!
//! Must hold: no panic; no more steps than the filter has instructions; the verdict follows from the call alone.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reprise_fuzz::filters(data));
