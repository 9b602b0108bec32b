// Two threads end the process with different statuses at the same time; one of them is the first.
// run: => any
#include "guest.h"

static pthread_barrier_t barrier;

static void *body(void *p) {
    pthread_barrier_wait(&barrier);
    burn(1000 + mix(now_ns(CLOCK_MONOTONIC)) % 10000);
    _exit((intptr_t)p);
}

int main(void) {
    ok(pthread_barrier_init(&barrier, NULL, 4));
    for (intptr_t i = 10; i < 14; i++) start(body, (void *)i);
    for (;;) pause();
}
