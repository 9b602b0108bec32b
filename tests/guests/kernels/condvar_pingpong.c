// A token goes round all threads SIZE times in all, each waiting for it with a condition variable of its own: hardly anything but sleeping and waking.
#include "kernel.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn[MAX_THREADS];
static long token;
static uint64_t sum;

static void body(int thread) {
    lock(&mutex);
    for (long mine = thread; mine < kernel.size; mine += kernel.threads) {
        while (token != mine) wait_for(&turn[thread], &mutex);
        sum = mix(sum ^ token++);
        wake_one(&turn[token % kernel.threads]);
    }
    unlock(&mutex);
}

int main(int argc, char **argv) {
    kernel_begin(argc, argv, (struct sizes){1000, 240000, 1200000});
    for (int t = 0; t < kernel.threads; t++) ok(pthread_cond_init(&turn[t], NULL));
    in_parallel(body);
    uint64_t wanted = 0;
    for (long i = 0; i < kernel.size; i++) wanted = mix(wanted ^ i);
    expect(token == kernel.size && sum == wanted);
    kernel_end(sum);
}
