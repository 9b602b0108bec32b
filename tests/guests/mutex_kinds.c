// Mutexes that look at who locks them: recursive, error-checking, ceilings; misuse of read-write locks, barriers, semaphores and threads.
#include "guest.h"

static pthread_mutex_t make(int type, int protocol, int is_robust) {
    pthread_mutexattr_t a;
    pthread_mutex_t m;
    ok(pthread_mutexattr_init(&a));
    ok(pthread_mutexattr_settype(&a, type));
    ok(pthread_mutexattr_setprotocol(&a, protocol));
    ok(pthread_mutexattr_setrobust(&a, is_robust ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED));
    ok(pthread_mutex_init(&m, &a));
    ok(pthread_mutexattr_destroy(&a));
    return m;
}

static pthread_mutex_t m;
static int expected_try, expected_unlock;

static void *other(void *unused) {
    expect(pthread_mutex_trylock(&m) == expected_try);
    expect(pthread_mutex_unlock(&m) == expected_unlock);
    return unused;
}

int main(void) {
    for (int kind = 0; kind < 4; kind++) {
        int protocol = kind & 1 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE, robust = kind >> 1;
        m = make(PTHREAD_MUTEX_ERRORCHECK, protocol, robust);
        expect(pthread_mutex_unlock(&m) == EPERM);
        ok(pthread_mutex_lock(&m));
        expect(pthread_mutex_lock(&m) == EDEADLK);
        expect(pthread_mutex_timedlock(&m, &(struct timespec){.tv_sec = 1}) == EDEADLK);
        // Where the kernel or the list of robust mutexes has a part in it, libc looks closer.
        expect(pthread_mutex_trylock(&m) == (kind ? EDEADLK : EBUSY));
        expected_try = EBUSY;
        expected_unlock = EPERM;
        finish(start(other, NULL));
        if (!robust) expect(pthread_mutex_destroy(&m) == EBUSY);
        ok(pthread_mutex_unlock(&m));
        ok(pthread_mutex_destroy(&m));

        m = make(PTHREAD_MUTEX_RECURSIVE, protocol, robust);
        for (int i = 0; i < 100; i++) ok(i % 2 ? pthread_mutex_lock(&m) : pthread_mutex_trylock(&m));
        finish(start(other, NULL));
        for (int i = 0; i < 100; i++) ok(pthread_mutex_unlock(&m));
        expect(pthread_mutex_unlock(&m) == EPERM);
        // Now another thread can have it.
        expected_try = expected_unlock = 0;
        finish(start(other, NULL));
        ok(pthread_mutex_destroy(&m));
        say("kind %d: done\n", kind);
    }
    m = make(PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_PRIO_NONE, 0);
    ok(pthread_mutex_lock(&m));
    expect(pthread_mutex_trylock(&m) == EBUSY);
    ok(pthread_mutex_unlock(&m));
    // A ceiling: threads without a real-time priority are below it, unless they may not rise.
    m = make(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_PROTECT, 0);
    int ceiling = 0, r = pthread_mutex_getprioceiling(&m, &ceiling);
    ok(r);
    r = pthread_mutex_lock(&m);
    expect(r == 0 || r == EPERM || r == EINVAL);
    if (r == 0) ok(pthread_mutex_unlock(&m));
    say("ceiling %d: %d\n", ceiling, r);
    pthread_mutexattr_t a;
    ok(pthread_mutexattr_init(&a));
    expect(pthread_mutexattr_settype(&a, 77) == EINVAL);
    expect(pthread_mutexattr_setpshared(&a, 77) == EINVAL);
    expect(pthread_mutexattr_setrobust(&a, 77) == EINVAL);
    expect(pthread_mutexattr_setprotocol(&a, 77) == EINVAL);
    m = make(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, 0);
    expect(pthread_mutex_consistent(&m) == EINVAL);

    // Read-write locks.
    pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
    ok(pthread_rwlock_wrlock(&rw));
    expect(pthread_rwlock_wrlock(&rw) == EDEADLK);
    expect(pthread_rwlock_rdlock(&rw) == EDEADLK);
    expect(pthread_rwlock_tryrdlock(&rw) == EBUSY && pthread_rwlock_trywrlock(&rw) == EBUSY);
    ok(pthread_rwlock_unlock(&rw));
    for (int i = 0; i < 3; i++) ok(pthread_rwlock_rdlock(&rw));
    expect(pthread_rwlock_trywrlock(&rw) == EBUSY);
    for (int i = 0; i < 3; i++) ok(pthread_rwlock_unlock(&rw));
    pthread_spinlock_t spin;
    ok(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    ok(pthread_spin_trylock(&spin));
    expect(pthread_spin_trylock(&spin) == EBUSY);
    ok(pthread_spin_unlock(&spin));
    pthread_barrier_t barrier;
    expect(pthread_barrier_init(&barrier, NULL, 0) == EINVAL);
    // Semaphores.
    sem_t sem;
    fails(EINVAL, sem_init(&sem, 0, (unsigned)SEM_VALUE_MAX + 1));
    must(sem_init(&sem, 0, SEM_VALUE_MAX));
    fails(EOVERFLOW, sem_post(&sem));
    must(sem_init(&sem, 0, 0));
    fails(EAGAIN, sem_trywait(&sem));
    fails(EINVAL, sem_timedwait(&sem, &(struct timespec){.tv_nsec = -1}));
    expect(pthread_join(pthread_self(), NULL) == EDEADLK);
    say("done\n");
}
