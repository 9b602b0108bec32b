// A time limit for every kind of lock: over (ETIMEDOUT), in the past, no time at all (EINVAL), and of no matter when the lock is free.
#include "guest.h"
#include <threads.h>

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, inheriting, robust;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static sem_t empty, held, go;
static mtx_t c11;
static cnd_t c11_condition;
static pthread_cond_t steady, wall = PTHREAD_COND_INITIALIZER;

static struct timespec after(clockid_t clock, long ns) {
    int64_t at = now_ns(clock) + ns;
    return (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
}

static void *holder(void *unused) {
    ok(pthread_mutex_lock(&plain));
    ok(pthread_mutex_lock(&inheriting));
    ok(pthread_mutex_lock(&robust));
    ok(pthread_rwlock_rdlock(&rw));
    expect(mtx_lock(&c11) == thrd_success);
    must(sem_post(&held));
    must(sem_wait(&go));
    ok(pthread_rwlock_unlock(&rw));
    ok(pthread_rwlock_wrlock(&rw));
    must(sem_post(&held));
    must(sem_wait(&go));
    ok(pthread_rwlock_unlock(&rw));
    ok(pthread_mutex_unlock(&plain));
    ok(pthread_mutex_unlock(&inheriting));
    ok(pthread_mutex_unlock(&robust));
    expect(mtx_unlock(&c11) == thrd_success);
    return unused;
}

// Each lock with a limit a millisecond ahead, one in the past, and one that makes no sense.
#define LIMITS(call, clock) LIMITS_OR(call, clock, ETIMEDOUT)

#define LIMITS_OR(call, clock, before_1970)                                                                            \
    do {                                                                                                               \
        int64_t begin = now_ns(clock);                                                                                 \
        struct timespec t = after(clock, 1000000);                                                                     \
        expect((call) == ETIMEDOUT);                                                                                   \
        expect(now_ns(clock) - begin >= 1000000);                                                                      \
        t = (struct timespec){.tv_sec = 1};                                                                            \
        expect((call) == ETIMEDOUT);                                                                                   \
        t = (struct timespec){.tv_sec = -1};                                                                           \
        expect((call) == (before_1970));                                                                               \
        t = (struct timespec){.tv_nsec = 1000000000};                                                                  \
        expect((call) == EINVAL);                                                                                      \
        say("%s: done\n", #call);                                                                                      \
    } while (0)

static int error_of(int result) { return result == 0 ? 0 : errno; }

int main(void) {
    pthread_mutexattr_t attributes;
    ok(pthread_mutexattr_init(&attributes));
    ok(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    ok(pthread_mutex_init(&inheriting, &attributes));
    ok(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_NONE));
    ok(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    ok(pthread_mutex_init(&robust, &attributes));
    pthread_condattr_t condition;
    ok(pthread_condattr_init(&condition));
    ok(pthread_condattr_setclock(&condition, CLOCK_MONOTONIC));
    ok(pthread_cond_init(&steady, &condition));
    must(sem_init(&empty, 0, 0));
    must(sem_init(&held, 0, 0));
    must(sem_init(&go, 0, 0));
    expect(mtx_init(&c11, mtx_timed) == thrd_success && cnd_init(&c11_condition) == thrd_success);
    // Free locks are taken whatever the limit says.
    struct timespec past = {.tv_sec = 1}, nonsense = {.tv_nsec = -1};
    ok(pthread_mutex_timedlock(&plain, &past));
    ok(pthread_mutex_unlock(&plain));
    ok(pthread_mutex_timedlock(&plain, &nonsense));
    ok(pthread_mutex_unlock(&plain));
    ok(pthread_mutex_clocklock(&robust, CLOCK_MONOTONIC, &past));
    ok(pthread_mutex_unlock(&robust));
    ok(pthread_rwlock_timedwrlock(&rw, &past));
    ok(pthread_rwlock_unlock(&rw));

    pthread_t thread = start(holder, NULL);
    must(sem_wait(&held));
    LIMITS(pthread_mutex_timedlock(&plain, &t), CLOCK_REALTIME);
    LIMITS(pthread_mutex_clocklock(&plain, CLOCK_MONOTONIC, &t), CLOCK_MONOTONIC);
    LIMITS_OR(pthread_mutex_timedlock(&inheriting, &t), CLOCK_REALTIME, EINVAL);
    LIMITS(pthread_mutex_timedlock(&robust, &t), CLOCK_REALTIME);
    LIMITS(pthread_mutex_clocklock(&robust, CLOCK_MONOTONIC, &t), CLOCK_MONOTONIC);
    LIMITS(pthread_rwlock_timedwrlock(&rw, &t), CLOCK_REALTIME);
    LIMITS(pthread_rwlock_clockwrlock(&rw, CLOCK_MONOTONIC, &t), CLOCK_MONOTONIC);
    LIMITS(error_of(sem_timedwait(&empty, &t)), CLOCK_REALTIME);
    LIMITS(error_of(sem_clockwait(&empty, CLOCK_MONOTONIC, &t)), CLOCK_MONOTONIC);
    expect(pthread_mutex_clocklock(&plain, CLOCK_PROCESS_CPUTIME_ID, &past) == EINVAL);
    fails(EINVAL, sem_clockwait(&empty, 77, &past));
    struct timespec t = after(CLOCK_REALTIME, 1000000);
    expect(mtx_timedlock(&c11, &t) == thrd_timedout);
    expect(mtx_trylock(&c11) == thrd_busy);
    // A reader beside a reader; then beside a writer.
    t = after(CLOCK_REALTIME, 1000000);
    ok(pthread_rwlock_timedrdlock(&rw, &t));
    ok(pthread_rwlock_unlock(&rw));
    must(sem_post(&go));
    must(sem_wait(&held));
    LIMITS(pthread_rwlock_timedrdlock(&rw, &t), CLOCK_REALTIME);
    LIMITS(pthread_rwlock_clockrdlock(&rw, CLOCK_MONOTONIC, &t), CLOCK_MONOTONIC);
    // The thread does not end; nor does anybody signal.
    t = after(CLOCK_REALTIME, 1000000);
    expect(pthread_timedjoin_np(thread, NULL, &t) == ETIMEDOUT);
    t = after(CLOCK_MONOTONIC, 1000000);
    expect(pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &t) == ETIMEDOUT);
    expect(pthread_tryjoin_np(thread, NULL) == EBUSY);
    must(sem_post(&go));
    finish(thread);
    ok(pthread_mutex_lock(&plain));
    LIMITS(pthread_cond_timedwait(&wall, &plain, &t), CLOCK_REALTIME);
    LIMITS(pthread_cond_timedwait(&steady, &plain, &t), CLOCK_MONOTONIC);
    LIMITS(pthread_cond_clockwait(&wall, &plain, CLOCK_MONOTONIC, &t), CLOCK_MONOTONIC);
    expect(pthread_mutex_trylock(&plain) == EBUSY);
    ok(pthread_mutex_unlock(&plain));
    expect(mtx_lock(&c11) == thrd_success);
    t = after(CLOCK_REALTIME, 1000000);
    expect(cnd_timedwait(&c11_condition, &c11, &t) == thrd_timedout);
    expect(mtx_unlock(&c11) == thrd_success);
}
