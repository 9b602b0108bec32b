//! System calls that the runtime makes for itself, by their names and with all arguments that the kernel reads. What a program's call is,
//! the table says ([`reprise_abi::syscalls`]); here is only how the runtime asks.

use super::sys::call;
use reprise_abi::syscalls::nr;

macro_rules! own_calls {
    ($($name:ident = $number:ident($($arg:ident),*);)*) => {
        $(
            #[doc = concat!(stringify!($name), "(2): what the kernel answers.")]
            #[inline(always)]
            pub fn $name($($arg: u64),*) -> i64 {
                call(nr::$number, &[$($arg),*])
            }
        )*
    };
}

own_calls! {
    access = ACCESS(path, mode);
    arch_prctl = ARCH_PRCTL(op, address);
    clock_gettime = CLOCK_GETTIME(clock, to);
    close = CLOSE(fd);
    eventfd2 = EVENTFD2(initial, flags);
    fallocate = FALLOCATE(fd, mode, offset, len);
    fcntl = FCNTL(fd, command);
    fstat = FSTAT(fd, to);
    fstatfs = FSTATFS(fd, to);
    ftruncate = FTRUNCATE(fd, len);
    futex = FUTEX(word, op, value, timeout, second, third);
    getpid = GETPID();
    getppid = GETPPID();
    getrusage = GETRUSAGE(who, to);
    getsockopt = GETSOCKOPT(fd, level, option, to, to_len);
    gettid = GETTID();
    getuid = GETUID();
    ioctl = IOCTL(fd, request, arg);
    kill = KILL(pid, signal);
    lseek = LSEEK(fd, offset, whence);
    madvise = MADVISE(address, len, advice);
    membarrier = MEMBARRIER(command, flags, cpu);
    memfd_create = MEMFD_CREATE(name, flags);
    mincore = MINCORE(address, len, to);
    mlock2 = MLOCK2(address, len, flags);
    mmap = MMAP(address, len, prot, flags, fd, offset);
    mprotect = MPROTECT(address, len, prot);
    mremap = MREMAP(from, old_len, new_len, flags, to);
    munlock = MUNLOCK(address, len);
    munlockall = MUNLOCKALL();
    munmap = MUNMAP(address, len);
    nanosleep = NANOSLEEP(duration, left);
    newfstatat = NEWFSTATAT(dir, path, to, flags);
    pause = PAUSE();
    pidfd_open = PIDFD_OPEN(pid, flags);
    pipe2 = PIPE2(to, flags);
    poll = POLL(fds, count, timeout_ms);
    prctl = PRCTL(option, a, b, c, d);
    pread64 = PREAD64(fd, to, len, offset);
    prlimit64 = PRLIMIT64(pid, resource, new, old);
    pwrite64 = PWRITE64(fd, from, len, offset);
    pwritev2 = PWRITEV2(fd, list, count, offset, high, flags);
    read = READ(fd, to, len);
    recvfrom = RECVFROM(fd, to, len, flags, sender, sender_len);
    rt_sigaction = RT_SIGACTION(signal, new, old, size);
    rt_sigprocmask = RT_SIGPROCMASK(how, new, old, size);
    rt_sigtimedwait = RT_SIGTIMEDWAIT(set, info, timeout, size);
    rt_tgsigqueueinfo = RT_TGSIGQUEUEINFO(pid, tid, signal, info);
    sched_getaffinity = SCHED_GETAFFINITY(pid, size, to);
    sched_yield = SCHED_YIELD();
    sendfile = SENDFILE(to, from, offset, len);
    sendto = SENDTO(fd, from, len, flags, receiver, receiver_len);
    set_robust_list = SET_ROBUST_LIST(head, len);
    set_tid_address = SET_TID_ADDRESS(word);
    shmat = SHMAT(id, address, flags);
    shmctl = SHMCTL(id, command, to);
    shmdt = SHMDT(address);
    sigaltstack = SIGALTSTACK(new, old);
    stat = STAT(path, to);
    sysinfo = SYSINFO(to);
    tee = TEE(from, to, len, flags);
    tgkill = TGKILL(pid, tid, signal);
    timer_create = TIMER_CREATE(clock, event, to);
    timer_delete = TIMER_DELETE(id);
    timer_settime = TIMER_SETTIME(id, flags, new, old);
    wait4 = WAIT4(pid, status, options, usage);
    waitid = WAITID(kind, id, info, options, usage);
    write = WRITE(fd, from, len);
}
