// Signals that are read: what a record says, which signals, several at once, none.
// variant: companion -DGUEST_COMPANION
// variant: neighbour -DGUEST_NEIGHBOUR
#include "guest.h"
#include <poll.h>
#include <sys/signalfd.h>

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 2);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    int fd = must(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    struct signalfd_siginfo got[4];
    tell(read(fd, got, sizeof got));
    must(raise(SIGUSR1));
    must(raise(SIGUSR1));
    for (int i = 0; i < 3; i++) must(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 70 + i}));
    struct pollfd p = {fd, POLLIN, 0};
    tell(poll(&p, 1, 0));
    ssize_t n = read(fd, got, sizeof got);
    expect(n == (ssize_t)sizeof got);
    for (int i = 0; i < 4; i++) say("signal %u code %d value %d\n", got[i].ssi_signo, got[i].ssi_code, got[i].ssi_int);
    expect(got[0].ssi_pid == (uint32_t)getpid());
    tell(read(fd, got, sizeof got));
    tell(read(fd, got, 10));
    sigaddset(&set, SIGUSR2);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    must(raise(SIGUSR2));
    tell(poll(&p, 1, 0));
    expect(signalfd(fd, &set, 0) == fd);
    tell(poll(&p, 1, 0));
    tell(read(fd, got, sizeof *got));
    tell(signalfd(-1, &set, 64));
    tell(signalfd(1, &set, 0));
    tell(write(fd, got, sizeof *got));
}
