//! Where a replayed Go program runs. It makes no system calls of its own but its runtime's: memory, threads, waiting, and what it writes to its outputs.
//! Before its first instruction it gives up all else for good: new rights by exec, the file system and the network (landlock(7)), and system calls that
//! are not in the list (seccomp(2)), which fail with EPERM.

use landlock::{
    Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope, ABI,
};
use rustix::process::{setrlimit, Resource, Rlimit};
use rustix::thread::set_no_new_privs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// System calls that Go's runtime makes.
const ALLOWED: [i64; 40] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clone,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_arch_prctl,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_fcntl,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    // Landlock refuses every file but those of kernel-internal file systems, as the shared memory is.
    libc::SYS_openat,
    libc::SYS_open,
    libc::SYS_execveat,
    libc::SYS_uname,
];

/// What is prepared before the process is made.
pub struct Cell {
    domain: OwnedFd,
}

impl Cell {
    /// Prepares it.
    ///
    /// # Errors
    /// Where the kernel has no Landlock.
    pub fn new() -> io::Result<Cell> {
        let domain = || -> Option<OwnedFd> {
            let all = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
            let all = all.handle_access(AccessFs::from_all(ABI::V5)).ok()?;
            let all = all.handle_access(AccessNet::from_all(ABI::V5)).ok()?;
            let all = all.scope(Scope::AbstractUnixSocket).ok()?;
            let all = all.scope(Scope::Signal).ok()?;
            all.create().ok()?.into()
        };
        let domain = domain().ok_or_else(|| {
            io::Error::other(
                "this kernel has no Landlock, without which a replay can't be kept from files",
            )
        })?;
        Ok(Cell { domain })
    }

    /// The filter for the calling process; before it is forked, there is room for its id.
    pub fn filter() -> Vec<libc::sock_filter> {
        let load = |at: u32| libc::sock_filter {
            code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
            jt: 0,
            jf: 0,
            k: at,
        };
        let equal = |k: u32, jt: u8, jf: u8| libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt,
            jf,
            k,
        };
        let result = |k: u32| libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k,
        };
        const X86_64: u32 = 0xc000_003e;
        let refuse = result(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
        let mut filter = vec![
            load(4),
            equal(X86_64, 1, 0),
            result(libc::SECCOMP_RET_KILL_PROCESS),
            load(0),
        ];
        for call in ALLOWED {
            filter.extend([equal(call as u32, 0, 1), result(libc::SECCOMP_RET_ALLOW)]);
        }
        // Signals to itself only: the id is put in where it is known.
        filter.extend([
            equal(libc::SYS_tgkill as u32, 0, 3),
            load(16),
            equal(0, 0, 1),
            result(libc::SECCOMP_RET_ALLOW),
            refuse,
        ]);
        filter
    }

    /// Confines the calling process, which has one thread, for good.
    ///
    /// # Safety
    /// To be called in a forked child: it makes system calls only.
    ///
    /// # Errors
    /// Of the kernel.
    pub unsafe fn enter(&self, filter: &mut [libc::sock_filter]) -> io::Result<()> {
        let fails = |result: i64| match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        let own = filter.len() - 3;
        filter[own].k = std::process::id();
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = setrlimit(Resource::Core, none);
        set_no_new_privs(true)?;
        // SAFETY: plain calls; the kernel copies what is given.
        unsafe {
            fails(libc::syscall(
                libc::SYS_landlock_restrict_self,
                self.domain.as_raw_fd(),
                0,
            ))?;
            let program = libc::sock_fprog {
                len: filter.len() as u16,
                filter: filter.as_mut_ptr(),
            };
            fails(libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &program,
            ))
        }
    }
}
