// With every signal blocked, everything goes on as before: fresh call sites, time, rdtsc, cpuid, threads.
#include "guest.h"
#include <cpuid.h>
#include <x86intrin.h>

static void *body(void *p) {
    sigset_t mask;
    ok(pthread_sigmask(SIG_BLOCK, NULL, &mask));
    for (int s = 1; s <= 31; s++)
        if (s != SIGKILL && s != SIGSTOP) expect(sigismember(&mask, s) == 1);
    return (void *)(__rdtsc() + (uintptr_t)p);
}

int main(void) {
    sigset_t all, old;
    sigfillset(&all);
    ok(pthread_sigmask(SIG_SETMASK, &all, &old));
    unsigned a, b, c, d;
    __cpuid(0, a, b, c, d);
    say("cpuid 0x%x 0x%x, rdtsc %lu\n", a, b, (unsigned long)__rdtsc());
    say("parent %d at %ld\n", getppid(), now_ns(CLOCK_MONOTONIC));
    must(nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL));
    say("the thread said %lu\n", (unsigned long)finish(start(body, NULL)));
    // The mask by raw call, with no library in between.
    uint64_t word = ~0ul, seen = 0;
    expect(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &word, NULL, 8) == 0);
    expect(syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &seen, 8) == 0);
    expect(seen == (~0ul & ~(1ul << (SIGKILL - 1)) & ~(1ul << (SIGSTOP - 1))));
    say("rdtsc %lu\n", (unsigned long)__rdtsc());
    ok(pthread_sigmask(SIG_SETMASK, &old, NULL));
}
