//! Processes that a recorded program makes are not recorded: what they do to it comes through the kernel, as everything from the world. A replay makes none.

use super::replays;
use crate::engine::wish::Wish;
use crate::engines::det::Det;
use crate::gate::clone;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::thread::{Block, Frame};
use reprise_abi::det::question;

const EPERM: i64 = -1;

/// Makes a process; the result is its id.
pub fn create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
    let pid = super::told(t, question::CHILD, |t| Det::make_process(t, c, wish, start));
    if replays() && !sys::is_error(pid) {
        clone::publish_tid(wish, pid as u32);
    }
    pid
}

/// The recorded process would become another program, and its recording end there.
pub fn exec() -> i64 {
    if !replays() {
        sys::complain(&[
            "reprise: det: a program that is recorded can't become another one: it got EPERM\n",
        ]);
    }
    EPERM
}
