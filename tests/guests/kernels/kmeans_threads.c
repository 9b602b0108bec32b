// SIZE points in CLUSTERS clusters, in the manner of Phoenix: threads are made anew for both halves of each of ROUNDS rounds, over a thousand with two at a
// time. Each sets what is its own; the sums are made in the order of the points.
#include "kernel.h"

#define DIMENSIONS 3
#define CLUSTERS 100
#define ROUNDS 260
#define SERIES 1

static long n;
static int rounds;
static int32_t (*points)[DIMENSIONS], centres[CLUSTERS][DIMENSIONS], *cluster_of;

static void find(int thread) {
    struct range own = share_of(n, thread);
    for (long i = own.from; i < own.to; i++) {
        int best = 0;
        int64_t least = INT64_MAX;
        for (int c = 0; c < CLUSTERS; c++) {
            int64_t square = 0;
            for (int d = 0; d < DIMENSIONS; d++) {
                int64_t apart = points[i][d] - centres[c][d];
                square += apart * apart;
            }
            if (square < least) least = square, best = c;
        }
        cluster_of[i] = best;
    }
}

static void move(int thread) {
    struct range own = share_of(CLUSTERS, thread);
    int64_t sums[CLUSTERS][DIMENSIONS] = {{0}}, counts[CLUSTERS] = {0};
    for (long i = 0; i < n; i++) {
        int c = cluster_of[i];
        if (c < own.from || c >= own.to) continue;
        counts[c]++;
        for (int d = 0; d < DIMENSIONS; d++) sums[c][d] += points[i][d];
    }
    for (long c = own.from; c < own.to; c++) {
        for (int d = 0; d < DIMENSIONS && counts[c] > 0; d++) centres[c][d] = sums[c][d] / counts[c];
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){200, 10000, 50000});
    n = kernel.size;
    rounds = kernel.thorough ? 8 : ROUNDS;
    expect(n >= CLUSTERS);
    points = room_for(n, sizeof *points);
    cluster_of = room_for(n, sizeof *cluster_of);
    for (long i = 0; i < n; i++) {
        for (int d = 0; d < DIMENSIONS; d++) points[i][d] = random_at(SERIES, i * DIMENSIONS + d) >> 44;
    }
    for (int c = 0; c < CLUSTERS; c++) memcpy(centres[c], points[n * c / CLUSTERS], sizeof centres[c]);
    for (int round = 0; round < rounds; round++) {
        in_parallel(find);
        in_parallel(move);
    }
    int64_t count = 0;
    for (long i = 0; i < n; i++) count += cluster_of[i] >= 0 && cluster_of[i] < CLUSTERS;
    expect(count == n);
    kernel_end(checksum_of(checksum_of(0, centres, sizeof centres), cluster_of, n * sizeof *cluster_of));
}
