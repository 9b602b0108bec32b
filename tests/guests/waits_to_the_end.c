// Threads that wait for something which never comes, until the program ends: on a condition variable, whose mutex others want
// meanwhile; on a semaphore; on a mutex that nobody gives back; at a barrier; for a lock to be written under; for a thread. Nothing of the wait's end is
// in a recording, and what the thread did before it (giving back its mutex) is for others to see all the same.
// run:
// run: 3
#include "guest.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, never_free = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t read_locked = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t never_full;
static sem_t never_posted;
static int waiting, rounds;
#define MOST 8

static void arrive(void) {
    ok(pthread_mutex_lock(&mutex));
    waiting++;
    ok(pthread_mutex_unlock(&mutex));
}

static void *on_condition(void *unused) {
    (void)unused;
    ok(pthread_mutex_lock(&mutex));
    waiting++;
    for (;;) ok(pthread_cond_wait(&never, &mutex));
}

static void *on_semaphore(void *unused) {
    arrive();
    sem_wait(&never_posted);
    return unused;
}

static void *on_mutex(void *unused) {
    arrive();
    pthread_mutex_lock(&never_free);
    return unused;
}

static void *on_rwlock(void *unused) {
    arrive();
    pthread_rwlock_wrlock(&read_locked);
    return unused;
}

static void *at_barrier(void *unused) {
    arrive();
    pthread_barrier_wait(&never_full);
    return unused;
}

static void *for_thread(void *other) {
    arrive();
    pthread_join(*(pthread_t *)other, NULL);
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 1;
    static pthread_t first[MOST];
    expect(rounds <= MOST);
    ok(sem_init(&never_posted, 0, 0) ? errno : 0);
    ok(pthread_barrier_init(&never_full, NULL, 100));
    ok(pthread_mutex_lock(&never_free));
    ok(pthread_rwlock_rdlock(&read_locked));
    for (int i = 0; i < rounds; i++) {
        first[i] = start(on_condition, NULL);
        start(on_semaphore, NULL);
        start(on_mutex, NULL);
        start(on_rwlock, NULL);
        start(at_barrier, NULL);
        start(for_thread, &first[i]);
    }
    for (int there = 0; there < 6 * rounds;) {
        ok(pthread_mutex_lock(&mutex));
        there = waiting;
        ok(pthread_mutex_unlock(&mutex));
        sched_yield();
    }
    // Whoever waits on the condition has given the mutex back.
    ok(pthread_mutex_lock(&mutex));
    say("%d threads wait\n", waiting);
    ok(pthread_mutex_unlock(&mutex));
    return 0;
}
