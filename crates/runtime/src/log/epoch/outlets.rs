//! Room for output that is [held](crate::log::held), and to which descriptors it goes.

use super::{is_open, log, previous, Log, HELD_AT, LOG, MOST_HELD};
use core::sync::atomic::Ordering::Relaxed;

/// Descriptors below this can have output that is held.
pub(super) const OUTLETS: usize = 1024;

/// The leader: output to this descriptor is held. False: it can't be.
pub fn has_outlet(fd: u64) -> bool {
    let can = is_open() && fd < OUTLETS as u64;
    if can {
        log().outlets[fd as usize / 64].fetch_or(1 << (fd % 64), Relaxed);
    }
    can
}

/// The leader: a descriptor is closed in the epoch.
pub fn has_closed() {
    if is_open() {
        log().closes.store(1, Relaxed);
    }
}

/// In a copy: may a thread that has left the log write to this descriptor? It is one to which the program has written, and no other one meanwhile.
pub fn is_outlet(fd: u64) -> bool {
    let log = log();
    fd < OUTLETS as u64
        && log.closes.load(Relaxed) == 0
        && log.outlets[fd as usize / 64].load(Relaxed) & 1 << (fd % 64) != 0
}

/// In a copy: where so many bytes more are kept that are held. `None`: there is no room.
pub fn room_for_held(len: u64) -> Option<u64> {
    let used = log().held.load(Relaxed);
    (used + len <= MOST_HELD).then(|| LOG.load(Relaxed) + HELD_AT + used)
}

/// They are there.
pub fn is_held(len: u64) {
    log().held.fetch_add(len, Relaxed);
}

/// What a copy has kept of the output of the open epoch, or of the one `before`.
pub fn held(before: bool) -> &'static [u8] {
    let log = match before {
        true => previous(),
        false => is_open().then(log),
    };
    let Some(log) = log else { return &[] };
    let len = log.held.load(Relaxed).min(MOST_HELD);
    // SAFETY: mapped for as long as the log is; nobody writes there any more when it is asked for.
    unsafe {
        core::slice::from_raw_parts(
            (log as *const Log as u64 + HELD_AT) as *const u8,
            len as usize,
        )
    }
}
