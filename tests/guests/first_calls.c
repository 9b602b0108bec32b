// Threads that call a function of a library for the first time at the same moment: ld.so looks for it in one of them, or in several. Whoever did leaves
// no trace of it in registers that the next system call would have.
// run:
#include "guest.h"

static pthread_barrier_t meet;

static void *calls(void *unused) {
#define FIRST(call)                                                                                                    \
    pthread_barrier_wait(&meet);                                                                                       \
    (void)call
    FIRST(getppid());
    FIRST(getuid());
    FIRST(geteuid());
    FIRST(getgid());
    FIRST(getegid());
    FIRST(getpgrp());
    FIRST(getpid());
    FIRST(sched_yield());
    FIRST(getsid(0));
    FIRST(getpgid(0));
    return unused;
}

int main(void) {
    pthread_t threads[4];
    ok(pthread_barrier_init(&meet, NULL, 4));
    for (int i = 0; i < 4; i++) threads[i] = start(calls, NULL);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    say("done\n");
}
