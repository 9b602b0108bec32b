// Threads that wait for each other by plain memory: two hand a word to and fro; several wait for one flag; one waits while it has a mutex.
#include "guest.h"

static volatile long turn, flag, go;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t order;

static void *hands_over(void *p) {
    long me = (intptr_t)p;
    for (long i = 0; i < 10; i++) {
        while (turn % 2 != me) continue;
        order = mix(order + me);
        __atomic_store_n(&turn, turn + 1, __ATOMIC_RELEASE); // a plain `mov`, made once: gcc stores the last `turn++` of a loop twice
    }
    return NULL;
}

static void *waits(void *p) {
    while (!flag) continue;
    ok(pthread_mutex_lock(&lock));
    order = mix(order + (uintptr_t)p);
    ok(pthread_mutex_unlock(&lock));
    return NULL;
}

static void *has_the_lock(void *unused) {
    ok(pthread_mutex_lock(&lock));
    while (!go) continue;
    ok(pthread_mutex_unlock(&lock));
    return unused;
}

static void *lets_go(void *unused) {
    go = 1;
    return unused;
}

int main(void) {
    pthread_t threads[4];
    for (intptr_t i = 0; i < 2; i++) threads[i] = start(hands_over, (void *)i);
    for (int i = 0; i < 2; i++) finish(threads[i]);
    expect(turn == 20);
    for (intptr_t i = 0; i < 4; i++) threads[i] = start(waits, (void *)i);
    sched_yield();
    flag = 1;
    for (int i = 0; i < 4; i++) finish(threads[i]);
    threads[0] = start(has_the_lock, NULL);
    threads[1] = start(lets_go, NULL);
    for (int i = 0; i < 2; i++) finish(threads[i]);
    say("order %lu\n", order);
}
