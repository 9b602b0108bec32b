//! mremap(2): in the map, and once more in a replay.
//!
//! The kernel joins neighbours that are alike, so a program can move or enlarge as one what it mapped as several. Whether it does depends on
//! which open file they show and on more that a replay has not. So a replay moves what the map has as pieces one by one, smaller ones where need
//! be, and enlarges what lies last by its last page.

use crate::machine::sys;
use crate::memory::regions::Region;
use crate::memory::{map, up};
use reprise_abi::layout::PAGE;

const EFAULT: i64 = -14;
const MAYMOVE: u64 = 1;
const FIXED: u64 = 2;
const DONTUNMAP: u64 = 4;

/// What the map has of `start..end`, in order.
pub fn pieces(start: u64, end: u64) -> impl Iterator<Item = Region> {
    let mut at = start;
    core::iter::from_fn(move || {
        let r = map().after(at).filter(|r| r.start < end)?;
        let piece = match r.start < at {
            true => map().from(at)?,
            false => r,
        };
        at = r.end;
        Some(Region {
            end: r.end.min(end),
            ..piece
        })
    })
}

/// The map after a move to `to` that succeeded; `a` are the call's arguments.
pub fn follow(a: &[u64], to: u64) {
    let (from, old, new) = (a[0], up(a[1]), up(a[2]));
    if old == 0 {
        // Shared memory, once more. Guards belong to a mapping, not to what it shows.
        if let Some(was) = map().from(from) {
            map().insert(Region {
                start: to,
                end: to + new,
                ..was.without_guards()
            });
        }
        return;
    }
    let kept = old.min(new);
    if to != from && new != old {
        map().remove(to, to + new);
    }
    let mut last = None;
    for piece in pieces(from, from + kept) {
        let place = Region {
            start: piece.start - from + to,
            end: piece.end - from + to,
            ..piece
        };
        if to != from {
            map().insert(place);
        }
        last = Some(place);
    }
    if let Some(last) = last.filter(|_| new > old) {
        let grown = Region {
            end: to + new,
            ..last.without_guards()
        };
        map().insert(match last.is_guarded() {
            true => grown.from(last.end),
            false => grown,
        });
    }
    if to == from {
        map().remove(from + new, from + old.max(new));
    } else if a[3] & DONTUNMAP == 0 {
        map().remove(from, from + old);
    } else {
        // What was there has gone, guards too.
        map().set_guarded(from, from + old, false);
    }
}

/// Replay: moves it to `to` as the recording did.
pub fn again(a: &[u64], to: u64) -> bool {
    let (from, old, new) = (a[0], up(a[1]), up(a[2]));
    let flags = MAYMOVE | FIXED | (a[3] & DONTUNMAP);
    if old == 0 {
        return sys::mremap(from, 0, new, flags, to) == to as i64;
    }
    if new < old {
        sys::munmap(from + new, old - new);
    }
    let kept = old.min(new);
    if to != from {
        // Of several mappings, which keep their size, each takes its own place only: where there is a hole, what is there stays (Linux 6.17).
        if new != old && map().after(to).is_some_and(|r| r.start < to + new) {
            sys::munmap(to, new);
        }
        for p in pieces(from, from + kept) {
            if !piece(p.start, p.end - p.start, flags, p.start - from + to) {
                return false;
            }
        }
    }
    if new <= old {
        return true;
    }
    let page = to + old - PAGE;
    sys::mremap(page, PAGE, PAGE + new - old, 0, 0) == page as i64
}

/// Moves a piece; where it is several mappings for the kernel, each by itself.
fn piece(from: u64, len: u64, flags: u64, to: u64) -> bool {
    match sys::mremap(from, len, len, flags, to) {
        r if r == to as i64 => true,
        EFAULT if len > PAGE => {
            let half = len / PAGE / 2 * PAGE;
            piece(from, half, flags, to) && piece(from + half, len - half, flags, to + half)
        }
        _ => false,
    }
}
