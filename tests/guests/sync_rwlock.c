// Locks for readers and writers, of every kind: who is let in when, failures, many threads.
// run: 2 1000
// run: 8 300
// run: 64 40
#include "guest.h"

static const struct timespec nonsense = {1, 1000000000}, long_ago = {1, 0};
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t writers_first = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static long rounds, value, copy;
static _Atomic long readers, most;
static tally coming;
static int expected_read, expected_write;

static struct timespec soon(clockid_t clock) {
    struct timespec t;
    must(clock_gettime(clock, &t));
    t.tv_nsec += 2000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}

static void *tries(void *p) {
    pthread_rwlock_t *l = p;
    struct timespec real = soon(CLOCK_REALTIME), mono = soon(CLOCK_MONOTONIC);
    int r = pthread_rwlock_tryrdlock(l);
    expect(r == (expected_read ? EBUSY : 0));
    if (r == 0) ok(pthread_rwlock_unlock(l));
    r = pthread_rwlock_timedrdlock(l, &real);
    expect(r == expected_read);
    if (r == 0) ok(pthread_rwlock_unlock(l));
    r = pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &mono);
    expect(r == expected_read);
    if (r == 0) ok(pthread_rwlock_unlock(l));
    expect(pthread_rwlock_trywrlock(l) == EBUSY);
    expect(pthread_rwlock_timedwrlock(l, &long_ago) == expected_write);
    expect(pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &long_ago) == expected_write);
    expect(pthread_rwlock_timedwrlock(l, &nonsense) == EINVAL);
    return NULL;
}

static void *writes_once(void *p) {
    count_up(&coming);
    ok(pthread_rwlock_wrlock(p));
    ok(pthread_rwlock_unlock(p));
    return NULL;
}

static void states(pthread_rwlock_t *l) {
    ok(pthread_rwlock_rdlock(l));
    ok(pthread_rwlock_tryrdlock(l));
    expected_read = 0, expected_write = ETIMEDOUT;
    finish(start(tries, l));
    ok(pthread_rwlock_unlock(l));
    ok(pthread_rwlock_unlock(l));
    ok(pthread_rwlock_wrlock(l));
    expect(pthread_rwlock_rdlock(l) == EDEADLK);
    expect(pthread_rwlock_wrlock(l) == EDEADLK);
    expect(pthread_rwlock_tryrdlock(l) == EBUSY && pthread_rwlock_trywrlock(l) == EBUSY);
    expected_read = ETIMEDOUT;
    finish(start(tries, l));
    ok(pthread_rwlock_unlock(l));
    ok(pthread_rwlock_trywrlock(l));
    ok(pthread_rwlock_unlock(l));
}

static void *uses(void *p) {
    uintptr_t me = (uintptr_t)p;
    pthread_rwlock_t *l = &lock;
    for (long i = 0; i < rounds; i++) {
        if ((i + me) % 5 == 0) {
            if (i % 2) ok(pthread_rwlock_wrlock(l));
            else while (pthread_rwlock_trywrlock(l) != 0) sched_yield();
            expect(readers == 0);
            value++;
            copy++;
        } else {
            struct timespec t = soon(CLOCK_MONOTONIC);
            if (i % 3 == 0) while (pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &t) != 0) t = soon(CLOCK_MONOTONIC);
            else if (i % 3 == 1) while (pthread_rwlock_tryrdlock(l) != 0) sched_yield();
            else ok(pthread_rwlock_rdlock(l));
            long now = ++readers;
            if (now > most) most = now;
            expect(value == copy);
            readers--;
        }
        ok(pthread_rwlock_unlock(l));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 8);
    rounds = number(argc, argv, 2, 300);
    states(&lock);
    states(&writers_first);
    // A writer that waits keeps new readers out.
    ok(pthread_rwlock_rdlock(&writers_first));
    pthread_t writer = start(writes_once, &writers_first);
    while (!counted(&coming)) sched_yield();
    int r;
    while ((r = pthread_rwlock_tryrdlock(&writers_first)) == 0) {
        ok(pthread_rwlock_unlock(&writers_first));
        sched_yield();
    }
    expect(r == EBUSY);
    ok(pthread_rwlock_unlock(&writers_first));
    finish(writer);
    for (int shared = 0; shared < 2; shared++) {
        pthread_rwlockattr_t a;
        ok(pthread_rwlockattr_init(&a));
        ok(pthread_rwlockattr_setkind_np(&a, shared ? PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP : PTHREAD_RWLOCK_PREFER_READER_NP));
        ok(pthread_rwlockattr_setpshared(&a, shared));
        ok(pthread_rwlock_init(&lock, &a));
        pthread_t list[threads];
        for (int i = 0; i < threads; i++) list[i] = start(uses, (void *)(uintptr_t)i);
        for (int i = 0; i < threads; i++) finish(list[i]);
        expect(value == copy);
        ok(pthread_rwlock_destroy(&lock));
    }
    say("written %ld, most readers %ld\n", value, most);
}
