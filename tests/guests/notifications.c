// Descriptors that tell of something: inotify, signalfd, timerfd, eventfd, memfd, pidfd.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

int main(void) {
    int watch = must(inotify_init1(IN_NONBLOCK));
    int wd = must(inotify_add_watch(watch, ".", IN_CREATE | IN_DELETE));
    close(must(open("watched", O_CREAT | O_WRONLY, 0600)));
    must(unlink("watched"));
    char events[4096];
    ssize_t n = must(read(watch, events, sizeof events));
    expect(((struct inotify_event *)events)->wd == wd && (((struct inotify_event *)events)->mask & IN_CREATE));
    must(inotify_rm_watch(watch, wd));
    say("inotify: %zd bytes, watch %d\n", n, wd);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    int sfd = must(signalfd(-1, &set, SFD_NONBLOCK));
    struct signalfd_siginfo info[4];
    fails(EAGAIN, read(sfd, info, sizeof info));
    must(kill(getpid(), SIGUSR1));
    must(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 77}));
    struct pollfd p = {sfd, POLLIN, 0};
    expect(poll(&p, 1, -1) == 1);
    n = must(read(sfd, info, sizeof info));
    expect(n == 2 * sizeof *info && info[0].ssi_signo == SIGUSR1 && info[1].ssi_signo == (uint32_t)SIGRTMIN && info[1].ssi_int == 77);
    say("signalfd: from %u\n", info[0].ssi_pid);

    int event = must(eventfd(5, 0));
    uint64_t value = 0;
    expect(read(event, &value, 8) == 8 && value == 5);
    fails(EINVAL, read(event, &value, 4));

    int timer = must(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
    fails(EAGAIN, read(timer, &value, 8));
    must(timerfd_settime(timer, TFD_TIMER_ABSTIME, &(struct itimerspec){.it_value.tv_sec = 1}, NULL));
    p.fd = timer;
    expect(poll(&p, 1, -1) == 1 && read(timer, &value, 8) == 8 && value == 1);

    int memory = must(memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    expect(write(memory, "in memory", 9) == 9);
    must(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK));
    fails(EPERM, ftruncate(memory, 1));
    expect(must(fcntl(memory, F_GET_SEALS)) == F_SEAL_SHRINK);

    int self = syscall(SYS_pidfd_open, getpid(), 0);
    say("pidfd %d\n", self);
}
