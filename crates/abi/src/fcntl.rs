//! The commands of fcntl(2), and what its third argument is for each.

use crate::spec::SubCall;
use crate::syscalls::{class, commands, find, pointee, printed, returns, size, sorted};

commands! {
    /// All commands.
    pub const ENTRIES(fd, cmd, arg) {
        0 F_DUPFD(fd) -> fd: emulate, prompt;
        1 F_GETFD(int) -> int: emulate, prompt, asks;
        2 F_SETFD(int) -> int: emulate, prompt;
        3 F_GETFL(int) -> int: emulate, prompt, asks;
        4 F_SETFL(int) -> int: emulate, prompt;
        // Locks on files of a network or FUSE file system ask the server.
        5 F_GETLK(inout(32)) -> int: emulate, asks;
        6 F_SETLK(in(32)) -> int: emulate;
        7 F_SETLKW(in(32)) -> int: emulate, waits, restarts;
        8 F_SETOWN(int) -> int: emulate, prompt;
        9 F_GETOWN(int) -> int: emulate, prompt, asks;
        10 F_SETSIG(signal) -> int: emulate, prompt;
        11 F_GETSIG(int) -> int: emulate, prompt, asks;
        15 F_SETOWN_EX(in(8)) -> int: emulate, prompt;
        16 F_GETOWN_EX(out(8)) -> int: emulate, prompt, asks;
        17 F_GETOWNER_UIDS(out(8)) -> int: emulate, prompt, asks;
        36 F_OFD_GETLK(inout(32)) -> int: emulate, asks;
        37 F_OFD_SETLK(in(32)) -> int: emulate;
        38 F_OFD_SETLKW(in(32)) -> int: emulate, waits, restarts;
        1024 F_SETLEASE(int) -> int: emulate;
        1025 F_GETLEASE(int) -> int: emulate, prompt, asks;
        1026 F_NOTIFY(hex) -> int: emulate, prompt;
        1027 F_DUPFD_QUERY(fd) -> int: emulate, prompt, asks;
        1028 F_CREATED_QUERY(int) -> int: emulate, prompt, asks;
        1029 F_CANCELLK(in(32)) -> int: emulate;
        1030 F_DUPFD_CLOEXEC(fd) -> fd: emulate, prompt;
        1031 F_SETPIPE_SZ(int) -> int: emulate, prompt;
        1032 F_GETPIPE_SZ(int) -> int: emulate, prompt, asks;
        1033 F_ADD_SEALS(hex) -> int: emulate;
        1034 F_GET_SEALS(int) -> int: emulate, prompt, asks;
        1035 F_GET_RW_HINT(out(8)) -> int: emulate, prompt, asks;
        1036 F_SET_RW_HINT(in(8)) -> int: emulate;
        1037 F_GET_FILE_RW_HINT(out(8)) -> int: emulate, prompt, asks;
        1038 F_SET_FILE_RW_HINT(in(8)) -> int: emulate, prompt;
        1039 F_GETDELEG(inout(8)) -> int: emulate, asks;
        1040 F_SETDELEG(in(8)) -> int: emulate;
    }
}

static BY_NUMBER: [u16; ENTRIES.len()] = sorted(ENTRIES);

/// The command with this number (the kernel looks at its lower 32 bits only).
pub fn lookup(command: u64) -> Option<&'static SubCall> {
    find(ENTRIES, &BY_NUMBER, command as u32 as u64)
}
