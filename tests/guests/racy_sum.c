// Threads that change memory without any order, between locks that order nothing of it: what comes out is different every time.
// run: 4 30000
#include "guest.h"

static pthread_mutex_t locks[16];
static volatile unsigned long sum = 1;
static pthread_barrier_t barrier;
static long rounds;

static void *body(void *p) {
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < rounds; i++) {
        ok(pthread_mutex_lock(&locks[i % 16]));
        ok(pthread_mutex_unlock(&locks[i % 16]));
        for (int k = 0; k < 20; k++) sum = sum * 31 + (unsigned long)(intptr_t)p;
    }
    return NULL;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 30000);
    for (int i = 0; i < 16; i++) ok(pthread_mutex_init(&locks[i], NULL));
    ok(pthread_barrier_init(&barrier, NULL, count));
    pthread_t threads[16];
    for (intptr_t i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    for (intptr_t i = 0; i < count; i++) finish(threads[i]);
    say("%lu\n", sum);
}
