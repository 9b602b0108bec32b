//! Threads that wait by looking at memory, under `serial`: a meeting costs a hand-off, not a slice.

use crate::common;

use common::check;

#[test]
fn waits_by_looking() {
    // The guest's rounds, at each of which the threads wait for each other at least once.
    const ROUNDS: u64 = 400;
    for (label, infos) in check("waits_by_looking") {
        for info in infos {
            let (cuts, hand_offs) = (info.counter("cuts"), info.counter("handoffs"));
            assert!(
                hand_offs >= ROUNDS && cuts < ROUNDS / 4,
                "{label}: {hand_offs} hand-offs, and {cuts} slices cut in threads that only wait"
            );
        }
    }
}
