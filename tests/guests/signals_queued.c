// Signals that wait: ordinary ones once, realtime ones as often as they were sent, in order, each with its value.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
static void empty(int number) { (void)number; }

int main(void) {
    sigset_t set, pending;
    sigfillset(&set);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    signal(SIGUSR1, empty);
    for (int i = 0; i < 3; i++) {
        must(raise(SIGUSR1));
        must(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = 30 + i}));
        must(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 10 + i}));
    }
    must(raise(SIGTERM));
    must(sigpending(&pending));
    for (int i = 1; i <= 64; i++)
        if (sigismember(&pending, i) == 1) say("pending %d\n", i);
    siginfo_t info;
    struct timespec none = {0, 0};
    for (;;) {
        int n = sigtimedwait(&set, &info, &none);
        if (n < 0) break;
        say("signal %d code %d value %d\n", n, info.si_code, info.si_code == SI_QUEUE ? info.si_value.sival_int : 0);
        expect(info.si_pid == getpid() && info.si_uid == getuid());
    }
    expect(errno == EAGAIN);
    struct timespec some = {0, 2000000};
    tell(sigtimedwait(&set, &info, &some));
    tell(sigqueue(getpid(), 65, (union sigval){0}));
    tell(sigqueue(getpid(), 0, (union sigval){0}));
    tell(kill(getpid(), -1));
    tell(kill(0x3fffffff, SIGUSR1));
    tell(syscall(SYS_tgkill, getpid(), 0, SIGUSR1));
    tell(syscall(SYS_tgkill, getpid(), 0x3fffffff, 0));
    // Ignoring a signal throws away what waits.
    must(raise(SIGUSR1));
    signal(SIGUSR1, SIG_IGN);
    must(sigpending(&pending));
    say("after ignoring: %d\n", sigismember(&pending, SIGUSR1));
}
