// Conditions: signals with and without waiters, every clock, times that are none, mutexes that refuse, cancellation, destruction right after a
// broadcast, and queues between many threads.
// run: 2 1000
// run: 8 500
// run: 64 40
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static const struct timespec nonsense = {1, -1}, long_ago = {1, 0}, before_time = {-5, 0};
static int waiting, cleaned;

static struct timespec soon(clockid_t clock) {
    struct timespec t;
    must(clock_gettime(clock, &t));
    t.tv_nsec += 2000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}

static void alone(void) {
    pthread_cond_t steady;
    pthread_condattr_t a;
    ok(pthread_condattr_init(&a));
    ok(pthread_condattr_setclock(&a, CLOCK_MONOTONIC));
    ok(pthread_cond_init(&steady, &a));
    ok(pthread_cond_signal(&changed));
    ok(pthread_cond_broadcast(&changed));
    ok(pthread_mutex_lock(&lock));
    struct timespec real = soon(CLOCK_REALTIME), mono = soon(CLOCK_MONOTONIC);
    // Waits may end for no reason.
    int r;
    while ((r = pthread_cond_timedwait(&changed, &lock, &real)) == 0) {}
    expect(r == ETIMEDOUT);
    while ((r = pthread_cond_timedwait(&steady, &lock, &mono)) == 0) {}
    expect(r == ETIMEDOUT && now_ns(CLOCK_MONOTONIC) >= mono.tv_sec * 1000000000ll + mono.tv_nsec);
    mono = soon(CLOCK_MONOTONIC);
    while ((r = pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &mono)) == 0) {}
    expect(r == ETIMEDOUT);
    expect(pthread_cond_timedwait(&changed, &lock, &long_ago) == ETIMEDOUT);
    expect(pthread_cond_timedwait(&changed, &lock, &before_time) == ETIMEDOUT);
    expect(pthread_cond_timedwait(&changed, &lock, &nonsense) == EINVAL);
    expect(pthread_cond_clockwait(&changed, &lock, CLOCK_THREAD_CPUTIME_ID, &mono) == EINVAL);
    expect(pthread_mutex_trylock(&lock) == EBUSY);
    ok(pthread_mutex_unlock(&lock));
    ok(pthread_cond_destroy(&steady));
    // A mutex that the thread doesn't have.
    pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    expect(pthread_cond_wait(&changed, &checking) == EPERM);
    ok(pthread_mutex_destroy(&checking));
}

static void unlocks(void *p) {
    cleaned = 1;
    ok(pthread_mutex_unlock(p));
}

static void *waits_for_ever(void *timed) {
    struct timespec t = soon(CLOCK_REALTIME);
    t.tv_sec += 1000;
    ok(pthread_mutex_lock(&lock));
    pthread_cleanup_push(unlocks, &lock);
    waiting = 1;
    for (;;) {
        if (timed) pthread_cond_timedwait(&changed, &lock, &t);
        else pthread_cond_wait(&changed, &lock);
    }
    pthread_cleanup_pop(1);
    return NULL;
}

static void cancelled(void) {
    for (uintptr_t i = 0; i < 4; i++) {
        waiting = cleaned = 0;
        pthread_t thread = start(waits_for_ever, (void *)(i & 1));
        // Twice before it waits, perhaps; twice after.
        while (i & 2) {
            ok(pthread_mutex_lock(&lock));
            int w = waiting;
            ok(pthread_mutex_unlock(&lock));
            if (w) break;
            sched_yield();
        }
        ok(pthread_cancel(thread));
        expect(finish(thread) == PTHREAD_CANCELED);
        ok(pthread_mutex_trylock(&lock));
        expect(cleaned || !waiting);
        ok(pthread_mutex_unlock(&lock));
    }
}

// A condition that is no more as soon as all were told.
struct event {
    pthread_mutex_t lock;
    pthread_cond_t happened;
    int has, waiters;
};

static void *waits_for_event(void *p) {
    struct event *e = p;
    ok(pthread_mutex_lock(&e->lock));
    e->waiters++;
    while (!e->has) ok(pthread_cond_wait(&e->happened, &e->lock));
    e->waiters--;
    ok(pthread_mutex_unlock(&e->lock));
    return NULL;
}

static void destroyed(int threads) {
    for (int round = 0; round < 20; round++) {
        struct event e = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
        pthread_t list[threads];
        for (int i = 0; i < threads; i++) list[i] = start(waits_for_event, &e);
        ok(pthread_mutex_lock(&e.lock));
        while (e.waiters < threads) {
            ok(pthread_mutex_unlock(&e.lock));
            sched_yield();
            ok(pthread_mutex_lock(&e.lock));
        }
        e.has = 1;
        ok(pthread_cond_broadcast(&e.happened));
        ok(pthread_mutex_unlock(&e.lock));
        ok(pthread_cond_destroy(&e.happened));
        memset(&e.happened, 0xff, sizeof e.happened);
        for (int i = 0; i < threads; i++) finish(list[i]);
    }
}

// What is in r8 after a wait that a handler interrupted is in r8 at the next wait: no argument of it, and no business of anybody.
static long r8;

static int wait_with_r8(pthread_cond_t *c, pthread_mutex_t *m) {
    register long kept __asm__("r8") = r8;
    int result;
    __asm__ volatile("mov %%rsp, %%rbx\n\tsub $128, %%rsp\n\tand $-16, %%rsp\n\tcall pthread_cond_wait@PLT\n\tmov %%rbx, %%rsp"
                     : "=a"(result), "+r"(kept), "+D"(c), "+S"(m)
                     :
                     : "rbx", "rcx", "rdx", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
    r8 = kept;
    return result;
}

static tally handled;
static int over;

static void on_signal(int unused) {
    (void)unused;
    count_up(&handled);
}

static void *waits_with_r8(void *unused) {
    (void)unused;
    ok(pthread_mutex_lock(&lock));
    waiting = 1;
    while (!over) ok(wait_with_r8(&changed, &lock));
    ok(pthread_mutex_unlock(&lock));
    return NULL;
}

static void interrupted(void) {
    struct sigaction a = {.sa_handler = on_signal};
    must(sigaction(SIGUSR1, &a, NULL));
    waiting = 0;
    pthread_t thread = start(waits_with_r8, NULL);
    for (int i = 0; i < 100; i++) {
        int before = counted(&handled);
        ok(pthread_kill(thread, SIGUSR1));
        while (counted(&handled) == before) sched_yield();
        // It waits again, so that the mutex is to be had.
        ok(pthread_mutex_lock(&lock));
        ok(pthread_mutex_unlock(&lock));
    }
    ok(pthread_mutex_lock(&lock));
    over = 1;
    ok(pthread_cond_signal(&changed));
    ok(pthread_mutex_unlock(&lock));
    finish(thread);
}

// A queue of one place, with a mutex that is locked once by a thread that may lock it more often.
static pthread_mutex_t queue = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t full, empty;
static long place = -1, taken, rounds;
static uint64_t order;

static void *takes(void *p) {
    for (long i = 0; i < rounds; i++) {
        ok(pthread_mutex_lock(&queue));
        while (place < 0) ok(pthread_cond_wait(&full, &queue));
        order = mix(order + (uintptr_t)p + place);
        place = -1, taken++;
        ok(pthread_mutex_unlock(&queue));
        ok(pthread_cond_signal(&empty));
    }
    return NULL;
}

static void *gives(void *p) {
    for (long i = 0; i < rounds; i++) {
        ok(pthread_mutex_lock(&queue));
        while (place >= 0) {
            struct timespec t = soon(CLOCK_MONOTONIC);
            int r = i % 2 ? pthread_cond_wait(&empty, &queue) : pthread_cond_clockwait(&empty, &queue, CLOCK_MONOTONIC, &t);
            expect(r == 0 || r == ETIMEDOUT);
        }
        place = (uintptr_t)p * rounds + i;
        ok(pthread_cond_signal(&full));
        ok(pthread_mutex_unlock(&queue));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 8);
    rounds = number(argc, argv, 2, 500);
    alone();
    cancelled();
    destroyed(threads);
    interrupted();
    pthread_t list[threads];
    for (int i = 0; i < threads; i++) list[i] = start(i % 2 ? takes : gives, (void *)(uintptr_t)i);
    for (int i = 0; i < threads; i++) finish(list[i]);
    expect(taken == rounds * (threads / 2) && place < 0);
    ok(pthread_cond_destroy(&full));
    say("order %lu\n", order);
}
