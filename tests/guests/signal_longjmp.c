// Jumping out of handlers, of synchronous and asynchronous signals, a hundred times, with the mask restored or not.
// run: 100
#include "guest.h"

static sigjmp_buf back;
static volatile sig_atomic_t armed, count;
static volatile uint64_t rounds;

static void handler(int number) {
    count++;
    if (number == SIGALRM && !armed) return;
    armed = 0;
    siglongjmp(back, number);
}

int main(int argc, char **argv) {
    volatile long times = number(argc, argv, 1, 100);
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGUSR1, &action, NULL));
    must(sigaction(SIGSEGV, &action, NULL));
    must(sigaction(SIGFPE, &action, NULL));
    must(sigaction(SIGALRM, &action, NULL));
    volatile int usr1 = 0, segv = 0, fpe = 0, alrm = 0, zero = 0;
    for (volatile long i = 0; i < times; i++) {
        int r = sigsetjmp(back, 1);
        if (r == 0) {
            switch (i % 3) {
            case 0: raise(SIGUSR1); break;
            case 1: *(volatile int *)8 = 1; break;
            case 2: say("%d\n", 1000 / zero); break;
            }
            expect(false);
        }
        if (r == SIGUSR1) usr1++;
        if (r == SIGSEGV) segv++;
        if (r == SIGFPE) fpe++;
    }
    expect(usr1 == (times + 2) / 3 && segv == (times + 1) / 3 && fpe == times / 3);
    for (volatile int i = 0; i < 10; i++) {
        if (sigsetjmp(back, 1) == 0) {
            // Before the timer: on a busy machine it may be over at once.
            armed = 1;
            must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 1000}, NULL));
            for (;;) rounds++;
        }
        alrm++;
    }
    // Without the mask: the signal stays blocked.
    if (sigsetjmp(back, 0) == 0) raise(SIGUSR1);
    sigset_t now;
    ok(pthread_sigmask(SIG_BLOCK, NULL, &now));
    expect(sigismember(&now, SIGUSR1) == 1);
    say("%d alarms, %lu rounds\n", alrm, rounds);
}
