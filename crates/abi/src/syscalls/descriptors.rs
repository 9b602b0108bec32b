//! Calls on open descriptors: reading and writing, waiting for readiness, pipes, events.

calls! {
    0 READ read(fd: fd, buf: out(count) wrote(result), count: size) -> int: emulate, waits(fd), restarts;
    1 WRITE write(fd: fd, buf: in(count), count: size) -> int: emulate, waits(fd), restarts;
    // Closing can linger (sockets, FUSE, NFS), and a signal then ends it with the descriptor already gone.
    3 CLOSE close(fd: fd) -> int: emulate, eintr;
    7 POLL poll(fds: inout(nfds * 8) always, nfds: uint, timeout: int) -> int: emulate, waits, eintr;
    // The file position has a lock that another thread's read can hold.
    8 LSEEK lseek(fd: fd, offset: long, whence: one_of(WHENCE)) -> int: emulate;
    16 IOCTL ioctl(fd: fd, request: one_of(IOCTL), argp: ioctl(request)) -> int: emulate, restarts;
    17 PREAD64 pread64(fd: fd, buf: out(count) wrote(result), count: size, offset: long) -> int: emulate, waits(fd), restarts;
    18 PWRITE64 pwrite64(fd: fd, buf: in(count), count: size, offset: long) -> int: emulate, waits(fd), restarts;
    19 READV readv(fd: fd, iov: iov_out(iovcnt), iovcnt: size) -> int: emulate, waits(fd), restarts;
    20 WRITEV writev(fd: fd, iov: iov_in(iovcnt), iovcnt: size) -> int: emulate, waits(fd), restarts;
    22 PIPE pipe(pipefd: out(8)) -> int: emulate, prompt;
    23 SELECT select(
        nfds: int, readfds: inout(bits nfds), writefds: inout(bits nfds), exceptfds: inout(bits nfds),
        timeout: inout(16) always,
    ) -> int: emulate, waits, eintr;
    32 DUP dup(oldfd: fd) -> fd: emulate, prompt;
    // These two close what newfd was before.
    33 DUP2 dup2(oldfd: fd, newfd: fd) -> fd: emulate;
    292 DUP3 dup3(oldfd: fd, newfd: fd, flags: flags(DESCRIPTOR)) -> fd: emulate;
    40 SENDFILE sendfile(out_fd: fd, in_fd: fd, offset: inout(8), count: size) -> int: emulate, waits(out_fd), restarts;
    72 FCNTL fcntl(fd: fd, cmd: one_of(FCNTL), arg: fcntl(cmd)) -> int: emulate, restarts;
    73 FLOCK flock(fd: fd, operation: flags(FLOCK)) -> int: emulate, waits, restarts;
    74 FSYNC fsync(fd: fd) -> int: emulate;
    75 FDATASYNC fdatasync(fd: fd) -> int: emulate;
    77 FTRUNCATE ftruncate(fd: fd, length: long) -> int: emulate;
    187 READAHEAD readahead(fd: fd, offset: long, count: size) -> int: emulate;
    213 EPOLL_CREATE epoll_create(size: int) -> fd: emulate, prompt;
    214 EPOLL_CTL_OLD epoll_ctl_old() -> int: refuse(ENOSYS);
    215 EPOLL_WAIT_OLD epoll_wait_old() -> int: refuse(ENOSYS);
    221 FADVISE64 fadvise64(fd: fd, offset: long, len: long, advice: one_of(FADVISE)) -> int: emulate;
    232 EPOLL_WAIT epoll_wait(
        epfd: fd, events: out(maxevents * 12) wrote(result * 12), maxevents: int, timeout: int,
    ) -> int: emulate, waits, eintr;
    // It asks the file for its state, which FUSE passes on.
    233 EPOLL_CTL epoll_ctl(epfd: fd, op: one_of(EPOLL_OP), fd: fd, event: in(12)) -> int: emulate;
    270 PSELECT6 pselect6(
        nfds: int, readfds: inout(bits nfds), writefds: inout(bits nfds), exceptfds: inout(bits nfds),
        timeout: inout(16) always, sigmask: in(16),
    ) -> int: emulate, waits, eintr;
    271 PPOLL ppoll(
        fds: inout(nfds * 8) always, nfds: uint, timeout: inout(16) always, sigmask: in(sigsetsize), sigsetsize: size,
    ) -> int: emulate, waits, eintr;
    275 SPLICE splice(
        fd_in: fd, off_in: inout(8), fd_out: fd, off_out: inout(8), len: size, flags: flags(SPLICE),
    ) -> int: emulate, waits, restarts;
    276 TEE tee(fd_in: fd, fd_out: fd, len: size, flags: flags(SPLICE)) -> int: emulate, waits, restarts;
    277 SYNC_FILE_RANGE sync_file_range(fd: fd, offset: long, nbytes: long, flags: flags(SYNC_FILE_RANGE)) -> int: emulate;
    // It lends the program's pages to a pipe, whose reader would see what is written to them later. Programs fall back to write.
    278 VMSPLICE vmsplice(fd: fd, iov: iov_in(nr_segs), nr_segs: size, flags: flags(SPLICE)) -> int: refuse(ENOSYS);
    281 EPOLL_PWAIT epoll_pwait(
        epfd: fd, events: out(maxevents * 12) wrote(result * 12), maxevents: int, timeout: int,
        sigmask: in(sigsetsize), sigsetsize: size,
    ) -> int: emulate, waits, eintr;
    284 EVENTFD eventfd(initval: uint) -> fd: emulate, prompt;
    285 FALLOCATE fallocate(fd: fd, mode: flags(FALLOCATE), offset: long, len: long) -> int: emulate, restarts;
    290 EVENTFD2 eventfd2(initval: uint, flags: flags(EVENTFD)) -> fd: emulate, prompt;
    291 EPOLL_CREATE1 epoll_create1(flags: flags(DESCRIPTOR)) -> fd: emulate, prompt;
    293 PIPE2 pipe2(pipefd: out(8), flags: flags(DESCRIPTOR)) -> int: emulate, prompt;
    295 PREADV preadv(
        fd: fd, iov: iov_out(iovcnt), iovcnt: size, pos_l: long, pos_h: long,
    ) -> int: emulate, waits(fd), restarts;
    296 PWRITEV pwritev(
        fd: fd, iov: iov_in(iovcnt), iovcnt: size, pos_l: long, pos_h: long,
    ) -> int: emulate, waits(fd), restarts;
    306 SYNCFS syncfs(fd: fd) -> int: emulate;
    326 COPY_FILE_RANGE copy_file_range(
        fd_in: fd, off_in: inout(8), fd_out: fd, off_out: inout(8), len: size, flags: hex,
    ) -> int: emulate, restarts;
    327 PREADV2 preadv2(
        fd: fd, iov: iov_out(iovcnt), iovcnt: size, pos_l: long, pos_h: long, flags: flags(RWF),
    ) -> int: emulate, waits(fd), restarts;
    328 PWRITEV2 pwritev2(
        fd: fd, iov: iov_in(iovcnt), iovcnt: size, pos_l: long, pos_h: long, flags: flags(RWF),
    ) -> int: emulate, waits(fd), restarts;
    436 CLOSE_RANGE close_range(first: uint, last: uint, flags: flags(CLOSE_RANGE)) -> int: emulate;
    441 EPOLL_PWAIT2 epoll_pwait2(
        epfd: fd, events: out(maxevents * 12) wrote(result * 12), maxevents: int, timeout: in(16),
        sigmask: in(sigsetsize), sigsetsize: size,
    ) -> int: emulate, waits, eintr;
    451 CACHESTAT cachestat(fd: fd, range: in(16), cstat: out(40), flags: hex) -> int: emulate;
}
