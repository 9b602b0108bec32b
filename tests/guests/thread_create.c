// Threads that start, say who they are, and return a value.
// variant: static -static
// variant: static-pie -static-pie -fPIE
// variant: nonpie -no-pie -fno-pie
// run: 8
#include "guest.h"

static _Atomic int order;

static void *body(void *p) {
    say("thread %ld, tid %ld, place %d\n", (long)(intptr_t)p, gettid_raw(), order++);
    return (char *)p + 100;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 8);
    pthread_t threads[64];
    expect(count <= 64);
    for (intptr_t i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    for (intptr_t i = 0; i < count; i++) expect((intptr_t)finish(threads[i]) == i + 100);
    say("joined all, order %d\n", order);
}
