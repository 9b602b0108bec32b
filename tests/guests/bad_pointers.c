// Pointers that lead nowhere, into read-only memory, or across the end of a mapping: EFAULT or less than was asked for, never a crash.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

int main(void) {
    long page = 4096;
    char *two = (char *)must(mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(munmap(two + 2 * page, page));
    must(mprotect(two + page, page, PROT_NONE));
    char *edge = two + page - 10;
    void *nowhere = (void *)0x123456789000, *wild = (void *)0xdeadbeefdeadbeef;
    int fd = must(open("/proc/self/exe", O_RDONLY));

    fails(EFAULT, read(fd, nowhere, 10));
    fails(EFAULT, read(fd, wild, 10));
    fails(EFAULT, syscall(SYS_read, fd, NULL, 10));
    expect(read(fd, nowhere, 0) == 0);
    // Across the edge: what fits is read from a file.
    must(lseek(fd, 0, SEEK_SET));
    ssize_t n = read(fd, edge, 100);
    expect(n == 10 || (n == -1 && errno == EFAULT));
    say("across the edge: %zd\n", n);
    if (n == 10) expect(memcmp(edge, "\177ELF", 4) == 0);
    fails(EFAULT, pread(fd, (void *)main, 4, 0));

    int ends[2];
    must(pipe(ends));
    fails(EFAULT, write(ends[1], nowhere, 10));
    n = write(ends[1], edge, 100);
    expect(n == 10 || (n == -1 && errno == EFAULT));
    say("written across the edge: %zd\n", n);
    expect(write(ends[1], "0123456789", 10) == 10);
    fails(EFAULT, read(ends[0], wild, 10));
    fails(EFAULT, syscall(SYS_pipe, nowhere));
    fails(EFAULT, syscall(SYS_pipe2, two + 2 * page, 0));
    fails(EFAULT, syscall(SYS_stat, "/", nowhere));
    fails(EFAULT, syscall(SYS_stat, nowhere, two));
    fails(EFAULT, syscall(SYS_open, wild, 0));
    fails(EFAULT, syscall(SYS_getcwd, nowhere, 100));
    fails(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, nowhere));
    fails(EFAULT, syscall(SYS_gettimeofday, nowhere, NULL));
    fails(EFAULT, syscall(SYS_nanosleep, nowhere, NULL));
    fails(EFAULT, syscall(SYS_rt_sigprocmask, SIG_BLOCK, nowhere, NULL, 8));
    fails(EFAULT, syscall(SYS_rt_sigaction, SIGUSR1, nowhere, NULL, 8));
    fails(EFAULT, syscall(SYS_rt_sigaction, SIGUSR1, NULL, nowhere, 8));
    fails(EFAULT, syscall(SYS_sigaltstack, nowhere, NULL));
    fails(EFAULT, syscall(SYS_futex, nowhere, 0, 0, NULL, NULL, 0));
    fails(EFAULT, syscall(SYS_poll, nowhere, 3, 0));
    fails(EFAULT, syscall(SYS_select, 3, nowhere, NULL, NULL, NULL));
    fails(EFAULT, syscall(SYS_getrandom, nowhere, 8, 0));
    fails(EFAULT, syscall(SYS_uname, wild));
    fails(EFAULT, readv(fd, (struct iovec *)nowhere, 2));
    struct iovec parts[3] = {{two, 10}, {nowhere, 10}, {two + 20, 10}};
    must(lseek(fd, 0, SEEK_SET));
    n = readv(fd, parts, 3);
    expect(n == 10 || (n == -1 && errno == EFAULT));
    say("vector with a hole: %zd\n", n);
    struct iovec huge[2] = {{two, (size_t)-1}, {two, 1}};
    fails(EINVAL, readv(fd, huge, 2));

    int pair[2];
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    expect(send(pair[0], "message", 7, 0) == 7);
    struct msghdr message = {.msg_iov = (struct iovec *)nowhere, .msg_iovlen = 1};
    fails(EFAULT, recvmsg(pair[1], &message, 0));
    fails(EFAULT, recvmsg(pair[1], (struct msghdr *)wild, 0));
    fails(EFAULT, sendmsg(pair[1], &message, 0));
    fails(EFAULT, getsockname(pair[0], (struct sockaddr *)nowhere, (socklen_t *)two));
    fails(EFAULT, getsockopt(pair[0], SOL_SOCKET, SO_TYPE, two, (socklen_t *)nowhere));
    fails(EFAULT, sendto(pair[0], nowhere, 10, 0, NULL, 0));
    // An input in read-only memory is fine, an output there is not.
    char *constant = (char *)must(mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fails(EFAULT, read(ends[0], constant, 4));
    expect(write(ends[1], constant, 4) == 4);
    say("no crash\n");
}
