//! System calls in the name of a stopped process, many in one go: a loop of a few instructions and a table of calls are written over the
//! page of its first instruction, and it runs until the loop's breakpoint. Each stop under ptrace costs microseconds, and tens of them
//! between processors.

use crate::error::{LaunchError, Result};
use crate::tracee::Tracee;
use libc::user_regs_struct;

// `rbx`: the next call in the table, `rbp`: the table's end; `r12`, `r13`, `r14`: what was kept of results.
// A call is its number, six arguments, and how it is made. Stops behind the last one, or at one that failed.
core::arch::global_asm!(
    ".pushsection .rodata.reprise_remote,\"a\"",
    ".globl reprise_remote_begin, reprise_remote_end",
    ".hidden reprise_remote_begin, reprise_remote_end",
    "reprise_remote_begin:",
    "2:",
    "mov rax, [rbx]",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    "mov rcx, [rbx + 56]",
    "test cl, {of_first}",
    "cmovnz r8, r12",
    "test cl, {of_second}",
    "cmovnz r8, r13",
    "test cl, {on_first}",
    "cmovnz rdi, r12",
    "test cl, {on_second}",
    "cmovnz rdi, r13",
    "syscall",
    "mov rcx, [rbx + 56]",
    "test cl, {to_first}",
    "cmovnz r12, rax",
    "test cl, {to_second}",
    "cmovnz r13, rax",
    "test cl, {to_third}",
    "cmovnz r14, rax",
    "test cl, {may_fail}",
    "jnz 3f",
    "cmp rax, -4095",
    "jae 4f",
    "3:",
    "add rbx, 64",
    "cmp rbx, rbp",
    "jne 2b",
    "4:",
    "int3",
    "reprise_remote_end:",
    ".popsection",
    of_first = const OF_FIRST,
    of_second = const OF_SECOND,
    on_first = const ON_FIRST,
    on_second = const ON_SECOND,
    to_first = const TO_FIRST,
    to_second = const TO_SECOND,
    to_third = const TO_THIRD,
    may_fail = const MAY_FAIL,
);

extern "C" {
    static reprise_remote_begin: u8;
    static reprise_remote_end: u8;
}

/// The fifth argument is the first result that was kept.
pub(crate) const OF_FIRST: u64 = 1;
/// The fifth argument is the second one.
pub(crate) const OF_SECOND: u64 = 2;
/// The first argument is the first one.
pub(crate) const ON_FIRST: u64 = 4;
/// The first argument is the second one.
pub(crate) const ON_SECOND: u64 = 8;
/// The result is the first one that is kept.
pub(crate) const TO_FIRST: u64 = 16;
/// The second one.
pub(crate) const TO_SECOND: u64 = 32;
/// The third one.
pub(crate) const TO_THIRD: u64 = 64;
/// What comes of it does not matter.
pub(crate) const MAY_FAIL: u64 = 128;

const PAGE: u64 = 4096;
/// Where in the page the bytes lie that calls point to, and where the table lies.
const DATA: u64 = 256;
const TABLE: u64 = 1024;
/// Bytes of a call in the table.
const CALL: u64 = 64;

fn code() -> &'static [u8] {
    let (begin, end) = (
        &raw const reprise_remote_begin,
        &raw const reprise_remote_end,
    );
    // SAFETY: the bytes between two labels of one piece of assembly.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// The page that is written over, as it was.
pub(crate) struct Page {
    at: u64,
    was: Vec<u8>,
}

impl Page {
    /// The page of the instruction at `pc`.
    pub(crate) fn around(tracee: &Tracee, pc: u64) -> Result<Page> {
        let at = pc & !(PAGE - 1);
        let mut was = vec![0; PAGE as usize];
        tracee.read(at, &mut was)?;
        Ok(Page { at, was })
    }

    /// Makes it what it was.
    pub(crate) fn restore(&self, tracee: &Tracee) -> Result<()> {
        tracee.write(self.at, &self.was)
    }
}

/// Calls to be made one after the other.
pub(crate) struct Calls<'a> {
    page: &'a Page,
    data: Vec<u8>,
    table: Vec<[u64; 8]>,
}

/// What came of some calls.
pub(crate) struct Outcome {
    /// The results that were kept.
    pub(crate) kept: [i64; 3],
    /// The call that failed, by its place, and its error; none after it was made.
    pub(crate) failed: Option<(usize, i64)>,
}

impl<'a> Calls<'a> {
    /// None yet.
    pub(crate) fn new(page: &'a Page) -> Calls<'a> {
        Calls {
            page,
            data: Vec::new(),
            table: Vec::new(),
        }
    }

    /// Bytes that calls point to, and that they can read but not write; where they will lie.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> u64 {
        let at = self.data.len().next_multiple_of(8);
        self.data.resize(at, 0);
        self.data.extend_from_slice(bytes);
        assert!(DATA + self.data.len() as u64 <= TABLE, "too many bytes");
        self.page.at + DATA + at as u64
    }

    /// Adds a call; `how` of the flags above.
    pub(crate) fn add(&mut self, nr: i64, args: [u64; 6], how: u64) {
        let [a, b, c, d, e, f] = args;
        self.table.push([nr as u64, a, b, c, d, e, f, how]);
        let end = TABLE + CALL * self.table.len() as u64;
        assert!(end <= PAGE, "too many calls");
    }

    /// Makes them.
    ///
    /// # Errors
    /// When the process died of it.
    pub(crate) fn make(&self, tracee: &Tracee, entry: &user_regs_struct) -> Result<Outcome> {
        let mut bytes = code().to_vec();
        assert!(bytes.len() as u64 <= DATA);
        bytes.resize(DATA as usize, 0);
        bytes.extend_from_slice(&self.data);
        bytes.resize(TABLE as usize, 0);
        bytes.extend(self.table.iter().flatten().flat_map(|w| w.to_le_bytes()));
        tracee.write(self.page.at, &bytes)?;
        let first = self.page.at + TABLE;
        let end = first + CALL * self.table.len() as u64;
        let start = user_regs_struct {
            rip: self.page.at,
            rbx: first,
            rbp: end,
            // No call is to be restarted.
            orig_rax: u64::MAX,
            ..*entry
        };
        let after = tracee.run(&start)?;
        if after.rip != self.page.at + code().len() as u64 {
            return Err(LaunchError::Unsupported(
                "calls in its name ended elsewhere".into(),
            ));
        }
        let failed =
            (after.rbx != end).then(|| (((after.rbx - first) / CALL) as usize, after.rax as i64));
        Ok(Outcome {
            kept: [after.r12, after.r13, after.r14].map(|r| r as i64),
            failed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracee::{self, Tracee};

    /// A child that is stopped, and ended when dropped.
    struct Child(Tracee);

    impl Child {
        fn stopped() -> Child {
            // SAFETY: the child makes only calls that are safe after fork.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: as above.
                unsafe {
                    libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                    loop {
                        libc::raise(libc::SIGSTOP);
                    }
                }
            }
            assert!(libc::WIFSTOPPED(tracee::wait(pid).expect("a stop")));
            Child(Tracee::new(pid).expect("its memory"))
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            tracee::end(self.0.pid);
        }
    }

    #[test]
    fn results_are_kept_used_and_checked() {
        let child = Child::stopped();
        let tracee = &child.0;
        let entry = tracee.registers().expect("registers");
        let page = Page::around(tracee, entry.rip).expect("its page");

        let mut calls = Calls::new(&page);
        let path = calls.data(b"/dev/null\0");
        let at = libc::AT_FDCWD as u64;
        calls.add(libc::SYS_openat, [at, path, 0, 0, 0, 0], TO_FIRST);
        calls.add(libc::SYS_getpid, [0; 6], TO_SECOND);
        // Nobody has this descriptor.
        calls.add(libc::SYS_close, [0xffff_fff0, 0, 0, 0, 0, 0], MAY_FAIL);
        calls.add(libc::SYS_dup, [0; 6], ON_FIRST | TO_THIRD);
        calls.add(libc::SYS_close, [0; 6], ON_FIRST);
        let made = calls.make(tracee, &entry).expect("made");
        assert_eq!(made.failed, None);
        assert!(
            made.kept[0] >= 0 && made.kept[2] > made.kept[0],
            "{:?}",
            made.kept
        );
        assert_eq!(made.kept[1], i64::from(tracee.pid));

        // It is closed now: the mapping of it fails, and what follows is not made.
        let mut calls = Calls::new(&page);
        let fd = made.kept[0] as u64;
        calls.add(libc::SYS_getpid, [0; 6], TO_SECOND);
        calls.add(libc::SYS_mmap, [0, PAGE, 1, 2, fd, 0], 0);
        calls.add(libc::SYS_getppid, [0; 6], TO_SECOND);
        let made = calls.make(tracee, &entry).expect("made");
        assert_eq!(made.failed, Some((1, -i64::from(libc::EBADF))));
        assert_eq!(made.kept[1], i64::from(tracee.pid));

        page.restore(tracee).expect("restored");
        let mut now = vec![0; PAGE as usize];
        tracee.read(page.at, &mut now).expect("read");
        assert!(now == page.was);
    }
}
