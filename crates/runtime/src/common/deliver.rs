//! Delivering a recorded signal.

use crate::common::rebuilt;
use crate::common::report::{diverge, Actual};
use crate::dispatch::with_engine;
use crate::engine::Engine;
use crate::log::ring::Reader;
use crate::signal::frame::{self, FpState};
use crate::signal::kernel;
use crate::thread::signals::{Siginfo, ACTIONS, SIGSEGV};
use crate::thread::{Block, Frame};
use reprise_abi::event::{EventHeader, Kind};
use reprise_abi::session::divergence_kind as kinds;

/// What came with a recorded signal.
pub fn take_siginfo(h: EventHeader) -> Siginfo {
    let mut r = Reader::begin(h);
    r.args();
    let mut info = Siginfo::ZERO;
    if let Some((_, len, _)) = r.section() {
        let mut bytes = [0u8; 128];
        r.to_buffer(len, &mut bytes);
        for (w, b) in info.words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(b);
            *w = u64::from_le_bytes(word);
        }
    }
    r.finish();
    info
}

/// Delivers the recorded signal.
pub fn deliver(t: &mut Block, frame: &mut Frame, fp: FpState, h: EventHeader) {
    let info = take_siginfo(h);
    if !rebuilt::same_code(h.value as u64, frame.rip) {
        let actual = Actual {
            detail: h.detail,
            value: frame.rip as i64,
            ..Actual::of(Kind::Signal)
        };
        diverge(t, kinds::ARGUMENT, None, &actual);
    }
    let action = ACTIONS.get(h.detail.clamp(1, 64));
    if !frame::deliver(t, frame, fp, &info, &action, [0; 3]) {
        with_engine!(E => E::process_dies(t, SIGSEGV));
        kernel::die_now(SIGSEGV);
    }
}
