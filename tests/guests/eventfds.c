// Counters that are read and written: as a sum, one by one, full, empty.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <poll.h>
#include <sys/eventfd.h>

int main(void) {
    int fd = must(eventfd(3, EFD_NONBLOCK));
    uint64_t v = 4;
    tell(write(fd, &v, 8));
    tell(read(fd, &v, 8));
    say("%lu\n", v);
    tell(read(fd, &v, 8));
    v = UINT64_MAX;
    tell(write(fd, &v, 8));
    v = UINT64_MAX - 1;
    tell(write(fd, &v, 8));
    v = 1;
    tell(write(fd, &v, 8));
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    tell(poll(&p, 1, 0));
    say("events %x\n", p.revents);
    tell(write(fd, &v, 4));
    tell(read(fd, &v, 7));
    int one = must(eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC));
    for (int i = 0; i < 4; i++) tell(read(one, &v, 8));
    tell(fcntl(one, F_GETFD));
    tell(eventfd(0, 64));
    tell(lseek(one, 0, SEEK_CUR));
}
