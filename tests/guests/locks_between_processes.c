// Read-write locks, barriers, spin locks, condition variables by the steady clock and semaphores in memory that processes share.
// run: 4 30
#include "guest.h"
#include <sys/wait.h>

struct shared {
    pthread_rwlock_t rw;
    pthread_barrier_t barrier;
    pthread_spinlock_t spin;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sem_t room;
    long a, b, serial, spins, turn, inside;
    uint64_t order;
};

int main(int argc, char **argv) {
    long processes = number(argc, argv, 1, 4), rounds = number(argc, argv, 2, 30);
    struct shared *s = must(mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pthread_rwlockattr_t rw;
    ok(pthread_rwlockattr_init(&rw));
    ok(pthread_rwlockattr_setpshared(&rw, PTHREAD_PROCESS_SHARED));
    ok(pthread_rwlock_init(&s->rw, &rw));
    pthread_barrierattr_t barrier;
    ok(pthread_barrierattr_init(&barrier));
    ok(pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED));
    ok(pthread_barrier_init(&s->barrier, &barrier, (unsigned)processes));
    ok(pthread_spin_init(&s->spin, PTHREAD_PROCESS_SHARED));
    pthread_mutexattr_t mutex;
    ok(pthread_mutexattr_init(&mutex));
    ok(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED));
    ok(pthread_mutexattr_settype(&mutex, PTHREAD_MUTEX_RECURSIVE));
    ok(pthread_mutex_init(&s->lock, &mutex));
    pthread_condattr_t cond;
    ok(pthread_condattr_init(&cond));
    ok(pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED));
    ok(pthread_condattr_setclock(&cond, CLOCK_MONOTONIC));
    ok(pthread_cond_init(&s->changed, &cond));
    must(sem_init(&s->room, 1, 2));
    for (long me = 0; me < processes; me++) {
        if (must(fork()) != 0) continue;
        for (long i = 0; i < rounds; i++) {
            if (i % 5 == me % 5) {
                ok(pthread_rwlock_wrlock(&s->rw));
                s->a++;
                if (i % 2) sched_yield();
                s->b++;
                ok(pthread_rwlock_unlock(&s->rw));
            } else {
                ok(pthread_rwlock_rdlock(&s->rw));
                expect(s->a == s->b);
                ok(pthread_rwlock_unlock(&s->rw));
            }
            int r = pthread_barrier_wait(&s->barrier);
            expect(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
            ok(pthread_spin_lock(&s->spin));
            s->spins++;
            s->order = mix(s->order + me);
            if (r) s->serial++;
            ok(pthread_spin_unlock(&s->spin));
            must(sem_wait(&s->room));
            expect(__atomic_add_fetch(&s->inside, 1, __ATOMIC_SEQ_CST) <= 2);
            sched_yield();
            __atomic_sub_fetch(&s->inside, 1, __ATOMIC_SEQ_CST);
            must(sem_post(&s->room));
            // In turns; a limit in the past is over at once.
            ok(pthread_mutex_lock(&s->lock));
            ok(pthread_mutex_lock(&s->lock));
            ok(pthread_mutex_unlock(&s->lock));
            struct timespec limit = {.tv_sec = now_ns(CLOCK_MONOTONIC) / 1000000000 + 1000}, past = {.tv_sec = 0, .tv_nsec = 1};
            // Another's broadcast may come first.
            r = pthread_cond_timedwait(&s->changed, &s->lock, &past);
            expect(r == ETIMEDOUT || r == 0);
            while (s->turn % processes != me) ok(pthread_cond_timedwait(&s->changed, &s->lock, &limit));
            s->turn++;
            ok(pthread_cond_broadcast(&s->changed));
            ok(pthread_mutex_unlock(&s->lock));
        }
        _exit(0);
    }
    for (long i = 0; i < processes; i++) {
        int status;
        must(wait(&status));
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    expect(s->serial == rounds && s->spins == processes * rounds && s->turn == processes * rounds && s->a == s->b);
    ok(pthread_barrier_destroy(&s->barrier));
    ok(pthread_rwlock_destroy(&s->rw));
    ok(pthread_cond_destroy(&s->changed));
    say("written %ld times, order %lu\n", s->a, s->order);
}
