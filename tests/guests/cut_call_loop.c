// Two threads in tight loops of system calls: a slice ends at a gate, or in the stub of a rewritten site, and never in the runtime.
// run: 300000
#include "guest.h"

static volatile uint64_t progress[2][8];
static uint64_t rounds;

static void *body(void *p) {
    uintptr_t me = (uintptr_t)p;
    uint64_t seen = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        getppid();
        progress[me][0] = i;
        if (i % 64 == 0) seen = mix(seen + progress[1 - me][0]);
    }
    return (void *)seen;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 300000);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
    say("saw %lu and %lu\n", x, y);
}
