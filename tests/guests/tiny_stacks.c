// Threads with the smallest stacks that libc allows (16 KB), nearly used up, with calls, signals and time read at the bottom of them.
#include "guest.h"

static _Atomic int handled;

static void handler(int number) {
    (void)number;
    handled++;
}

static void *body(void *p) {
    // All of the stack but what libc, the handler's frame and a few calls need.
    volatile char ballast[2048];
    ballast[0] = (char)(uintptr_t)p;
    int64_t t = now_ns(CLOCK_MONOTONIC);
    ok(pthread_kill(pthread_self(), SIGUSR1));
    expect(getppid() >= 0 && ballast[0] == (char)(uintptr_t)p);
    return (void *)t;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGUSR1, &action, NULL));
    pthread_attr_t tiny;
    ok(pthread_attr_init(&tiny));
    ok(pthread_attr_setstacksize(&tiny, 16384));
    pthread_t threads[20];
    for (uintptr_t i = 0; i < 20; i++) ok(pthread_create(&threads[i], &tiny, body, (void *)i));
    for (int i = 0; i < 20; i++) say("at %lu\n", (unsigned long)finish(threads[i]));
    expect(handled == 20);
}
