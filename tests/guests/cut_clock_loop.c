// Two threads read the time and the time stamp counter as fast as they can and note when it jumps.
// run: 30000
#include "guest.h"
#include <x86intrin.h>

static long rounds;

static void *body(void *p) {
    uint64_t hash = (uintptr_t)p, last = 0;
    for (long i = 0; i < rounds; i++) {
        uint64_t t = i % 2 ? (uint64_t)now_ns(CLOCK_MONOTONIC) : (i % 16 ? last : __rdtsc());
        if (i % 2) {
            if (last && t > last + 20000) hash = mix(hash + i);
            last = t;
        } else {
            hash = mix(hash + t);
        }
    }
    return (void *)hash;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 30000);
    pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
    uint64_t x = (uint64_t)finish(a), y = (uint64_t)finish(b);
    say("hashes %lu and %lu\n", x, y);
}
