// Signals for descriptors: SIGIO with the descriptor that is ready, owners, leases; small things of fcntl and ioctl.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/ioctl.h>
#include <sys/socket.h>

static volatile sig_atomic_t count, from, band;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    from = info->si_fd;
    band = (int)info->si_band;
    count++;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGRTMIN + 5, &action, NULL));
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    tell(fcntl(pair[0], F_GETOWN));
    must(fcntl(pair[0], F_SETOWN, getpid()));
    expect(fcntl(pair[0], F_GETOWN) == getpid());
    tell(fcntl(pair[0], F_SETSIG, SIGRTMIN + 5));
    tell(fcntl(pair[0], F_GETSIG));
    tell(fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK));
    tell(write(pair[1], "x", 1));
    while (count == 0) sched_yield();
    say("fd %d, band %x\n", from, band & 1);
    struct f_owner_ex owner = {F_OWNER_TID, (pid_t)gettid_raw()}, now;
    tell(fcntl(pair[0], F_SETOWN_EX, &owner));
    tell(fcntl(pair[0], F_GETOWN_EX, &now));
    say("type %d, same %d\n", now.type, now.pid == owner.pid);
    tell(fcntl(pair[0], F_SETOWN, 0));
    tell(fcntl(pair[0], F_SETSIG, 99));
    int fd = must(open("file", O_CREAT | O_RDWR, 0600));
    must(close(fd));
    fd = must(open("file", O_RDONLY));
    int lease = fcntl(fd, F_SETLEASE, F_RDLCK);
    expect(lease == 0 || errno == EACCES || errno == EAGAIN || errno == EINVAL);
    tell(fcntl(fd, F_SETLEASE, F_UNLCK) == 0 || errno != 0);
    int v = 1;
    tell(ioctl(pair[0], FIONREAD, &v));
    say("%d\n", v);
    v = 0;
    tell(ioctl(pair[0], FIONBIO, &v));
    tell(fcntl(pair[0], F_GETFL) & O_NONBLOCK);
    tell(ioctl(pair[0], FIOCLEX));
    tell(fcntl(pair[0], F_GETFD));
    tell(ioctl(fd, 0x12345678, &v));
    tell(ioctl(fd, TCGETS, &v));
    tell(fcntl(fd, 9999, 0));
    tell(fcntl(fd, F_GETLK, (void *)8));
}
