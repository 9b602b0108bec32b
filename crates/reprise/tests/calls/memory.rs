//! Memory: mappings of every kind, what moves, shrinks and is taken away, what a handler provides, and where there is none.

use crate::common;

use common::{assert_same, Guest, Workplace};

guests! {
    memory_joined, memory_partly, memory_sparse, stack_limits,
}

/// What calls had done that failed in the middle, and how far a stack grows, is what it is natively, under every engine that takes the program.
#[test]
fn partial_failures_are_those_of_the_kernel() {
    let place = Workplace::new();
    for guest in [
        Guest::new("memory_partly").args(["partly.file"]),
        Guest::new("memory_joined").args(["joined.file"]),
        Guest::new("stack_limits").args(["lowered"]),
        Guest::new("stack_limits").args(["raised"]),
    ] {
        let native = guest.native(&place);
        assert!(native.status.success(), "{}", native.describe());
        for engine in ["serial", "order"] {
            let recording = place.record_with(&guest, &["--engine", engine]);
            assert_same(&native, &recording.run);
            assert_same(&recording.run, &place.replay(&recording.dir));
        }
    }
}

guests! {
    no_memory, memfd_seals, protections, truncated_mappings, private_mapping_of_shared, address_space_limit, address_space_room, mapping_flags, moved_mappings,
    resident_pages, kinds_of_advice, droppable_memory, copied_memory, memory_not_inherited, guard_pages, pages_on_demand, own_memory_by_calls, barriers,
}
