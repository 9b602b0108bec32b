// Which signals are ignored and blocked when the program begins, and what that does.
#include "guest.h"

int main(void) {
    for (int i = 1; i <= 64; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) != 0) continue;
        expect(action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN);
        if (action.sa_handler == SIG_IGN) say("ignored: %s\n", strsignal(i));
    }
    sigset_t mask;
    ok(pthread_sigmask(SIG_BLOCK, NULL, &mask));
    for (int i = 1; i <= 64; i++) {
        if (sigismember(&mask, i) == 1) say("blocked: %s\n", strsignal(i));
    }
    int tube[2];
    must(pipe(tube));
    must(close(tube[0]));
    struct sigaction action;
    must(sigaction(SIGPIPE, NULL, &action));
    if (action.sa_handler == SIG_IGN) fails(EPIPE, write(tube[1], "x", 1));
    must(sigaction(SIGHUP, NULL, &action));
    if (action.sa_handler == SIG_IGN) must(raise(SIGHUP));
    if (sigismember(&mask, SIGUSR1) == 1) {
        must(raise(SIGUSR1));
        must(sigpending(&mask));
        expect(sigismember(&mask, SIGUSR1) == 1);
    }
    say("still there\n");
}
