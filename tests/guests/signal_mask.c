// Masks: blocked signals stay pending, standard ones once, real-time ones in order; masks of handlers; masks of threads.
#include "guest.h"

static volatile int count, values[16], depth, deepest;

static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    if (number >= SIGRTMIN) values[count % 16] = info->si_value.sival_int;
    count++;
    if (++depth > deepest) deepest = depth;
    sigset_t now;
    ok(pthread_sigmask(SIG_BLOCK, NULL, &now));
    expect(sigismember(&now, number) == 1);
    expect(sigismember(&now, SIGUSR2) == 1);
    if (number == SIGUSR1 && depth < 3) raise(SIGUSR2);
    depth--;
}

static void *inherits(void *unused) {
    (void)unused;
    sigset_t mine;
    ok(pthread_sigmask(SIG_BLOCK, NULL, &mine));
    expect(sigismember(&mine, SIGUSR1) == 1 && sigismember(&mine, SIGUSR2) == 0);
    sigfillset(&mine);
    ok(pthread_sigmask(SIG_SETMASK, &mine, NULL));
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaddset(&action.sa_mask, SIGUSR2);
    must(sigaction(SIGUSR1, &action, NULL));
    must(sigaction(SIGUSR2, &action, NULL));
    must(sigaction(SIGRTMIN, &action, NULL));
    sigset_t block, old, pending;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGRTMIN);
    ok(pthread_sigmask(SIG_BLOCK, &block, &old));
    expect(sigismember(&old, SIGUSR1) == 0);
    for (int i = 0; i < 5; i++) raise(SIGUSR1);
    for (int i = 0; i < 5; i++) must(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 100 + i}));
    expect(count == 0);
    must(sigpending(&pending));
    expect(sigismember(&pending, SIGUSR1) == 1 && sigismember(&pending, SIGUSR2) == 0 && sigismember(&pending, SIGRTMIN) == 1);
    finish(start(inherits, NULL));
    ok(pthread_sigmask(SIG_SETMASK, &old, NULL));
    // One USR1 (it sends USR2, which waits for its end), five real-time ones in order.
    expect(count == 7);
    int at = 0;
    for (int i = 0; i < 7; i++)
        if (values[i] >= 100) expect(values[i] == 100 + at++);
    expect(at == 5);
    must(sigpending(&pending));
    expect(sigisemptyset(&pending));
    // Ignored while pending: gone.
    ok(pthread_sigmask(SIG_BLOCK, &block, NULL));
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_IGN);
    must(sigaction(SIGUSR1, &action, NULL));
    ok(pthread_sigmask(SIG_SETMASK, &old, NULL));
    expect(count == 7);
    say("deepest %d\n", deepest);
}
