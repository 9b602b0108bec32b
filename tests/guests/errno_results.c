// Calls that fail: each gives its errno, and leaves the program's memory alone.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

int main(void) {
    char bytes[16] = "untouched";
    struct stat st;
    fails(ENOENT, open("no/such/file", O_RDONLY));
    fails(ENOENT, stat("no such file", &st));
    fails(ENOTDIR, open("/dev/null/x", O_RDONLY));
    fails(EISDIR, open("/", O_WRONLY));
    fails(EEXIST, mkdir("/", 0700));
    fails(ENAMETOOLONG, open((char[5000]){[0 ... 4998] = 'x'}, O_RDONLY));
    fails(EBADF, read(77, bytes, sizeof bytes));
    fails(EBADF, write(77, bytes, sizeof bytes));
    fails(EBADF, close(77));
    fails(EBADF, dup(-1));
    fails(EBADF, fcntl(77, F_GETFL));
    fails(EBADF, syscall(SYS_fstat, 77, &st));
    fails(EBADF, lseek(77, 0, SEEK_SET));
    fails(EBADF, syscall(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, 77, 0));
    fails(EBADF, ioctl(77, FIONREAD, bytes));
    fails(EINVAL, syscall(SYS_mmap, 0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fails(EINVAL, munmap((void *)1, 4096));
    fails(EINVAL, syscall(SYS_pipe2, bytes, -1));
    fails(EINVAL, kill(getpid(), 1000));
    fails(ESRCH, syscall(SYS_tgkill, getpid(), 0x3ffffff, 0));
    fails(EINVAL, epoll_create1(-1));
    fails(EBADF, epoll_ctl(77, EPOLL_CTL_ADD, 1, &(struct epoll_event){0}));
    fails(ECHILD, wait4(-1, NULL, 0, NULL));
    fails(EAFNOSUPPORT, socket(12345, SOCK_STREAM, 0));
    fails(ENOTSOCK, listen(1, 1));
    fails(EINVAL, readlink("/", bytes, sizeof bytes));
    fails(ENOSYS, syscall(100000));
    fails(ENOSYS, syscall(-1));
    fails(EINVAL, clock_gettime(12345, &(struct timespec){0}));
    fails(EINVAL, nanosleep(&(struct timespec){.tv_nsec = -1}, NULL));
    fails(EINVAL, syscall(SYS_writev, 1, bytes, -1));
    expect(strcmp(bytes, "untouched") == 0);
    int fd = must(open("/dev/null", O_RDONLY));
    fails(EBADF, write(fd, bytes, 1));
    fails(ENOTTY, ioctl(fd, TIOCGWINSZ, bytes));
    say("all errors as they should be; the descriptor was %d\n", fd);
}
