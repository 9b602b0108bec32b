// Threads that compute, share what came of it under a lock, and say so now and then.
//   runs_on THREADS ROUNDS
// run: 3 200
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sum;
static long rounds;

static void *body(void *which) {
    uint64_t own = (uintptr_t)which;
    for (long i = 1; i <= rounds; i++) {
        for (int k = 0; k < 20000; k++) own = mix(own + k);
        ok(pthread_mutex_lock(&lock));
        sum = mix(sum + own);
        if (i % 50 == 0) say("%ld: %lu\n", (long)(intptr_t)which, sum);
        ok(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[8];
    long n = number(argc, argv, 1, 3);
    rounds = number(argc, argv, 2, 200);
    expect(n >= 1 && n <= 8);
    for (long i = 0; i < n; i++) threads[i] = start(body, (void *)i);
    for (long i = 0; i < n; i++) finish(threads[i]);
    say("sum %lu\n", sum);
}
