//! Calls on processes and threads: their making and ending, identities, limits, scheduling.

use crate::prctl::ARCH_ENTRIES;
use crate::seccomp::ENTRIES as SECCOMP_ENTRIES;

calls! {
    24 SCHED_YIELD sched_yield() -> int: special, prompt;
    39 GETPID getpid() -> int: emulate, prompt;
    56 CLONE clone(flags: flags(CLONE), stack: addr, parent_tid: out(4), child_tid: out(4), tls: hex) -> int: special;
    57 FORK fork() -> int: special;
    // The parent sleeps until its child execs or ends; no signal wakes it.
    58 VFORK vfork() -> int: special, waits;
    59 EXECVE execve(pathname: path, argv: strings, envp: strings) -> int: special;
    60 EXIT exit(status: int) -> int: special, prompt;
    61 WAIT4 wait4(pid: int, wstatus: out(4), options: flags(WAIT), rusage: out(144)) -> int: emulate, waits, restarts;
    97 GETRLIMIT getrlimit(resource: one_of(RLIMIT), rlim: out(16)) -> int: emulate, prompt;
    98 GETRUSAGE getrusage(who: int, usage: out(144)) -> int: emulate, prompt;
    100 TIMES times(buf: out(32)) -> int: emulate, prompt;
    // Between threads of one memory the runtime answers (LeakSanitizer); a debugger inside the session would fight with ours.
    101 PTRACE ptrace(request: int, pid: int, addr: addr, data: addr) -> int: special, prompt;
    102 GETUID getuid() -> int: emulate, prompt;
    104 GETGID getgid() -> int: emulate, prompt;
    105 SETUID setuid(uid: int) -> int: emulate, prompt;
    106 SETGID setgid(gid: int) -> int: emulate, prompt;
    107 GETEUID geteuid() -> int: emulate, prompt;
    108 GETEGID getegid() -> int: emulate, prompt;
    109 SETPGID setpgid(pid: int, pgid: int) -> int: emulate, prompt;
    110 GETPPID getppid() -> int: emulate, prompt;
    111 GETPGRP getpgrp() -> int: emulate, prompt;
    112 SETSID setsid() -> int: emulate, prompt;
    113 SETREUID setreuid(ruid: int, euid: int) -> int: emulate, prompt;
    114 SETREGID setregid(rgid: int, egid: int) -> int: emulate, prompt;
    115 GETGROUPS getgroups(size: int, list: out(size * 4) wrote(result * 4)) -> int: emulate, prompt;
    116 SETGROUPS setgroups(size: int, list: in(size * 4)) -> int: emulate, prompt;
    117 SETRESUID setresuid(ruid: int, euid: int, suid: int) -> int: emulate, prompt;
    118 GETRESUID getresuid(ruid: out(4), euid: out(4), suid: out(4)) -> int: emulate, prompt;
    119 SETRESGID setresgid(rgid: int, egid: int, sgid: int) -> int: emulate, prompt;
    120 GETRESGID getresgid(rgid: out(4), egid: out(4), sgid: out(4)) -> int: emulate, prompt;
    121 GETPGID getpgid(pid: int) -> int: emulate, prompt;
    122 SETFSUID setfsuid(fsuid: int) -> int: emulate, prompt;
    123 SETFSGID setfsgid(fsgid: int) -> int: emulate, prompt;
    124 GETSID getsid(pid: int) -> int: emulate, prompt;
    // A version that the kernel does not know is answered by the one it prefers, and the call fails. The oldest one has one structure, not two.
    125 CAPGET capget(hdrp: inout(8) always, datap: out([hdrp] == 0x19980330 ? 12 : 24)) -> int: emulate, prompt;
    126 CAPSET capset(hdrp: inout(8) always, datap: in([hdrp] == 0x19980330 ? 12 : 24)) -> int: emulate, prompt;
    135 PERSONALITY personality(persona: hex) -> int: emulate, prompt;
    140 GETPRIORITY getpriority(which: int, who: int) -> int: emulate, prompt;
    141 SETPRIORITY setpriority(which: int, who: int, prio: int) -> int: emulate, prompt;
    142 SCHED_SETPARAM sched_setparam(pid: int, param: in(4)) -> int: emulate;
    143 SCHED_GETPARAM sched_getparam(pid: int, param: out(4)) -> int: emulate, prompt;
    144 SCHED_SETSCHEDULER sched_setscheduler(pid: int, policy: one_of(SCHED), param: in(4)) -> int: emulate;
    145 SCHED_GETSCHEDULER sched_getscheduler(pid: int) -> int: emulate, prompt;
    146 SCHED_GET_PRIORITY_MAX sched_get_priority_max(policy: one_of(SCHED)) -> int: emulate, prompt;
    147 SCHED_GET_PRIORITY_MIN sched_get_priority_min(policy: one_of(SCHED)) -> int: emulate, prompt;
    148 SCHED_RR_GET_INTERVAL sched_rr_get_interval(pid: int, tp: out(16)) -> int: emulate, prompt;
    157 PRCTL prctl(option: one_of(PRCTL), arg2: prctl, arg3: hex, arg4: hex, arg5: hex) -> int: special;
    158 ARCH_PRCTL arch_prctl(op: one_of(ARCH_PRCTL), addr: command(op, ARCH_ENTRIES)) -> int: special, prompt;
    160 SETRLIMIT setrlimit(resource: one_of(RLIMIT), rlim: in(16)) -> int: emulate, prompt;
    186 GETTID gettid() -> int: emulate, prompt;
    203 SCHED_SETAFFINITY sched_setaffinity(pid: int, cpusetsize: uint, mask: in(cpusetsize)) -> int: emulate;
    204 SCHED_GETAFFINITY sched_getaffinity(
        pid: int, cpusetsize: uint, mask: out(cpusetsize) wrote(result),
    ) -> int: emulate, prompt;
    // Both exist for 32-bit programs only.
    205 SET_THREAD_AREA set_thread_area(u_info: addr) -> int: refuse(ENOSYS);
    211 GET_THREAD_AREA get_thread_area(u_info: addr) -> int: refuse(ENOSYS);
    218 SET_TID_ADDRESS set_tid_address(tidptr: addr) -> int: special, prompt;
    231 EXIT_GROUP exit_group(status: int) -> int: special, prompt;
    // Whatever comes of it, the fields of `infop` are written.
    247 WAITID waitid(
        idtype: one_of(IDTYPE), id: int, infop: out(28) always, options: flags(WAIT), rusage: out(144),
    ) -> int: emulate, waits, restarts;
    251 IOPRIO_SET ioprio_set(which: int, who: int, ioprio: hex) -> int: emulate, prompt;
    252 IOPRIO_GET ioprio_get(which: int, who: int) -> int: emulate, prompt;
    272 UNSHARE unshare(flags: flags(CLONE)) -> int: emulate;
    273 SET_ROBUST_LIST set_robust_list(head: addr, len: size) -> int: special, prompt;
    274 GET_ROBUST_LIST get_robust_list(pid: int, head_ptr: out(8), len_ptr: out(8)) -> int: special, prompt;
    302 PRLIMIT64 prlimit64(
        pid: int, resource: one_of(RLIMIT), new_limit: in(16), old_limit: out(16),
    ) -> int: emulate, prompt;
    308 SETNS setns(fd: fd, nstype: flags(CLONE)) -> int: emulate;
    309 GETCPU getcpu(cpu: out(4), node: out(4), tcache: addr) -> int: emulate, prompt;
    310 PROCESS_VM_READV process_vm_readv(
        pid: int, local_iov: iov_out(liovcnt), liovcnt: size, remote_iov: in(riovcnt * 16), riovcnt: size, flags: hex,
    ) -> int: emulate;
    // It could write memory of the session behind everybody's back.
    311 PROCESS_VM_WRITEV process_vm_writev(
        pid: int, local_iov: iov_in(liovcnt), liovcnt: size, remote_iov: in(riovcnt * 16), riovcnt: size, flags: hex,
    ) -> int: refuse(EPERM);
    312 KCMP kcmp(pid1: int, pid2: int, type: int, idx1: size, idx2: size) -> int: emulate, prompt;
    // A size of 0 stands for 48; a structure of another size is told the right one, and the call fails.
    314 SCHED_SETATTR sched_setattr(pid: int, attr: inout([attr] + 48) always, flags: hex) -> int: emulate;
    315 SCHED_GETATTR sched_getattr(pid: int, attr: out(size), size: uint, flags: hex) -> int: emulate, prompt;
    317 SECCOMP seccomp(operation: one_of(SECCOMP), flags: hex, args: command(operation, SECCOMP_ENTRIES)) -> int: special;
    322 EXECVEAT execveat(dirfd: fd, pathname: path, argv: strings, envp: strings, flags: flags(AT)) -> int: special;
    324 MEMBARRIER membarrier(cmd: one_of(MEMBARRIER), flags: hex, cpu_id: int) -> int: emulate;
    // The kernel would write its area at moments that nothing names. libc falls back.
    334 RSEQ rseq(rseq: addr, rseq_len: uint, flags: hex, sig: hex) -> int: refuse(ENOSYS);
    434 PIDFD_OPEN pidfd_open(pid: int, flags: flags(DESCRIPTOR)) -> fd: emulate, prompt;
    // libc falls back to clone.
    435 CLONE3 clone3(cl_args: in(size), size: size) -> int: refuse(ENOSYS);
    438 PIDFD_GETFD pidfd_getfd(pidfd: fd, targetfd: fd, flags: hex) -> fd: emulate, prompt;
}
