// SIZE points in CLUSTERS clusters: each point goes to the nearest centre, each centre to the middle of its points, until nothing changes or
// ROUNDS are over. Each thread sums for itself, and adds its sums to everyone's under one lock. Coordinates are integers.
#include "kernel.h"

#define DIMENSIONS 8
#define CLUSTERS 24
#define ROUNDS 25
#define SERIES 1

static long n;
static int32_t (*points)[DIMENSIONS], centres[CLUSTERS][DIMENSIONS];
static uint8_t *cluster_of;
static struct sums {
    int64_t sum[CLUSTERS][DIMENSIONS], count[CLUSTERS], changes;
} shared;
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static bool finished;

static int nearest(const int32_t *point) {
    int best = 0;
    int64_t least = INT64_MAX;
    for (int c = 0; c < CLUSTERS; c++) {
        int64_t square = 0;
        for (int d = 0; d < DIMENSIONS; d++) {
            int64_t apart = point[d] - centres[c][d];
            square += apart * apart;
        }
        if (square < least) {
            least = square;
            best = c;
        }
    }
    return best;
}

static void move_centres(int round) {
    finished = shared.changes == 0 || round == ROUNDS - 1;
    for (int c = 0; c < CLUSTERS && !finished; c++) {
        for (int d = 0; d < DIMENSIONS && shared.count[c] > 0; d++) centres[c][d] = shared.sum[c][d] / shared.count[c];
    }
    if (!finished) memset(&shared, 0, sizeof shared);
}

static void body(int thread) {
    struct range own = share_of(n, thread);
    for (long i = own.from; i < own.to; i++) {
        for (int d = 0; d < DIMENSIONS; d++) points[i][d] = random_at(SERIES, i * DIMENSIONS + d) >> 44;
        cluster_of[i] = CLUSTERS;
    }
    barrier();
    if (thread == 0) {
        for (int c = 0; c < CLUSTERS; c++) memcpy(centres[c], points[n * c / CLUSTERS], sizeof centres[c]);
    }
    barrier();
    for (int round = 0; !finished; round++) {
        struct sums mine = {0};
        for (long i = own.from; i < own.to; i++) {
            int c = nearest(points[i]);
            mine.changes += cluster_of[i] != c;
            cluster_of[i] = c;
            mine.count[c]++;
            for (int d = 0; d < DIMENSIONS; d++) mine.sum[c][d] += points[i][d];
        }
        lock(&shared_lock);
        shared.changes += mine.changes;
        for (int c = 0; c < CLUSTERS; c++) {
            shared.count[c] += mine.count[c];
            for (int d = 0; d < DIMENSIONS; d++) shared.sum[c][d] += mine.sum[c][d];
        }
        unlock(&shared_lock);
        barrier();
        if (thread == 0) move_centres(round);
        barrier();
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){2000, 250000, 1250000});
    n = kernel.size;
    expect(n >= CLUSTERS);
    points = room_for(n, sizeof *points);
    cluster_of = room_for(n, sizeof *cluster_of);
    in_parallel(body);
    struct sums reference = {0};
    for (long i = 0; i < n; i++) {
        int c = cluster_of[i];
        if (kernel.thorough || i % 31 == 0) expect(c == nearest(points[i]));
        reference.count[c]++;
        for (int d = 0; d < DIMENSIONS; d++) reference.sum[c][d] += points[i][d];
    }
    expect(memcmp(reference.sum, shared.sum, sizeof shared.sum) == 0);
    expect(memcmp(reference.count, shared.count, sizeof shared.count) == 0);
    kernel_end(checksum_of(checksum_of(0, centres, sizeof centres), cluster_of, n));
}
