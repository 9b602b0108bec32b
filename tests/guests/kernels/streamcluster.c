// Clusters of SIZE points by local search, in the manner of PARSEC's streamcluster: again and again a random point is tried as one more
// centre. The threads find out what their points would gain, the first of them adds that up and decides, all change over. Many barriers with little
// work between them. Distances are integers, so gains are exact.
#include "kernel.h"

#define DIMENSIONS 16
// So many points for each trial, but at least so many trials.
#define POINTS_A_TRIAL 50
#define LEAST_TRIALS 200
// What a centre costs, in squared distance.
#define CENTRE_COST (1ll << 19)
#define SERIES 1

static long n, trials, centres;
static uint8_t (*points)[DIMENSIONS];
// The centre that each point belongs to, by its number in `centre_of`, and what that costs.
static long *assigned, *centre_of;
static int64_t *cost;
static bool *closing;
// Per thread: what it gains by moving points to the tried one, and what closing each centre would cost it.
static struct APART {
    int64_t gain, *loss;
} parts[MAX_THREADS];
static int64_t total;
static bool opens;

static int64_t distance(long a, long b) {
    int32_t sum = 0;
    for (int d = 0; d < DIMENSIONS; d++) {
        int32_t apart = points[a][d] - points[b][d];
        sum += apart * apart;
    }
    return sum;
}

static long candidate(int trial) {
    return random_at(SERIES + 1, trial) % n;
}

// Adds up what the threads found, and decides.
static void decide(void) {
    int64_t gain = -CENTRE_COST;
    for (int t = 0; t < kernel.threads; t++) gain += parts[t].gain;
    for (long c = 0; c < centres; c++) {
        int64_t loss = 0;
        for (int t = 0; t < kernel.threads; t++) loss += parts[t].loss[c];
        // A centre that is closed already loses nothing and gains nothing.
        closing[c] = centre_of[c] >= 0 && loss < CENTRE_COST;
        if (closing[c]) gain += CENTRE_COST - loss;
    }
    opens = gain > 0;
    if (!opens) return;
    total -= gain;
    for (long c = 0; c < centres; c++) {
        if (closing[c]) centre_of[c] = -1;
    }
}

static void try_one(int thread, long tried) {
    struct range own = share_of(n, thread);
    int64_t *loss = parts[thread].loss, gain = 0;
    memset(loss, 0, centres * sizeof *loss);
    for (long i = own.from; i < own.to; i++) {
        int64_t d = distance(i, tried) - cost[i];
        if (d < 0) {
            gain -= d;
        } else {
            loss[assigned[i]] += d;
        }
    }
    parts[thread].gain = gain;
    barrier();
    if (thread == 0) decide();
    barrier();
    if (opens) {
        for (long i = own.from; i < own.to; i++) {
            int64_t d = distance(i, tried);
            if (d < cost[i] || closing[assigned[i]]) {
                cost[i] = d;
                assigned[i] = centres;
            }
        }
        barrier();
        if (thread == 0) centre_of[centres++] = tried;
        barrier();
    }
}

static void body(int thread) {
    struct range own = share_of(n, thread);
    for (long i = own.from; i < own.to; i++) {
        // Around one of 32 places.
        uint64_t place = random_at(SERIES, i) % 32;
        for (int d = 0; d < DIMENSIONS; d++) {
            points[i][d] = random_at(SERIES + 2, place * DIMENSIONS + d) % 192 + random_at(SERIES + 3, i * DIMENSIONS + d) % 64;
        }
    }
    barrier();
    // At first there is one centre: the first point.
    for (long i = own.from; i < own.to; i++) cost[i] = distance(i, 0);
    barrier();
    if (thread == 0) {
        total = CENTRE_COST;
        for (long i = 0; i < n; i++) total += cost[i];
    }
    for (int trial = 0; trial < trials; trial++) try_one(thread, candidate(trial));
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){1000, 130000, 290000});
    n = kernel.size;
    trials = n / POINTS_A_TRIAL > LEAST_TRIALS ? n / POINTS_A_TRIAL : LEAST_TRIALS;
    points = room_for(n, sizeof *points);
    assigned = room_for(n, sizeof *assigned);
    cost = room_for(n, sizeof *cost);
    centre_of = room_for(trials + 1, sizeof *centre_of);
    closing = room_for(trials + 1, sizeof *closing);
    for (int t = 0; t < kernel.threads; t++) parts[t].loss = room_for(trials + 1, sizeof *parts[t].loss);
    centres = 1;
    in_parallel(body);
    // What it says it costs is what it costs.
    int64_t sum = 0, open = 0;
    for (long c = 0; c < centres; c++) open += centre_of[c] >= 0;
    for (long i = 0; i < n; i++) {
        long centre = centre_of[assigned[i]];
        expect(centre >= 0 && distance(i, centre) == cost[i]);
        sum += cost[i];
    }
    expect(open > 1 && sum + open * CENTRE_COST == total);
    kernel_end(checksum_of(checksum_of(0, centre_of, centres * sizeof *centre_of), cost, n * sizeof *cost));
}
