//! Calls on open descriptors: reading and writing, waiting for readiness, pipes, events.

calls! {
    0 READ read(fd: fd, buf: out(count) wrote(result), count: size) -> int: emulate, waits(fd), restarts, does(reads fd);
    1 WRITE write(fd: fd, buf: in(count), count: size) -> int: emulate, waits(fd), restarts, does(writes fd);
    // Closing can linger (sockets, FUSE, NFS), and a signal then ends it with the descriptor already gone.
    3 CLOSE close(fd: fd) -> int: emulate, eintr, does(closes fd);
    7 POLL poll(fds: inout(nfds * 8) always, nfds: uint, timeout: int) -> int: emulate, waits, eintr, timeout(ms timeout), asks, does(polls);
    // The file position has a lock that another thread's read can hold.
    8 LSEEK lseek(fd: fd, offset: long, whence: one_of(WHENCE)) -> int: emulate;
    16 IOCTL ioctl(fd: fd, request: one_of(IOCTL), argp: ioctl(request)) -> int: emulate, restarts, does(commands fd);
    17 PREAD64 pread64(fd: fd, buf: out(count) wrote(result), count: size, offset: long) -> int: emulate, waits(fd), restarts,
        asks, does(reads fd at offset);
    18 PWRITE64 pwrite64(fd: fd, buf: in(count), count: size, offset: long) -> int: emulate, waits(fd), restarts, does(writes fd at offset);
    19 READV readv(fd: fd, iov: iov_out(iovcnt), iovcnt: size) -> int: emulate, waits(fd), restarts, does(reads fd);
    20 WRITEV writev(fd: fd, iov: iov_in(iovcnt), iovcnt: size) -> int: emulate, waits(fd), restarts, does(writes fd);
    22 PIPE pipe(pipefd: out(8)) -> int: emulate, prompt, does(opens pipe pipefd);
    23 SELECT select(
        nfds: int, readfds: inout(bits nfds), writefds: inout(bits nfds), exceptfds: inout(bits nfds),
        timeout: inout(16) always,
    ) -> int: emulate, waits, eintr, timeout(timeval timeout), asks, does(polls);
    32 DUP dup(oldfd: fd) -> fd: emulate, prompt, does(duplicates oldfd);
    // These two close what newfd was before.
    33 DUP2 dup2(oldfd: fd, newfd: fd) -> fd: emulate, does(duplicates oldfd onto newfd);
    292 DUP3 dup3(oldfd: fd, newfd: fd, flags: flags(DESCRIPTOR)) -> fd: emulate, does(duplicates oldfd onto newfd by flags);
    40 SENDFILE sendfile(out_fd: fd, in_fd: fd, offset: inout(8), count: size) -> int: emulate, waits(out_fd), restarts,
        does(moves in_fd at offset to out_fd length count);
    72 FCNTL fcntl(fd: fd, cmd: one_of(FCNTL), arg: fcntl(cmd)) -> int: emulate, restarts, does(commands fd);
    73 FLOCK flock(fd: fd, operation: flags(FLOCK)) -> int: emulate, waits, restarts, nowait(operation 4);
    74 FSYNC fsync(fd: fd) -> int: emulate;
    75 FDATASYNC fdatasync(fd: fd) -> int: emulate;
    77 FTRUNCATE ftruncate(fd: fd, length: long) -> int: emulate, does(truncates fd);
    187 READAHEAD readahead(fd: fd, offset: long, count: size) -> int: emulate, asks;
    213 EPOLL_CREATE epoll_create(size: int) -> fd: emulate, prompt, does(opens set);
    214 EPOLL_CTL_OLD epoll_ctl_old() -> int: refuse(ENOSYS);
    215 EPOLL_WAIT_OLD epoll_wait_old() -> int: refuse(ENOSYS);
    221 FADVISE64 fadvise64(fd: fd, offset: long, len: long, advice: one_of(FADVISE)) -> int: emulate, asks;
    232 EPOLL_WAIT epoll_wait(
        epfd: fd, events: out(maxevents * 12) wrote(result * 12), maxevents: int, timeout: int,
    ) -> int: emulate, waits, eintr, timeout(ms timeout), does(polls epfd);
    // It asks the file for its state, which FUSE passes on.
    233 EPOLL_CTL epoll_ctl(epfd: fd, op: one_of(EPOLL_OP), fd: fd, event: in(12)) -> int: emulate, does(notifies epfd);
    270 PSELECT6 pselect6(
        nfds: int, readfds: inout(bits nfds), writefds: inout(bits nfds), exceptfds: inout(bits nfds),
        timeout: inout(16) always, sigmask: in(16),
    ) -> int: emulate, waits, eintr, timeout(timespec timeout), mask(sigmask), asks, does(polls);
    271 PPOLL ppoll(
        fds: inout(nfds * 8) always, nfds: uint, timeout: inout(16) always, sigmask: in(sigsetsize), sigsetsize: size,
    ) -> int: emulate, waits, eintr, timeout(timespec timeout), mask(sigmask, sigsetsize), asks, does(polls);
    275 SPLICE splice(
        fd_in: fd, off_in: inout(8), fd_out: fd, off_out: inout(8), len: size, flags: flags(SPLICE),
    ) -> int: emulate, waits, restarts, does(moves fd_in at off_in to fd_out at off_out length len by flags);
    276 TEE tee(fd_in: fd, fd_out: fd, len: size, flags: flags(SPLICE)) -> int: emulate, waits, restarts,
        does(copies fd_in to fd_out length len by flags);
    277 SYNC_FILE_RANGE sync_file_range(fd: fd, offset: long, nbytes: long, flags: flags(SYNC_FILE_RANGE)) -> int: emulate;
    // It lends the program's pages to a pipe, whose reader would see what is written to them later. Programs fall back to write.
    278 VMSPLICE vmsplice(fd: fd, iov: iov_in(nr_segs), nr_segs: size, flags: flags(SPLICE)) -> int: refuse(ENOSYS), noted(VMSPLICE);
    281 EPOLL_PWAIT epoll_pwait(
        epfd: fd, events: out(maxevents * 12) wrote(result * 12), maxevents: int, timeout: int,
        sigmask: in(sigsetsize), sigsetsize: size,
    ) -> int: emulate, waits, eintr, timeout(ms timeout), mask(sigmask, sigsetsize), does(polls epfd);
    284 EVENTFD eventfd(initval: uint) -> fd: emulate, prompt, does(opens counter);
    285 FALLOCATE fallocate(fd: fd, mode: flags(FALLOCATE), offset: long, len: long) -> int: emulate, restarts, does(allocates fd);
    290 EVENTFD2 eventfd2(initval: uint, flags: flags(EVENTFD)) -> fd: emulate, prompt, does(opens counter);
    291 EPOLL_CREATE1 epoll_create1(flags: flags(DESCRIPTOR)) -> fd: emulate, prompt, does(opens set);
    293 PIPE2 pipe2(pipefd: out(8), flags: flags(DESCRIPTOR)) -> int: emulate, prompt, does(opens pipe pipefd);
    295 PREADV preadv(
        fd: fd, iov: iov_out(iovcnt), iovcnt: size, pos_l: long, pos_h: long,
    ) -> int: emulate, waits(fd), restarts, asks, does(reads fd at pos_l);
    296 PWRITEV pwritev(
        fd: fd, iov: iov_in(iovcnt), iovcnt: size, pos_l: long, pos_h: long,
    ) -> int: emulate, waits(fd), restarts, does(writes fd at pos_l);
    306 SYNCFS syncfs(fd: fd) -> int: emulate;
    326 COPY_FILE_RANGE copy_file_range(
        fd_in: fd, off_in: inout(8), fd_out: fd, off_out: inout(8), len: size, flags: hex,
    ) -> int: emulate, restarts, does(moves fd_in at off_in to fd_out at off_out length len);
    327 PREADV2 preadv2(
        fd: fd, iov: iov_out(iovcnt), iovcnt: size, pos_l: long, pos_h: long, flags: flags(RWF),
    ) -> int: emulate, waits(fd), restarts, does(reads fd at pos_l or own);
    328 PWRITEV2 pwritev2(
        fd: fd, iov: iov_in(iovcnt), iovcnt: size, pos_l: long, pos_h: long, flags: flags(RWF),
    ) -> int: emulate, waits(fd), restarts, does(writes fd at pos_l or own);
    436 CLOSE_RANGE close_range(first: uint, last: uint, flags: flags(CLOSE_RANGE)) -> int: emulate, does(closes first to last by flags);
    441 EPOLL_PWAIT2 epoll_pwait2(
        epfd: fd, events: out(maxevents * 12) wrote(result * 12), maxevents: int, timeout: in(16),
        sigmask: in(sigsetsize), sigsetsize: size,
    ) -> int: emulate, waits, eintr, timeout(timespec timeout), mask(sigmask, sigsetsize), does(polls epfd);
    451 CACHESTAT cachestat(fd: fd, range: in(16), cstat: out(40), flags: hex) -> int: emulate, asks;
}
