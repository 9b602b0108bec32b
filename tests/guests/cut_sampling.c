// Two threads compute for a while; each looks at the other's progress in shared memory as it goes, and says what it saw.
// variant: O0 -O0
// variant: O2 -O2
// variant: static -static
// run: 100000000
#include "guest.h"

static volatile uint64_t progress[2][8];
static uint64_t rounds;

static void *body(void *p) {
    uintptr_t me = (uintptr_t)p;
    uint64_t seen = 0, changes = 0, x = 1;
    for (uint64_t i = 0; i < rounds; i++) {
        x = x * 6364136223846793005u + i;
        progress[me][0] = i;
        if (i % 1024 == 0 && progress[1 - me][0] != seen) {
            seen = progress[1 - me][0];
            changes = mix(changes + seen);
        }
    }
    return (void *)(changes + x);
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 100000000);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
    say("saw %lu and %lu\n", x, y);
}
