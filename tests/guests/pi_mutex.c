// Mutexes with priority inheritance: the kernel, not libc, hands them on.
// run: 3000
#include "guest.h"
#include <linux/futex.h>

static pthread_mutex_t lock;
static long counter, rounds;
static uint64_t order;

static void *body(void *p) {
    for (long i = 0; i < rounds; i++) {
        ok(pthread_mutex_lock(&lock));
        counter++;
        order = mix(order + (uintptr_t)p);
        if (i % 50 == 0) sched_yield();
        ok(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 3000);
    pthread_mutexattr_t inherit;
    ok(pthread_mutexattr_init(&inherit));
    ok(pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT));
    ok(pthread_mutex_init(&lock, &inherit));
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    expect(counter == 4 * rounds);
    ok(pthread_mutex_lock(&lock));
    expect(pthread_mutex_trylock(&lock) == EBUSY);
    ok(pthread_mutex_unlock(&lock));
    // By hand: the word holds the owner's id.
    uint32_t word = 0;
    expect(syscall(SYS_futex, &word, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0);
    expect((word & FUTEX_TID_MASK) == (uint32_t)gettid_raw());
    fails(EDEADLK, syscall(SYS_futex, &word, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0));
    expect(syscall(SYS_futex, &word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0 && word == 0);
    fails(EPERM, syscall(SYS_futex, &word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
    say("order %lu\n", order);
}
