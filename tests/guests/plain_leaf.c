// Threads that hand over to each other by plain loads and stores in functions that only do this, as libraries have them for atomic words: whoever is
// misled by a value has left the function that loaded it.
// run: 200
#include "guest.h"

static volatile long turn, value = 1, spins;

static __attribute__((noinline, noclone)) long look(volatile long *at) { return *at; }
static __attribute__((noinline, noclone)) void leave(volatile long *at, long to) { *at = to; }

static __attribute__((noinline)) void take_turns(long me, long rounds) {
    for (long i = 0; i < rounds; i++) {
        while (look(&turn) != me) {
            spins++;
            sched_yield();
        }
        value = value * 31 + me;
        leave(&turn, !me);
    }
}

static long rounds;

static void *body(void *p) {
    take_turns((intptr_t)p, rounds);
    return NULL;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 200);
    pthread_t other = start(body, (void *)1);
    body((void *)0);
    finish(other);
    say("%016lx after %ld looks\n", (unsigned long)value, spins);
}
