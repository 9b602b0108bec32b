// Two threads that take two mutexes in different orders, when asked to, or more of them in a circle: under `reprise run` they always wait for each
// other.
#include "guest.h"

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;

static void both(pthread_mutex_t *first, pthread_mutex_t *second) {
    ok(pthread_mutex_lock(first));
    // Without this, a critical section is one turn, and there is no deadlock.
    sched_yield();
    ok(pthread_mutex_lock(second));
    ok(pthread_mutex_unlock(second));
    ok(pthread_mutex_unlock(first));
}

static void *forward(void *arg) {
    both(&one, &two);
    return arg;
}

static void *backward(void *arg) {
    both(&two, &one);
    return arg;
}

#define MOST 64

static pthread_mutex_t circle[MOST];
static int length;

static void *next(void *arg) {
    int me = (int)(intptr_t)arg;
    both(&circle[me], &circle[(me + 1) % length]);
    return arg;
}

static void in_a_circle(void) {
    pthread_t threads[MOST];
    for (int i = 0; i < length; i++) ok(pthread_mutex_init(&circle[i], NULL));
    for (intptr_t i = 0; i < length; i++) threads[i] = start(next, (void *)i);
    for (int i = 0; i < length; i++) finish(threads[i]);
}

int main(int argc, char **argv) {
    bool asked = argc > 1 && strcmp(argv[1], "deadlock") == 0;
    length = argc > 2 ? atoi(argv[2]) : 2;
    expect(length >= 2 && length <= MOST);
    if (length > 2) in_a_circle();
    pthread_t a, b;
    ok(pthread_create(&a, NULL, forward, NULL));
    ok(pthread_create(&b, NULL, asked ? backward : forward, NULL));
    ok(pthread_join(a, NULL));
    ok(pthread_join(b, NULL));
    say("no deadlock\n");
    return 0;
}
