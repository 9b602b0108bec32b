// The first thread waits at a barrier for all that the others take to fight for a mutex, in the order in which they get it. One of them says now and then how far they are.
// run: 3 4000
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static long counter, rounds;
static uint64_t order;

static void *body(void *p) {
    for (long i = 0; i < rounds; i++) {
        ok(pthread_mutex_lock(&lock));
        counter++;
        order = mix(order + (uintptr_t)p);
        uint64_t now = order;
        // Long enough for those who wait to go to sleep.
        burn(20000);
        ok(pthread_mutex_unlock(&lock));
        if (p == NULL && i % 500 == 0) say("%ld: %lu\n", i, now);
    }
    pthread_barrier_wait(&barrier);
    return p;
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 3);
    rounds = number(argc, argv, 2, 20000);
    pthread_t all[16];
    expect(threads <= 16);
    ok(pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1));
    for (intptr_t i = 0; i < threads; i++) all[i] = start(body, (void *)i);
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < threads; i++) finish(all[i]);
    expect(counter == threads * rounds);
    say("all: %lu\n", order);
}
