// All of a large table is written again and again, between calls: a copy of the program at a moment shares nothing with it a moment later.
// flags: -O2 -g
#include "guest.h"

enum { WORDS = 2 << 20 };

static uint64_t table[WORDS];

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 600);
    uint64_t sum = 1;
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < WORDS; i++) table[i] = table[i] * 3 + sum + i;
        sum += table[round * 4099 % WORDS];
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &(struct timespec){0});
    }
    say("sum %llu\n", (unsigned long long)sum);
    return 0;
}
