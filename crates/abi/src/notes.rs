//! What a recorded program wanted and did not get, for the user: a bit for each in [`Session::notes`](crate::session::Session).
//! The program goes on with the errno that makes programs fall back.

/// A note and its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its bit.
    pub bit: u64,
    /// The sentence.
    pub text: &'static str,
}

macro_rules! notes {
    ($($(#[$doc:meta])* $name:ident = $bit:literal : $text:literal;)*) => {
        $($(#[$doc])* pub const $name: u64 = 1 << $bit;)*
        /// All notes.
        pub const ALL: &[Note] = &[$(Note { bit: $name, text: $text }),*];
    };
}

notes! {
    /// ptrace(2)
    PTRACE = 0: "the program called ptrace, which has no place in a recording: it got EPERM";
    /// SECCOMP_FILTER_FLAG_NEW_LISTENER
    SECCOMP_LISTENER = 1: "the program wanted a seccomp filter with a listener, which is not recorded: it got EINVAL";
    /// A filter that is too long for the prefix.
    SECCOMP_LONG = 2: "the program wanted a seccomp filter of more than 4089 instructions: it got EINVAL";
    /// More filters than there is room for.
    SECCOMP_FULL = 3: "the program wanted more seccomp filters than a recording holds (1024, 262144 instructions in all): it got ENOMEM";
    /// PR_SET_SYSCALL_USER_DISPATCH
    DISPATCH = 4: "the program wanted Syscall User Dispatch, by which the recording lives: it got EINVAL";
    /// PR_SET_MM
    MEMORY_LAYOUT = 5: "the program wanted to move its brk, stack or auxiliary vector (PR_SET_MM): it got EPERM";
    /// PR_SET_MDWE
    WRITE_OR_EXECUTE = 6: "the program wanted memory that was written never to be executed (PR_SET_MDWE), without which no call site could be rewritten: it got EINVAL";
    /// process_vm_writev(2)
    FOREIGN_WRITE = 7: "the program called process_vm_writev, which could change a recorded memory unseen: it got EPERM";
    /// /proc/PID/mem
    MEMORY_FILE = 9: "the program wanted to write to memory as a file (/proc/PID/mem), which would change it unseen: it got EACCES";
    /// Memory that processes share, under `order`.
    ORDER_SHARED = 23: "processes shared memory that they can write to: plain loads and stores there, and atomic ones at different addresses, have no recorded order (--engine serial orders all)";
    /// A fork of a process with threads, under `order`.
    BIG_COPY = 24: "a process with several threads and more than 4 GiB of memory forked: a replay may stop there";
    /// A mapped file that neither the agent nor the program can read.
    UNREADABLE = 8: "the program mapped a file that could not be read: a replay will stop there";
    /// More shared memory than is logged after a death.
    KILLED_WHILE_SHARING = 22: "a process was killed while it ran, and shared more than 256 MiB of memory with others: what it wrote last may be missing";
    /// More robust futexes than the session's table holds.
    ROBUST_FUTEXES = 25: "threads that waited had more than 1024 robust mutexes in shared memory: what became of them when their processes ended may be missing";
    /// A System V segment that others have attached.
    SEGMENT_OF_OTHERS = 18: "the program attached a segment of shared memory that other processes have attached, too: what they write there is not recorded";
    /// A set-user-ID program, by a user who isn't root.
    IDENTITY = 19: "the program became one that is set-user-ID or set-group-ID, which the kernel gives no other identity while it is traced: it ran as its caller (record it as root)";
    /// CLONE_SIGHAND without CLONE_THREAD
    SHARED_HANDLERS = 20: "the program wanted a process that shares its signal handlers (CLONE_SIGHAND without CLONE_THREAD), which is not recorded: it got EINVAL";
    /// io_setup(2)
    AIO = 32: "the program wanted Linux AIO (io_setup), which is not recorded: it got ENOSYS";
    /// io_uring_setup(2)
    IO_URING = 33: "the program wanted io_uring, which is not recorded: it got ENOSYS";
    /// vmsplice(2)
    VMSPLICE = 34: "the program called vmsplice, by which a pipe shares memory with it, and which is not recorded: it got ENOSYS";
    /// Options of packet sockets that share a ring with the kernel, and others that the table refuses.
    SOCKET_OPTION = 35: "the program wanted a socket that shares memory with the kernel (AF_PACKET's rings, AF_XDP, zero copy), which is not recorded: it got ENOPROTOOPT";
    /// ARCH_SET_GS
    SEGMENT_BASE = 36: "the program wanted %gs for itself (ARCH_SET_GS), by which the recording lives: it got EPERM";
    /// int 0x80
    CALL_OF_32_BITS = 37: "the program made a 32-bit system call (int 0x80), which can't be recorded: it got ENOSYS";
    /// modify_ldt(2)
    LDT = 38: "the program wanted segments of its own (modify_ldt), which are not recorded: it got ENOSYS";
    /// perf_event_open(2)
    PERF = 39: "the program wanted performance counters (perf_event_open), which are not recorded: it got EACCES";
    /// userfaultfd(2)
    USERFAULTFD = 40: "the program wanted to serve its own page faults (userfaultfd), which is not recorded: it got ENOSYS";
    /// wrgsbase, swapped segments
    SEGMENT_LOST = 41: "the program changed the base of %gs by an instruction (wrgsbase), by which the recording lives: it was ended";
}

/// The sentences of these bits.
pub fn sentences(bits: u64) -> impl Iterator<Item = &'static str> {
    ALL.iter()
        .filter(move |n| bits & n.bit != 0)
        .map(|n| n.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_has_a_bit_of_its_own() {
        let all = ALL.iter().fold(0, |bits, n| bits | n.bit);
        assert_eq!(all.count_ones() as usize, ALL.len());
    }
}
