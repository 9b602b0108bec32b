// A timer's handler runs again and again while the first thread waits once: for another one's end, and for locks of all kinds.
// run: 12
#include "guest.h"
#include <sys/time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, robust;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t sem, taken;
static tally ticks;
static long wanted;
static bool is_given;

static void on_tick(int unused) {
    (void)unused;
    count_up(&ticks);
}

// Until the first thread has run so many handlers more.
static void wait_for_ticks(void) {
    for (long until = counted(&ticks) + wanted; counted(&ticks) < until;) must(usleep(1000));
}

static void *holds(void *what) {
    sigset_t set;
    must(sigemptyset(&set));
    must(sigaddset(&set, SIGALRM));
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    uintptr_t which = (uintptr_t)what;
    if (which == 1) ok(pthread_mutex_lock(&mutex));
    if (which == 2) ok(pthread_mutex_lock(&robust));
    if (which == 3) ok(pthread_rwlock_wrlock(&rwlock));
    must(sem_post(&taken));
    wait_for_ticks();
    if (which == 1) ok(pthread_mutex_unlock(&mutex));
    if (which == 2) ok(pthread_mutex_unlock(&robust));
    if (which == 3) ok(pthread_rwlock_unlock(&rwlock));
    if (which == 4) must(sem_post(&sem));
    if (which == 5) {
        ok(pthread_mutex_lock(&guard));
        is_given = true;
        ok(pthread_cond_signal(&given));
        ok(pthread_mutex_unlock(&guard));
    }
    if (which == 6) pthread_barrier_wait(&barrier);
    return NULL;
}

int main(int argc, char **argv) {
    wanted = number(argc, argv, 1, 12);
    pthread_mutexattr_t attributes;
    ok(pthread_mutexattr_init(&attributes));
    ok(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    ok(pthread_mutex_init(&robust, &attributes));
    ok(pthread_barrier_init(&barrier, NULL, 2));
    must(sem_init(&sem, 0, 0));
    must(sem_init(&taken, 0, 0));
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    must(sigaction(SIGALRM, &action, NULL));
    struct itimerval often = {{0, 2000}, {0, 2000}};
    must(setitimer(ITIMER_REAL, &often, NULL));
    for (uintptr_t which = 0; which < 7; which++) {
        pthread_t other = start(holds, (void *)which);
        while (sem_wait(&taken) != 0) expect(errno == EINTR);
        long before = counted(&ticks);
        if (which == 1) {
            ok(pthread_mutex_lock(&mutex));
            ok(pthread_mutex_unlock(&mutex));
        }
        if (which == 2) {
            ok(pthread_mutex_lock(&robust));
            ok(pthread_mutex_unlock(&robust));
        }
        if (which == 3) {
            ok(pthread_rwlock_rdlock(&rwlock));
            ok(pthread_rwlock_unlock(&rwlock));
        }
        if (which == 4) {
            while (sem_wait(&sem) != 0) expect(errno == EINTR);
        }
        if (which == 5) {
            ok(pthread_mutex_lock(&guard));
            while (!is_given) ok(pthread_cond_wait(&given, &guard));
            ok(pthread_mutex_unlock(&guard));
        }
        if (which == 6) pthread_barrier_wait(&barrier);
        finish(other);
        say("%d: %s\n", (int)which, counted(&ticks) - before >= wanted / 2 ? "handlers ran" : "no handlers ran");
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    must(setitimer(ITIMER_REAL, &never, NULL));
    say("the end, %s\n", counted(&ticks) >= 7 * wanted ? "after all" : "too early");
}
