// Handlers run while their thread waits for a lock that it can't get before they have run: as garbage collectors stop the world.
#include "guest.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, robust, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t sem, stopped;
static tally resume, waiting, handled;
static int ended;

static void on_signal(int unused) {
    (void)unused;
    int error = errno;
    must(sem_post(&stopped));
    while (!counted(&resume)) sched_yield();
    count_up(&handled);
    errno = error;
}

static void *waits(void *p) {
    switch ((uintptr_t)p) {
    case 0:
        count_up(&waiting);
        ok(pthread_mutex_lock(&mutex));
        ok(pthread_mutex_unlock(&mutex));
        break;
    case 1:
        count_up(&waiting);
        ok(pthread_mutex_lock(&robust));
        ok(pthread_mutex_unlock(&robust));
        break;
    case 2:
        count_up(&waiting);
        ok(pthread_rwlock_rdlock(&rwlock));
        ok(pthread_rwlock_unlock(&rwlock));
        break;
    case 3:
        count_up(&waiting);
        ok(pthread_rwlock_wrlock(&rwlock));
        ok(pthread_rwlock_unlock(&rwlock));
        break;
    case 4:
        count_up(&waiting);
        must(sem_wait(&sem));
        break;
    case 5:
        count_up(&waiting);
        ok(pthread_spin_lock(&spin));
        ok(pthread_spin_unlock(&spin));
        break;
    case 6:
        ok(pthread_mutex_lock(&other));
        count_up(&waiting);
        while (!ended) ok(pthread_cond_wait(&never, &other));
        ok(pthread_mutex_unlock(&other));
        break;
    }
    return NULL;
}

int main(void) {
    pthread_mutexattr_t a;
    ok(pthread_mutexattr_init(&a));
    ok(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST));
    ok(pthread_mutex_init(&robust, &a));
    ok(pthread_spin_init(&spin, 0));
    must(sem_init(&stopped, 0, 0));
    struct sigaction s = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &s, NULL));
    for (uintptr_t what = 0; what < 7; what++) {
        must(sem_init(&sem, 0, 0));
        count_from_zero(&waiting);
        ended = 0;
        ok(pthread_mutex_lock(&mutex));
        ok(pthread_mutex_lock(&robust));
        ok(pthread_rwlock_wrlock(&rwlock));
        ok(pthread_spin_lock(&spin));
        pthread_t thread = start(waits, (void *)what);
        while (!counted(&waiting)) sched_yield();
        for (int i = 0; i < 20; i++) {
            // Where it waits for the condition, its mutex is held here, so that the handler must not wait for that.
            if (what == 6) ok(pthread_mutex_lock(&other));
            count_from_zero(&resume);
            ok(pthread_kill(thread, SIGUSR1));
            while (sem_wait(&stopped) != 0) {}
            count_up(&resume);
            while (counted(&handled) <= (int)what * 20 + i) sched_yield();
            if (what == 6) ok(pthread_mutex_unlock(&other));
        }
        ok(pthread_mutex_unlock(&mutex));
        ok(pthread_mutex_unlock(&robust));
        ok(pthread_rwlock_unlock(&rwlock));
        ok(pthread_spin_unlock(&spin));
        must(sem_post(&sem));
        ok(pthread_mutex_lock(&other));
        ended = 1;
        ok(pthread_cond_signal(&never));
        ok(pthread_mutex_unlock(&other));
        finish(thread);
    }
    say("handled %d\n", counted(&handled));
}
