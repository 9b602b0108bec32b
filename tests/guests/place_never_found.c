// A signal ends a loop without calls, whose numbers come from a plain load that races: a replay that loads another value never comes to the
// place where the handler ran, and never to an end.
#include "guest.h"

static volatile uint64_t seed;
static volatile int begun;
static volatile sig_atomic_t stop;
static uint64_t rounds, result;

static void handler(int number) {
    (void)number;
    stop = 1;
}

static void *loops(void *unused) {
    uint64_t x, n = 0;
    while (seed < 1000) continue;
    x = seed;
    begun = 1;
    while (!stop) {
        x = mix(x);
        n++;
    }
    rounds = n;
    result = x;
    return unused;
}

int main(void) {
    must(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler}, NULL));
    pthread_t thread = start(loops, NULL);
    while (!begun) seed++;
    ok(pthread_kill(thread, SIGUSR1));
    finish(thread);
    say("%lu rounds, %lu\n", rounds, result);
}
