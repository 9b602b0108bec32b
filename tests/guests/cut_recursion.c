// Two threads in deep, branching recursion: the place of a cut is told by the stack more than by the registers.
// variant: O0 -O0
// run: 16
#include "guest.h"

static volatile uint64_t progress[2][8];

__attribute__((noinline)) static uint64_t fibonacci(int n, int me, uint64_t *seen) {
    if (n < 2) {
        if (++progress[me][0] % 4096 == 0) *seen = mix(*seen + progress[1 - me][0]);
        return n;
    }
    return fibonacci(n - 1, me, seen) + fibonacci(n - 2, me, seen);
}

static long repeats;

static void *body(void *p) {
    uint64_t seen = 0;
    for (long i = 0; i < repeats; i++) expect(fibonacci(29, (intptr_t)p, &seen) == 514229);
    return (void *)seen;
}

int main(int argc, char **argv) {
    repeats = number(argc, argv, 1, 16);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
    say("saw %lu and %lu\n", x, y);
}
