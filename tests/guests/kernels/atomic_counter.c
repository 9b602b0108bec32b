// SIZE increments of one atomic counter by all threads, with nothing in between. Each draws numbers that nobody else draws.
#include "kernel.h"

static APART _Atomic uint64_t counter;
static struct APART {
    uint64_t sum;
} results[MAX_THREADS];

static void body(int thread) {
    struct range own = share_of(kernel.size, thread);
    uint64_t sum = 0;
    for (long i = own.from; i < own.to; i++) sum += mix(counted(atomic_fetch_add(&counter, 1)));
    results[thread].sum = sum;
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){20000, 150000000, 750000000});
    in_parallel(body);
    uint64_t sum = 0, wanted = 0;
    for (int t = 0; t < kernel.threads; t++) sum += results[t].sum;
    for (long i = 0; i < kernel.size; i++) wanted += mix(i);
    expect(sum == wanted && atomic_load(&counter) == (uint64_t)kernel.size);
    kernel_end(sum);
}
