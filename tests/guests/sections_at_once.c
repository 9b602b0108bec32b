// Two threads, each inside a critical section of its own, that wait for each other there, by memory that nothing orders: they end only if
// both are inside at the same time.
#include "guest.h"

static pthread_mutex_t locks[2];
static volatile int inside[2];

static void *body(void *p) {
    int me = (int)(intptr_t)p;
    for (int round = 1; round <= 20; round++) {
        ok(pthread_mutex_lock(&locks[me]));
        inside[me] = round;
        while (inside[!me] < round) {
        }
        ok(pthread_mutex_unlock(&locks[me]));
    }
    return NULL;
}

int main(void) {
    for (int i = 0; i < 2; i++) ok(pthread_mutex_init(&locks[i], NULL));
    pthread_t other = start(body, (void *)1);
    body((void *)0);
    finish(other);
    say("both were inside at once\n");
}
