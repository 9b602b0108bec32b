//! A program that writes into the session's memory where only the runtime should: the agent reads nothing outside of the rings, and goes on to its end.

use reprise_abi::order::{slots_with, OrderHead, CRASH_RING};
use reprise_agent::asked::Asked;
use reprise_agent::drain::Drain;
use reprise_agent::inputs::Inputs;
use reprise_agent::merge::{Merge, Sink};
use reprise_launch::shared::ORDER_OFFSET;
use reprise_launch::SharedSession;
use reprise_trace::{Census, Store, Writer};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::*;

/// A session with large rings, and what the agent says after it has looked at them when the program has done this.
fn damage(scribble: impl FnOnce(&SharedSession, &OrderHead)) -> Option<&'static str> {
    let mut shared = SharedSession::create().expect("a session");
    shared.add_order(CRASH_RING).expect("memory for rings");
    shared.session().slots_used.store(1, SeqCst);
    scribble(&shared, shared.order().expect("an order"));
    let dir = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::create(dir.path()).expect("a stream");
    let mut merge = Merge::new();
    let store = Store::open(dir.path()).expect("a store");
    let mut sink = Sink {
        writer: &mut writer,
        census: &mut Census::new(1),
        inputs: &mut Inputs::new(store, dir.path().into(), true),
        discard: false,
    };
    merge.all(&shared, &mut sink).expect("room in the trace");
    merge.damage()
}

#[test]
fn a_ring_is_as_large_as_it_was_made() {
    let said = damage(|shared, head| {
        // SAFETY: open for as long as the session is.
        let fd = unsafe { BorrowedFd::borrow_raw(shared.fd()) };
        let memory = std::fs::File::from(fd.try_clone_to_owned().expect("a descriptor"));
        let at = ORDER_OFFSET + offset_of!(OrderHead, ring_size) as u64;
        let size = (1u64 << 62).to_le_bytes();
        memory.write_all_at(&size, at).expect("its memory");
        // Far behind all that is mapped.
        head.rings[0].head.store(1 << 45, SeqCst);
    });
    assert_eq!(said, Some("an impossible ring index"));
}

#[test]
fn a_slot_without_a_ring_has_none() {
    let slot = slots_with(CRASH_RING);
    let said = damage(|shared, head| {
        shared.session().slots_used.store(u32::MAX, SeqCst);
        head.rings[slot].head.store(8, SeqCst);
    });
    assert_eq!(said, Some("a slot that has no ring"));
}

/// The fuzz target `requests` found it: thrown away in pieces, it would have taken years.
#[test]
fn what_is_thrown_away_takes_no_time() {
    let shared = SharedSession::create().expect("a session");
    let dir = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::create(dir.path()).expect("a stream");
    let store = Store::open(dir.path()).expect("a store");
    let inputs = Inputs::new(store, dir.path().into(), true);
    let mut drain = Drain::new(Census::new(1), inputs);
    let ring = &shared.session().ring;
    ring.head.store(u64::MAX, SeqCst);
    drain
        .all(&shared, &mut writer, true)
        .expect("nothing is written");
    assert_eq!(ring.tail.load(SeqCst), u64::MAX);
    assert_eq!(drain.damage(), None);
}

#[test]
fn words_of_a_request_fit_what_they_are_for() {
    use reprise_abi::layout::MAX_SLOTS;
    use reprise_abi::session::{request, MAX_PROCESSES, WINDOW_LEN};
    let all = [u64::MAX; 3];
    for kind in 0..64 {
        match Asked::of(kind, all) {
            Some(Asked::HandFile { len, .. }) => assert_eq!(len, WINDOW_LEN),
            Some(Asked::Exec { who, slot }) => assert!(who.is_none() && slot.is_none()),
            Some(Asked::Find { number, .. }) => assert!(number < MAX_PROCESSES),
            Some(
                Asked::KeepFile { process, .. }
                | Asked::NativeCpuid { process, .. }
                | Asked::Refer { process, .. },
            ) => {
                assert_eq!(process, None);
            }
            Some(Asked::ForgetEvent { .. }) => assert_eq!(kind, request::FORGET_EVENT),
            // Looked up in the table when it is answered.
            Some(Asked::Settle { .. }) | None => {}
        }
    }
    let exec = Asked::of(request::EXEC, [7, 6, MAX_SLOTS as u64 - 1]);
    let (who, slot) = (Some((6, 7)), Some(MAX_SLOTS - 1));
    assert_eq!(exec, Some(Asked::Exec { who, slot }));
}
