// A descriptor of the process itself: polling, signals by it, descriptors through it.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <poll.h>

static volatile sig_atomic_t count;
static void handler(int number) { (void)number; count++; }

int main(void) {
    int fd = must(syscall(SYS_pidfd_open, getpid(), 0));
    struct pollfd p = {fd, POLLIN, 0};
    tell(poll(&p, 1, 0));
    signal(SIGUSR1, handler);
    tell(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0));
    tell(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    say("%d signals\n", count);
    int tube[2];
    must(pipe(tube));
    int copy = syscall(SYS_pidfd_getfd, fd, tube[0], 0);
    if (copy >= 0) {
        expect(write(tube[1], "x", 1) == 1);
        char c;
        expect(read(copy, &c, 1) == 1 && c == 'x');
    }
    tell(fcntl(fd, F_GETFD));
    tell(syscall(SYS_pidfd_open, 0, 0));
    tell(syscall(SYS_pidfd_open, 0x3fffffff, 0));
    tell(syscall(SYS_pidfd_send_signal, 1, SIGUSR1, NULL, 0));
    tell(syscall(SYS_pidfd_getfd, fd, 999, 0));
}
