//! `reprise run`: memory that threads map, and code that comes when there are threads already.

use crate::common;

use common::det::outputs_with;
use common::Guest;

fn assert_same_always(guest: &str, runs: usize) {
    let delays = |n| vec![format!("--delays={n}")];
    let all = outputs_with(&Guest::new(guest), runs, delays);
    assert_eq!(all.len(), 1, "{guest}: {all:?}");
}

/// The lock of a library that a thread loads is in an order, and so are the functions that are hooked.
#[test]
fn code_that_a_thread_loads_is_ordered() {
    assert_same_always("det_late_code", 5);
}

/// More memory in all than the engine has room for at once.
#[test]
fn room_that_was_given_back_is_used_again() {
    assert_same_always("det_much_memory", 3);
}

/// A file that one thread maps shared, and closes, while another one waits in the kernel.
#[test]
fn files_are_mapped_for_those_who_wait_in_the_kernel() {
    assert_same_always("det_mapped_while_waiting", 6);
}

/// Address space that is only reserved needs no room, before there are threads or later.
#[test]
fn reserved_address_space_needs_no_room() {
    assert_same_always("det_reserves", 6);
}

/// While a thread maps the stacks of those that it makes, they look for what they have written.
#[test]
fn what_is_written_beside_who_makes_threads_is_kept() {
    assert_same_always("det_made_beside_lookers", 6);
}

/// A thread that could not be made leaves nothing behind that the next ones are counted by.
#[test]
fn who_makes_threads_goes_first_after_a_failure() {
    let delays = |n| vec![format!("--delays={n}")];
    let all = outputs_with(&Guest::new("det_failed_creation"), 6, delays);
    let said = all.iter().map(|out| String::from_utf8_lossy(out));
    assert_eq!(said.collect::<Vec<_>>(), ["order 123\n"]);
}

/// Guard pages are there for all threads, go with memory that moves, and leave nothing of what was there before.
#[test]
fn guard_pages_are_everybodys() {
    let delays = |n| vec![format!("--delays={n}")];
    let all = outputs_with(&Guest::new("guard_pages"), 5, delays);
    assert_eq!(all.len(), 1, "{all:?}");
    let said = String::from_utf8_lossy(all.first().expect("an output"));
    assert_eq!(
        said.matches("another: 1 -1, shared -1").count(),
        2,
        "{said}"
    );
    assert_eq!(said.matches("another: 1 0, shared 2").count(), 1, "{said}");
}
