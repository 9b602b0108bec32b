//! One system call after the other: what it does, and how it fails. Nearly all of them twice: alone, when the kernel works on the
//! program's own memory, and beside another thread, when it gets scratch memory.

// Descriptors.
guests! {
    read_interrupted, write_interrupted, pipe_partial, bad_descriptors, descriptor_limits, close_ranges, epoll_edges, poll_states,
    vectors, copies_between_files, owners_and_leases, lease_breaks, directory_notices, replaced_descriptor, no_more_descriptors,
    file_status_flags, pipe_capacity, transfer_flags, huge_counts, wide_select, epoll_nested, epoll_timeouts, pointers_of_waits,
}

// Files and their names.
guests! {
    sparse_files, names, directories, file_times, file_locks, system_files, random_bytes, file_preallocation, unnamed_files, direct_io,
    append_races, extended_attributes, file_statx, open_how, file_handles, special_nodes, modes_and_owners, file_advice, path_errors,
    deep_directories, path_descriptors, file_ioctls, pointers_of_files, mounts_listed,
}

// Signals, timers and events that are read.
guests! {
    signals_queued, signal_kept, signal_at_unlock, signal_in_wait, signal_flags, timerfds, eventfds, signalfds, inotify_events, inotify_masks, fanotify_events, pidfds,
    interval_timers, sleeps, processor_time, adjusted_clocks,
}

// The process and the system.
guests! { limits, process_options, descriptor_facts, proc_settings, processors, processor_number, scheduling, locked_memory, old_calls }
