// Threads that fight for one mutex; the order in which they got it is different every time.
// variant: static -static
// run: 4 20000
#include "guest.h"

static pthread_mutex_t lock;
static long counter, switches, rounds;
static intptr_t last = -1;
static uint64_t order;

static void *body(void *p) {
    for (long i = 0; i < rounds; i++) {
        ok(pthread_mutex_lock(&lock));
        counter++;
        if (last != (intptr_t)p) {
            switches++;
            last = (intptr_t)p;
            order = mix(order + last + counter * 64);
        }
        if (i % 500 == 0) sched_yield();
        ok(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 20000);
    pthread_mutexattr_t kind;
    static const int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int k = 0; k < 4; k++) {
        ok(pthread_mutexattr_init(&kind));
        ok(pthread_mutexattr_settype(&kind, kinds[k]));
        ok(pthread_mutex_init(&lock, &kind));
        counter = switches = 0;
        pthread_t threads[16];
        for (intptr_t i = 0; i < count; i++) threads[i] = start(body, (void *)i);
        for (intptr_t i = 0; i < count; i++) finish(threads[i]);
        expect(counter == count * rounds);
        ok(pthread_mutex_destroy(&lock));
        say("kind %d: %ld switches, order %lu\n", k, switches, order);
    }
}
