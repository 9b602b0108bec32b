//! Calls on processes and threads: their making and ending, identities, limits, scheduling.

use crate::prctl::ARCH_ENTRIES;
use crate::seccomp::ENTRIES as SECCOMP_ENTRIES;

calls! {
    24 SCHED_YIELD sched_yield() -> int: special, prompt, local, does(yields);
    39 GETPID getpid() -> pid: emulate, prompt, does(tells ProcessId);
    56 CLONE clone(flags: flags(CLONE), stack: addr, parent_tid: out(4), child_tid: out(4), tls: hex) -> pid: special, does(clones);
    57 FORK fork() -> pid: special, does(forks);
    // The parent sleeps until its child execs or ends; no signal wakes it.
    58 VFORK vfork() -> pid: special, waits, does(vforks);
    59 EXECVE execve(pathname: path, argv: strings, envp: strings) -> int: special, does(execs);
    60 EXIT exit(status: int) -> int: special, prompt, does(ends thread);
    61 WAIT4 wait4(pid: pid, wstatus: out(4), options: flags(WAIT), rusage: out(144)) -> pid: emulate, waits, restarts, nowait(options 1), does(awaits child);
    97 GETRLIMIT getrlimit(resource: one_of(RLIMIT), rlim: out(16)) -> int: emulate, prompt, asks;
    98 GETRUSAGE getrusage(who: int, usage: out(144)) -> int: emulate, prompt, local, does(tells Usage);
    100 TIMES times(buf: out(32)) -> int: emulate, prompt, local, does(tells Ticks);
    // Between threads of one memory the runtime answers (LeakSanitizer); a debugger inside the session would fight with ours.
    101 PTRACE ptrace(request: int, pid: pid, addr: addr, data: addr) -> int: special, prompt, does(traces);
    102 GETUID getuid() -> int: emulate, prompt, local;
    104 GETGID getgid() -> int: emulate, prompt, local;
    105 SETUID setuid(uid: int) -> int: emulate, prompt, hides;
    106 SETGID setgid(gid: int) -> int: emulate, prompt, hides;
    107 GETEUID geteuid() -> int: emulate, prompt, local;
    108 GETEGID getegid() -> int: emulate, prompt, local;
    109 SETPGID setpgid(pid: pid, pgid: pid) -> int: emulate, prompt, does(family);
    110 GETPPID getppid() -> pid: emulate, prompt, asks, does(family);
    111 GETPGRP getpgrp() -> pid: emulate, prompt, asks, does(family);
    112 SETSID setsid() -> pid: emulate, prompt, does(family);
    113 SETREUID setreuid(ruid: int, euid: int) -> int: emulate, prompt, hides;
    114 SETREGID setregid(rgid: int, egid: int) -> int: emulate, prompt, hides;
    115 GETGROUPS getgroups(size: int, list: out(size * 4) wrote(result * 4)) -> int: emulate, prompt, asks;
    116 SETGROUPS setgroups(size: int, list: in(size * 4)) -> int: emulate, prompt;
    117 SETRESUID setresuid(ruid: int, euid: int, suid: int) -> int: emulate, prompt, hides;
    118 GETRESUID getresuid(ruid: out(4), euid: out(4), suid: out(4)) -> int: emulate, prompt, asks;
    119 SETRESGID setresgid(rgid: int, egid: int, sgid: int) -> int: emulate, prompt, hides;
    120 GETRESGID getresgid(rgid: out(4), egid: out(4), sgid: out(4)) -> int: emulate, prompt, asks;
    121 GETPGID getpgid(pid: pid) -> pid: emulate, prompt, asks, does(family);
    122 SETFSUID setfsuid(fsuid: int) -> int: emulate, prompt, hides;
    123 SETFSGID setfsgid(fsgid: int) -> int: emulate, prompt, hides;
    124 GETSID getsid(pid: pid) -> pid: emulate, prompt, asks, does(family);
    // A version that the kernel does not know is answered by the one it prefers, and the call fails. The oldest one has one structure, not two.
    125 CAPGET capget(hdrp: inout(8) always, datap: out([hdrp] == 0x19980330 ? 12 : 24)) -> int: emulate, prompt, asks;
    126 CAPSET capset(hdrp: inout(8) always, datap: in([hdrp] == 0x19980330 ? 12 : 24)) -> int: emulate, prompt, hides;
    135 PERSONALITY personality(persona: hex) -> int: emulate, prompt;
    140 GETPRIORITY getpriority(which: int, who: pid(which 0 1)) -> int: emulate, prompt, asks;
    141 SETPRIORITY setpriority(which: int, who: pid(which 0 1), prio: int) -> int: emulate, prompt;
    142 SCHED_SETPARAM sched_setparam(pid: pid, param: in(4)) -> int: emulate;
    143 SCHED_GETPARAM sched_getparam(pid: pid, param: out(4)) -> int: emulate, prompt, asks;
    144 SCHED_SETSCHEDULER sched_setscheduler(pid: pid, policy: one_of(SCHED), param: in(4)) -> int: emulate;
    145 SCHED_GETSCHEDULER sched_getscheduler(pid: pid) -> int: emulate, prompt, asks;
    146 SCHED_GET_PRIORITY_MAX sched_get_priority_max(policy: one_of(SCHED)) -> int: emulate, prompt, asks;
    147 SCHED_GET_PRIORITY_MIN sched_get_priority_min(policy: one_of(SCHED)) -> int: emulate, prompt, asks;
    148 SCHED_RR_GET_INTERVAL sched_rr_get_interval(pid: pid, tp: out(16)) -> int: emulate, prompt, asks;
    157 PRCTL prctl(option: one_of(PRCTL), arg2: prctl, arg3: hex, arg4: hex, arg5: hex) -> int: special, does(options);
    158 ARCH_PRCTL arch_prctl(op: one_of(ARCH_PRCTL), addr: command(op, ARCH_ENTRIES)) -> int: special, prompt, does(segment base);
    160 SETRLIMIT setrlimit(resource: one_of(RLIMIT), rlim: in(16)) -> int: emulate, prompt, does(limits resource to rlim);
    186 GETTID gettid() -> pid: emulate, prompt, does(tells ThreadId);
    203 SCHED_SETAFFINITY sched_setaffinity(pid: pid, cpusetsize: uint, mask: in(cpusetsize)) -> int: emulate, does(affinity);
    204 SCHED_GETAFFINITY sched_getaffinity(
        pid: pid, cpusetsize: uint, mask: out(cpusetsize) wrote(result),
    ) -> int: emulate, prompt, asks, does(affinity);
    // Both exist for 32-bit programs only.
    205 SET_THREAD_AREA set_thread_area(u_info: addr) -> int: refuse(ENOSYS);
    211 GET_THREAD_AREA get_thread_area(u_info: addr) -> int: refuse(ENOSYS);
    218 SET_TID_ADDRESS set_tid_address(tidptr: addr) -> pid: special, prompt, does(sets exit word);
    231 EXIT_GROUP exit_group(status: int) -> int: special, prompt, does(ends process);
    // Whatever comes of it, the fields of `infop` are written.
    247 WAITID waitid(
        idtype: one_of(IDTYPE), id: pid(idtype 1 2), infop: out(28) always, options: flags(WAIT), rusage: out(144),
    ) -> int: emulate, waits, restarts, nowait(options 1), does(awaits child);
    251 IOPRIO_SET ioprio_set(which: int, who: pid(which 1 2), ioprio: hex) -> int: emulate, prompt;
    252 IOPRIO_GET ioprio_get(which: int, who: pid(which 1 2)) -> int: emulate, prompt, asks;
    272 UNSHARE unshare(flags: flags(CLONE)) -> int: emulate, hides, does(unshares);
    273 SET_ROBUST_LIST set_robust_list(head: addr, len: size) -> int: special, prompt, does(sets robust list);
    274 GET_ROBUST_LIST get_robust_list(pid: pid, head_ptr: out(8), len_ptr: out(8)) -> int: special, prompt, asks, does(tells robust list);
    302 PRLIMIT64 prlimit64(
        pid: pid, resource: one_of(RLIMIT), new_limit: in(16), old_limit: out(16),
    ) -> int: emulate, prompt, does(limits resource to new_limit);
    308 SETNS setns(fd: fd, nstype: flags(CLONE)) -> int: emulate, hides;
    309 GETCPU getcpu(cpu: out(4), node: out(4), tcache: addr) -> int: emulate, prompt, local, vdso, does(tells Processor);
    310 PROCESS_VM_READV process_vm_readv(
        pid: pid, local_iov: iov_out(liovcnt), liovcnt: size, remote_iov: in(riovcnt * 16), riovcnt: size, flags: hex,
    ) -> int: emulate;
    // It could write memory of the session behind everybody's back.
    311 PROCESS_VM_WRITEV process_vm_writev(
        pid: pid, local_iov: iov_in(liovcnt), liovcnt: size, remote_iov: in(riovcnt * 16), riovcnt: size, flags: hex,
    ) -> int: refuse(EPERM), noted(FOREIGN_WRITE);
    312 KCMP kcmp(pid1: pid, pid2: pid, type: int, idx1: size, idx2: size) -> int: emulate, prompt, asks;
    // A size of 0 stands for 48; a structure of another size is told the right one, and the call fails.
    314 SCHED_SETATTR sched_setattr(pid: pid, attr: inout([attr] + 48) always, flags: hex) -> int: emulate;
    315 SCHED_GETATTR sched_getattr(pid: pid, attr: out(size), size: uint, flags: hex) -> int: emulate, prompt, asks;
    317 SECCOMP seccomp(operation: one_of(SECCOMP), flags: hex, args: command(operation, SECCOMP_ENTRIES)) -> int: special, does(filters);
    322 EXECVEAT execveat(dirfd: fd, pathname: path, argv: strings, envp: strings, flags: flags(AT)) -> int: special, does(execs);
    324 MEMBARRIER membarrier(cmd: one_of(MEMBARRIER), flags: hex, cpu_id: int) -> int: emulate, local;
    // The kernel would write its area at moments that nothing names. libc falls back.
    334 RSEQ rseq(rseq: addr, rseq_len: uint, flags: hex, sig: hex) -> int: refuse(ENOSYS);
    434 PIDFD_OPEN pidfd_open(pid: pid, flags: flags(DESCRIPTOR)) -> fd: emulate, prompt, does(opens object);
    // libc falls back to clone.
    435 CLONE3 clone3(cl_args: in(size), size: size) -> int: refuse(ENOSYS);
    438 PIDFD_GETFD pidfd_getfd(pidfd: fd, targetfd: fd, flags: hex) -> fd: emulate, prompt, does(opens foreign);
}
