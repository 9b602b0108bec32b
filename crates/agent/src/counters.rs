//! The session's counters by name.

use reprise_abi::session::{is_memory_device, Session};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that a recording's program has sent to its standard output, to its standard error, and to both where they are one file.
pub const OUTPUT_BYTES: [&str; 3] = ["stdout_bytes", "stderr_bytes", "output_bytes"];

/// How much went to the outputs that were there when the program began. Of the null device it can't be said: who opens it has the same file.
pub fn output_bytes(s: &Session) -> BTreeMap<String, u64> {
    const CHARACTER_DEVICE: u64 = 0o020000;
    let places = s
        .outputs
        .each_ref()
        .map(|words| words.each_ref().map(|w| w.load(Relaxed)));
    let is_counted = |place: &[u64; 3]| {
        *place != [0; 3] && !(place[2] != 0 && is_memory_device(CHARACTER_DEVICE, place[2]))
    };
    let bytes = s.output_bytes.each_ref().map(|n| n.load(Relaxed));
    let [out, err, both] = OUTPUT_BYTES;
    let mut found = BTreeMap::new();
    if places[0] == places[1] && is_counted(&places[0]) {
        found.insert(both.to_string(), bytes[0] + bytes[1]);
        return found;
    }
    for ((name, place), n) in [out, err].into_iter().zip(&places).zip(bytes) {
        if is_counted(place) {
            found.insert(name.to_string(), n);
        }
    }
    found
}

/// All counters, as `info --json` shows them.
pub fn read(s: &Session) -> BTreeMap<String, u64> {
    let c = &s.counters;
    [
        ("dispatched", &c.dispatched),
        ("patched", &c.patched),
        ("handoffs", &c.handoffs),
        ("cuts", &c.cuts),
        ("signals_at_gates", &c.signals_at_gates),
        ("signals_in_code", &c.signals_in_code),
        ("stood", &s.stood),
        ("stood_not", &s.stood_not),
        ("copies", &s.copies),
        ("copies_found", &s.copies_found),
        ("copies_after_epochs", &s.copies_after_epochs),
        ("copies_pause_ns", &s.copies_pause_ns),
        ("epochs_same", &s.epochs_same),
        ("epochs_unlike", &s.epochs_unlike),
        ("epochs_recovered", &s.epochs_recovered),
        ("epochs_ahead", &s.epochs_ahead),
        ("epochs_in_code", &s.epochs_in_code),
        ("epochs_serial", &s.epochs_serial),
        ("epochs_left_out", &s.epochs_left_out),
        ("epochs_with_births", &s.epochs_with_births),
        ("epoch_difference", &s.epoch_difference),
        ("epoch_difference_at", &s.epoch_difference_at),
        ("outputs_held", &s.outputs_held),
        ("epochs_paused", &s.epochs_paused),
        ("slices_same", &s.slices_same),
        ("slices_unlike", &s.slices_unlike),
        ("slices_bytes", &s.slices_bytes),
        ("stolen", &c.stolen),
        ("hashed", &c.hashed),
        ("hashes", &c.hashes),
        ("false_hits", &c.false_hits),
        ("tracked", &c.tracked),
        ("ring_full_ns", &c.ring_full_ns),
        ("instructions", &c.instructions),
        ("torn_events", &c.torn_events),
        ("hooked", &c.hooked),
        ("locked_sites", &c.locked_sites),
        ("locked_traps", &c.locked_traps),
        ("locked_missed", &c.locked_missed),
        ("ring_looks", &c.ring_looks),
        ("ring_news", &c.ring_news),
        ("det_spins", &c.det_spins),
        ("det_rounds", &c.det_rounds),
        ("det_alone", &c.det_alone),
        ("det_kept", &c.det_kept),
        ("det_scans", &c.det_scans),
        ("det_renewed", &c.det_renewed),
        ("det_twins", &c.det_twins),
        ("det_led", &c.det_led),
        ("det_whole", &c.det_whole),
        ("det_early", &c.det_early),
        ("det_spared", &c.det_spared),
        ("det_owned", &c.det_owned),
        ("det_claimed", &c.det_claimed),
        ("det_io", &c.det_io),
    ]
    .into_iter()
    .map(|(n, v)| (n.to_string(), v.load(Relaxed)))
    .collect()
}
