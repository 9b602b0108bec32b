//! Calls on signals. The runtime virtualises signals, so most of them are its own work.

calls! {
    13 RT_SIGACTION rt_sigaction(signum: signal, act: in(32), oldact: out(32), sigsetsize: size) -> int: special, prompt, does(sets action);
    14 RT_SIGPROCMASK rt_sigprocmask(
        how: one_of(SIG_HOW), set: in(sigsetsize), oldset: out(sigsetsize), sigsetsize: size,
    ) -> int: special, prompt, does(sets mask);
    15 RT_SIGRETURN rt_sigreturn() -> int: special, prompt, does(returns);
    34 PAUSE pause() -> int: emulate, waits, eintr, local, does(pauses);
    62 KILL kill(pid: pid, sig: signal) -> int: special, prompt, does(signals process sig);
    127 RT_SIGPENDING rt_sigpending(set: out(sigsetsize), sigsetsize: size) -> int: special, prompt, local, asks, does(tells pending);
    128 RT_SIGTIMEDWAIT rt_sigtimedwait(
        set: in(sigsetsize), info: out(128), timeout: in(16), sigsetsize: size,
    ) -> int: special, waits, eintr, timeout(timespec timeout), does(takes signal);
    129 RT_SIGQUEUEINFO rt_sigqueueinfo(tgid: pid, sig: signal, info: in(128)) -> int: special, prompt, does(signals process sig with info);
    130 RT_SIGSUSPEND rt_sigsuspend(mask: in(sigsetsize), sigsetsize: size) -> int: special, waits, eintr, mask(mask, sigsetsize), local,
        does(pauses);
    131 SIGALTSTACK sigaltstack(ss: in(24), old_ss: out(24)) -> int: special, prompt, does(sets stack);
    200 TKILL tkill(tid: pid, sig: signal) -> int: special, prompt, does(signals thread sig);
    // The kernel makes it itself after a stop; a program that makes it has nothing to restart.
    219 RESTART_SYSCALL restart_syscall() -> int: refuse(EINTR);
    234 TGKILL tgkill(tgid: pid, tid: pid, sig: signal) -> int: special, prompt, does(signals thread of process sig);
    282 SIGNALFD signalfd(fd: fd, mask: in(sizemask), sizemask: size) -> fd: emulate, prompt, does(opens signals);
    289 SIGNALFD4 signalfd4(fd: fd, mask: in(sizemask), sizemask: size, flags: flags(DESCRIPTOR)) -> fd: emulate, prompt,
        does(opens signals);
    297 RT_TGSIGQUEUEINFO rt_tgsigqueueinfo(tgid: pid, tid: pid, sig: signal, info: in(128)) -> int: special, prompt,
        does(signals thread of process sig with info);
    424 PIDFD_SEND_SIGNAL pidfd_send_signal(pidfd: fd, sig: signal, info: in(128), flags: hex) -> int: emulate, prompt,
        does(signals descriptor sig with info);
}
