// How often each brightness of red, green and blue is there in ROUNDS pictures of SIZE points. Each thread counts in its part, and adds its counts to
// everyone's under one lock.
#include "kernel.h"

#define ROUNDS 40
#define CHANNELS 3
#define SERIES 1

typedef uint64_t histogram[CHANNELS][256];

static long n;
static uint8_t (*picture)[CHANNELS];
static histogram shared[ROUNDS];
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

// Each round's picture is the first one, with other colours.
static void count(histogram counts, struct range part, int round) {
    for (long i = part.from; i < part.to; i++) {
        for (int c = 0; c < CHANNELS; c++) counts[c][(uint8_t)(picture[i][c] + round * (c + 1))]++;
    }
}

static void body(int thread) {
    struct range own = share_of(n, thread);
    for (long i = own.from; i < own.to; i++) {
        uint64_t r = random_at(SERIES, i);
        for (int c = 0; c < CHANNELS; c++) picture[i][c] = ((r >> 16 * c & 0xff) * (r >> (16 * c + 8) & 0xff)) >> 8;
    }
    for (int round = 0; round < ROUNDS; round++) {
        histogram mine = {{0}};
        count(mine, own, round);
        lock(&shared_lock);
        for (int c = 0; c < CHANNELS; c++) {
            for (int i = 0; i < 256; i++) shared[round][c][i] += mine[c][i];
        }
        unlock(&shared_lock);
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){20000, 12000000, 60000000});
    n = kernel.size;
    picture = room_for(n, sizeof *picture);
    in_parallel(body);
    for (int round = kernel.thorough ? 0 : ROUNDS - 1; round < ROUNDS; round++) {
        histogram reference = {{0}};
        count(reference, (struct range){0, n}, round);
        expect(memcmp(reference, shared[round], sizeof reference) == 0);
    }
    kernel_end(checksum_of(0, shared, sizeof shared));
}
