//! Sockets, queues, semaphores, keys: what passes between programs, call by call, with the errors of each.

// Sockets.
guests! {
    unix_datagrams, unix_names, tcp_states, claimed_credentials, socket_options, accepting, half_closed, peeking, message_batches,
    refused_datagrams, stamped_packets, interface_lists, ipv6_loopback, socket_families, splices_and_sockets, pointers_of_sockets,
}

// Queues, semaphores, keys.
guests! { posix_queues, queue_notices, ipc_tables, semaphore_undo, keys }
