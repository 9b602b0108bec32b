//! Record: rows of the session's table of files that can be referred to ([`reprise_abi::inputs`]).

use crate::memory::kept::Stamp;
use crate::thread::{process, request, session};
use core::sync::atomic::Ordering::*;
use reprise_abi::inputs::{input_state, inputs, Input, MAX_INPUTS};
use reprise_abi::session::request as requests;

/// All that were ever used.
pub fn all() -> &'static [Input] {
    let table = inputs(session());
    &table.files[..(table.used.load(Acquire) as usize).min(MAX_INPUTS)]
}

/// Can this version of a file be referred to by this row?
pub fn is_open_version(it: &Input, stamp: &Stamp) -> bool {
    let mut words = it.stamp.iter().zip(stamp);
    it.state.load(SeqCst) == input_state::OPEN && words.all(|(w, s)| w.load(Relaxed) == *s)
}

/// Is this the row of the file with this number, which nobody can change while the row is open?
pub fn is_leased(it: &Input, number: u32) -> bool {
    it.state.load(SeqCst) == input_state::OPEN
        && it.number.load(Relaxed) == number
        && it.leased.load(Relaxed) != 0
}

/// The row of this version of a file.
pub fn find(stamp: &Stamp) -> Option<usize> {
    all().iter().position(|it| is_open_version(it, stamp))
}

/// Asks the agent for the row of a descriptor's file, which is this version: also for mappings, where `maps`. Else the errno that says for how long there is none:
/// `EINVAL` for ever.
pub fn ask(fd: u64, stamp: &Stamp, maps: bool) -> Result<usize, u32> {
    const EAGAIN: u32 = 11;
    const EINVAL: u32 = 22;
    let args = [fd, process::kernel_pid() as u64, maps.into()];
    let row = match request::ask(requests::REFER, &args) {
        Some((0, answer)) => (answer[0] as usize).checked_sub(1).ok_or(EAGAIN)?,
        Some((errno, _)) => return Err(errno),
        None => return Err(EINVAL),
    };
    let it = inputs(session()).files.get(row);
    let same = it.is_some_and(|it| is_open_version(it, stamp));
    same.then_some(row).ok_or(EAGAIN)
}

/// Promises a reference, if the row is (still) as `is_right` says: whoever closes it waits for those who promised before.
pub fn promise(it: &Input, is_right: impl FnOnce(&Input) -> bool) -> bool {
    it.promised.fetch_add(1, SeqCst);
    // It may be another file's by now.
    let right = is_right(it);
    if !right {
        take_back(it);
    }
    right
}

/// A promise that isn't kept.
pub fn take_back(it: &Input) {
    it.promised.fetch_sub(1, SeqCst);
}
