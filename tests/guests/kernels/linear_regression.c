// A straight line through SIZE points of two bytes, in the manner of Phoenix: each thread adds up its part of the input in sums that lie beside the
// sums of the others, so that every addition is to a cache line that others write (false sharing).
#include "kernel.h"

#define SERIES 1

struct point {
    unsigned char x, y;
};

static long n;
static const struct point *points;
static struct sums {
    int64_t x, y, xx, yy, xy;
} sums[MAX_THREADS];

static void fill(unsigned char *part, long len) {
    for (long i = 0; i < len; i++) part[i] = random_at(SERIES, i);
}

static void add(struct sums *to, struct range part) {
    for (long i = part.from; i < part.to; i++) {
        to->x += points[i].x;
        to->y += points[i].y;
        to->xx += points[i].x * points[i].x;
        to->yy += points[i].y * points[i].y;
        to->xy += points[i].x * points[i].y;
    }
}

static void body(int thread) {
    add(&sums[thread], share_of(n, thread));
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){20000, 50000000, 500000000});
    n = kernel.size;
    points = (const struct point *)input_of(n * (long)sizeof *points, fill);
    in_parallel(body);
    struct sums all = {0}, reference = {0};
    for (int t = 0; t < kernel.threads; t++) {
        all.x += sums[t].x;
        all.y += sums[t].y;
        all.xx += sums[t].xx;
        all.yy += sums[t].yy;
        all.xy += sums[t].xy;
    }
    if (kernel.thorough) {
        add(&reference, (struct range){0, n});
        expect(memcmp(&reference, &all, sizeof all) == 0);
    }
    kernel_end(checksum_of(0, &all, sizeof all));
}
