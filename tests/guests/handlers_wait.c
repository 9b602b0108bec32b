// A handler waits by looking, in a loop without any call, for what another thread does: of a signal that its thread has sent to itself, and of one that comes while the thread computes.
// run: 10
#include "guest.h"

static volatile int waits, goes_on, over;
static _Atomic int handled;
static _Thread_local volatile uint64_t sum;

static void handler(int signal) {
    (void)signal;
    waits = 1;
    while (!goes_on) sum++;
    goes_on = waits = 0;
    handled++;
}

static void lets_go_on(int before) {
    while (!waits) sched_yield();
    goes_on = 1;
    while (handled == before) sched_yield();
}

static void *sends_itself(void *rounds) {
    for (long i = 0; i < (intptr_t)rounds; i++) ok(pthread_kill(pthread_self(), SIGUSR1));
    return NULL;
}

static void *computes(void *unused) {
    while (!over) sum++;
    return unused;
}

int main(int argc, char **argv) {
    intptr_t rounds = number(argc, argv, 1, 10);
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread = start(sends_itself, (void *)rounds);
    for (int i = 0; i < rounds; i++) lets_go_on(i);
    finish(thread);
    thread = start(computes, NULL);
    for (int i = rounds; i < 2 * rounds; i++) {
        ok(pthread_kill(thread, SIGUSR1));
        lets_go_on(i);
    }
    over = 1;
    finish(thread);
    say("handled %d\n", handled);
}
