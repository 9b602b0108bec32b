// A stencil in the manner of SPLASH-2's ocean: Poisson's equation on a square grid of SIZE by SIZE points, by red-black Gauss-Seidel
// sweeps with over-relaxation. Each thread has a band of rows; barriers after the red points and after the black ones, where the largest
// change of all threads decides whether to go on.
#include "kernel.h"

#include <math.h>

#define SWEEPS 250
#define RELAXATION 1.7
#define ENOUGH 1e-12
#define SERIES 1

static long n;
// With a border that stays as it is.
static double *grid, *source;
static struct APART {
    double value;
} changes[MAX_THREADS];
static double first_change, last_change;

#define AT(array, y, x) (array)[(y) * (n + 2) + (x)]

// One colour's points in the rows from..to; the largest change.
static double sweep(double *g, long from, long to, int colour) {
    double most = 0;
    for (long y = from; y < to; y++) {
        for (long x = 1 + (y + colour) % 2; x <= n; x += 2) {
            double around = AT(g, y - 1, x) + AT(g, y + 1, x) + AT(g, y, x - 1) + AT(g, y, x + 1);
            double change = RELAXATION * ((around - AT(source, y, x)) / 4 - AT(g, y, x));
            AT(g, y, x) += change;
            if (fabs(change) > most) most = fabs(change);
        }
    }
    return most;
}

static void fill(double *g, long from, long to) {
    for (long y = from; y < to; y++) {
        for (long x = 0; x < n + 2; x++) {
            AT(source, y, x) = (uniform_at(SERIES, y * (n + 2) + x) - 0.5) / n;
            AT(g, y, x) = y == 0 ? 1 : 0;
        }
    }
}

static void body(int thread) {
    struct range own = share_of(n, thread);
    long from = own.from + 1, to = own.to + 1;
    fill(grid, thread == 0 ? 0 : from, thread == kernel.threads - 1 ? n + 2 : to);
    barrier();
    for (int i = 0; i < SWEEPS; i++) {
        double red = sweep(grid, from, to, 0);
        barrier();
        double black = sweep(grid, from, to, 1), most = 0;
        changes[thread].value = red > black ? red : black;
        barrier();
        for (int t = 0; t < kernel.threads; t++) most = fmax(most, changes[t].value);
        if (thread == 0) {
            if (i == 0) first_change = most;
            last_change = most;
        }
        if (most < ENOUGH) break;
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){64, 1024, 2300});
    n = kernel.size;
    size_t points = (n + 2) * (n + 2);
    grid = room_for(points, sizeof *grid);
    source = room_for(points, sizeof *source);
    in_parallel(body);
    expect(last_change < first_change / 2);
    if (kernel.thorough) {
        double *reference = room_for(points, sizeof *reference);
        fill(reference, 0, n + 2);
        for (int i = 0; i < SWEEPS; i++) {
            double red = sweep(reference, 1, n + 1, 0), black = sweep(reference, 1, n + 1, 1);
            if (fmax(red, black) < ENOUGH) break;
        }
        expect(memcmp(grid, reference, points * sizeof *grid) == 0);
    }
    kernel_end(checksum_of(0, grid, points * sizeof *grid));
}
