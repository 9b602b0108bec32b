//! Which system calls a replayed process makes (seccomp(2)). Those that aren't here are the driver's to decide.

use crate::error::{LaunchError, Result};
use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpArgLen::Qword, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Calls that reach nothing but the process: its memory, its own signals, clocks, and descriptors that it was given or made of memory.
const OWN: &[c_long] = &[
    // Memory.
    SYS_brk,
    SYS_madvise,
    SYS_membarrier,
    SYS_memfd_create,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_mlockall,
    SYS_mprotect,
    SYS_mremap,
    SYS_msync,
    SYS_munlock,
    SYS_munlockall,
    SYS_munmap,
    SYS_pkey_alloc,
    SYS_pkey_free,
    SYS_pkey_mprotect,
    // Threads.
    SYS_arch_prctl,
    SYS_exit,
    SYS_exit_group,
    SYS_futex,
    SYS_get_robust_list,
    SYS_getcpu,
    SYS_rseq,
    SYS_sched_getaffinity,
    SYS_sched_yield,
    SYS_set_robust_list,
    SYS_set_tid_address,
    // Its own signals, and its children's ends.
    SYS_pause,
    SYS_restart_syscall,
    SYS_rt_sigaction,
    SYS_rt_sigpending,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_sigaltstack,
    SYS_wait4,
    SYS_waitid,
    // Clocks and timers.
    SYS_clock_getres,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_gettimeofday,
    SYS_nanosleep,
    SYS_time,
    SYS_timer_create,
    SYS_timer_delete,
    SYS_timer_gettime,
    SYS_timer_settime,
    SYS_times,
    // What it is.
    SYS_getegid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getpid,
    SYS_getppid,
    SYS_getrandom,
    SYS_getrusage,
    SYS_gettid,
    SYS_getuid,
    SYS_sysinfo,
    SYS_uname,
    // Descriptors.
    SYS_close,
    SYS_close_range,
    SYS_fstat,
    SYS_poll,
    SYS_ppoll,
    SYS_write,
    SYS_writev,
];

/// Calls for descriptors from 3 on, by the argument that says which. Standard output and error may be anything that the driver was given: they are
/// written to, and nothing else.
const ON_OTHERS: &[(c_long, u8)] = &[
    (SYS_dup2, 0),
    (SYS_fallocate, 0),
    (SYS_fcntl, 0),
    (SYS_ftruncate, 0),
    (SYS_lseek, 0),
    (SYS_pread64, 0),
    (SYS_preadv, 0),
    (SYS_pwrite64, 0),
    (SYS_pwritev, 0),
    (SYS_read, 0),
    (SYS_readv, 0),
    // There is no socket among them, but for that by which the listener goes to the driver.
    (SYS_sendmsg, 0),
    (SYS_sendfile, 1),
];

/// Of ioctl(2): what looks through the process's own pages (include/uapi/linux/fs.h, PAGEMAP_SCAN).
const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// What prctl(2) may set and tell: faulting clocks and the dispatch of system calls, whose range is the thread's own.
const SETTINGS: &[c_int] = &[
    PR_GET_TSC,
    PR_SET_TSC,
    PR_SET_NAME,
    PR_GET_NAME,
    59, // PR_SET_SYSCALL_USER_DISPATCH
    40, // PR_GET_TID_ADDRESS
];

/// Flags of clone(2) that must not be there where a thread is made: namespaces, and what a tracer would not be told.
const NO_THREADS: c_int = CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET
    | CLONE_UNTRACED;

/// The filter, as the kernel takes it.
pub(super) fn program() -> Result<BpfProgram> {
    let unusable =
        |e: seccompiler::BackendError| LaunchError::Unsupported(format!("no filter: {e}"));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for nr in OWN {
        rules.insert(*nr, Vec::new());
    }
    // Each of these: one of the conditions, all of whose parts hold.
    let mut when = |nr: c_long, parts: &[(u8, bool, SeccompCmpOp, u64)]| {
        let conditions = parts.iter().map(|(arg, whole, how, value)| {
            let len = if *whole { Qword } else { Dword };
            SeccompCondition::new(*arg, len, how.clone(), *value)
        });
        let conditions = conditions.collect::<std::result::Result<_, _>>();
        let rule = SeccompRule::new(conditions.map_err(unusable)?).map_err(unusable)?;
        rules.entry(nr).or_default().push(rule);
        Ok::<(), LaunchError>(())
    };
    use SeccompCmpOp::{Eq, Gt, MaskedEq, Ne};
    for (nr, arg) in ON_OTHERS {
        when(*nr, &[(*arg, false, Gt, 2)])?;
    }
    // No memory of what the driver's streams are.
    when(
        SYS_mmap,
        &[
            (4, false, Ne, 0),
            (4, false, Ne, STDOUT_FILENO as u64),
            (4, false, Ne, STDERR_FILENO as u64),
        ],
    )?;
    // With MAP_ANONYMOUS no descriptor counts.
    let anonymous = MAP_ANONYMOUS as u64;
    when(SYS_mmap, &[(3, false, MaskedEq(anonymous), anonymous)])?;
    when(
        SYS_ioctl,
        &[(0, false, Gt, 2), (1, false, Eq, PAGEMAP_SCAN)],
    )?;
    for which in SETTINGS {
        when(SYS_prctl, &[(0, false, Eq, *which as u64)])?;
    }
    // It dies with its parent; nothing takes that back.
    let death = (0, false, Eq, PR_SET_PDEATHSIG as u64);
    when(SYS_prctl, &[death, (1, true, Eq, SIGKILL as u64)])?;
    // Its own limits and processors.
    when(SYS_prlimit64, &[(0, false, Eq, 0)])?;
    when(SYS_sched_setaffinity, &[(0, false, Eq, 0)])?;
    // Is somebody there? It is told nothing else.
    when(SYS_kill, &[(1, false, Eq, 0)])?;
    let (all, thread) = ((CLONE_THREAD | NO_THREADS) as u32, CLONE_THREAD as u32);
    when(SYS_clone, &[(0, true, MaskedEq(all.into()), thread.into())])?;
    // seccompiler has no action that asks; what it puts there is exchanged below.
    const ASK: u32 = 0x7eed;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Trace(ASK),
        SeccompAction::Allow,
        TargetArch::x86_64,
    );
    let mut program: BpfProgram = filter.and_then(BpfProgram::try_from).map_err(unusable)?;
    for step in &mut program {
        if step.code == (BPF_RET | BPF_K) as u16 && step.k == SECCOMP_RET_TRACE | ASK {
            step.k = SECCOMP_RET_USER_NOTIF;
        }
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_listed_is_asked_about() {
        let program = program().expect("a filter");
        let ends = |k: u32| program.iter().filter(|s| s.code == 6 && s.k == k).count();
        assert!(ends(SECCOMP_RET_USER_NOTIF) > 0 && ends(SECCOMP_RET_ALLOW) > 0);
        assert_eq!(
            program
                .iter()
                .filter(|s| s.k & 0xffff_0000 == SECCOMP_RET_TRACE)
                .count(),
            0
        );
        assert!(program.len() < 4096, "{}", program.len());
    }
}
