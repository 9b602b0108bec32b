// SIZE bodies that attract each other, by Barnes and Hut's tree: a group that is far away counts as one body. The topmost levels of the tree
// are a fixed lattice; the subtrees of its cubes, and later the bodies in small groups, are pieces of work that a lock hands out.
#include "kernel.h"

#include <math.h>

#define STEPS 4
#define TIME_STEP 1e-3
#define OPENING 0.5
#define SOFTENING 1e-4
// Levels of the lattice, and cubes along its side.
#define LEVELS 3
#define SIDE (1 << LEVELS)
#define CUBES (SIDE * SIDE * SIDE)
#define GROUP 32
#define MAX_DEPTH 100
#define SERIES 1

struct body {
    double at[3], speed[3], pull[3], mass;
};

struct cell {
    double at[3], mass, width;
    struct cell *part[8];
    // The only one inside, or -1.
    long body;
};

struct pool {
    struct cell *cells;
    long used, room;
} APART;

static long n;
static struct body *bodies;
static long *cube_of, *order, first_of[CUBES + 1];
static struct cell *cubes[CUBES], *root;
static struct pool pools[MAX_THREADS + 1];
static double width;
static struct APART {
    double value;
} reach[MAX_THREADS];
static struct work trees = {.mutex = PTHREAD_MUTEX_INITIALIZER}, groups = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct cell *new_cell(struct pool *pool, double cell_width) {
    expect(pool->used < pool->room);
    struct cell *cell = &pool->cells[pool->used++];
    *cell = (struct cell){.width = cell_width, .body = -1};
    return cell;
}

// Which eighth of the cube around `middle` a place is in; the middle becomes that eighth's.
static int eighth(const double *at, double *middle, double half) {
    int which = 0;
    for (int d = 0; d < 3; d++) {
        bool upper = at[d] >= middle[d];
        which |= upper << d;
        middle[d] += upper ? half / 2 : -half / 2;
    }
    return which;
}

static void insert(struct pool *pool, struct cell *cell, const double *cell_middle, long body) {
    double middle[3] = {cell_middle[0], cell_middle[1], cell_middle[2]};
    for (int depth = 0;; depth++) {
        expect(depth < MAX_DEPTH);
        double before[3] = {middle[0], middle[1], middle[2]};
        struct cell **part = &cell->part[eighth(bodies[body].at, middle, cell->width / 2)];
        if (!*part) {
            *part = new_cell(pool, cell->width / 2);
            (*part)->body = body;
            return;
        }
        if ((*part)->body >= 0) {
            // There is one already: its place becomes a cell with both inside.
            long other = (*part)->body;
            (*part)->body = -1;
            double its[3] = {before[0], before[1], before[2]};
            eighth(bodies[other].at, its, cell->width / 2);
            insert(pool, *part, its, other);
        }
        cell = *part;
    }
}

// Centres of mass, from below.
static void weigh(struct cell *cell) {
    if (cell->body >= 0) {
        cell->mass = bodies[cell->body].mass;
        memcpy(cell->at, bodies[cell->body].at, sizeof cell->at);
        return;
    }
    for (int i = 0; i < 8; i++) {
        struct cell *part = cell->part[i];
        if (!part) continue;
        weigh(part);
        cell->mass += part->mass;
        for (int d = 0; d < 3; d++) cell->at[d] += part->mass * part->at[d];
    }
    for (int d = 0; d < 3; d++) cell->at[d] /= cell->mass;
}

static double middle_of(long position) {
    return (position + 0.5) * width / SIDE - width / 2;
}

static void plant(struct pool *pool, long cube) {
    cubes[cube] = NULL;
    if (first_of[cube] == first_of[cube + 1]) return;
    cubes[cube] = new_cell(pool, width / SIDE);
    double middle[3] = {middle_of(cube % SIDE), middle_of(cube / SIDE % SIDE), middle_of(cube / SIDE / SIDE)};
    for (long i = first_of[cube]; i < first_of[cube + 1]; i++) insert(pool, cubes[cube], middle, order[i]);
    weigh(cubes[cube]);
}

// The lattice's cells above the cubes; the cube at (x, y, z) of a level with `side` along each side.
static struct cell *above(struct pool *pool, int side, int x, int y, int z) {
    if (side == SIDE) return cubes[(z * SIDE + y) * SIDE + x];
    struct cell *cell = new_cell(pool, width / side);
    for (int i = 0; i < 8; i++) {
        struct cell *part = above(pool, 2 * side, 2 * x + (i & 1), 2 * y + (i >> 1 & 1), 2 * z + (i >> 2));
        cell->part[i] = part;
        if (!part) continue;
        cell->mass += part->mass;
        for (int d = 0; d < 3; d++) cell->at[d] += part->mass * part->at[d];
    }
    if (cell->mass == 0) {
        pool->used--;
        return NULL;
    }
    for (int d = 0; d < 3; d++) cell->at[d] /= cell->mass;
    return cell;
}

static void add_pull(double *pull, const double *at, const double *other, double mass) {
    double apart[3], square = SOFTENING;
    for (int d = 0; d < 3; d++) {
        apart[d] = other[d] - at[d];
        square += apart[d] * apart[d];
    }
    double factor = mass / (square * sqrt(square));
    for (int d = 0; d < 3; d++) pull[d] += factor * apart[d];
}

static void pull_of(const struct cell *cell, long body, double *pull) {
    const double *at = bodies[body].at;
    if (cell->body == body) return;
    double square = 0;
    for (int d = 0; d < 3; d++) square += (cell->at[d] - at[d]) * (cell->at[d] - at[d]);
    if (cell->body >= 0 || cell->width * cell->width < OPENING * OPENING * square) {
        add_pull(pull, at, cell->at, cell->mass);
        return;
    }
    for (int i = 0; i < 8; i++) {
        if (cell->part[i]) pull_of(cell->part[i], body, pull);
    }
}

// Sorts the bodies by cube.
static void sort_into_cubes(void) {
    memset(first_of, 0, sizeof first_of);
    for (long i = 0; i < n; i++) first_of[cube_of[i] + 1]++;
    for (int cube = 0; cube < CUBES; cube++) first_of[cube + 1] += first_of[cube];
    static long next[CUBES];
    memcpy(next, first_of, sizeof next);
    for (long i = 0; i < n; i++) order[next[cube_of[i]]++] = i;
}

static long lattice(double x) {
    long position = (long)((x + width / 2) / width * SIDE);
    return position < 0 ? 0 : position < SIDE ? position : SIDE - 1;
}

static void step(int thread) {
    struct range own = share_of(n, thread);
    double far = 0;
    for (long i = own.from; i < own.to; i++) {
        for (int d = 0; d < 3; d++) far = fmax(far, fabs(bodies[i].at[d]));
    }
    reach[thread].value = far;
    pools[thread].used = 0;
    barrier();
    if (thread == 0) {
        for (int t = 0; t < kernel.threads; t++) far = fmax(far, reach[t].value);
        width = 2.01 * far;
        trees.next = groups.next = 0;
        trees.count = CUBES;
        groups.count = (n + GROUP - 1) / GROUP;
    }
    barrier();
    for (long i = own.from; i < own.to; i++) {
        const double *at = bodies[i].at;
        cube_of[i] = (lattice(at[2]) * SIDE + lattice(at[1])) * SIDE + lattice(at[0]);
    }
    barrier();
    if (thread == 0) sort_into_cubes();
    barrier();
    for (long cube; (cube = take(&trees)) >= 0;) plant(&pools[thread], cube);
    barrier();
    if (thread == 0) {
        pools[MAX_THREADS].used = 0;
        root = above(&pools[MAX_THREADS], 1, 0, 0, 0);
    }
    barrier();
    for (long group; (group = take(&groups)) >= 0;) {
        // Bodies that are near each other see the same cells.
        for (long i = group * GROUP; i < n && i < (group + 1) * GROUP; i++) {
            double *pull = bodies[order[i]].pull;
            pull[0] = pull[1] = pull[2] = 0;
            pull_of(root, order[i], pull);
        }
    }
    barrier();
}

static void body(int thread) {
    struct range own = share_of(n, thread);
    for (long i = own.from; i < own.to; i++) {
        for (int d = 0; d < 3; d++) {
            bodies[i].at[d] = uniform_at(SERIES, 6 * i + d) - 0.5;
            bodies[i].speed[d] = uniform_at(SERIES, 6 * i + 3 + d) - 0.5;
        }
        bodies[i].mass = 1.0 / n;
    }
    step(thread);
    for (int s = 1; s < STEPS; s++) {
        for (long i = own.from; i < own.to; i++) {
            for (int d = 0; d < 3; d++) {
                bodies[i].speed[d] += TIME_STEP * bodies[i].pull[d];
                bodies[i].at[d] += TIME_STEP * bodies[i].speed[d];
            }
        }
        barrier();
        step(thread);
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){500, 30000, 130000});
    n = kernel.size;
    expect(n >= 2);
    bodies = room_for(n, sizeof *bodies);
    cube_of = room_for(n, sizeof *cube_of);
    order = room_for(n, sizeof *order);
    for (int t = 0; t <= MAX_THREADS; t++) {
        if (t >= kernel.threads && t != MAX_THREADS) continue;
        pools[t].room = 8 * n + 2 * CUBES;
        pools[t].cells = room_for(pools[t].room, sizeof *pools[t].cells);
    }
    in_parallel(body);
    // Against the sum over all bodies.
    double error = 0, all = 0;
    for (long i = 0; i < n; i += kernel.thorough ? 1 : n / 16 + 1) {
        double exact[3] = {0};
        for (long j = 0; j < n; j++) {
            if (j != i) add_pull(exact, bodies[i].at, bodies[j].at, bodies[j].mass);
        }
        for (int d = 0; d < 3; d++) {
            error += (exact[d] - bodies[i].pull[d]) * (exact[d] - bodies[i].pull[d]);
            all += exact[d] * exact[d];
        }
    }
    expect(error < 0.02 * 0.02 * all);
    kernel_end(checksum_of(0, bodies, n * sizeof *bodies));
}
