// Every type of mutex in every state: free, taken by this thread, by another, destroyed, given up by a thread that ended; and contended.
// run: 2 3000
// run: 8 1000
// run: 64 100
#include "guest.h"

static struct timespec soon(clockid_t clock) {
    struct timespec t;
    must(clock_gettime(clock, &t));
    t.tv_nsec += 2000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}

static const struct timespec nonsense = {1, 1000000000}, before_time = {-1, 0}, long_ago = {1, 0};

static pthread_mutex_t *tried;
static int wanted, inherits;

static void *tries(void *unused) {
    (void)unused;
    struct timespec real = soon(CLOCK_REALTIME), steady = soon(CLOCK_MONOTONIC);
    expect(pthread_mutex_trylock(tried) == EBUSY);
    expect(pthread_mutex_timedlock(tried, &real) == ETIMEDOUT);
    expect(pthread_mutex_timedlock(tried, &long_ago) == ETIMEDOUT);
    expect(pthread_mutex_timedlock(tried, &nonsense) == EINVAL);
    // The kernel has its own opinion where it keeps priorities.
    if (!inherits) expect(pthread_mutex_timedlock(tried, &before_time) == ETIMEDOUT);
    expect(pthread_mutex_clocklock(tried, CLOCK_MONOTONIC, &steady) == ETIMEDOUT);
    expect(pthread_mutex_clocklock(tried, CLOCK_PROCESS_CPUTIME_ID, &steady) == EINVAL);
    expect(pthread_mutex_unlock(tried) == wanted || wanted == -1);
    return NULL;
}

static pthread_mutex_t mutex_of(int type, int robust, int shared, int protocol) {
    pthread_mutexattr_t a;
    pthread_mutex_t m;
    ok(pthread_mutexattr_init(&a));
    ok(pthread_mutexattr_settype(&a, type));
    ok(pthread_mutexattr_setrobust(&a, robust ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED));
    ok(pthread_mutexattr_setpshared(&a, shared));
    ok(pthread_mutexattr_setprotocol(&a, protocol));
    ok(pthread_mutex_init(&m, &a));
    return m;
}

static void states(pthread_mutex_t *m, int type, int robust) {
    ok(pthread_mutex_lock(m));
    int again = pthread_mutex_trylock(m);
    expect(again == (type == PTHREAD_MUTEX_RECURSIVE ? 0 : type == PTHREAD_MUTEX_ERRORCHECK && (robust || inherits) ? EDEADLK : EBUSY));
    if (type == PTHREAD_MUTEX_RECURSIVE) {
        ok(pthread_mutex_lock(m));
        ok(pthread_mutex_unlock(m));
        ok(pthread_mutex_unlock(m));
    }
    if (type == PTHREAD_MUTEX_ERRORCHECK) {
        expect(pthread_mutex_lock(m) == EDEADLK);
        expect(pthread_mutex_timedlock(m, &nonsense) == EDEADLK);
    }
    // Unlocking another's mutex works where nobody checks, so it is not tried there.
    wanted = robust || type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK ? EPERM : -1;
    tried = m;
    if (wanted == EPERM) finish(start(tries, NULL));
    expect(robust || pthread_mutex_destroy(m) == EBUSY);
    ok(pthread_mutex_unlock(m));
    if (wanted == EPERM) expect(pthread_mutex_unlock(m) == EPERM);
    ok(pthread_mutex_trylock(m));
    ok(pthread_mutex_unlock(m));
    ok(pthread_mutex_timedlock(m, &nonsense));
    ok(pthread_mutex_unlock(m));
    ok(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &long_ago));
    ok(pthread_mutex_unlock(m));
    ok(pthread_mutex_destroy(m));
    if (!robust) expect(pthread_mutex_lock(m) == EINVAL && pthread_mutex_trylock(m) == EINVAL);
}

static pthread_mutex_t lock;
static long counter, rounds;
static uint64_t order;

static void *contends(void *p) {
    for (long i = 0; i < rounds; i++) {
        switch (i % 4) {
        case 0:
            while (pthread_mutex_trylock(&lock) == EBUSY) sched_yield();
            break;
        case 1:
            for (;;) {
                struct timespec t = soon(CLOCK_MONOTONIC);
                if (pthread_mutex_clocklock(&lock, CLOCK_MONOTONIC, &t) == 0) break;
            }
            break;
        default: ok(pthread_mutex_lock(&lock));
        }
        counter++;
        order = mix(order + (uintptr_t)p);
        if (i % 64 == 0) sched_yield();
        ok(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

static void *dies(void *unused) {
    (void)unused;
    ok(pthread_mutex_lock(&lock));
    return NULL;
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 8);
    rounds = number(argc, argv, 2, 1000);
    const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int i = 0; i < 4; i++) {
        for (int robust = 0; robust < 2; robust++) {
            for (int shared = 0; shared < 2; shared++) {
                for (int inherit = 0; inherit < 2; inherit++) {
                    inherits = inherit;
                    pthread_mutex_t m = mutex_of(types[i], robust, shared, inherit);
                    states(&m, types[i], robust);
                }
            }
        }
    }
    for (int kind = 0; kind < 6; kind++) {
        int robust = kind >= 4;
        lock = mutex_of(types[robust ? kind - 4 : kind], robust, 0, 0);
        counter = 0, order = 0;
        pthread_t list[threads];
        for (int i = 0; i < threads; i++) list[i] = start(contends, (void *)(uintptr_t)i);
        for (int i = 0; i < threads; i++) finish(list[i]);
        expect(counter == threads * rounds);
        if (robust) {
            finish(start(dies, NULL));
            expect(pthread_mutex_lock(&lock) == EOWNERDEAD);
            ok(pthread_mutex_consistent(&lock));
            expect(pthread_mutex_consistent(&lock) == EINVAL);
            ok(pthread_mutex_unlock(&lock));
        }
        ok(pthread_mutex_destroy(&lock));
        say("kind %d: order %lu\n", kind, order);
    }
}
