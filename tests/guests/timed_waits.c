// Waits that end because their time is over, or just before.
#include "guest.h"
#include <linux/futex.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int go;
static tally let_go;

static struct timespec soon(clockid_t clock, long ns) {
    struct timespec t;
    must(clock_gettime(clock, &t));
    t.tv_nsec += ns;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static void *holder(void *unused) {
    (void)unused;
    ok(pthread_mutex_lock(&lock));
    must(sem_post(&semaphore));
    while (!counted(&let_go)) sched_yield();
    ok(pthread_mutex_unlock(&lock));
    return NULL;
}

static void *signaller(void *unused) {
    (void)unused;
    for (int i = 0; i < 20; i++) {
        ok(pthread_mutex_lock(&lock));
        go = 2 + i;
        ok(pthread_cond_signal(&condition));
        ok(pthread_mutex_unlock(&lock));
        usleep(i * 20);
    }
    return NULL;
}

int main(void) {
    must(sem_init(&semaphore, 0, 0));
    int64_t t0 = now_ns(CLOCK_MONOTONIC);
    struct timespec t = soon(CLOCK_REALTIME, 2000000);
    fails(ETIMEDOUT, sem_timedwait(&semaphore, &t));
    ok(pthread_mutex_lock(&lock));
    t = soon(CLOCK_REALTIME, 2000000);
    expect(pthread_cond_timedwait(&condition, &lock, &t) == ETIMEDOUT);
    t = soon(CLOCK_MONOTONIC, 2000000);
    expect(pthread_cond_clockwait(&condition, &lock, CLOCK_MONOTONIC, &t) == ETIMEDOUT);
    expect(pthread_mutex_trylock(&lock) == EBUSY);
    ok(pthread_mutex_unlock(&lock));
    pthread_t thread = start(holder, NULL);
    must(sem_wait(&semaphore));
    t = soon(CLOCK_REALTIME, 2000000);
    expect(pthread_mutex_timedlock(&lock, &t) == ETIMEDOUT);
    t = soon(CLOCK_REALTIME, 2000000);
    expect(pthread_timedjoin_np(thread, NULL, &t) == ETIMEDOUT);
    count_up(&let_go);
    finish(thread);
    uint32_t word = 5;
    struct timespec ms = {.tv_nsec = 1000000};
    fails(ETIMEDOUT, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &ms, NULL, 0));
    fails(EAGAIN, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 6, &ms, NULL, 0));
    t = soon(CLOCK_MONOTONIC, 1000000);
    fails(ETIMEDOUT, syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 5, &t, NULL, ~0));
    t = soon(CLOCK_REALTIME, 1000000);
    fails(ETIMEDOUT, syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 5, &t, NULL, ~0));
    fails(EINVAL, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &(struct timespec){.tv_nsec = -5}, NULL, 0));
    t = (struct timespec){.tv_sec = 1};
    fails(ETIMEDOUT, sem_timedwait(&semaphore, &t));
    int64_t waited = now_ns(CLOCK_MONOTONIC) - t0;
    expect(waited >= 9000000);

    // Signals and time-outs race.
    thread = start(signaller, NULL);
    int woken = 0, late = 0;
    ok(pthread_mutex_lock(&lock));
    while (go < 21) {
        t = soon(CLOCK_REALTIME, 100000);
        int r = pthread_cond_timedwait(&condition, &lock, &t);
        expect(r == 0 || r == ETIMEDOUT);
        r ? late++ : woken++;
    }
    ok(pthread_mutex_unlock(&lock));
    finish(thread);
    say("waited %ld ns; woken %d, late %d\n", waited, woken, late);
}
