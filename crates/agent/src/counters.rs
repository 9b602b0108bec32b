//! The session's counters by name.

use reprise_abi::session::Session;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

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
