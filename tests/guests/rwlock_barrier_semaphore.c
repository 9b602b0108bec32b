// Read-write locks, barriers, semaphores, spin locks, once and C11 threads.
#include "guest.h"
#include <threads.h>

static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t semaphore;
static long a, b, reads, serial[4], spins, inside, most;
static _Atomic int initialised;
static once_flag c11_once = ONCE_FLAG_INIT;
static mtx_t c11_lock;
static cnd_t c11_condition;
static int c11_turn;
static thread_local int own;

static void initialise(void) { initialised++; }

static void *body(void *p) {
    int me = (intptr_t)p;
    ok(pthread_once(&once, initialise));
    for (int i = 0; i < 500; i++) {
        if (i % 10 == me) {
            ok(pthread_rwlock_wrlock(&rw));
            a++;
            if (i % 50 == me) sched_yield();
            b++;
            ok(pthread_rwlock_unlock(&rw));
        } else {
            ok(pthread_rwlock_rdlock(&rw));
            expect(a == b);
            __atomic_fetch_add(&reads, a, __ATOMIC_SEQ_CST);
            ok(pthread_rwlock_unlock(&rw));
        }
    }
    for (int i = 0; i < 50; i++) {
        int r = pthread_barrier_wait(&barrier);
        if (r == PTHREAD_BARRIER_SERIAL_THREAD) serial[me]++;
        else expect(r == 0);
    }
    for (int i = 0; i < 100; i++) {
        must(sem_wait(&semaphore));
        long n = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        expect(n <= 2);
        if (n > most) most = n;
        if (i % 10 == 0) sched_yield();
        __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        must(sem_post(&semaphore));
    }
    for (int i = 0; i < 1000; i++) {
        ok(pthread_spin_lock(&spin));
        spins++;
        ok(pthread_spin_unlock(&spin));
    }
    return NULL;
}

static void c11_initialise(void) {
    expect(mtx_init(&c11_lock, mtx_plain) == thrd_success);
    expect(cnd_init(&c11_condition) == thrd_success);
}

static int c11_body(void *p) {
    int me = (intptr_t)p;
    call_once(&c11_once, c11_initialise);
    for (int i = 0; i < 20; i++) {
        expect(mtx_lock(&c11_lock) == thrd_success);
        while (c11_turn % 2 != me) expect(cnd_wait(&c11_condition, &c11_lock) == thrd_success);
        c11_turn++;
        own++;
        expect(cnd_broadcast(&c11_condition) == thrd_success);
        expect(mtx_unlock(&c11_lock) == thrd_success);
    }
    return own;
}

int main(void) {
    ok(pthread_barrier_init(&barrier, NULL, 4));
    ok(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    must(sem_init(&semaphore, 0, 2));
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    expect(initialised == 1 && a == b && a == 200 && spins == 4000 && serial[0] + serial[1] + serial[2] + serial[3] == 50);
    say("reads %ld, serial %ld %ld %ld %ld, most inside %ld\n", reads, serial[0], serial[1], serial[2], serial[3], most);
    thrd_t c11[2];
    for (intptr_t i = 0; i < 2; i++) expect(thrd_create(&c11[i], c11_body, (void *)i) == thrd_success);
    for (int i = 0; i < 2; i++) {
        int result;
        expect(thrd_join(c11[i], &result) == thrd_success && result == 20);
    }
    char name[64];
    snprintf(name, sizeof name, "/guest-%d", getpid());
    sem_t *named = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
    int value = -1;
    if (named != SEM_FAILED) {
        must(sem_unlink(name));
        must(sem_wait(named));
        fails(EAGAIN, sem_trywait(named));
        must(sem_post(named));
        must(sem_getvalue(named, &value));
        must(sem_close(named));
    }
    say("named semaphore %d\n", value);
}
