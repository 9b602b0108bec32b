//! Tries the machine's facilities, each for real: a child process uses it and shows by its end whether it worked.

use reprise_launch::proc_files::Status;
use reprise_launch::{dispositions, process};
use rustix::fs::{ioctl_ficlone, memfd_create, MemfdFlags};
use rustix::process::{
    getrlimit, set_time_stamp_counter_readability, setrlimit, Resource, Rlimit, Signal,
    TimeStampCounterReadability,
};
use rustix::thread::sched_getaffinity;
use std::arch::x86_64::{__cpuid, __cpuid_count, __get_cpuid_max, _rdtsc};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const PR_SET_SYSCALL_USER_DISPATCH: libc::c_int = 59;
const PR_SYS_DISPATCH_ON: libc::c_ulong = 1;
const ARCH_SET_CPUID: libc::c_ulong = 0x1012;
const UFFD_USER_MODE_ONLY: libc::c_int = 1;
/// `struct uffdio_api`, and the feature that writes are tracked without a handler.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE: usize = 4096;

/// What a probe found: it works, or why not.
type Outcome = Result<(), String>;

/// The name of an error, as a reason.
fn reason(error: &io::Error) -> String {
    let name = error
        .raw_os_error()
        .and_then(reprise_abi::names::errno_name);
    name.map_or_else(|| error.to_string(), str::to_string)
}

fn last_error() -> String {
    reason(&io::Error::last_os_error())
}

/// How a child ended.
enum End {
    Status(i32),
    Signal(i32),
}

/// Runs `f` in a child process; its value (or 255 and above: 255) is the exit status.
///
/// `f` must not allocate or lock: other threads of this process don't exist in the child.
fn in_child(f: impl FnOnce() -> i32) -> Result<End, String> {
    // SAFETY: the child only runs `f` and ends.
    match unsafe { libc::fork() } {
        -1 => Err(format!("can't fork: {}", last_error())),
        0 => {
            quiet_death();
            let status = f();
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(status.clamp(0, 255)) }
        }
        pid => end_of(pid),
    }
}

/// A child that dies as it should leaves no core file.
fn quiet_death() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    for signal in [libc::SIGSEGV, libc::SIGSYS] {
        dispositions::restore_default(signal);
    }
}

fn end_of(pid: i32) -> Result<End, String> {
    loop {
        let status = change_of(pid)?;
        if libc::WIFEXITED(status) {
            return Ok(End::Status(libc::WEXITSTATUS(status)));
        }
        if libc::WIFSIGNALED(status) {
            return Ok(End::Signal(libc::WTERMSIG(status)));
        }
    }
}

/// The wait status of a child that ends, or stops.
fn change_of(pid: i32) -> Result<i32, String> {
    process::reap(pid).map_err(|e| format!("can't wait: {}", reason(&e)))
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(255)
}

/// The child was to die by `signal`; any exit status is an errno.
fn dies_by(signal: i32, f: impl FnOnce() -> i32) -> Outcome {
    match in_child(f)? {
        End::Signal(s) if s == signal => Ok(()),
        End::Signal(s) => Err(format!("ended by signal {s}")),
        End::Status(0) => Err("has no effect".into()),
        End::Status(e) => Err(reason(&io::Error::from_raw_os_error(e))),
    }
}

/// The child was to end with 0; any other status is an errno.
fn succeeds(f: impl FnOnce() -> i32) -> Outcome {
    match in_child(f)? {
        End::Status(0) => Ok(()),
        End::Status(e) => Err(reason(&io::Error::from_raw_os_error(e))),
        End::Signal(s) => Err(format!("ended by signal {s}")),
    }
}

/// A call outside of an empty range traps.
pub fn syscall_user_dispatch() -> Outcome {
    dies_by(libc::SIGSYS, || {
        let nothing: libc::c_ulong = 0;
        // SAFETY: affects this child only.
        match unsafe {
            libc::prctl(
                PR_SET_SYSCALL_USER_DISPATCH,
                PR_SYS_DISPATCH_ON,
                nothing,
                nothing,
                nothing,
            )
        } {
            0 => 0,
            _ => errno(),
        }
    })
}

/// rdtsc traps.
pub fn tsc_trapping() -> Outcome {
    dies_by(libc::SIGSEGV, || {
        if let Err(e) =
            set_time_stamp_counter_readability(TimeStampCounterReadability::RaiseSIGSEGV)
        {
            return e.raw_os_error();
        }
        // SAFETY: reads a counter, or dies as it should.
        unsafe { std::hint::black_box(_rdtsc()) };
        0
    })
}

/// cpuid traps.
pub fn cpuid_faulting() -> Outcome {
    dies_by(libc::SIGSEGV, || {
        // SAFETY: affects this child only.
        if unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 0) } != 0 {
            return errno();
        }
        std::hint::black_box(leaf(0));
        0
    })
}

/// A child lets itself be traced, and its parent sees it stop.
pub fn ptrace() -> Outcome {
    // SAFETY: the child stops itself and ends.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(format!("can't fork: {}", last_error())),
        0 => {
            // SAFETY: affects this child only; it ends here.
            unsafe {
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                    libc::_exit(errno().clamp(1, 255));
                }
                libc::raise(libc::SIGSTOP);
                libc::_exit(0)
            }
        }
        _ => {}
    }
    let status = change_of(pid)?;
    if libc::WIFEXITED(status) {
        return Err(reason(&io::Error::from_raw_os_error(libc::WEXITSTATUS(
            status,
        ))));
    }
    // SAFETY: it is stopped, and ours.
    let detached = unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0) } == 0;
    let why = last_error();
    if !detached {
        // It must not stay behind.
        let _ = process::send(pid, Signal::KILL);
    }
    end_of(pid)?;
    match detached {
        true => Ok(()),
        false => Err(why),
    }
}

/// Address randomisation can be switched off.
pub fn no_randomisation() -> Outcome {
    succeeds(|| {
        // SAFETY: affects this child only.
        match unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) } {
            -1 => errno(),
            _ => 0,
        }
    })
}

/// The memory of a child can be read.
pub fn process_vm_readv() -> Outcome {
    let secret: u64 = 0x7265_7072_6973_6521;
    let place = std::hint::black_box(&secret) as *const u64;
    // SAFETY: the child sleeps until it is killed.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(format!("can't fork: {}", last_error())),
        0 => loop {
            rustix::event::pause();
        },
        _ => {}
    }
    let mut copy = [0; 8];
    let n = process::read(pid, place as u64, &mut copy);
    // A child of ours that has nothing else to do.
    let _ = process::send(pid, Signal::KILL);
    end_of(pid)?;
    match n.map_err(|e| reason(&e))? {
        8 if copy == secret.to_ne_bytes() => Ok(()),
        _ => Err("reads something else".into()),
    }
}

/// A memory file can be made.
pub fn memfd() -> Outcome {
    let made = memfd_create(c"probe", MemfdFlags::CLOEXEC);
    made.map(drop).map_err(|e| reason(&e.into()))
}

fn owned(fd: i32) -> Result<OwnedFd, String> {
    match fd {
        ..0 => Err(last_error()),
        // SAFETY: just made, and nobody else's.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// Writes can be tracked without a handler (6.7 and later).
pub fn userfaultfd() -> Outcome {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
    // SAFETY: makes a descriptor.
    let fd = owned(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as i32)?;
    let mut api = [UFFD_API, UFFD_FEATURE_WP_ASYNC, 0];
    // SAFETY: the structure is three words.
    match unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(format!("no WP_ASYNC ({})", last_error())),
    }
}

/// PAGEMAP_SCAN answers for one page (6.7 and later).
pub fn pagemap_scan() -> Outcome {
    let pagemap = File::open("/proc/self/pagemap").map_err(|e| reason(&e))?;
    let page = vec![1u8; 2 * PAGE];
    let start = (page.as_ptr() as u64).next_multiple_of(PAGE as u64);
    const PAGE_IS_PRESENT: u64 = 1 << 3;
    let mut ranges = [0u64; 3];
    // struct pm_scan_arg: size, flags, start, end, walk_end, vec, vec_len, max_pages, masks.
    let mut arg = [
        96,
        0,
        start,
        start + PAGE as u64,
        0,
        ranges.as_mut_ptr() as u64,
        1,
        0,
        0,
        PAGE_IS_PRESENT,
        0,
        PAGE_IS_PRESENT,
    ];
    // SAFETY: both structures have the sizes that they say.
    match unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, arg.as_mut_ptr()) } {
        1 => Ok(()),
        -1 => Err(last_error()),
        _ => Err("finds nothing".into()),
    }
}

/// A written page's soft-dirty bit is set again after it was cleared. Nothing else in this process looks at these bits.
pub fn soft_dirty() -> Outcome {
    let (Ok(clear), Ok(pagemap)) = (
        OpenOptions::new().write(true).open("/proc/self/clear_refs"),
        File::open("/proc/self/pagemap"),
    ) else {
        return Err("no /proc/self/clear_refs".into());
    };
    let mut page = vec![1u8; 2 * PAGE];
    let offset = page.as_ptr().align_offset(PAGE);
    let index = (page.as_ptr() as usize + offset) / PAGE;
    clear.write_at(b"4", 0).map_err(|e| reason(&e))?;
    page[offset] = 2;
    std::hint::black_box(&page);
    let mut entry = [0u8; 8];
    pagemap
        .read_exact_at(&mut entry, index as u64 * 8)
        .map_err(|e| reason(&e))?;
    match u64::from_le_bytes(entry) >> 55 & 1 {
        1 => Ok(()),
        _ => Err("not in this kernel".into()),
    }
}

/// A soft limit.
pub fn limit(resource: Resource) -> u64 {
    getrlimit(resource).current.unwrap_or(u64::MAX)
}

/// How many processors this process may use.
pub fn allowed_cpus() -> u32 {
    match sched_getaffinity(None) {
        Ok(set) => set.count(),
        Err(_) => reprise_trace::Machine::current().cpus,
    }
}

#[allow(unused_unsafe)] // whether these are unsafe depends on the compiler's version
fn leaf(n: u32) -> std::arch::x86_64::CpuidResult {
    // SAFETY: every x86-64 processor has cpuid.
    unsafe { __cpuid(n) }
}

/// Bytes of the processor's XSAVE area with everything that is enabled.
#[allow(unused_unsafe)]
pub fn xsave_size() -> u32 {
    // SAFETY: as above.
    unsafe {
        match __get_cpuid_max(0).0 {
            13.. => __cpuid_count(13, 0).ebx,
            _ => 0,
        }
    }
}

/// Whether the processor has restricted transactional memory.
#[allow(unused_unsafe)]
pub fn has_rtm() -> bool {
    // SAFETY: as above.
    unsafe { __get_cpuid_max(0).0 >= 7 && __cpuid_count(7, 0).ebx >> 11 & 1 == 1 }
}

/// A field of /proc/self/status.
pub fn process_status(field: &str) -> Option<String> {
    let status = Status::of_process("self").ok()?;
    status.get(field).map(str::to_string)
}

/// Hardware counters can be opened.
pub fn perf_counters() -> Outcome {
    // struct perf_event_attr, first version: type hardware, instructions, excluding the kernel.
    let mut attr = [0u64; 8];
    attr[0] = 64 << 32;
    attr[1] = 1;
    attr[5] = 1 << 5 | 1 << 6;
    // SAFETY: the structure has the size that it says.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, -1, 0) };
    owned(fd as i32).map(drop)
}

/// A file without a name, which vanishes when it is closed.
fn nameless(dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(libc::O_TMPFILE).open(dir)
}

/// Files can be made in `dir`.
pub fn writable(dir: &Path) -> Outcome {
    match nameless(dir) {
        Ok(_) => Ok(()),
        // Not every file system knows nameless files.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            let path = dir.join(format!(".reprise-doctor.{}", std::process::id()));
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let made = options
                .open(&path)
                .and_then(|_| std::fs::remove_file(&path));
            made.map_err(|e| reason(&e))
        }
        Err(e) => Err(reason(&e)),
    }
}

/// Two files in `dir` can share their contents.
pub fn reflink(dir: &Path) -> Outcome {
    let from = nameless(dir).map_err(|e| reason(&e))?;
    let to = nameless(dir).map_err(|e| reason(&e))?;
    from.write_at(&[7; PAGE], 0).map_err(|e| reason(&e))?;
    ioctl_ficlone(to, from).map_err(|_| "not on this file system".into())
}

/// Bytes that this user can still write in `dir`.
pub fn free_space(dir: &Path) -> Option<u64> {
    let fs = rustix::fs::statvfs(dir).ok()?;
    Some(fs.f_bavail.saturating_mul(fs.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_facility_that_does_nothing_is_not_taken_for_one_that_works() {
        assert_eq!(dies_by(libc::SIGSYS, || 0), Err("has no effect".into()));
        assert_eq!(dies_by(libc::SIGSYS, || libc::EPERM), Err("EPERM".into()));
        assert_eq!(succeeds(|| libc::ENOSYS), Err("ENOSYS".into()));
        assert_eq!(succeeds(|| 0), Ok(()));
    }

    #[test]
    fn what_this_process_can_do_is_found() {
        assert_eq!(writable(&std::env::temp_dir()), Ok(()));
        assert!(free_space(Path::new("/")).is_some());
        assert!(process_status("Seccomp").is_some_and(|s| s.len() == 1));
        assert!(allowed_cpus() > 0);
        assert_eq!(memfd(), Ok(()));
    }
}
