// A stress test of races in the manner of "racey" (Hill and Xu): threads mix the words of a shared array into each other without any
// lock, so that every single ordering of two accesses changes the signature at the end.
// variant: O0 -O0
// variant: static -static
// variant: nonpie -no-pie -fno-pie
// run: 4 2000000
#include "guest.h"

enum { CELLS = 64, MOST = 16 };

// One cell a cache line, as in the original: neighbours don't disturb each other.
static struct {
    volatile uint32_t value;
    uint32_t rest[15];
} cells[CELLS];

static uint32_t signatures[MOST];
static volatile int go;
static long rounds;

static uint32_t blend(uint32_t a, uint32_t b) {
    uint32_t x = a * 2654435761u ^ (b << 7 | b >> 25);
    return x + (x >> 15) + 0x632be5abu;
}

static void *body(void *p) {
    uint32_t state = (uint32_t)(uintptr_t)p + 1;
    while (!go) sched_yield();
    for (long i = 0; i < rounds; i++) {
        uint32_t a = cells[state % CELLS].value;
        state = blend(state, a);
        uint32_t b = cells[state / CELLS % CELLS].value;
        cells[a % CELLS].value = blend(a, b);
        state = blend(b, state);
    }
    signatures[(uintptr_t)p] = state;
    return NULL;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 2000000);
    expect(count <= MOST);
    for (int i = 0; i < CELLS; i++) cells[i].value = i * 40503u;
    pthread_t threads[MOST];
    for (uintptr_t i = 0; i < (uintptr_t)count; i++) threads[i] = start(body, (void *)i);
    go = 1;
    for (int i = 0; i < count; i++) finish(threads[i]);
    uint64_t signature = 0;
    for (int i = 0; i < count; i++) signature = mix(signature + signatures[i]);
    for (int i = 0; i < CELLS; i++) signature = mix(signature + cells[i].value);
    say("signature 0x%016lx\n", signature);
}
