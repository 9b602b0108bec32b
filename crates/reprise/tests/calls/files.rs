//! Files, descriptors, pipes and sockets.

use crate::common;

guests! {
    files_read_write, bad_pointers, metadata, descriptors, poll_select, epoll, pipes, fifo_open, passing_descriptors, unix_sockets,
    tcp_loopback, udp_loopback, notifications, splices, terminals, proc_files, message_queues, sysv_shm, sysv_shm_threads, sysv_errors, shared_offsets, unknown_call,
}

/// Calls that the table is made to forget are recorded by what they change in memory.
#[test]
fn calls_that_the_table_does_not_know() {
    for name in ["preadv", "recvmsg", "ioctl"] {
        let flags = ["--forget-syscall", name];
        let infos = common::check_times(&common::Guest::new("unknown_call"), &flags, 2, 2);
        for info in infos {
            assert!(
                info.counter("tracked") > 0,
                "{name} was not recorded by watching memory: {}",
                info.0
            );
        }
    }
    for (name, guest) in [
        ("stat", "metadata"),
        ("newfstatat", "metadata"),
        ("getdents64", "metadata"),
        ("uname", "identity"),
        ("getrandom", "randomness"),
        ("pread64", "files_read_write"),
        ("epoll_wait", "epoll"),
        ("getsockname", "tcp_loopback"),
    ] {
        common::check_times(
            &common::Guest::new(guest),
            &["--forget-syscall", name],
            1,
            1,
        );
    }
}
