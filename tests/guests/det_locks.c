// What the optimisations of `reprise run` are for: critical sections, barriers, pages that threads write in turns, stretches in which one thread runs alone.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 100 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static long counted_up, own[THREADS][1024];
static volatile long all[THREADS];

static void *body(void *p) {
    long me = (intptr_t)p;
    for (long i = 0; i < ROUNDS; i++) {
        ok(pthread_mutex_lock(&lock));
        counted_up++;
        ok(pthread_mutex_unlock(&lock));
        all[me] += i;
        own[me][i] = i;
    }
    for (int i = 0; i < 10; i++) {
        int r = pthread_barrier_wait(&barrier);
        expect(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
    }
    return NULL;
}

static void *alone(void *unused) {
    sem_t semaphore;
    must(sem_init(&semaphore, 0, 0));
    for (int i = 0; i < 1000; i++) {
        must(sem_post(&semaphore));
        must(sem_wait(&semaphore));
    }
    return unused;
}

int main(void) {
    pthread_t threads[THREADS];
    ok(pthread_barrier_init(&barrier, NULL, THREADS));
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
    finish(start(alone, NULL));
    long sum = 0;
    for (int i = 0; i < THREADS; i++) sum += all[i] + own[i][ROUNDS - 1];
    say("%ld counted, sum %ld\n", counted_up, sum);
}
