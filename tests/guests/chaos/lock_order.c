// Lock order: one thread takes two locks in one order, another in the other. That nobody goes on is seen by a lock that waits only so long.
#include "fault.h"
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static void both(pthread_mutex_t *a, pthread_mutex_t *b) {
    pthread_mutex_lock(a);
    work(20);
    struct timespec limit = in_ms(2000);
    if (pthread_mutex_timedlock(b, &limit) == ETIMEDOUT) FOUND("two threads wait for each other\n");
    work(20);
    pthread_mutex_unlock(b);
    pthread_mutex_unlock(a);
}
static void *body(void *p) {
    for (long i = 0; i < 2000; i++) {
        both(p ? &first : &second, p ? &second : &first);
        work(500);
    }
    return NULL;
}
int main(void) {
    pthread_t a = start(body, NULL), b = start(body, &first);
    finish(a), finish(b);
    say("no deadlock\n");
}
