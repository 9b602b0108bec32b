// Signals that a recorder needs for itself stay the program's own: SIGSYS, SIGSEGV and SIGTRAP, handled, blocked and ignored.
#include "guest.h"
#include <x86intrin.h>

static volatile int count;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    count++;
}

int main(void) {
    static const int special[] = {SIGSYS, SIGSEGV, SIGTRAP, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        int s = special[i];
        struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, old;
        must(sigaction(s, &action, &old));
        expect(old.sa_handler == SIG_DFL);
        must(sigaction(s, NULL, &old));
        expect(old.sa_sigaction == handler);
        int before = count;
        raise(s);
        expect(count == before + 1);
        sigset_t block, now, pending;
        sigemptyset(&block);
        sigaddset(&block, s);
        ok(pthread_sigmask(SIG_BLOCK, &block, NULL));
        ok(pthread_sigmask(SIG_BLOCK, NULL, &now));
        expect(sigismember(&now, s) == 1);
        raise(s);
        expect(count == before + 1 && getppid() >= 0);
        must(sigpending(&pending));
        expect(sigismember(&pending, s) == 1);
        say("blocked %d, time %ld, rdtsc %lu\n", s, now_ns(CLOCK_MONOTONIC), (unsigned long)__rdtsc());
        ok(pthread_sigmask(SIG_UNBLOCK, &block, NULL));
        expect(count == before + 2);
        signal(s, SIG_IGN);
        raise(s);
        expect(count == before + 2);
        say("ignored %d, time %ld, rdtsc %lu\n", s, now_ns(CLOCK_MONOTONIC), (unsigned long)__rdtsc());
        signal(s, SIG_DFL);
    }
}
