// Prices of SIZE options by Black and Scholes' formula, ROUNDS times, each thread its own part. Nothing is shared: it shows what a recording
// costs a program that only computes.
#include "kernel.h"

#include <math.h>

#define ROUNDS 50
#define SERIES 1

struct option {
    double price, strike, rate, spread, years;
    bool call;
};

static long n;
static struct option *options;
static double *prices;

// The normal distribution's integral, by Abramowitz and Stegun's 26.2.17.
static double below(double x) {
    static const double FACTORS[] = {0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429};
    double k = 1 / (1 + 0.2316419 * fabs(x)), sum = 0;
    for (int i = 4; i >= 0; i--) sum = (sum + FACTORS[i]) * k;
    double tail = exp(-x * x / 2) / sqrt(2 * M_PI) * sum;
    return x < 0 ? tail : 1 - tail;
}

static double exactly_below(double x) {
    return erfc(-x / M_SQRT2) / 2;
}

static inline double price_of(const struct option *o, double (*integral)(double)) {
    double root = o->spread * sqrt(o->years);
    double d1 = (log(o->price / o->strike) + (o->rate + o->spread * o->spread / 2) * o->years) / root, d2 = d1 - root;
    double later = o->strike * exp(-o->rate * o->years);
    if (o->call) return o->price * integral(d1) - later * integral(d2);
    return later * integral(-d2) - o->price * integral(-d1);
}

static struct option input(long i) {
    double r[5];
    for (int k = 0; k < 5; k++) r[k] = uniform_at(SERIES, 5 * i + k);
    return (struct option){50 + 100 * r[0], 50 + 100 * r[1], 0.01 + 0.09 * r[2], 0.1 + 0.5 * r[3], 0.1 + 2 * r[4], i % 2};
}

static void body(int thread) {
    struct range own = share_of(n, thread);
    for (long i = own.from; i < own.to; i++) options[i] = input(i);
    for (int round = 0; round < ROUNDS; round++) {
        for (long i = own.from; i < own.to; i++) {
            prices[i] = price_of(&options[i], below);
            // Each round is computed.
            __asm__ volatile("" ::: "memory");
        }
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){1000, 350000, 1750000});
    n = kernel.size;
    options = room_for(n, sizeof *options);
    prices = room_for(n, sizeof *prices);
    in_parallel(body);
    for (long i = 0; i < n; i += kernel.thorough ? 1 : 37) {
        struct option o = input(i);
        expect(fabs(prices[i] - price_of(&o, exactly_below)) < 1e-3);
    }
    kernel_end(checksum_of(0, prices, n * sizeof *prices));
}
