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
    /// CLONE_PIDFD with CLONE_VFORK
    VFORK_PIDFD = 21: "the program wanted a descriptor of a child for which it waits (CLONE_PIDFD with CLONE_VFORK), which is not recorded: it got EINVAL";
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
