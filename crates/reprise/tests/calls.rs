//! One system call after the other: what it does, and how it fails. Nearly all of them twice: alone, when the kernel works on the
//! program's own memory, and beside another thread, when it gets scratch memory.

mod common;

// Descriptors.
guests! {
    read_interrupted, write_interrupted, pipe_partial, bad_descriptors, descriptor_limits, close_ranges, epoll_edges, poll_states,
    vectors, copies_between_files, owners_and_leases,
}

// Files and their names.
guests! { sparse_files, names, directories, file_times, file_locks, system_files, random_bytes }

// Sockets.
guests! { unix_datagrams, unix_names, tcp_states }

// Memory.
guests! { no_memory, memfd_seals, protections }

// Signals, timers and events that are read.
guests! {
    signals_queued, signal_flags, timerfds, eventfds, signalfds, inotify_events, pidfds, interval_timers, sleeps,
}

// The process.
guests! { limits, process_options }
