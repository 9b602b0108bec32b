// Shared by the programs with a known fault: each has one of the faults that programs which synchronise wrongly have, and ends with a status of
// its own when the fault is hit. Natively, and where slices are long, most of them hardly ever do.
#ifndef FAULT_H
#define FAULT_H

#include "guest.h"

// Exit status of a program whose fault was hit.
#define FAULT 42

// The fault was hit: what was seen, and the end.
#define FOUND(...)             \
    do {                       \
        say("found: " __VA_ARGS__); \
        _exit(FAULT);          \
    } while (0)

// A little work that touches nothing that is shared.
GUEST_UNUSED static void work(long n) {
    for (volatile long i = 0; i < n; i++) {
    }
}

// The time so many milliseconds from now, for waits that end by themselves.
GUEST_UNUSED static struct timespec in_ms(long ms) {
    struct timespec t;
    expect(clock_gettime(CLOCK_REALTIME, &t) == 0);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

#endif
