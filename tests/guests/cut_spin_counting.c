// As with the plain flag, but each thread counts how long it waits, so that where it is cut changes what it says.
// variant: O0 -O0
// variant: O2 -O2
// run: 20
#include "guest.h"

static volatile int turn;
static long rounds;

static void *body(void *p) {
    int me = (intptr_t)p;
    uint64_t waited = 0;
    for (long i = 0; i < rounds; i++) {
        while (turn != me) waited++;
        turn = 1 - me;
    }
    return (void *)waited;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 20);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
    say("waited %lu and %lu rounds\n", x, y);
}
