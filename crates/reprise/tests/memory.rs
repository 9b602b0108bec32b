//! Memory: mappings of every kind, what moves, shrinks and is taken away, what a handler provides, and where there is none.

mod common;

guests! {
    no_memory, memfd_seals, protections, truncated_mappings, address_space_limit, address_space_room, mapping_flags, moved_mappings,
    resident_pages, kinds_of_advice, memory_not_inherited, pages_on_demand, own_memory_by_calls, barriers,
}
