// SIZE molecules of three charged atoms each in a periodic box, in the manner of SPLASH-2's water: all pairs nearer than a cutoff push and pull each
// other, springs hold each molecule together. A thread sums the forces of its pairs for itself, and adds them to the shared ones under one lock
// for each group of molecules. Forces are fixed-point numbers, so the order of adding does not matter, and their sum is exactly 0.
#include "kernel.h"

#include <math.h>

#define STEPS 50
#define TIME_STEP 1e-3
#define ATOMS 3
#define GROUP 32
#define CUTOFF 2.5
#define SOFTENING 0.1
#define SPRING 40.0
#define FIXED 0x1p32
#define SERIES 1

typedef int64_t vector[3];

struct molecule {
    double at[ATOMS][3], speed[ATOMS][3];
};

static const double CHARGE[ATOMS] = {-2, 1, 1}, REST[ATOMS][3] = {{0, 0, 0}, {0.6, 0.4, 0}, {-0.6, 0.4, 0}};
static long n, count_of_groups;
static double box;
static struct molecule *molecules;
static vector *forces, *private_forces[MAX_THREADS];
static int64_t potential;
static pthread_mutex_t *group_locks, potential_lock = PTHREAD_MUTEX_INITIALIZER;

// Adds a force between two atoms, and its opposite.
static void push(vector *sums, long a, long b, const double *apart, double factor) {
    for (int d = 0; d < 3; d++) {
        int64_t f = llrint(factor * apart[d] * FIXED);
        sums[a][d] += f;
        sums[b][d] -= f;
    }
}

// The potential energy between two molecules.
static int64_t pair(vector *sums, long i, long j) {
    double shift[3], square = 0;
    for (int d = 0; d < 3; d++) {
        double apart = molecules[i].at[0][d] - molecules[j].at[0][d];
        shift[d] = box * rint(apart / box);
        square += (apart - shift[d]) * (apart - shift[d]);
    }
    if (square > CUTOFF * CUTOFF) return 0;
    int64_t energy = 0;
    for (int a = 0; a < ATOMS; a++) {
        for (int b = 0; b < ATOMS; b++) {
            double apart[3], distance = SOFTENING;
            for (int d = 0; d < 3; d++) {
                apart[d] = molecules[i].at[a][d] - molecules[j].at[b][d] - shift[d];
                distance += apart[d] * apart[d];
            }
            double root = sqrt(distance), charges = CHARGE[a] * CHARGE[b];
            push(sums, i * ATOMS + a, j * ATOMS + b, apart, charges / (distance * root));
            energy += llrint(charges / root * FIXED);
        }
    }
    return energy;
}

static void springs(vector *sums, long i) {
    for (int a = 0; a < ATOMS; a++) {
        int b = (a + 1) % ATOMS;
        double apart[3], square = 0, rest = 0;
        for (int d = 0; d < 3; d++) {
            apart[d] = molecules[i].at[a][d] - molecules[i].at[b][d];
            square += apart[d] * apart[d];
            rest += (REST[a][d] - REST[b][d]) * (REST[a][d] - REST[b][d]);
        }
        push(sums, i * ATOMS + a, i * ATOMS + b, apart, -SPRING * (1 - sqrt(rest / square)));
    }
}

// The forces of the molecules `first`, `first + every`, ... with those that follow each of them, halfway round.
static int64_t forces_of(vector *sums, long first, long every) {
    int64_t energy = 0;
    for (long i = first; i < n; i += every) {
        springs(sums, i);
        for (long k = 1; k <= n / 2; k++) {
            if (2 * k == n && i >= n / 2) continue;
            energy += pair(sums, i, (i + k) % n);
        }
    }
    return energy;
}

static void advance(long i) {
    for (int a = 0; a < ATOMS; a++) {
        double mass = a == 0 ? 16 : 1;
        for (int d = 0; d < 3; d++) {
            molecules[i].speed[a][d] += TIME_STEP * forces[i * ATOMS + a][d] / FIXED / mass;
            molecules[i].at[a][d] += TIME_STEP * molecules[i].speed[a][d];
        }
    }
    memset(forces[i * ATOMS], 0, ATOMS * sizeof(vector));
}

static void body(int thread) {
    struct range own = share_of(n, thread);
    long side = lrint(ceil(cbrt(n)));
    vector *mine = private_forces[thread];
    for (long i = own.from; i < own.to; i++) {
        double place[3] = {i % side, i / side % side, i / side / side};
        for (int a = 0; a < ATOMS; a++) {
            for (int d = 0; d < 3; d++) {
                molecules[i].at[a][d] = place[d] * box / side + REST[a][d];
                molecules[i].speed[a][d] = uniform_at(SERIES, 3 * i + d) - 0.5;
            }
        }
    }
    for (int s = 0; s < STEPS; s++) {
        if (s > 0) {
            for (long i = own.from; i < own.to; i++) advance(i);
        }
        barrier();
        memset(mine, 0, n * ATOMS * sizeof *mine);
        int64_t energy = forces_of(mine, thread, kernel.threads);
        for (long k = 0; k < count_of_groups; k++) {
            // Not all at the same group at once.
            long g = (k + count_of_groups * thread / kernel.threads) % count_of_groups;
            long end = (g + 1) * GROUP < n ? (g + 1) * GROUP : n;
            lock(&group_locks[g]);
            for (long i = g * GROUP * ATOMS; i < end * ATOMS; i++) {
                for (int d = 0; d < 3; d++) forces[i][d] += mine[i][d];
            }
            unlock(&group_locks[g]);
        }
        lock(&potential_lock);
        potential += energy;
        unlock(&potential_lock);
        barrier();
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){64, 2000, 4500});
    n = kernel.size;
    box = 2 * ceil(cbrt(n));
    count_of_groups = (n + GROUP - 1) / GROUP;
    molecules = room_for(n, sizeof *molecules);
    forces = room_for(n * ATOMS, sizeof *forces);
    for (int t = 0; t < kernel.threads; t++) private_forces[t] = room_for(n * ATOMS, sizeof *forces);
    group_locks = room_for(count_of_groups, sizeof *group_locks);
    for (long g = 0; g < count_of_groups; g++) ok(pthread_mutex_init(&group_locks[g], NULL));
    in_parallel(body);
    // The last step's forces, by one thread.
    vector *reference = room_for(n * ATOMS, sizeof *reference), sum = {0};
    forces_of(reference, 0, 1);
    expect(memcmp(reference, forces, n * ATOMS * sizeof *forces) == 0);
    for (long i = 0; i < n * ATOMS; i++) {
        for (int d = 0; d < 3; d++) sum[d] += forces[i][d];
    }
    expect(sum[0] == 0 && sum[1] == 0 && sum[2] == 0);
    kernel_end(checksum_of(checksum_of(0, &potential, sizeof potential), molecules, n * sizeof *molecules));
}
