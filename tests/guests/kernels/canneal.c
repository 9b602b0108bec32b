// Places of SIZE elements, exchanged again and again so that wires get shorter, in the manner of PARSEC: each thread tries exchanges all over its part of
// memory, and after every ROUND tells what it gained under a lock, and waits for the others. Most of memory is written between two synchronisations.
#include "kernel.h"

#define ROUNDS 24
#define NEIGHBOURS 4
#define SERIES 1

struct element {
    int32_t x, y;
    int32_t neighbours[NEIGHBOURS];
    int64_t moved;
};

static long n;
static struct element *elements;
static int64_t gained;
static pthread_mutex_t gained_lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t length_at(const struct element *e, int32_t x, int32_t y, struct range own) {
    int64_t sum = 0;
    for (int i = 0; i < NEIGHBOURS; i++) {
        const struct element *other = &elements[own.from + e->neighbours[i] % (own.to - own.from)];
        sum += labs((long)other->x - x) + labs((long)other->y - y);
    }
    return sum;
}

// Parts are the same for any number of threads.
enum { PARTS = MAX_THREADS };

static struct range part_of(long part) {
    return (struct range){n * part / PARTS, n * (part + 1) / PARTS};
}

static int64_t exchange_in(long part, int round) {
    struct range own = part_of(part);
    int64_t gain = 0;
    for (long i = own.from; i < own.to; i++) {
        struct element *a = &elements[own.from + random_at(SERIES + round, 2 * i) % (own.to - own.from)];
        struct element *b = &elements[own.from + random_at(SERIES + round, 2 * i + 1) % (own.to - own.from)];
        int64_t before = length_at(a, a->x, a->y, own) + length_at(b, b->x, b->y, own);
        int64_t after = length_at(a, b->x, b->y, own) + length_at(b, a->x, a->y, own);
        if (after > before) continue;
        int32_t x = a->x, y = a->y;
        a->x = b->x, a->y = b->y;
        b->x = x, b->y = y;
        a->moved++, b->moved++;
        gain += before - after;
    }
    return gain;
}

static void body(int thread) {
    struct range own = share_of(PARTS, thread);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t gain = 0;
        for (long part = own.from; part < own.to; part++) gain += exchange_in(part, round);
        lock(&gained_lock);
        gained += gain;
        unlock(&gained_lock);
        barrier();
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){4000, 400000, 2000000});
    n = kernel.size;
    expect(n >= 2 * PARTS);
    elements = room_for(n, sizeof *elements);
    int64_t places = 0, reference = 0;
    for (long i = 0; i < n; i++) {
        uint64_t r = random_at(SERIES - 1, i);
        elements[i] = (struct element){.x = r % 10000, .y = r / 10000 % 10000};
        for (int k = 0; k < NEIGHBOURS; k++) elements[i].neighbours[k] = random_at(SERIES - 1, (k + 1) * n + i) % n;
        places += (int64_t)elements[i].x << 16 ^ elements[i].y;
    }
    in_parallel(body);
    // No place is lost, and none is there twice.
    for (long i = 0; i < n; i++) reference += (int64_t)elements[i].x << 16 ^ elements[i].y;
    expect(reference == places && gained > 0);
    kernel_end(checksum_of(gained, elements, n * sizeof *elements));
}
