// setuid and its kin in a program with threads: libc makes every thread do it, by a signal of its own.
#include "guest.h"
#include <sys/fsuid.h>

static int ends[2];
static _Atomic int there;

static void *body(void *p) {
    char c;
    there++;
    if (p) {
        while (there < 100) sched_yield();
    } else {
        expect(read(ends[0], &c, 1) == 0);
    }
    return NULL;
}

int main(void) {
    must(pipe(ends));
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) threads[i] = start(body, (void *)(i % 2));
    while (there < 4) sched_yield();
    for (int i = 0; i < 5; i++) {
        must(setgid(getgid()));
        must(setuid(getuid()));
        must(setresuid(-1, getuid(), -1));
    }
    setfsuid(getuid());
    there = 100;
    must(close(ends[1]));
    for (int i = 0; i < 4; i++) finish(threads[i]);
    say("still %u and %u\n", getuid(), getgid());
}
