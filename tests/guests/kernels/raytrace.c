// A picture of SIZE by SIZE points of mirroring balls over a chequered floor, with shadows. The picture is a queue of tiles behind one lock.
#include "kernel.h"

#include <math.h>

#define TILE 16
#define BALLS 48
#define REFLECTIONS 4
#define NEAR 1e-6
#define SERIES 1

struct vector {
    double x, y, z;
};

struct ball {
    struct vector at, colour;
    double radius, mirrors;
};

static long n, tiles;
static uint32_t *picture;
static struct ball balls[BALLS];
static const struct vector LIGHT = {-6, 12, -8};
static struct work queue = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct vector add(struct vector a, struct vector b, double factor) {
    return (struct vector){a.x + factor * b.x, a.y + factor * b.y, a.z + factor * b.z};
}

static double dot(struct vector a, struct vector b) {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

static struct vector unit(struct vector a) {
    return add((struct vector){0, 0, 0}, a, 1 / sqrt(dot(a, a)));
}

// How far it is to a ball; 0 when the ray misses it.
static double distance_to(const struct ball *ball, struct vector from, struct vector way) {
    struct vector there = add(ball->at, from, -1);
    double along = dot(there, way), square = along * along - dot(there, there) + ball->radius * ball->radius;
    if (square < 0) return 0;
    double root = sqrt(square);
    return along - root > NEAR ? along - root : along + root > NEAR ? along + root : 0;
}

// The first thing that a ray meets: a ball's number, BALLS for the floor, -1 for the sky.
static int meets(struct vector from, struct vector way, double *distance) {
    int first = -1;
    *distance = INFINITY;
    for (int i = 0; i < BALLS; i++) {
        double d = distance_to(&balls[i], from, way);
        if (d > 0 && d < *distance) {
            *distance = d;
            first = i;
        }
    }
    if (way.y < 0 && -from.y / way.y > NEAR && -from.y / way.y < *distance) {
        *distance = -from.y / way.y;
        first = BALLS;
    }
    return first;
}

static struct vector colour_of(struct vector from, struct vector way, int reflections) {
    double distance, light_distance;
    int thing = meets(from, way, &distance);
    if (thing < 0) return (struct vector){0.4 + 0.2 * way.y, 0.6 + 0.2 * way.y, 0.9};
    struct vector at = add(from, way, distance), up = {0, 1, 0}, colour = {0.9, 0.9, 0.9};
    double mirrors = 0.1;
    if (thing == BALLS) {
        if ((lrint(floor(at.x)) + lrint(floor(at.z))) & 1) colour = (struct vector){0.2, 0.2, 0.2};
    } else {
        up = unit(add(at, balls[thing].at, -1));
        colour = balls[thing].colour;
        mirrors = balls[thing].mirrors;
    }
    struct vector to_light = unit(add(LIGHT, at, -1));
    double bright = fmax(0, dot(up, to_light));
    if (bright > 0 && meets(at, to_light, &light_distance) >= 0) bright = 0;
    struct vector result = add((struct vector){0, 0, 0}, colour, (0.15 + 0.85 * bright) * (1 - mirrors));
    if (reflections == 0) return result;
    struct vector back = unit(add(way, up, -2 * dot(way, up)));
    return add(result, colour_of(at, back, reflections - 1), mirrors);
}

static uint32_t part(double x) {
    return x >= 1 ? 255 : x <= 0 ? 0 : (uint32_t)(x * 255);
}

static uint32_t point(long x, long y) {
    struct vector eye = {0, 3, -12};
    struct vector way = unit((struct vector){(x + 0.5) / n - 0.5, 0.4 - (y + 0.5) / n, 1});
    struct vector colour = colour_of(eye, way, REFLECTIONS);
    return part(colour.x) << 16 | part(colour.y) << 8 | part(colour.z);
}

static void body(int thread) {
    (void)thread;
    for (long tile; (tile = take(&queue)) >= 0;) {
        long left = tile % tiles * TILE, top = tile / tiles * TILE;
        for (long y = top; y < n && y < top + TILE; y++) {
            for (long x = left; x < n && x < left + TILE; x++) picture[y * n + x] = point(x, y);
        }
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){64, 1100, 2450});
    n = kernel.size;
    tiles = (n + TILE - 1) / TILE;
    queue.count = tiles * tiles;
    picture = room_for(n * n, sizeof *picture);
    for (int i = 0; i < BALLS; i++) {
        double r[7];
        for (int k = 0; k < 7; k++) r[k] = uniform_at(SERIES, 7 * i + k);
        double radius = 0.3 + 0.6 * r[0];
        balls[i] = (struct ball){{10 * r[1] - 5, radius + 3 * r[2], 10 * r[3] - 5}, {r[4], r[5], r[6]}, radius, 0.3};
    }
    in_parallel(body);
    for (long i = 0; i < n * n; i += kernel.thorough ? 1 : 101) expect(picture[i] == point(i % n, i / n));
    kernel_end(checksum_of(0, picture, n * n * sizeof *picture));
}
