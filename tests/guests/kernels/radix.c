// Sorts SIZE keys of 32 bits by four passes over digits of 8 bits, ROUNDS times. In each pass the threads count their keys' digits, wait for each
// other, find their places from everyone's counts, and move their keys.
#include "kernel.h"

#define DIGITS 256
#define PASSES 4
#define ROUNDS 8
#define SERIES 1

static long n;
static uint32_t *keys, *moved;
static struct APART {
    long count[DIGITS];
} counts[MAX_THREADS];

static uint32_t input(int round, long i) {
    return random_at(SERIES + round, i) >> 32;
}

static void sort(int thread, int round) {
    struct range own = share_of(n, thread);
    for (long i = own.from; i < own.to; i++) keys[i] = input(round, i);
    barrier();
    uint32_t *from = keys, *to = moved;
    for (int pass = 0; pass < PASSES; pass++) {
        int shift = 8 * pass;
        long *count = counts[thread].count, place[DIGITS], next = 0;
        memset(count, 0, sizeof counts[thread].count);
        for (long i = own.from; i < own.to; i++) count[from[i] >> shift & 0xff]++;
        barrier();
        for (int digit = 0; digit < DIGITS; digit++) {
            for (int t = 0; t < kernel.threads; t++) {
                if (t == thread) place[digit] = next;
                next += counts[t].count[digit];
            }
        }
        for (long i = own.from; i < own.to; i++) to[place[from[i] >> shift & 0xff]++] = from[i];
        barrier();
        uint32_t *previous = from;
        from = to;
        to = previous;
    }
}

static void body(int thread) {
    for (int round = 0; round < ROUNDS; round++) sort(thread, round);
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){1 << 14, 1 << 23, 10 << 22});
    n = kernel.size;
    keys = room_for(n, sizeof *keys);
    moved = room_for(n, sizeof *moved);
    in_parallel(body);
    // In order, and the same keys as before the last round.
    uint64_t sum = 0, wanted = 0;
    for (long i = 0; i < n; i++) {
        expect(i == 0 || keys[i - 1] <= keys[i]);
        sum += mix(keys[i]);
        wanted += mix(input(ROUNDS - 1, i));
    }
    expect(sum == wanted);
    kernel_end(checksum_of(0, keys, n * sizeof *keys));
}
