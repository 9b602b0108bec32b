// Which of two mutexes a thread locks depends on a word of memory. A replay in which somebody flips that word has too few operations on one of
// them, for whose turn the others then wait: one for its turn, one inside of a barrier.
#include "guest.h"
#include <unistd.h>

static volatile unsigned char which;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t meeting;

static void *locks(void *unused) {
    for (int i = 0; i < 20; i++) {
        pthread_mutex_t *m = i > 0 && which ? &other : &one;
        ok(pthread_mutex_lock(m));
        ok(pthread_mutex_unlock(m));
    }
    return unused;
}

static void *meets(void *unused) {
    pthread_barrier_wait(&meeting);
    return unused;
}

int main(void) {
    say("%p\n", (void *)&which);
    for (int i = 0; i < 300; i++) getppid();
    ok(pthread_barrier_init(&meeting, NULL, 2));
    pthread_t waits = start(meets, NULL);
    finish(start(locks, NULL));
    ok(pthread_mutex_lock(&one));
    ok(pthread_mutex_unlock(&one));
    pthread_barrier_wait(&meeting);
    finish(waits);
    say("all met\n");
}
