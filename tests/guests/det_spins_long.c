// A thread that waits for another by looking at plain memory, and counts from the start again between two looks: it is in the same state again only after
// thousands of instructions.
#include "guest.h"

static volatile int stop;
static volatile long looks;

static void *stops(void *unused) {
    for (volatile int i = 0; i < 1000; i++) {}
    stop = 1;
    return unused;
}

static void *waits(void *unused) {
    while (!stop)
        for (volatile int i = 0; i < 500; i++) {}
    return unused;
}

// Longer than a thread is ever seen in the same state twice.
static void *waits_for_long(void *unused) {
    while (!looks)
        for (volatile int i = 0; i < 1500; i++) {}
    return unused;
}

static void *lets_go(void *unused) {
    looks = 1;
    return unused;
}

int main(void) {
    pthread_t a = start(stops, NULL), b = start(waits, NULL);
    finish(a), finish(b);
    a = start(waits_for_long, NULL), b = start(lets_go, NULL);
    finish(a), finish(b);
    say("done\n");
}
