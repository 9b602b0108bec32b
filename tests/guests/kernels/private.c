// SIZE pairs of lock and unlock, each thread's of a mutex of its own: nobody ever waits, and there is no work beside.
#include "kernel.h"

static struct APART {
    pthread_mutex_t mutex;
    uint64_t count, sum;
} own[MAX_THREADS];

static void body(int thread) {
    struct range share = share_of(kernel.size, thread);
    ok(pthread_mutex_init(&own[thread].mutex, NULL));
    for (long i = share.from; i < share.to; i++) {
        lock(&own[thread].mutex);
        own[thread].count++;
        own[thread].sum += i * i;
        unlock(&own[thread].mutex);
    }
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){20000, 100000000, 500000000});
    in_parallel(body);
    uint64_t count = 0, sum = 0, wanted = 0;
    for (int t = 0; t < kernel.threads; t++) {
        count += own[t].count;
        sum += own[t].sum;
    }
    for (long i = 0; i < kernel.size; i++) wanted += i * i;
    expect(count == (uint64_t)kernel.size && sum == wanted);
    kernel_end(mix(sum));
}
