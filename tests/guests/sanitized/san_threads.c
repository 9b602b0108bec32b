// Threads under a sanitizer: well behaved with a mutex, or with a race, or with an overflow in one of them.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 300 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long counter;
static const char *how;
static volatile int zero;

static void *work(void *argument) {
    long me = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        if (strcmp(how, "race") == 0) {
            counter++;
        } else {
            ok(pthread_mutex_lock(&lock));
            counter++;
            ok(pthread_mutex_unlock(&lock));
        }
        char *p = malloc(16 + i);
        memset(p, me, 16 + i);
        free(p);
        if (i % 100 == 0) sched_yield();
    }
    if (me == 2 && strcmp(how, "overflow") == 0) {
        volatile char *p = malloc(10 + zero);
        p[10 + zero] = 1;
        free((void *)p);
    }
    say("thread %ld done\n", me);
    return NULL;
}

// Holds memory that only its stack or its registers know of, until the process ends.
static void *keeper(void *argument) {
    char *volatile mine = malloc(777);
    mine[0] = 1;
    pthread_barrier_wait((pthread_barrier_t *)argument);
    for (;;) pause();
    return mine;
}

static void leak(void) {
    static pthread_barrier_t kept;
    ok(pthread_barrier_init(&kept, NULL, 3));
    start(keeper, &kept);
    start(keeper, &kept);
    pthread_barrier_wait(&kept);
    char *volatile lost = malloc(4321);
    lost[0] = 1;
    lost = NULL;
}

int main(int argc, char **argv) {
    how = argc > 1 ? argv[1] : "clean";
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) threads[i] = start(work, (void *)i);
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
    expect(strcmp(how, "race") == 0 || counter == THREADS * ROUNDS);
    say("counter %ld\n", counter);
    if (strcmp(how, "leak") == 0) leak();
}
