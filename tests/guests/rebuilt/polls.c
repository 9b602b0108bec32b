// Threads that talk by atomic words alone, with plain loads of them: for `reprise cc`, which makes all of that visible.
#include <sched.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "tell.h"

enum { THREADS = 3, ROUNDS = 60 };

#ifdef CHANGED
__attribute__((used)) static _Atomic int in_front[33];
__attribute__((used)) static double padding[50] = {1};
#endif

static _Atomic int turn;
static _Atomic long sum;
static _Atomic(char *) text;
static int looks[THREADS];

static void *work(void *which) {
    int me = (int)(long)which;
    for (int i = 0; i < ROUNDS; i++) {
        while (atomic_load_explicit(&turn, memory_order_acquire) % THREADS != me) {
            looks[me]++;
            sched_yield();
        }
        long old = atomic_load_explicit(&sum, memory_order_relaxed);
        check(old >= 0);
        tell("thread %d, round %d, sum %ld after %d looks\n", me, i, old, looks[me]);
        atomic_store(&sum, old + me + looks[me] % 2);
        char *next = malloc(40), *last;
        snprintf(next, 40, "%d-%d", me, i);
        last = atomic_exchange(&text, next);
        free(last);
        atomic_fetch_add(&turn, 1);
        // All at once: who was how fast is another in every run.
        if (atomic_fetch_add_explicit(&sum, 2, memory_order_relaxed) & 1) atomic_fetch_xor(&sum, 64);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)i)) return 2;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    tell("all done\n");
    char line[128];
    int n = snprintf(line, sizeof line, "hello: sum %ld, looks %d %d %d, %s\n", sum, looks[0], looks[1], looks[2], text);
    if (write(1, line, (size_t)n) != n) return 2;
    return (int)(sum % 50);
}
