//! Which system calls a replayed process makes (seccomp(2)). Those that aren't here are the driver's to decide.

//!
//! The kernel runs the filter for each number once when it is installed, to know those that always pass (`seccomp_cache_prepare`, kernel/seccomp.c), and
//! compiles it. So it is a tree over the numbers: a list, as seccompiler makes it, took 4 ms to install.

use libc::*;
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
const PAGEMAP_SCAN: u32 = 0xc060_6610;

/// What prctl(2) may set and tell: faulting clocks and the dispatch of system calls, whose range is the thread's own.
const SETTINGS: &[c_int] = &[
    PR_GET_TSC,
    PR_SET_TSC,
    PR_SET_NAME,
    PR_GET_NAME,
    59, // PR_SET_SYSCALL_USER_DISPATCH
    40, // PR_GET_TID_ADDRESS
];

/// Flags of clone(2) that must not be there: namespaces, and what a tracer would not be told.
const OUTSIDE: c_int = CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET
    | CLONE_UNTRACED;

/// What an argument, its lower 32 bits, must be.
#[derive(Clone, Copy)]
enum Is {
    Equal(u32),
    Not(u32),
    Above(u32),
    /// Of the bits of the first, exactly those of the second.
    Masked(u32, u32),
}

/// Conditions on arguments, by their numbers; all hold.
type Case = Vec<(u8, Is)>;

/// What Landlock sees to, so that the filter need not.
#[derive(Clone, Copy, Default)]
pub(super) struct Guarded {
    /// Descriptor of the directory out of which files may be opened for reading: the way does not lead out of it.
    pub files: Option<c_int>,
    /// By paths, only what is nobody else's in /proc can be read.
    pub own_memory: bool,
    /// Signals reach nobody else.
    pub signals: bool,
}

/// Calls that pass in one of some cases; always, where there is none.
fn calls(guarded: Guarded) -> BTreeMap<u32, Vec<Case>> {
    let mut calls: BTreeMap<u32, Vec<Case>> = BTreeMap::new();
    for number in OWN {
        calls.insert(*number as u32, Vec::new());
    }
    let mut when = |number: c_long, case: &[(u8, Is)]| {
        calls.entry(number as u32).or_default().push(case.into());
    };
    for (number, arg) in ON_OTHERS {
        when(*number, &[(*arg, Is::Above(2))]);
    }
    // No memory of what the driver's streams are. With MAP_ANONYMOUS no descriptor counts.
    let anonymous = MAP_ANONYMOUS as u32;
    when(SYS_mmap, &[(3, Is::Masked(anonymous, anonymous))]);
    let others = [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO].map(|fd| (4, Is::Not(fd as u32)));
    when(SYS_mmap, &others);
    when(
        SYS_ioctl,
        &[(0, Is::Above(2)), (1, Is::Equal(PAGEMAP_SCAN))],
    );
    for which in SETTINGS {
        when(SYS_prctl, &[(0, Is::Equal(*which as u32))]);
    }
    // It dies with its parent; nothing takes that back.
    let death = (0, Is::Equal(PR_SET_PDEATHSIG as u32));
    when(SYS_prctl, &[death, (1, Is::Equal(SIGKILL as u32))]);
    // Its own limits and processors.
    when(SYS_prlimit64, &[(0, Is::Equal(0))]);
    when(SYS_sched_setaffinity, &[(0, Is::Equal(0))]);
    // Is somebody there? It is told nothing else.
    when(SYS_kill, &[(1, Is::Equal(0))]);
    // Threads, and forks: they are in the box as well. The flags of clone3(2) lie in memory, where others could change them.
    when(SYS_clone, &[(0, Is::Masked(OUTSIDE as u32, 0))]);
    let by_path = guarded.own_memory.then_some(AT_FDCWD);
    for directory in guarded.files.into_iter().chain(by_path) {
        let readable = (2, Is::Equal(O_CLOEXEC as u32));
        when(SYS_openat, &[(0, Is::Equal(directory as u32)), readable]);
    }
    if guarded.signals {
        for number in [
            SYS_kill,
            SYS_tkill,
            SYS_tgkill,
            SYS_rt_sigqueueinfo,
            SYS_rt_tgsigqueueinfo,
        ] {
            calls.insert(number as u32, Vec::new());
        }
    }
    calls
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

fn load(offset: u32) -> sock_filter {
    step(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

fn end(action: u32) -> sock_filter {
    step(BPF_RET | BPF_K, action, 0, 0)
}

/// The filter, as the kernel takes it.
pub(super) fn program(guarded: Guarded) -> Vec<sock_filter> {
    // struct seccomp_data: number, architecture, address, arguments.
    const ARCHITECTURE: u32 = 4;
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    let mut program = vec![
        load(ARCHITECTURE),
        step(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        end(SECCOMP_RET_KILL_PROCESS),
        load(0),
    ];
    // Where the numbers begin that are treated alike: each call, and what lies between them. Neighbours that always pass are one.
    let calls = calls(guarded);
    let mut ranges: Vec<(u32, Option<&[Case]>)> = vec![(0, None)];
    for (number, cases) in &calls {
        match ranges.last_mut() {
            Some(last) if last.0 == *number => last.1 = Some(cases),
            Some((_, Some(before))) if before.is_empty() && cases.is_empty() => {
                if !calls.contains_key(&(number - 1)) {
                    ranges.push((*number, Some(cases)));
                }
            }
            _ => ranges.push((*number, Some(cases))),
        }
        if !calls.contains_key(&(number + 1)) {
            ranges.push((number + 1, None));
        }
    }
    program.extend(tree(&ranges));
    program
}

/// Looks for the range that the number is in, by halves.
fn tree(ranges: &[(u32, Option<&[Case]>)]) -> Vec<sock_filter> {
    if let [(_, cases)] = ranges {
        return leaf(*cases);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let (mut low, high_steps) = (tree(low), tree(high));
    let mut steps = vec![
        step(BPF_JMP | BPF_JGE | BPF_K, high[0].0, 0, 1),
        step(BPF_JMP | BPF_JA, low.len() as u32, 0, 0),
    ];
    steps.append(&mut low);
    steps.extend(high_steps);
    steps
}

/// What becomes of a call in these cases.
fn leaf(cases: Option<&[Case]>) -> Vec<sock_filter> {
    const ASK: u32 = SECCOMP_RET_USER_NOTIF;
    let Some(cases) = cases else {
        return vec![end(ASK)];
    };
    if cases.is_empty() {
        return vec![end(SECCOMP_RET_ALLOW)];
    }
    let mut steps = Vec::new();
    for case in cases {
        let mut passes = vec![end(SECCOMP_RET_ALLOW)];
        // From the last condition to the first: each knows how far it is to the next case.
        for (arg, is) in case.iter().rev() {
            let far = passes.len() as u8;
            let mut test = vec![load(16 + 8 * u32::from(*arg))];
            let compare = |how: u32, k: u32, jt: u8, jf: u8| step(BPF_JMP | how | BPF_K, k, jt, jf);
            match *is {
                Is::Equal(k) => test.push(compare(BPF_JEQ, k, 0, far)),
                Is::Not(k) => test.push(compare(BPF_JEQ, k, far, 0)),
                Is::Above(k) => test.push(compare(BPF_JGT, k, 0, far)),
                Is::Masked(mask, k) => {
                    test.push(step(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0));
                    test.push(compare(BPF_JEQ, k, 0, far));
                }
            }
            test.append(&mut passes);
            passes = test;
        }
        steps.append(&mut passes);
    }
    steps.push(end(ASK));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANDLOCKED: Guarded = Guarded {
        files: Some(7),
        own_memory: false,
        signals: false,
    };

    /// What the filter says to a call: classic BPF, as far as it is used here.
    fn verdict(number: c_long, args: [u64; 6]) -> u32 {
        let mut data = vec![number as u32, 0xc000_003e, 0, 0];
        for a in args {
            data.extend([a as u32, (a >> 32) as u32]);
        }
        let program = program(LANDLOCKED);
        let (mut at, mut a) = (0, 0u32);
        loop {
            let s = program[at];
            at += 1;
            let code = u32::from(s.code);
            let jump = |holds: bool| usize::from(if holds { s.jt } else { s.jf });
            match code {
                _ if code == BPF_LD | BPF_W | BPF_ABS => a = data[s.k as usize / 4],
                _ if code == BPF_RET | BPF_K => return s.k,
                _ if code == BPF_JMP | BPF_JA => at += s.k as usize,
                _ if code == BPF_JMP | BPF_JEQ | BPF_K => at += jump(a == s.k),
                _ if code == BPF_JMP | BPF_JGT | BPF_K => at += jump(a > s.k),
                _ if code == BPF_JMP | BPF_JGE | BPF_K => at += jump(a >= s.k),
                _ if code == BPF_ALU | BPF_AND | BPF_K => a &= s.k,
                _ => panic!("an unknown step {code:#x}"),
            }
        }
    }

    #[test]
    fn who_is_not_listed_is_asked_about() {
        let known = calls(LANDLOCKED);
        for number in 0..600 {
            let asked = verdict(number, [u64::MAX; 6]) == SECCOMP_RET_USER_NOTIF;
            match known.get(&(number as u32)) {
                None => assert!(asked, "call {number}"),
                Some(cases) if cases.is_empty() => assert!(!asked, "call {number}"),
                Some(_) => {}
            }
        }
        assert!(program(Guarded::default()).len() < BPF_MAXINSNS as usize);
    }

    #[test]
    fn arguments_decide() {
        let passes = |number, args: &[i64]| {
            let mut all = [0; 6];
            for (to, from) in all.iter_mut().zip(args) {
                *to = *from as u64;
            }
            verdict(number, all) == SECCOMP_RET_ALLOW
        };
        for fd in 0..3 {
            assert!(!passes(SYS_read, &[fd]) && !passes(SYS_sendfile, &[3, fd]));
            assert!(!passes(SYS_mmap, &[0, 4096, 1, 1, fd]));
            assert!(passes(
                SYS_mmap,
                &[0, 4096, 1, i64::from(MAP_ANONYMOUS), fd]
            ));
            assert!(passes(SYS_write, &[fd]));
        }
        assert!(passes(SYS_read, &[3]) && passes(SYS_mmap, &[0, 4096, 1, 1, 3]));
        assert!(passes(SYS_kill, &[1, 0]) && !passes(SYS_kill, &[1, 9]));
        let thread = i64::from(CLONE_THREAD | CLONE_VM | CLONE_SIGHAND);
        assert!(passes(SYS_clone, &[thread]) && passes(SYS_clone, &[SIGCHLD.into()]));
        assert!(!passes(SYS_clone, &[thread | i64::from(CLONE_NEWUSER)]));
        assert!(!passes(SYS_clone, &[thread | i64::from(CLONE_UNTRACED)]));
        let death = i64::from(PR_SET_PDEATHSIG);
        assert!(passes(SYS_prctl, &[death, 9]) && !passes(SYS_prctl, &[death, 0]));
        assert!(!passes(SYS_prctl, &[PR_SET_DUMPABLE.into(), 1]));
        assert!(passes(SYS_openat, &[7, 0, O_CLOEXEC.into()]));
        assert!(!passes(SYS_openat, &[7, 0, (O_CLOEXEC | O_RDWR).into()]));
        assert!(!passes(SYS_openat, &[AT_FDCWD.into(), 0, O_CLOEXEC.into()]));
        assert!(passes(SYS_prlimit64, &[0]) && !passes(SYS_prlimit64, &[1]));
        assert!(passes(SYS_ioctl, &[5, PAGEMAP_SCAN.into()]) && !passes(SYS_ioctl, &[5, 1]));
    }
}
