// Calls on descriptors that are closed, were never open, or are of the wrong kind.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <sys/ioctl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <poll.h>
#include <sys/file.h>

int main(void) {
    int fd = must(open("/dev/null", O_RDONLY));
    must(close(fd));
    char text[16];
    struct stat st;
    struct iovec v = {text, 4};
    for (int i = 0; i < 3; i++) {
        int bad = i == 0 ? fd : i == 1 ? -1 : 1000000;
        tell(read(bad, text, 1));
        tell(write(bad, text, 1));
        tell(pread(bad, text, 1, 0));
        tell(readv(bad, &v, 1));
        tell(lseek(bad, 0, SEEK_SET));
        tell(fstat(bad, &st));
        tell(ftruncate(bad, 0));
        tell(fsync(bad));
        tell(fcntl(bad, F_GETFD));
        tell(ioctl(bad, FIONREAD, text));
        tell(dup(bad));
        tell(dup2(bad, 5));
        tell(close(bad));
        tell(flock(bad, LOCK_SH));
        tell(fchmod(bad, 0600));
        tell(fchdir(bad));
        tell(epoll_wait(bad, (struct epoll_event *)text, 1, 0));
        tell(send(bad, text, 1, 0));
        tell(recv(bad, text, 1, 0));
        tell(listen(bad, 1));
        struct pollfd p = {bad, POLLIN, 0};
        tell(poll(&p, 1, 0));
        say("events %x\n", p.revents);
    }
    tell(send(1, text, 1, 0));
    tell(fchdir(1));
    tell(openat(1, "x", O_RDONLY));
    int dir = must(open(".", O_RDONLY));
    tell(read(dir, text, 1));
    tell(write(dir, text, 1));
    tell(open(".", O_RDWR));
    tell(ftruncate(dir, 0));
    tell(open("/dev/null/x", O_RDONLY));
    tell(open("", O_RDONLY));
    tell(open("nowhere/x", O_RDONLY));
}
