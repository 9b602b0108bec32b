//! The operations of seccomp(2), and what of them is not offered.

use crate::syscalls::{class, commands, pointee, printed, returns, size};

commands! {
    /// All operations.
    pub const ENTRIES(operation, flags, args) {
        // The runtime judges the program's calls by the filter; its own calls pass it.
        0 SECCOMP_SET_MODE_STRICT(int) -> int: special;
        1 SECCOMP_SET_MODE_FILTER(in(16)) -> int: special;
        2 SECCOMP_GET_ACTION_AVAIL(in(4)) -> int: emulate, prompt;
        3 SECCOMP_GET_NOTIF_SIZES(out(6)) -> int: emulate, prompt;
    }
}
