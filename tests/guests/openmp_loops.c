// Loops that libgomp shares out among threads, which meet at its barriers: it waits there by looking, with plain loads, before it sleeps.
// flags: -fopenmp
// run: 40
#include "guest.h"
#include <omp.h>

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 40);
    uint64_t sum = 0;
    omp_set_num_threads(2);
    for (long round = 0; round < rounds; round++) {
#pragma omp parallel for reduction(+ : sum) schedule(dynamic, 1000)
        for (long i = 0; i < 20000; i++) sum += mix(i + round) >> 8;
    }
    say("sum %lu\n", (unsigned long)sum);
}
