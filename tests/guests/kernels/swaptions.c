// Prices of 64 options on swaps by SIZE random paths each, in the manner of PARSEC: each thread prices its own, in memory that it allocates for every
// path. Sums are made in the order of the paths.
#include "kernel.h"

#include <math.h>

#define OPTIONS 64
#define STEPS 24
#define SERIES 1

static double prices[OPTIONS];

static double path(int option, long number) {
    double *rates = room_for(STEPS, sizeof *rates), discount = 1;
    rates[0] = 0.03 + 0.0005 * option;
    for (int s = 1; s < STEPS; s++) {
        double shock = uniform_at(SERIES + option, number * STEPS + s) - 0.5;
        rates[s] = rates[s - 1] * exp(0.1 * shock) + 0.0001 * sin(s);
        discount *= exp(-rates[s] / STEPS);
    }
    double gain = fmax(rates[STEPS - 1] - rates[0], 0) * discount;
    free(rates);
    return gain;
}

static double price(int option) {
    double sum = 0;
    for (long i = 0; i < kernel.size; i++) sum += path(option, i);
    return sum / kernel.size;
}

static void body(int thread) {
    struct range own = share_of(OPTIONS, thread);
    for (long o = own.from; o < own.to; o++) prices[o] = price(o);
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){60, 30000, 150000});
    in_parallel(body);
    for (int o = 0; o < OPTIONS; o += kernel.thorough ? 1 : 31) expect(prices[o] == price(o));
    kernel_end(checksum_of(0, prices, sizeof prices));
}
