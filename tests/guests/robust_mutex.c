// A thread ends while it holds a robust mutex: the next one learns of it, repairs, and goes on; also with somebody waiting.
#include "guest.h"

static pthread_mutex_t lock, second;
static tally waiting;

static void *dies(void *p) {
    ok(pthread_mutex_lock(&lock));
    ok(pthread_mutex_lock(&second));
    while (p && !counted(&waiting)) sched_yield();
    for (int i = 0; p && i < 20; i++) sched_yield();
    return NULL;
}

static void *waits(void *unused) {
    (void)unused;
    count_up(&waiting);
    int r = pthread_mutex_lock(&lock);
    expect(r == EOWNERDEAD);
    ok(pthread_mutex_consistent(&lock));
    ok(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void) {
    for (int pi = 0; pi < 2; pi++) {
        pthread_mutexattr_t robust;
        ok(pthread_mutexattr_init(&robust));
        ok(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST));
        if (pi) ok(pthread_mutexattr_setprotocol(&robust, PTHREAD_PRIO_INHERIT));
        ok(pthread_mutex_init(&lock, &robust));
        ok(pthread_mutex_init(&second, &robust));
        finish(start(dies, NULL));
        expect(pthread_mutex_trylock(&second) == EOWNERDEAD);
        // Not repaired: never to be used again.
        ok(pthread_mutex_unlock(&second));
        expect(pthread_mutex_lock(&second) == ENOTRECOVERABLE);
        expect(pthread_mutex_lock(&lock) == EOWNERDEAD);
        ok(pthread_mutex_consistent(&lock));
        ok(pthread_mutex_unlock(&lock));
        ok(pthread_mutex_destroy(&second));
        ok(pthread_mutex_init(&second, &robust));
        count_from_zero(&waiting);
        // Hold the lock here until the waiter waits, so that the order is the same in every run.
        pthread_t holder = start(dies, (void *)1);
        while (pthread_mutex_trylock(&lock) != EBUSY) {
            ok(pthread_mutex_unlock(&lock));
            sched_yield();
        }
        pthread_t waiter = start(waits, NULL);
        finish(holder);
        finish(waiter);
        ok(pthread_mutex_lock(&lock));
        ok(pthread_mutex_unlock(&lock));
        say("inheriting %d: tid %ld\n", pi, gettid_raw());
    }
}
